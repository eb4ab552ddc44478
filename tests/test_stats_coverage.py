"""Intervals hold the truth about as often as they say, of every kind: a few windows each, by fixed seeds.

`make nightly` tries more (`tests/coverage_intervals.py`).
"""

from __future__ import annotations

import pytest

import coverage_intervals as coverage


@pytest.mark.parametrize(
    ("kind", "windows", "least"),
    [
        ("job tables", 25, 0.75),
        ("mix", 40, 0.8),
        ("arrivals", 30, 0.8),
        ("durations", 100, 0.84),
        ("units", 200, 0.85),
        ("waits", 30, 0.8),
    ],
)
def test_intervals_hold_the_truth(kind, windows, least):
    for case, (held, carried) in coverage.KINDS[kind][0](windows).shares().items():
        assert held >= least, f"{kind}, {case}: {held:.2f}"
        assert carried > (0.8 if kind == "waits" else 0.9), f"{kind}, {case}: {carried:.2f} carry an interval"


def test_floors_hold_the_truth_for_jobs_of_three_days():
    """Where the few blocks that reach the floor counted like all others, 74 to 83 % held the truth."""
    for case, (held, carried) in coverage.floors(40, (72,)).shares().items():
        assert held >= 0.85, f"{case}: {held:.2f}"
        assert carried > 0.8, f"{case}: {carried:.2f} of the windows carry an interval"


@pytest.mark.parametrize("memory_days", [1.0, 3.0])
def test_tails_of_waits_hold_the_truth_however_long_waits_stay_alike(memory_days):
    """By quantiles of blocks alone, 82 and 79 % of the intervals of p95 held the truth, and 69 and 73 % of p99."""
    for case, (held, carried) in coverage.slow_tails(80, (memory_days,)).shares().items():
        assert held >= 0.85, f"{case}: {held:.2f}"
        assert carried > 0.7, f"{case}: {carried:.2f} of the windows carry an interval"


def test_tails_of_waits_and_queues_in_campaigns_hold_the_truth():
    """By quantiles of blocks alone, it was 54 % of the intervals of the p95 of a depth, and 72 % of those of waits."""
    for case, (held, carried) in coverage.campaigns(40, ((0.1, 150), (1.0, 80))).shares().items():
        assert held >= 0.8, f"{case}: {held:.2f}"
        assert carried > 0.7, f"{case}: {carried:.2f} of the windows carry an interval"


@pytest.mark.parametrize("mean_days", [0.1, 0.5, 1.0, 3.0])
def test_levels_hold_the_truth_however_long_jobs_run(mean_days):
    """Blocks of a day, drawn again, held 0.42 of the means and of the p95s for jobs of 3 days."""
    for case, (held, carried) in coverage.levels(150, (mean_days,)).shares().items():
        assert held >= 0.85, f"{case}: {held:.2f}"
        assert carried > 0.95, f"{case}: {carried:.2f} of the windows carry an interval"


def test_jobs_of_arrays_are_not_taken_as_independent():
    """As if they were, 26 % of the intervals of durations held the truth, in arrays of 20."""
    for case, (held, carried) in coverage.arrays(40, (20,)).shares().items():
        assert held >= 0.75, f"{case}: {held:.2f}"
        assert carried > 0.7, f"{case}: {carried:.2f} of the windows carry an interval"


def test_batches_that_are_cancelled_declared_or_started_together_are_not_independent():
    """As if they were, 39 % of the intervals of patience and 50 % of those of starts held the truth."""
    for case, (held, carried) in coverage.batches(40, (20,)).shares().items():
        assert held >= 0.8, f"{case}: {held:.2f}"
        assert carried > 0.6, f"{case}: {carried:.2f} of the windows carry an interval"


def test_pods_that_are_busy_together_are_not_independent():
    """By pods alone, 20 % of the intervals of the busy share and 5 % of those of the idle share held the truth."""
    for case, (held, carried) in coverage.busy_together(30).shares().items():
        assert held >= 0.78, f"{case}: {held:.2f}"
        assert carried > 0.9, f"{case}: {carried:.2f} of the windows carry an interval"


def test_a_queue_has_blocks_as_long_as_its_own_waits_stay_alike():
    """By the memory of all waits together, 66 % of the intervals of p90 held the truth for a memory of 3 days."""
    for case, (held, carried) in coverage.slow_queue(40, 3.0).shares().items():
        assert held >= 0.78, f"{case}: {held:.2f}"
        assert carried > 0.65, f"{case}: {carried:.2f} of the windows carry an interval"


def test_a_policy_against_itself_is_seldom_called_different():
    """A paired bootstrap over single jobs excluded 1 in 63 % of such tests, over four days each."""
    pairs = list(coverage.same_policy_twice(12, hours=24))
    # A day of waits seldom carries an interval: gangs and single pods wait so differently that it would be too wide.
    for of_measure, least in zip(zip(*pairs, strict=True), (2, 6), strict=True):
        assert sum(interval.excludes_one() for interval in of_measure) <= 1
        assert sum(interval.none is None for interval in of_measure) >= least


@pytest.mark.parametrize(
    "shop",
    [
        coverage.Shop(1, 0.9, 16, 2, 0, 0.5),
        coverage.Shop(4, 0.95, 16, 1, 0, 0),
        coverage.Shop(14, 1.05, 16, 4, 1.5, 0.5),
        coverage.Shop(28, 1.2, 8, 3, 1, 0.5),
    ],
    ids=lambda shop: f"{shop.days} days, load {shop.load}",
)
def test_chance_failures_are_seldom_called_a_difference(shop):
    """Blocks of time alone excluded 1 in up to 38 % of such tests, and as often with five seeds."""
    for case, (held, carried) in coverage.failures(60, (shop,)).shares().items():
        assert held >= 0.86, f"{case}: {1 - held:.2f} exclude 1"
        assert carried > 0.5, f"{case}: {carried:.2f} carry an interval"


def test_pods_that_fail_in_the_twin_are_seldom_called_a_difference():
    for case, (held, _) in coverage.failing_pods(4, hours=12).shares().items():
        assert held >= 0.5, f"{case}: {1 - held:.2f} exclude 1"
