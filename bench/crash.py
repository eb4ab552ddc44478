"""Kill a run with SIGKILL at seeded points; each time the journal must open, replay, and go on to the same end.

python bench/crash.py --points 200 --seed 7 --json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.engine.run import run
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalError, JournalFile
from tidegate.journal.writer import Journal, ResumedJournal
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.units import DAY_MS
from tidegate.sim.demo_trace import sample_nodes, sample_options, sample_work
from tidegate.sim.submissions import TwinJobs, jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState


def day_of_work() -> TwinJobs:
    """A day of the sample."""
    return jobs_of([planned for planned in sample_work(3) if planned.workload.submitted_ms < DAY_MS])


def drive(journal: Journal, jobs: TwinJobs) -> str:
    """Run the twin to its end; return the digest of the state."""
    policy = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT), cycle_ms=10_000)
    world = SimWorld(sample_nodes(), jobs, policy, sample_options(3))
    state = ClusterState()
    run(state, world, journal, lambda _: world.is_over())
    return state.digest()


def run_and_die(path: Path, jobs: TwinJobs, after_s: float) -> bool:
    """Run in a child and kill it after a while; say whether it was killed before it was done."""
    child = os.fork()
    if child == 0:
        drive(Journal(JournalFile.create(path), remember=False), jobs)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def examine(path: Path, jobs: TwinJobs, whole: str) -> tuple[int, str]:
    """Steps that survived, and what is wrong; empty if all is well."""
    if not path.exists():
        return 0, ""
    try:
        file = JournalFile.open(path, append=True)
    except JournalError as error:
        # Killed before the journal was made whole: there is nothing to take up, and the message must say so.
        return 0, "" if "not a journal" in str(error) else str(error)
    steps = list(file.steps())
    replayed = replay(steps)
    if replayed.difference is not None:
        return len(steps), f"replay differs at {replayed.difference}"
    end = drive(ResumedJournal(file, remember=False), jobs)
    file.close()
    return len(steps), "" if end == whole else f"went on to {end}, expected {whole}"


def crash(points: int, seed: int) -> dict[str, Any]:
    """Kill at many points; count, and tell what went wrong."""
    jobs = day_of_work()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        whole = drive(Journal(JournalFile.create(Path(folder) / "whole.db"), remember=False), jobs)
        length_s = time.perf_counter() - started
        killed, survived, wrong = 0, [], []
        for point in range(points):
            path = Path(folder) / f"{point}.db"
            killed += run_and_die(path, jobs, float(rng.uniform(0, 1.05)) * length_s)
            steps, problem = examine(path, jobs, whole)
            survived.append(steps)
            if problem:
                wrong.append({"point": point, "problem": problem})
            for leftover in Path(folder).glob(f"{point}.db*"):
                leftover.unlink()
    return {
        "points": points,
        "seed": seed,
        "killed_midway": killed,
        "steps_survived_median": int(np.median(survived)),
        "steps_survived_max": max(survived),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = crash(options.points, options.seed)
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        for key, value in result.items():
            print(f"{key:>24}  {value}")
    raise SystemExit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
