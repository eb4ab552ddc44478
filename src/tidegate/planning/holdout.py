"""Holdout trial of a plan (backtest): planned each week from the past alone, replayed on the last part of a trace.

It is compared with the peak, with the 95th percentile, and with the least capacity for one who knows the future
(clairvoyant, same windows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tidegate.measure.format import time_text
from tidegate.model.units import HOUR_MS, WEEK_MS, WHOLE_MILLI
from tidegate.planning.capacity import ALWAYS, SHUT, WeekWindows, WindowLevels, constant, steps_of
from tidegate.planning.capacity_plan import Bands, PlanRecipe, least_levels, plan_bands
from tidegate.planning.capacity_replay import CapacityReplayer, ReplayedWay, ReplaySpan, cost_of, way_of
from tidegate.planning.concurrency import curve_of, peak_milli, quantile_milli, used_gpu_h
from tidegate.planning.kernels.replay import NEVER, BurstRule, Steps
from tidegate.planning.plan_schema import TrialPart, WeekPart
from tidegate.planning.plan_warnings import broken, way_part
from tidegate.planning.replay_jobs import PlanJobs, known_at


class Trial(NamedTuple):
    """A plan and the alternatives to it."""

    span: ReplaySpan
    recipe: PlanRecipe
    jobs: int
    plan: ReplayedWay
    without_burst: ReplayedWay  # the plan's owned and booked levels alone
    static: ReplayedWay  # bands only, with a margin
    no_margin: ReplayedWay  # the same without it
    clairvoyant: ReplayedWay  # bands only, the same windows, with the future known
    cheapest: ReplayedWay  # owned and burst, with the future known
    peak: ReplayedWay  # the peak of the past
    p95: ReplayedWay  # the 95th percentile of the past
    used_gpu_h: float  # what the jobs used if nothing waited: no capacity holds less
    peak_gpus_known: float  # of all that was known when the trial began
    p95_gpus_known: float
    bands: tuple[Bands, ...]  # by week
    week_ms: tuple[int, ...]  # when each began


def held_out(jobs: PlanJobs, share: float) -> ReplaySpan:
    """The last share of the time."""
    first_ms, last_ms = jobs.span_ms
    return ReplaySpan(last_ms - int((last_ms - first_ms) * share), last_ms)


def try_plan(jobs: PlanJobs, share: float, recipe: PlanRecipe, seed: int = 0) -> Trial:
    """Hold out a share of the time and try the plan on it; the recipe must be what was known when that time began."""
    span, first_ms = held_out(jobs, share), jobs.span_ms[0]
    runner = TrialRunner(jobs, recipe, span, seed)
    bands = runner.plan_weekly(recipe)
    fixed = recipe._replace(windows=bands[0].windows)
    curve, known = curve_of(jobs), curve_of(runner.known(span.from_ms))
    return Trial(
        span=span,
        recipe=recipe,
        jobs=int((jobs.at_ms >= span.from_ms).sum()),
        plan=runner.enter_bands("plan", bands, recipe.burst_rule()),
        without_burst=runner.enter_bands("plan without burst", bands),
        static=runner.enter_bands("bands alone", runner.plan_weekly(fixed._replace(bursts=False))),
        no_margin=runner.enter_bands(
            "bands alone, no margin", runner.plan_weekly(fixed._replace(bursts=False, margin_milli=1000))
        ),
        clairvoyant=runner.foresee(bands[0].windows),
        cheapest=runner.cheapest(max(each.ceiling_gpus for each in bands)),
        peak=runner.enter("peak", runner.steps_by(lambda past, now: peak_milli(curve_of(past), first_ms, now))),
        p95=runner.enter("p95", runner.steps_by(lambda past, now: quantile_milli(curve_of(past), first_ms, now, 0.95))),
        used_gpu_h=used_gpu_h(curve, *span),
        peak_gpus_known=peak_milli(known, first_ms, span.from_ms) / WHOLE_MILLI,
        p95_gpus_known=quantile_milli(known, first_ms, span.from_ms, 0.95) / WHOLE_MILLI,
        bands=tuple(bands),
        week_ms=tuple(runner.mondays),
    )


class TrialRunner:
    """Where plans are tried on one stretch of time."""

    def __init__(self, jobs: PlanJobs, recipe: PlanRecipe, span: ReplaySpan, seed: int = 0) -> None:
        self.jobs, self.recipe, self.span, self.seed = jobs, recipe, span, seed
        self.replayer = CapacityReplayer(jobs, recipe.order)
        self.mondays = list(range(span.from_ms, span.to_ms, WEEK_MS))
        self._known: dict[int, PlanJobs] = {}

    def known(self, now_ms: int) -> PlanJobs:
        """The jobs as they were known at a time."""
        if now_ms not in self._known:
            self._known[now_ms] = known_at(self.jobs, now_ms, self.seed)
        return self._known[now_ms]

    def plan_weekly(self, recipe: PlanRecipe) -> list[Bands]:
        """A plan for each week, each from what was known when it began; windows stay as they were first chosen."""
        bands: list[Bands] = []
        for now_ms in self.mondays:
            fixed = recipe._replace(windows=bands[0].windows) if bands else recipe
            bands.append(plan_bands(self.known(now_ms), now_ms, fixed))
        return bands

    def steps(self, bands: list[Bands]) -> Steps:
        """Weekly plans, one after the other."""
        levels = [each.level(now_ms) for now_ms, each in zip(self.mondays, bands, strict=True)]
        return steps_of(levels, self.span.to_ms, self.jobs.calendar)

    def steps_by(self, level_milli: Callable[[PlanJobs, int], int]) -> Steps:
        """One level a week, from what was known when it began."""
        levels = [WindowLevels(now_ms, ALWAYS, (level_milli(self.known(now_ms), now_ms),)) for now_ms in self.mondays]
        return steps_of(levels, self.span.to_ms, self.jobs.calendar)

    def enter_bands(self, name: str, bands: list[Bands], burst_rule: BurstRule = SHUT) -> ReplayedWay:
        """Replay weekly plans; what each owns is owned for as much of its week as lies in the stretch."""
        hours = [(min(at_ms + WEEK_MS, self.span.to_ms) - at_ms) / HOUR_MS for at_ms in self.mondays]
        own_gpu_h = sum(each.own_gpus * length for each, length in zip(bands, hours, strict=True))
        return self.enter(name, self.steps(bands), burst_rule, own_gpu_h)

    def enter(self, name: str, steps: Steps, rule: BurstRule = SHUT, own_gpu_h: float | None = None) -> ReplayedWay:
        """Replay a capacity on the stretch; without `own_gpu_h`, all capacity that is always there is owned."""
        outcome = self.replayer.replay(steps, rule, self.span)
        own_gpu_h = outcome.owned_gpu_h if own_gpu_h is None else own_gpu_h
        cost = cost_of(outcome, own_gpu_h, self.recipe.prices)
        gpus = tuple(self._mean_gpus(steps, now_ms) for now_ms in self.mondays)
        return way_of(outcome, self.recipe.tolerance, name, gpus, cost)

    def _mean_gpus(self, steps: Steps, from_ms: int) -> float:
        to_ms = min(from_ms + WEEK_MS, self.span.to_ms)
        return level_gpu_h(steps, from_ms, to_ms) / max((to_ms - from_ms) / HOUR_MS, 1e-9)

    def foresee(self, windows: WeekWindows) -> ReplayedWay:
        """The least GPU-hours with the same windows that hold the tolerance, for one who knows what is to come."""
        gpus = least_levels(self.replayer, windows, self.recipe.tolerance, self.span)
        level = WindowLevels(self.span.from_ms, windows, tuple(each * WHOLE_MILLI for each in gpus))
        steps = steps_of([level], self.span.to_ms, self.jobs.calendar)
        return self.enter("clairvoyant", steps, own_gpu_h=min(gpus) * self.span.hours)

    def cheapest(self, ceiling_gpus: int) -> ReplayedWay:
        """The level to own that would have cost least with the same burst, for one who knows what is to come."""
        ceiling_milli, burst_rule = ceiling_gpus * WHOLE_MILLI, self.recipe.burst_rule()
        top = peak_milli(curve_of(self.jobs), *self.span) // WHOLE_MILLI
        tried: dict[int, ReplayedWay] = {}
        grid = range(0, top + 1, max(top // 16, 1))
        while True:
            for gpus in grid:
                if gpus not in tried:
                    steps = constant(gpus * WHOLE_MILLI, self.span.from_ms, ceiling_milli)
                    tried[gpus] = self.enter("cheapest", steps, burst_rule)
            best = min(tried, key=lambda gpus: (not tried[gpus].holds, tried[gpus].cost, gpus))
            step = grid.step
            if step == 1:
                return tried[best]
            grid = range(max(best - step, 0), min(best + step, top) + 1, max(step // 4, 1))


def level_gpu_h(steps: Steps, from_ms: int, to_ms: int) -> float:
    """GPU-hours of the steps between two times."""
    first = int(np.searchsorted(steps.at_ms, from_ms, side="right")) - 1
    last = int(np.searchsorted(steps.at_ms, to_ms, side="left"))
    edges = np.clip(np.append(steps.at_ms[first:last], to_ms), from_ms, to_ms)
    return float((np.diff(edges) * (steps.level_milli[first:last] / WHOLE_MILLI)).sum()) / HOUR_MS


def trial_part(jobs: PlanJobs, share: float, recipe: PlanRecipe, seed: int) -> TrialPart:
    """Try the plan on the last part of the time, and say how it went."""
    return part_of(try_plan(jobs, share, recipe, seed))


def part_of(trial: Trial) -> TrialPart:
    """A trial as a part of the document."""
    ways = (
        trial.plan,
        trial.without_burst,
        trial.static,
        trial.no_margin,
        trial.clairvoyant,
        trial.cheapest,
        trial.p95,
        trial.peak,
    )
    return TrialPart(
        from_ms=trial.span.from_ms,
        to_ms=trial.span.to_ms,
        jobs=trial.jobs,
        tolerance_ms=trial.recipe.tolerance.wait_ms,
        cold_start_ms=trial.recipe.launch.launch_ms,
        weeks=tuple(
            WeekPart(
                from_ms=from_ms,
                own_gpus=bands.own_gpus,
                window_gpus=bands.window_gpus,
                ceiling_gpus=bands.ceiling_gpus,
            )
            for from_ms, bands in zip(trial.week_ms, trial.bands, strict=True)
        ),
        used_gpu_hours=round(trial.used_gpu_h, 3),
        ways=tuple(way_part(way) for way in ways),
        ratio_to_clairvoyant=round(ratio(trial.plan, trial.clairvoyant), 4)
        if trial.plan.holds and trial.clairvoyant.holds
        else None,
        saved_against_peak=round(1 - ratio(trial.plan, trial.peak), 4) if trial.plan.holds else None,
        says=tuple(findings(trial)),
    )


def ratio(one: ReplayedWay, other: ReplayedWay) -> float:
    """GPU-hours held, to those of another."""
    return one.held_gpu_h / other.held_gpu_h if other.held_gpu_h else 0.0


def findings(trial: Trial) -> list[str]:
    """What the trial shows."""
    said = [_broken(trial), _margin(trial), _regret(trial), _burst(trial)]
    return [sentence for sentence in said if sentence]


def wait_text(entry: ReplayedWay) -> str:
    """The wait that the share of jobs did not exceed, in words."""
    return time_text(entry.wait_ms) if entry.wait_ms < NEVER else "for ever"


def _broken(trial: Trial) -> str:
    """That the plan did not do what it is for."""
    if trial.plan.holds:
        return ""
    said = broken(way_part(trial.plan), trial.recipe.tolerance.wait_ms)
    return f"on trial {said}; its cost is not compared with ways that hold it"


def _margin(trial: Trial) -> str:
    """What a margin on bands alone buys."""
    bare, safe = trial.no_margin, trial.static
    more = safe.held_gpu_h - bare.held_gpu_h
    bought = f"p95 wait {wait_text(bare)} becomes {wait_text(safe)}, late jobs {bare.late:.1%} become {safe.late:.1%}"
    verdict = "holds" if safe.holds else "still breaks the tolerance"
    return f"bands alone: a margin costs {more:,.0f} GPU-hours and buys this: {bought}; with it the plan {verdict}"


def _regret(trial: Trial) -> str:
    """What knowing the future would have saved; only ways that hold the tolerance are compared."""
    said = []
    if trial.clairvoyant.holds:
        ways = (("bands alone", trial.static), ("the plan", trial.plan))
        told = [f"{name} {ratio(way, trial.clairvoyant):.2f}x" for name, way in ways if way.holds]
        said += ["of the clairvoyant's GPU-hours hold " + ", ".join(told)] if told else []
    if trial.plan.holds and trial.cheapest.holds and trial.cheapest.cost:
        cost = trial.plan.cost / trial.cheapest.cost - 1
        said.append(f"the plan costs {cost:+.1%} against the cheapest level for a known future, with the same burst")
    return "regret: " + "; ".join(said) if said else ""


def _burst(trial: Trial) -> str:
    """What only burst serves."""
    if not trial.plan.burst_gpu_h:
        return ""
    alone, part = trial.without_burst, trial.plan.burst_gpu_h / trial.plan.held_gpu_h
    return (
        f"burst: {trial.plan.burst_gpu_h:,.0f} GPU-hours ({part:.0%} of what is held); "
        f"without it {alone.late:.0%} of the jobs would be late and the p95 wait would be {wait_text(alone)}"
    )
