"""How long a demand model of very many jobs takes, beside what bare polars needs to sort and sum up their events.

    python bench/demand.py --rows 10000000 --json
    python bench/demand.py --rows 1000000 --queues 8 --json

Jobs are generated (several kinds, queues, GPU models, sizes; heavy-tailed durations; waits) and written as Parquet and
as CSV. For each file, in processes of their own: `bare` scans it, sorts starts and ends and sums up the GPUs; `model`
goes from the file to the encoded demand model, every input included. The model may take three times as long, and 4 GiB
of memory. The two take turns, and the best of `--rounds` counts for each. Exits 1 where a must is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidegate.demand.fit import fit
from tidegate.demand.model import encode
from tidegate.demand.tables import JOBS, RowOrigin, Tables
from tidegate.demand.time_zone import Calendar
from tidegate.planning.threads import side_by_side

MOST_RATIO, MOST_GIB = 3.0, 4.0
DAYS = 90
KINDS = (("batch", 0.7), ("inference", 0.2), ("interactive", 0.1))
SIZES = ((1, 0.55), (2, 0.15), (4, 0.12), (8, 0.12), (16, 0.04), (64, 0.02))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_run(*options.child)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        files = generate(Path(folder), options.rows, options.queues)
        result = {path.suffix[1:]: _compare(path, options.rounds) for path in files}
    holds = all(one["ratio"] <= MOST_RATIO and one["model_gib"] <= MOST_GIB for one in result.values())
    told = {"rows": options.rows, "holds": holds, **result}
    print(json.dumps(told, indent=1) if options.json else _table(told))
    return 0 if holds else 1


def generate(folder: Path, rows: int, queues: int) -> tuple[Path, Path]:
    """Jobs of ninety days, by the same seed always."""
    draw = np.random.default_rng(7)
    submitted = np.sort(draw.integers(0, DAYS * 86_400_000, rows)) + 1_700_000_000_000
    took = np.clip(draw.lognormal(6, 2, rows) * 1000, 1000, 30 * 86_400_000).astype(np.int64)
    waited = (draw.exponential(60, rows) * 1000).astype(np.int64)
    gpus = draw.choice([size for size, _ in SIZES], rows, p=[part for _, part in SIZES])
    columns: dict[str, Any] = {
        "id": np.arange(rows),
        "queue": draw.zipf(1.3, rows) % queues,
        "kind": pl.Series(draw.choice(len(KINDS), rows, p=[part for _, part in KINDS])),
        "gpu_model": draw.integers(0, 3, rows),
        "gpus_milli": gpus * 1000,
        "pods": np.maximum(1, gpus // 8),
        "submitted_ms": submitted,
        "started_ms": submitted + waited,
        "ended_ms": submitted + waited + took,
        "duration_ms": took,
        "priority": draw.integers(0, 3, rows),
        "outcome": ["done"] * rows,
        "tolerated_wait_ms": pl.Series([None] * rows, dtype=pl.Int64),
    }
    table = pl.DataFrame(columns).with_columns(
        pl.format("job-{}", "id").alias("id"),
        pl.format("team-{}", "queue").alias("queue"),
        pl.format("gpu-{}", "gpu_model").alias("gpu_model"),
        pl.col("kind").replace_strict(dict(enumerate(name for name, _ in KINDS)), return_dtype=pl.String),
    )
    parquet, text = folder / "jobs.parquet", folder / "jobs.csv"
    table.write_parquet(parquet)
    table.write_csv(text)
    return parquet, text


def _compare(path: Path, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {"bare": [], "model": []}
    for _ in range(rounds):
        for task, found in runs.items():
            found.append(_start(task, path))
    bare, model = (min(found, key=lambda run: run["seconds"]) for found in runs.values())
    return {
        "bare_s": bare["seconds"],
        "model_s": model["seconds"],
        "ratio": round(model["seconds"] / bare["seconds"], 2),
        "bare_gib": bare["gib"],
        "model_gib": max(run["gib"] for run in runs["model"]),
        "model_bytes": model["bytes"],
        "bare_cpu_s": bare["cpu_s"],
        "model_cpu_s": model["cpu_s"],
        "file_mb": round(path.stat().st_size / 1e6),
    }


def _start(task: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", task, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _run(task: str, path: str) -> dict[str, Any]:
    began, spent = time.perf_counter(), time.process_time()
    size = _bare(path) if task == "bare" else len(_model(path))
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - spent, 2),
        "gib": round(_most_kib() / (1 << 20), 2),
        "bytes": size,
    }


def _most_kib() -> int:
    """The most memory this program held; `ru_maxrss` would begin with what its parent held."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def _scan(path: str) -> pl.LazyFrame:
    return pl.scan_parquet(path) if path.endswith(".parquet") else pl.scan_csv(path, schema=dict(JOBS))


def _bare(path: str) -> int:
    """The events in order, and their running sum."""
    jobs = _scan(path)
    begins = jobs.select(at_ms="started_ms", change="gpus_milli")
    ends = jobs.select(at_ms="ended_ms", change=-pl.col("gpus_milli"))
    summed = pl.concat([begins, ends]).sort("at_ms").select("at_ms", pl.col("change").cum_sum())
    return summed.collect(engine="streaming").height


def _model(path: str) -> bytes:
    origin = RowOrigin(Path(path).name, "generated", "", 0)
    return encode(fit(Tables(jobs=_scan(path), calendar=Calendar.EPOCH, origins=(origin,)), run_all=side_by_side))


def _table(told: dict[str, Any]) -> str:
    lines = [f"{'file':8} {'bare':>8} {'model':>8} {'ratio':>6} {'memory':>9} {'document':>9}"]
    lines += [
        f"{name:8} {one['bare_s']:6.1f} s {one['model_s']:6.1f} s {one['ratio']:6.2f} {one['model_gib']:5.2f} GiB "
        f"{one['model_bytes'] / 1e3:6.0f} kB"
        for name, one in told.items()
        if isinstance(one, dict)
    ]
    return "\n".join([*lines, f"holds: {told['holds']}"])


if __name__ == "__main__":
    sys.exit(main())
