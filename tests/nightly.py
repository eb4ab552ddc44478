"""A million generated decisions: every property, over and over, with new seeds until so many decisions were made.
Before that, once: does every kind of interval hold the truth as often as it says (`coverage_intervals`)?

    python tests/nightly.py --decisions 1000000
    python tests/nightly.py --decisions 20000 --coverage none --seed 400
    python tests/nightly.py --coverage levels
    python tests/nightly.py --property test_queue_properties.test_nothing_new_means_no_decision --seed 17

Seeds begin at a number that is told, so that a night can be repeated. What fails is told with the line that repeats it.
Not a part of `make test`, which runs the same properties on a few examples.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bounds import TookTooLong, limit

MODULES = (
    "test_properties",
    "test_queue_properties",
    "test_preemption_loops",
    "test_preemption_properties",
    "test_preemption_places",
    "test_missed_wakes",
    "test_quota_oracle",
    "test_stretch",
    "test_hostile_facts",
)
EXAMPLES = 100  # of one property with one seed
MOST_S = 1_800  # that it may take
REPORT_EVERY_S = 30  # how far it is, where that is no terminal


class Told(NamedTuple):
    """What came of one property with one seed."""

    name: str
    seed: int
    decisions: int
    seconds: float
    error: str  # empty: it held


def properties() -> list[str]:
    """The names of all properties: tests that are given data and nothing else."""
    found = []
    for module in MODULES:
        for name, test in vars(importlib.import_module(module)).items():
            inner = getattr(getattr(test, "hypothesis", None), "inner_test", None)
            if inner is not None and inner.__module__ == module and inner.__code__.co_varnames[:1] == ("data",):
                found.append(f"{module}.{name}")
    return found


def run_property(name: str, number: int, examples: int, *, shrinks: bool) -> Told:
    """Try one property on examples that follow from the seed."""
    from builders import Cluster

    module, _, test = name.partition(".")
    inner = getattr(importlib.import_module(module), test).hypothesis.inner_test
    phases = [Phase.generate, *([Phase.shrink] if shrinks else [])]
    rule = settings(
        max_examples=examples, deadline=None, database=None, phases=phases, suppress_health_check=list(HealthCheck)
    )
    before, started, error = Cluster.decisions, time.perf_counter(), ""
    call_off = limit(f"{name} with seed {number}", MOST_S)
    try:
        seed(number)(rule(given(st.data())(inner)))()
    except (Exception, TookTooLong):  # noqa: BLE001 - whatever it is, it is told
        error = traceback.format_exc(limit=-8)
    finally:
        call_off()
    return Told(name, number, Cluster.decisions - before, time.perf_counter() - started, error)


def run_night(options: argparse.Namespace, console: Console) -> tuple[Counter[str], list[Told]]:
    """Run properties in turn until enough decisions were made; what was made by each, and what failed."""
    names = [name for name in properties() if not options.without or options.without not in name]
    rounds = ((name, number) for number in count(options.seed) for name in names)
    made, failed, under_way = Counter[str](), list[Told](), set[Future[Told]]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(options.jobs) as pool,
        Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar,
    ):
        task, report_at = bar.add_task("decisions", total=options.decisions), 0.0
        while made.total() < options.decisions and not failed:
            while len(under_way) < options.jobs:
                name, number = next(rounds)
                under_way.add(pool.submit(run_property, name, number, options.examples, shrinks=True))
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for told in (future.result() for future in done):
                made[told.name] += told.decisions
                failed += [told] if told.error else []
                bar.update(task, completed=made.total(), description=f"seed {told.seed}")
                if not console.is_terminal and (told.error or time.perf_counter() >= report_at):
                    report_at = time.perf_counter() + REPORT_EVERY_S
                    console.print(
                        f"seed {told.seed}: {made.total():,} decisions, {told.name}", highlight=False, soft_wrap=True
                    )
    return made, failed


def check_coverage(kinds: list[str], console: Console) -> list[Told]:
    """Try each kind of interval on many windows; what holds the truth too seldom."""
    from coverage_intervals import KINDS

    failed = []
    for kind in kinds:
        try_windows, windows, least = KINDS[kind]
        started = time.perf_counter()
        for case, (held, carried) in try_windows(windows).shares().items():
            said = f"{kind}, {case}: {held:.2f} of the intervals hold the truth; {carried:.2f} of the windows have one"
            console.print(said, highlight=False, soft_wrap=True)
            if held < least and "5 days" not in case:  # of which docs/demand.md says what to expect
                failed.append(Told(f"coverage of {kind}", 0, 0, time.perf_counter() - started, said))
    return failed


def compile_kernels(console: Console) -> None:
    """Compile once what every process would compile for itself, minutes long."""
    console.print("compiling kernels, unless they are in the cache ...")
    for name in properties():
        if "compiled" in name:
            run_property(name, 1, 5, shrinks=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=1_000_000, help="how many to make at least")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="of a property with a seed")
    parser.add_argument("--property", help="only this one")
    parser.add_argument("--without", help="leave out properties with this in their names, such as compiled")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--coverage", help="only the coverage of this kind of interval, or of all; none: decisions alone"
    )
    options = parser.parse_args()
    console, started = Console(), time.perf_counter()
    if options.property and options.property not in properties():
        parser.error(f"no property {options.property!r}; there are {', '.join(properties())}")
    from coverage_intervals import KINDS

    if options.coverage not in (None, "none"):
        failed = check_coverage(list(KINDS) if options.coverage == "all" else [options.coverage], console)
        return 1 if failed else 0
    if options.property:
        told = run_property(options.property, options.seed, options.examples, shrinks=True)
        made, failed = Counter({told.name: told.decisions}), [told] if told.error else []
    else:
        if options.without != "compiled":
            compile_kernels(console)
        uncovered = [] if options.coverage else check_coverage(list(KINDS), console)
        made, failed = run_night(options, console)
        failed += uncovered
    for name, decisions in made.most_common():
        console.print(f"{decisions:>10,}  {name}", highlight=False, soft_wrap=True)
    for told in failed:
        line = f"python tests/nightly.py --property {told.name} --seed {told.seed} --examples {options.examples}"
        if told.name.startswith("coverage of "):
            line = f"python tests/nightly.py --coverage {told.name.removeprefix('coverage of ')}"
        text = f"\nFAILED {told.name}\n{told.error}\nRepeat it with: {line}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    took = time.perf_counter() - started
    console.print(f"{made.total():,} decisions in {took:,.0f} s, first seed {options.seed}", highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
