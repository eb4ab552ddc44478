"""Blocks of time by the data's own memory, and intervals from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.demand.concurrency_stats import measure_levels, track_series
from tidegate.demand.estimate import How, Unit
from tidegate.demand.sentences import number_text
from tidegate.model.units import DAY_MS, HOUR_MS
from tidegate.stats.blocks import Blocks, choose_blocks, count_units, linear_interval, unit_widths, units_of
from tidegate.stats.interval import Interval, NoInterval, part_interval, rank_interval, student, wilson


def remembering(units: int, keeps: float, seed: int) -> np.ndarray:
    """A series that keeps so much of a deviation from one unit to the next."""
    rng, level, found = np.random.default_rng(seed), 0.0, []
    for _ in range(units + 50):
        level = keeps * level + rng.normal()
        found.append(50 + level)
    return np.array(found[50:])


def blocks_of(series: np.ndarray) -> Blocks:
    blocks = choose_blocks(series)
    assert isinstance(blocks, Blocks)
    return blocks


def test_blocks_are_as_long_as_the_memory_asks_for():
    memories = [
        np.median([blocks_of(remembering(200, keeps, seed)).memory for seed in range(40)]) for keeps in (0.5, 0.9)
    ]
    assert memories == pytest.approx([-1 / np.log(0.5), -1 / np.log(0.9)], rel=0.35)
    counts = [blocks_of(remembering(200, keeps, 1)).number for keeps in (0.0, 0.5, 0.95)]
    assert counts == sorted(counts, reverse=True)
    assert 6 <= counts[-1] < counts[0] <= 30


def test_what_neighbours_share_is_made_up_for():
    assert blocks_of(remembering(100, 0.95, 1)).seen < 0.8
    assert blocks_of(np.array([1.0, -1.0] * 20)).seen == pytest.approx(1)


def test_every_unit_belongs_to_a_block_and_blocks_are_even():
    of_units = Blocks(6, 28, 1.0, 1.0).of_units()
    sizes = np.bincount(of_units)
    assert (sizes.size, sizes.sum(), np.ptp(sizes)) == (6, 28, 1)
    assert (np.diff(of_units) >= 0).all()


@given(st.integers(1, 60 * DAY_MS))
def test_units_are_days_from_a_week_on_and_cover_the_window(length_ms):
    widths = unit_widths(length_ms)
    assert widths.sum() == pytest.approx(length_ms)
    assert widths.size == count_units(length_ms) == (length_ms // DAY_MS if length_ms >= 7 * DAY_MS else 24)
    ends = units_of(np.array([0, length_ms - 1]), length_ms)
    assert (ends[0], ends[1]) == (0, widths.size - 1 if length_ms >= 24 else ends[1])


def test_a_window_that_carries_no_interval_says_why():
    assert choose_blocks(np.arange(30.0)) is NoInterval.TREND
    assert choose_blocks(np.array([1.0, 2, 1, 2, 1])) is NoInterval.FEW
    assert choose_blocks(np.full(30, np.nan)) is NoInterval.FEW
    lonely = np.zeros(30)
    lonely[[3, 20]] = 1.0, -0.01
    assert linear_interval(1.0, lonely, np.abs(lonely))[0] is NoInterval.UNEVEN


def test_a_level_with_a_trend_is_told_without_an_interval():
    rising = track_series(np.arange(28 * 24, dtype=np.float64), HOUR_MS, 0, 1000)
    found = measure_levels(rising, Unit.GPUS, "jobs", None)
    assert (found.mean.how, found.blocks, found.block_ms) == (How.TREND, 0, 0)
    assert found.mean.low == found.mean.value == found.mean.high
    assert number_text(found.mean).endswith("(no interval: trend)")


def test_days_of_two_kinds_tell_no_interval_instead_of_any_number():
    """It was `2 (0 to 29,469,100,000,000) GPUs`."""
    busy = np.random.default_rng(1).random(42) < 0.45
    series = np.repeat(np.where(busy, 200.0, 2.0), 24)
    found = measure_levels(track_series(series, HOUR_MS, 0, 1000), Unit.GPUS, "jobs", None)
    assert found.p50.how is How.WIDE
    assert number_text(found.p50) == "2 GPUs (no interval: too wide)"
    assert found.mean.how is How.BLOCKS


def test_a_level_says_its_blocks():
    series = np.repeat(remembering(28, 0.6, 3), 24)
    found = measure_levels(track_series(series, HOUR_MS, 0, 1000), Unit.GPUS, "jobs", None)
    assert found.mean.how is How.BLOCKS
    assert found.blocks == found.mean.samples >= 6
    assert found.blocks * found.block_ms == pytest.approx(28 * DAY_MS, rel=0.01)
    assert 0 <= found.p05.low <= found.p05.value <= found.p95.value <= found.p95.high


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1e6), min_size=6, max_size=30))
def test_an_interval_holds_its_value_and_stays_above_zero(value, parts):
    found = part_interval(value, np.array(parts))
    if found is NoInterval.WIDE:
        return
    assert isinstance(found, Interval)
    assert 0 <= found.low <= value <= found.high
    assert not found.low or found.high <= 20 * found.low


def test_students_quantiles():
    told = [student(degrees) for degrees in (0.5, 1, 3, 10, 25, 1e9)]
    assert told == pytest.approx([6.314, 6.314, 2.353, 1.812, 1.708, 1.645], abs=2e-3)


def test_shares_and_ranks_of_independent_values():
    low, high = wilson(np.array([0.0, 0.5]), np.array([10.0, 100.0]))
    assert low == pytest.approx([0, 0.419], abs=1e-3)
    assert high == pytest.approx([0.213, 0.581], abs=1e-3)
    assert rank_interval(100, 0.5) == (40, 59)
