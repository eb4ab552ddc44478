"""Tables at the edge of what can be measured: nothing is certain that rests on nothing, and nothing fails."""

from __future__ import annotations

from demand_jobs import tables_of
from tidegate.demand.fit import fit
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
