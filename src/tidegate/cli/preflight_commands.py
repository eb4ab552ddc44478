"""A run of `tidegate preflight`: read the sources, measure, replay, write and print."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

import tidegate
from tidegate.cli.plan_commands import OutputFiles
from tidegate.cli.progress import progress_bar
from tidegate.cli.source_io import gather_sources
from tidegate.config.prices import Prices
from tidegate.demand.model import encode
from tidegate.demand.sentences import verdict_text
from tidegate.planning.concurrency import average, curve_of
from tidegate.planning.orders import Order
from tidegate.planning.preflight import Asked, Preflight, Replayed, check_flight
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import late_weight
from tidegate.report.html.page import write_page
from tidegate.report.html.preflight import preflight_page
from tidegate.report.output_files import open_console, written_whole
from tidegate.report.plot.preflight import plot_preflight
from tidegate.report.text.plan import AverageDemand
from tidegate.report.text.preflight import render_preflight
from tidegate.report.text.preflight_sentences import answer_sentence, finding_text, lift_text, short_answer, waste_lines
from tidegate.sources.options import Options
from tidegate.sources.price_file import load_prices
from tidegate.sources.read_sources import Gathered

FORMAT = "tidegate.preflight/3"

#: Jobs from which on there is a curve to draw.
_LEAST_DRAWN = 2


class PreflightArguments(NamedTuple):
    """What a preflight is asked to look at."""

    sources: list[str]
    options: Options
    order: Order
    tolerance_ms: int | None
    cold_start_ms: int | None
    prices: Path | None
    seed: int


class PreflightResult(NamedTuple):
    """A preflight, and what it was made from."""

    found: Preflight
    gathered: Gathered
    seen: AverageDemand | None
    prices: Prices | None


def run_preflight(call: PreflightArguments, outputs: OutputFiles) -> PreflightResult:
    """Make the preflight and write it where it was asked for."""
    prices = load_prices(call.prices) if call.prices else None
    gathered = gather_sources(call.sources, call.options)
    with progress_bar("measuring and replaying"):
        found = check_flight(gathered.tables, Asked(call.order, call.tolerance_ms, call.cold_start_ms, call.seed))
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
        typer.echo(msgspec.json.encode(as_data(flown.found, flown.gathered, flown.prices)).decode())
    else:
        render_preflight(flown.found, flown.seen, flown.prices, open_console())


def _seen(jobs: PlanJobs) -> AverageDemand | None:
    if jobs.total < _LEAST_DRAWN:
        return None
    at_ms, gpus = average(curve_of(jobs), *jobs.span_ms)
    return AverageDemand(at_ms, gpus) if len(at_ms) else None


def as_data(found: Preflight, gathered: Gathered, prices: Prices | None) -> dict[str, Any]:
    """The preflight as plain data."""
    return {
        "format": FORMAT,
        "verdict": found.verdict,
        "says": verdict_text(found.verdict, found.answers),
        "answers": [
            {
                "question": one.question,
                "grade": one.grade,
                "answer": short_answer(one, found),
                "says": answer_sentence(one, found),
                "lifted_by": lift_text(one),
                "lacks": one.lacks,
                "numbers": dict(one.numbers),
            }
            for one in found.answers
        ],
        "floor": _floor_data(found.replayed),
        "findings": [
            {"code": one.code, "about": one.about, "says": finding_text(one), "gpu_hours": one.gpu_hours}
            for one in found.findings
        ],
        "waste": {"says": waste_lines(found, prices), "leaks": found.waste},
        "sources": {
            "origins": [origin._asdict() for origin in gathered.tables.origins],
            "findings": [finding.text() for finding in gathered.findings],
            "left_out_of_replay": dict(found.jobs.left_out),
            "drawn_for_replay": dict(found.jobs.drawn),
        },
        "model": found.model,
    }


def _floor_data(found: Replayed | None) -> dict[str, Any] | None:
    if found is None:
        return None
    floor = found.floor
    waits = floor.outcome.waits(found.tolerance)
    return {
        "gpus": None if found.at_least else floor.gpus,
        "at_least_gpus": floor.gpus if found.at_least else None,
        "low": floor.low_gpus,
        "high": floor.high_gpus,
        "blocks": floor.blocks,
        "block_ms": floor.block_ms,
        "no_interval": floor.none,
        "replays": floor.replays,
        "jobs": found.jobs,
        "of_jobs": found.of_jobs,
        "tolerance_ms": found.tolerance_ms,
        "tolerance_known": found.tolerance_known,
        "interactive_ms": found.tolerance.interactive_ms,
        "interactive_known": found.interactive_known,
        "declared_jobs": found.declared,
        "p95_wait_ms": floor.outcome.wait_at(950),
        "late_gpu_hours": round(late_weight(waits), 6),
        "sizes": [each._asdict() | {"counts": each.counts} for each in waits.by_size()],
        "patience": [each._asdict() | {"counts": each.counts} for each in waits.by_patience()],
        "one_less": _less_data(found),
        "peak_gpus": found.peak_gpus,
        "peak_gpu_hours": round(found.peak_gpu_h, 3),
        "floor_gpu_hours": round(found.floor_gpu_h, 3),
        "used_gpu_hours": round(found.used_gpu_h, 3),
    }


def _less_data(found: Replayed) -> dict[str, Any] | None:
    """What waits are with one GPU less than the floor; None: the widest job does not fit."""
    below = found.floor.below
    if below is None:
        return None
    waits = below.waits(found.tolerance)
    return {
        "gpus": found.floor.gpus - 1,
        "holds": below.holds(found.tolerance),
        "late": round(below.late(found.tolerance), 6),
        "late_gpu_hours": round(late_weight(waits), 6),
    }
