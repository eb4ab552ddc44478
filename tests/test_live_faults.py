"""Faults at random points of a live run; `bench/faults.py --points 200` is the long form."""

from __future__ import annotations

from collections import Counter

import pytest

from kubefaults import FAULTS, Ordeal, draw_points

SEED, POINTS = 20, 20


def test_points_are_those_of_their_seed():
    assert draw_points(7, 30) == draw_points(7, 30) != draw_points(8, 30)
    counts = Counter(point.fault for point in draw_points(7, 30))
    assert counts.keys() == set(FAULTS)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.usefixtures("kube_programs")
def test_nothing_that_goes_wrong_breaks_what_must_hold():
    with Ordeal(SEED) as ordeal:
        for number, point in enumerate(draw_points(SEED, POINTS)):
            ordeal.endure(number, point)
        ordeal.finish()
        assert ordeal.proxy.refused
        assert ordeal.proxy.lost
        assert ordeal.violations == []
