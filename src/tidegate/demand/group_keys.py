"""Keys of groups: names become numbers, and each combination of names and an amount becomes a cell.

Rows are read in parts that fit the processor's cache; only the cell of each row is as long as the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tidegate.model.arrays import F64, I32, I64

#: Runs calls, in any order or at once, and gives their results in the order of the calls.
RunAll = Callable[[Sequence[Callable[[], Any]]], list[Any]]


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run one call after the other."""
    return [call() for call in calls]


#: Groups of one dimension that are measured; the smallest ones are one group, OTHERS.
MOST_GROUPS = 24
OTHERS = "(others)"

#: Keys up to here are looked up in a table; above, they are sorted.
_MOST_KEYS = 1 << 24

_CHUNK = 1 << 17


class Cells(NamedTuple):
    """What a cell means."""

    amount: I64  # in steps of `unit`
    unit: float
    labels: dict[str, I32]  # by dimension: the group of each cell


class Heavy(NamedTuple):
    """What makes a row heavy: its amount times a column (where above 0) times a factor."""

    column: str
    factor: float
    whole: int


class Counted(NamedTuple):
    """The cells of a table, the names of their labels, the cell of each row, and the rows and weight of each cell."""

    cells: Cells
    names: dict[str, tuple[str, ...]]
    cell: I32
    rows: I64
    weight: F64


def dense(key: I64 | I32) -> tuple[I64, I32]:
    """The distinct keys in order, and the row of each; by counting where the keys are small."""
    if key.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    if int(key.max()) >= _MOST_KEYS:
        values, row = np.unique(key, return_inverse=True)
        return values.astype(np.int64), row.astype(np.int32)
    seen = np.bincount(key) > 0
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - np.int32(1))[key]


class _Digits(NamedTuple):
    """The key of a row: a number for each named column, and one for the amount."""

    frame: pl.LazyFrame
    tops: tuple[int, ...]  # the highest number in each column
    amounts: I64  # what the last column means, in steps

    def total(self) -> int:
        """How many combinations there can be."""
        return math.prod(top + 1 for top in self.tops)

    def keys(self) -> pl.Series:
        """One number for all of them; computed on all cores."""
        digits = zip(self.frame.collect_schema(), self.tops, strict=True)
        key = reduce(lambda key, digit: key * (digit[1] + 1) + pl.col(digit[0]), digits, pl.lit(0, pl.Int32))
        return self.frame.select(key.cast(pl.Int32).alias("key")).collect(engine="streaming")["key"]


def count_cells(
    frame: pl.DataFrame, named: dict[str, str], amount: str, heavy: Heavy, run_all: RunAll = one_by_one
) -> Counted:
    """Put each row of a table into its cell: by columns of names, and by an amount.

    An amount of `heavy.whole` is 1 in the unit of the levels.
    """
    sizes = frame[amount].unique().sort().to_numpy()
    step = math.gcd(*sizes.tolist()) or heavy.whole
    digits = _digits(frame, named, amount, sizes, step)
    if digits.total() >= _MOST_KEYS:
        raise OverflowError(f"{named} with {sizes.size} sizes: more than {_MOST_KEYS:,} combinations")
    cell, seen = np.empty(frame.height, np.int32), np.zeros(max(digits.total(), 1), np.bool_)
    for at, part in slices(digits.keys().to_frame()):
        cell[at] = key = part["key"].to_numpy()
        seen[key] = True
    used = np.flatnonzero(seen)
    rows, weight = _settle(
        cell, np.cumsum(seen, dtype=np.int32) - np.int32(1), frame.select(heavy.column, amount), run_all
    )
    *codes, row = np.unravel_index(used, [top + 1 for top in digits.tops])
    labels, names = {}, {}
    for name, code in zip(named, codes, strict=True):
        labels[name], names[name] = _name(code, digits.frame.select(name).collect().to_series(), frame[named[name]])
    return Counted(Cells(digits.amounts[row], step / heavy.whole, labels), names, cell, rows, weight * heavy.factor)


def _settle(cell: I32, place: I32, frame: pl.DataFrame, run_all: RunAll) -> tuple[I64, F64]:
    """Turn keys into cells, and count each cell's rows and weight."""
    parts = list(slices(frame))
    halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    (rows, weight), (more, heavier) = run_all([partial(_settle_some, cell, place, half) for half in halves])
    return rows + more, weight + heavier


def _settle_some(cell: I32, place: I32, parts: list[tuple[slice, pl.DataFrame]]) -> tuple[I64, F64]:
    used = int(place[-1]) + 1
    rows, weight = np.zeros(used, np.int64), np.zeros(used)
    for at, part in parts:
        times, some = (column.to_numpy() for column in part)
        cell[at] = mine = place[cell[at]]
        rows += np.bincount(mine, minlength=used)
        weight += np.bincount(mine, weights=np.maximum(times, 0) * some, minlength=used)
    return rows, weight


def _digits(frame: pl.DataFrame, named: dict[str, str], amount: str, sizes: I64, step: int) -> _Digits:
    """Names by the numbers that polars gave them, amounts in steps; numbered again where these are too large."""
    columns = [pl.col(column).to_physical().alias(name) for name, column in named.items()]
    digits = frame.lazy().select(*columns, (pl.col(amount) // step).alias("amount"))
    found = _Digits(digits, _tops(digits), np.arange(int(sizes[-1]) // step + 1 if sizes.size else 1))
    if found.total() < _MOST_KEYS:
        return found
    digits = digits.select(pl.all().rank("dense") - 1).collect().lazy()
    return _Digits(digits, _tops(digits), sizes // step)


def _tops(digits: pl.LazyFrame) -> tuple[int, ...]:
    return tuple(top or 0 for top in digits.max().collect(engine="streaming").row(0))


def slices(frame: pl.DataFrame) -> Iterator[tuple[slice, pl.DataFrame]]:
    """Some rows at a time: their columns stay in the processor's cache, and little memory is used again and again.

    No slice has rows of two of the chunks in which the table was read: those would have to be copied.
    """
    at = 0
    for length in frame.to_series(0).chunk_lengths() if frame.width else ():
        steps = -(-length // _CHUNK)
        for step in range(steps):
            rows = length * (step + 1) // steps - length * step // steps
            yield slice(at, at + rows), frame.slice(at, rows)
            at += rows


def _name(code: I64, codes: pl.Series, column: pl.Series) -> tuple[I32, tuple[str, ...]]:
    """Labels in the order of the names: the numbers that polars gives depend on what was read before."""
    used, label = np.unique(code, return_inverse=True)
    names = column.gather(_somewhere(codes, used)).cast(pl.String).to_list()
    order = sorted(range(len(names)), key=lambda row: str(names[row]))
    place = np.zeros(len(names), np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    return place[label], tuple(names[row] for row in order)


def _somewhere(codes: pl.Series, used: I64) -> I64:
    """A row for each code that is used: among the first ones, or where that does not do, anywhere."""
    found, rows = np.unique(codes[:_CHUNK].to_numpy(), return_index=True)
    if found.size != used.size:
        found, rows = np.unique(codes.to_numpy(), return_index=True)
    firsts: I64 = rows[np.searchsorted(found, used)].astype(np.int64)
    return firsts


def rank(label: I32, names: tuple[str, ...], weight: F64) -> tuple[I32, tuple[str, ...]]:
    """Groups by weight, the heaviest first, by name where equal; the smallest as one."""
    heavy = np.bincount(label, weights=weight, minlength=len(names))
    ranked = sorted(range(len(names)), key=lambda row: (-heavy[row], names[row]))
    kept = ranked if len(ranked) <= MOST_GROUPS else ranked[: MOST_GROUPS - 1]
    place = np.full(max(len(names), 1), len(kept), np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    told = tuple(names[row] for row in kept)
    return place[label], told if len(kept) == len(ranked) else (*told, OTHERS)


def reorder(label: I32, names: tuple[str, ...], known: tuple[str, ...]) -> tuple[I32, tuple[str, ...]]:
    """Groups in the order of the known names; others stand behind them."""
    told = (*known, *(name for name in names if name not in known))
    place = np.array([told.index(name) for name in names] or [0], np.int32)
    return place[label], told
