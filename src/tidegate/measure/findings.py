"""Findings about a run, in words: each with the GPU time it is about, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tidegate.measure.format import amount_text, count_text, percent_text, time_text
from tidegate.measure.job_records import Fate, JobRecords
from tidegate.measure.loops import loop_text
from tidegate.measure.queues import QueueShare
from tidegate.measure.quota import QuotaUse
from tidegate.measure.summary import RunSummary, WorkloadGroup
from tidegate.model.arrays import F64
from tidegate.model.quota_limits import gpu_milli_of
from tidegate.model.units import DAY_MS, HOUR_MS, WHOLE_MILLI, gpus_text

#: Less than this part of all GPU time, of a quota or of what was due is not worth a sentence.
_WORTH_SAYING = 0.02

#: Preemption loops that are listed.
_MOST_LOOPS = 3

#: So many days in a row above its quota make a habit.
_HABIT_DAYS = 7

#: Above the quota by less than this part is noise.
_ABOVE = 1.1

#: Quota that is used and lent to less than this part is idle.
_IDLE = 0.1

#: When more than this part of the work has the highest priority, priorities say nothing.
_INFLATED, _FEW = 0.6, 10

#: Names in one sentence.
_MOST_NAMED = 4


class RunFinding(NamedTuple):
    """Something that stands out in a run, as a sentence."""

    weight: float  # as a share of all GPU time, roughly
    text: str


def find(summary: RunSummary, lives: JobRecords, use: QuotaUse | None = None) -> list[RunFinding]:
    """All findings about a run, the weightiest first."""
    found: list[RunFinding] = []
    looks = (_loops, _unsettled, _blindness, _idle_while_waiting, _idle_kind, _slack, _unfairness, _scatter, _evictions)
    for look in looks:
        found.extend(look(summary))
    found.extend(_stuck(summary, lives))
    found.extend(_find_in_queues(summary.shares, lives, use))
    return sorted(found, key=lambda finding: -finding.weight)


def _loops(summary: RunSummary) -> Iterator[RunFinding]:
    worst = sorted(summary.loops, key=lambda loop: -loop.preemptions)
    for loop in worst[:_MOST_LOOPS]:
        yield RunFinding(10.0 + loop.preemptions, loop_text(loop))
    if rest := worst[_MOST_LOOPS:]:
        loops, preemptions = count_text(len(rest), "more preemption loop"), sum(loop.preemptions for loop in rest)
        lost = amount_text(sum(loop.lost_gpu_h for loop in rest))
        text = f"{loops}, of {count_text(preemptions, 'preemption')}, threw away {lost} GPU-hours; --json lists them."
        yield RunFinding(10.0, text)


def _unsettled(summary: RunSummary) -> Iterator[RunFinding]:
    if summary.unsettled_steps:
        steps = count_text(summary.unsettled_steps, "step")
        text = f"{steps} did not settle: the queues decide in circles; please report it with --journal."
        yield RunFinding(10.0, text)


def _blindness(summary: RunSummary) -> Iterator[RunFinding]:
    total = summary.total
    if total.allocated_gpu_h <= 0:
        return
    if total.busy_share is None:
        yield RunFinding(9.0, "Whether GPUs were busy was not observed: find out before you buy more.")
        return
    known = total.observed_gpu_h / total.allocated_gpu_h
    if known < 0.95:
        text = f"Use was observed for {percent_text(known)} of the allocated time: the rest is unknown, not idle."
        yield RunFinding(1 - known, text)


def _idle_while_waiting(summary: RunSummary) -> Iterator[RunFinding]:
    idle = _gpus(summary, summary.idle_wanted_gpu_h)
    if idle > max(_WORTH_SAYING * _gpus(summary, summary.capacity_gpu_h), 0.1):
        text = f"On average {amount_text(idle)} allocated GPUs stood idle while as many were waited for."
        yield RunFinding(_part(summary, summary.idle_wanted_gpu_h), text)


def _idle_kind(summary: RunSummary) -> Iterator[RunFinding]:
    """One kind of work that holds most of what is idle."""
    worst = max(summary.kinds, key=lambda group: group.idle_gpu_h, default=None)
    if worst is None or worst.busy_share is None or len(summary.kinds) < 2:
        return
    part = worst.idle_gpu_h / max(summary.total.idle_gpu_h, 1e-9)
    if part > 1.5 * worst.allocated_gpu_h / max(summary.total.allocated_gpu_h, 1e-9):
        text = (
            f"{worst.name.capitalize()} work was busy {percent_text(worst.busy_share)} of its time and held "
            f"{percent_text(part)} of all idle GPU-hours: share its GPUs, or take them back when they idle."
        )
        yield RunFinding(_part(summary, worst.idle_gpu_h), text)


def _slack(summary: RunSummary) -> Iterator[RunFinding]:
    """By GPU-hours: most jobs start at once where a few large ones never do."""
    free = 1 - (summary.allocation_share if summary.allocation_share is not None else 1.0)
    if free > 0.4 and summary.total.wait is not None and _part(summary, summary.total.waited_gpu_h) < _WORTH_SAYING:
        text = f"{percent_text(free)} of the GPU time was never allocated, and hardly anything waited for it."
        yield RunFinding(free, text)


def _unfairness(summary: RunSummary) -> Iterator[RunFinding]:
    served = [group for group in summary.queues if group.served_share is not None]
    if summary.fairness is None or summary.fairness > 0.9 or len(served) < 2:
        return
    best, worst = max(served, key=_served), min(served, key=_served)
    text = (
        f"Queues were served unevenly: {best.name} got {percent_text(best.served_share)} of the GPU time it held or "
        f"waited for, {worst.name} {percent_text(worst.served_share)} (fairness {summary.fairness:.2f})."
    )
    yield RunFinding(1 - summary.fairness, text)


def _served(group: WorkloadGroup) -> float:
    return group.served_share or 0.0


def _scatter(summary: RunSummary) -> Iterator[RunFinding]:
    texts = {
        "GPUs were free but too scattered for the pods usually asked for.": summary.fragmented_share,
        "GPUs were free but of models that the pods usually asked for do not take.": summary.other_model_share,
    }
    for text, share in texts.items():
        if share is not None and share > _WORTH_SAYING:
            gpus = share * _gpus(summary, summary.capacity_gpu_h)
            yield RunFinding(share, f"On average {amount_text(gpus)} {text}")


def _evictions(summary: RunSummary) -> Iterator[RunFinding]:
    total = summary.total
    if (total.evictions or total.lost_gpu_h) and total.allocated_gpu_h > 0:
        part = percent_text(total.lost_gpu_h / total.allocated_gpu_h)
        who = count_text(total.evictions, "eviction") if total.evictions else "Pods that failed"
        text = f"{who} threw away {amount_text(total.lost_gpu_h)} GPU-hours, {part} of what was allocated."
        yield RunFinding(_part(summary, total.lost_gpu_h), text)


def _stuck(summary: RunSummary, lives: JobRecords) -> Iterator[RunFinding]:
    waits = lives.fate == Fate.WAITING
    if waits.any():
        longest = np.argmax(np.where(waits, lives.waited_ms, -1))
        who = count_text(summary.total.waiting, "workload") + " had no place at the end"
        text = f"{who}; {lives.ids[longest]} waited longest, {time_text(float(lives.waited_ms[longest]))} in all."
        yield RunFinding(summary.total.waiting / max(summary.total.workloads, 1), text)


def _gpus(summary: RunSummary, gpu_hours: float) -> float:
    """GPU-hours as GPUs on average."""
    return gpu_hours * HOUR_MS / max(summary.end_ms - summary.start_ms, 1)


def _part(summary: RunSummary, gpu_hours: float) -> float:
    return gpu_hours / max(summary.capacity_gpu_h, 1e-9)


# -- queues and their quota --------------------------------------------------------------------------------------------


def _find_in_queues(shares: tuple[QueueShare, ...], lives: JobRecords, use: QuotaUse | None) -> Iterator[RunFinding]:
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


def _inflation(lives: JobRecords) -> Iterator[RunFinding]:
    """Most work has the highest priority."""
    if len(lives.number) < _FEW or lives.priority.min() == lives.priority.max():
        return
    top = int(lives.priority.max())
    part = float((lives.priority == top).mean())
    if part > _INFLATED:
        text = f"{percent_text(part)} of the work has the highest priority, {top}: where all is urgent, nothing is."
        yield RunFinding(part - _INFLATED, text)


def _habits(shares: tuple[QueueShare, ...], use: QuotaUse, total: float) -> Iterator[RunFinding]:
    """Teams above their share for a week or longer."""
    used, quota = (_by_day(use, values) for values in (use.used_milli, use.quota_milli))
    for q, share in enumerate(shares):
        above = (used[:, q] > _ABOVE * quota[:, q]) & (quota[:, q] > 0)
        first, days = _longest(above)
        if days < _HABIT_DAYS:
            continue
        times = float(used[first : first + days, q].sum() / quota[first : first + days, q].sum())
        owned = _owned_text(share.quota_gpus)
        text = (
            f"{share.name} used {times:.1f} times its quota of {owned} for {days} days in a row: "
            "raise its quota, or limit what it may borrow."
        )
        yield RunFinding(share.borrowed_gpu_h / total, text)


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


def _idle_quota(shares: tuple[QueueShare, ...], total: float) -> Iterator[RunFinding]:
    """Quota that neither its owner nor others use."""
    idle = [share for share in shares if share.quota_gpu_h > 0 and _taken(share) < _IDLE * share.quota_gpu_h]
    if not idle:
        return
    gpus, unused = sum(share.quota_gpus for share in idle), sum(s.quota_gpu_h - _taken(s) for s in idle)
    names = _names([share.name for share in sorted(idle, key=lambda share: -share.quota_gpu_h)])
    remedy = "" if all(share.cohort for share in idle) else "; in a cohort others could borrow it"
    owns = "owns" if len(idle) == 1 else "own"
    text = f"{names} {owns} {_owned_text(gpus)}, and hardly anybody used them{remedy}."
    yield RunFinding(unused / total, text)


def _taken(share: QueueShare) -> float:
    """What was used of a quota by its owner and by those it lent to."""
    return share.used_gpu_h - share.borrowed_gpu_h + share.lent_gpu_h


def _lenders(shares: tuple[QueueShare, ...], total: float) -> Iterator[RunFinding]:
    """Lenders that wait while others borrow."""
    waited = sorted(shares, key=lambda share: -share.short_lent_gpu_h)
    waited = [share for share in waited if share.short_lent_gpu_h > _WORTH_SAYING * share.due_gpu_h]
    if not waited:
        return
    hours = sum(share.short_lent_gpu_h for share in waited)
    names, whose = _names([share.name for share in waited]), "their" if len(waited) > 1 else "its"
    text = f"{names} waited for {amount_text(hours)} GPU-hours of {whose} own quota while others had borrowed it"
    yield RunFinding(hours / total, f"{text}: let lenders reclaim (preemption), or lend less.")


def _strict(shares: tuple[QueueShare, ...], lives: JobRecords, total: float) -> Iterator[RunFinding]:
    """Queues that starve behind their head."""
    length_h = max(lives.end_ms - lives.start_ms, 1) / HOUR_MS
    for share in shares:
        if share.strict and share.short_free_gpu_h > _WORTH_SAYING * share.quota_gpu_h:
            gpus = amount_text(share.short_free_gpu_h / length_h)
            text = (
                f"{share.name} is strict: on average {gpus} GPUs of its own quota stood free while its work waited "
                "behind the head."
            )
            yield RunFinding(share.short_free_gpu_h / total, text)


def _unbacked(use: QuotaUse) -> Iterator[RunFinding]:
    """Quota that the fleet can never meet."""
    for excess in use.excess:
        unit = gpu_milli_of(excess.lot[1])
        if not unit:
            continue
        quota, there = (gpus_text(amount * unit) for amount in (excess.quota, excess.supply))
        whose, owns = (excess.owner, "owns") if excess.owner else ("Queues", "together own")
        of = f" of flavor {excess.lot[0]}" if use.flavors > 1 else ""
        text = f"{whose} {owns} {quota} GPUs{of}, and the machines have {there}: such a quota can never be met."
        yield RunFinding(1 - excess.supply / excess.quota, text)


def _loose(use: QuotaUse) -> Iterator[RunFinding]:
    """Borrowing limits that the fleet makes meaningless."""
    for limit in use.loose:
        unit = gpu_milli_of(limit.lot[1])
        if not unit:
            continue
        may, own, there = (gpus_text(amount * unit) for amount in (limit.limit, limit.quota, limit.supply))
        text = f"{limit.queue} may borrow {may} GPUs above its own {own}, and the machines have {there}"
        yield RunFinding(_WORTH_SAYING, f"{text}: the limit never holds it back.")


def _hopeless(lives: JobRecords, use: QuotaUse) -> Iterator[RunFinding]:
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
        yield RunFinding(len(stuck) / max(len(lives.number), 1), text)


def _names(names: list[str]) -> str:
    """Names as a list: "a", "a and b", "a, b, c, d and 3 more"."""
    shown, more = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _owned_text(gpus: float) -> str:
    return f"{gpus_text(round(gpus * WHOLE_MILLI))} GPU" + ("" if round(gpus * WHOLE_MILLI) == WHOLE_MILLI else "s")
