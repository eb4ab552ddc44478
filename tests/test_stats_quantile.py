"""One definition of a quantile, wherever one is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_planning_judge import arrivals
from tidegate.demand.estimate import Unit, rank_quantile
from tidegate.live.shadow_comparison import _waits as shadow_waits
from tidegate.measure.summary import spread_of
from tidegate.planning.capacity_replay import ReplayOutcome
from tidegate.planning.concurrency import curve_of, quantile_milli
from tidegate.stats.quantile import grouped_quantiles, quantile, quantiles, weighted_quantiles

SHARES = st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99, 1.0])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), SHARES)
def test_it_is_the_smallest_value_that_the_share_does_not_exceed(values, share):
    told = quantile(np.array(values), share)
    assert told in values
    reached = [value for value in values if np.mean(np.array(values) <= value) >= share - 1e-9]
    assert told == min(reached)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=30), SHARES)
def test_a_weight_counts_as_so_many_values(rows, share):
    value, weight = (np.array(column) for column in zip(*sorted(rows), strict=True))
    repeated = np.repeat(value, weight)
    assert weighted_quantiles(value, weight, np.array([share]))[0] == quantile(repeated, share)
    assert quantiles(repeated, np.array([share]))[0] == quantile(repeated, share)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 9)), max_size=40), SHARES)
def test_quantiles_of_groups_are_those_of_each_group(rows, share):
    group, values = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64)
    told = grouped_quantiles(values, group, 5, share)
    for row in range(5):
        mine = values[group == row]
        assert np.isnan(told[row]) if mine.size == 0 else told[row] == quantile(mine, share)


@pytest.mark.parametrize("late", [1, 2])
@pytest.mark.parametrize("share_milli", [500, 900, 950, 990])
def test_simulate_preflight_plan_and_shadow_agree(late, share_milli):
    """20 jobs of which one or two waited two hours: by interpolation p95 would be 6 minutes."""
    wait_ms, share = np.array([0] * (20 - late) + [7_200_000] * late, np.int64), share_milli / 1000
    nothing = np.zeros(0, np.int64)
    replayed = ReplayOutcome(
        nothing, wait_ms, arrivals([(0, 1, 1)]), nothing > 0, 0.0, 0.0, 0.0, 0.0, 0, nothing, nothing
    )
    expected = quantile(wait_ms, share)
    spread = spread_of(wait_ms)
    assert spread is not None
    assert getattr(spread, f"p{share_milli // 10}_ms") == expected
    assert rank_quantile(np.sort(wait_ms), share, Unit.MS, "jobs").value == expected
    assert replayed.wait_at(share_milli) == expected
    if share_milli == 900:
        assert shadow_waits(wait_ms.tolist())[3] == expected


def test_a_level_that_is_held_longest_is_the_quantile_of_the_time():
    curve = curve_of(arrivals([(0, 1, 100), (95, 8, 5)]))
    assert quantile_milli(curve, 0, 100_000, 0.95) == 1000
    assert quantile_milli(curve, 0, 100_000, 0.96) == 9000
