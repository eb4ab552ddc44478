"""How good forecasts are: helios_earth (running and pending GPUs) and servegen m-large (requests per second).

    python bench/forecast.py --data ../shared/traces --json

Rolling over the last third of each series, at 10 minutes, 1 hour and 24 hours ahead, with the forecaster that the
product uses. Loss is the pinball loss, mean over the quantiles 0.05 to 0.95, beside a seasonal naive forecast (a week
ago) and the last value. Bands of 90 % should cover 87 to 93 % of what came. Exits 1 where a must is missed.
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

from tidegate.demand.forecast import Score, Series, roll, score
from tidegate.model.units import HOUR_MS, MINUTE_MS

HORIZONS = {"10m": 10 * MINUTE_MS, "1h": HOUR_MS, "24h": 24 * HOUR_MS}
LOW, HIGH = 0.87, 0.93


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/traces"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(read_helios(options.data), read_servegen(options.data))
    print(json.dumps(result, indent=1) if options.json else _table(result))
    return 0 if result["holds"] else 1


def read_helios(data: Path) -> dict[str, Series]:
    """Running and pending GPUs by virtual cluster and in total, by the minute."""
    found = {}
    for path in sorted((data / "helios_earth").glob("earth_*.csv.gz")):
        table = pl.read_csv(path)
        asked = (table["running_gpu_num"] + table["pending_gpu_num"]).to_numpy().astype(np.float64)
        found[path.name.split("_")[1]] = Series(asked, MINUTE_MS)
    total = np.sum([series.values for series in found.values()], axis=0)
    return {**found, "total": Series(total, MINUTE_MS)}


def read_servegen(data: Path) -> dict[str, Series]:
    """Requests per second of all clients together, by ten minutes."""
    table = pl.read_csv(data / "servegen" / "language_m-large_clients.csv.gz")
    rates = table.group_by("ts_s").agg(pl.col("rate_rps").sum()).sort("ts_s")["rate_rps"].to_numpy()
    return {"m-large": Series(rates, 10 * MINUTE_MS)}


def measure(helios: dict[str, Series], servegen: dict[str, Series]) -> dict[str, Any]:
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


def _score(series: Series, horizon_ms: int) -> Score:
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
    return "\n".join([*lines, f"holds: {result['holds']}"])


if __name__ == "__main__":
    sys.exit(main())
