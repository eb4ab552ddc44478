"""Forecasts: nothing of the future is looked at, bands hold, and naive forecasts are beaten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecast import HIGH, LOW, measure, read_helios, read_servegen
from shared import shared
from tidegate.demand.estimate import Unit
from tidegate.demand.forecast import QUANTILES, LevelSeries, fill, know, learn, pinball, roll, score
from tidegate.demand.forecast_report import band, look_ahead
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS

STEP = 30 * MINUTE_MS


def days(count: int, seed: int, noise: float = 8.0) -> LevelSeries:
    """Days and nights with noise that lasts for a while."""
    generator = np.random.default_rng(seed)
    at = np.arange(count * 48)
    lasting = np.zeros(at.size)
    for row in range(1, at.size):
        lasting[row] = 0.9 * lasting[row - 1] + generator.normal(0, noise)
    return LevelSeries(np.maximum(100 + 50 * np.sin(2 * np.pi * at / 48) + lasting, 0), STEP)


@pytest.mark.parametrize("horizon_ms", [STEP, 6 * HOUR_MS, DAY_MS])
def test_bands_hold_and_naive_forecasts_are_beaten(horizon_ms):
    found = [score(roll(days(60, seed), horizon_ms, 40 * 48), days(60, seed)) for seed in range(4)]
    assert np.mean([one.coverage for one in found]) == pytest.approx(0.9, abs=0.04)
    for one in found:
        assert one.pinball < one.last_value
        assert one.pinball < one.seasonal_naive


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 400))
def test_the_future_changes_nothing(seed, cut):
    series = days(20, 1)
    changed = series.values.copy()
    changed[-cut:] = np.random.default_rng(seed).uniform(0, 500, cut)
    one, other = roll(series, 3 * HOUR_MS, 480), roll(LevelSeries(changed, STEP), 3 * HOUR_MS, 480)
    before = one.origin < series.values.size - cut
    assert np.array_equal(one.quantiles[before], other.quantiles[before])


def test_quantiles_rise_and_are_never_below_zero():
    told = roll(days(30, 2, noise=60), 6 * HOUR_MS, 900).quantiles
    assert np.all(np.diff(told, axis=1) >= 0)
    assert told.min() >= 0


def test_the_pinball_loss_by_hand():
    told = np.tile(np.array([10.0]), (1, 19)).repeat(1, axis=0)
    assert pinball(told, np.array([14.0]))[0] == pytest.approx(4 * QUANTILES.mean())
    assert pinball(told, np.array([4.0]))[0] == pytest.approx(6 * (1 - QUANTILES).mean())


def test_a_level_that_never_moves_is_told_exactly():
    series = LevelSeries(np.full(48 * 20, 7.0), STEP)
    rolled = roll(series, HOUR_MS, 480)
    assert rolled.quantiles == pytest.approx(np.full(rolled.quantiles.shape, 7.0), abs=1e-6)
    recipe = learn(know(series, HOUR_MS), 900, 48)
    assert recipe.trust == 0


def test_gaps_are_what_was_seen_last():
    assert fill(np.array([np.nan, 2.0, np.nan, np.nan, 3.0])).tolist() == [2, 2, 2, 2, 3]
    assert fill(np.array([np.nan])).tolist() == [0]


def test_an_outlook_follows_the_day():
    series = days(28, 5, noise=2.0)
    outlook = look_ahead("wanted", Unit.GPUS, series.values, STEP, 28 * DAY_MS)
    assert [one.horizon_ms for one in outlook.ahead] == [HOUR_MS, 6 * HOUR_MS, DAY_MS]
    low, middle, high = band(outlook, 6 * HOUR_MS)
    assert low < middle < high
    assert middle == pytest.approx(150, abs=25)  # six hours past the turn the sine is at its top
    assert band(outlook, 0) == (outlook.last,) * 3
    assert look_ahead("wanted", Unit.GPUS, series.values[:48], STEP, DAY_MS) is None


def test_the_published_sets():
    """The same as bench/forecast.py, on the total of helios and on servegen."""
    helios = read_helios(shared("traces/helios_earth").parent)
    result = measure({"total": helios["total"]}, read_servegen(shared("traces/servegen").parent))
    for at in result["horizons"].values():
        assert at["below_both"]
    assert LOW <= result["coverage_pooled"] <= HIGH
