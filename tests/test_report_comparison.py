"""Policies side by side."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from rich.console import Console

from test_measure_twin import SECOND, fleet, measure, planned, policy
from tidegate.measure.job_records import NOT_YET, Fate, JobRecords
from tidegate.measure.ratios import ratio_interval
from tidegate.measure.summary import summarise
from tidegate.model.simulation import TwinOptions
from tidegate.report.compare import PolicyComparison, compare, render_comparison
from tidegate.report.compare_measure import Certainty, ComparedMeasure, MeasureOutcome, mood
from tidegate.report.compare_queues import PolicyRuns
from tidegate.stats.interval import NoInterval

CAPACITY = 10**12


@pytest.fixture(scope="module")
def lives() -> JobRecords:
    plan = [planned(f"w{at}", 5 * at, 1, 2000, runtime_ms=(10 + at % 7) * SECOND) for at in range(30)]
    return measure(fleet(1, 2), plan, policy(cycle_ms=SECOND), TwinOptions(), 60 * SECOND).lives


def run_of(name: str, *lives: JobRecords) -> PolicyRuns:
    return PolicyRuns(name, lives, tuple(summarise(each, CAPACITY) for each in lives))


def named(comparison: PolicyComparison, name: str) -> ComparedMeasure:
    return next(measure for measure in comparison.measures if measure.name == name)


def slower(lives: JobRecords, by: int) -> JobRecords:
    """The same lives with waits so many times as long."""
    more = lives.waited_ms * (by - 1)
    return lives._replace(waited_ms=lives.waited_ms * by, finished_ms=lives.finished_ms + more)


def test_a_run_with_itself(lives: JobRecords) -> None:
    wait = named(compare([run_of("a", lives), run_of("b", lives)]), "mean wait").outcomes
    assert wait[0].ratio is None
    assert wait[0].interval is None
    assert wait[1].ratio == 1
    interval = wait[1].interval
    assert interval is not None
    assert (interval.low, interval.high, interval.workloads) == (1, 1, 30)
    assert not interval.excludes_one()


def test_twice_the_wait(lives: JobRecords) -> None:
    comparison = compare([run_of("a", lives), run_of("b", slower(lives, 2))])
    outcome = named(comparison, "mean wait").outcomes[1]
    assert outcome.ratio == 2
    assert outcome.interval is not None
    assert outcome.interval.excludes_one()
    completion = named(comparison, "mean JCT").outcomes[1]
    expected = (lives.finished_ms - lives.submitted_ms + lives.waited_ms).mean()
    assert completion.value == pytest.approx(expected)
    assert completion.interval is not None
    assert completion.interval.low < (completion.ratio or 0) < completion.interval.high


def test_workloads_are_matched_by_id(lives: JobRecords) -> None:
    """The other run has them in another order, and two of them not at all."""
    order = np.arange(27, -1, -1)
    columns = {field: getattr(lives, field)[order] for field in ("number", "fate", "waited_ms", "finished_ms")}
    columns |= {field: getattr(lives, field)[order] for field in ("submitted_ms", "gpu_milli", "queue", "kind")}
    rest = ("held_milli_ms", "lost_milli_ms", "busy_gpu_ms", "observed_gpu_ms", "evictions", "preemptions")
    columns |= {field: getattr(lives, field)[order] for field in rest}
    other = lives._replace(ids=[lives.ids[at] for at in order], **columns)
    interval = named(compare([run_of("a", lives), run_of("b", other)]), "mean wait").outcomes[1].interval
    assert interval is not None
    assert (interval.low, interval.high, interval.workloads) == (1, 1, 28)


def test_seeds_are_averaged_and_told(lives: JobRecords) -> None:
    """The mean of runs with 1 and 3 times the wait is that of 2 times."""
    runs = [run_of("a", lives, lives), run_of("b", lives, slower(lives, 3))]
    comparison = compare(runs)
    outcome = named(comparison, "mean wait").outcomes[1]
    assert comparison.seeds == 2
    assert outcome.ratio == pytest.approx(2)
    assert outcome.by_seed == pytest.approx([lives.waited_ms.mean(), 3 * lives.waited_ms.mean()])
    assert outcome.interval is not None
    assert outcome.interval.none is NoInterval.WIDE  # two seeds that differ three times tell next to nothing


def test_the_spread_between_seeds_counts() -> None:
    """Blocks of the means over seeds said 1.00 to 1.00, though one of five seeds had twice the wait of the others."""
    rng = np.random.default_rng(3)
    at_ms, first = np.arange(500) * 60 * SECOND, rng.uniform(50, 60, (5, 500))
    mine = first * np.array([[1.0], [1.1], [0.9], [1.2], [0.8]])
    interval = ratio_interval(mine, first, at_ms)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < 0.9
    assert interval.high > 1.1
    assert not interval.this_work


def test_seeds_tell_of_this_work_where_the_window_tells_nothing() -> None:
    at_ms, ones = np.arange(100) * 60 * SECOND, np.ones((4, 100))
    late = 50 * (np.arange(100) == 40)
    mine = ones + late * np.array([[1.0], [1.1], [0.9], [1.0]])
    interval = ratio_interval(mine, ones, at_ms)
    assert interval.this_work
    assert interval.low is not None
    assert interval.low > 1.3
    assert ratio_interval(mine.mean(axis=0), ones[0], at_ms).none is NoInterval.UNEVEN


# -- the same work ---------------------------------------------------------------------------------------------


def never_started(lives: JobRecords, count: int, end_ms: int) -> JobRecords:
    """The same lives, but the last few wait until the end of the run."""
    last = np.arange(len(lives.ids)) >= len(lives.ids) - count
    return lives._replace(
        end_ms=end_ms,
        fate=np.where(last, int(Fate.WAITING), lives.fate).astype(np.uint8),
        waited_ms=np.where(last, end_ms - lives.submitted_ms, lives.waited_ms),
        finished_ms=np.where(last, NOT_YET, lives.finished_ms),
    )


def test_ratios_and_intervals_are_of_the_same_work(lives: JobRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """JCT was of what each policy happened to finish: x3.77 with an interval of 1.00 to 1.00."""
    long = lives.finished_ms + (np.arange(30) >= 22) * 10_000 * SECOND
    more = lives._replace(finished_ms=long)
    comparison = compare([run_of("apart", never_started(lives, 8, lives.end_ms)), run_of("borrow", more)])
    outcome = named(comparison, "mean JCT").outcomes[1]
    assert outcome.ratio == 1
    assert outcome.interval is not None
    assert (outcome.interval.low, outcome.interval.high, outcome.interval.workloads) == (1, 1, 22)
    assert (comparison.finished, comparison.finished_more) == (22, (0, 8))
    text = " ".join(shown(comparison, 120, monkeypatch))
    assert "JCT is of the 22 workloads that finished in every run; more did: 8 under borrow." in text


def test_waits_that_had_not_ended_count_until_the_same_time(lives: JobRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run cut them off at its own end: who ended earlier seemed to have waited less."""
    early, late = (never_started(lives, 8, lives.end_ms + more) for more in (0, 1000 * SECOND))
    comparison = compare([run_of("early", early), run_of("late", late)])
    wait = named(comparison, "mean wait").outcomes
    assert wait[1].ratio == 1
    assert wait[0].value == pytest.approx(late.waited_ms.mean())
    assert (wait[0].value_is, wait[1].ratio_is) == (Certainty.AT_LEAST, Certainty.SO_FAR)
    one = compare([run_of("all", lives), run_of("late", late)])
    assert named(one, "mean wait").outcomes[1].ratio_is is Certainty.AT_LEAST
    assert named(one, "p50 wait").outcomes[1].ratio_is is Certainty.EXACTLY
    other = compare([run_of("late", late), run_of("all", lives)])
    assert named(other, "max wait").outcomes[1].ratio_is is Certainty.AT_MOST
    lines = shown(one, 120, monkeypatch)
    assert " ≥x" in lines[3]
    assert "≥: at least, as work is not over at the end" in " ".join(lines)


def test_whoever_leaves_work_undone_is_not_done_sooner(lives: JobRecords) -> None:
    """With the last 8 of 30 never started the makespan was x0.74, in green."""
    makespan = named(compare([run_of("all", lives), run_of("some", never_started(lives, 8, lives.end_ms))]), "makespan")
    outcome = makespan.outcomes[1]
    assert outcome.ratio is not None
    assert outcome.ratio < 0.9
    assert (outcome.value_is, outcome.ratio_is) == (Certainty.AT_LEAST, Certainty.AT_LEAST)
    assert mood(makespan, outcome) == "dim"
    other = named(compare([run_of("some", never_started(lives, 8, lives.end_ms)), run_of("all", lives)]), "makespan")
    assert (other.outcomes[1].ratio_is, mood(other, other.outcomes[1])) == (Certainty.AT_MOST, "dim")


@pytest.mark.parametrize(
    ("ratio", "known", "colour"),
    [
        (0.6, Certainty.EXACTLY, "green"), (1.5, Certainty.EXACTLY, "red"), (0.6, Certainty.AT_LEAST, "dim"),
        (1.5, Certainty.AT_LEAST, "red"), (0.6, Certainty.AT_MOST, "green"), (1.5, Certainty.AT_MOST, "dim"),
        (0.6, Certainty.SO_FAR, "dim"), (1.5, Certainty.SO_FAR, "dim"),
    ],
)  # fmt: skip
def test_a_bound_has_a_colour_where_it_tells_better_from_worse(ratio, known, colour) -> None:
    outcome = MeasureOutcome(value=1.0, ratio=ratio, interval=None, ratio_is=known)
    assert mood(ComparedMeasure("p95 wait", "ms", True, (outcome,)), outcome) == colour


def test_why_there_is_no_interval() -> None:
    at_ms = np.arange(100) * SECOND
    ones = np.ones(100)
    assert ratio_interval(ones[:1], ones[:1], at_ms[:1]).none is NoInterval.NOTHING
    assert ratio_interval(ones, np.zeros(100), at_ms).none is NoInterval.NOTHING
    one_busy_period = ones + 50 * (at_ms == 40 * SECOND)
    assert ratio_interval(one_busy_period, ones, at_ms).none is NoInterval.UNEVEN
    assert not ratio_interval(one_busy_period, ones, at_ms).excludes_one()


def test_a_few_that_wait_are_not_certain_however_alike_they_are() -> None:
    """Two jobs gave 2 (2 to 2), one waiting job of 50 gave 3 (3 to 3)."""
    two = ratio_interval(np.array([10.0, 20.0]), np.array([5.0, 10.0]), np.array([0, 3600 * SECOND]))
    waited = 300.0 * (np.arange(50) == 3)
    one = ratio_interval(3 * waited, waited, np.arange(50) * 3600 * SECOND)
    assert (two.none, one.none) == (NoInterval.FEW, NoInterval.FEW)
    assert not two.excludes_one()
    assert not one.excludes_one()
    same = ratio_interval(waited, waited, np.arange(50) * SECOND)
    assert (same.low, same.high, same.none) == (1, 1, None)


def test_an_interval_says_its_blocks() -> None:
    rng = np.random.default_rng(1)
    at_ms = np.sort(rng.integers(0, 3600 * SECOND, 2000))
    first = rng.exponential(1.0, 2000)
    interval = ratio_interval(first * rng.uniform(0.8, 1.6, 2000), first, at_ms)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < 1.2 < interval.high
    assert interval.blocks * interval.block_ms == pytest.approx(3600 * SECOND, rel=0.01)


def test_no_interval_is_said_in_the_table(lives: JobRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    late = lives.waited_ms + (np.arange(30) == 7) * 100 * lives.waited_ms.max()
    other = lives._replace(waited_ms=late)
    lines = shown(compare([run_of("a", lives), run_of("b", other)]), 80, monkeypatch)
    assert lines[4].strip() == "one busy period"


def shown(comparison: PolicyComparison, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(width=width)
    with console.capture() as captured:
        render_comparison(comparison, console)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_side_by_side(lives: JobRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compare([run_of("fifo", lives), run_of("slow", slower(lives, 2))])
    lines = shown(comparison, 80, monkeypatch)
    assert lines[0] == "30 workloads under each policy"
    assert lines[2].split() == ["fifo", "slow"]
    assert lines[3].startswith("mean wait")
    assert lines[3].endswith("*x2.00")
    assert lines[4].strip() == "2.00 to 2.00"
    assert "x: ratio to fifo" in "\n".join(lines)


@pytest.mark.parametrize("width", [50, 80, 100])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_many_policies_fit_the_screen(lives: JobRecords, width, count, monkeypatch) -> None:
    runs = [run_of(f"policy-{at}", slower(lives, at + 1)) for at in range(count)]
    lines = shown(compare(runs), width, monkeypatch)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert all(f"policy-{at}" in text for at in range(count))
    assert "\x1b" not in text


def test_json(lives: JobRecords) -> None:
    comparison = compare([run_of("a", lives), run_of("b", slower(lives, 3))])
    plain = comparison.as_json()
    assert json.loads(msgspec.json.encode(comparison)) == json.loads(json.dumps(plain))
    assert list(plain["policies"]) == ["a", "b"]
    wait = plain["measures"][0]
    assert wait["name"] == "mean wait"
    assert wait["outcomes"][1]["ratio"] == 3
    assert wait["outcomes"][0]["ratio"] is None
