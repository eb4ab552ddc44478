"""Is `explain`'s smallest change true? Random share trees, fleets and loads; each change is made, and smaller ones.

For every pending job that is drawn, the changes that `find_fixes` names are told as facts to a fresh fork: the job
must start in that step (or, where it preempts, once its victims are gone), and no smaller change of the same kind may
start it. Smaller are: every lower amount of the same lot, in steps of the smallest request, one unit less, and a few
in between; fewer nodes, of any shape; every lower priority; every part of a set of changes; and for a set of workloads
to stop, any single one.

    python bench/explain.py --jobs 1000 --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from situations import GIB, Drawn, Traits, draw
from tidegate.engine.step import step
from tidegate.jit.registry import use_compiled
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase
from tidegate.whatif.budget import Fix
from tidegate.whatif.changes import (
    Change,
    MoreBorrowing,
    MoreNodes,
    MoreQuota,
    SetPriority,
    StopWorkloads,
    facts_of,
    work_of,
)
from tidegate.whatif.fork_trials import has_started, needs_place, play
from tidegate.whatif.options import node_patterns
from tidegate.whatif.search import FixSearchResult, find_fixes

#: What every request of a resource is a multiple of.
_STEPS = {"gpu": 500, "cpu": 500, "memory": GIB}

#: Jobs of one situation that are asked about.
_OF_ONE = 8


def starts(state: ClusterState, number: int, changes: tuple[Change, ...], *, at_once: bool) -> bool:
    """Whether a fresh fork on which the changes are made starts the job: in that very step, or once victims left."""
    if not at_once:
        return play(state, number, changes).starts
    fork = state.fork()
    step(fork, facts_of(state, changes), state.now_ms)
    return has_started(fork, number, placed=needs_place(state, number))


# -- what is smaller -------------------------------------------------------------------------------------------


def smaller(state: ClusterState, number: int, fix: Fix) -> Iterator[tuple[Change, ...]]:
    """Every change of the same kind that is smaller."""
    changes = fix.changes
    sizes = range(1, len(changes)) if len(changes) <= 4 else (1, len(changes) - 1)
    for size in sizes:
        yield from combinations(changes, size)
    for at, change in enumerate(changes):
        for less in _less(state, number, change, alone=len(changes) == 1):
            yield (*changes[:at], less, *changes[at + 1 :])
    if len(changes) > 1 and all(isinstance(change, StopWorkloads) for change in changes):
        yield from (((StopWorkloads(other),)) for other in _running(state) if other != number)


def _less(state: ClusterState, number: int, change: Change, *, alone: bool) -> list[Change]:
    if isinstance(change, MoreQuota | MoreBorrowing) and change.amount is not None:
        return [change._replace(amount=amount) for amount in _amounts_below(change.amount, change.lot.resource)]
    if isinstance(change, MoreNodes):
        likes = [like for like, _ in node_patterns(state)] if alone else [change.like]
        return [MoreNodes(like, nodes) for like in likes for nodes in range(1, change.nodes)]
    if isinstance(change, SetPriority):
        low = work_of(state, number).priority
        return [change._replace(priority=priority) for priority in range(low + 1, change.priority)]
    return []


def _amounts_below(amount: int, resource: str) -> list[int]:
    """Every step below, one unit less, and some between steps: nobody asks for those, but shares are of them too."""
    steps = range(_STEPS[resource], amount, _STEPS[resource])
    between = {amount * part // 7 for part in range(1, 7)}
    return sorted({*steps, *between, amount - 1} - {0})


def _running(state: ClusterState) -> list[int]:
    table = state.workloads
    holds = np.isin(table.phase[: table.top], (Phase.ASSUMED, Phase.RUNNING))
    numbers: list[int] = table.number[: table.top][holds].tolist()
    return numbers


# -- verdicts --------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What became of one job's explanation."""

    kinds: tuple[str, ...]
    starts: bool
    least: bool
    smaller: int  # changes that were tried in vain
    tried: int
    seconds: float  # of CPU, to find them
    none: str  # why there is no change
    traits: Traits
    wrong: tuple[str, ...]


def judge(drawn: Drawn, number: int) -> Verdict:
    """Ask for the smallest changes and check every one of them."""
    began = time.process_time()
    found = find_fixes(drawn.state, number)
    seconds = time.process_time() - began
    dead = [fix for fix in found.fixes if not starts(drawn.state, number, fix.changes, at_once=fix.at_once)]
    lesser, count = [], 0
    for fix in found.fixes:
        for less in smaller(drawn.state, number, fix):
            count += 1
            if starts(drawn.state, number, less, at_once=fix.at_once):
                lesser.append((fix, less))
                break
    return Verdict(
        kinds=tuple("+".join(sorted({type(change).__name__ for change in r.changes})) for r in found.fixes),
        starts=not dead,
        least=not lesser,
        smaller=count,
        tried=found.tried,
        seconds=seconds,
        none="" if found.fixes else _why_none(drawn.state, number, found),
        traits=drawn.traits,
        wrong=(*(f"does not start it: {r}" for r in dead), *(f"{r}: a smaller one does: {less}" for r, less in lesser)),
    )


def _why_none(state: ClusterState, number: int, found: FixSearchResult) -> str:
    if found.leaving or found.due or found.again:
        return "starts without any change"
    if found.blocked:
        return found.blocked.name
    return Reason(int(state.workloads.held_code[state.workload_numbers.row(number)])).name


def run(jobs: int, workloads: int = 40, first_seed: int = 0, of_one: int = _OF_ONE) -> dict[str, Any]:
    """Judge the changes that are named for this many pending jobs, a few of each random situation.

    Jobs for which no change is named prove nothing: they come on top, and are counted apart.
    """
    verdicts: list[Verdict] = []
    wrong: list[str] = []
    seed, named = first_seed, 0
    while named < jobs:
        drawn = draw(seed, workloads)
        picked = np.random.default_rng(seed).permutation(len(drawn.waiting))[:of_one]
        for number in (drawn.waiting[at] for at in picked.tolist()):
            if named == jobs:
                break
            verdicts.append(judge(drawn, number))
            named += bool(verdicts[-1].kinds)
            wrong += [f"seed {seed} job {number}: {what}" for what in verdicts[-1].wrong]
        seed += 1
        if sys.stderr.isatty():
            print(f"\r{named} of {jobs} jobs, {len(wrong)} wrong", end="", file=sys.stderr)
    return _report(verdicts, wrong, seed - first_seed)


def _report(verdicts: list[Verdict], wrong: list[str], situations: int) -> dict[str, Any]:
    seconds = np.array([verdict.seconds for verdict in verdicts])
    told = [verdict for verdict in verdicts if verdict.kinds]
    kinds = Counter(kind for verdict in verdicts for kind in verdict.kinds)
    return {
        "jobs": len(told),
        "situations": situations,
        "with_single_change": sum(any("+" not in kind for kind in verdict.kinds) for verdict in told),
        "changes": sum(kinds.values()),
        "kinds": dict(kinds.most_common()),
        "admits": sum(verdict.starts for verdict in told),
        "smallest": sum(verdict.least for verdict in told),
        "smaller_tried": sum(verdict.smaller for verdict in verdicts),
        "jobs_without_change": len(verdicts) - len(told),
        "no_change": dict(Counter(verdict.none for verdict in verdicts if verdict.none).most_common()),
        "jobs_of": {
            name: {
                str(value): count for value, count in sorted(Counter(getattr(v.traits, name) for v in verdicts).items())
            }
            for name in Traits._fields
        },
        "tries": {"mean": float(np.mean([v.tried for v in verdicts])), "max": max(v.tried for v in verdicts)},
        "seconds": {
            "p50": float(np.median(seconds)),
            "p99": float(np.quantile(seconds, 0.99)),
            "max": float(seconds.max()),
        },
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="pending jobs to ask about")
    parser.add_argument("--workloads", type=int, default=40, help="workloads of each situation")
    parser.add_argument("--seed", type=int, default=0, help="of the first situation")
    parser.add_argument("--compiled", action="store_true", help="with compiled kernels")
    parser.add_argument("--json", action="store_true", dest="as_json")
    arguments = parser.parse_args()
    if arguments.compiled:
        use_compiled()
    report = run(arguments.jobs, arguments.workloads, arguments.seed)
    if arguments.as_json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:20} {value}")
    sys.exit(1 if report["wrong"] else 0)


if __name__ == "__main__":
    main()
