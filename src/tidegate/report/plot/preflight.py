"""The preflight as a picture: demand over time with its floor, the usual week, and time at each level."""

from __future__ import annotations

from pathlib import Path

from tidegate.demand.chart_data import duration_curve, week_curve
from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.sentences import verdict_text
from tidegate.model.units import DAY_MS
from tidegate.planning.preflight import Preflight
from tidegate.report.plot.style import BUSY, GRID, INK, PALETTE, Axes, Drawing, PlotError, save_picture
from tidegate.report.text.plan import AverageDemand
from tidegate.report.text.preflight import read_parts


def plot_preflight(path: Path, preflight: Preflight, seen: AverageDemand | None) -> None:
    """Write the picture of a preflight; the same data gives the same bytes."""
    levels, unit = _levels(preflight)
    if levels is None:
        raise PlotError(f"{path}: nothing to draw: the sources tell neither GPUs nor requests over time")
    save_picture(path, lambda: _draw(preflight, seen, levels, unit))


def _levels(preflight: Preflight) -> tuple[Levels | None, str]:
    total = preflight.model.total()
    if total is not None and (total.wanted or total.seen):
        return total.wanted or total.seen, "GPUs"
    return next(((one.rate, "requests/s") for one in preflight.model.services), (None, ""))


def _draw(preflight: Preflight, seen: AverageDemand | None, levels: Levels, unit: str) -> Drawing:
    from matplotlib.figure import Figure

    figure: Drawing = Figure(figsize=(12.0, 8.0), layout="constrained", facecolor="white")
    over_time = seen is not None and preflight.replayed is not None
    axes = figure.subplots(3 if over_time else 2, 1)
    if over_time:
        assert seen is not None
        _draw_demand(axes[0], preflight, seen)
    _draw_week(axes[-2], levels, unit)
    _draw_durations(axes[-1], levels, unit)
    read = "  ·  ".join(read_parts(preflight.model.grounds))
    figure.suptitle(f"{verdict_text(preflight.verdict, preflight.answers)}\n{read}", x=0.01, ha="left", color=INK)
    for each in axes:
        each.set_axisbelow(True)
        each.grid(axis="y", color=GRID)
        each.set_ylim(bottom=0)
        each.margins(x=0)
        if each.get_legend_handles_labels()[0]:
            each.legend(loc="upper right", frameon=False, labelcolor=INK)
    return figure


def _draw_demand(axes: Axes, preflight: Preflight, seen: AverageDemand) -> None:
    assert preflight.replayed is not None
    days, floor = (seen.at_ms - seen.at_ms[0]) / DAY_MS, preflight.replayed.floor.gpus
    axes.fill_between(days, seen.gpus, color=BUSY, alpha=0.35, linewidth=0, label="demand if nothing waited")
    name = "at least" if preflight.replayed.at_least else "floor by replay"
    axes.axhline(floor, color=PALETTE[2], linestyle="--", label=f"{name}: {floor:,}")
    axes.set_xlabel("days")
    axes.set_ylabel("GPUs")


def _draw_week(axes: Axes, levels: Levels, unit: str) -> None:
    curve = week_curve(levels)
    if curve is None:
        return
    hours = range(len(curve.mean))
    axes.fill_between(hours, curve.p10, curve.p90, color=BUSY, alpha=0.2, linewidth=0, label="p10 to p90")
    axes.plot(hours, curve.mean, color=BUSY, label="mean")
    axes.set_xlabel("hour of the week")
    axes.set_ylabel(unit)


def _draw_durations(axes: Axes, levels: Levels, unit: str) -> None:
    curve = duration_curve(levels)
    axes.plot([100 * share for share in curve.share], curve.level, color=PALETTE[1], label="reached or exceeded")
    axes.set_xlabel("% of the time")
    axes.set_ylabel(unit)
