"""`tidegate preflight SOURCE...`: measure the demand: the four questions and the seven inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.errors import user_errors_reported
from tidegate.cli.shared_options import HtmlOption, JsonOption, PlotOption, read_duration_ms
from tidegate.cli.source_options import SourcesArgument, reads_sources
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.report.plot.style import check_outputs
from tidegate.sources.options import SourceOptions


@reads_sources
def preflight(
    sources: SourcesArgument,
    *,
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long work may wait, such as 1h. Default: as measured.", show_default=False
        ),
    ] = "",
    cold_start: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long capacity takes to start. Default: as measured.", show_default=False
        ),
    ] = "",
    order: Annotated[
        QueueOrder, typer.Option(help="Whether jobs that fit may overtake jobs that do not.")
    ] = QueueOrder.OVERTAKE,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Prices per GPU-hour in YAML: gpu_hour: {own: 1.8, burst: 4.1}.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random draws.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the demand model to this file, for `plan` and `demand`.", show_default=False
        ),
    ] = None,
    plot: PlotOption = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    options: SourceOptions,
) -> None:
    """Measure the demand: four questions and seven inputs, each answered from data or marked as an assumption.

    \b
    Examples:
      tidegate preflight jobs.csv
      tidegate preflight jobs.csv --html report.html --out demand.json
      tidegate preflight cluster07.csv --format itp --json
      tidegate preflight sacct.txt --prices prices.yaml --tolerance 2h
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        check_outputs(out, plot, html)
        tolerance_ms = read_duration_ms("--tolerance", tolerance) if tolerance else None
        cold_start_ms = read_duration_ms("--cold-start", cold_start) if cold_start else None
        from tidegate.cli.plan_commands import OutputFiles
        from tidegate.cli.preflight_commands import PreflightArguments, run_preflight, show_preflight

        call = PreflightArguments(sources, options, order, tolerance_ms, cold_start_ms, prices, seed)
        flown = run_preflight(call, OutputFiles(out, plot, html))
    show_preflight(flown, as_json=as_json)
