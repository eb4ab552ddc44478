"""`tidegate compare`: run several policies on the same jobs in the twin, side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.api.kernels import Kernels
from tidegate.cli.errors import CommandError, user_errors_reported
from tidegate.cli.scenario import (
    ClusterFileOption,
    GpusOption,
    NodesOption,
    ScenarioArgument,
    ScenarioOptions,
    TraceOption,
    print_notes,
    read_scenario,
    refuse_trace,
)
from tidegate.cli.shared_options import JsonOption, KernelsOption, PlotOption, SeedOption
from tidegate.cli.source_options import reads_sources
from tidegate.sources.options import SourceOptions

if TYPE_CHECKING:
    from tidegate.config.convert import Setup


@reads_sources
def compare_policies(
    sources: ScenarioArgument = None,
    *,
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            metavar="POLICY,...",
            help="Policies to compare: orders and placements, such as tide,bestfit,srtf or fifo+tide,srtf+firstfit; "
            "tidegate.yaml files and folders of manifests.",
        ),
    ] = "tide,bestfit,spread",
    nodes: NodesOption = "",
    gpus: GpusOption = "",
    cluster: ClusterFileOption = None,
    seed: SeedOption = None,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Run each policy with N seeds, for twins and placements that are random."
        ),
    ] = 1,
    kernels: KernelsOption = Kernels.AUTO,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    trace: TraceOption = "",
    options: SourceOptions,
) -> None:
    """Run several policies on the same jobs and show them side by side, as ratios to the first.

    --plot draws what each queue used against its quota.

    \b
    Examples:
      tidegate compare
      tidegate compare jobs.csv --nodes 26x8
      tidegate compare philly.csv --policies apart.yaml,borrow.yaml --plot queues.png
      tidegate compare tidegate.yaml --policies tide,bestfit,fgd
      tidegate compare tidegate.yaml --policies fifo+tide,srtf+firstfit --json
      tidegate compare tidegate.yaml --policies apart.yaml,borrow.yaml,manifests/
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        refuse_trace(trace)
        from tidegate.api.comparison import compare_contenders, read_contenders, run_contenders
        from tidegate.api.kernels import check_kernels
        from tidegate.cli.progress import progress_bar
        from tidegate.report.compare import render_comparison
        from tidegate.report.output_files import check_writable, open_console
        from tidegate.report.plot.queues import plot_queues
        from tidegate.report.plot.style import check_picture

        given = ScenarioOptions(sources or [], nodes, gpus, cluster, None, options)
        named = [(name.strip(), name) for name in policies.split(",")]
        read = partial(read_scenario, given, seed)
        contenders = read_contenders(named, given.title(), seed, read, print_notes)  # all before the first run
        check_kernels(kernels)
        if plot is not None:
            check_picture(plot)
            check_writable("--plot", plot)
            _check_quota(plot, contenders)
        runs = run_contenders(contenders, seeds, kernels, progress_bar)
        if plot is not None:
            firsts = [(each.name, each.runs[0]) for each in runs]
            plot_queues(plot, firsts, f"{given.title()}: what queues had against their quota")
        compared = compare_contenders(runs)
    if as_json:
        import json

        typer.echo(json.dumps(compared.as_json(), allow_nan=False))
    else:
        render_comparison(compared, open_console())


def _check_quota(plot: Path, contenders: list[tuple[str, Setup]]) -> None:
    if not any(setup.policy.shares.queues for _, setup in contenders):
        raise CommandError(
            f"--plot {plot}: draws queues against their quota, and no policy has queues; name one that does"
        )
