"""Faults at random points of a live run; `bench/faults.py --points 200` is the long form."""

from __future__ import annotations

from collections import Counter

import pytest

from kubefaults import FAULTS, Ordeal, draw_points

#: A control plane each for so many parts of so many points: every kind of fault at least once.
SEED, PARTS, POINTS = 20, 3, 6


def test_points_are_those_of_their_seed():
    assert draw_points(7, 30) == draw_points(7, 30) != draw_points(8, 30)
    counts = Counter(point.fault for point in draw_points(7, 30))
    assert counts.keys() == set(FAULTS)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.usefixtures("kube_programs")
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_goes_wrong_breaks_what_must_hold(part):
    points = draw_points(SEED, PARTS * POINTS)[part * POINTS : (part + 1) * POINTS]
    kinds = {point.fault for point in points}
    with Ordeal(SEED + part) as ordeal:
        for number, point in enumerate(points):
            ordeal.endure(number, point)
        ordeal.finish()
        assert ordeal.proxy.refused or not kinds & {"conflicts", "busy"}
        assert ordeal.proxy.lost or not kinds & {"lost before", "lost after"}
        assert ordeal.violations == []
