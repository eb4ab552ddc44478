"""`tidegate simulate`: a policy on a trace in the twin, and how good it was.

Must not know: how runs are measured or drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.text import Text

from tidegate.cli.errors import CannotRun, told_plainly
from tidegate.cli.manifest_folder import say_notes
from tidegate.cli.scenario_input import Changes, Source, notes_on, read_policy, read_setup
from tidegate.cli.shared_options import FileArgument, FormatOption, JsonOption, KernelsOption, SeedOption, TraceOption
from tidegate.cli.simulate_runner import Kernels, check_kernels, open_journal, read_duration_ms, simulate_setup
from tidegate.measure.collector import RunMeasures
from tidegate.model.policy import OrderKind, PlacementKind
from tidegate.report.output_files import check_writable, open_console, written_whole
from tidegate.report.plot.run import plot as draw
from tidegate.report.plot.style import check_picture
from tidegate.report.text import run
from tidegate.report.text.queues import write_queue_csv


def simulate(
    file: FileArgument = None,
    *,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A policy: a tidegate.yaml, or a folder of Kubernetes manifests."),
    ] = None,
    trace: TraceOption = None,
    trace_format: FormatOption = None,
    order: Annotated[OrderKind | None, typer.Option(help="Who goes first, instead of the file's order.")] = None,
    placement: Annotated[PlacementKind | None, typer.Option(help="Which node is taken, instead of the file's.")] = None,
    cycle: Annotated[str | None, typer.Option(help='Time between decisions, such as "10s".')] = None,
    seed: SeedOption = None,
    journal: Annotated[Path | None, typer.Option(help="Write the journal here, for `explain` and `--resume`.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Take up the run that --journal broke off.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the run into a .svg or .png.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a line for each workload.")] = None,
    queue_csv: Annotated[Path | None, typer.Option(help="Write a line for each queue.")] = None,
    kernels: KernelsOption = Kernels.AUTO,
    as_json: JsonOption = False,
) -> None:
    """Run a policy on a trace in the twin, and say how good it was.

    \b
    Examples:
      tidegate simulate
      tidegate simulate tidegate.yaml --placement bestfit --plot week.png
      tidegate simulate tidegate.yaml --policy manifests/
      tidegate simulate --trace philly.csv --format philly --policy queues.yaml
      tidegate simulate tidegate.yaml --journal run.db --json
    """  # noqa: D301 - \b keeps the lines apart
    source = Source(file, trace, trace_format)
    with told_plainly():
        given = read_policy(policy) if policy else None
        setup = read_setup(source, Changes(order, placement, _cycle_ms(cycle), seed), given)
        say_notes(notes_on(policy, given, setup))
        _check_outputs(kernels, plot, {"--csv": csv, "--queue-csv": queue_csv})
        with open_journal(journal, resume=resume) as record:
            measured = simulate_setup(setup, record, kernels, open_console(stderr=True))
        if plot is not None:
            draw(
                plot,
                measured.samples,
                measured.lives,
                f"{source.title()}, policy {setup.policy.name}",
            )
        if csv is not None:
            _write_csv("--csv", csv, partial(run.write_csv, measured.lives))
        if queue_csv is not None:
            _write_csv("--queue-csv", queue_csv, partial(write_queue_csv, measured.summary))
    if as_json:
        plain = run.as_json(measured.summary, measured.lives, measured.samples, measured.quota)
        typer.echo(json.dumps(plain, allow_nan=False))
        return
    console = open_console()
    run.render(measured.summary, measured.lives, measured.samples, console, measured.quota)
    _suggest(measured, source, policy, journal, console)


def _cycle_ms(text: str | None) -> int | None:
    if text is None:
        return None
    cycle_ms = read_duration_ms("--cycle", text)
    if cycle_ms < 1:
        raise CannotRun(f"--cycle: expected at least 1ms, found {text!r}")
    return cycle_ms


def _check_outputs(kernels: Kernels, plot: Path | None, tables: dict[str, Path | None]) -> None:
    """Refuse before the run what could not be delivered after it."""
    check_kernels(kernels)
    if plot is not None:
        check_picture(plot)
        check_writable("--plot", plot)
    for option, path in tables.items():
        if path is not None:
            check_writable(option, path)


def _write_csv(option: str, path: Path, write: Callable[[TextIO], None]) -> None:
    try:
        with written_whole(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
            write(file)
    except OSError as error:
        raise CannotRun(f"{option} {path}: cannot be written ({error.strerror}); is the folder there?") from None


def _suggest(
    measured: RunMeasures, source: Source, policy: Path | None, journal: Path | None, console: Console
) -> None:
    """Commands to try next, with names from this run."""
    lives = measured.lives
    longest = lives.ids[int(lives.waited_ms.argmax())] if len(lives.ids) else "JOB"
    named = "".join(f" {argument}" for argument in source.arguments())
    kept = f" --journal {quote(str(journal))}" if journal else ""
    mine = f" --policy {quote(str(policy))}" if policy else ""
    suggestions = [
        (f"tidegate explain {quote(longest)}{kept}", "why the workload that waited longest did"),
        (f"tidegate compare{named} --policies tide,bestfit,spread", "other policies on the same work"),
        (f"tidegate simulate{named}{mine} --plot week.png", "the same as a picture"),
    ]
    if not measured.samples.nodes:
        del suggestions[1:]  # without machines there is nothing to place, and no map to draw
    console.print(Text("\nTry next", style="bold"))
    widest = max(len(command) for command, _ in suggestions)
    for command, what in suggestions:
        # Never wrapped by us: a command is there to be copied.
        console.print(Text.assemble("  ", (command.ljust(widest), "cyan"), f"  {what}"), soft_wrap=True)
