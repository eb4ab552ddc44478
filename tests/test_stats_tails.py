"""Intervals of quantiles of what comes in episodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.stats.block_quantiles import quantile_interval
from tidegate.stats.blocks import Blocks
from tidegate.stats.interval import Interval, NoInterval
from tidegate.stats.quantile import quantile

FORGETFUL, SLOW = Blocks(6, 28, 0.0, 1.0), Blocks(6, 28, 4.0, 0.4)


def test_a_tail_from_one_block_is_less_sure_than_one_from_all():
    rng = np.random.default_rng(1)
    even = [rng.exponential(1, 200) for _ in range(6)]
    order = np.sort(np.concatenate(even))
    lonely = [*np.split(order[:1000], 5), order[1000:]]
    widths = []
    for sections in (even, lonely):
        found = quantile_interval(sections, FORGETFUL, 0.95)
        widths.append(np.inf if isinstance(found, NoInterval) else found.high / found.low)
    assert widths[1] > 2 * widths[0]


def test_an_interval_reaches_over_a_gap_between_usual_waits_and_campaigns():
    """6 % wait for a minute, unevenly by block, and nobody for 10 s: of blocks alone it is 29 s to 143 s."""
    late = (0, 5, 14, 0, 5, 12)
    sections = [np.repeat([10.0, 60_000.0], [100 - many, many]) for many in late]
    assert quantile(np.concatenate(sections), 0.95) == 60_000
    found = quantile_interval(sections, FORGETFUL, 0.95)
    assert found is NoInterval.WIDE or (isinstance(found, Interval) and found.low <= 10)


def test_few_looks_carry_no_p99():
    sections = [np.arange(100.0) + row for row in range(6)]
    assert quantile_interval(sections, SLOW, 0.99) is NoInterval.FEW
    assert isinstance(quantile_interval(sections, SLOW, 0.95), Interval)
    assert isinstance(quantile_interval(sections, FORGETFUL, 0.99), Interval)
    assert quantile_interval([*sections[:5], np.zeros(0)], FORGETFUL, 0.5) is NoInterval.FEW


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=20), min_size=6, max_size=12),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
    st.integers(0, 60),
)
def test_an_interval_holds_its_value_and_stays_above_zero(lists, share, told):
    sections = [np.array(each, np.int64) for each in lists]
    found = quantile_interval(sections, Blocks(len(sections), len(sections), 0.0, 1.0), share, float(told))
    if isinstance(found, Interval):
        assert 0 <= found.low <= told <= found.high
    else:
        assert found is NoInterval.WIDE


def test_blocks_join_units_in_order():
    joined = Blocks(6, 13, 0.0, 1.0).join([np.array([unit], np.int64) for unit in range(13)])
    assert [part.tolist() for part in joined] == [[0, 1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]
