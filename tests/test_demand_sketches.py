"""Sketches, fitted distributions, and values in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.demand.distributions import Family, fit_family, normal_quantile
from tidegate.demand.estimate import How, Unit
from tidegate.demand.grouped_quantiles import Grouping, _thin_out
from tidegate.demand.sketches import ACCURACY, draw, quantiles, share_below, sketch_of, sketch_ordered
from tidegate.demand.survival import estimate_survival, survival_quantile
from tidegate.demand.tolerance import ObservedWaits

VALUES = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 1e9)), min_size=1, max_size=60)
AT = np.linspace(0.0, 1.0, 21)


@given(VALUES)
def test_quantiles_are_within_the_accuracy(values):
    ordered = np.sort(np.array(values))
    sketch = sketch_of(ordered)
    told = quantiles(sketch, (np.arange(ordered.size) + 0.5) / ordered.size)
    assert np.all(np.abs(told - ordered) <= 2.1 * ACCURACY * ordered + 1e-9)
    assert np.all(np.diff(quantiles(sketch, AT)) >= 0)
    assert sketch.mean == pytest.approx(ordered.mean(), rel=1e-5)


@given(VALUES)
def test_shares_rise_to_one(values):
    sketch = sketch_of(np.array(values))
    told = share_below(sketch, np.append(np.linspace(0, sketch.most, 40), sketch.most))
    assert np.all(np.diff(told) >= 0)
    assert told[-1] == 1


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.integers(1, 50))
def test_ordered_values_have_the_same_sketch(values, every):
    ordered = np.sort(np.array(values))
    assert sketch_ordered(ordered, every) == sketch_of(ordered, np.full(ordered.size, float(every)))


def test_shares_and_quantiles_undo_each_other():
    sketch = sketch_of(np.random.default_rng(6).lognormal(2, 1, 50_000))
    assert share_below(sketch, quantiles(sketch, AT[1:])) == pytest.approx(AT[1:], abs=1e-6)


def test_what_is_drawn_has_the_mean():
    values = np.random.default_rng(1).lognormal(3, 2, 5000)
    sketch = sketch_of(values)
    ranks = (np.arange(20_000) + 0.5) / 20_000
    assert draw(sketch, ranks).mean() == pytest.approx(values.mean(), rel=0.01)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        (Family.LOGNORMAL, np.random.default_rng(2).lognormal(4, 1.5, 20_000)),
        (Family.WEIBULL, 100 * np.random.default_rng(3).weibull(0.6, 20_000)),
        (Family.EXPONENTIAL, np.random.default_rng(4).exponential(50, 20_000)),
    ],
)
def test_the_family_is_found(family, values):
    fitted = fit_family(sketch_of(values))
    assert fitted.close
    assert fitted.family is family or (family is Family.EXPONENTIAL and fitted.shape == pytest.approx(1, abs=0.05))


def test_what_fits_no_family_is_said_to():
    values = np.concatenate([np.full(500, 10.0), np.full(500, 1000.0)])
    assert not fit_family(sketch_of(values)).close


def test_normal_quantiles():
    assert normal_quantile(np.array([0.001, 0.025, 0.5, 0.95])) == pytest.approx(
        [-3.090232, -1.959964, 0, 1.644854], abs=1e-6
    )


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=80))
def test_buckets_keep_values_to_a_thousandth(values):
    (part,), every = _thin_out(
        [(np.array(values), np.zeros(len(values), np.int32))], Grouping(np.zeros(1, np.int64), 1)
    )
    assert every == 1
    assert np.all(np.abs(part - np.sort(values)) <= np.maximum(0.001 * np.sort(values), 1))


def test_patience_by_hand():
    started, gone = np.array([10, 20, 30, 40]), np.array([15, 25])
    # five wait longer than 10 when one gives up at 15; three when one does at 25: 4/5 and 4/5 * 2/3 are left
    none = np.zeros(0, np.int64)
    survival = estimate_survival(ObservedWaits(started, gone, none, none, none, {}, (1, 1, 1, 1, 1)).until_given_up())
    assert survival.at_ms.tolist() == [15, 25]
    assert survival.share.tolist() == pytest.approx([4 / 5, 8 / 15])
    spent = {part: survival_quantile(survival, part, Unit.MS, "jobs") for part in (0.2, 0.4, 0.5)}
    assert (spent[0.2].value, spent[0.4].value) == (15, 25)
    assert spent[0.5].how is How.AT_LEAST
    # three more still wait: two for 22, one for 50
    waits = ObservedWaits(started, gone, none, np.array([22, 22, 50]), none, {}, (1, 1, 1, 1, 1))
    assert estimate_survival(waits.until_given_up()).share.tolist() == pytest.approx([7 / 8, 7 / 8 * 3 / 4])
