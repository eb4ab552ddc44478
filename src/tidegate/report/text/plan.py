"""The plan as text: what to own, book and burst, what it saves, and the trial on held-out time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from tidegate.demand.sentences import clock_text
from tidegate.measure.format import count_text, percent_text, time_text
from tidegate.model.arrays import F64
from tidegate.model.units import DAY_MS, duration_text
from tidegate.planning.floor import span_text
from tidegate.planning.plan_schema import ClassPart, OriginPart, PlanDocument, TrialPart, WayPart
from tidegate.planning.plan_warnings import broken, fewer_text, sizes_text, tolerance_text
from tidegate.planning.replay_jobs import NONE_ENDED
from tidegate.report.output_files import print_page
from tidegate.report.sparkline import demand_curve

GRADES = {"measured": "green", "partial": "yellow", "assumed": "red"}

#: Names of the alternatives to a plan.
NAMES = {
    "plan": "this plan",
    "plan without burst": "without its burst",
    "bands alone": "bands and a margin",
    "bands alone, no margin": "bands, no margin",
    "clairvoyant": "clairvoyant bands",
    "cheapest": "cheapest, hindsight",
    "floor": "the floor, constant",
    "p95": "the p95, constant",
    "peak": "the peak, constant",
}


class AverageDemand(NamedTuple):
    """Demand in even steps, as it would have been if nothing had waited."""

    at_ms: np.ndarray
    gpus: F64


def render_plan(plan: PlanDocument, seen: AverageDemand, console: Console) -> None:
    """Print the plan."""
    batch = plan.classes[0]
    parts: list[RenderableType] = [
        _title(plan),
        Text(),
        headline(plan),
        *(Text(f"· {sentence}", "dim") for sentence in batch.says),
        Text(),
        demand_curve(seen.at_ms, seen.gpus, _lines(batch), console.width),
        Text(),
        _levels(plan, batch),
        Text(),
        _edges(plan, batch),
        Text(),
        _ways("A week on average, on the time it was made from", batch.ways, plan.prices.currency),
    ]
    if plan.trial is not None:
        parts += [Text(), *_trial(plan, plan.trial)]
    parts += [Text(), _ground(plan, batch)]
    print_page(Stack(*parts), console)


def _lines(batch: ClassPart) -> list[tuple[str, float]]:
    """The levels that are named next to the curve."""
    top = max(window.gpus for window in batch.windows)
    lines = [("own", float(batch.own_gpus))]
    lines += [("windows", float(top))] if top > batch.own_gpus else []
    lines += [("burst", float(top + batch.burst.ceiling_gpus))] if batch.burst else []
    return [*lines, ("floor", float(batch.floor.gpus))]


def _title(plan: PlanDocument) -> Text:
    origin = plan.origin
    names = ", ".join(source.name for source in origin.sources) or "jobs"
    parts = (names, count_text(origin.jobs, "job"), time_text(origin.to_ms - origin.from_ms))
    return Text.assemble(("Tidegate plan", "bold cyan"), ("  " + "  ·  ".join(parts), "dim"))


def headline(plan: PlanDocument) -> Text:
    """The sentences to remember if one reads nothing else."""
    batch = plan.classes[0]
    ways = {way.name: way for way in batch.ways}
    mine, peak = ways["plan"], ways["peak"]
    saved = 1 - mine.held_gpu_hours / peak.held_gpu_hours if peak.held_gpu_hours else 0.0
    drawn = ("On jobs drawn from a demand model: ",) if plan.origin.sampled else ()
    owned = (*drawn, "Own ", (f"{batch.own_gpus:,} GPUs", "bold"))
    booked = max(window.booked_gpus for window in batch.windows)
    middle = (", book up to ", (f"{booked:,} more", "bold"), " by the hour of the week") if booked else ()
    burst = (", burst up to ", (f"{batch.burst.ceiling_gpus:,}", "bold")) if batch.burst else ()
    if not batch.holds:
        return Text.assemble(*owned, *middle, *burst, ": ", (broken(mine, batch.tolerance.wait_ms), "bold red"), ".")
    share = f"{batch.tolerance.share_milli / 10:g} %"
    return Text.assemble(
        *owned,
        *middle,
        *burst,
        f": {share} of the jobs wait at most ",
        (wait_words(mine), "bold"),
        ", and ",
        (fewer_text(saved), f"bold {'green' if saved > 0.2 else 'yellow'}"),
        f" GPU-hours are held {'as' if fewer_text(saved) == 'as many' else 'than'} for the peak of {peak.gpus:,.0f}.",
    )


def _levels(plan: PlanDocument, batch: ClassPart) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("capacity", "GPUs", "when", "price a GPU-hour"):
        table.add_column(name, justify="right" if name == "GPUs" else "left")
    prices, currency = plan.prices, plan.prices.currency
    table.add_row("own", f"{batch.own_gpus:,}", "always", f"{prices.own:g} {currency}")
    for window in batch.windows:
        if window.booked_gpus:
            table.add_row("book", f"+{window.booked_gpus:,}", window.name, f"{prices.window:g}")
    if batch.burst:
        after = duration_text(batch.burst.patience_ms)
        when = f"when work has waited {after}; there {duration_text(batch.burst.launch_ms)} later"
        table.add_row("burst", f"≤ {batch.burst.ceiling_gpus:,}", when, f"{prices.burst:g}")
    return table


def _edges(plan: PlanDocument, batch: ClassPart) -> Table:
    table = Table(title="One GPU more, a week", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.header_style = "dim"
    for name in ("edge", "at GPUs", "used h", "pays from h", f"costs {plan.prices.currency}", "saves"):
        table.add_column(name, justify="left" if name == "edge" else "right")
    for edge in batch.edges:
        if edge.name == "burst":
            continue
        row = (f"{edge.gpus:,}", f"{edge.used_hours:.0f}", f"{edge.breaks_even_hours:.0f}")
        table.add_row(edge.name, *row, f"{edge.costs:,.0f}", f"{edge.saves:,.0f}")
    return table


def _ways(title: str, ways: tuple[WayPart, ...], currency: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in ("", "GPU-hours", "", f"cost, {currency}", "p95 wait", "late"):
        table.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
    top = max((way.held_gpu_hours for way in ways), default=1.0) or 1.0
    for way in ways:
        bar = "█" * max(round(way.held_gpu_hours / top * 8), 1 if way.held_gpu_hours else 0)
        table.add_row(
            NAMES.get(way.name, way.name),
            f"{way.held_gpu_hours:,.0f}",
            Text(bar, "cyan" if way.name == "plan" else "dim"),
            f"{way.cost:,.0f}",
            Text(wait_words(way), "" if way.holds else "red"),
            percent_text(way.late_share),
        )
    return table


def wait_words(way: WayPart) -> str:
    """The wait that the share of jobs did not exceed."""
    return "for ever" if way.wait_ms is None else time_text(way.wait_ms)


def _trial(plan: PlanDocument, trial: TrialPart) -> list[RenderableType]:
    weeks = (trial.to_ms - trial.from_ms) / (7 * DAY_MS)
    title = f"On trial: the last {weeks:.1f} weeks, planned again each week from the past alone"
    terms = (
        f"By what was known when it began, work may wait {duration_text(trial.tolerance_ms)} and capacity takes "
        f"{duration_text(trial.cold_start_ms)} to start."
    )
    return [
        _ways(title, trial.ways, plan.prices.currency),
        Text(terms, "dim"),
        *_compared(trial),
        *(Text(f"· {sentence}", "dim") for sentence in trial.says),
    ]


def _compared(trial: TrialPart) -> list[RenderableType]:
    """The plan next to perfect foresight and next to buying for the peak; nothing if it breaks the tolerance."""
    said = []
    if trial.ratio_to_clairvoyant is not None:
        said.append(f"{trial.ratio_to_clairvoyant:.2f}x the clairvoyant's GPU-hours")
    if trial.saved_against_peak is not None:
        fewer = fewer_text(trial.saved_against_peak)
        said.append(f"{fewer} {'as' if fewer == 'as many' else 'than'} the peak of the past")
    return [Text(", ".join(said) + ".", "bold")] if said else []


def _ground(plan: PlanDocument, batch: ClassPart) -> Text:
    """What the plan rests on."""
    floor = batch.floor
    lines = [
        Text(
            f"Floor by replay: {floor.gpus:,} GPUs ({span_text(floor.low_gpus, floor.high_gpus)}) held without burst "
            f"keep waits within {within_text(batch)}; {floor.replays:,} replays.",
            "dim",
        ),
        Text(
            f"The engine decided {batch.twin.jobs:,} jobs again and differed in {batch.twin.differing_starts:,}.",
            "dim",
        ),
    ]
    lines += [
        Text(f"Late by size, {NAMES[way.name]}: {sizes_text(way)}.", "dim")
        for way in batch.ways
        if way.name in {"plan", "floor"}
    ]
    lines += [Text(clock_text(plan.origin.calendar), "dim")]
    lines += [Text(said, "yellow") for said in dropped_text(plan.origin)]
    lines += [_answer(answer.question, answer.grade, answer.says) for answer in plan.answers]
    lines += [
        Text.assemble(
            ("signed ", "bold yellow"), f"{part.name} = {part.value}", (f"  instead of {part.instead_of}", "dim")
        )
        for part in plan.signatures
    ]
    lines += [
        Text(f"left out: {count_text(left.jobs, 'job')}, because {left.why}", "dim") for left in plan.origin.left_out
    ]
    lines += [
        Text(f"{drawn_text(part.why)}: {count_text(part.jobs, 'job')}, because {part.why}", "dim")
        for part in plan.origin.drawn
    ]
    return Text("\n").join(lines)


def dropped_text(origin: OriginPart) -> list[str]:
    """What of the sources the plan is not made from."""
    rows = sum(source.rows for source in origin.sources) + origin.dropped_rows
    said = []
    if origin.dropped_rows:
        share = percent_text(origin.dropped_rows / rows)
        said.append(f"{share} of the rows ({origin.dropped_rows:,} of {rows:,}) were dropped, and are not planned for")
    if origin.unseen:
        days = sum(to_ms - from_ms for from_ms, to_ms in origin.unseen) / DAY_MS
        said.append(f"for {days:.1f} days nothing was recorded: levels leave them out")
    return said


def within_text(batch: ClassPart) -> str:
    """How long work may wait."""
    part = batch.tolerance
    return tolerance_text(part.wait_ms, part.interactive_ms, part.declared_jobs)


def drawn_text(why: str) -> str:
    """The source of runtimes that were not observed."""
    return "runtime assumed" if why == NONE_ENDED else "runtime drawn from like jobs"


def _answer(question: str, grade: str, says: str) -> Text:
    return Text.assemble((f"{grade:<9}", GRADES.get(grade, "")), f"{question} ", (says, "dim"))
