"""Spans of time with an amount each, turned into curves: in total, and by any grouping.

Two ways to the same curves. Exact (`put_in_order`): begin and end of every span become one 64-bit key each, time
above and cell below, and one plain sort puts all of them in order. For very many spans (`add_up`): begins and ends
are added up in even ticks of time, which needs no sort and as much memory for a hundred million spans as for one;
times are then as exact as the tick. A cell is what spans need to be told apart by: their group in each dimension, and
their amount.
Must not know: what the groups or amounts are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.demand.curves import Curve, Window
from tidegate.model.columns import F64, I32, I64

Mask = npt.NDArray[np.bool_]

#: Up to so many spans are put in order one by one.
MOST_EXACT = 1_000_000

#: Ticks of all curves of a grouping together.
MOST_TICKS = 1 << 22

#: The name of the curve of all spans together.
TOTAL = "total"

_BITS = 62

#: Spans that are added up at a time: their columns stay in the processor's cache.
_CHUNK = 1 << 15


class Spans(NamedTuple):
    """From when to when each lasted, and its cell."""

    begin_ms: I64
    end_ms: I64
    cell: I32


class Cells(NamedTuple):
    """What a cell means."""

    amount: I64  # in steps of `unit`
    unit: float
    labels: dict[str, I32]  # by dimension: the group of each cell


class Pass(NamedTuple):
    """Begins and ends in order of time."""

    window: Window
    at_ms: I64  # from the window's start
    change: I64  # of the level
    cell: I32
    cells: Cells


def curves_of(spans: Spans, cells: Cells, window: Window) -> dict[str, list[Curve]]:
    """The curve of all spans under TOTAL, and those of the groups of each dimension."""
    if spans.cell.size > MOST_EXACT:
        return add_up(spans, cells, window)
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


def whole(events: Pass) -> Curve:
    """The curve of all spans together."""
    return _curve(events.window, events.at_ms, events.change, events.cells.unit)


def by_label(events: Pass, dimension: str) -> list[Curve]:
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
        _curve(events.window, at_ms[begin:end], change[begin:end], unit)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _curve(window: Window, at_ms: I64, change: I64, unit: float) -> Curve:
    """Every change starts a level, which lasts until the next change; after the last one nothing is left."""
    width = np.diff(at_ms, append=at_ms[-1:])
    return Curve(window, at_ms, width, np.cumsum(change), unit)


class _Sum(NamedTuple):
    """The curves of one dimension while they are added up."""

    tick_ms: int
    ticks: int
    base_of: I64  # where the curve of a cell begins
    change: F64


def add_up(spans: Spans, cells: Cells, window: Window) -> dict[str, list[Curve]]:
    """Curves by even ticks of time: no sort, and no memory but the curves themselves."""
    labels = {TOTAL: np.zeros(cells.amount.size, np.int32), **cells.labels}
    sums = {name: _empty(label, window) for name, label in labels.items()}
    amount_of = cells.amount.astype(np.float64)
    for at in range(0, spans.cell.size, _CHUNK):
        to = at + _CHUNK
        part = Spans(spans.begin_ms[at:to], spans.end_ms[at:to], spans.cell[at:to])
        begin, end = _cut(part, window)
        amount = amount_of[part.cell]
        for total in sums.values():
            base = total.base_of[part.cell]
            np.add.at(total.change, begin // total.tick_ms + base, amount)
            np.subtract.at(total.change, end // total.tick_ms + base, amount)
    return {name: _curves(total, cells.unit, window) for name, total in sums.items()}


def tick_for(window: Window, groups: int = 1) -> int:
    """How long a tick is when so many curves are added up together."""
    return max(1, -(-window.length_ms // (MOST_TICKS // groups)))


def _empty(label: I32, window: Window) -> _Sum:
    groups = int(label.max(initial=0)) + 1
    tick_ms = tick_for(window, groups)
    ticks = window.length_ms // tick_ms + 1
    return _Sum(tick_ms, ticks, label.astype(np.int64) * ticks, np.zeros(groups * ticks))


def _curves(total: _Sum, unit: float, window: Window) -> list[Curve]:
    level = np.cumsum(total.change).astype(np.int64)  # whole numbers far below 2^53: exact, and each curve ends at 0
    start = np.arange(total.ticks, dtype=np.int64) * total.tick_ms
    width = np.diff(start, append=max(window.length_ms, int(start[-1])))
    return [Curve(window, start, width, row, unit) for row in level.reshape(-1, total.ticks)]
