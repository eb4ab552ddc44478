"""`tidegate simulate` and `tidegate compare`: a policy on a trace in the twin, or several side by side.

Must not know: how runs are measured or drawn.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tidegate.cli import report
from tidegate.cli.comparison import compare, render_comparison
from tidegate.cli.errors import CannotRun, told_plainly
from tidegate.cli.plots import plot as draw
from tidegate.cli.runs import Changes, Kernels, open_journal, read_duration_ms, read_setup, simulate_setup
from tidegate.measure.witness import Measured
from tidegate.model.policy import OrderKind, PlacementKind

_File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="A tidegate.yaml; the bundled week if not named.", show_default=False),
]
_Seed = Annotated[int | None, typer.Option(help="Seed of the twin.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Kernels = Annotated[Kernels, typer.Option(help="Compiled kernels pay off for large runs.")]


def simulate(
    file: _File = None,
    *,
    order: Annotated[OrderKind | None, typer.Option(help="Who goes first, instead of the file's order.")] = None,
    placement: Annotated[PlacementKind | None, typer.Option(help="Which node is taken, instead of the file's.")] = None,
    cycle: Annotated[str | None, typer.Option(help='Time between decisions, such as "10s".')] = None,
    seed: _Seed = None,
    journal: Annotated[Path | None, typer.Option(help="Write the journal here, for `explain` and `--resume`.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Take up the run that --journal broke off.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the run into a .svg or .png.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a line for each workload.")] = None,
    kernels: _Kernels = Kernels.AUTO,
    as_json: _Json = False,
) -> None:
    """Run a policy on a trace in the twin, and say how good it was.

    Examples: tidegate simulate · tidegate simulate tidegate.yaml --placement bestfit --plot week.png
    """
    with told_plainly():
        setup = read_setup(file, Changes(order, placement, _cycle_ms(cycle), seed))
        measured = simulate_setup(setup, open_journal(journal, resume=resume), kernels, Console(stderr=True))
        if plot is not None:
            draw(
                plot,
                measured.samples,
                measured.lives,
                f"{file.name if file else 'sample week'}, policy {setup.policy.name}",
            )
        if csv is not None:
            _write_csv(measured, csv)
    if as_json:
        typer.echo(json.dumps(report.as_json(measured.summary, measured.lives, measured.samples), allow_nan=False))
        return
    console = Console()
    report.render(measured.summary, measured.lives, measured.samples, console)
    _suggest(measured, file, console)


def compare_policies(
    file: _File = None,
    *,
    policies: Annotated[
        str,
        typer.Option("--policies", help="Orders and placements, such as tide,bestfit,srtf or fifo+tide,srtf+firstfit."),
    ] = "tide,bestfit,spread",
    seed: _Seed = None,
    kernels: _Kernels = Kernels.AUTO,
    as_json: _Json = False,
) -> None:
    """Run several policies on one trace and show them side by side, as ratios to the first.

    Example: tidegate compare tidegate.yaml --policies tide,bestfit,fgd
    """
    with told_plainly():
        runs = []
        for name in policies.split(","):
            setup = read_setup(file, _named_policy(name.strip(), seed))
            measured = simulate_setup(setup, None, kernels, Console(stderr=True))
            runs.append((name.strip(), measured.lives, measured.summary))
        compared = compare(runs, seed=seed or 0)
    if as_json:
        typer.echo(json.dumps(compared.as_json(), allow_nan=False))
    else:
        render_comparison(compared, Console())


def _named_policy(name: str, seed: int | None) -> Changes:
    """What a name such as `srtf`, `tide` or `srtf+firstfit` changes."""
    order: OrderKind | None = None
    placement: PlacementKind | None = None
    for part in name.split("+"):
        if part in set(OrderKind):
            order = OrderKind(part)
        elif part in set(PlacementKind):
            placement = PlacementKind(part)
        else:
            known = ", ".join([*OrderKind, *PlacementKind])
            raise CannotRun(f"--policies: expected orders and placements ({known}), found {part!r}")
    return Changes(order, placement, None, seed)


def _cycle_ms(text: str | None) -> int | None:
    if text is None:
        return None
    cycle_ms = read_duration_ms("--cycle", text)
    if cycle_ms < 1:
        raise CannotRun(f"--cycle: expected at least 1ms, found {text!r}")
    return cycle_ms


def _write_csv(measured: Measured, path: Path) -> None:
    """Write the workloads beside the file and move them in: nothing half-written is left behind."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("w", newline="") as file:
            report.write_csv(measured.lives, file)
        beside.replace(path)
    except OSError as error:
        raise CannotRun(f"--csv {path}: cannot be written ({error.strerror}); is the folder there?") from None


def _suggest(measured: Measured, file: Path | None, console: Console) -> None:
    """Three commands to try next, with names from this run."""
    lives = measured.lives
    longest = lives.ids[int(lives.waited_ms.argmax())] if len(lives.ids) else "JOB"
    name = f" {file}" if file else ""
    console.print(Text("Try next", style="bold"))
    for command, what in (
        (f"tidegate explain {longest}", "why the workload that waited longest did"),
        (f"tidegate compare{name} --policies tide,bestfit,spread", "other policies on the same work"),
        (f"tidegate simulate{name} --plot week.png", "the same as a picture"),
    ):
        console.print(Text.assemble("  ", (command, "cyan"), f"  {what}"))
