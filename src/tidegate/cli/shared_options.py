"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import typer.core

from tidegate.cli.errors import CommandError
from tidegate.model.units import UnitError, parse_duration_ms


class Kernels(StrEnum):
    """How kernels run."""

    AUTO = "auto"
    PLAIN = "plain"
    COMPILED = "compiled"


SeedOption = Annotated[int | None, typer.Option(help="Seed of the twin.", min=0, show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KernelsOption = Annotated[Kernels, typer.Option(help="How kernels run. Compiled ones pay off for large runs.")]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw a picture to this .svg or .png file.", show_default=False),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write an HTML report to this file; it loads nothing else.", show_default=False
    ),
]


def read_duration_ms(option: str, text: str) -> int:
    """A duration given to an option."""
    try:
        return parse_duration_ms(text)
    except UnitError as error:
        raise CommandError(f"{option}: expected {error}, found {text!r}") from None
