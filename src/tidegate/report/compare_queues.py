"""Queues under several policies: waits, use of their due, borrowing, preemptions and lost work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from tidegate.measure.job_records import JobRecords
from tidegate.measure.matched_jobs import Matched, cut_completions, cut_waits
from tidegate.measure.queues import QueueShare
from tidegate.measure.summary import RunSummary
from tidegate.model.struct import Spec
from tidegate.report.compare_measure import (
    ComparedMeasure,
    certainty_text,
    mood,
    outcomes_of,
    outcomes_of_cut,
    value_text,
)

#: Queues in the table.
_MOST_QUEUES = 16

#: The longest name of a policy, and of a queue, in the table.
_LONGEST_POLICY, _LONGEST_QUEUE = 12, 14


class PolicyRuns(NamedTuple):
    """The runs of one policy, one for each seed."""

    name: str
    lives: tuple[JobRecords, ...]
    summaries: tuple[RunSummary, ...]


class QueueRows(Spec, frozen=True):
    """One queue under every policy."""

    name: str
    measures: tuple[ComparedMeasure, ...]


_QueueValue = Callable[[QueueShare | None], float | None]


def _of_share(field: str) -> _QueueValue:
    return lambda share: None if share is None else getattr(share, field)


#: Of the same work of a queue under every policy: name, and where it stands in a spread.
_QUEUE_WAITS = (
    ("mean wait", "mean_ms"),
    ("p50 wait", "p50_ms"),
    ("p90 wait", "p90_ms"),
    ("p95 wait", "p95_ms"),
    ("p99 wait", "p99_ms"),
    ("max wait", "max_ms"),
)

#: Of each queue: name, unit, whether lower is better, and where it stands.
_QUEUE_MEASURES: tuple[tuple[str, str, bool, _QueueValue], ...] = (
    ("due", "share", False, _of_share("due_share")),
    ("use of quota", "share", False, _of_share("use_of_quota")),
    ("borrowed", "GPU-h", False, _of_share("borrowed_gpu_h")),
    ("lent", "GPU-h", False, _of_share("lent_gpu_h")),
    ("preempted", "count", True, _of_share("preempted")),
    ("preempting", "count", True, _of_share("preempting")),
    ("lost", "GPU-h", True, _of_share("preempted_lost_gpu_h")),
)

#: In the table, with the heads of their columns: the others are for programs.
_SHOWN = {
    "p50 wait": "p50 wait",
    "p95 wait": "p95",
    "max wait": "max",
    "due": "due",
    "borrowed": "borrow",
    "lent": "lent",
    "preempted": "out",
    "preempting": "by",
    "lost": "lost",
}

LEGEND = (
    "Due: what a queue wanted within its own quota, and how much of it it had. Borrow, lent and lost in GPU-hours. "
    "Out: times its work was preempted; by: times others were for its work; lost: work that it must do again."
)


def compare_queues(policies: Sequence[PolicyRuns], matched: Matched) -> tuple[QueueRows, ...]:
    """The queues of all policies, those that used most under the first one first."""
    used: dict[str, float] = {}
    for summary in (runs.summaries[0] for runs in policies):
        for group in summary.queues:
            used.setdefault(group.name, group.allocated_gpu_h)
        for share in summary.shares:
            used.setdefault(share.name, share.used_gpu_h)
    return tuple(_compare_queue(policies, matched, name) for name in sorted(used, key=lambda name: (-used[name], name)))


def _compare_queue(policies: Sequence[PolicyRuns], matched: Matched, name: str) -> QueueRows:
    mine = matched.of_queue(name)
    waited, taken = cut_waits(matched, mine), cut_completions(matched, mine)
    measures = [ComparedMeasure(measure, "ms", True, outcomes_of_cut(waited, field)) for measure, field in _QUEUE_WAITS]
    measures.append(ComparedMeasure("mean JCT", "ms", True, outcomes_of_cut(taken, "mean_ms")))
    shares = [[_share_of(summary, name) for summary in runs.summaries] for runs in policies]
    for measure, unit, lower, value in _QUEUE_MEASURES:
        measures.append(
            ComparedMeasure(measure, unit, lower, outcomes_of([tuple(map(value, some)) for some in shares]))
        )
    return QueueRows(name=name, measures=tuple(measures))


def _share_of(summary: RunSummary, name: str) -> QueueShare | None:
    return next((share for share in summary.shares if share.name == name), None)


# -- showing ---------------------------------------------------------------------------------------------------


def queue_table(policies: Sequence[str], queues: Sequence[QueueRows]) -> Table:
    """Queue by queue, a line for each policy; columns that are empty everywhere are left out."""
    shown = [name for name in _SHOWN if any(_has_something(queue, name) for queue in queues)]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("queue", no_wrap=True, max_width=_LONGEST_QUEUE, overflow="ellipsis")
    table.add_column("policy", no_wrap=True, max_width=_LONGEST_POLICY, overflow="ellipsis")
    for name in shown:
        table.add_column(_SHOWN[name], justify="right", no_wrap=True)
    for queue in queues[:_MOST_QUEUES]:
        measures = {measure.name: measure for measure in queue.measures}
        for at, policy in enumerate(policies):
            cells = (_cell(measures[name], at) for name in shown)
            table.add_row(Text("" if at else queue.name), Text(policy, "dim"), *cells)
    if len(queues) > _MOST_QUEUES:
        table.add_row(Text(f"{len(queues) - _MOST_QUEUES:,} more", "dim"))
    return table


def _has_something(queue: QueueRows, name: str) -> bool:
    measure = next(measure for measure in queue.measures if measure.name == name)
    return any(outcome.value for outcome in measure.outcomes)


def _cell(measure: ComparedMeasure, at: int) -> Text:
    """A value, in the colour of how it compares with the first policy's."""
    outcome = measure.outcomes[at]
    text = certainty_text(outcome.value_is) + value_text(measure.unit, outcome.value).removesuffix(" h")
    return Text(text, mood(measure, outcome) if outcome.ratio is not None else "")
