"""Draws tables from a demand model that have the same seven inputs.

Values are drawn evenly (each rank once, in random order), so a sample has the model's own spread. Random are the times,
and what comes together. Same model, same seed: same rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.calendar import hour_of_week
from tidegate.demand.model import DemandModel, Ground, GroupScope
from tidegate.demand.sketches import Sketch, draw, quantiles
from tidegate.demand.step_curve import Window
from tidegate.demand.synth.batch_times import LevelRoom, footprints_of, place_batches, room_for
from tidegate.demand.synth.paths import Drawn, draw_path, even_ranks, ranks_within
from tidegate.demand.synth.streams import JobStream
from tidegate.demand.synth.usage import draw_capacity, draw_requests, draw_use
from tidegate.demand.tables import JOBS, SIZE_NAMES, RowOrigin, Tables, fill_table, size_of
from tidegate.demand.time_zone import Calendar
from tidegate.demand.unrecorded import unseen_ms
from tidegate.model.arrays import F64, I64
from tidegate.model.units import DAY_MS, HOUR_MS, WHOLE_MILLI


def sample(model: DemandModel, seed: int, *, length_ms: int | None = None, scale: float = 1.0) -> Tables:
    """Tables with the demand of the model: as long as it was seen, or as given; `scale` times as much of it."""
    window = _window(model, length_ms)
    generator = np.random.default_rng(seed)
    drawn = Drawn(window, model.calendar, scale)
    jobs = _draw_jobs(model, drawn, generator) if model.streams else None
    total = model.total()
    counters = jobs is None and total is not None and total.wanted is not None
    return Tables(
        jobs=None if jobs is None else jobs.lazy(),
        requests=draw_requests(model.services, drawn, generator) if model.services else None,
        use=draw_use(model.residency, drawn, generator) if model.residency else None,
        capacity=draw_capacity(model.groups, drawn, generator) if counters else None,
        calendar=model.calendar,
        origins=(RowOrigin(f"seed {seed}", "sample", "", 0 if jobs is None else jobs.height),),
    )


def _window(model: DemandModel, length_ms: int | None) -> Window:
    """The window of the first table that is not only about starts."""
    ground: Ground | None = next((one for one in model.grounds if one.table != "starts"), None)
    if ground is None:
        return Window(0, length_ms or DAY_MS)
    return Window(ground.start_ms, ground.start_ms + (length_ms or max(ground.end_ms - ground.start_ms, 1)))


def _seen_ms(model: DemandModel) -> int:
    """How long the jobs were seen."""
    seen = (one.end_ms - one.start_ms - _lost_ms(one) for one in model.grounds if one.table == "jobs")
    return next(seen, DAY_MS)


def _lost_ms(ground: Ground) -> int:
    return unseen_ms(Window(ground.start_ms, ground.end_ms), ground.unseen)


def _draw_jobs(model: DemandModel, drawn: Drawn, generator: np.random.Generator) -> pl.DataFrame:
    days = _days(model.days, drawn.window, generator)
    part = drawn.window.length_ms / max(_seen_ms(model), 1) * drawn.scale
    rooms = _Rooms(model, drawn, days, {}, generator)
    streams = sorted(model.streams, key=lambda stream: -stream.jobs)
    frames = [_draw_stream(stream, max(round(stream.jobs * part), 1), rooms) for stream in streams]
    table = pl.concat(frames).sort("submitted_ms", "kind", "queue", "gpu_model", maintain_order=True)
    return table.with_row_index("row").with_columns(pl.format("s{}", "row").alias("id")).select(JOBS.names())


class _Rooms(NamedTuple):
    """What streams are drawn into."""

    model: DemandModel
    drawn: Drawn
    days: F64
    rooms: dict[str, LevelRoom]  # by queue
    generator: np.random.Generator

    def of(self, queue: str) -> LevelRoom:
        """The room of a queue; one that the model does not tell apart has a part in the room of all."""
        group = self.model.group(GroupScope.QUEUE, queue)
        name = queue if group else ""
        if name not in self.rooms:
            levels = (group or self.model.groups[0]).wanted
            assert levels is not None
            self.rooms[name] = room_for(draw_path(levels, self.drawn, self.generator), self.drawn.window.length_ms)
        return self.rooms[name]


def _days(days: tuple[float, ...], window: Window, generator: np.random.Generator) -> F64:
    """Levels of the days to come: whole weeks of those that were seen, each once before any comes again."""
    wanted = -(-window.length_ms // DAY_MS)
    weeks = [days[at : at + 7] for at in range(0, len(days), 7)] or [(1.0,)]
    levels: list[float] = []
    while len(levels) < wanted:
        for row in generator.permutation(len(weeks)).tolist():
            levels += weeks[row]
    kept = np.array(levels[:wanted])
    return np.asarray(kept / max(float(kept.mean()), 1e-9), np.float64)


def _draw_stream(stream: JobStream, count: int, rooms: _Rooms) -> pl.DataFrame:
    drawn, generator = rooms.drawn, rooms.generator
    batch = _draw_batches(stream, count, generator)
    gpus, pods = _draw_sizes(stream, batch, generator)
    took = _draw_durations(stream, size_of(gpus), batch, generator)
    batch = _part(batch, gpus / WHOLE_MILLI, stream.batch_gpus)
    batch = _part(batch, gpus * (took / (WHOLE_MILLI * HOUR_MS)), stream.batch_gpu_hours)
    prints = footprints_of(batch, gpus / WHOLE_MILLI, took.astype(np.float64))
    likely = _hourly(stream, drawn.window, rooms.days, drawn.calendar)
    begins = place_batches(rooms.of(stream.queue), prints, likely, generator)
    submitted = drawn.window.start_ms + _come(stream, batch, begins, generator)
    started, ended, outcome = _draw_waits(stream, submitted, took, generator)
    columns = {
        "queue": [stream.queue] * count,
        "kind": [stream.kind] * count,
        "gpu_model": [stream.gpu] * count,
        "gpus_milli": gpus,
        "pods": pods,
        "submitted_ms": submitted,
        "started_ms": started,
        "ended_ms": ended,
        "duration_ms": took,
        "outcome": outcome,
    }
    return fill_table(JOBS, columns)


def _hourly(stream: JobStream, window: Window, days: F64, calendar: Calendar) -> F64:
    """How likely a batch is in each hour of the window."""
    hours = np.arange(window.start_ms, window.end_ms, HOUR_MS, dtype=np.int64)
    week = np.array(stream.week)[hour_of_week(hours, calendar)]
    day = np.minimum((hours - window.start_ms) // DAY_MS, days.size - 1)
    return np.asarray(week * days[day], np.float64)


def _draw_batches(stream: JobStream, count: int, generator: np.random.Generator) -> I64:
    """The batch of each job."""
    sizes = np.maximum(np.rint(draw(stream.batches, even_ranks(count, generator))), 1).astype(np.int64)
    batches = int(np.searchsorted(np.cumsum(sizes), count)) + 1
    return np.repeat(np.arange(batches), sizes[:batches])[:count]


def _part(batch: I64, weight: F64, most: float) -> I64:
    """Batches that came out heavier than any that was seen fall into as many as it takes."""
    until = np.cumsum(weight)
    first = np.flatnonzero(np.diff(batch, prepend=-1))
    own = until - (until[first] - weight[first])[batch]
    part = np.floor((own - weight / 2) / max(most, 1e-9)).astype(np.int64)
    return np.cumsum((np.diff(batch, prepend=0) != 0) | (np.diff(part, prepend=0) != 0))


def _come(stream: JobStream, batch: I64, begins: F64, generator: np.random.Generator) -> I64:
    """When each job comes: those of a batch one after the other."""
    first = np.flatnonzero(np.diff(batch, prepend=-1))
    gaps = draw(stream.gaps, even_ranks(batch.size, generator)) if stream.gaps.keys else np.zeros(batch.size)
    gaps[first] = 0.0
    since = np.cumsum(gaps)
    return np.rint(begins[batch] + since - since[first][batch]).astype(np.int64)


def _draw_sizes(stream: JobStream, batch: I64, generator: np.random.Generator) -> tuple[I64, I64]:
    """Sizes in their shares, alike in a batch as far as they were."""
    tops = np.cumsum([size.share for size in stream.sizes])
    ranks = ranks_within(batch, stream.size_alike, generator)
    row = np.minimum(np.searchsorted(tops, ranks * tops[-1]), tops.size - 1)
    gpus, pods = (np.array([getattr(size, name) for size in stream.sizes], np.int64) for name in ("gpus_milli", "pods"))
    return gpus[row], pods[row]


def _draw_durations(stream: JobStream, size: I64, batch: I64, generator: np.random.Generator) -> I64:
    """Durations by size, alike in a batch as far as they were."""
    ranks = ranks_within(batch, stream.duration_alike, generator)
    took = np.zeros(size.size)
    sketches = {one.size: one.sketch for one in stream.durations}
    for at in np.unique(size).tolist():
        mine = np.flatnonzero(size == at)
        sketch = sketches.get(SIZE_NAMES[at]) or next(iter(sketches.values()), Sketch())
        order = np.argsort(np.argsort(ranks[mine], kind="stable"), kind="stable")
        took[mine] = draw(sketch, (order + 0.5) / mine.size)
    return np.rint(took).astype(np.int64)


def _draw_waits(
    stream: JobStream, submitted: I64, took: I64, generator: np.random.Generator
) -> tuple[pl.Series, pl.Series, list[str]]:
    """Starts and ends, where starts were seen; some give up while they wait."""
    count = submitted.size
    if stream.waits is None:
        nothing = pl.Series([None] * count, dtype=pl.Int64)
        return nothing, nothing, [""] * count
    hour = (submitted - submitted.min()) // HOUR_MS
    waits = np.rint(quantiles(stream.waits, ranks_within(hour, stream.wait_alike, generator))).astype(np.int64)
    gone = generator.random(count) < stream.given_up
    started = (
        pl.Series(submitted + waits)
        .to_frame("at")
        .select(pl.when(pl.Series(gone)).then(None).otherwise(pl.col("at")).alias("at"))["at"]
    )
    ended = np.where(gone, submitted + waits, submitted + waits + took)
    return started, pl.Series(ended), ["cancelled" if one else "done" for one in gone.tolist()]
