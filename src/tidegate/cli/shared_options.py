"""Options that several commands have.

Must not know: what any command does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.scenario_input import TraceFormat
from tidegate.cli.simulate_runner import Kernels

FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A tidegate.yaml; the bundled week if not named.", show_default=False),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A trace of work, instead of the file's; --format says which.", show_default=False
    ),
]
FormatOption = Annotated[TraceFormat | None, typer.Option("--format", help="What the trace is.", show_default=False)]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the twin.", min=0, show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KernelsOption = Annotated[Kernels, typer.Option(help="Compiled kernels pay off for large runs.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: .svg or .png.", show_default=False)
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="One page with all of it; needs no network.", show_default=False),
]
