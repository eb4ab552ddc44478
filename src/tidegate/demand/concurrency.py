"""Concurrency: spans of time with an amount each as step curves, in total and by group.

Exact (`put_in_order`): begin and end of each span become one 64-bit key, time above and cell below, and one sort puts
them in order. For very many spans (`TickTally`): begins and ends are added up in even ticks of time, without a sort and
in constant memory; times are as exact as a tick. A cell is one combination of groups and an amount.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.demand.group_keys import Cells
from tidegate.demand.step_curve import StepCurve, Window, curve_of_changes
from tidegate.model.arrays import I32, I64

Mask = npt.NDArray[np.bool_]

#: Up to so many spans are put in order one by one.
MOST_EXACT = 1_000_000

#: Ticks of all curves of a grouping together, at most.
MOST_TICKS = 1 << 21

#: The name of the curve of all spans together.
TOTAL = "total"

_BITS = 62


class Spans(NamedTuple):
    """From when to when each lasted, and its cell."""

    begin_ms: I64
    end_ms: I64
    cell: I32


class Pass(NamedTuple):
    """Begins and ends in order of time."""

    window: Window
    at_ms: I64  # from the window's start
    change: I64  # of the level
    cell: I32
    cells: Cells


def curves_of(spans: Spans, cells: Cells, window: Window) -> dict[str, list[StepCurve]]:
    """The curve of all under TOTAL, and those of the groups of each dimension; exact."""
    events = put_in_order(spans, cells, window)
    return {TOTAL: [whole(events)], **{name: by_label(events, name) for name in cells.labels}}


def put_in_order(spans: Spans, cells: Cells, window: Window) -> Pass:
    """Cut the spans to the window, and sort their begins and ends."""
    begin, end = _cut(spans, window)
    lasting = end > begin
    begin, end, cell = begin[lasting], end[lasting], spans.cell[lasting]
    bits = max(1, (2 * cells.amount.size - 1).bit_length())
    if window.length_ms >= 1 << (_BITS - bits):
        raise OverflowError(f"{window.length_ms} ms with {cells.amount.size} cells: more than {_BITS} bits")
    low = cell.astype(np.int64) << 1
    keys = np.concatenate(((begin << bits) | low | 1, (end << bits) | low))
    keys.sort()
    code = (keys & ((1 << bits) - 1)).astype(np.int32)
    keys >>= bits
    change_of = np.empty(2 * cells.amount.size, np.int64)
    change_of[0::2], change_of[1::2] = -cells.amount, cells.amount
    return Pass(window, keys, change_of[code], code >> 1, cells)


def _cut(spans: Spans, window: Window) -> tuple[I64, I64]:
    begin = np.clip(spans.begin_ms - window.start_ms, 0, window.length_ms)
    return begin, np.maximum(np.clip(spans.end_ms - window.start_ms, 0, window.length_ms), begin)


def whole(events: Pass) -> StepCurve:
    """The curve of all spans together."""
    return curve_of_changes(events.window, events.at_ms, events.change, events.cells.unit)


def by_label(events: Pass, dimension: str) -> list[StepCurve]:
    """A curve for each group of a dimension, in order of their numbers."""
    label_of = events.cells.labels[dimension]
    groups = int(label_of.max(initial=-1)) + 1
    if groups <= 1:
        return [whole(events)]
    label = label_of.astype(np.uint16 if groups > 256 else np.uint8)[events.cell]
    order = np.argsort(label, kind="stable")  # by radix: linear for so few bits
    at_ms, change = events.at_ms[order], events.change[order]
    ends = np.cumsum(np.bincount(label, minlength=groups))
    begins = np.concatenate(([0], ends[:-1]))
    unit = events.cells.unit
    return [
        curve_of_changes(events.window, at_ms[begin:end], change[begin:end], unit)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


class Moments(NamedTuple):
    """When something came or went, and its cell."""

    at_ms: I64
    cell: I32


class _Grid(NamedTuple):
    """The ticks of the curves of one dimension."""

    tick_ms: int
    coarser: int  # a tick has two to the power of this of the ticks of the total
    ticks: int
    base_of: I64  # where the curve of a cell begins
    size: int


class _Room(NamedTuple):
    """Where some rows are reckoned with."""

    tick: I64
    row: I64
    amount: I64
    bases: dict[str, I64]  # by dimension: where the curve of each row's cell begins


class TickTally:
    """What came, or went, in even ticks of time: no sort, and no memory but the ticks.

    Several kinds of moments are added up side by side, some rows at a time.
    """

    def __init__(self, kinds: Sequence[int], cells: Cells, window: Window) -> None:
        self.cells, self.window = cells, window
        self._shift = tick_for(window).bit_length() - 1
        coarser = {name: _coarser_for(label, window) for name, label in cells.labels.items()}
        # What is over after the window goes to a tick of its own behind it, in each of the grids.
        most = max(coarser.values())
        self._last = (window.length_ms >> self._shift + most) + 1 << most
        self._grids = {
            name: _grid(label, (self._last >> coarser[name]) + 1, coarser[name], self._shift)
            for name, label in cells.labels.items()
        }
        self._sums = {
            kind: {name: np.zeros(grid.size, np.int64) for name, grid in self._grids.items()} for kind in kinds
        }
        self._room: _Room | None = None

    def add(self, moments: Mapping[int, Moments]) -> None:
        """Add up some rows, by kinds of moments; what lies outside the window counts at its end or start."""
        cell: I32 | None = None
        for kind, one in moments.items():
            if one.cell is not cell:
                cell = one.cell
                room = self._room_for(cell.size)
                room.row[:] = cell
                self.cells.amount.take(room.row, out=room.amount, mode="clip")
                for name, grid in self._grids.items():
                    grid.base_of.take(room.row, out=room.bases[name], mode="clip")
            np.subtract(one.at_ms, self.window.start_ms, out=room.tick)
            np.right_shift(room.tick, self._shift, out=room.tick)
            if room.tick.min(initial=0) < 0 or room.tick.max(initial=0) > self._last:
                np.clip(room.tick, 0, self._last, out=room.tick)
            for name, grid in self._grids.items():
                np.right_shift(room.tick, grid.coarser, out=room.row)
                np.add(room.row, room.bases[name], out=room.row)
                np.add.at(self._sums[kind][name], room.row, room.amount)

    def _room_for(self, rows: int) -> _Room:
        """Room for some rows: the same memory each time, because new memory costs more than the sums."""
        if self._room is None or self._room.tick.size < rows:
            tick, row, amount, *bases = np.empty((3 + len(self._grids), rows), np.int64)
            self._room = _Room(tick, row, amount, dict(zip(self._grids, bases, strict=True)))
        tick, row, amount, bases_of = self._room
        return _Room(tick[:rows], row[:rows], amount[:rows], {name: base[:rows] for name, base in bases_of.items()})

    def join(self, other: TickTally) -> None:
        """Take over the kinds of moments that another one has added up."""
        self._sums |= other._sums

    def between(self, come: int, gone: int, *more: int) -> dict[str, list[StepCurve]]:
        """The curves of what has come, by one kind of moments, and is not gone yet, by others; the first is used up."""
        found = {}
        finest = min(self._grids, key=lambda name: self._grids[name].coarser)
        spent = self._sums.pop(gone)
        for name, grid in self._grids.items():
            start = np.minimum(np.arange(grid.ticks, dtype=np.int64) * grid.tick_ms, self.window.length_ms)
            width = np.diff(start, append=self.window.length_ms)
            change = np.subtract(self._sums[come][name], spent[name], out=spent[name])
            for kind in more:
                change -= self._sums[kind][name]
            # Each curve ends at 0, where the next one begins.
            levels = np.cumsum(change, out=change).reshape(-1, grid.ticks)
            found[name] = [StepCurve(self.window, start, width, row, self.cells.unit, grid.tick_ms) for row in levels]
            if name == finest:
                total = levels.sum(axis=0) if len(levels) > 1 else levels[0]
                found[TOTAL] = [StepCurve(self.window, start, width, total, self.cells.unit, grid.tick_ms)]
        return found


def tick_for(window: Window) -> int:
    """How long a tick is where there is but one group: a power of two, as are ticks of more groups; in milliseconds."""
    return 1 << max(0, (max(window.length_ms - 1, 0) // MOST_TICKS).bit_length())


def _coarser_for(label: I32, window: Window) -> int:
    groups, coarser = int(label.max(initial=0)) + 1, 0
    while (window.length_ms // tick_for(window) >> coarser) * groups > MOST_TICKS:
        coarser += 1
    return coarser


def _grid(label: I32, ticks: int, coarser: int, shift: int) -> _Grid:
    groups = int(label.max(initial=0)) + 1
    return _Grid(1 << shift + coarser, coarser, ticks, label.astype(np.int64) * ticks, groups * ticks)
