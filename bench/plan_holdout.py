"""Plans on time they have not seen: made anew each week from the past alone, replayed on the last third of real traces.

    python bench/plan_holdout.py --data ../shared/traces --json
    python bench/plan_holdout.py --data ../shared/traces --order strict
    python bench/plan_holdout.py --data ../shared/traces --rules

`--rules` is how half-life, margin and memory were chosen: on the middle third, from the first, the last one unseen.

Asked of each set: the 95th percentile of waits stays within 1 h; the GPU-hours held are at most 1.35x those of the
clairvoyant, who knows what is to come and holds the same windows; and where the peak is at least twice the p95, at
least 40 % fewer than peak provisioning. Burst counts, from its launch. Two plans are on trial: the plan, with a burst
band that is switched on when work has waited too long, and bands alone. Every miss is listed with its reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tidegate.model.units import HOUR_MS, WEEK_MS, duration_text
from tidegate.planning.capacity import ALWAYS
from tidegate.planning.capacity_plan import PlanRecipe
from tidegate.planning.capacity_replay import CapacityReplayer, QueueOrder, ReplayedWay, ReplaySpan
from tidegate.planning.floor import smallest
from tidegate.planning.holdout import Trial, TrialRunner, findings, ratio, try_plan
from tidegate.planning.kernels.replay import NEVER
from tidegate.planning.replay_jobs import PlanJobs, known_at, plan_jobs_of
from tidegate.planning.tolerance import WaitTolerance
from tidegate.planning.windows import day_night_weekend
from tidegate.sources.options import Format, SourceOptions
from tidegate.sources.read_sources import read_sources

ITP = ("01", "02", "04", "05", "07", "09")
MOST_RATIO, LEAST_SAVED, PEAKED = 1.35, 0.40, 2.0
HOLDOUT = 1 / 3


def read_set(path: Path, form: Format) -> PlanJobs:
    """The jobs of a trace; of philly, of all virtual clusters together."""
    return plan_jobs_of(read_sources([str(path)], SourceOptions(form)).tables)


def read_sets(data: Path) -> dict[str, PlanJobs]:
    """Every set, by name."""
    sets = {f"itp/cluster{name}": read_set(data / f"itp/cluster{name}.csv", Format.ITP) for name in ITP}
    return {**sets, "philly": read_set(data / "philly/philly.csv", Format.PHILLY)}


def weekly_needs(jobs: PlanJobs, recipe: PlanRecipe) -> list[int]:
    """The smallest capacity of each week, with what still ran from before."""
    replayer = CapacityReplayer(jobs, recipe.order)
    first_ms, last_ms = jobs.span_ms
    spans = [ReplaySpan(at, min(at + WEEK_MS, last_ms) - 1) for at in range(first_ms, last_ms, WEEK_MS)]
    return [smallest(replayer, recipe.tolerance, span) for span in spans]


def misses_of(entry: ReplayedWay, trial: Trial, recipe: PlanRecipe) -> list[str]:
    """What was asked and not given, with the reason."""
    found, tolerated = [], recipe.tolerance.wait_ms
    if not entry.holds:
        sizes = [each for each in entry.sizes if each.counts]
        worst = max([entry.wait_ms, *(each.wait_ms for each in sizes)])
        waited = duration_text(worst) if worst < NEVER else "for ever"
        found.append(
            f"p95 wait {waited}, of all or of a size, is above {duration_text(tolerated)}"
            f": demand rose above what the past had shown ({entry.late:.1%} of the jobs late)"
        )
    share = ratio(entry, trial.clairvoyant)
    if share > MOST_RATIO:
        planned, needed = max(entry.gpus), max(trial.clairvoyant.gpus)
        found.append(
            f"{share:.2f}x the clairvoyant is above {MOST_RATIO}x: the past asked for {planned:,.0f} GPUs,"
            f" these weeks needed {needed:,.0f}; demand fell, and nothing in the past foretold it"
        )
    saved = 1 - ratio(entry, trial.peak)
    if trial.peak_gpus_known >= 2 * trial.p95_gpus_known and saved < LEAST_SAVED:
        found.append(f"{saved:.0%} fewer GPU-hours than the peak is below {LEAST_SAVED:.0%}")
    return found


def told(entry: ReplayedWay, trial: Trial) -> dict[str, Any]:
    """An entry in numbers."""
    return {
        "gpus_by_week": [round(gpus, 1) for gpus in entry.gpus],
        "p95_wait_s": entry.wait_ms // 1000 if entry.wait_ms < NEVER else None,
        "worst_wait_s": entry.worst_wait_ms // 1000 if entry.worst_wait_ms < NEVER else None,
        "late_share": round(entry.late, 5),
        "holds": entry.holds,
        "held_gpu_h": round(entry.held_gpu_h),
        "burst_gpu_h": round(entry.burst_gpu_h),
        "ratio_to_clairvoyant": round(ratio(entry, trial.clairvoyant), 3),
        "saved_against_peak": round(1 - ratio(entry, trial.peak), 3),
        "cost": round(entry.cost),
        "cost_to_cheapest": round(entry.cost / trial.cheapest.cost, 3) if trial.cheapest.cost else None,
    }


def run_set(name: str, jobs: PlanJobs, recipe: PlanRecipe) -> dict[str, Any]:
    """One set on trial."""
    began = time.perf_counter()
    trial = try_plan(jobs, HOLDOUT, recipe)
    entries = (trial.plan, trial.without_burst, trial.static, trial.no_margin, trial.clairvoyant, trial.cheapest)
    misses = {entry.name: misses_of(entry, trial, recipe) for entry in (trial.plan, trial.static)}
    return {
        "set": name,
        "jobs": trial.jobs,
        "weeks": len(trial.bands),
        "windows": list(trial.bands[0].windows.names),
        "weekly_needs": weekly_needs(jobs, recipe),
        "peak_to_p95": round(trial.peak_gpus_known / max(trial.p95_gpus_known, 1e-9), 2),
        "used_gpu_h": round(trial.used_gpu_h),
        "ways": {entry.name: told(entry, trial) for entry in (*entries, trial.p95, trial.peak)},
        "ceilings": [bands.ceiling_gpus for bands in trial.bands],
        "says": findings(trial),
        "misses": misses,
        "passes": {entry: not found for entry, found in misses.items()},
        "took_s": round(time.perf_counter() - began, 2),
    }


def try_rules(sets: dict[str, PlanJobs], recipe: PlanRecipe) -> dict[str, Any]:
    """Rules for plans, tried on the middle third of each set: nothing of the last third is read."""
    runners = [_runner(known_at(jobs, _two_thirds(jobs)), recipe) for jobs in sets.values()]
    found: dict[str, Any] = {}
    for headroom in (1000, 1250, 1500, 2000):
        for weeks in (0.0, 0.5, 1.0, 2.0, 4.0):
            rule = recipe._replace(half_life_ms=int(weeks * WEEK_MS), headroom_milli=headroom)
            found[f"burst, half-life {weeks:g} weeks, headroom {headroom / 1000:g}"] = _try_burst(runners, rule)
    foreseen = [runner.foresee(ALWAYS) for runner in runners]
    for memory in (2, 4, 99):
        for margin in (1000, 1050, 1100, 1200):
            rule = recipe._replace(recent_ms=memory * WEEK_MS, margin_milli=margin, bursts=False, windows=ALWAYS)
            found[f"bands alone, {memory} weeks x {margin / 1000:g}"] = _try_alone(runners, foreseen, rule)
    return found


def _runner(jobs: PlanJobs, recipe: PlanRecipe) -> TrialRunner:
    first_ms, last_ms = jobs.span_ms
    return TrialRunner(jobs, recipe, ReplaySpan((first_ms + last_ms) // 2, last_ms))


def _try_burst(runners: list[TrialRunner], rule: PlanRecipe) -> dict[str, Any]:
    plans = [runner.plan_weekly(rule) for runner in runners]
    tried = [runner.enter_bands("", plan, rule.burst_rule()) for runner, plan in zip(runners, plans, strict=True)]
    best = [
        runner.cheapest(max(bands.ceiling_gpus for bands in plan)) for runner, plan in zip(runners, plans, strict=True)
    ]
    regrets = [round(one.cost / other.cost, 3) for one, other in zip(tried, best, strict=True)]
    return {"held": sum(one.holds for one in tried), "cost_to_cheapest": regrets, "mean": _mean(regrets)}


def _try_alone(runners: list[TrialRunner], foreseen: list[ReplayedWay], rule: PlanRecipe) -> dict[str, Any]:
    tried = [runner.enter_bands("", runner.plan_weekly(rule)) for runner in runners]
    ratios = [round(ratio(one, other), 3) for one, other in zip(tried, foreseen, strict=True)]
    good = sum(one.holds and share <= MOST_RATIO for one, share in zip(tried, ratios, strict=True))
    return {"held": sum(one.holds for one in tried), "within_ratio": good, "ratio": ratios, "mean": _mean(ratios)}


def _two_thirds(jobs: PlanJobs) -> int:
    first_ms, last_ms = jobs.span_ms
    return last_ms - int((last_ms - first_ms) * HOLDOUT)


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4)


def show(result: dict[str, Any]) -> None:
    """One set, for people."""
    print(f"{result['set']}: {result['jobs']:,} jobs in {result['weeks']} weeks, peak/p95 {result['peak_to_p95']}")
    for name, way in result["ways"].items():
        waited = "for ever" if way["p95_wait_s"] is None else duration_text(way["p95_wait_s"] * 1000)
        print(
            f"  {name:<24}{way['held_gpu_h']:>11,} GPU-h {way['ratio_to_clairvoyant']:>6.2f}x  p95 wait {waited:<9}"
            f" late {way['late_share']:>6.1%}  cost {way['cost']:>9,}"
        )
    for sentence in result["says"]:
        print(f"  {sentence}")
    for name, missed in result["misses"].items():
        print(f"  {name}: " + ("; ".join(missed) if missed else "all held"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/traces"))
    parser.add_argument("--order", type=QueueOrder, choices=list(QueueOrder), default=QueueOrder.OVERTAKE)
    parser.add_argument("--set", action="append", help="only this set; may be repeated")
    parser.add_argument("--windows", action="store_true", help="day, night and weekend, whether they pay or not")
    parser.add_argument("--rules", action="store_true", help="how the rules of plans were chosen")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    recipe = PlanRecipe(WaitTolerance(HOUR_MS), order=args.order)
    sets = {name: jobs for name, jobs in read_sets(args.data).items() if not args.set or name in args.set}
    if args.rules:
        for name, found in try_rules(sets, recipe).items():
            print(f"{name:<32} {json.dumps(found)}")
        return 0
    results = []
    for name, jobs in sets.items():
        windows = day_night_weekend(8, 12, 5, jobs.calendar) if args.windows else None
        results.append(run_set(name, jobs, recipe._replace(windows=windows)))
        if not args.json:
            show(results[-1])
    missed = [f"{r['set']}, {way}: {miss}" for r in results for way, found in r["misses"].items() for miss in found]
    passed = {way: sum(r["passes"][way] for r in results) for way in results[0]["passes"]}
    if args.json:
        print(
            json.dumps(
                {"order": args.order, "passed": passed, "sets": len(results), "misses": missed, "results": results}
            )
        )
    else:
        print(f"passed: {passed} of {len(results)} sets")
    return 0 if passed["plan"] == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
