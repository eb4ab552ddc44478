"""Shadow comparison: what happened on a cluster, what Tidegate would have done, and what that would have saved.

Two comparisons: at each moment on the observed cluster, work that waited though it would have been placed, and work
that ran though it would have been held; and over the whole time, the same work in the twin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.live.observed_history import ObservedHistory, ReplayedHistory, SeenWorkload
from tidegate.measure.job_records import NOT_YET
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.units import HOUR_MS, WHOLE_MILLI
from tidegate.stats.quantile import quantile

_GPU_HOUR = WHOLE_MILLI * HOUR_MS


class ShadowWaits(NamedTuple):
    """How long work waited, in milliseconds."""

    workloads: int
    mean_ms: int
    p50_ms: int
    p90_ms: int
    most_ms: int


class ShadowDifference(NamedTuple):
    """One workload that Tidegate would have treated differently."""

    id: str
    queue: str
    gpus: float
    waited_ms: int | None  # until all its pods were bound, or the end; None: it ran before the shadow started
    twin_ms: int | None  # the same in the twin
    would: str  # started, held or evicted, on the cluster as it was; empty: as it was
    reason: Reason
    unused_ms: int  # how long it waited though it would have been placed


class ShadowComparison(NamedTuple):
    """The comparison of a history with its replay."""

    start_ms: int
    end_ms: int
    nodes: int
    gpus: int
    gpus_available_share: float  # of the time
    workloads: int
    started: int  # workloads that are compared: both rows of waits
    waiting: int  # not started at the end; their runtime is unknown, so the twin does not have them
    waiting_mean_ms: int  # so far
    waiting_most_ms: int
    left: int  # ended before they started
    ran_before: int  # ran before the shadow started: their wait is unknown
    happened: ShadowWaits
    twin: ShadowWaits
    earlier: int  # workloads that the twin starts earlier, and later, by a second or more
    later: int
    saved_ms: int  # of all waits; negative: lost
    saved_gpu_hours: float  # of GPUs that were waited for
    unused_gpu_hours: float  # idle GPUs while work waited that would have been placed
    incomplete_gang_gpu_hours: float  # held by incomplete gangs
    would_be_held: int  # workloads that ran though they would have been held
    would_be_held_gpu_hours: float
    over_quota: int  # workloads that held more than their queue has, whenever they started
    over_quota_gpu_hours: float
    differences: tuple[ShadowDifference, ...]  # the largest first


def compare_with_twin(observed: ObservedHistory, twin: ReplayedHistory) -> ShadowComparison:
    """Compare an observed history with its replay in the twin."""
    whole = [seen for seen in observed.work if seen.placed_ms != NOT_YET and not seen.ran_before]
    began = [seen for seen in whole if seen.number in twin.placed_ms]
    waited = [max(seen.placed_ms - seen.submitted_ms, 0) for seen in began]
    again = [max(twin.placed_ms[seen.number] - seen.submitted_ms, 0) for seen in began]
    change = [was - would for was, would in zip(waited, again, strict=True)]
    held = [seen for seen in observed.work if _would_be_held(seen)]
    rows = [_difference(seen, twin, observed.end_ms) for seen in observed.work]
    end_ms = observed.end_ms
    late = [seen for seen in observed.work if seen.begun_ms == NOT_YET]
    still = _waits([max(end_ms - seen.submitted_ms, 0) for seen in late if seen.over_ms == NOT_YET])
    gpus = sum(node.shape.gpu_count for node in observed.nodes)
    return ShadowComparison(
        start_ms=observed.start_ms,
        end_ms=end_ms,
        nodes=len(observed.nodes),
        gpus=gpus,
        gpus_available_share=round(observed.gpu_ms / max(gpus * (end_ms - observed.start_ms), 1), 4) if gpus else 1.0,
        workloads=len(observed.work),
        started=len(began),
        waiting=still.workloads,
        waiting_mean_ms=still.mean_ms,
        waiting_most_ms=still.most_ms,
        left=len(late) - still.workloads,
        ran_before=sum(seen.ran_before for seen in observed.work),
        happened=_waits(waited),
        twin=_waits(again),
        earlier=sum(saved >= 1_000 for saved in change),
        later=sum(saved <= -1_000 for saved in change),
        saved_ms=sum(change),
        saved_gpu_hours=_hours(sum(ms * seen.gpu_milli for ms, seen in zip(change, began, strict=True))),
        unused_gpu_hours=_hours(sum(_unused_ms(seen, end_ms) * seen.gpu_milli for seen in observed.work)),
        incomplete_gang_gpu_hours=_hours(sum(seen.incomplete_milli_ms(end_ms) for seen in observed.work)),
        would_be_held=len(held),
        would_be_held_gpu_hours=_hours(sum(_ran_ms(seen, end_ms) * seen.gpu_milli for seen in held)),
        over_quota=sum(seen.is_over_quota for seen in observed.work),
        over_quota_gpu_hours=_hours(sum(seen.over_quota_ms * seen.gpu_milli for seen in observed.work)),
        differences=tuple(sorted((row for row in rows if _is_notable(row)), key=_by_size)),
    )


def _is_notable(row: ShadowDifference) -> bool:
    return bool(row.would) or _apart_ms(row) >= 1_000


def _by_size(row: ShadowDifference) -> tuple[float, str]:
    return -(_apart_ms(row) + row.unused_ms) * max(row.gpus, 1), row.id


def _apart_ms(row: ShadowDifference) -> int:
    return 0 if row.waited_ms is None or row.twin_ms is None else abs(row.waited_ms - row.twin_ms)


def _difference(seen: SeenWorkload, twin: ReplayedHistory, end_ms: int) -> ShadowDifference:
    whole_ms = seen.placed_ms if seen.placed_ms != NOT_YET else end_ms
    would, reason = "", Reason.NONE
    if _unused_ms(seen, end_ms) >= 1_000:
        would = "started"
    elif _would_be_held(seen):
        would, reason = "held", seen.held
    elif seen.is_over_quota:
        would, reason = "held", Reason.WAITS_FOR_QUOTA
    elif seen.evicted is not Reason.NONE:
        would, reason = "evicted", seen.evicted
    return ShadowDifference(
        id=seen.id,
        queue=seen.work.queue,
        gpus=seen.gpu_milli / WHOLE_MILLI,
        waited_ms=None if seen.ran_before else max(whole_ms - seen.submitted_ms, 0),
        twin_ms=None if seen.ran_before else max(twin.placed_ms.get(seen.number, whole_ms) - seen.submitted_ms, 0),
        would=would,
        reason=reason,
        unused_ms=_unused_ms(seen, end_ms),
    )


def _would_be_held(seen: SeenWorkload) -> bool:
    """Whether it was started while Tidegate would have held it."""
    never = seen.proposed_ms == NOT_YET or seen.proposed_ms > seen.placed_ms
    return seen.placed_ms != NOT_YET and never and seen.held is not Reason.NONE


def _unused_ms(seen: SeenWorkload, end_ms: int) -> int:
    """How long it waited though it would have been placed."""
    if seen.proposed_ms == NOT_YET:
        return 0
    whole_ms = next((at_ms for at_ms in (seen.placed_ms, seen.over_ms) if at_ms != NOT_YET), end_ms)
    return max(whole_ms - seen.proposed_ms, 0)


def _ran_ms(seen: SeenWorkload, end_ms: int) -> int:
    return max((seen.over_ms if seen.over_ms != NOT_YET else end_ms) - seen.placed_ms, 0)


def _hours(milli_ms: int) -> float:
    return round(milli_ms / _GPU_HOUR, 4)


def _waits(waits_ms: list[int]) -> ShadowWaits:
    if not waits_ms:
        return ShadowWaits(0, 0, 0, 0, 0)
    column = np.array(waits_ms)
    p50, p90 = (int(quantile(column, share)) for share in (0.5, 0.9))
    return ShadowWaits(len(waits_ms), int(column.mean()), p50, p90, int(column.max()))
