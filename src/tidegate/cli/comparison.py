"""Policies side by side on one trace: what each came to, against the first, and what of it chance could explain.

Must not know: how runs are made, or how anything in them is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli.intervals import RESAMPLES, Interval, completions, draw_intervals, waits
from tidegate.measure.lives import Lives
from tidegate.measure.queues import QueueShare
from tidegate.measure.summary import Group, Spread, Summary
from tidegate.measure.words import UNKNOWN, amount_text, count_text, percent_text, time_text
from tidegate.model.columns import F64
from tidegate.model.spec import Spec

Run = tuple[str, Lives, Summary]

#: Workloads of one queue that are drawn apart; and queues in the table.
_MOST_DRAWN, _MOST_QUEUES = 2_000, 16

#: Columns for the names of measures, and for each policy.
_FIRST, _EACH = 18, 20


class Outcome(Spec, frozen=True):
    """What a measure came to under one policy."""

    value: float | None
    ratio: float | None  # to the first policy; None: there is nothing to compare
    interval: Interval | None  # of the ratio, where it was drawn


class Measure(Spec, frozen=True):
    """One measure under every policy."""

    name: str
    unit: str  # ms, share, index, count, GPU-h
    lower_is_better: bool
    outcomes: tuple[Outcome, ...]


class QueueRows(Spec, frozen=True):
    """One queue under every policy."""

    name: str
    measures: tuple[Measure, ...]


class Comparison(Spec, frozen=True):
    """Policies side by side."""

    policies: tuple[str, ...]
    workloads: int
    measures: tuple[Measure, ...]
    queues: tuple[QueueRows, ...] = ()  # where any policy has queues with quota

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


_Value = Callable[[Summary], float | None]


def _of_wait(field: str) -> _Value:
    return lambda summary: _field(summary.total.wait, field)


def _field(spread: Spread | None, field: str) -> float | None:
    return None if spread is None else getattr(spread, field)


#: Name, unit, whether lower is better, and where it stands in a summary.
_MEASURES: tuple[tuple[str, str, bool, _Value], ...] = (
    ("mean wait", "ms", True, _of_wait("mean_ms")),
    ("p50 wait", "ms", True, _of_wait("p50_ms")),
    ("p99 wait", "ms", True, _of_wait("p99_ms")),
    ("mean JCT", "ms", True, lambda summary: _field(summary.total.completion, "mean_ms")),
    ("makespan", "ms", True, lambda summary: summary.makespan_ms),
    ("allocation", "share", False, lambda summary: summary.allocation_share),
    ("busy share", "share", False, lambda summary: summary.total.busy_share),
    ("fragmentation", "share", True, lambda summary: summary.fragmented_share),
    ("fairness", "index", False, lambda summary: summary.fairness),
    ("evictions", "count", True, lambda summary: summary.total.evictions),
    ("not finished", "count", True, lambda summary: summary.total.workloads - summary.total.finished),
)


#: The same, where there are queues with quota.
_QUOTA_MEASURES: tuple[tuple[str, str, bool, _Value], ...] = (
    ("due", "share", False, lambda summary: summary.due_share()),
    ("fairness of due", "index", False, lambda summary: summary.due_fairness()),
    ("borrowed", "GPU-h", False, lambda summary: sum(share.borrowed_gpu_h for share in summary.shares)),
    ("preemptions", "count", True, lambda summary: summary.total.preemptions),
    ("lost", "GPU-h", True, lambda summary: sum(share.preempted_lost_gpu_h for share in summary.shares)),
)

_QueueValue = Callable[[Group | None, QueueShare | None], float | None]


def _of_group(spread: str, field: str) -> _QueueValue:
    return lambda group, _: None if group is None else _field(getattr(group, spread), field)


def _of_share(field: str) -> _QueueValue:
    return lambda _, share: None if share is None else getattr(share, field)


#: Of each queue: name, unit, whether lower is better, and where it stands.
_QUEUE_MEASURES: tuple[tuple[str, str, bool, _QueueValue], ...] = (
    ("mean wait", "ms", True, _of_group("wait", "mean_ms")),
    ("p50 wait", "ms", True, _of_group("wait", "p50_ms")),
    ("p90 wait", "ms", True, _of_group("wait", "p90_ms")),
    ("p99 wait", "ms", True, _of_group("wait", "p99_ms")),
    ("mean JCT", "ms", True, _of_group("completion", "mean_ms")),
    ("due", "share", False, _of_share("due_share")),
    ("use of quota", "share", False, _of_share("use_of_quota")),
    ("borrowed", "GPU-h", False, _of_share("borrowed_gpu_h")),
    ("lent", "GPU-h", False, _of_share("lent_gpu_h")),
    ("preempted", "count", True, _of_share("preempted")),
    ("preempting", "count", True, _of_share("preempting")),
    ("lost", "GPU-h", True, _of_share("preempted_lost_gpu_h")),
)

#: In the table: the others are for programs.
_SHOWN = ("mean wait", "p90 wait", "mean JCT", "due", "borrowed", "lent", "preempted", "lost")


# -- comparing -------------------------------------------------------------------------------------------------


def compare(runs: Sequence[Run], seed: int = 0) -> Comparison:
    """Compare policies with the first of them; workloads are matched by their ids."""
    lives = [each for _, each, _ in runs]
    intervals = {"mean wait": draw_intervals(lives, waits, seed), "mean JCT": draw_intervals(lives, completions, seed)}
    with_quota = any(summary.shares for _, _, summary in runs)
    return Comparison(
        policies=tuple(name for name, _, _ in runs),
        workloads=len(runs[0][1].number) if runs else 0,
        measures=tuple(
            Measure(
                name=name,
                unit=unit,
                lower_is_better=lower,
                outcomes=_outcomes([value(summary) for _, _, summary in runs], intervals.get(name)),
            )
            for name, unit, lower, value in (*_MEASURES, *(_QUOTA_MEASURES if with_quota else ()))
        ),
        queues=_compare_queues(runs, seed) if with_quota else (),
    )


def _compare_queues(runs: Sequence[Run], seed: int) -> tuple[QueueRows, ...]:
    """The queues of all policies, those that used most under the first one first."""
    used: dict[str, float] = {}
    for _, _, summary in runs:
        for group in summary.queues:
            used.setdefault(group.name, group.allocated_gpu_h)
        for share in summary.shares:
            used.setdefault(share.name, share.used_gpu_h)
    return tuple(_compare_queue(runs, name, seed) for name in sorted(used, key=lambda name: (-used[name], name)))


def _compare_queue(runs: Sequence[Run], name: str, seed: int) -> QueueRows:
    lives = [each for _, each, _ in runs]
    groups = [next((group for group in summary.queues if group.name == name), None) for _, _, summary in runs]
    shares = [next((share for share in summary.shares if share.name == name), None) for _, _, summary in runs]
    intervals = {
        "mean wait": draw_intervals(lives, partial(_of_queue, waits, name), seed, _MOST_DRAWN),
        "mean JCT": draw_intervals(lives, partial(_of_queue, completions, name), seed, _MOST_DRAWN),
    }
    measures = []
    for measure, unit, lower, value in _QUEUE_MEASURES:
        values = [value(group, share) for group, share in zip(groups, shares, strict=True)]
        outcomes = _outcomes(values, intervals.get(measure))
        measures.append(Measure(name=measure, unit=unit, lower_is_better=lower, outcomes=outcomes))
    return QueueRows(name=name, measures=tuple(measures))


def _of_queue(values_of: Callable[[Lives], F64], name: str, lives: Lives) -> F64:
    """The values of a queue's workloads; NaN for all others."""
    row = lives.queues.index(name) if name in lives.queues else -1
    return np.where(lives.queue == row, values_of(lives), np.nan)


def _outcomes(values: list[float | None], intervals: list[Interval | None] | None) -> tuple[Outcome, ...]:
    base = values[0] if values else None
    return tuple(
        Outcome(
            value=value,
            ratio=value / base if at and base and value is not None else None,
            interval=intervals[at] if intervals else None,
        )
        for at, value in enumerate(values)
    )


# -- showing ---------------------------------------------------------------------------------------------------


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print a table, or several if there are more policies than fit beside each other."""
    others = range(1, len(comparison.policies))
    fit = max((console.width - _FIRST) // _EACH - 1, 1)
    console.print(Text.assemble((count_text(comparison.workloads, "workload"), "bold"), " under each policy\n"))
    for begin in others[::fit] or (1,):
        shown = [0, *others[begin - 1 : begin - 1 + fit]]
        shown = [at for at in shown if at < len(comparison.policies)]
        console.print(_table(comparison, shown))
        console.print()
        if comparison.queues:
            console.print(_queue_table(comparison, shown))
            console.print()
    console.print(Text(_footnote(comparison), "dim"))


def _footnote(comparison: Comparison) -> str:
    if len(comparison.policies) < 2:
        return "One policy alone: name another to compare it with."
    due = " Due: what queues wanted within their own quota, and how much of it they had." if comparison.queues else ""
    return (
        f"x: ratio to {comparison.policies[0]}; below it the 95 % interval of the ratio, from {RESAMPLES:,} paired "
        f"draws over workloads. *: the interval excludes 1. Where there is none, a difference may be chance.{due}"
    )


def _table(comparison: Comparison, shown: list[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True, min_width=13)
    for at in shown:
        table.add_column(Text(comparison.policies[at]), justify="right", no_wrap=True, overflow="ellipsis")
    for measure in comparison.measures:
        outcomes = [measure.outcomes[at] for at in shown]
        table.add_row(measure.name, *(_cell(measure, outcome) for outcome in outcomes))
        if any(outcome.interval for outcome in outcomes):
            table.add_row("", *(_interval_cell(outcome.interval) for outcome in outcomes))
    return table


def _queue_table(comparison: Comparison, shown: list[int]) -> Table:
    """Measure by measure, a row for each queue."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("by queue", no_wrap=True, min_width=13, max_width=24)
    for at in shown:
        table.add_column(Text(comparison.policies[at]), justify="right", no_wrap=True, overflow="ellipsis")
    queues = comparison.queues[:_MOST_QUEUES]
    for name in _SHOWN:
        measures = [next(m for m in queue.measures if m.name == name) for queue in queues]
        if not any(measure.outcomes[at].value for measure in measures for at in shown):
            continue  # nobody borrowed, or was preempted, under any policy
        table.add_row(Text(name, "bold"))
        for queue, measure in zip(queues, measures, strict=True):
            table.add_row(Text(f"  {queue.name}"), *(_cell(measure, measure.outcomes[at]) for at in shown))
    if len(comparison.queues) > _MOST_QUEUES:
        table.add_row(Text(f"{len(comparison.queues) - _MOST_QUEUES:,} more queues, with --json", "dim"))
    return table


def _cell(measure: Measure, outcome: Outcome) -> Text:
    value = _text(measure.unit, outcome.value)
    if outcome.ratio is None:
        return Text(value)
    mark = "*" if outcome.interval and outcome.interval.excludes_one() else " "
    return Text.assemble(value, (f" {mark}x{outcome.ratio:.2f}", _mood(measure, outcome)))


def _interval_cell(interval: Interval | None) -> Text:
    return Text(f"{interval.low:.2f} to {interval.high:.2f}" if interval else "", "dim")


def _mood(measure: Measure, outcome: Outcome) -> str:
    """Green for better, red for worse; dim where it is the same, or may be by chance."""
    ratio, interval = outcome.ratio or 1.0, outcome.interval
    if abs(ratio - 1) < 0.005 or (interval is not None and not interval.excludes_one()):
        return "dim"
    return "green" if (ratio < 1) == measure.lower_is_better else "red"


def _text(unit: str, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if unit == "ms":
        return time_text(value)
    if unit == "share":
        return percent_text(value)
    if unit == "GPU-h":
        return f"{amount_text(value)} h" if value else "0"
    return f"{value:,.0f}" if unit == "count" else f"{value:.2f}"
