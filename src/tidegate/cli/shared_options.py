"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tidegate.cli.errors import EXIT_BAD_INPUT, say
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


#: Options by their former names.
_FORMER = {"board": "dashboard", "door": "admission-gate", "patience": "scale-up-delay"}


class RenamedOptions(typer.core.TyperCommand):
    """A command that refuses options by their former names, and says the new ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command line."""
        for name in (arg.partition("=")[0].removeprefix("--") for arg in args if arg.startswith("--")):
            if name in _FORMER:
                say(f"--{name}: renamed to --{_FORMER[name]}")
                raise typer.Exit(EXIT_BAD_INPUT)
        return super().parse_args(ctx, args)
