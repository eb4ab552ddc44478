"""Plans on time they have not seen: made anew each week from the past alone, replayed on the last third of real traces.

    python bench/plan_holdout.py --data ../shared/traces --json
    python bench/plan_holdout.py --data ../shared/traces --order strict

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

import polars as pl

from tidegate.demand.tables import Calendar
from tidegate.model.units import HOUR_MS, WEEK_MS, duration_text
from tidegate.planning.arrivals import Arrivals, arrivals_from
from tidegate.planning.bands import Recipe
from tidegate.planning.floor import Tolerance, smallest
from tidegate.planning.holdout import Entry, Trial, try_plan
from tidegate.planning.judge import Judge, Order, Span
from tidegate.planning.kernels.replay import NEVER
from tidegate.planning.trial import findings, ratio

ITP = ("01", "02", "04", "05", "07", "09")
MOST_RATIO, LEAST_SAVED, PEAKED = 1.35, 0.40, 2.0
HOLDOUT = 1 / 3


def read_itp(path: Path) -> Arrivals:
    """Jobs of a cluster; time is counted from the start of the trace."""
    rows = pl.read_csv(path)
    return _arrivals(rows, pl.col("submission_time") * 1000, "num_gpu", Calendar.NONE)


def read_philly(path: Path) -> Arrivals:
    """Jobs of all virtual clusters together."""
    at_ms = pl.col("timestamp").str.to_datetime("%Y-%m-%d %H:%M:%S", time_zone="UTC").dt.epoch("ms")
    return _arrivals(pl.read_csv(path).drop_nulls(), at_ms, "num_gpus", Calendar.EPOCH)


def _arrivals(rows: pl.DataFrame, at_ms: pl.Expr, gpus: str, calendar: Calendar) -> Arrivals:
    jobs = rows.with_row_index("row").select(
        pl.col("row").cast(pl.String).str.zfill(9).alias("id"),
        pl.lit("batch").alias("kind"),
        (pl.col(gpus) * 1000).cast(pl.Int64).alias("gpus_milli"),
        pl.lit(1).alias("pods"),
        at_ms.cast(pl.Int64).alias("submitted_ms"),
        (pl.col("duration") * 1000).cast(pl.Int64).alias("duration_ms"),
    )
    return arrivals_from(jobs, calendar)


def read_sets(data: Path) -> dict[str, Arrivals]:
    """Every set, by name."""
    sets = {f"itp/cluster{name}": read_itp(data / f"itp/cluster{name}.csv") for name in ITP}
    return {**sets, "philly": read_philly(data / "philly/philly.csv")}


def weekly_needs(arrivals: Arrivals, recipe: Recipe) -> list[int]:
    """The smallest capacity of each week, with what still ran from before."""
    judge = Judge(arrivals, recipe.order)
    first_ms, last_ms = arrivals.span_ms
    spans = [Span(at, min(at + WEEK_MS, last_ms) - 1) for at in range(first_ms, last_ms, WEEK_MS)]
    return [smallest(judge, recipe.tolerance, span) for span in spans]


def misses_of(entry: Entry, trial: Trial, recipe: Recipe) -> list[str]:
    """What was asked and not given, with the reason."""
    found, tolerated = [], recipe.tolerance.wait_ms
    if not entry.holds:
        waited = duration_text(entry.wait_ms) if entry.wait_ms < NEVER else "for ever"
        found.append(
            f"p95 wait {waited} is above {duration_text(tolerated)}: demand rose above what the past had shown"
            f" ({entry.late:.1%} of the jobs late)"
        )
    share = ratio(entry, trial.clairvoyant)
    if share > MOST_RATIO:
        planned, needed = max(entry.gpus), max(trial.clairvoyant.gpus)
        found.append(
            f"{share:.2f}x the clairvoyant is above {MOST_RATIO}x: the past asked for {planned:,.0f} GPUs,"
            f" these weeks needed {needed:,.0f}; demand fell, and nothing in the past foretold it"
        )
    saved = 1 - ratio(entry, trial.peak)
    if trial.peaked and saved < LEAST_SAVED:
        found.append(f"{saved:.0%} fewer GPU-hours than the peak is below {LEAST_SAVED:.0%}")
    return found


def told(entry: Entry, trial: Trial) -> dict[str, Any]:
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


def run_set(name: str, arrivals: Arrivals, recipe: Recipe) -> dict[str, Any]:
    """One set on trial."""
    began = time.perf_counter()
    trial = try_plan(arrivals, HOLDOUT, recipe)
    entries = (trial.plan, trial.without_burst, trial.static, trial.no_margin, trial.clairvoyant, trial.cheapest)
    misses = {entry.name: misses_of(entry, trial, recipe) for entry in (trial.plan, trial.static)}
    return {
        "set": name,
        "jobs": trial.jobs,
        "weeks": trial.weeks,
        "windows": list(trial.bands[0].windows.names),
        "weekly_needs": weekly_needs(arrivals, recipe),
        "peak_to_p95": round(trial.peak_gpus_known / max(trial.p95_gpus_known, 1e-9), 2),
        "used_gpu_h": round(trial.used_gpu_h),
        "ways": {entry.name: told(entry, trial) for entry in (*entries, trial.p95, trial.peak)},
        "ceilings": [bands.ceiling_gpus for bands in trial.bands],
        "says": findings(trial),
        "misses": misses,
        "passes": {entry: not found for entry, found in misses.items()},
        "took_s": round(time.perf_counter() - began, 2),
    }


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
    parser.add_argument("--order", type=Order, choices=list(Order), default=Order.OVERTAKE)
    parser.add_argument("--set", action="append", help="only this set; may be repeated")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    recipe = Recipe(Tolerance(HOUR_MS), order=args.order)
    sets = {name: jobs for name, jobs in read_sets(args.data).items() if not args.set or name in args.set}
    results = []
    for name, arrivals in sets.items():
        results.append(run_set(name, arrivals, recipe))
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
