"""Durations of which some had not ended: Kaplan and Meier by hand, what is drawn, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tidegate.demand.estimate import How, Number, Unit, rank_quantile
from tidegate.demand.sketches import mean_of, weight_of
from tidegate.demand.survival import (
    WatchedDurations,
    draw_beyond,
    estimate_survival,
    survival_quantile,
    survival_shape,
    survival_sketch,
)
from tidegate.model.units import DAY_MS, HOUR_MS

NONE = np.zeros(0, np.int64)

#: Lives as (age when first watched, age when last watched, whether it ended then).
LIVES = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 20), st.booleans()), min_size=1, max_size=40).map(
    lambda rows: [(min(entry, last - 1), last, ended) for entry, last, ended in rows]
)


def watched_of(lives) -> WatchedDurations:
    return WatchedDurations(
        np.sort(np.array([last for _, last, ended in lives if ended], np.int64)),
        np.sort(np.array([last for _, last, ended in lives if not ended], np.int64)),
        np.sort(np.array([entry for entry, _, _ in lives if entry > 0], np.int64)),
    )


@given(LIVES)
def test_the_share_that_lasts_longer_is_the_product_over_those_at_risk(lives):
    survival = estimate_survival(watched_of(lives))
    share, ends = 1.0, sorted({last for _, last, ended in lives if ended})
    for at, told in zip(ends, survival.share.tolist(), strict=True):
        risk = sum(entry < at <= last for entry, last, _ in lives)
        over = sum(ended and last == at for _, last, ended in lives)
        if over < risk or at == ends[-1]:
            share *= 1 - over / risk
        assert told == pytest.approx(share)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_where_all_ended_quantiles_are_those_of_the_values(values, part):
    ordered = np.sort(np.array(values))
    told = survival_quantile(estimate_survival(WatchedDurations(ordered, NONE, NONE)), part, Unit.MS, "jobs")
    assert told.value == rank_quantile(ordered, part, Unit.MS, "jobs").value
    assert told.low <= told.value <= told.high


@given(LIVES, st.integers(0, 30), st.floats(0.001, 0.999))
def test_what_is_drawn_lasts_longer_than_it_did_and_longer_at_lower_ranks(lives, age, rank):
    survival = estimate_survival(watched_of(lives), usual_ms=5.0)
    assume(survival.share.size == 0 or age < survival.last_ms or survival.left > 0)
    lower, higher = draw_beyond(survival, np.array([age, age]), np.array([rank, rank / 2])).tolist()
    assert age < lower <= higher


def test_what_is_drawn_is_spread_as_those_are_that_got_so_far():
    rng = np.random.default_rng(0)
    values = np.sort((rng.exponential(10 * HOUR_MS, 4000)).astype(np.int64) + 1)
    survival = estimate_survival(WatchedDurations(values, NONE, NONE))
    ranks = (np.arange(2000) + 0.5) / 2000
    drawn = draw_beyond(survival, np.full(2000, 12 * HOUR_MS), ranks)
    longer = values[values > 12 * HOUR_MS]
    assert drawn.mean() == pytest.approx(longer.mean(), rel=0.02)
    assert np.quantile(drawn, 0.9) == pytest.approx(np.quantile(longer, 0.9), rel=0.05)


def test_beyond_the_last_end_ends_come_at_the_rate_of_the_last_ten():
    ended = np.arange(1, 101) * HOUR_MS
    survival = estimate_survival(WatchedDurations(ended, np.full(10, 190 * HOUR_MS), NONE))
    exposed = sum(range(1, 11)) + 10 * 100  # hours beyond the ninetieth end
    assert survival.rate * HOUR_MS == pytest.approx(10 / exposed)
    assert survival.left == pytest.approx(10 / 110)
    nothing_ended = estimate_survival(WatchedDurations(NONE, np.full(4, 5 * HOUR_MS), NONE), usual_ms=2.0 * HOUR_MS)
    assert nothing_ended.rate * HOUR_MS == pytest.approx(1 / 22)


def test_what_was_not_reached_is_told_as_a_lower_bound():
    survival = estimate_survival(WatchedDurations(np.array([1, 2, 3]), np.full(97, 50), NONE))
    median = survival_quantile(survival, 0.5, Unit.MS, "jobs")
    assert (median.how, median.value) == (How.AT_LEAST, 50)
    shape = survival_shape(survival, Unit.MS, "jobs")
    assert shape.mean.how is How.AT_LEAST
    nothing = survival_shape(estimate_survival(WatchedDurations(NONE, np.array([10, 30]), NONE)), Unit.MS, "jobs")
    assert (nothing.mean.how, nothing.mean.value) == (How.AT_LEAST, 20)


@settings(max_examples=50)
@given(LIVES)
def test_a_sketch_has_the_weight_of_all(lives):
    watched = watched_of(lives)
    survival = estimate_survival(watched)
    assert weight_of(survival_sketch(survival)) == pytest.approx(watched.total, rel=1e-4)


# -- intervals ---------------------------------------------------------------------------------------------------------

SPREADS = {
    "exponential": lambda rng, count: rng.exponential(20 * HOUR_MS, count),
    "lognormal": lambda rng, count: rng.lognormal(np.log(5 * HOUR_MS), 1.0, count),
    "even": lambda rng, count: rng.uniform(0, 48 * HOUR_MS, count),
}


def watch_window(rng, spread, count: int, window_ms: int, *, left: bool) -> WatchedDurations:
    """Work that begins at any time, watched in a window; with `left`, it had begun for a month before that."""
    first = -30 * DAY_MS if left else 0
    begin = rng.uniform(first, window_ms, round(count * (window_ms - first) / window_ms)).astype(np.int64)
    lasts = SPREADS[spread](rng, len(begin)).astype(np.int64) + 1
    begin, lasts = begin[begin + lasts > 0], lasts[begin + lasts > 0]
    seen, ended = np.minimum(begin + lasts, window_ms) - begin, begin + lasts <= window_ms
    return WatchedDurations(np.sort(seen[ended]), np.sort(seen[~ended]), np.sort(-begin[begin < 0]))


def holds(number: Number, truth: float) -> bool:
    return number.value <= truth if number.how is How.AT_LEAST else number.low <= truth <= number.high


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("spread", SPREADS)
def test_intervals_hold_the_truth_although_work_was_cut_off(spread, left):
    truth = np.sort(SPREADS[spread](np.random.default_rng(9), 400_000))
    expected = {0.5: float(np.quantile(truth, 0.5)), 0.9: float(np.quantile(truth, 0.9)), "mean": float(truth.mean())}
    held, plain, tries = dict.fromkeys(expected, 0), [], 120
    for seed in range(tries):
        watched = watch_window(np.random.default_rng(seed), spread, 300, 3 * DAY_MS, left=left)
        survival = estimate_survival(watched)
        found = {part: survival_quantile(survival, part, Unit.MS, "jobs") for part in (0.5, 0.9)}
        found["mean"] = survival_shape(survival, Unit.MS, "jobs").mean
        plain.append(watched.ended_ms.mean() / expected["mean"])
        for name, number in found.items():
            held[name] += holds(number, expected[name])
    assert min(held.values()) >= 0.8 * tries, held  # 90 % is promised
    if not left:
        assert np.mean(plain) < 0.9  # what was seen to end is shorter than what is


def test_left_out_entries_would_make_everything_look_long():
    watched = watch_window(np.random.default_rng(1), "lognormal", 600, DAY_MS, left=True)
    truth = 5 * HOUR_MS * np.exp(0.5)
    with_entries, without = (
        mean_of(survival_sketch(estimate_survival(one))) for one in (watched, watched._replace(entered_ms=NONE))
    )
    assert with_entries == pytest.approx(truth, rel=0.15)
    assert without > 1.2 * truth
