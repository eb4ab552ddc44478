"""A run of `tidegate preflight`: read the sources, measure, replay, write and print."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import typer

import tidegate
from tidegate.cli.plan_commands import OutputFiles
from tidegate.cli.progress import progress_bar
from tidegate.cli.source_io import gather_sources
from tidegate.config.prices import GpuPrices
from tidegate.demand.model import encode
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.planning.concurrency import average, curve_of
from tidegate.planning.preflight import Preflight, PreflightOptions, check_flight
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.report.html.page import write_page
from tidegate.report.html.preflight import preflight_page
from tidegate.report.output_files import open_console, written_whole
from tidegate.report.plot.preflight import plot_preflight
from tidegate.report.text.plan import AverageDemand
from tidegate.report.text.preflight import as_json as preflight_json
from tidegate.report.text.preflight import render_preflight
from tidegate.sources.config_file import load_prices
from tidegate.sources.options import SourceOptions
from tidegate.sources.read_sources import SourceTables

#: Jobs from which on there is a curve to draw.
_LEAST_DRAWN = 2


class PreflightArguments(NamedTuple):
    """What a preflight is asked to look at."""

    sources: list[str]
    options: SourceOptions
    order: QueueOrder
    tolerance_ms: int | None
    cold_start_ms: int | None
    prices: Path | None
    seed: int


class PreflightResult(NamedTuple):
    """A preflight, and what it was made from."""

    found: Preflight
    gathered: SourceTables
    seen: AverageDemand | None
    prices: GpuPrices | None


def run_preflight(call: PreflightArguments, outputs: OutputFiles) -> PreflightResult:
    """Make the preflight and write it where it was asked for."""
    prices = load_prices(call.prices) if call.prices else None
    gathered = gather_sources(call.sources, call.options)
    with progress_bar("measuring and replaying"):
        found = check_flight(
            gathered.tables, PreflightOptions(call.order, call.tolerance_ms, call.cold_start_ms, call.seed)
        )
    flown = PreflightResult(found, gathered, _seen(found.jobs), prices)
    if outputs.out is not None:
        with written_whole(outputs.out) as part:
            part.write_bytes(encode(found.model))
    if outputs.html is not None:
        write_page(outputs.html, preflight_page(found, flown.seen, prices, f"tidegate {tidegate.__version__}"))
    if outputs.plot is not None:
        plot_preflight(outputs.plot, found, flown.seen)
    return flown


def show_preflight(flown: PreflightResult, *, as_json: bool) -> None:
    """Print the preflight."""
    if as_json:
        typer.echo(msgspec.json.encode(preflight_json(flown.found, flown.gathered, flown.prices)).decode())
    else:
        render_preflight(flown.found, flown.seen, flown.prices, open_console())


def _seen(jobs: PlanJobs) -> AverageDemand | None:
    if jobs.total < _LEAST_DRAWN:
        return None
    at_ms, gpus = average(curve_of(jobs), *jobs.span_ms)
    return AverageDemand(at_ms, gpus) if len(at_ms) else None
