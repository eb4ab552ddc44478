"""Which rows of a table belong together: names become numbers, and combinations of names and an amount become cells.

Rows are gone through in parts that fit the processor's cache; only the cell of each row is as long as the table.
Must not know: what is named, or what the amounts are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.model.columns import F64, I32, I64

#: Groups of one dimension that are told apart; the smallest ones are one group, OTHERS.
MOST_GROUPS = 24
OTHERS = "(others)"

#: Keys up to here are looked up in a table; above, they are sorted.
_MOST_KEYS = 1 << 24

_CHUNK = 1 << 16


class Cells(NamedTuple):
    """What a cell means."""

    amount: I64  # in steps of `unit`
    unit: float
    labels: dict[str, I32]  # by dimension: the group of each cell


class Named(NamedTuple):
    """A column of names: a number for each row, and where each number stands in the order of the names."""

    code: npt.NDArray[np.integer]
    place: I64
    names: tuple[str, ...]


class Counted(NamedTuple):
    """The cells of a table, the cell of each row, and how many rows and how much weight each cell has."""

    cells: Cells
    cell: I32
    rows: I64
    weight: F64


def intern(column: pl.Series) -> Named:
    """Names in the order of the names: the numbers that polars gives depend on what was read before."""
    codes = column.to_physical().to_numpy()
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    names = column.gather(_somewhere(codes, used)).cast(pl.String).to_list() if codes.size else []
    place = np.zeros(int(used[-1]) + 1 if codes.size else 1, np.int64)
    for row, (_, code) in enumerate(sorted(zip(names, used.tolist(), strict=True))):
        place[code] = row
    return Named(codes, place, tuple(sorted(names)))


def _somewhere(codes: npt.NDArray[np.integer], used: I64) -> I64:
    """A row for each code that is used: among the first ones, or where that does not do, anywhere."""
    found, rows = np.unique(codes[:_CHUNK], return_index=True)
    if found.size == used.size:
        firsts: I64 = rows.astype(np.int64)
        return firsts
    anywhere = np.zeros(int(used[-1]) + 1, np.int64)
    anywhere[codes] = np.arange(codes.size)
    found_anywhere: I64 = anywhere[used]
    return found_anywhere


def dense(key: I64 | I32) -> tuple[I64, I32]:
    """The distinct keys in order, and the row of each; by counting where the keys are small."""
    if key.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    if int(key.max()) >= _MOST_KEYS:
        values, row = np.unique(key, return_inverse=True)
        return values.astype(np.int64), row.astype(np.int32)
    seen = np.bincount(key) > 0
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - np.int32(1))[key]


def count_cells(names: dict[str, Named], amount: I64, weight_of: tuple[I64, float], whole: int) -> Counted:
    """Put each row into its cell; the weight of a row is its amount times a column (where above 0) times a factor.

    An amount of `whole` is 1 in the unit of the levels.
    """
    sizes = {name: max(len(named.names), 1) for name, named in names.items()}
    amounts = np.flatnonzero(np.bincount(amount)) if amount.max(initial=0) < _MOST_KEYS else np.unique(amount)
    if math.prod(sizes.values()) * amounts.size >= _MOST_KEYS:
        raise OverflowError(f"{sizes} with {amounts.size} sizes: more than {_MOST_KEYS:,} combinations")
    seen = np.zeros(math.prod(sizes.values()) * max(amounts.size, 1), np.bool_)
    row_of = _rows_of(amounts)
    for part in _parts(amount.size):
        seen[_key(names, sizes, row_of(amount[part]), amounts.size, part)] = True
    used = np.flatnonzero(seen)
    place = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    cell, rows, weight = np.empty(amount.size, np.int32), np.zeros(used.size, np.int64), np.zeros(used.size)
    for part in _parts(amount.size):
        mine = place[_key(names, sizes, row_of(amount[part]), amounts.size, part)]
        cell[part] = mine
        rows += np.bincount(mine, minlength=used.size)
        heavy = np.maximum(weight_of[0][part], 0) * amount[part] * weight_of[1]
        weight += np.bincount(mine, weights=heavy, minlength=used.size)
    return Counted(_cells(used, sizes, amounts, whole), cell, rows, weight)


def _rows_of(amounts: I64) -> Callable[[I64], I64]:
    """How to find the row of an amount: in a table where amounts are small, else by search."""
    if amounts.size == 0 or int(amounts[-1]) >= _MOST_KEYS:
        return lambda some: np.searchsorted(amounts, some)
    table = np.zeros(int(amounts[-1]) + 1, np.int64)
    table[amounts] = np.arange(amounts.size)
    return lambda some: table[some]


def _parts(size: int) -> list[slice]:
    return [slice(at, at + _CHUNK) for at in range(0, size, _CHUNK)]


def _key(names: dict[str, Named], sizes: dict[str, int], amount: I64, amounts: int, part: slice) -> I64:
    key = np.zeros(amount.size, np.int64)
    for name, named in names.items():
        key *= sizes[name]
        key += named.place[named.code[part]]
    key *= amounts
    key += amount
    return key


def _cells(used: I64, sizes: dict[str, int], amounts: I64, whole: int) -> Cells:
    step = math.gcd(*amounts.tolist()) or whole
    rest, row = np.divmod(used, max(amounts.size, 1))
    labels: dict[str, I32] = {}
    for name in reversed(sizes):
        rest, label = np.divmod(rest, sizes[name])
        labels[name] = label.astype(np.int32)
    return Cells(amounts[row] // step, step / whole, labels)


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
