"""Synthetic requests, GPU use and counters."""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.demand.model import DemandGroup, GroupScope
from tidegate.demand.residency import Residency
from tidegate.demand.services import ServiceDemand
from tidegate.demand.sketches import Sketch, draw, mean_of, quantiles
from tidegate.demand.synth.paths import Drawn, draw_path, even_ranks, ranks_of, wander
from tidegate.demand.tables import CAPACITY, REQUESTS, USE, fill_table
from tidegate.model.arrays import F64, I64
from tidegate.model.units import SECOND_MS, WHOLE_MILLI

#: Pods that are drawn at most.
_MOST_PODS = 2_000


def draw_requests(services: tuple[ServiceDemand, ...], drawn: Drawn, generator: np.random.Generator) -> pl.LazyFrame:
    """Requests to each service, or to all where services have no names."""
    named = [service for service in services if service.name] or list(services)
    frames = [_draw_service(service, drawn, generator) for service in named]
    return pl.concat(frames).sort("at_ms", maintain_order=True).lazy()


def _draw_service(service: ServiceDemand, drawn: Drawn, generator: np.random.Generator) -> pl.DataFrame:
    rates = draw_path(service.rate, drawn, generator)
    step = service.rate.step_ms
    if service.window_ms:
        at = np.arange(rates.size, dtype=np.int64) * step
        count = rates * (step / SECOND_MS)
    else:
        at = _arrive(rates * (step / SECOND_MS), step, service.gap_cv, generator)
        count = np.ones(at.size)
    rows = at.size
    columns = {
        "at_ms": drawn.window.start_ms + at,
        "window_ms": np.full(rows, service.window_ms),
        "count": count,
        "service": [service.name] * rows,
        "tokens_in": _values(service.tokens_in, rows, generator),
        "tokens_out": _values(service.tokens_out, rows, generator),
        "latency_ms": _values(service.latency, rows, generator),
        "arrival_cv": pl.Series([service.gap_cv if service.window_ms else None] * rows, dtype=pl.Float64),
    }
    return fill_table(REQUESTS, columns)


def _arrive(counts: F64, step_ms: int, gap_cv: float, generator: np.random.Generator) -> I64:
    """Times in each step as uneven as gaps were: gamma gaps, stretched to fill the step."""
    owed = np.floor(np.cumsum(counts) + generator.random()).astype(np.int64)  # fractions are carried over
    whole = np.diff(owed, prepend=0)
    shape = 1 / max(gap_cv, 0.05) ** 2
    row = np.repeat(np.arange(whole.size), whole)
    gaps = generator.gamma(shape, 1.0, row.size) + 1e-9
    ends = np.cumsum(gaps)
    last = np.cumsum(whole)
    start = np.where(last - whole > 0, ends[np.maximum(last - whole - 1, 0)], 0.0) if row.size else np.zeros(whole.size)
    end = ends[np.maximum(last - 1, 0)] if row.size else np.zeros(whole.size)
    extra = generator.gamma(shape, 1.0, whole.size)  # from the last arrival to the end of the step
    width = np.maximum(end - start + extra, 1e-12)
    return ((row + (ends - start[row]) / width[row]) * step_ms).astype(np.int64)


def _values(sketch: Sketch | None, rows: int, generator: np.random.Generator) -> pl.Series:
    if sketch is None:
        return pl.Series([None] * rows, dtype=pl.Int64)
    return pl.Series(np.rint(draw(sketch, even_ranks(rows, generator))).astype(np.int64))


def draw_use(residency: Residency, drawn: Drawn, generator: np.random.Generator) -> pl.LazyFrame:
    """Pods that are busy by turns: together as much as was seen, each for as long as it was seen to stay busy."""
    step = residency.every_ms
    pods = min(max(round(residency.held.mean.value * drawn.scale), 1), _MOST_PODS)
    busy = draw_path(residency.busy, drawn, generator)
    usual = max(mean_of(residency.busy_spread) / WHOLE_MILLI, 1e-3)
    wanted = np.clip(busy / (pods * usual), 0.0, 1.0)  # the share of the pods that is busy
    memory = float(np.exp(-step / max(residency.busy_run_ms, 1.0)))
    keys = np.stack([wander(wanted.size, memory, generator) for _ in range(pods)])
    order = np.argsort(np.argsort(-keys, axis=0, kind="stable"), axis=0, kind="stable")  # pods by turn, in each step
    active = order < np.rint(wanted * pods)
    level = np.zeros(active.shape)
    level[active] = np.maximum(draw(residency.busy_spread, even_ranks(int(active.sum()), generator)), 1)
    vram = quantiles(residency.vram_spread, even_ranks(pods, generator)) if residency.vram_spread else None
    return _use_table(level, vram, step, drawn.window.start_ms).lazy()


def _use_table(level: F64, vram: F64 | None, step_ms: int, start_ms: int) -> pl.DataFrame:
    pods, steps = level.shape
    rows = pods * steps
    columns = {
        "at_ms": np.tile(start_ms + np.arange(steps, dtype=np.int64) * step_ms, pods),
        "every_ms": np.full(rows, step_ms),
        "allocation": np.repeat(np.array([f"pod-{row}" for row in range(pods)]), steps),
        "gpus_milli": np.full(rows, WHOLE_MILLI),
        "busy_milli": np.rint(level).astype(np.int64).ravel(),
    }
    columns |= {} if vram is None else {"vram_mib": np.repeat(np.rint(vram).astype(np.int64), steps)}
    return fill_table(USE, columns).sort("at_ms", "allocation")


def draw_capacity(groups: tuple[DemandGroup, ...], drawn: Drawn, generator: np.random.Generator) -> pl.LazyFrame:
    """Counters of each queue, or of all: what is asked for as a path, and what runs at the same rank."""
    queues = [group for group in groups if group.scope is GroupScope.QUEUE] or list(groups[:1])
    frames = []
    for group in queues:
        assert group.wanted is not None
        wanted = draw_path(group.wanted, drawn, generator)
        running = wanted if group.seen is None else np.minimum(quantiles(group.seen.sketch, ranks_of(wanted)), wanted)
        frames.append(_counters_table(group, wanted, running, drawn.window.start_ms))
    return pl.concat(frames).sort("at_ms", "queue").lazy()


def _counters_table(group: DemandGroup, wanted: F64, running: F64, start_ms: int) -> pl.DataFrame:
    assert group.wanted is not None
    rows, step = wanted.size, group.wanted.step_ms
    milli = np.rint(running * WHOLE_MILLI).astype(np.int64)
    columns = {
        "at_ms": start_ms + np.arange(rows, dtype=np.int64) * step,
        "every_ms": np.full(rows, step),
        "queue": [group.name] * rows,
        "running_milli": milli,
        "pending_milli": np.rint(wanted * WHOLE_MILLI).astype(np.int64) - milli,
    }
    return fill_table(CAPACITY, columns)
