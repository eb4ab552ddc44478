"""How good forecasts are: helios_earth (running and pending GPUs) and servegen m-large (requests per second).

    python bench/forecast.py --data ../shared/traces --json

Rolling over the last third of each series, at 10 minutes, 1 hour and 24 hours ahead, with the forecaster that the
product uses. Loss is the pinball loss, mean over the quantiles 0.05 to 0.95, beside a seasonal naive forecast (a week
ago) and the last value. Bands of 90 % should cover 87 to 93 % of what came. Exits 1 where a must is missed.

The settings of the forecaster were chosen with a look at these two sets. `--others` shows what they are worth on sets
that nobody looked at then: GPUs asked for in itp and philly, whole and in pieces of two weeks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plan_holdout import read_sets
from tidegate.demand.forecast import LevelSeries, Score, roll, score
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from tidegate.planning.concurrency import average, curve_of

HORIZONS = {"10m": 10 * MINUTE_MS, "1h": HOUR_MS, "24h": 24 * HOUR_MS}
LOW, HIGH = 0.87, 0.93

#: A piece that asks for less on average is next to nothing.
LEAST_GPUS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/traces"))
    parser.add_argument("--others", action="store_true", help="also on sets that no setting was chosen with")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(read_helios(options.data), read_servegen(options.data))
    if options.others:
        result["others"] = measure_others(read_others(options.data))
    print(json.dumps(result, indent=1) if options.json else _table(result))
    return 0 if result["holds"] else 1


def read_helios(data: Path) -> dict[str, LevelSeries]:
    """Running and pending GPUs by virtual cluster and in total, by the minute."""
    found = {}
    for path in sorted((data / "helios_earth").glob("earth_*.csv.gz")):
        table = pl.read_csv(path)
        asked = (table["running_gpu_num"] + table["pending_gpu_num"]).to_numpy().astype(np.float64)
        found[path.name.split("_")[1]] = LevelSeries(asked, MINUTE_MS)
    total = np.sum([series.values for series in found.values()], axis=0)
    return {**found, "total": LevelSeries(total, MINUTE_MS)}


def read_servegen(data: Path) -> dict[str, LevelSeries]:
    """Requests per second of all clients together, by ten minutes."""
    table = pl.read_csv(data / "servegen" / "language_m-large_clients.csv.gz")
    rates = table.group_by("ts_s").agg(pl.col("rate_rps").sum()).sort("ts_s")["rate_rps"].to_numpy()
    return {"m-large": LevelSeries(rates, 10 * MINUTE_MS)}


def read_others(data: Path) -> dict[str, dict[str, LevelSeries]]:
    """GPUs asked for, if nothing waited, in steps of a quarter of an hour: whole traces, and pieces of two weeks."""
    whole = {}
    for name, jobs in read_sets(data).items():
        at_ms, gpus = average(curve_of(jobs), *jobs.span_ms)
        whole[name] = LevelSeries(gpus, int(at_ms[1] - at_ms[0]))
    pieces = {}
    for name, series in whole.items():
        length = series.steps(14 * DAY_MS)
        for row in range(min(series.values.size // length, 4)):
            piece = series.values[row * length : (row + 1) * length]
            if piece.mean() > LEAST_GPUS:
                pieces[f"{name}/{row}"] = LevelSeries(piece, series.step_ms)
    return {"whole": whole, "two weeks": pieces}


def measure_others(sets: dict[str, dict[str, LevelSeries]]) -> dict[str, Any]:
    """Coverage, mean over the series; and the loss over that of the better naive forecast, the median of the series."""
    found: dict[str, Any] = {}
    for name, horizon_ms in (("1h", HOUR_MS), ("24h", DAY_MS)):
        for label, series in sets.items():
            scores = [_score(one, horizon_ms) for one in series.values()]
            losses = [one.pinball / max(min(one.last_value, one.seasonal_naive), 1e-9) for one in scores]
            coverage = float(np.mean([one.coverage for one in scores]))
            told = {"series": len(scores), "coverage": coverage, "loss_to_naive": float(np.median(losses))}
            found[f"{label}, {name}"] = told
    return found


def measure(helios: dict[str, LevelSeries], servegen: dict[str, LevelSeries]) -> dict[str, Any]:
    sets = {"helios_earth": helios, "servegen": servegen}
    horizons: dict[str, Any] = {}
    holds = True
    began = time.perf_counter()
    for name, horizon_ms in HORIZONS.items():
        rows = {
            label: {key: _score(series, horizon_ms) for key, series in parts.items()} for label, parts in sets.items()
        }
        sums = {label: _pool(list(parts.values())) for label, parts in rows.items()}
        pooled = _pool([one for parts in rows.values() for one in parts.values()])["coverage"]
        good = all(one["pinball"] < min(one["last_value"], one["seasonal_naive"]) for one in sums.values())
        holds = holds and good and LOW <= pooled <= HIGH
        horizons[name] = {
            "sets": sums,
            "coverage_pooled": pooled,
            "below_both": good,
            "series": {label: {key: one._asdict() for key, one in parts.items()} for label, parts in rows.items()},
        }
    everything = [Score(**one) for at in horizons.values() for parts in at["series"].values() for one in parts.values()]
    return {
        "holds": holds,
        "coverage_pooled": _pool(everything)["coverage"],
        "coverage_mean_of_sets": float(
            np.mean([[at["sets"][label]["coverage"] for label in sets] for at in horizons.values()])
        ),
        "seconds": round(time.perf_counter() - began, 1),
        "horizons": horizons,
    }


def _score(series: LevelSeries, horizon_ms: int) -> Score:
    first = series.values.size - series.values.size // 3
    return score(roll(series, horizon_ms, first), series)


def _pool(scores: list[Score]) -> dict[str, float]:
    """Losses add up over the series of a set; coverage is that of all forecasts together."""
    origins = np.array([one.origins for one in scores])
    covered = float((np.array([one.coverage for one in scores]) * origins).sum() / origins.sum())
    sums = {
        name: float(sum(getattr(one, name) for one in scores)) for name in ("pinball", "last_value", "seasonal_naive")
    }
    return {**sums, "coverage": covered, "origins": int(origins.sum())}


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'ahead':6} {'set':14} {'pinball':>8} {'last':>8} {'seasonal':>9} {'covered':>8}"]
    for name, at in result["horizons"].items():
        lines += [
            f"{name:6} {label:14} {one['pinball']:8.2f} {one['last_value']:8.2f} {one['seasonal_naive']:9.2f} "
            f"{100 * one['coverage']:6.1f} %"
            for label, one in at["sets"].items()
        ]
        lines.append(f"{name:6} {'both':14} {100 * at['coverage_pooled']:44.1f} %")
    for name, one in result.get("others", {}).items():
        covered, loss = f"{100 * one['coverage']:.1f} %", f"{one['loss_to_naive']:.2f}x the better naive one"
        lines.append(f"{name} ahead: {one['series']} series, covered {covered}, loss {loss}")
    return "\n".join([*lines, f"holds: {result['holds']}"])


if __name__ == "__main__":
    sys.exit(main())
