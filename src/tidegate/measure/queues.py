"""Each queue against its quota, in numbers: use, borrowing, lending, unmet demand, preemptions."""

from __future__ import annotations

import numpy as np

from tidegate.measure.job_records import JobRecords
from tidegate.measure.preemptions import Preemptions
from tidegate.measure.quota import QuotaUse, positions
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import GPU_HOUR_MILLI_MS, HOUR_MS


class QueueShare(Spec, frozen=True):
    """What a queue had against what it owns."""

    name: str
    cohort: str
    strict: bool
    quota_gpus: float  # on average over the run
    used_gpus: float
    quota_gpu_h: float
    used_gpu_h: float
    use_of_quota: float | None  # used/quota; None: it owns nothing
    used_part: float | None  # of all GPU time that queues used
    quota_part: float | None  # of all quota
    borrowed_gpu_h: float  # used above the own quota
    lent_gpu_h: float
    due_gpu_h: float  # wanted within the own quota
    due_share: float | None  # of that, what it had; None: it wanted nothing
    short_lent_gpu_h: float  # due and not had, while others had borrowed it
    short_free_gpu_h: float  # due and not had, while the own quota stood free
    preempted: int  # times that its work was preempted
    preempted_lost_gpu_h: float  # work of its own that must be done again for that
    preempting: int  # times that others were preempted for its work; its own queue included
    preempting_lost_gpu_h: float


def queue_shares(use: QuotaUse, lives: JobRecords, preemptions: Preemptions) -> tuple[QueueShare, ...]:
    """One row for each queue of the policy, by name."""
    length_ms = max(lives.end_ms - lives.start_ms, 1)
    hours = {name: values / GPU_HOUR_MILLI_MS for name, values in use.sums._asdict().items()}
    gpus = {name: hours[name] * HOUR_MS / length_ms for name in ("quota", "used")}
    suffered = _by_queue(use, lives, preemptions.victim, preemptions)
    caused = _by_queue(use, lives, preemptions.cause, preemptions)
    used, quota = float(hours["used"].sum()), float(hours["quota"].sum())
    return tuple(
        QueueShare(
            **{f"{name}_gpu_h": float(values[q]) for name, values in hours.items() if name != "served"},
            name=name,
            cohort=use.cohorts[q],
            strict=use.strict[q],
            quota_gpus=float(gpus["quota"][q]),
            used_gpus=float(gpus["used"][q]),
            use_of_quota=_part(hours["used"][q], hours["quota"][q]),
            used_part=_part(hours["used"][q], used),
            quota_part=_part(hours["quota"][q], quota),
            due_share=_part(hours["served"][q], hours["due"][q]),
            preempted=int(suffered[0][q]),
            preempted_lost_gpu_h=float(suffered[1][q]),
            preempting=int(caused[0][q]),
            preempting_lost_gpu_h=float(caused[1][q]),
        )
        for q, name in enumerate(use.queues)
    )


def _by_queue(use: QuotaUse, lives: JobRecords, rows: I64, preemptions: Preemptions) -> tuple[F64, F64]:
    """Preemptions and the GPU-hours that they cost, by the queue of these workloads."""
    known = rows >= 0
    queue = positions(lives.queues, use.queues)[lives.queue[rows[known]]]
    lost = preemptions.lost_milli_ms[known][queue >= 0] / GPU_HOUR_MILLI_MS
    times = preemptions.times[known][queue >= 0]
    queue, count = queue[queue >= 0], len(use.queues)
    return np.bincount(queue, times, count).astype(np.float64), np.bincount(queue, lost, count).astype(np.float64)


def _part(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole > 0 else None
