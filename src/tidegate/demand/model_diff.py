"""Differences between two demand models, in the order of the document.

A number has changed if the two intervals do not meet; else the difference is within noise. Counts of a window (jobs,
GPU-hours, a peak) have no interval: their difference is listed, and not called a change. Entries of lists are matched
by name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.demand.estimate import How, trim
from tidegate.demand.model import DemandModel
from tidegate.model.struct import Spec

#: Fields that name an entry of a list.
_NAMES = (
    "scope",
    "table",
    "kind",
    "queue",
    "gpu",
    "name",
    "size",
    "stage",
    "of",
    "priority",
    "window_ms",
    "horizon_ms",
)

#: Fields that say nothing to a reader: what samples are drawn from, and how the clocks of a zone go.
_RECIPES = {"sketch", "waits", "streams", "gaps", "busy_spread", "vram_spread", "latency", "tokens_in", "tokens_out"}
_RECIPES |= {"changes_ms", "offsets_ms"}


#: How much wider intervals are taken than those of one number: some hundred are compared, of which 2 % of pairs from
#: the same demand would not meet.
_APART = 1.5

#: Jobs of a group below which that it came or went says nothing.
_LEAST_JOBS = 20


class ModelChange(Spec, frozen=True):
    """One difference."""

    path: str
    before: float | str | None
    after: float | str | None
    ratio: float | None  # after over before; None where that says nothing
    beyond_noise: bool  # the intervals do not meet; without any, nothing says so


def diff(before: DemandModel, after: DemandModel) -> tuple[ModelChange, ...]:
    """All differences, in the order of the document; equal models have none."""
    found: list[ModelChange] = []
    _compare("", msgspec.to_builtins(before), msgspec.to_builtins(after), found)
    return tuple(found)


def _compare(path: str, one: Any, other: Any, found: list[ModelChange]) -> None:
    if one == other:
        return
    if _is_number(one) and _is_number(other):
        if one["value"] != other["value"]:
            apart = _below(one, other) or _below(other, one)
            found.append(_change(path, one["value"], other["value"], beyond=apart))
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in (*one, *(key for key in other if key not in one)):
            if key not in _RECIPES:
                _compare(f"{path}.{key}" if path else key, one.get(key), other.get(key), found)
    elif _is_list(one) and _is_list(other):
        _compare_lists(path, one, other, found)
    else:
        # What has no interval says nothing about noise; what is there in one of the two alone does.
        alone = one if other is None else other if one is None else None
        found.append(_change(path, _plain(one), _plain(other), beyond=_counts(path, alone)))


def _counts(path: str, alone: Any) -> bool:
    """Whether something that only one of the two has is no accident: a group of some jobs, a service, a stage."""
    if not isinstance(alone, dict) or _is_number(alone):
        return False
    if path.startswith("groups["):
        return path.count(".") == 0 and alone.get("jobs", 0) >= _LEAST_JOBS
    return path.startswith(("services[", "cold_start", "residency")) and path.count(".") == path.count(".stages")


def _compare_lists(path: str, one: Any, other: Any, found: list[ModelChange]) -> None:
    """Entries with a name by name; plain series by their largest difference."""
    if any(isinstance(item, dict) for item in (*one, *other)):
        left, right = _named(one), _named(other)
        for name in (*left, *(name for name in right if name not in left)):
            _compare(f"{path}[{name}]", left.get(name), right.get(name), found)
    elif len(one) == len(other) and all(isinstance(item, int | float) for item in (*one, *other)):
        at = max(range(len(one)), key=lambda row: abs(one[row] - other[row]))
        found.append(_change(f"{path}[{at}]", one[at], other[at], beyond=False))
    else:
        found.append(_change(path, _plain(one), _plain(other), beyond=False))


def _named(entries: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for row, entry in enumerate(entries):
        parts = [
            str(entry[name]) for name in _NAMES if not isinstance(entry.get(name, {}), dict) and entry.get(name) != ""
        ]
        name = " ".join(parts) or str(row)
        named[name if name not in named else f"{name} #{row}"] = entry
    return named


def _below(one: Any, other: Any) -> bool:
    """Whether an interval lies below another; of what has none, only a lower bound tells anything.

    What was counted is exact for its own window, and another window of the same demand has another count. Ends are
    moved apart, because many numbers are compared.
    """
    how, others = (How(number.get("how", How.EXACT)) for number in (one, other))
    if How.EXACT in (how, others):
        return False
    known = how.has_interval() and (others.has_interval() or others is How.AT_LEAST)
    if not known:
        return False
    high = one["value"] + _APART * (one["high"] - one["value"])
    low = other["value"] - _APART * (other["value"] - other["low"])
    return bool(high < low)


def _is_number(value: Any) -> bool:
    return isinstance(value, dict) and "value" in value and "unit" in value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _plain(value: Any) -> float | str | None:
    """A value as one word: of what has parts, only how many."""
    if value is None or isinstance(value, int | float | str):
        return value
    if _is_number(value):
        return float(value["value"])
    return f"{len(value)} entries"


def _change(path: str, before: Any, after: Any, *, beyond: bool) -> ModelChange:
    numbers = isinstance(before, int | float) and isinstance(after, int | float) and before != 0
    return ModelChange(
        path=path, before=before, after=after, ratio=trim(after / before) if numbers else None, beyond_noise=beyond
    )
