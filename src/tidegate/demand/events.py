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

from tidegate.demand.cells import Cells
from tidegate.demand.curves import Curve, Window
from tidegate.model.columns import I32, I64

Mask = npt.NDArray[np.bool_]

#: Up to so many spans are put in order one by one.
MOST_EXACT = 1_000_000

#: Ticks of all curves of a grouping together, at most.
MOST_TICKS = 1 << 21

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


class Pass(NamedTuple):
    """Begins and ends in order of time."""

    window: Window
    at_ms: I64  # from the window's start
    change: I64  # of the level
    cell: I32
    cells: Cells


def curves_of(spans: list[Spans | None], cells: Cells, window: Window) -> list[dict[str, list[Curve]] | None]:
    """For each kind of span the curve of all under TOTAL, and those of the groups of each dimension."""
    if max(one.cell.size for one in spans if one) > MOST_EXACT:
        return add_up(spans, cells, window)
    found: list[dict[str, list[Curve]] | None] = []
    for one in spans:
        events = put_in_order(one, cells, window) if one else None
        labels = {name: by_label(events, name) for name in cells.labels} if events else {}
        found.append({TOTAL: [whole(events)], **labels} if events else None)
    return found


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


class _Grid(NamedTuple):
    """The ticks of the curves of one dimension."""

    tick_ms: int
    coarser: int  # a tick has two to the power of this of the ticks of the total
    ticks: int
    base_of: I64  # where the curve of a cell begins
    size: int


def add_up(spans: list[Spans | None], cells: Cells, window: Window) -> list[dict[str, list[Curve]] | None]:
    """Curves by even ticks of time: no sort, and no memory but the curves. Times that spans share are added up once."""
    grids = {name: _grid(label, window) for name, label in cells.labels.items()}
    sums: dict[tuple[int, int], dict[str, I64]] = {}
    found: list[dict[str, list[Curve]] | None] = []
    for one in spans:
        if one is None:
            found.append(None)
            continue
        keys = [(id(times), id(one.cell)) for times in (one.begin_ms, one.end_ms)]
        for key, times in zip(keys, (one.begin_ms, one.end_ms), strict=True):
            if key not in sums:
                sums[key] = _tally(times, one.cell, grids, (cells, window))
        found.append(_subtract(sums[keys[0]], sums[keys[1]], grids, (cells, window)))
    return found


def _tally(times: I64, cell: I32, grids: dict[str, _Grid], to: tuple[Cells, Window]) -> dict[str, I64]:
    """What comes, or goes, in each tick of each curve."""
    cells, window = to
    sums = {name: np.zeros(grid.size, np.int64) for name, grid in grids.items()}
    for at in range(0, cell.size, _CHUNK):
        part = cell[at : at + _CHUNK]
        since = np.clip(times[at : at + _CHUNK] - window.start_ms, 0, window.length_ms) // tick_for(window)
        amount = cells.amount[part]
        for name, grid in grids.items():
            np.add.at(sums[name], (since >> grid.coarser) + grid.base_of[part], amount)
    return sums


def tick_for(window: Window) -> int:
    """How long a tick is where there is but one group; with more groups it is longer by a power of two."""
    return max(1, -(-window.length_ms // MOST_TICKS))


def _grid(label: I32, window: Window) -> _Grid:
    groups = int(label.max(initial=0)) + 1
    fine = tick_for(window)
    coarser = 0
    while (window.length_ms // fine >> coarser) * groups > MOST_TICKS:
        coarser += 1
    ticks = (window.length_ms // fine >> coarser) + 1
    return _Grid(fine << coarser, coarser, ticks, label.astype(np.int64) * ticks, groups * ticks)


def _subtract(
    come: dict[str, I64], gone: dict[str, I64], grids: dict[str, _Grid], to: tuple[Cells, Window]
) -> dict[str, list[Curve]]:
    """The curves of what has come and is not gone yet; each ends at 0, where the next one begins."""
    cells, window = to
    found = {}
    finest = min(grids, key=lambda name: grids[name].coarser)
    for name, grid in grids.items():
        start = np.arange(grid.ticks, dtype=np.int64) * grid.tick_ms
        width = np.diff(start, append=max(window.length_ms, int(start[-1])))
        levels = np.cumsum(come[name] - gone[name]).reshape(-1, grid.ticks)
        found[name] = [Curve(window, start, width, row, cells.unit) for row in levels]
        if name == finest:
            found[TOTAL] = [Curve(window, start, width, levels.sum(axis=0), cells.unit)]
    return found
