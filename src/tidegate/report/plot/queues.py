"""Queues against their quota as a picture: a row for each queue, a column for each policy, one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidegate.measure.collector import RunMeasures
from tidegate.measure.format import percent_text
from tidegate.measure.quota import QuotaUse
from tidegate.measure.summary import RunSummary
from tidegate.measure.time_axis import time_marks
from tidegate.model.arrays import F64, I64
from tidegate.model.units import WHOLE_MILLI, gpus_text
from tidegate.report.plot.style import BUSY, FAINT, INK, Axes, Drawing, PlotError, blank, calm, save_picture

#: Queues that are drawn, and moments of each curve.
_MOST_QUEUES, _MOST_BINS = 16, 360

_BORROWED, _MISSED = "#E69F00", "#F2C4C4"

#: Inches: next to and above the grid, and of a cell.
_LEFT, _RIGHT, _TOP, _BOTTOM = 1.5, 0.3, 1.35, 0.45
_WIDE, _HIGH = 4.2, 0.82


class _Curves(NamedTuple):
    """One queue under one policy, in GPUs."""

    edges_ms: I64
    used: F64
    quota: F64
    due: F64


def plot_queues(path: Path, runs: Sequence[tuple[str, RunMeasures]], title: str) -> None:
    """Write the picture; the same runs give the same bytes."""
    with_quota = [(name, run) for name, run in runs if run.quota is not None]
    if not with_quota:
        raise PlotError(f"{path}: nothing to draw, because no queue had quota, or no time passed")
    save_picture(path, lambda: _draw(with_quota, title))


def _draw(runs: Sequence[tuple[str, RunMeasures]], title: str) -> Drawing:
    queues = _queues(runs)
    rows, columns = len(queues), len(runs)
    wide, high = _LEFT + columns * _WIDE + _RIGHT, _TOP + rows * _HIGH + _BOTTOM
    figure = blank((wide, high))
    grid = figure.subplots(rows, columns, sharex=True, sharey="row", squeeze=False)
    figure.subplots_adjust(
        left=_LEFT / wide, right=1 - _RIGHT / wide, top=1 - _TOP / high, bottom=_BOTTOM / high, wspace=0.06, hspace=0.22
    )
    figure.text(0.25 / wide, 1 - 0.42 / high, title, fontsize=15, fontweight="bold")
    _draw_legend(figure, wide, high)
    for column, (name, run) in enumerate(runs):
        _head(grid[0][column], name, run.summary)
        for row, queue in enumerate(queues):
            _draw_cell(grid[row][column], _curves(run, queue))
    for row, queue in enumerate(queues):
        _label(grid[row][0], queue, runs)
    start_ms, end_ms = min(run.summary.start_ms for _, run in runs), max(run.summary.end_ms for _, run in runs)
    for axes in grid[-1]:
        marks = [mark for mark in time_marks(start_ms, end_ms, 8) if mark.at_ms < end_ms - (end_ms - start_ms) // 12]
        axes.set_xticks([mark.at_ms for mark in marks], [mark.label for mark in marks], ha="left", fontsize=8)
        axes.set_xlim(start_ms, end_ms)
    return figure


def _queues(runs: Sequence[tuple[str, RunMeasures]]) -> list[str]:
    """The queues that are drawn: those with the most quota, or use, under any policy first."""
    weight: dict[str, tuple[float, float]] = {}
    for _, run in runs:
        for share in run.summary.shares:
            weight[share.name] = max(weight.get(share.name, (0.0, 0.0)), (share.quota_gpu_h, share.used_gpu_h))
    return sorted(weight, key=lambda name: (-weight[name][0], -weight[name][1], name))[:_MOST_QUEUES]


def _curves(run: RunMeasures, queue: str) -> _Curves | None:
    use = run.quota
    if use is None or queue not in use.queues:
        return None
    at, edges = use.queues.index(queue), _edges(use, run.summary)
    columns = (use.used_milli[:, at], use.quota_milli[:, at], use.due_milli[:, at])
    return _Curves(edges, *(_thinned(use, run.summary, values / WHOLE_MILLI) for values in columns))


def _edges(use: QuotaUse, summary: RunSummary) -> I64:
    whole = np.append(use.at_ms, summary.end_ms).clip(summary.start_ms)
    return whole if len(whole) <= _MOST_BINS + 1 else np.linspace(whole[0], whole[-1], _MOST_BINS + 1).astype(np.int64)


def _thinned(use: QuotaUse, summary: RunSummary, values: F64) -> F64:
    """Averages over the stretches that are drawn."""
    whole, edges = np.append(use.at_ms, summary.end_ms).clip(summary.start_ms), _edges(use, summary)
    so_far = np.concatenate([[0.0], np.cumsum(values * np.diff(whole))])
    means: F64 = np.diff(np.interp(edges, whole, so_far)) / np.maximum(np.diff(edges), 1)
    return means


def _draw_cell(axes: Axes, curves: _Curves | None) -> None:
    """Used within the quota, used above it, and what was due and not had; the quota as a line."""
    calm(axes)
    axes.grid(visible=False)
    if curves is None:
        axes.text(0.5, 0.5, "no such queue", transform=axes.transAxes, ha="center", va="center", color=FAINT)
        return
    edges = curves.edges_ms
    used, quota, due = (np.append(values, values[-1]) for values in curves[1:])
    own = np.minimum(used, quota)
    axes.fill_between(edges, own, step="post", color=BUSY, linewidth=0)
    axes.fill_between(edges, own, used, step="post", color=_BORROWED, linewidth=0)
    axes.fill_between(edges, own, due, where=due > own, step="post", color=_MISSED, linewidth=0)
    axes.step(edges, quota, where="post", color=INK, linewidth=1.0)
    top = max(float(used.max()), float(quota.max()), 1.0) * 1.08
    axes.set_ylim(0, max(top, axes.get_ylim()[1] if axes.get_ylim()[1] > 1.0 else 0.0))


def _head(axes: Axes, name: str, summary: RunSummary) -> None:
    due, fairness = summary.due_share(), summary.due_fairness()
    even = f", evenly {fairness:.2f}" if fairness is not None else ""
    axes.annotate(name, (0, 1), xytext=(0, 20), xycoords="axes fraction", textcoords="offset points", fontweight="bold")
    text = f"{percent_text(due)} of its due{even}"
    axes.annotate(
        text, (0, 1), xytext=(0, 7), xycoords="axes fraction", textcoords="offset points", fontsize=8.5, color=FAINT
    )


def _label(axes: Axes, queue: str, runs: Sequence[tuple[str, RunMeasures]]) -> None:
    quotas = {share.quota_gpus for _, run in runs for share in run.summary.shares if share.name == queue}
    quota = gpus_text(round(max(quotas, default=0.0) * WHOLE_MILLI))
    name = queue if len(queue) <= 14 else "…" + queue[-13:]
    where = {"xy": (0, 0.5), "xycoords": "axes fraction", "textcoords": "offset points", "ha": "right"}
    axes.annotate(name, xytext=(-30, 1), va="bottom", fontweight="bold", fontsize=9, **where)
    axes.annotate(f"owns {quota}", xytext=(-30, 0), va="top", fontsize=8, color=FAINT, **where)
    axes.tick_params(axis="y", labelsize=7)
    axes.yaxis.set_major_locator(_locator())


def _locator() -> object:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=2, integer=True)


def _draw_legend(figure: Drawing, wide: float, high: float) -> None:
    words = (
        ("used of its own quota", BUSY),
        ("borrowed", _BORROWED),
        ("due and not had", _MISSED),
        ("quota, in GPUs", INK),
    )
    left = 0.25
    for word, colour in words:
        figure.text(left / wide, 1 - 0.72 / high, "\u25a0", color=colour, fontsize=12)
        figure.text((left + 0.17) / wide, 1 - 0.715 / high, word, color=FAINT, fontsize=9.5)
        left += 0.35 + 0.085 * len(word)
