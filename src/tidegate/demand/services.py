"""Demand for services: requests a second, bursts and latencies; one by one, or counted in windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.arrivals import ArrivalStats, count_arrivals, measure_arrivals
from tidegate.demand.bursts import Bursts, Ceiling, ceilings, find_bursts
from tidegate.demand.calendar import step_for
from tidegate.demand.concurrency_stats import Levels, measure_levels, track_series
from tidegate.demand.distributions import Fitted, fit_family
from tidegate.demand.estimate import Unit
from tidegate.demand.forecast_report import Outlook, look_ahead
from tidegate.demand.sketches import Sketch, sketch_of
from tidegate.demand.step_curve import Window, curve_of_steps
from tidegate.demand.time_zone import Calendar
from tidegate.demand.unrecorded import Unseen, hide_unseen, on_seen_clock, seen_window, unseen_between
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import SECOND_MS

#: Rates are followed in steps of this many arrivals or more, on average.
_ARRIVALS_A_STEP = 20


class ServiceDemand(Spec, frozen=True):
    """The demand for one service, or all."""

    name: str  # "" for all
    requests: float
    rate: Levels
    arrivals: ArrivalStats
    bursts: Bursts
    ceilings: tuple[Ceiling, ...]
    latency: Sketch | None
    tokens_in: Sketch | None
    tokens_out: Sketch | None
    gaps: Fitted | None
    window_ms: int  # in which requests were counted; 0: they were recorded one by one
    gap_cv: float  # of the times between requests while the rate stays
    outlook: Outlook | None  # None: too short to know its days


def measure_services(
    requests: pl.LazyFrame, calendar: Calendar, cold_start_ms: int | None
) -> tuple[ServiceDemand, ...]:
    """The demand for all services together, and for each where there are several."""
    table = requests.sort("at_ms").collect(engine="streaming")
    if table.height == 0:
        return ()
    names = [name for name in table["service"].unique().sort().to_list() if name]
    parts = [("", table)] + [(name, table.filter(pl.col("service") == name)) for name in names if len(names) > 1]
    how = _How(calendar, cold_start_ms, unseen_between(table["at_ms"].to_numpy()))
    window = _window(table)
    return tuple(_measure(name, part, window, how) for name, part in parts)


class _How(NamedTuple):
    """What all services have in common."""

    calendar: Calendar
    cold_start_ms: int | None
    unseen: Unseen


def _window(table: pl.DataFrame) -> Window:
    """From the first arrival to the last, or to the end of the last window."""
    first, last = int(table["at_ms"].min() or 0), int((table["at_ms"] + table["window_ms"]).max() or 0)  # type: ignore[arg-type]
    return Window(first, max(last, first + 1))


def _measure(name: str, table: pl.DataFrame, window: Window, how: _How) -> ServiceDemand:
    calendar, cold_start_ms, unseen = how
    at_ms, counts = table["at_ms"].to_numpy(), table["count"].fill_null(1.0).to_numpy()
    windows_ms = int(table["window_ms"].max() or 0)  # type: ignore[arg-type]
    counted = windows_ms > 0
    step_ms = windows_ms if counted else _step(window, counts)
    series = _rates(at_ms, counts, step_ms, window)
    hide_unseen(series, step_ms, window.start_ms, unseen)
    seen_ms, seen = on_seen_clock(at_ms, unseen), seen_window(window, unseen)
    track = track_series(series, step_ms, window.start_ms, table.height)
    rate = measure_levels(track, Unit.REQUESTS_PER_S, "requests", calendar)
    gaps = None if counted else sketch_of(np.diff(seen_ms))
    if counted:
        from_start_ms = seen_ms - seen.start_ms
        arrivals = count_arrivals(from_start_ms, counts, step_ms, seen, Unit.REQUESTS, "requests")
    else:
        arrivals = measure_arrivals(seen_ms, seen, Unit.REQUESTS, "requests", ordered=True)
    return ServiceDemand(
        name=name,
        requests=float(counts.sum()),
        rate=rate,
        arrivals=arrivals,
        bursts=find_bursts(
            curve_of_steps(track.window, series, step_ms),
            rate.p95.value,
            cold_start_ms,
            Unit.REQUESTS_PER_S,
            "requests",
        ),
        ceilings=ceilings(series, step_ms, (Unit.REQUESTS_PER_S, Unit.REQUESTS), SECOND_MS),
        latency=_sketch(table, "latency_ms"),
        tokens_in=_sketch(table, "tokens_in"),
        tokens_out=_sketch(table, "tokens_out"),
        gaps=None if gaps is None else fit_family(gaps),
        window_ms=windows_ms,
        gap_cv=_inner_cv(table, series, step_ms),
        outlook=look_ahead("requests", Unit.REQUESTS_PER_S, series, step_ms, window.end_ms),
    )


def _step(window: Window, counts: F64) -> int:
    """Steps with enough arrivals in them, but no fewer than sixty."""
    wanted = window.length_ms * _ARRIVALS_A_STEP // max(int(counts.sum()), 1)
    return step_for(window, max(min(wanted, window.length_ms // 60), SECOND_MS // 2))


def _rates(at_ms: I64, counts: F64, step_ms: int, window: Window) -> F64:
    """Requests per second in each step that was seen whole."""
    steps = max(window.length_ms // step_ms, 1)
    sums = np.bincount((at_ms - window.start_ms) // step_ms, weights=counts, minlength=steps)[:steps]
    return np.asarray(sums, np.float64) * (SECOND_MS / step_ms)


def _inner_cv(table: pl.DataFrame, series: F64, step_ms: int) -> float:
    """How uneven arrivals are inside a step: as recorded, else from gaps against the rate of their step."""
    recorded = table.filter(pl.col("arrival_cv").is_not_null())
    if recorded.height:
        weight = recorded["count"].to_numpy()
        return round(float((recorded["arrival_cv"].to_numpy() * weight).sum() / max(weight.sum(), 1e-9)), 6)
    at_ms = table["at_ms"].to_numpy()
    row = np.minimum((at_ms - at_ms[0]) // step_ms, series.size - 1)
    gaps = np.diff(at_ms) / SECOND_MS * series[row[1:]]  # in mean gaps of the step it ends in
    inner = gaps[(np.diff(row) == 0) & np.isfinite(gaps)]
    return round(float(inner.std() / inner.mean()), 6) if inner.size > 10 and inner.mean() > 0 else 1.0


def _sketch(table: pl.DataFrame, column: str) -> Sketch | None:
    known = table[column].drop_nulls()
    return sketch_of(known.to_numpy()) if known.len() else None
