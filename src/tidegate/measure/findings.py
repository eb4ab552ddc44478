"""What stands out in a run, in words: each finding with the GPU time it is about, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.measure.format import amount_text, count_text, percent_text, time_text
from tidegate.measure.job_records import Fate, Lives
from tidegate.measure.loops import loop_text
from tidegate.measure.queue_findings import Finding, find_in_queues
from tidegate.measure.quota import QuotaUse
from tidegate.measure.summary import Group, Summary
from tidegate.model.units import HOUR_MS

#: What is less than this part of all GPU time is not worth a sentence.
_WORTH_SAYING = 0.02

#: Preemption loops that are told one by one.
_MOST_LOOPS = 3


def find(summary: Summary, lives: Lives, use: QuotaUse | None = None) -> list[Finding]:
    """What stands out, the weightiest first."""
    found: list[Finding] = []
    looks = (_loops, _unsettled, _blindness, _idle_while_waiting, _idle_kind, _slack, _unfairness, _scatter, _evictions)
    for look in looks:
        found.extend(look(summary))
    found.extend(_stuck(summary, lives))
    found.extend(find_in_queues(summary.shares, lives, use))
    return sorted(found, key=lambda finding: -finding.weight)


def _loops(summary: Summary) -> Iterator[Finding]:
    worst = sorted(summary.loops, key=lambda loop: -loop.preemptions)
    for loop in worst[:_MOST_LOOPS]:
        yield Finding(10.0 + loop.preemptions, loop_text(loop))
    if rest := worst[_MOST_LOOPS:]:
        loops, preemptions = count_text(len(rest), "more preemption loop"), sum(loop.preemptions for loop in rest)
        lost = amount_text(sum(loop.lost_gpu_h for loop in rest))
        text = f"{loops}, of {count_text(preemptions, 'preemption')}, threw away {lost} GPU-hours; --json lists them."
        yield Finding(10.0, text)


def _unsettled(summary: Summary) -> Iterator[Finding]:
    if summary.unsettled_steps:
        steps = count_text(summary.unsettled_steps, "step")
        yield Finding(
            10.0, f"{steps} did not come to rest: the queues decide in circles; please report it with --journal."
        )


def _blindness(summary: Summary) -> Iterator[Finding]:
    total = summary.total
    if total.allocated_gpu_h <= 0:
        return
    if total.busy_share is None:
        yield Finding(9.0, "Whether GPUs were busy was not observed: find out before you buy more.")
        return
    known = total.observed_gpu_h / total.allocated_gpu_h
    if known < 0.95:
        yield Finding(
            1 - known,
            f"Use was observed for {percent_text(known)} of the allocated time: the rest is unknown, not idle.",
        )


def _idle_while_waiting(summary: Summary) -> Iterator[Finding]:
    idle = _gpus(summary, summary.idle_wanted_gpu_h)
    if idle > max(_WORTH_SAYING * _gpus(summary, summary.capacity_gpu_h), 0.1):
        text = f"On average {amount_text(idle)} allocated GPUs stood idle while as many were waited for."
        yield Finding(_part(summary, summary.idle_wanted_gpu_h), text)


def _idle_kind(summary: Summary) -> Iterator[Finding]:
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
        yield Finding(_part(summary, worst.idle_gpu_h), text)


def _slack(summary: Summary) -> Iterator[Finding]:
    """By GPU-hours: most jobs start at once where a few large ones never do."""
    free = 1 - (summary.allocation_share if summary.allocation_share is not None else 1.0)
    if free > 0.4 and summary.total.wait is not None and _part(summary, summary.total.waited_gpu_h) < _WORTH_SAYING:
        text = f"{percent_text(free)} of the GPU time was never allocated, and hardly anything waited for it."
        yield Finding(free, text)


def _unfairness(summary: Summary) -> Iterator[Finding]:
    served = [group for group in summary.queues if group.served_share is not None]
    if summary.fairness is None or summary.fairness > 0.9 or len(served) < 2:
        return
    best, worst = max(served, key=_served), min(served, key=_served)
    text = (
        f"Queues were served unevenly: {best.name} got {percent_text(best.served_share)} of the GPU time "
        f"it held or waited for, "
        f"{worst.name} {percent_text(worst.served_share)} (fairness {summary.fairness:.2f})."
    )
    yield Finding(1 - summary.fairness, text)


def _served(group: Group) -> float:
    return group.served_share or 0.0


def _scatter(summary: Summary) -> Iterator[Finding]:
    texts = {
        "GPUs were free but too scattered for the pods usually asked for.": summary.fragmented_share,
        "GPUs were free but of models that the pods usually asked for do not take.": summary.other_model_share,
    }
    for text, share in texts.items():
        if share is not None and share > _WORTH_SAYING:
            gpus = share * _gpus(summary, summary.capacity_gpu_h)
            yield Finding(share, f"On average {amount_text(gpus)} {text}")


def _evictions(summary: Summary) -> Iterator[Finding]:
    total = summary.total
    if (total.evictions or total.lost_gpu_h) and total.allocated_gpu_h > 0:
        part = total.lost_gpu_h / total.allocated_gpu_h
        lost = f"{amount_text(total.lost_gpu_h)} GPU-hours, {percent_text(part)} of what was allocated"
        who = count_text(total.evictions, "eviction") if total.evictions else "Pods that failed"
        text = f"{who} threw away {lost}."
        yield Finding(_part(summary, total.lost_gpu_h), text)


def _stuck(summary: Summary, lives: Lives) -> Iterator[Finding]:
    waits = lives.fate == Fate.WAITING
    if waits.any():
        longest = np.argmax(np.where(waits, lives.waited_ms, -1))
        who = count_text(summary.total.waiting, "workload") + " had no place at the end"
        text = f"{who}; {lives.ids[longest]} waited longest, {time_text(float(lives.waited_ms[longest]))} in all."
        yield Finding(summary.total.waiting / max(summary.total.workloads, 1), text)


def _gpus(summary: Summary, gpu_hours: float) -> float:
    """GPU-hours as GPUs on average."""
    return gpu_hours * HOUR_MS / max(summary.end_ms - summary.start_ms, 1)


def _part(summary: Summary, gpu_hours: float) -> float:
    return gpu_hours / max(summary.capacity_gpu_h, 1e-9)
