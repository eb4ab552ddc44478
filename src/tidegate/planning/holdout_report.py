"""The result of a holdout trial, as a part of the plan and in sentences: margin, regret, burst."""

from __future__ import annotations

from tidegate.measure.format import time_text
from tidegate.planning.capacity_plan import PlanRecipe
from tidegate.planning.capacity_replay import ReplayedWay
from tidegate.planning.holdout import Trial, try_plan
from tidegate.planning.kernels.replay import NEVER
from tidegate.planning.plan_schema import TrialPart, WeekPart
from tidegate.planning.plan_warnings import broken, way_part
from tidegate.planning.replay_jobs import PlanJobs


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
    """What knowing the future would have saved; whoever breaks the tolerance is compared with nobody who holds it."""
    said = []
    if trial.clairvoyant.holds:
        ways = (("bands alone", trial.static), ("the plan", trial.plan))
        told = [f"{name} {ratio(way, trial.clairvoyant):.2f}x" for name, way in ways if way.holds]
        said += ["of the clairvoyant's GPU-hours hold " + ", ".join(told)] if told else []
    if trial.plan.holds and trial.cheapest.holds and trial.cheapest.cost:
        cost = trial.plan.cost / trial.cheapest.cost - 1
        said.append(f"the plan costs {cost:+.1%} against the cheapest level in hindsight with the same burst")
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
