"""`tidegate preflight SOURCE...`: measure the demand: the four questions and the seven inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tidegate
from tidegate.cli.errors import user_errors_reported
from tidegate.cli.shared_options import HtmlOption, JsonOption, PlotOption
from tidegate.cli.source_options import SourcesArgument, reads_sources
from tidegate.model.units import read_duration_ms
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.report.plot.style import check_outputs
from tidegate.sources.options import SourceOptions

if TYPE_CHECKING:
    from tidegate.api.demand import PreflightResult
    from tidegate.planning.preflight import PreflightOptions


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
        from tidegate.planning.preflight import PreflightOptions

        tolerance_ms = read_duration_ms("--tolerance", tolerance) if tolerance else None
        cold_start_ms = read_duration_ms("--cold-start", cold_start) if cold_start else None
        wanted = PreflightOptions(order, tolerance_ms, cold_start_ms, seed)
        flown = _run(sources, options, wanted, prices)
        _write(flown, out, plot, html)
    _show(flown, as_json=as_json)


def _run(sources: list[str], reading: SourceOptions, wanted: PreflightOptions, prices: Path | None) -> PreflightResult:
    from tidegate.api.demand import read_price_list, run_preflight
    from tidegate.cli.progress import progress_bar
    from tidegate.cli.source_io import gather_sources

    amount = read_price_list(prices)
    return run_preflight(gather_sources(sources, reading), wanted, amount, progress_bar)


def _write(flown: PreflightResult, out: Path | None, plot: Path | None, html: Path | None) -> None:
    if out is not None:
        from tidegate.api.demand import write_model

        write_model(flown.found.model, out)
    if html is not None:
        from tidegate.report.html.page import write_page
        from tidegate.report.html.preflight import preflight_page

        write_page(html, preflight_page(flown.found, flown.seen, flown.prices, f"tidegate {tidegate.__version__}"))
    if plot is not None:
        from tidegate.report.plot.preflight import plot_preflight

        plot_preflight(plot, flown.found, flown.seen)


def _show(flown: PreflightResult, *, as_json: bool) -> None:
    import msgspec

    from tidegate.report.output_files import open_console
    from tidegate.report.text.preflight import as_json as preflight_json
    from tidegate.report.text.preflight import render_preflight

    if as_json:
        typer.echo(msgspec.json.encode(preflight_json(flown.found, flown.gathered, flown.prices)).decode())
    else:
        render_preflight(flown.found, flown.seen, flown.prices, open_console())
