"""`tidegate simulate`: run a policy on jobs in the twin, and report waits, completion times and GPU use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from tidegate.api.kernels import Kernels
from tidegate.cli.errors import CommandError, user_errors_reported
from tidegate.cli.scenario import (
    ClusterFileOption,
    GpusOption,
    NodesOption,
    PolicyOption,
    ScenarioArgument,
    ScenarioOptions,
    TraceOption,
    read_setup,
    refuse_trace,
)
from tidegate.cli.shared_options import JsonOption, KernelsOption, PlotOption, SeedOption
from tidegate.cli.source_options import reads_sources
from tidegate.model.policy import OrderKind, PlacementKind
from tidegate.sources.options import SourceOptions

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.measure.collector import RunMeasures


@reads_sources
def simulate(
    sources: ScenarioArgument = None,
    *,
    nodes: NodesOption = "",
    gpus: GpusOption = "",
    cluster: ClusterFileOption = None,
    policy: PolicyOption = None,
    order: Annotated[
        OrderKind | None, typer.Option(help="Queueing order. Default: that of the policy.", show_default=False)
    ] = None,
    placement: Annotated[
        PlacementKind | None, typer.Option(help="Placement rule. Default: that of the policy.", show_default=False)
    ] = None,
    cycle: Annotated[
        str | None, typer.Option(metavar="DURATION", help='Time between decisions, such as "10s".', show_default=False)
    ] = None,
    seed: SeedOption = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the journal to this file, for `explain` and --resume."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --journal.")] = False,
    plot: PlotOption = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a CSV with a row for each workload.")] = None,
    queue_csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a CSV with a row for each queue.")
    ] = None,
    kernels: KernelsOption = Kernels.AUTO,
    as_json: JsonOption = False,
    trace: TraceOption = "",
    options: SourceOptions,
) -> None:
    """Run a policy on jobs in the twin, and report waits, completion times and GPU use.

    Jobs come from any source that `tidegate preflight` reads. What a source does not say, such as priorities or nodes,
    gets a default that is printed.

    \b
    Examples:
      tidegate simulate
      tidegate simulate jobs.csv --nodes 26x8
      tidegate simulate sacct.txt --gpus 208
      tidegate simulate philly.csv --policy examples/philly/borrow.yaml
      tidegate simulate jobs.parquet --cluster manifests/ --map submitted=created_at,gpus=num_gpu
      tidegate simulate tidegate.yaml --placement bestfit --plot week.png
      tidegate simulate tidegate.yaml --journal run.db --json
    """  # noqa: D301 - \b keeps the lines apart
    given = ScenarioOptions(sources or [], nodes, gpus, cluster, policy, options)
    with user_errors_reported():
        refuse_trace(trace)
        from tidegate.api.kernels import check_kernels
        from tidegate.api.simulation import read_cycle_ms, run_setup
        from tidegate.cli.journal_options import open_journal
        from tidegate.cli.progress import progress_bar
        from tidegate.report.output_files import open_console
        from tidegate.report.text import run
        from tidegate.report.text.queues import write_queue_csv
        from tidegate.sim.scenario import ScenarioChanges

        setup = read_setup(given, ScenarioChanges(order, placement, read_cycle_ms("--cycle", cycle), seed))
        check_kernels(kernels)
        _check_outputs(plot, {"--csv": csv, "--queue-csv": queue_csv})
        with open_journal(journal, resume=resume) as record:
            measured = run_setup(setup, record, kernels, open_progress=progress_bar)
        if plot is not None:
            from tidegate.report.plot.run import plot as draw

            draw(plot, measured.samples, measured.lives, f"{given.title()}, policy {setup.policy.name}")
        if csv is not None:
            _write_csv("--csv", csv, lambda file: run.write_csv(measured.lives, file))
        if queue_csv is not None:
            _write_csv("--queue-csv", queue_csv, lambda file: write_queue_csv(measured.summary, file))
    if as_json:
        import json

        plain = run.as_json(measured.summary, measured.lives, measured.samples, measured.quota)
        typer.echo(json.dumps(plain, allow_nan=False))
        return
    console = open_console()
    run.render(measured.summary, measured.lives, measured.samples, console, measured.quota)
    _suggest(measured, given, journal, console)


def _check_outputs(plot: Path | None, tables: dict[str, Path | None]) -> None:
    """Refuse before the run what could not be written after it."""
    from tidegate.report.output_files import check_writable
    from tidegate.report.plot.style import check_picture

    if plot is not None:
        check_picture(plot)
    for option, path in {"--plot": plot, **tables}.items():
        if path is not None:
            check_writable(option, path)


def _write_csv(option: str, path: Path, write: Callable[[TextIO], None]) -> None:
    from tidegate.report.output_files import written_whole

    try:
        with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
            write(file)
    except OSError as error:
        raise CommandError(f"{option} {path}: cannot be written ({error.strerror}); is the folder there?") from None


def _suggest(measured: RunMeasures, given: ScenarioOptions, journal: Path | None, console: Console) -> None:
    """Commands to try next, with names from this run."""
    from rich.text import Text

    lives = measured.lives
    longest = lives.ids[int(lives.waited_ms.argmax())] if len(lives.ids) else "JOB"
    named = "".join(f" {argument}" for argument in given.arguments())
    kept = f" --journal {quote(str(journal))}" if journal else ""
    mine = f" --policy {quote(str(given.policy))}" if given.policy else ""
    suggestions = [
        (f"tidegate explain {quote(longest)}{kept}", "why the workload that waited longest did"),
        (f"tidegate compare{named} --policies tide,bestfit,spread", "other policies on the same work"),
        (f"tidegate simulate{named}{mine} --plot week.png", "the same as a picture"),
    ]
    if not measured.samples.nodes:
        del suggestions[1:]  # without nodes there is nothing to place, and no map to draw
    console.print(Text("\nTry next", style="bold"))
    widest = max(len(command) for command, _ in suggestions)
    for command, what in suggestions:
        # Never wrapped by us: a command is there to be copied.
        console.print(Text.assemble("  ", (command.ljust(widest), "cyan"), f"  {what}"), soft_wrap=True)
