"""Policies side by side on one trace: what each came to, against the first, and what of it chance could explain.

Must not know: how runs are made, or how anything in them is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.measure.lives import Fate, Lives
from tidegate.measure.summary import Spread, Summary, completion_ms
from tidegate.measure.words import UNKNOWN, count_text, percent_text, time_text
from tidegate.model.columns import F64
from tidegate.model.spec import Spec

Run = tuple[str, Lives, Summary]

_RESAMPLES = 1_000

#: More workloads than this are put into as many random groups, and groups are drawn: as good, and quick at any size.
_MOST_DRAWN = 20_000
_DRAWN_AT_ONCE = 1 << 22

#: Columns for the names of measures, and for each policy.
_FIRST, _EACH = 18, 20


class Interval(Spec, frozen=True):
    """Where a ratio lies with 95 % certainty, if the trace's workloads were drawn anew."""

    low: float
    high: float
    workloads: int  # that could be compared

    def excludes_one(self) -> bool:
        """Say whether chance alone hardly explains the difference."""
        return self.high < 1 or self.low > 1


class Outcome(Spec, frozen=True):
    """What a measure came to under one policy."""

    value: float | None
    ratio: float | None  # to the first policy; None: there is nothing to compare
    interval: Interval | None  # of the ratio, where it was drawn


class Measure(Spec, frozen=True):
    """One measure under every policy."""

    name: str
    unit: str  # ms, share, count
    lower_is_better: bool
    outcomes: tuple[Outcome, ...]


class Comparison(Spec, frozen=True):
    """Policies side by side."""

    policies: tuple[str, ...]
    workloads: int
    measures: tuple[Measure, ...]

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


# -- comparing -------------------------------------------------------------------------------------------------


def compare(runs: Sequence[Run], seed: int = 0) -> Comparison:
    """Compare policies with the first of them; workloads are matched by their ids."""
    intervals = {"mean wait": _draw(runs, _waits, seed), "mean JCT": _draw(runs, _completions, seed)}
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
            for name, unit, lower, value in _MEASURES
        ),
    )


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


def _waits(lives: Lives) -> F64:
    return np.where(lives.fate == Fate.REJECTED, np.nan, lives.waited_ms)


def _completions(lives: Lives) -> F64:
    return np.where(lives.fate == Fate.FINISHED, completion_ms(lives), np.nan)


def _draw(runs: Sequence[Run], values_of: Callable[[Lives], F64], seed: int) -> list[Interval | None]:
    """For each run after the first, the interval of the ratio of means, over workloads that both runs have."""
    intervals: list[Interval | None] = [None]
    for _, lives, _ in runs[1:]:
        mine, first = _paired(lives, runs[0][1], values_of)
        intervals.append(ratio_interval(mine, first, np.random.default_rng(seed)))
    return intervals


def _paired(lives: Lives, first: Lives, values_of: Callable[[Lives], F64]) -> tuple[F64, F64]:
    """The values of those workloads that have one in both runs."""
    if lives.ids == first.ids:
        mine, others = values_of(lives), values_of(first)
    else:
        _, at, other_at = np.intersect1d(np.array(lives.ids), np.array(first.ids), return_indices=True)
        mine, others = values_of(lives)[at], values_of(first)[other_at]
    known = ~(np.isnan(mine) | np.isnan(others))
    return mine[known], others[known]


def ratio_interval(mine: F64, first: F64, rng: np.random.Generator) -> Interval | None:
    """The 95 % interval of mean(mine)/mean(first) by a paired bootstrap; None if there is too little to draw from."""
    count = len(mine)
    if count < 2 or first.sum() <= 0:
        return None
    if count > _MOST_DRAWN:
        group = rng.permutation(count) % _MOST_DRAWN
        mine, first = (np.bincount(group, values).astype(np.float64) for values in (mine, first))
    tops, bottoms = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    at_once = max(_DRAWN_AT_ONCE // len(mine), 1)
    for begin in range(0, _RESAMPLES, at_once):
        end = min(begin + at_once, _RESAMPLES)
        drawn = rng.integers(0, len(mine), (end - begin, len(mine)))
        tops[begin:end], bottoms[begin:end] = mine[drawn].sum(axis=1), first[drawn].sum(axis=1)
    if not (bottoms > 0).all():
        return None  # too few have a value at all
    low, high = np.percentile(tops / bottoms, [2.5, 97.5]).tolist()
    return Interval(low=low, high=high, workloads=count)


# -- showing ---------------------------------------------------------------------------------------------------


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print a table, or several if there are more policies than fit beside each other."""
    others = range(1, len(comparison.policies))
    fit = max((console.width - _FIRST) // _EACH - 1, 1)
    console.print(Text.assemble((count_text(comparison.workloads, "workload"), "bold"), " under each policy\n"))
    for begin in others[::fit] or (1,):
        shown = [0, *others[begin - 1 : begin - 1 + fit]]
        console.print(_table(comparison, [at for at in shown if at < len(comparison.policies)]))
        console.print()
    console.print(Text(_footnote(comparison), "dim"))


def _footnote(comparison: Comparison) -> str:
    if len(comparison.policies) < 2:
        return "One policy alone: name another to compare it with."
    return (
        f"x: ratio to {comparison.policies[0]}; below it the 95 % interval of the ratio, from {_RESAMPLES:,} paired "
        "draws over workloads. *: the interval excludes 1. Where there is none, a difference may be chance."
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
    return f"{value:,.0f}" if unit == "count" else f"{value:.2f}"
