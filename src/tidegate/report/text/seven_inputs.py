"""The seven inputs of a demand model as rows: name, numbers with intervals, and origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.demand.arrivals import ArrivalStats
from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.estimate import Number, Unit
from tidegate.demand.model import DemandGroup, DemandModel
from tidegate.demand.sentences import number_text, value_text
from tidegate.measure.format import time_text
from tidegate.model.units import HOUR_MS, MINUTE_MS, SECOND_MS

#: Windows of dispersion that are shown; the document has more.
_SHOWN_MS = (SECOND_MS, MINUTE_MS, HOUR_MS)


class InputRow(NamedTuple):
    """A number of one of the seven inputs."""

    input: str
    name: str
    text: str
    samples: str  # rows, or blocks of time and how long they are
    table: str


def input_rows(model: DemandModel) -> list[InputRow]:
    """What is known of the seven inputs."""
    total = model.total()
    rows = [*_concurrency(model, total)]
    if total is not None:
        rows += [*_depth(total), *_burst(total), *_tolerance(model)]
    for one in model.services[:1]:
        rows += _dispersion(one.arrivals)
    rows += [*_mix(model), *_residency(model), *_durations(model)]
    return rows


def _row(given: str, name: str, number: Number, block_ms: int = 0) -> InputRow:
    blocks = f" x {time_text(block_ms)}" if block_ms else ""
    return InputRow(given, name, number_text(number), f"{number.samples:,}{blocks}", number.table)


def _levels(given: str, prefix: str, levels: Levels) -> Iterator[InputRow]:
    for name in ("mean", "p95", "p99"):
        yield _row(given, f"{prefix} {name}", getattr(levels, name), levels.block_ms)
    yield _row(given, f"{prefix} peak", levels.peak)


def _concurrency(model: DemandModel, total: DemandGroup | None) -> Iterator[InputRow]:
    if total is not None and total.wanted is not None:
        yield from _levels("concurrency", "wanted", total.wanted)
    if total is not None and total.seen is not None:
        yield from _levels("concurrency", "seen", total.seen)
    for one in model.services[:1]:
        yield from _levels("concurrency", "requests", one.rate)


def _depth(total: DemandGroup) -> Iterator[InputRow]:
    if total.waiting is not None:
        yield from _levels("queue depth", "waiting", total.waiting)
    elif total.jobs:
        yield InputRow("queue depth", "waiting", "not known", "", "jobs")
    if total.broken is not None and total.broken.depth is not None:
        yield _row("queue depth", "breaks tolerance at", total.broken.depth)


def _burst(total: DemandGroup) -> Iterator[InputRow]:
    if total.bursts is not None:
        yield _row("burst", "episodes above p95", total.bursts.episodes)
        yield _row("burst", "above p95", total.bursts.area)
    if total.arrivals is not None:
        yield from _dispersion(total.arrivals)


def _dispersion(arrivals: ArrivalStats) -> Iterator[InputRow]:
    for one in arrivals.dispersion:
        if one.window_ms in _SHOWN_MS:
            window = value_text(one.window_ms, Unit.MS)
            yield _row("burst", f"IDC at {window}", one.idc)
            yield _row("burst", f"peak/mean at {window}", one.peak_to_mean)


def _tolerance(model: DemandModel) -> Iterator[InputRow]:
    for group in model.groups:
        if group.scope in {"total", "kind"} and group.tolerance is not None and group.tolerance.tolerated is not None:
            yield _row("tolerance", f"{group.name or 'all'} ({group.tolerance.basis})", group.tolerance.tolerated)


def _mix(model: DemandModel) -> Iterator[InputRow]:
    for one in model.mix:
        yield _row("mix", one.kind, one.share)


def _residency(model: DemandModel) -> Iterator[InputRow]:
    seen = model.residency
    if seen is None:
        return
    yield _row("residency", "duty", seen.duty)
    yield _row("residency", "idle while held", seen.idle)
    if seen.idle_vram_gib is not None:
        yield _row("residency", "memory held idle", seen.idle_vram_gib)


def _durations(model: DemandModel) -> Iterator[InputRow]:
    for one in model.durations:
        if not one.size:
            for name in ("p50", "p90", "p99", "cv"):
                yield _row("duration", f"{one.kind} {name}", getattr(one, name))
