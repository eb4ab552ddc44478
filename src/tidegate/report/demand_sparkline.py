"""Demand over time as a chart of block characters, several lines high, with levels drawn through it."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from tidegate.measure.format import amount_text
from tidegate.model.arrays import F64, I64
from tidegate.report.run_sparkline import day_line
from tidegate.stats.quantile import quantile

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 8

#: Columns next to the curve, for the names of levels.
_RIGHT = 18
_STYLES = {"own": "green", "windows": "cyan", "burst": "yellow", "floor": "magenta"}


def demand_curve(at_ms: I64, gpus: F64, levels: list[tuple[str, float]], width: int) -> Text:
    """The highest demand in each column, under the days; a level is a line through it."""
    cells = max(width - _RIGHT, 16)
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
