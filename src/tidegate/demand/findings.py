"""Findings about a demand as data: a code, a subject, numbers, and the GPU-hours at stake."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from tidegate.demand.durations import Meaning
from tidegate.demand.estimate import trim
from tidegate.demand.model import DemandModel, GroupScope
from tidegate.model.struct import Spec
from tidegate.model.units import HOUR_MS

#: When more than this part of the jobs has the highest of all priorities, priorities say nothing.
_INFLATED = 0.6

#: A holder of idle GPUs is worth a word after this long without work.
_LONG_IDLE_MS = HOUR_MS

#: Holders that are named.
_MOST_NAMED = 5

#: A peak this many times p95 is a spike.
_SPIKE = 2.0

#: It must rise above its p95 by this part of the highest demand of all: a few GPUs more are no news.
_SPIKE_PART = 0.02


class FindingCode(StrEnum):
    """What stands out."""

    ALL_URGENT = "all_urgent"  # most work has the highest priority: none has
    IDLE_HOLDER = "idle_holder"  # holds a GPU for hours without work
    GANG_TOO_LARGE = "gang_larger_than_free"  # one job asks for more than is free for 95 % of the time
    HELD_ABOVE_USE = "held_above_use"  # far more is held than would be busy at once
    SPIKE = "spike"  # the peak is far above p95: buying for it is buying for minutes
    SHORT_BEHIND_LONG = "short_behind_long"  # durations so uneven that short work needs backfill or preemption
    GAVE_UP = "gave_up"  # work was cancelled while it waited
    MOSTLY_NOISE = "mostly_noise"  # most episodes are over before capacity could start


class DemandFinding(Spec, frozen=True):
    """Something that stands out."""

    code: FindingCode
    about: str  # a queue, a pod, a kind of work; "" for everything
    numbers: tuple[tuple[str, float], ...]
    gpu_hours: float  # at stake over the window; 0 where that cannot be said


def find(model: DemandModel) -> tuple[DemandFinding, ...]:
    """What stands out, the weightiest first."""
    looks = (_urgent, _idle_holders, _gangs, _held_above_use, _spike, _uneven, _gave_up, _noise)
    found = [one for look in looks for one in look(model)]
    return tuple(sorted(found, key=lambda one: (-one.gpu_hours, one.code, one.about)))


def _urgent(model: DemandModel) -> Iterator[DemandFinding]:
    jobs = sum(one.jobs for one in model.priorities)
    if len(model.priorities) < 2 or jobs < 10:
        return
    top = model.priorities[0]
    if top.jobs > _INFLATED * jobs:
        yield _finding(FindingCode.ALL_URGENT, "", top.gpu_hours, priority=top.priority, share=top.jobs / jobs)


def _idle_holders(model: DemandModel) -> Iterator[DemandFinding]:
    if model.residency is None:
        return
    long = [one for one in model.residency.allocations if one.longest_idle_ms >= _LONG_IDLE_MS]
    for one in long[:_MOST_NAMED]:
        hours = one.held_gpu_hours * one.idle_share
        told = {"idle_ms": one.longest_idle_ms, "idle_share": one.idle_share}
        told |= {} if one.vram_gib is None else {"vram_gib": one.vram_gib}
        yield _finding(FindingCode.IDLE_HOLDER, one.name, hours, **told)


def _gangs(model: DemandModel) -> Iterator[DemandFinding]:
    fleet = model.fleet
    if fleet is None or fleet.free_p95 is None or fleet.largest_gang <= fleet.free_p95.value:
        return
    yield _finding(FindingCode.GANG_TOO_LARGE, "", 0.0, gang=fleet.largest_gang, free=fleet.free_p95.value)


def _held_above_use(model: DemandModel) -> Iterator[DemandFinding]:
    seen = model.residency
    if seen is None or seen.busy.p99.value * 1.5 >= seen.held.mean.value:
        return
    hours = sum(band.demand for band in seen.held.bands)
    spare = hours * (1 - seen.busy.p99.value / max(seen.held.mean.value, 1e-9))
    told = {"held": seen.held.mean.value, "busy_p99": seen.busy.p99.value, "duty": seen.duty.value}
    yield _finding(FindingCode.HELD_ABOVE_USE, "", spare, **told)


def _spike(model: DemandModel) -> Iterator[DemandFinding]:
    total = model.total()
    top = total.wanted.peak.value if total and total.wanted else 0.0
    for group in model.groups:
        if group.scope not in {GroupScope.TOTAL, GroupScope.QUEUE} or group.wanted is None:
            continue
        if group.scope is GroupScope.QUEUE and total is not None and group.jobs == total.jobs and total.jobs:
            continue  # the only queue: the total is listed
        p95, peak = group.wanted.p95.value, group.wanted.peak.value
        if p95 > 0 and peak >= _SPIKE * p95 and peak - p95 >= _SPIKE_PART * top:
            hours = next((one.seen_hours for one in model.grounds if one.table == group.wanted.mean.table), 0.0)
            stake = (peak - p95) * hours
            about = f"Queue {group.name}" if group.scope is GroupScope.QUEUE else ""
            yield _finding(FindingCode.SPIKE, about, stake, peak=peak, p95=p95, ratio=peak / p95)


def _uneven(model: DemandModel) -> Iterator[DemandFinding]:
    for one in model.durations:
        if not one.size and Meaning.BLOCKS_SHORT_WORK in one.meaning:
            told = {"cv": one.cv.value, "p50_ms": one.p50.value, "p99_ms": one.p99.value}
            yield _finding(FindingCode.SHORT_BEHIND_LONG, one.kind, 0.0, **told)


def _gave_up(model: DemandModel) -> Iterator[DemandFinding]:
    kinds = [group for group in model.groups if group.scope is GroupScope.KIND]
    for group in model.groups:
        if group.scope is GroupScope.TOTAL and len(kinds) == 1:
            continue  # the only kind of work is listed itself
        gone = group.tolerance.cancelled if group.tolerance else None
        if group.scope in {GroupScope.TOTAL, GroupScope.KIND} and gone is not None and gone.value >= 0.01:
            yield _finding(FindingCode.GAVE_UP, group.name, 0.0, share=gone.value)


def _noise(model: DemandModel) -> Iterator[DemandFinding]:
    total = model.total()
    bursts = total.bursts if total else None
    if bursts is None or bursts.noise is None or bursts.noise_area is None or bursts.noise.value < 0.5:
        return
    told = {"share": bursts.noise.value, "episodes": bursts.episodes.value}
    yield _finding(FindingCode.MOSTLY_NOISE, "", bursts.noise_area.value, **told)


def _finding(code: FindingCode, about: str, gpu_hours: float, **numbers: float) -> DemandFinding:
    told = tuple((name, trim(float(value))) for name, value in numbers.items())
    return DemandFinding(code=code, about=about, numbers=told, gpu_hours=trim(gpu_hours))
