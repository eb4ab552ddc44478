"""Censored runtimes: jobs that had not ended when they were last seen, and draws of how long they run in all.

A running job has reached its age; one that waits, gave up or was not recorded tells nothing about its runtime. Missing
runtimes are drawn from jobs of the same kind and size that reached the same age. The same seed draws the same.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.concurrency import Mask
from tidegate.demand.step_curve import Window
from tidegate.demand.survival import Survival, WatchedDurations, draw_beyond, estimate_survival
from tidegate.demand.tables import KINDS, SIZE_NAMES, size_of
from tidegate.model.arrays import I64
from tidegate.model.units import HOUR_MS

#: Later than everything.
NEVER = 1 << 60

#: A runtime that nothing tells.
UNKNOWN_RUNTIME = -1

#: An end is alone if no other time of so many jobs comes within this part of the time before it, or within an hour.
_LONE_JOBS, _LONE_PART = 20, 20

#: Outcomes of jobs whose runtime is not recorded.
_OUTCOMES = {"pending": 1, "running": 2, "": 3}
_OVER = 4


class State(IntEnum):
    """What became of a job, as far as it was seen."""

    OVER = 0  # its runtime is known
    RUNS = 1
    WAITS = 2
    UNKNOWN = 3  # it gave up while it waited, or its runtime was not recorded


class Observation(NamedTuple):
    """From when to when jobs were watched."""

    since_ms: int | None  # all that were there from then on are listed; None: all that were submitted
    until_ms: int  # those that had not ended by then were still there
    told: bool  # whether a source says until when

    def window(self, arrivals: Window) -> Window:
        """The time in which jobs were watched; where no source says that, the one in which they came."""
        start_ms = arrivals.start_ms if self.since_ms is None else self.since_ms
        end_ms = max(arrivals.end_ms, self.until_ms) if self.told else arrivals.end_ms
        return Window(start_ms, end_ms) if end_ms > start_ms else arrivals


class SeenRuntimes(NamedTuple):
    """What was seen of each job."""

    begin_ms: I64  # when it began to run; NEVER: not yet, or not known
    over_ms: I64  # when its runtime was known; NEVER: not yet
    ran_ms: I64  # its runtime, or as much of it as was seen
    stratum: I64  # its kind and size: who it is compared with

    @property
    def ended(self) -> Mask:
        """Whether the runtime is known."""
        return self.over_ms < NEVER

    def take(self, which: I64 | Mask) -> SeenRuntimes:
        """Some of them."""
        return SeenRuntimes(*(column[which] for column in self))

    def until(self, now_ms: int) -> SeenRuntimes:
        """What had been seen at an earlier time."""
        ended, begun = self.over_ms < now_ms, self.begin_ms < now_ms
        so_far = np.where(begun, now_ms - self.begin_ms, 0)
        so_far = np.where(self.ended, so_far, np.minimum(so_far, self.ran_ms))
        return SeenRuntimes(
            np.where(begun | ended, self.begin_ms, NEVER),
            np.where(ended, self.over_ms, NEVER),
            np.where(ended, self.ran_ms, so_far),
            self.stratum,
        )


def runtime() -> pl.Expr:
    """How long a job ran: as recorded, or from its start to its end; UNKNOWN_RUNTIME if neither is."""
    started, ended, duration = pl.col("started_ms"), pl.col("ended_ms"), pl.col("duration_ms")
    ran = pl.when((started >= 0) & (ended >= started)).then(ended - started).otherwise(UNKNOWN_RUNTIME)
    return pl.when(duration >= 0).then(duration).otherwise(ran).cast(pl.Int64)


def outcome_left() -> pl.Expr:
    """0 for a job whose runtime is recorded; else a number for its outcome."""
    # Null where the runtime is known: then there is nothing to compare, and that takes no time.
    left = pl.when(runtime() == UNKNOWN_RUNTIME).then(pl.col("outcome").fill_null(""))
    number = pl.when(left.is_null()).then(0).when(pl.col("ended_ms").is_not_null()).then(_OVER)
    for outcome, code in _OUTCOMES.items():
        number = number.when(left == outcome).then(code)
    return number.otherwise(_OVER).cast(pl.Int8)


def observed_columns() -> tuple[pl.Expr, ...]:
    """What follows from the columns of a table of jobs: how long each ran, if that is known, and why it is not."""
    cancelled = pl.col("outcome").fill_null("") == "cancelled"
    return runtime().alias("duration_ms"), cancelled.alias("cancelled"), outcome_left().alias("left")


def observe(table: pl.DataFrame, since_ms: int | None, until_ms: int | None) -> Observation:
    """When jobs were watched: as given, else until the latest time of any; an end that stands alone is wrong."""
    if until_ms is not None:
        return Observation(since_ms, until_ms, told=True)
    if not table.height:
        return Observation(since_ms, 0, told=False)
    last, before, alone = table.select(over_ms().max(), last_but_one(), end_alone()).row(0)
    times = (before if alone and table["left"].max() else last, before)
    return Observation(since_ms, max((time for time in times if time is not None), default=0), told=False)


def over_ms() -> pl.Expr:
    """When a job was over; null where that is not known."""
    ran = pl.coalesce("started_ms", "submitted_ms") + pl.col("duration_ms").clip(0)
    return pl.max_horizontal("ended_ms", ran).alias("over")


def last_but_one() -> pl.Expr:
    """The latest time of all jobs but the latest end."""
    ends = over_ms().drop_nulls().top_k(2)
    earlier = pl.when(ends.len() > 1).then(ends.min())
    return pl.max_horizontal(pl.col("submitted_ms").max(), pl.col("started_ms").max(), earlier).alias("before")


def end_alone() -> pl.Expr:
    """Whether the latest end comes so long after all other times that a clock was wrong, if jobs are not over yet."""
    before = last_but_one()
    usual = pl.max_horizontal((before - pl.col("submitted_ms").min()) // _LONE_PART, pl.lit(HOUR_MS))
    return ((over_ms().max() - before > usual) & (pl.len() >= _LONE_JOBS)).fill_null(value=False).alias("alone")


def complete(table: pl.DataFrame, watch: Observation, seed: int) -> pl.DataFrame:
    """The table with runtimes drawn where they are not known, and what was seen of those in `ran_ms` and `state`."""
    if not table["left"].max():
        return table.drop("left")
    seen = see(table, watch)
    order = (table["submitted_ms"].to_numpy(), table["gpus_milli"].to_numpy())
    return table.with_columns(
        duration_ms=pl.Series(draw_runtimes(seen, order, watch.since_ms, seed)),
        ran_ms=pl.Series(seen.ran_ms),
        state=pl.Series(states_of(table, seen)),
    ).drop("left")


def states_of(table: pl.DataFrame, seen: SeenRuntimes) -> I64:
    """The state of each row; where starts were not recorded, a row without one is unknown."""
    left, recorded = table["left"].to_numpy(), table["started_ms"].null_count() < table.height
    waits = (left == _OUTCOMES["pending"]) | ((left == _OUTCOMES[""]) & recorded)
    going = np.where(seen.begin_ms < NEVER, State.RUNS, np.where(waits, State.WAITS, State.UNKNOWN))
    return np.where(seen.ended, State.OVER, going).astype(np.int64)


def see(table: pl.DataFrame, watch: Observation) -> SeenRuntimes:
    """What was seen of each row of a table with `outcome_left` as `left`."""
    left = table["left"].to_numpy()
    submitted, started, ended = (
        table[name].fill_null(-1).to_numpy() for name in ("submitted_ms", "started_ms", "ended_ms")
    )
    duration = table["duration_ms"].to_numpy()
    known = left == 0
    runs = (left == _OUTCOMES["running"]) | ((left == _OUTCOMES[""]) & (started >= 0))
    begin = np.where(started >= 0, started, submitted)
    gave_up = table["cancelled"].to_numpy() & (started < 0)
    begin = np.where((known & ~gave_up) | runs, begin, NEVER)
    over = np.where(ended >= 0, ended, begin + duration)
    ran = np.where(known, duration, np.where(runs, np.maximum(watch.until_ms - begin, 0), 0))
    return SeenRuntimes(begin, np.where(known, over, NEVER), ran, _strata(table))


def _strata(table: pl.DataFrame) -> I64:
    """A number for each kind and size, whatever others there are; unknown kinds are one."""
    numbers = {name: number for number, name in enumerate(KINDS)}
    kinds = table["kind"].cast(pl.String).fill_null("")
    number = kinds.replace_strict(numbers, default=len(KINDS), return_dtype=pl.Int64).to_numpy()
    return number * len(SIZE_NAMES) + size_of(table["gpus_milli"].fill_null(0).to_numpy())


def draw_runtimes(seen: SeenRuntimes, order: tuple[I64, ...], since_ms: int | None, seed: int) -> I64:
    """The runtime of each job, drawn where it is not known; -1 where nothing tells how long such jobs run.

    Jobs draw in the order of what was seen of them, then of `order`: that of their rows does not matter.
    """
    run_ms = seen.ran_ms.copy()
    unknown = np.flatnonzero(~seen.ended)
    for stratum in np.unique(seen.stratum[unknown]).tolist():
        rows = unknown[seen.stratum[unknown] == stratum]
        rows = rows[np.lexsort((*(column[rows] for column in reversed(order)), seen.ran_ms[rows]))]
        generator = np.random.default_rng((seed, stratum))
        ranks = (generator.permutation(rows.size) + generator.random(rows.size)) / rows.size
        survival = _survival_of(seen, stratum, since_ms)
        run_ms[rows] = UNKNOWN_RUNTIME if survival is None else draw_beyond(survival, seen.ran_ms[rows], ranks)
    return run_ms


def _survival_of(seen: SeenRuntimes, stratum: int, since_ms: int | None) -> Survival | None:
    """How long jobs of a kind and size run; where none of them has ended, others of the kind count as one that has."""
    mine = watch_some(seen.take(seen.stratum == stratum), since_ms)
    if mine.ended_ms.size:
        return estimate_survival(mine)
    kind = seen.stratum // len(SIZE_NAMES) == stratum // len(SIZE_NAMES)
    others = watch_some(seen.take(kind), since_ms)
    if not mine.going_ms.size and others.ended_ms.size:
        return estimate_survival(others)
    usual_ms = float(others.ended_ms.mean()) if others.ended_ms.size else 0.0
    found = estimate_survival(mine, usual_ms)
    return found if found.rate > 0 else None


def watch_some(seen: SeenRuntimes, since_ms: int | None) -> WatchedDurations:
    """The runtimes of some jobs as they were watched: those that ended before the window are not among them."""
    entered = np.zeros(0, np.int64)
    if since_ms is not None:
        seen = seen.take(seen.over_ms >= since_ms)
        late = np.minimum(since_ms - seen.begin_ms, seen.ran_ms - 1)
        entered = np.sort(late[late > 0])
    going = seen.ran_ms[~seen.ended & (seen.ran_ms > 0)]
    return WatchedDurations(np.sort(seen.ran_ms[seen.ended]), np.sort(going), entered)
