"""Jobs to replay, in columns: when each came, its GPUs and its runtime.

Runtimes of jobs that had not ended are drawn from those that had (`demand.censoring`). Jobs that cannot be replayed are
left out and counted. `known_at` gives the jobs as they were known at a time: without later arrivals, starts and ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.censoring import (
    UNKNOWN_RUNTIME,
    SeenRuntimes,
    State,
    draw_runtimes,
    observe,
    observed_columns,
    see,
    states_of,
)
from tidegate.demand.concurrency import Mask
from tidegate.demand.tables import JOBS, KINDS, SIZE_NAMES, Tables, size_of
from tidegate.demand.time_zone import Calendar
from tidegate.model.arrays import I64
from tidegate.model.units import WHOLE_MILLI

#: Why a job cannot be replayed.
NO_RUNTIME, NO_GPUS, NO_TIME, SERVES = "its runtime is not known", "it wants no GPU", "it has no time", "it serves"

#: How long a job may wait that says nothing of it.
UNDECLARED = -1

#: Why the runtime of a job is drawn.
DRAWN = {
    State.RUNS: "they had not ended",
    State.WAITS: "they had not started",
    State.UNKNOWN: "they never started, or their runtime is not recorded",
}


#: Why it is no draw from like jobs.
NONE_ENDED = "none of their kind has ended"

#: What may rest on runtimes of kinds of which none has ended: a share of the GPU-hours.
_MOST_ENDLESS = 0.05


class PlanJobs(NamedTuple):
    """Jobs in the order they came; of those that came at once, by their ids."""

    at_ms: I64
    run_ms: I64
    gpus_milli: I64
    pods: I64
    calendar: Calendar = Calendar.EPOCH
    left_out: tuple[tuple[str, int], ...] = ()  # why, and how many
    drawn: tuple[tuple[str, int], ...] = ()  # of whose runtimes are drawn: why, and how many
    seen: SeenRuntimes | None = None  # what was seen of each; None: it started when it came, and ended
    since_ms: int | None = None  # when they began to be watched; None: when the first of them came
    until_ms: int | None = None  # until when they were watched; None: until the last of them came
    declared_ms: I64 | None = None  # how long each may wait, as it says itself; UNDECLARED, or None for all: nothing

    @property
    def total(self) -> int:
        """How many jobs there are."""
        return len(self.at_ms)

    @property
    def span_ms(self) -> tuple[int, int]:
        """From the first arrival to the last, or as long as they were watched; what came before runs already."""
        first, last = int(self.at_ms[0]), int(self.at_ms[-1])
        first = first if self.since_ms is None else self.since_ms
        last = last if self.until_ms is None else max(self.until_ms, last)
        return (first, last) if last > first else (int(self.at_ms[0]), int(self.at_ms[-1]))

    @property
    def widest_milli(self) -> int:
        """The largest gang, in whole GPUs."""
        return -(-int(self.gpus_milli.max()) // WHOLE_MILLI) * WHOLE_MILLI

    def take(self, which: I64 | np.ndarray) -> PlanJobs:
        """Some of the jobs."""
        return self._replace(
            at_ms=self.at_ms[which],
            run_ms=self.run_ms[which],
            gpus_milli=self.gpus_milli[which],
            pods=self.pods[which],
            declared_ms=None if self.declared_ms is None else self.declared_ms[which],
            seen=None if self.seen is None else self.seen.take(which),
        )

    def draw_again(self, seed: int) -> PlanJobs:
        """The same jobs, with runtimes that are not known drawn by another seed."""
        if self.seen is None or self.seen.ended.all():
            return self
        run_ms = draw_runtimes(self.seen, (self.at_ms, self.gpus_milli), self.since_ms, seed)
        return self._replace(run_ms=run_ms)

    @property
    def interactive(self) -> Mask:
        """Which are sessions of people."""
        if self.seen is None:
            return np.zeros(self.total, bool)
        return np.asarray(self.seen.stratum // len(SIZE_NAMES) == KINDS.index("interactive"))

    @property
    def endless(self) -> Mask:
        """Which jobs are of a kind of which none has ended: how long they run is not known, but that it is longer."""
        if self.seen is None:
            return np.zeros(self.total, bool)
        kind = self.seen.stratum // len(SIZE_NAMES)
        return ~np.isin(kind, kind[self.seen.ended])

    @property
    def only_bounded(self) -> bool:
        """Whether what they need rests on such jobs, so that only a lower bound is known."""
        gpu_ms = self.gpus_milli.astype(np.float64) * self.run_ms
        return float(gpu_ms[self.endless].sum()) > _MOST_ENDLESS * float(gpu_ms.sum())

    def as_far_as_seen(self) -> PlanJobs:
        """The same jobs; those of kinds of which none has ended run no longer than was seen."""
        if self.seen is None:
            return self
        endless = self.endless
        # They stay as they are when runtimes are drawn again.
        seen = self.seen._replace(over_ms=np.where(endless, self.at_ms, self.seen.over_ms))
        return self._replace(run_ms=np.where(endless, self.seen.ran_ms, self.run_ms), seen=seen)

    def latest(self, most: int) -> PlanJobs:
        """The last ones to come, and those that run when the first of them comes."""
        if self.total <= most:
            return self
        since_ms = int(self.at_ms[-most])
        there = (self.at_ms >= since_ms) | (self.at_ms + self.run_ms > since_ms)
        return self.take(np.flatnonzero(there))._replace(since_ms=since_ms)


def plan_jobs_of(tables: Tables, seed: int = 0) -> PlanJobs:
    """The jobs of gathered tables that a batch plan is for; what cannot be replayed is counted by the first reason."""
    table = _read(tables)
    watch = observe(table, tables.since_ms, tables.until_ms)
    kept = table.filter(pl.col("left_out") == "").sort(*_ORDER, maintain_order=True)
    seen = see(kept, watch)
    at_ms, gpus_milli = _column(kept["submitted_ms"]), _column(kept["gpus_milli"])
    jobs = PlanJobs(
        at_ms,
        draw_runtimes(seen, (at_ms, gpus_milli), watch.since_ms, seed),
        gpus_milli,
        _column(kept["pods"].fill_null(1)),
        tables.calendar,
        seen=seen,
        since_ms=watch.since_ms,
        until_ms=watch.until_ms if watch.told else None,
        declared_ms=_declared(kept["tolerated_wait_ms"]),
    )
    known = jobs.run_ms != UNKNOWN_RUNTIME
    reasons = [*table.filter(pl.col("left_out") != "")["left_out"], *[NO_RUNTIME] * int((~known).sum())]
    states = states_of(kept, seen)[known].tolist()
    jobs = jobs.take(np.flatnonzero(known))
    drawn = [
        NONE_ENDED if endless else DRAWN[State(state)]
        for state, endless in zip(states, jobs.endless.tolist(), strict=True)
        if state != State.OVER
    ]
    return jobs._replace(left_out=_counted(reasons), drawn=_counted(drawn))


def _declared(said: pl.Series) -> I64 | None:
    return None if said.null_count() == len(said) else _column(said.fill_null(UNDECLARED))


def _counted(reasons: Iterable[str]) -> tuple[tuple[str, int], ...]:
    names, counts = np.unique(np.array([*reasons], np.str_), return_counts=True)
    return tuple(zip(names.tolist(), counts.tolist(), strict=True))


#: Who came first: of those that came together the one with fewer GPUs. Ids come last, for they may be numbers of rows.
_ORDER = ("submitted_ms", "gpus_milli", "started_ms", "ended_ms", "duration_ms", "pods", "id")

_COLUMNS = ("id", "kind", "gpus_milli", "pods", "submitted_ms", "started_ms", "ended_ms", "tolerated_wait_ms")


def _read(tables: Tables) -> pl.DataFrame:
    """What is needed of the table, with why a row is left out; "" if it is not."""
    reason = (
        pl.when(pl.col("kind") == "inference")
        .then(pl.lit(SERVES))
        .when(pl.col("submitted_ms").is_null())
        .then(pl.lit(NO_TIME))
        .when(pl.col("gpus_milli").fill_null(0) <= 0)
        .then(pl.lit(NO_GPUS))
        .otherwise(pl.lit(""))
        .alias("left_out")
    )
    jobs = pl.LazyFrame(schema=JOBS) if tables.jobs is None else tables.jobs
    return jobs.select(*map(pl.col, _COLUMNS), *observed_columns(), reason).collect(engine="streaming")


def _column(series: pl.Series) -> I64:
    return series.to_numpy().astype(np.int64)


def known_at(jobs: PlanJobs, now_ms: int, seed: int = 0) -> PlanJobs:
    """What was known at a time: who had come, who had started, who had ended; how long others run is drawn."""
    past = jobs.take(np.flatnonzero(jobs.at_ms < now_ms))
    seen = past.seen or SeenRuntimes(past.at_ms, past.at_ms + past.run_ms, past.run_ms, size_of(past.gpus_milli))
    seen = seen.until(now_ms)
    run_ms = draw_runtimes(seen, (past.at_ms, past.gpus_milli), jobs.since_ms, seed)
    known = past._replace(run_ms=run_ms, seen=seen, until_ms=now_ms, drawn=(), left_out=())
    return known.take(np.flatnonzero(run_ms != UNKNOWN_RUNTIME))
