"""What stands out about queues and their quota, in words: who is above its share, who waits for its own, what is idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tidegate.measure.format import amount_text, count_text, percent_text
from tidegate.measure.job_records import Fate, Lives
from tidegate.measure.queues import QueueShare
from tidegate.measure.quota import QuotaUse
from tidegate.model.arrays import F64
from tidegate.model.quota_limits import gpu_milli_of
from tidegate.model.units import DAY_MS, HOUR_MS, WHOLE_MILLI, gpus_text

#: So many days in a row above its quota make a habit.
_HABIT_DAYS = 7

#: Above the quota by less than this part is noise.
_ABOVE = 1.1

#: What is less than this part of a quota, or of what was due, is not worth a sentence.
_WORTH_SAYING = 0.02

#: Quota that is used and lent to less than this part is idle.
_IDLE = 0.1

#: When more than this part of the work has the highest priority, priorities say nothing.
_INFLATED, _FEW = 0.6, 10

#: Names in one sentence.
_MOST_NAMED = 4


class Finding(NamedTuple):
    """Something worth knowing."""

    weight: float  # as a share of all GPU time, roughly
    text: str


def find_in_queues(shares: tuple[QueueShare, ...], lives: Lives, use: QuotaUse | None) -> Iterator[Finding]:
    """What stands out, in no order."""
    yield from _inflation(lives)
    if use is None:
        return
    total = sum(share.quota_gpu_h for share in shares) or 1.0
    yield from _habits(shares, use, total)
    yield from _idle_quota(shares, total)
    yield from _lenders(shares, total)
    yield from _strict(shares, lives, total)
    yield from _unbacked(use)
    yield from _loose(use)
    yield from _hopeless(lives, use)


def _inflation(lives: Lives) -> Iterator[Finding]:
    """Everybody at the top priority."""
    if len(lives.number) < _FEW or lives.priority.min() == lives.priority.max():
        return
    top = int(lives.priority.max())
    part = float((lives.priority == top).mean())
    if part > _INFLATED:
        text = f"{percent_text(part)} of the work has the highest priority, {top}: where all is urgent, nothing is."
        yield Finding(part - _INFLATED, text)


def _habits(shares: tuple[QueueShare, ...], use: QuotaUse, total: float) -> Iterator[Finding]:
    """Teams above their share for a week or longer."""
    used, quota = (_by_day(use, values) for values in (use.used_milli, use.quota_milli))
    for q, share in enumerate(shares):
        above = (used[:, q] > _ABOVE * quota[:, q]) & (quota[:, q] > 0)
        first, days = _longest(above)
        if days < _HABIT_DAYS:
            continue
        times = float(used[first : first + days, q].sum() / quota[first : first + days, q].sum())
        text = (
            f"{share.name} used {times:.1f} times its quota of {_gpus(share.quota_gpus)} for {days} days in a row: "
            "raise its quota, or limit what it may borrow."
        )
        yield Finding(share.borrowed_gpu_h / total, text)


def _by_day(use: QuotaUse, values: F64) -> F64:
    """Averages over the days that the run covers, whole or not."""
    day = (use.at_ms - use.at_ms[0]) // DAY_MS if len(use.at_ms) else use.at_ms
    sums = np.zeros((int(day.max(initial=-1)) + 1, values.shape[1]), np.float64)
    np.add.at(sums, day, values)
    means: F64 = sums / np.maximum(np.bincount(day), 1)[:, None] if len(sums) else sums
    return means


def _longest(held: np.ndarray) -> tuple[int, int]:
    """Where the longest stretch begins in which something held, and how long it is."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], held.astype(np.int8), [0]])))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    at = int(np.argmax(ends - begins))
    return int(begins[at]), int(ends[at] - begins[at])


def _idle_quota(shares: tuple[QueueShare, ...], total: float) -> Iterator[Finding]:
    """Quota that nobody uses, neither its owner nor others."""
    idle = [share for share in shares if share.quota_gpu_h > 0 and _taken(share) < _IDLE * share.quota_gpu_h]
    if not idle:
        return
    gpus, unused = sum(share.quota_gpus for share in idle), sum(s.quota_gpu_h - _taken(s) for s in idle)
    names = _names([share.name for share in sorted(idle, key=lambda share: -share.quota_gpu_h)])
    remedy = "" if all(share.cohort for share in idle) else "; in a cohort others could borrow it"
    owns = "owns" if len(idle) == 1 else "own"
    text = f"{names} {owns} {_gpus(gpus)}, and hardly anybody used them{remedy}."
    yield Finding(unused / total, text)


def _taken(share: QueueShare) -> float:
    """What was used of a quota by its owner and by those it lent to."""
    return share.used_gpu_h - share.borrowed_gpu_h + share.lent_gpu_h


def _lenders(shares: tuple[QueueShare, ...], total: float) -> Iterator[Finding]:
    """Lenders that wait while others borrow."""
    waited = sorted(shares, key=lambda share: -share.short_lent_gpu_h)
    waited = [share for share in waited if share.short_lent_gpu_h > _WORTH_SAYING * share.due_gpu_h]
    if not waited:
        return
    hours, worst = sum(share.short_lent_gpu_h for share in waited), waited[0]
    names = _names([share.name for share in waited])
    text = (
        f"{names} waited for {amount_text(hours)} GPU-hours of their own quota while others had borrowed it"
        if len(waited) > 1
        else f"{worst.name} waited for {amount_text(hours)} GPU-hours of its own quota while others had borrowed it"
    )
    yield Finding(hours / total, f"{text}: let lenders reclaim (preemption), or lend less.")


def _strict(shares: tuple[QueueShare, ...], lives: Lives, total: float) -> Iterator[Finding]:
    """Queues that starve behind their head."""
    length_h = max(lives.end_ms - lives.start_ms, 1) / HOUR_MS
    for share in shares:
        if share.strict and share.short_free_gpu_h > _WORTH_SAYING * share.quota_gpu_h:
            gpus = amount_text(share.short_free_gpu_h / length_h)
            text = (
                f"{share.name} is strict: on average {gpus} GPUs of its own quota stood free while its work waited "
                "behind the head."
            )
            yield Finding(share.short_free_gpu_h / total, text)


def _unbacked(use: QuotaUse) -> Iterator[Finding]:
    """Quota that the fleet can never meet."""
    for excess in use.excess:
        unit = gpu_milli_of(excess.lot[1])
        if not unit:
            continue
        quota, there = (gpus_text(amount * unit) for amount in (excess.quota, excess.supply))
        whose, owns = (excess.owner, "owns") if excess.owner else ("Queues", "together own")
        of = f" of flavor {excess.lot[0]}" if use.flavors > 1 else ""
        text = f"{whose} {owns} {quota} GPUs{of}, and the machines have {there}: such a quota can never be met."
        yield Finding(1 - excess.supply / excess.quota, text)


def _loose(use: QuotaUse) -> Iterator[Finding]:
    """Borrowing limits that the fleet makes meaningless."""
    for limit in use.loose:
        unit = gpu_milli_of(limit.lot[1])
        if not unit:
            continue
        may, own, there = (gpus_text(amount * unit) for amount in (limit.limit, limit.quota, limit.supply))
        text = f"{limit.queue} may borrow {may} GPUs above its own {own}, and the machines have {there}"
        yield Finding(_WORTH_SAYING, f"{text}: the limit never holds it back.")


def _hopeless(lives: Lives, use: QuotaUse) -> Iterator[Finding]:
    """Work that asks for more than its queue could ever have."""
    most = dict(zip(use.queues, use.most_milli, strict=True))
    limit = np.array([most.get(name, np.inf) for name in lives.queues], np.float64)
    stuck = np.flatnonzero((lives.fate == Fate.WAITING) & (lives.gpu_milli > limit[lives.queue]))
    if len(stuck):
        worst = int(stuck[np.argmax(lives.gpu_milli[stuck])])
        can = gpus_text(int(limit[lives.queue[worst]]))
        text = (
            f"{count_text(len(stuck), 'workload')} can never start: {lives.ids[worst]} asks for "
            f"{gpus_text(int(lives.gpu_milli[worst]))} GPUs, and its queue {lives.queues[lives.queue[worst]]} can have "
            f"at most {can}."
        )
        yield Finding(len(stuck) / max(len(lives.number), 1), text)


def _names(names: list[str]) -> str:
    """Names as a list: "a", "a and b", "a, b, c, d and 3 more"."""
    shown, more = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _gpus(gpus: float) -> str:
    return f"{gpus_text(round(gpus * WHOLE_MILLI))} GPU" + ("" if round(gpus * WHOLE_MILLI) == WHOLE_MILLI else "s")
