"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import typer.core

from tidegate.api.kernels import Kernels

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
