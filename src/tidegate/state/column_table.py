"""A table of named columns in one block of integers: it grows, recycles its rows, is copied and can be serialised.

One block for all integer columns keeps kernels cheap to call and quick to compile; each column is a view with a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.errors import TidegateError

#: No row: the end of a chain, or nothing to point to.
NONE = -1


class CheckpointError(TidegateError, ValueError):
    """A checkpoint that this Tidegate does not read: it has another layout."""


class ColumnTable:
    """Columns of equal length. Rows are handed out lowest first and given back for reuse."""

    columns: ClassVar[tuple[str, ...]]  # integers in the order of the block: annotated, and in no other list
    fills: ClassVar[dict[str, int]] = {}  # defaults that are not zero
    reals: ClassVar[tuple[str, ...]] = ()  # floats
    grids: ClassVar[dict[str, str]] = {}  # integers in several places a row: name and axis
    stacks: ClassVar[dict[str, tuple[tuple[str, ...], str]]] = {}  # grids of one axis in one array: their names, axis

    defaults: ClassVar[I64]  # of a row's integers

    block: I64  # (rows, columns)
    real: F64  # (rows, reals)

    def __init_subclass__(cls) -> None:
        if "columns" not in cls.__dict__:
            stacked = {name for names, _ in cls.stacks.values() for name in names}
            others = {*cls.reals, *cls.grids, *cls.stacks, *stacked}
            cls.columns = tuple(
                name for name, kind in cls.__annotations__.items() if kind == "I64" and name not in others
            )
        cls.defaults = np.array([cls.fills.get(name, 0) for name in cls.columns], np.int64)

    def __init__(self, axes: dict[str, int] | None = None) -> None:
        self.axes = dict(axes or {})  # width of each axis of the grids
        self.capacity = 0
        self.top = 0  # rows ever handed out: the rest of the capacity is untouched
        self.spare: I64 = np.zeros(0, np.int64)  # rows given back; the last goes out first
        self.block, self.real = np.empty((0, len(self.columns)), np.int64), np.empty((0, len(self.reals)), np.float64)
        for name, (axis, planes) in self._grids().items():
            setattr(self, name, np.empty((0, *planes, self.axes[axis]), np.int64))
        self._name_views()

    def __len__(self) -> int:
        return self.top - len(self.spare)

    def take(self, count: int) -> I64:
        """Hand out rows, filled with the columns' defaults."""
        kept = max(len(self.spare) - count, 0)
        recycled, self.spare = self.spare[kept:][::-1], self.spare[:kept]
        fresh = count - len(recycled)
        self.reserve(self.top + fresh)
        self.top += fresh
        return np.concatenate([recycled, np.arange(self.top - fresh, self.top)])

    def give(self, rows: I64) -> None:
        """Take rows back, and set them to the columns' defaults."""
        self.block[rows] = self.defaults
        if self.reals:
            self.real[rows] = 0
        for name in self._grids():
            getattr(self, name)[rows] = 0
        self.spare = np.concatenate([self.spare, rows[::-1]])

    def reserve(self, rows: int) -> None:
        """Make room for this many rows."""
        if rows > self.capacity:
            self._resize(max(rows, self.capacity + self.capacity // 2, 16))

    def widen(self, axis: str, width: int) -> None:
        """Widen an axis of the grids."""
        if width > self.axes[axis]:
            self.axes[axis] = width
            self._resize(self.capacity)

    def keep_rows(self, rows: I64) -> None:
        """Keep these rows only, as the first ones and in this order; room for many more is given back."""
        kept, count = self.block[rows], len(rows)
        self.block[: self.top] = self.defaults
        self.block[:count] = kept
        kept_real = self.real[rows]
        self.real[: self.top] = 0
        self.real[:count] = kept_real
        for name in self._grids():
            grid = getattr(self, name)
            kept_grid = grid[rows]
            grid[: self.top] = 0
            grid[:count] = kept_grid
        self.top, self.spare = count, self.spare[:0]
        if self.capacity > max(4 * count, 16):
            self._resize(max(2 * count, 16))

    def keep_places(self, axis: str, places: list[int]) -> None:
        """Keep these places of an axis of the grids only, in this order."""
        for name, (along, _) in self._grids().items():
            if along == axis:
                setattr(self, name, np.ascontiguousarray(getattr(self, name)[..., places]))
        self.axes[axis] = len(places)
        self._name_views()

    def copy(self) -> Self:
        """A copy that shares nothing."""
        twin = type(self).__new__(type(self))
        twin.axes = dict(self.axes)
        twin.capacity, twin.top, twin.spare = self.capacity, self.top, self.spare.copy()
        twin.block, twin.real = self.block.copy(), self.real.copy()
        for name in self._grids():
            setattr(twin, name, getattr(self, name).copy())
        twin._name_views()  # noqa: SLF001 - a twin of the same class
        return twin

    def dump(self) -> dict[str, Any]:
        """Everything, as plain values and bytes, with the names of its columns; the bytes are the table's own."""
        return {
            "columns": list(self.columns),
            "reals": list(self.reals),
            "planes": {name: list(planes) for name, (planes, _) in self.stacks.items()},
            "axes": self.axes,
            "top": self.top,
            "spare": _bytes_of(self.spare),
            "block": _bytes_of(self.block[: self.top]),
            "real": _bytes_of(self.real[: self.top]),
            "grids": {name: _bytes_of(getattr(self, name)[: self.top]) for name in self._grids()},
        }

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> Self:
        """The table that was dumped: each column by its name, whatever its index. Other columns than ours: refused."""
        of = f" of {cls.__name__}"
        table = cls(named(f"axes{of}", dumped["axes"], cls._axes_of_grids()))
        top = table.top = dumped["top"]
        table.reserve(top)
        table.spare = np.frombuffer(dumped["spare"], np.int64)
        columns = _places(f"columns{of}", dumped["columns"], cls.columns)
        reals = _places(f"reals{of}", dumped["reals"], cls.reals)
        table.block[:top] = np.frombuffer(dumped["block"], np.int64).reshape(top, len(columns))[:, columns]
        table.real[:top] = np.frombuffer(dumped["real"], np.float64).reshape(top, len(reals))[:, reals]
        grids = named(f"grids{of}", dumped["grids"], table._grids())
        for name, (axis, planes) in table._grids().items():
            grid = np.frombuffer(grids[name], np.int64).reshape(top, *planes, table.axes[axis])
            if name in cls.stacks:
                grid = grid[:, _places(f"planes of {name}{of}", dumped["planes"][name], cls.stacks[name][0])]
            getattr(table, name)[:top] = grid
        return table

    @classmethod
    def _axes_of_grids(cls) -> tuple[str, ...]:
        return (*cls.grids.values(), *(axis for _, axis in cls.stacks.values()))

    def _grids(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Axis and planes of every grid and stack."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {name: (axis, ()) for name, axis in self.grids.items()}
        for name, (planes, axis) in self.stacks.items():
            found[name] = (axis, (len(planes),))
        return found

    def _resize(self, capacity: int) -> None:
        used = min(self.capacity, capacity)
        block = np.zeros((capacity, len(self.columns)), np.int64)
        for at, name in enumerate(self.columns):
            if name in self.fills:
                block[:, at] = self.fills[name]
        block[:used] = self.block[:used]
        real = np.zeros((capacity, len(self.reals)), np.float64)
        real[:used] = self.real[:used]
        self.block, self.real, self.capacity = block, real, capacity
        for name, (axis, planes) in self._grids().items():
            old = getattr(self, name)
            grid = np.zeros((capacity, *planes, self.axes[axis]), np.int64)
            grid[:used, ..., : old.shape[-1]] = old[:used]
            setattr(self, name, grid)
        self._name_views()

    def _name_views(self) -> None:
        for at, name in enumerate(self.columns):
            setattr(self, name, self.block[:, at])
        for at, name in enumerate(self.reals):
            setattr(self, name, self.real[:, at])
        for name, (planes, _) in self.stacks.items():
            for at, plane in enumerate(planes):
                setattr(self, plane, getattr(self, name)[:, at])


def _bytes_of(column: Any) -> memoryview:
    """The bytes of a column without a copy of them: a checkpoint of a large cluster has many."""
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).data


def named(what: str, dumped: Any, wanted: Iterable[str]) -> Any:
    """The dumped value, if it has the wanted names; else it is refused."""
    missing, unknown = sorted(set(wanted) - set(dumped)), sorted(set(dumped) - set(wanted))
    if missing or unknown:
        raise CheckpointError(
            f"checkpoint has other {what} than this Tidegate: missing {missing}, unknown {unknown}; "
            "rebuild the state from the journal or the cluster"
        )
    return dumped


def _places(what: str, dumped: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The index among the dumped names of each wanted one."""
    return [named(what, dumped, wanted).index(name) for name in wanted]
