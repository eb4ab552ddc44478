"""Curves of block characters for a terminal: a run as lines, and demand several lines high."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from rich.text import Text

from tidegate.measure.format import UNKNOWN, amount_text
from tidegate.measure.summary import RunSummary
from tidegate.measure.time_axis import time_marks
from tidegate.measure.time_series import ClusterSamples, resample
from tidegate.model.arrays import F64, I64
from tidegate.model.units import DAY_MS, WHOLE_MILLI
from tidegate.stats.quantile import quantile

_BLOCKS = " ▁▂▃▄▅▆▇█"

#: Columns next to a curve: its name and its last value.
_LEFT, _RIGHT = 11, 22


class _Curve(NamedTuple):
    name: str
    values: F64
    top: float  # what fills a cell
    comes_to: str
    style: str


def curves(summary: RunSummary, samples: ClusterSamples, width: int) -> Text | None:
    """The curves below each other, under the days; None if no time passed."""
    if not len(samples.at_ms):
        return None
    cells = max(width - _LEFT - _RIGHT, 8)
    lines = [Text(" " * _LEFT + day_line(summary.start_ms, summary.end_ms, cells), "dim")]
    for curve in _curves_of(samples, cells):
        drawn = sparkline(curve.values, curve.top)
        lines.append(Text.assemble(f"{curve.name:<{_LEFT}}", (drawn, curve.style), ("  " + curve.comes_to, "dim")))
    return Text("\n").join(lines)


def _curves_of(samples: ClusterSamples, cells: int) -> list[_Curve]:
    up = samples.up_milli / WHOLE_MILLI
    allocated = samples.allocated_milli / WHOLE_MILLI
    waiting = samples.waiting_milli.sum(axis=1) / WHOLE_MILLI
    busy = _mean(samples, samples.busy_gpus)
    top, peak = float(up.max()), float(resample(samples, waiting, cells).max(initial=0))
    curves = [
        _Curve("allocated", allocated, top, f"{_mean(samples, allocated)} of {_mean(samples, up)} GPUs", "cyan"),
        _Curve("busy", samples.busy_gpus, top, f"{busy} GPUs" if busy != UNKNOWN else "not observed", "green"),
        _Curve("waiting", waiting, peak, f"{_mean(samples, waiting)} GPUs, peak {amount_text(peak)}", "yellow"),
    ]
    return [curve._replace(values=resample(samples, curve.values, cells)) for curve in curves]


def _mean(samples: ClusterSamples, values: F64) -> str:
    mean = resample(samples, values, 1)[0]
    return UNKNOWN if np.isnan(mean) else amount_text(float(mean))


def sparkline(values: F64, top: float) -> str:
    """A curve in blocks, one a value; `?` where nothing is known."""
    heights = np.ceil(np.nan_to_num(values) / max(top, 1e-9) * (len(_BLOCKS) - 1) - 1e-6)
    levels = np.clip(heights, 0, len(_BLOCKS) - 1).astype(np.int64)
    return "".join("?" if np.isnan(value) else _BLOCKS[level] for value, level in zip(values, levels, strict=True))


def day_line(start_ms: int, end_ms: int, cells: int) -> str:
    """The names of days, or hours, each where it begins."""
    line = [" "] * cells
    free_from = 0
    room = 4 if end_ms - start_ms > 2 * DAY_MS else 7  # for the name of a day, or the time of day
    for mark in time_marks(start_ms, end_ms, cells // room):
        at = (mark.at_ms - start_ms) * cells // max(end_ms - start_ms, 1)
        if at >= free_from and at + len(mark.label) <= cells:
            line[at : at + len(mark.label)] = mark.label
            free_from = at + len(mark.label) + 1
    return "".join(line)


# -- demand ---------------------------------------------------------------------------------------------------

_ROWS = 8

#: Columns next to the curve, for the names of levels.
_LEVEL_NAMES = 18
_STYLES = {"own": "green", "windows": "cyan", "burst": "yellow", "floor": "magenta"}


def demand_curve(at_ms: I64, gpus: F64, levels: list[tuple[str, float]], width: int) -> Text:
    """The highest demand in each column, under the days; a level is a line through it."""
    cells = max(width - _LEVEL_NAMES, 16)
    if not len(gpus):
        return Text("no time passed", "dim")
    column = np.minimum(np.arange(len(gpus)) * cells // len(gpus), cells - 1)
    heights = np.zeros(cells)
    np.maximum.at(heights, column, gpus)
    top = _top(heights, levels)
    marks: dict[int, list[tuple[str, float]]] = {}
    for name, level in levels:
        if level <= top:
            marks.setdefault(_row(level, top), []).append((name, level))
    lines = [_line(row, heights / top, marks.get(row, [])) for row in range(_ROWS - 1, -1, -1)]
    above = [f"{name} {amount_text(level)}" for name, level in levels if level > top]
    head = Text(day_line(int(at_ms[0]), int(at_ms[-1]), cells), "dim")
    beyond = Text(f"  ↑ {', '.join(above)}", "dim") if above else Text()
    return Text("\n").join([head + beyond, *lines])


def _top(heights: F64, levels: list[tuple[str, float]]) -> float:
    """As high as the demand, or a level that is not far above it; a lone spike is cut."""
    peak, usual = float(heights.max()), quantile(heights, 0.97)
    top = peak if peak <= 2.5 * usual else 1.6 * usual
    near = [level for _, level in levels if level <= 1.4 * top]
    return max([top, *(1.02 * level for level in near), 1e-9])


def _row(level: float, top: float) -> int:
    return min(int(level / top * _ROWS), _ROWS - 1)


def _line(row: int, heights: F64, marks: list[tuple[str, float]]) -> Text:
    """One row of the picture; a level's row is drawn with its line where there is no demand. Levels may share a row."""
    fill = np.clip(heights * _ROWS - row, 0, 1)
    blocks = [_BLOCKS[round(float(part) * 8)] for part in fill]
    cut = heights > 1
    if row == _ROWS - 1:
        blocks = ["^" if over else block for block, over in zip(blocks, cut, strict=True)]
    if not marks:
        return Text("".join(blocks), "blue")
    style = _STYLES.get(marks[0][0], "")
    drawn = Text()
    for block in blocks:
        drawn.append("─" if block == " " else block, style if block == " " else "blue")
    return drawn.append(f" {', '.join(f'{name} {amount_text(level)}' for name, level in marks)}", style)
