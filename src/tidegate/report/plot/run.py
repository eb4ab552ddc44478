"""A run as a picture: GPU use, waiting work, and a map of how full each node was, on one time axis."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.measure.format import amount_text, count_text, percent_text
from tidegate.measure.job_records import JobRecords
from tidegate.measure.time_axis import time_marks
from tidegate.measure.time_series import ClusterSamples
from tidegate.model.arrays import F64
from tidegate.model.units import WHOLE_MILLI
from tidegate.report.plot.style import (
    BUSY,
    FAINT,
    INK,
    PALETTE,
    Axes,
    Drawing,
    PlotError,
    blank,
    calm,
    check_picture,
    save_picture,
)

_REST = "#999999"
_ALLOCATED = "#9CC9E8"

_SIZE_INCHES = (12.0, 9.0)
_MOST_NODE_NAMES, _LONGEST_NAME = 16, 14
_MOST_NODES_APART = 48  # more rows are too thin for lines between them


def plot(path: Path, samples: ClusterSamples, lives: JobRecords, title: str) -> None:
    """Write the picture of a run; the same run gives the same bytes."""
    check_picture(path)
    if not len(samples.at_ms):
        raise PlotError(f"{path}: nothing to draw, because no time passed; run it for longer")
    save_picture(path, lambda: _draw(samples, lives, title))


def _draw(samples: ClusterSamples, lives: JobRecords, title: str) -> Drawing:
    figure = blank(_SIZE_INCHES)
    use, waiting, nodes = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": (3, 2.2, 3), "hspace": 0.25})
    figure.subplots_adjust(left=0.07, right=0.86, top=0.875, bottom=0.05)
    figure.text(0.07, 0.955, title, fontsize=16, fontweight="bold")
    figure.text(0.07, 0.927, _subtitle(samples, lives), fontsize=10.5, color=FAINT)
    _draw_use(use, samples)
    _draw_waiting(waiting, samples)
    _draw_nodes(nodes, samples)
    for axes in (use, waiting, nodes):
        calm(axes)
    _mark_time(nodes, samples)
    return figure


def _subtitle(samples: ClusterSamples, lives: JobRecords) -> str:
    gpus = int(samples.up_milli.max(initial=0)) // WHOLE_MILLI
    observed = float(lives.observed_gpu_ms.sum())
    busy = percent_text(float(lives.busy_gpu_ms.sum()) / observed) if observed else "not observed"
    return (
        f"{count_text(len(samples.nodes), 'node')}, {count_text(gpus, 'GPU')}, "
        f"{count_text(len(lives.number), 'workload')}; busy share of allocated GPU time: {busy}"
    )


# -- panels ----------------------------------------------------------------------------------------------------


def _draw_use(axes: Axes, samples: ClusterSamples) -> None:
    """Capacity as a line, and within it what was allocated and what of that was busy."""
    edges = _edges(samples)
    up, allocated = samples.up_milli / WHOLE_MILLI, samples.allocated_milli / WHOLE_MILLI
    axes.fill_between(edges, _steps(allocated), step="post", color=_ALLOCATED, linewidth=0)
    axes.fill_between(edges, _steps(samples.busy_gpus), step="post", color=BUSY, linewidth=0)
    axes.step(edges, _steps(up), where="post", color=INK, linewidth=1.2)
    axes.set_ylim(0, max(float(up.max()), 1.0) * 1.06)
    labels = [("capacity", up, INK), ("allocated", allocated, "#4A90C2"), ("busy", samples.busy_gpus, BUSY)]
    means = [_mean(samples, values) for _, values, _ in labels]
    heights = _apart([0.0 if mean is None else mean for mean in means], 0.13 * axes.get_ylim()[1])
    for (name, _, colour), mean, height in zip(labels, means, heights, strict=True):
        text = "not observed" if mean is None else f"{amount_text(mean)} GPUs on average"
        _label(axes, height, name, text, colour)
    axes.set_title("GPUs in use")


def _draw_waiting(axes: Axes, samples: ClusterSamples) -> None:
    """GPUs that waiting work asks for, one layer a queue."""
    layers = _layers(samples)
    edges, floor = _edges(samples), np.zeros(len(samples.at_ms) + 1)
    for _, values, colour in layers:
        ceiling = floor + _steps(values)
        axes.fill_between(edges, floor, ceiling, step="post", color=colour, linewidth=0)
        floor = ceiling
    top = max(float(floor.max()) * 1.06, 1.0)
    axes.set_ylim(0, top)
    heights = _apart([top * (at + 0.7) / max(len(layers), 4) for at in range(len(layers))], 0.17 * top)
    for (name, values, colour), height in zip(layers, heights, strict=True):
        _label(axes, height, name, f"{amount_text(_mean(samples, values) or 0.0)} GPUs on average", colour)
    axes.set_title("GPUs waited for, by queue" if layers else "GPUs waited for: none, at any time")


def _layers(samples: ClusterSamples) -> list[tuple[str, F64, str]]:
    """The queues that waited most, and all others together: name, GPUs, colour."""
    waiting = samples.waiting_milli / WHOLE_MILLI
    weight = waiting.sum(axis=0)
    worst = [at for at in np.argsort(-weight, kind="stable").tolist() if weight[at] > 0]
    shown, rest = worst[: len(PALETTE)], worst[len(PALETTE) :]
    layers = [(samples.queues[at], waiting[:, at], colour) for at, colour in zip(shown, PALETTE, strict=False)]
    if rest:
        layers.append((f"{len(rest)} more", waiting[:, rest].sum(axis=1), _REST))
    return layers


def _draw_nodes(axes: Axes, samples: ClusterSamples) -> None:
    """The map: a row a node, dark where its GPUs are taken, grey where it was away."""
    from matplotlib.colors import LinearSegmentedColormap

    colours: Any = LinearSegmentedColormap.from_list("tide", ("#F4F8FB", "#9CC9E8", "#0072B2", "#00304D"))
    up = samples.node_up_milli
    share = np.divide(samples.node_allocated_milli, up, out=np.full(up.shape, np.nan, np.float32), where=up > 0)
    count = len(samples.nodes)
    edges = _edges(samples)
    image = axes.imshow(
        np.ma.masked_invalid(share.T),
        aspect="auto",
        interpolation="nearest",
        extent=(edges[0], edges[-1], count - 0.5, -0.5),
        cmap=colours.with_extremes(bad="#D9D9D9"),
        vmin=0,
        vmax=1,
    )
    if count <= _MOST_NODES_APART:
        axes.hlines(np.arange(1, count) - 0.5, edges[0], edges[-1], color="white", linewidth=18 / max(count, 12))
    shown = range(0, count, max(-(-count // _MOST_NODE_NAMES), 1))
    axes.set_yticks(list(shown), [_short(samples.nodes[at]) for at in shown], fontsize=8)
    axes.set_title("GPU map: share of each node's GPUs allocated")
    beside = axes.inset_axes((1.015, 0.0, 0.012, 1.0))
    bar = axes.figure.colorbar(image, cax=beside, ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["free", "half", "full"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)


# -- axes ------------------------------------------------------------------------------------------------------


def _mark_time(axes: Axes, samples: ClusterSamples) -> None:
    edges = _edges(samples)
    marks = time_marks(int(edges[0]), int(edges[-1]), 14)
    last_ms = edges[-1] - 0.04 * (edges[-1] - edges[0])  # a label there would run into what stands beside the map
    marks = [mark for mark in marks if mark.at_ms <= last_ms]
    axes.set_xticks([mark.at_ms for mark in marks], [mark.label for mark in marks], ha="left")
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(visible=False)  # lines would cut the map


def _label(axes: Axes, height: float, name: str, text: str, colour: str) -> None:
    """A label beside the curve it is about."""
    where: dict[str, Any] = {"xy": (1.0, height), "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(_short(name), xytext=(8, 1), va="bottom", color=colour, fontweight="bold", **where)
    axes.annotate(text, xytext=(8, 0), va="top", color=FAINT, fontsize=8.5, **where)


def _short(name: str) -> str:
    """The end of a long name: that is where names differ."""
    return name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :]


def _apart(heights: list[float], least: float) -> list[float]:
    """Heights moved apart, so that labels do not cover each other."""
    moved = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + least)
    return moved


def _edges(samples: ClusterSamples) -> F64:
    """Where bins begin, and where the last one ends."""
    edges = np.append(samples.at_ms, samples.at_ms[-1] + samples.covered_ms[-1]).astype(np.float64)
    edges[0] = edges[1] - samples.covered_ms[0]
    return edges


def _steps(values: F64) -> F64:
    return np.append(values, values[-1])


def _mean(samples: ClusterSamples, values: F64) -> float | None:
    known = ~np.isnan(values)
    weight = samples.covered_ms * known
    return float((np.where(known, values, 0) * weight).sum() / weight.sum()) if weight.any() else None
