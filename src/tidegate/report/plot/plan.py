"""The plan as a picture: demand over time with the levels of the plan, and what each way to provide holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tidegate.measure.format import count_text
from tidegate.model.units import DAY_MS
from tidegate.planning.plan_schema import ClassPart, PlanDocument, WayPart
from tidegate.report.plot.style import BUSY, FAINT, GRID, INK, PALETTE, Axes, Drawing, save_picture
from tidegate.report.text.plan import NAMES, AverageDemand


def plot_plan(path: Path, plan: PlanDocument, seen: AverageDemand) -> None:
    """Write the picture of a plan; the same plan gives the same bytes."""
    save_picture(path, lambda: _draw(plan, seen))


def _draw(plan: PlanDocument, seen: AverageDemand) -> Drawing:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 8.0), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    batch = plan.classes[0]
    _draw_demand(above, batch, seen)
    _draw_ways(below, plan.trial.ways if plan.trial else batch.ways)
    names = ", ".join(source.name for source in plan.origin.sources) or "jobs"
    above.set_title(f"Plan for {names}: {count_text(plan.origin.jobs, 'job')}", loc="left", color=INK)
    return figure


def _draw_demand(axes: Axes, batch: ClassPart, seen: AverageDemand) -> None:
    days = (seen.at_ms - seen.at_ms[0]) / DAY_MS if len(seen.at_ms) else np.zeros(0)
    axes.fill_between(days, seen.gpus, color=BUSY, alpha=0.35, linewidth=0, label="demand if nothing waited")
    top = max(window.gpus for window in batch.windows)
    lines = [("own", batch.own_gpus, "-"), ("floor without burst", batch.floor.gpus, "--")]
    lines += [("owned and booked", top, "-")] if top > batch.own_gpus else []
    lines += [("burst ceiling", top + batch.burst.ceiling_gpus, ":")] if batch.burst else []
    for row, (name, gpus, style) in enumerate(lines):
        axes.axhline(gpus, color=PALETTE[row], linestyle=style, linewidth=1.6, label=f"{name}: {gpus:,}")
    axes.set_xlabel("days")
    axes.set_ylabel("GPUs")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    axes.legend(loc="upper right", frameon=False, labelcolor=INK)


def _draw_ways(axes: Axes, ways: tuple[WayPart, ...]) -> None:
    rows = np.arange(len(ways))[::-1]
    held, burst = np.array([way.held_gpu_hours for way in ways]), np.array([way.burst_gpu_hours for way in ways])
    axes.barh(rows, held - burst, color=BUSY, alpha=0.7, label="there all the time")
    axes.barh(rows, burst, left=held - burst, color=PALETTE[0], label="burst")
    axes.set_yticks(rows, [NAMES.get(way.name, way.name) for way in ways])
    for row, way in zip(rows, ways, strict=True):
        said = "" if way.holds else "  breaks the tolerance"
        axes.text(way.held_gpu_hours, row, f" {way.held_gpu_hours:,.0f}{said}", va="center", color=FAINT, fontsize=9)
    axes.set_xlabel("GPU-hours held")
    axes.set_xlim(0, float(held.max(initial=0.0)) * 1.2 or 1.0)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=GRID)
    axes.legend(loc="center right", frameon=False, labelcolor=INK)
