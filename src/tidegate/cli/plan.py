"""`tidegate plan SOURCE...`: plan capacity for a demand, by its shape, and test the plan on held-out time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.errors import EXIT_NO, user_errors_reported
from tidegate.cli.shared_options import HtmlOption, JsonOption, PlotOption
from tidegate.cli.source_options import SourcesArgument, reads_sources
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.report.plot.style import check_outputs
from tidegate.sources.options import SourceOptions


@reads_sources
def plan(
    sources: SourcesArgument,
    *,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prices per GPU-hour in YAML: gpu_hour: {own: 1.8, window: 2.4, burst: 4.1}.",
            show_default=False,
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="NAME[=VALUE]",
            help="Accept an assumption instead of a measurement: tolerance=1h, interactive=5m, cold-start=10m, "
            "residency, prices, runtimes, or all. May be repeated.",
            show_default=False,
        ),
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Test the plan on the last part of the time, such as 0.33, planning from the rest.",
            min=0,
            max=0.8,
        ),
    ] = 0.0,
    order: Annotated[
        QueueOrder, typer.Option(help="Whether jobs that fit may overtake jobs that do not.")
    ] = QueueOrder.OVERTAKE,
    burst: Annotated[
        bool, typer.Option("--burst/--no-burst", help="Whether capacity may be added for a burst.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of random draws.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan to this file, as JSON.", show_default=False)
    ] = None,
    plot: PlotOption = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    options: SourceOptions,
) -> None:
    """Plan capacity: what to own, what to book by the hour, and what to leave to burst.

    The plan is the smallest capacity at which waits stay within the tolerance when the jobs are replayed. What was not
    measured must be signed with --assume. The exit code is 1 if the plan breaks the tolerance.

    \b
    Examples:
      tidegate plan jobs.csv --assume all
      tidegate plan jobs.csv --prices prices.yaml --assume tolerance=2h,cold-start=5m,residency
      tidegate plan cluster07.csv --format itp --assume all --holdout 0.33 --html plan.html
      tidegate plan demand.json --assume all --json
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        check_outputs(out, plot, html)
        from tidegate.api.demand import read_price_list
        from tidegate.api.plan import PlanOptions, read_signed
        from tidegate.cli.plan_commands import OutputFiles, plan_sources, show_plan

        signed = read_signed(assume or [])
        wanted = PlanOptions(signed, read_price_list(prices), str(prices or ""), holdout, order, burst, seed)
        made = plan_sources(sources, options, wanted, OutputFiles(out, plot, html))
    show_plan(made, as_json=as_json)
    if not all(part.holds for part in made.plan.classes):
        raise typer.Exit(EXIT_NO)
