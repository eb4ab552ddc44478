"""The plan as an HTML page: demand with levels, the week, the cost of owning more or less, and the trial."""

from __future__ import annotations

import numpy as np

from tidegate.demand.calendar import WEEK_HOURS, hour_of_week
from tidegate.demand.sentences import axis_text, clock_text
from tidegate.measure.format import count_text, percent_text, time_text
from tidegate.model.units import duration_text
from tidegate.planning.floor import span_text
from tidegate.planning.plan_schema import ClassPart, PlanDocument, WayPart
from tidegate.planning.plan_warnings import sizes_text
from tidegate.report.html.page import MOST_POINTS, ChartSeries, HtmlChart, HtmlPage, HtmlTable, HtmlTile, rounded, thin
from tidegate.report.text.plan import NAMES, AverageDemand, dropped_text, headline, wait_words, within_text
from tidegate.stats.quantile import quantile

_OWN, _WINDOW, _BURST, _FLOOR = "#009e73", "#56b4e9", "#e69f00", "#cc79a7"


def plan_page(plan: PlanDocument, seen: AverageDemand) -> HtmlPage:
    """The page of a plan."""
    batch, origin = plan.classes[0], plan.origin
    names = ", ".join(source.name for source in origin.sources) or "jobs"
    sizes = [
        f"late by size, {NAMES[way.name]}: {sizes_text(way)}" for way in batch.ways if way.name in {"plan", "floor"}
    ]
    says = [*batch.says, *sizes, *(plan.trial.says if plan.trial else ())]
    says += [f"left out: {count_text(left.jobs, 'job')}, because {left.why}" for left in origin.left_out]
    says += [*dropped_text(origin), *(f"of the sources: {found.says}" for found in origin.findings)]
    grids = [_level_grid(plan, batch), _edge_grid(plan, batch), _way_grid("A week on average", plan, batch.ways)]
    if plan.trial:
        grids.append(_way_grid("On trial: planned again each week from the past alone", plan, plan.trial.ways))
    grids.append(_signature_grid(plan))
    return HtmlPage(
        title="Tidegate plan",
        subtitle=f"{names} · {count_text(origin.jobs, 'job')} · {time_text(origin.to_ms - origin.from_ms)}",
        verdict=headline(plan).plain,
        tiles=_tiles(plan, batch),
        charts=[_demand_chart(plan, batch, seen), _week_chart(plan, batch, seen), _cost_chart(plan, batch, seen)],
        grids=grids,
        says=says,
        footer=f"made by {plan.made_by}, seed {plan.seed}; the engine decided {batch.twin.jobs:,} jobs again and "
        f"differed in {batch.twin.differing_starts:,}",
    )


def _tiles(plan: PlanDocument, batch: ClassPart) -> list[HtmlTile]:
    floor = batch.floor
    tiles = [
        HtmlTile(
            "to own", f"{batch.own_gpus:,} GPUs", f"always there, {plan.prices.own:g} {plan.prices.currency} an hour"
        ),
        HtmlTile(
            "floor without burst",
            f"{floor.gpus:,} GPUs",
            f"{span_text(floor.low_gpus, floor.high_gpus)}; waits stay within {within_text(batch)}",
        ),
    ]
    if batch.burst:
        after = duration_text(batch.burst.patience_ms)
        tiles.insert(1, HtmlTile("burst", f"≤ {batch.burst.ceiling_gpus:,} GPUs", f"when work has waited {after}"))
    tiles += [HtmlTile(answer.question, "", answer.says, answer.grade) for answer in plan.answers]
    return tiles


def _demand_chart(plan: PlanDocument, batch: ClassPart, seen: AverageDemand) -> HtmlChart:
    points = thin(seen.at_ms, seen.gpus, MOST_POINTS)
    level = _levels_at(plan, batch, np.array(points.at, np.int64))
    series = [
        ChartSeries("demand if nothing waited", points.mean, fill=True),
        ChartSeries("highest", points.top, colour="#999999"),
        ChartSeries("owned and booked", rounded(level), step=True, colour=_OWN),
        ChartSeries("floor", [float(batch.floor.gpus)] * len(points.at), dash=True, colour=_FLOOR),
    ]
    if batch.burst:
        top = level + batch.burst.ceiling_gpus
        series.append(ChartSeries("burst ceiling", rounded(top), step=True, dash=True, colour=_BURST))
    note = "Drag to zoom, double-click to see all; click a name to hide it." + axis_text(plan.origin.calendar)
    axis = "time" if plan.origin.calendar.dates else "elapsed"
    return HtmlChart("GPUs asked for, and the plan's levels", note, "GPUs", axis, points.at, series)


def _levels_at(plan: PlanDocument, batch: ClassPart, at_ms: np.ndarray) -> np.ndarray:
    by_hour = np.zeros(WEEK_HOURS)
    for window in batch.windows:
        for first, last in window.hours:
            by_hour[first:last] = window.gpus
    levels: np.ndarray = by_hour[hour_of_week(at_ms, plan.origin.calendar)]
    return levels


def _week_chart(plan: PlanDocument, batch: ClassPart, seen: AverageDemand) -> HtmlChart:
    hour = hour_of_week(seen.at_ms, plan.origin.calendar)
    groups = [seen.gpus[hour == row] for row in range(WEEK_HOURS)]
    known = [group if len(group) else np.array([np.nan]) for group in groups]
    low, middle, high = (np.array([quantile(group, share) for group in known]) for share in (0.1, 0.5, 0.9))
    level = np.zeros(WEEK_HOURS)
    for window in batch.windows:
        for first, last in window.hours:
            level[first:last] = window.gpus
    return HtmlChart(
        title="The week",
        note="The middle of the weeks that were seen, the band that holds eight of ten, and the plan's levels. "
        + clock_text(plan.origin.calendar),
        unit="GPUs",
        axis="week" if plan.origin.calendar.dates else "weekless",
        x=[float(row) for row in range(WEEK_HOURS)],
        series=[
            ChartSeries("p10 to p90", rounded(low), high=rounded(high)),
            ChartSeries("median", rounded(middle)),
            ChartSeries("owned and booked", rounded(level), step=True, colour=_OWN),
        ],
    )


def _cost_chart(plan: PlanDocument, batch: ClassPart, seen: AverageDemand) -> HtmlChart:
    """What a week costs if so many GPUs are owned and the rest is burst, had demand been as it was on average."""
    top = quantile(seen.gpus, 0.999) if len(seen.gpus) else 1.0
    owned = np.unique(np.round(np.linspace(0, max(top, batch.own_gpus * 1.2, 1), 160)))
    above = np.array([np.maximum(seen.gpus - gpus, 0).mean() for gpus in owned]) * WEEK_HOURS
    own_cost, burst_cost = owned * WEEK_HOURS * plan.prices.own, above * plan.prices.burst
    return HtmlChart(
        title="A week's cost by how many GPUs are owned",
        note="All of the past counts the same here; the plan counts recent weeks more.",
        unit=plan.prices.currency,
        axis="plain",
        x=[float(gpus) for gpus in owned],
        series=[
            ChartSeries("in all", rounded(own_cost + burst_cost)),
            ChartSeries("owned", rounded(own_cost), dash=True, colour=_OWN),
            ChartSeries("burst", rounded(burst_cost), dash=True, colour=_BURST),
        ],
    )


def _level_grid(plan: PlanDocument, batch: ClassPart) -> HtmlTable:
    rows = [("own", f"{batch.own_gpus:,}", "always", f"{plan.prices.own:g}")]
    rows += [
        ("book", f"+{window.booked_gpus:,}", window.name, f"{plan.prices.window:g}")
        for window in batch.windows
        if window.booked_gpus
    ]
    if batch.burst:
        when = f"work has waited {duration_text(batch.burst.patience_ms)}"
        rows.append(("burst", f"≤ {batch.burst.ceiling_gpus:,}", when, f"{plan.prices.burst:g}"))
    return HtmlTable("Capacity", ("", "GPUs", "when", f"{plan.prices.currency} a GPU-hour"), list(rows))


def _edge_grid(plan: PlanDocument, batch: ClassPart) -> HtmlTable:
    head = ("edge", "at GPUs", "hours it would be used", "hours from which it pays", "costs", "saves")
    rows = [
        (
            edge.name,
            f"{edge.gpus:,}",
            f"{edge.used_hours:.1f}",
            f"{edge.breaks_even_hours:.1f}",
            f"{edge.costs:,.0f}",
            f"{edge.saves:,.0f}",
        )
        for edge in batch.edges
    ]
    return HtmlTable(f"One GPU more, a week, in {plan.prices.currency}", head, list(rows))


def _way_grid(title: str, plan: PlanDocument, ways: tuple[WayPart, ...]) -> HtmlTable:
    head = ("", "GPU-hours held", "of them burst", f"cost, {plan.prices.currency}", "p95 wait", "late")
    rows = [
        (
            NAMES.get(way.name, way.name),
            f"{way.held_gpu_hours:,.0f}",
            f"{way.burst_gpu_hours:,.0f}",
            f"{way.cost:,.0f}",
            wait_words(way),
            percent_text(way.late_share),
        )
        for way in ways
    ]
    return HtmlTable(title, head, list(rows))


def _signature_grid(plan: PlanDocument) -> HtmlTable:
    rows = [(part.name, part.value, part.instead_of) for part in plan.signatures]
    return HtmlTable("Signed assumptions", ("", "value", "measured instead by"), list(rows), text=True)
