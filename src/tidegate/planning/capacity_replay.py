"""Capacity replay: how long each job waits under a capacity that changes with time, and how much is held for it.

A search replays hundreds of times, so this counts GPUs and does not place pods. `planning.engine_check` lets the engine
decide the same jobs; tests hold the two together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tidegate.config.prices import MICROS, GpuPrices
from tidegate.demand.concurrency import Mask
from tidegate.jit.registry import can_compile
from tidegate.jit.registry import compiled as compiled_form
from tidegate.model.arrays import I64
from tidegate.model.units import DAY_MS, GPU_HOUR_MILLI_MS, HOUR_MS
from tidegate.planning.capacity import SHUT
from tidegate.planning.kernels import replay as kernels
from tidegate.planning.kernels.replay import NEVER, BurstRule, Load, ReplayScratch, Steps
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import PartWaits, ReplayedWaits, WaitTolerance, late_weight, limits_of
from tidegate.stats.quantile import quantile

#: So many jobs are worth loading the compiler for.
_WORTH_COMPILING = 1_000


class QueueOrder(StrEnum):
    """Who goes first where work waits."""

    OVERTAKE = "overtake"  # first come, and a job that fits may pass one that does not: the engine's default
    STRICT = "strict"  # first come, and no job passes a head that must wait


class ReplaySpan(NamedTuple):
    """The time that counts: jobs that came in it, GPUs that were held in it."""

    from_ms: int
    to_ms: int

    @property
    def hours(self) -> float:
        """How long it is."""
        return (self.to_ms - self.from_ms) / HOUR_MS

    def has(self, at_ms: I64) -> Mask:
        """Which times lie in it."""
        return (at_ms >= self.from_ms) & (at_ms <= self.to_ms)


class ReplayOutcome(NamedTuple):
    """What a replay came to."""

    start_ms: I64  # by job; -1: never
    wait_ms: I64  # of the jobs that came in the span; NEVER for one that never starts
    jobs: PlanJobs
    counted: Mask  # which of them came in the span
    held_gpu_h: float  # there or in use, whichever is more
    owned_gpu_h: float
    burst_gpu_h: float
    above_gpu_h: float  # in use beyond what is there: a window ended and work ran on
    drained_ms: int  # from the end of the span until all that came in it has started
    change_ms: I64  # when capacity changed, burst included
    change_milli: I64

    def wait_at(self, share_milli: int) -> int:
        """The shortest wait that this share of the jobs does not exceed."""
        if not len(self.wait_ms):
            return 0
        return int(quantile(self.wait_ms, share_milli / 1000))

    def waits(self, tolerance: WaitTolerance) -> ReplayedWaits:
        """Waits of the jobs that came in the span, with their limits."""
        limit_ms, jobs = limits_of(self.jobs, tolerance), self.jobs
        return ReplayedWaits(
            self.wait_ms, *(column[self.counted] for column in (limit_ms, jobs.gpus_milli, jobs.run_ms))
        )

    def holds(self, tolerance: WaitTolerance) -> bool:
        """Whether waits hold the tolerance, all jobs start, and the queue drains within a day."""
        waits = self.waits(tolerance)
        if self.drained_ms > max(DAY_MS, tolerance.wait_ms, int(waits.limit_ms.max(initial=0))):
            return False
        return waits.hold(tolerance.share_milli)

    def late(self, tolerance: WaitTolerance) -> float:
        """The share of jobs that waited longer than is tolerated."""
        return float(self.waits(tolerance).late.mean()) if len(self.wait_ms) else 0.0


class CapacityReplayer:
    """Replays jobs against capacities."""

    def __init__(
        self, jobs: PlanJobs, order: QueueOrder = QueueOrder.OVERTAKE, *, compiled: bool | None = None
    ) -> None:
        self.jobs, self.order = jobs, order
        worth = jobs.total >= _WORTH_COMPILING and can_compile()
        self.compiled = worth if compiled is None else compiled
        self.replays = 0
        sizes, size = np.unique(jobs.gpus_milli, return_inverse=True)
        self._load = Load(jobs.at_ms, jobs.run_ms, size.astype(np.int64), sizes)
        self._replay = compiled_form(kernels.replay) if self.compiled else kernels.replay
        if not self.compiled:
            self._load = Load(*(column.tolist() for column in self._load))

    def replay(self, steps: Steps, burst_rule: BurstRule = SHUT, span: ReplaySpan | None = None) -> ReplayOutcome:
        """Replay all jobs against a capacity; the span is all of them if it is not named."""
        span = ReplaySpan(*self.jobs.span_ms) if span is None else span
        scratch = self._desk(len(steps.at_ms))
        if not self.compiled:
            steps = Steps(*(column.tolist() for column in steps))
        self._replay(
            self._load, steps, burst_rule, (span.from_ms, span.to_ms), self.order is QueueOrder.OVERTAKE, scratch
        )
        self.replays += 1
        return self._outcome(scratch, span)

    def _desk(self, steps: int) -> ReplayScratch:
        jobs, sizes = self.jobs.total, len(self._load.sizes)
        changes = 4 * jobs + steps + 8
        none = np.full(1, -1, np.int64)
        gauge = np.zeros(kernels.GAUGES, np.int64)
        gauge[kernels.IDLE_SINCE] = NEVER
        columns = (
            none.repeat(jobs),
            none.repeat(jobs),
            none.repeat(sizes),
            none.repeat(sizes),
            *(np.zeros(jobs + 1, np.int64) for _ in range(2)),
            *(np.zeros(changes, np.int64) for _ in range(4)),
            gauge,
            np.zeros(kernels.TOTALS, np.float64),
        )
        return ReplayScratch(*columns) if self.compiled else ReplayScratch(*(column.tolist() for column in columns))

    def _outcome(self, scratch: ReplayScratch, span: ReplaySpan) -> ReplayOutcome:
        start = np.asarray(scratch.start_ms, np.int64)
        at_ms = self.jobs.at_ms
        counted = span.has(at_ms)
        started = start[counted]
        wait = np.where(started < 0, NEVER, started - at_ms[counted])
        last = NEVER if (started < 0).any() else int(started.max(initial=span.to_ms)) - span.to_ms
        total = np.asarray(scratch.total) / GPU_HOUR_MILLI_MS
        changes = min(int(scratch.gauge[kernels.CHANGES]), len(scratch.change_ms))
        return ReplayOutcome(
            start_ms=start,
            wait_ms=wait,
            jobs=self.jobs,
            counted=counted,
            held_gpu_h=float(total[kernels.HELD]),
            owned_gpu_h=float(total[kernels.OWNED]),
            burst_gpu_h=float(total[kernels.BURST]),
            above_gpu_h=float(total[kernels.ABOVE]),
            drained_ms=max(last, 0),
            change_ms=np.asarray(scratch.change_ms[:changes], np.int64),
            change_milli=np.asarray(scratch.change_milli[:changes], np.int64),
        )


def cost_of(outcome: ReplayOutcome, own_gpu_h: float, prices: GpuPrices) -> float:
    """What a capacity costs: of what is there all the time so many GPU-hours are owned, the others are booked.

    Burst is paid as it comes: in its steps, from the launch until it is given back.
    """
    booked_gpu_h = max(outcome.owned_gpu_h - own_gpu_h, 0.0)
    micros = (
        own_gpu_h * prices.own_micros
        + booked_gpu_h * prices.window_micros
        + (outcome.burst_gpu_h + outcome.above_gpu_h) * prices.burst_micros
    )
    return micros / MICROS


class ReplayedWay(NamedTuple):
    """One way to provide capacity, and how it did in a replay."""

    name: str
    gpus: tuple[float, ...]  # that it provides on average, week by week or in all
    held_gpu_h: float
    owned_gpu_h: float
    burst_gpu_h: float
    above_gpu_h: float
    cost: float
    wait_ms: int  # that the share of jobs that must not wait longer did not exceed
    worst_wait_ms: int
    late: float  # share of jobs that waited longer than is tolerated
    late_gpu_h: float  # share of the GPU-hours that is late
    sizes: tuple[PartWaits, ...]
    patience: tuple[PartWaits, ...]
    holds: bool


def way_of(
    outcome: ReplayOutcome, tolerance: WaitTolerance, name: str, gpus: tuple[float, ...], cost: float
) -> ReplayedWay:
    """Sum up a replay."""
    waits, share_milli = outcome.waits(tolerance), tolerance.share_milli
    return ReplayedWay(
        name=name,
        gpus=gpus,
        held_gpu_h=outcome.held_gpu_h,
        owned_gpu_h=outcome.owned_gpu_h,
        burst_gpu_h=outcome.burst_gpu_h,
        above_gpu_h=outcome.above_gpu_h,
        cost=cost,
        wait_ms=outcome.wait_at(share_milli),
        worst_wait_ms=int(outcome.wait_ms.max(initial=0)),
        late=outcome.late(tolerance),
        late_gpu_h=late_weight(waits, share_milli),
        sizes=waits.by_size(share_milli),
        patience=waits.by_patience(share_milli),
        holds=outcome.holds(tolerance),
    )
