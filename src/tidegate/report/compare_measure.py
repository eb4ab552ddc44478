"""One measure under several policies: its values, their ratios to the first, and the text of both."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from rich.text import Text

from tidegate.measure.format import UNKNOWN, amount_text, percent_text, time_text
from tidegate.measure.matched_jobs import Cut
from tidegate.measure.ratios import RatioInterval
from tidegate.model.struct import Spec
from tidegate.stats.interval import NoInterval

#: Why a ratio has no interval, in a word or two.
_WHY_NONE = {
    NoInterval.FEW: "too short",
    NoInterval.TREND: "trend",
    NoInterval.UNEVEN: "one busy period",
    NoInterval.WIDE: "too wide",
    NoInterval.NOTHING: "nothing to compare",
}


class Certainty(StrEnum):
    """How far a number is known, where work still waits at the end."""

    EXACTLY = "exactly"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    SO_FAR = "so_far"  # a ratio of two that are both at least


_KNOWN_TEXTS = {Certainty.EXACTLY: "", Certainty.AT_LEAST: "≥", Certainty.AT_MOST: "≤", Certainty.SO_FAR: "~"}


class MeasureOutcome(Spec, frozen=True):
    """The value of a measure under one policy."""

    value: float | None
    ratio: float | None  # to the first policy; None: there is nothing to compare
    interval: RatioInterval | None  # of the ratio, where there is one to find
    by_seed: tuple[float, ...] = ()  # the value with each seed, where there are several
    value_is: Certainty = Certainty.EXACTLY
    ratio_is: Certainty = Certainty.EXACTLY


class ComparedMeasure(Spec, frozen=True):
    """One measure under every policy."""

    name: str
    unit: str  # ms, share, index, count, GPU-h
    lower_is_better: bool
    outcomes: tuple[MeasureOutcome, ...]


def outcomes_of_cut(cut: Cut, field: str) -> tuple[MeasureOutcome, ...]:
    """The outcomes of one number of a spread of times; the mean alone has intervals."""
    by_seed = [tuple(None if one is None else getattr(one, field) for one in some) for some in cut.spreads]
    at_least = [
        any(_is_open(field, value, open_ms) for value, open_ms in zip(values, opens, strict=True))
        for values, opens in zip(by_seed, cut.open_ms, strict=True)
    ]
    return outcomes_of(by_seed, cut.intervals if field == "mean_ms" else None, at_least)


def _is_open(field: str, value: float | None, open_ms: float | None) -> bool:
    """Whether a number would be higher if waits that had not ended were known: means are, and quantiles from there."""
    return value is not None and open_ms is not None and (field == "mean_ms" or value >= open_ms)


def outcomes_of(
    by_seed: Sequence[tuple[float | None, ...]],
    intervals: Sequence[RatioInterval | None] | None = None,
    at_least: Sequence[bool] | None = None,
) -> tuple[MeasureOutcome, ...]:
    """The outcomes of a measure, the mean over seeds; the first policy is what others are compared with."""
    opens = at_least or [False] * len(by_seed)
    known = [tuple(value for value in values if value is not None) for values in by_seed]
    means = [
        sum(some) / len(some) if some and len(some) == len(of) else None
        for some, of in zip(known, by_seed, strict=True)
    ]
    base = means[0] if means else None
    return tuple(
        MeasureOutcome(
            value=value,
            ratio=value / base if at and base and value is not None else None,
            interval=intervals[at] if intervals else None,
            by_seed=known[at] if len(by_seed[at]) > 1 else (),
            value_is=Certainty.AT_LEAST if opens[at] else Certainty.EXACTLY,
            ratio_is=_ratio_known(mine_open=opens[at], first_open=opens[0]) if at else Certainty.EXACTLY,
        )
        for at, value in enumerate(means)
    )


def _ratio_known(*, mine_open: bool, first_open: bool) -> Certainty:
    if mine_open and first_open:
        return Certainty.SO_FAR
    return Certainty.AT_LEAST if mine_open else Certainty.AT_MOST if first_open else Certainty.EXACTLY


def outcome_cell(measure: ComparedMeasure, outcome: MeasureOutcome) -> Text:
    """A value and its ratio, marked where chance hardly explains it."""
    value = certainty_text(outcome.value_is) + value_text(measure.unit, outcome.value)
    if outcome.ratio is None:
        return Text(value)
    mark = "*" if outcome.interval and outcome.interval.excludes_one() else " "
    ratio = f" {mark}{certainty_text(outcome.ratio_is)}x{outcome.ratio:.2f}"
    return Text.assemble(value, (ratio, mood(measure, outcome)))


def certainty_text(known: Certainty) -> str:
    """The sign before a number that is not known exactly."""
    return _KNOWN_TEXTS[known]


def interval_cell(interval: RatioInterval | None) -> Text:
    """An interval below the ratio that it belongs to, or why there is none."""
    if interval is None:
        return Text("")
    if interval.none is not None:
        return Text(_WHY_NONE[interval.none], "dim")
    return Text(f"{interval.low:.2f} to {interval.high:.2f}{' s' if interval.this_work else ''}", "dim")


def mood(measure: ComparedMeasure, outcome: MeasureOutcome) -> str:
    """Green for better, red for worse; dim where it is the same, may be by chance, or is a bound on the other side."""
    ratio, interval = outcome.ratio or 1.0, outcome.interval
    if abs(ratio - 1) < 0.005 or (interval is not None and not interval.excludes_one()):
        return "dim"
    if not _tells(ratio, outcome.ratio_is):
        return "dim"
    return "green" if (ratio < 1) == measure.lower_is_better else "red"


def _tells(ratio: float, known: Certainty) -> bool:
    """Whether a ratio that is known so far says on which side of 1 it lies: one of at least 0.6 may be 2."""
    return known is Certainty.EXACTLY or known is (Certainty.AT_LEAST if ratio > 1 else Certainty.AT_MOST)


def value_text(unit: str, value: float | None) -> str:
    """Say a value of a unit."""
    if value is None:
        return UNKNOWN
    if unit == "ms":
        return time_text(value)
    if unit == "share":
        return percent_text(value)
    if unit == "GPU-h":
        return f"{amount_text(value)} h" if value else "0"
    return f"{value:,.0f}" if unit == "count" else f"{value:.2f}"
