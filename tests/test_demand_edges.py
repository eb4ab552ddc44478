"""Tables at the edge of what can be measured: nothing is certain that rests on nothing, and nothing fails."""

from __future__ import annotations

import numpy as np

from demand_jobs import tables_of
from tidegate.demand.arrivals import measure_arrivals
from tidegate.demand.curves import Window
from tidegate.demand.fit import fit
from tidegate.demand.numbers import How, Unit
from tidegate.demand.tolerance import _late_share
from tidegate.model.units import DAY_MS
from tidegate.planning.preflight import Asked, check_flight


def test_jobs_that_all_take_no_time_are_measured():
    model = fit(tables_of([("a", "batch", 1000, 600 * at, 5, 0, False) for at in range(60)]))
    spread = model.durations[0]
    assert (spread.mean.value, spread.cv.value) == (0, 0)


def test_no_tolerance_at_all_is_a_tolerance():
    tables = tables_of([("a", "batch", 1000, 600 * at, 0, 900, False) for at in range(60)], started=False)
    found = check_flight(tables, Asked(tolerance_ms=0)).replayed
    assert found is not None
    assert found.tolerance_ms == 0


def test_one_job_tells_no_interval_of_a_level():
    """It was `2 (2 to 2)`, of 12 blocks."""
    group = fit(tables_of([("a", "batch", 2000, 0, 5, 3600, False)])).groups[0]
    assert group.wanted is not None
    assert (group.wanted.p50.value, group.wanted.p50.how, group.wanted.blocks) == (2, How.FEW, 0)


def test_no_late_job_does_not_mean_that_none_will_be():
    """It was 0 (0 to 0); of jobs of which one in 200 is late, 58 % of the intervals held that."""
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        at_ms, late = np.sort(rng.integers(0, 28 * DAY_MS, 200)), rng.random(200) < 0.005
        found = _late_share(at_ms, late)
        assert found.low < found.high
        held.append(found.low <= 0.005 <= found.high)
    assert np.mean(held) >= 0.85


def test_dispersion_without_arrivals_that_coincide_has_no_interval():
    """Of independent arrivals, 3 in an hour over three weeks, 50 % of the intervals at 1 s held the 1."""
    rng = np.random.default_rng(1)
    at_ms = np.sort(rng.integers(0, 21 * DAY_MS, 3 * 24 * 21))
    found = measure_arrivals(at_ms, Window(0, 21 * DAY_MS), Unit.JOBS, "jobs", ordered=True)
    hows = {one.window_ms // 1000: one.idc.how for one in found.dispersion}
    assert (hows[1], hows[60], hows[3600]) == (How.FEW, How.BLOCKS, How.BLOCKS)
