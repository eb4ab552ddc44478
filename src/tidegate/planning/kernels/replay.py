"""Replay of jobs against a capacity that changes with time: counts GPUs, places nothing.

First come, first served, with or without overtaking, as the engine decides one queue with quota: tests hold the two
together. Written in the subset of Python that numba compiles; columns are arrays there, and lists in a plain run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.jit.registry import entry, kernel

#: Later than everything.
NEVER = 1 << 60

#: Gauges.
USED, WAITING, RUNNING, READY, COMING, LAUNCHED, LANDED, DUE_FROM, DUE, IDLE_SINCE, CHANGES, QUEUED, STEP = range(13)
GAUGES = 13

#: Totals, in thousandths of a GPU times milliseconds.
HELD, OWNED, BURST, ABOVE = range(4)
TOTALS = 4

#: An array where kernels are compiled, a list where they run plain.
Column = Any


class Load(NamedTuple):
    """What is asked for, in the order it came."""

    at_ms: Column
    run_ms: Column
    size: Column  # row of the sizes
    sizes: Column  # ascending, in thousandths of a GPU


class Steps(NamedTuple):
    """What capacity is from each time on."""

    at_ms: Column
    level_milli: Column  # there whether it is used or not
    ceiling_milli: Column  # as much again may be switched on


class BurstRule(NamedTuple):
    """Capacity that is switched on when work has waited too long, and off when it has nothing to do."""

    patience_ms: int  # how long work waits before capacity is launched for it
    launch_ms: int  # from the launch to the first start
    linger_ms: int  # how long something must be idle, and nothing wait, before it is given back
    step_milli: int  # it comes and goes in multiples of this; 0: there is none


class ReplayScratch(NamedTuple):
    """Where the replay keeps what it knows; each replay has its own."""

    start_ms: Column  # by job; -1: never
    behind: Column  # by job: the next of its size in the queue
    head: Column  # by size: the first in the queue
    tail: Column  # by size: the last
    end_ms: Column  # of running jobs: a heap
    ender: Column  # their sizes, in thousandths
    launch_ms: Column  # when each launch is ready
    launch_milli: Column
    change_ms: Column  # when capacity changed
    change_milli: Column  # what it was from then on
    gauge: Column
    total: Column


@kernel
def push_end(end_ms: Column, ender: Column, count: int, at_ms: int, size: int) -> None:
    """Add one that ends at a time to a heap of so many."""
    at = count
    while at > 0 and end_ms[(at - 1) // 2] > at_ms:
        above = (at - 1) // 2
        end_ms[at], ender[at] = end_ms[above], ender[above]
        at = above
    end_ms[at], ender[at] = at_ms, size


@kernel
def pop_end(end_ms: Column, ender: Column, count: int) -> None:
    """Take the first away from a heap of so many."""
    last = count - 1
    at_ms, size = end_ms[last], ender[last]
    at = 0
    while 2 * at + 1 < last:
        below = 2 * at + 1
        if below + 1 < last and end_ms[below + 1] < end_ms[below]:
            below += 1
        if end_ms[below] >= at_ms:
            break
        end_ms[at], ender[at] = end_ms[below], ender[below]
        at = below
    if last > 0:
        end_ms[at], ender[at] = at_ms, size


@entry
def replay(
    load: Load, steps: Steps, rule: BurstRule, span: tuple[int, int], overtakes: Any, scratch: ReplayScratch
) -> None:
    """Replay the load to its end; totals count the time of the span."""
    gauge = scratch.gauge
    clock_ms = -NEVER
    while True:
        next_ms = next_change_ms(load, steps, rule, clock_ms, span[1], scratch)
        if next_ms == NEVER:
            break
        count_time(steps, max(clock_ms, span[0]), min(next_ms, span[1]), scratch)
        clock_ms = next_ms
        step_on(steps, clock_ms, scratch)
        while gauge[RUNNING] > 0 and scratch.end_ms[0] <= clock_ms:
            gauge[USED] -= scratch.ender[0]
            pop_end(scratch.end_ms, scratch.ender, gauge[RUNNING])
            gauge[RUNNING] -= 1
        while gauge[QUEUED] < len(load.at_ms) and load.at_ms[gauge[QUEUED]] <= clock_ms:
            queue_up(load, gauge[QUEUED], scratch)
        level = steps.level_milli[gauge[STEP]]
        while gauge[WAITING] > 0 and start_next(load, level + gauge[READY] - gauge[USED], clock_ms, overtakes, scratch):
            pass
        if rule.step_milli > 0:
            note_due(load, rule, clock_ms, scratch)
            launch_burst(rule, level, steps.ceiling_milli[gauge[STEP]], clock_ms, scratch)
            return_burst(rule, level, clock_ms, scratch)
        note_change(level + gauge[READY], clock_ms, scratch)
    count_time(steps, max(clock_ms, span[0]), span[1], scratch)


@kernel
def next_change_ms(
    load: Load, steps: Steps, rule: BurstRule, clock_ms: int, last_ms: int, scratch: ReplayScratch
) -> int:
    """When the next thing happens."""
    gauge = scratch.gauge
    next_ms = NEVER
    if gauge[QUEUED] < len(load.at_ms):
        next_ms = load.at_ms[gauge[QUEUED]]
    if gauge[RUNNING] > 0:
        next_ms = min(next_ms, scratch.end_ms[0])
    if gauge[LANDED] < gauge[LAUNCHED]:
        next_ms = min(next_ms, scratch.launch_ms[gauge[LANDED]])
    if gauge[STEP] + 1 < len(steps.at_ms) and (gauge[WAITING] > 0 or clock_ms < last_ms):
        next_ms = min(next_ms, steps.at_ms[gauge[STEP] + 1])
    if rule.step_milli > 0:
        first = gauge[DUE_FROM]
        while first < gauge[QUEUED] and scratch.start_ms[first] >= 0:
            first += 1
        gauge[DUE_FROM] = first
        if first < gauge[QUEUED]:
            next_ms = min(next_ms, load.at_ms[first] + rule.patience_ms)
        if gauge[IDLE_SINCE] < NEVER:
            next_ms = min(next_ms, gauge[IDLE_SINCE] + rule.linger_ms)
    return next_ms


@kernel
def count_time(steps: Steps, from_ms: int, to_ms: int, scratch: ReplayScratch) -> None:
    """Add a stretch of time to the totals. What runs on beyond the capacity is held, and paid, all the same."""
    if to_ms <= from_ms:
        return
    gauge, total, length = scratch.gauge, scratch.total, float(to_ms - from_ms)
    level = steps.level_milli[gauge[STEP]]
    there = level + gauge[READY] + gauge[COMING]
    total[HELD] += length * max(there, gauge[USED])
    total[OWNED] += length * level
    total[BURST] += length * (gauge[READY] + gauge[COMING])
    total[ABOVE] += length * max(gauge[USED] - there, 0)


@kernel
def step_on(steps: Steps, clock_ms: int, scratch: ReplayScratch) -> None:
    """Go to the capacity of now, launches that are ready included."""
    gauge = scratch.gauge
    while gauge[STEP] + 1 < len(steps.at_ms) and steps.at_ms[gauge[STEP] + 1] <= clock_ms:
        gauge[STEP] += 1
    while gauge[LANDED] < gauge[LAUNCHED] and scratch.launch_ms[gauge[LANDED]] <= clock_ms:
        gauge[READY] += scratch.launch_milli[gauge[LANDED]]
        gauge[COMING] -= scratch.launch_milli[gauge[LANDED]]
        gauge[LANDED] += 1


@kernel
def queue_up(load: Load, job: int, scratch: ReplayScratch) -> None:
    """A job joins the queue of its size."""
    size = load.size[job]
    if scratch.head[size] < 0:
        scratch.head[size] = job
    else:
        scratch.behind[scratch.tail[size]] = job
    scratch.tail[size] = job
    scratch.gauge[WAITING] += 1
    scratch.gauge[QUEUED] += 1


@kernel
def start_next(load: Load, free: int, clock_ms: int, overtakes: bool, scratch: ReplayScratch) -> bool:  # noqa: FBT001
    """Start the first in the queue; with overtaking, the first that fits. Return whether a job started."""
    job, size = -1, -1
    for s in range(len(load.sizes)):
        if overtakes and load.sizes[s] > free:
            break
        if scratch.head[s] >= 0 and (job < 0 or scratch.head[s] < job):
            job, size = scratch.head[s], s
    if job < 0 or load.sizes[size] > free:
        return False
    gauge = scratch.gauge
    scratch.head[size] = scratch.behind[job]
    scratch.start_ms[job] = clock_ms
    gauge[WAITING] -= 1
    gauge[USED] += load.sizes[size]
    if job < gauge[DUE_FROM]:
        gauge[DUE] -= load.sizes[size]
    push_end(scratch.end_ms, scratch.ender, gauge[RUNNING], clock_ms + load.run_ms[job], load.sizes[size])
    gauge[RUNNING] += 1
    return True


@kernel
def note_due(load: Load, rule: BurstRule, clock_ms: int, scratch: ReplayScratch) -> None:
    """Count what has waited for as long as patience lasts."""
    gauge = scratch.gauge
    job = gauge[DUE_FROM]
    while job < gauge[QUEUED] and (scratch.start_ms[job] >= 0 or load.at_ms[job] + rule.patience_ms <= clock_ms):
        if scratch.start_ms[job] < 0:
            gauge[DUE] += load.sizes[load.size[job]]
        job += 1
    gauge[DUE_FROM] = job


@kernel
def launch_burst(rule: BurstRule, level: int, ceiling: int, clock_ms: int, scratch: ReplayScratch) -> None:
    """Launch what is missing to run all that is due next to what runs."""
    gauge = scratch.gauge
    if gauge[DUE] <= 0:
        return
    wanted = -(-(gauge[USED] + gauge[DUE] - level) // rule.step_milli) * rule.step_milli
    more = min(wanted, ceiling) - gauge[READY] - gauge[COMING]
    if more > 0:
        scratch.launch_ms[gauge[LAUNCHED]] = clock_ms + rule.launch_ms
        scratch.launch_milli[gauge[LAUNCHED]] = more
        gauge[LAUNCHED] += 1
        gauge[COMING] += more


@kernel
def return_burst(rule: BurstRule, level: int, clock_ms: int, scratch: ReplayScratch) -> None:
    """Give back idle burst capacity once something was idle, and nothing waited, for `linger_ms`."""
    gauge = scratch.gauge
    idle = min(gauge[READY], level + gauge[READY] - gauge[USED]) // rule.step_milli * rule.step_milli
    if gauge[WAITING] > 0 or idle <= 0:
        gauge[IDLE_SINCE] = NEVER
        return
    if gauge[IDLE_SINCE] == NEVER:
        gauge[IDLE_SINCE] = clock_ms
    if clock_ms >= gauge[IDLE_SINCE] + rule.linger_ms:
        gauge[READY] -= idle
        gauge[IDLE_SINCE] = NEVER


@kernel
def note_change(capacity: int, clock_ms: int, scratch: ReplayScratch) -> None:
    """Write down what capacity is from now on, if it is another."""
    gauge = scratch.gauge
    last = gauge[CHANGES] - 1
    if last >= 0 and scratch.change_milli[last] == capacity:
        return
    if last >= 0 and scratch.change_ms[last] == clock_ms:
        scratch.change_milli[last] = capacity
        return
    if last + 1 < len(scratch.change_ms):
        scratch.change_ms[last + 1] = clock_ms
        scratch.change_milli[last + 1] = capacity
    gauge[CHANGES] += 1
