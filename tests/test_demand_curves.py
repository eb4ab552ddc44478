"""Levels over time against counting them second by second, and laws that must hold for any jobs."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demand_jobs import job_rows, tables_of
from tidegate.demand import concurrency
from tidegate.demand.bursts import ceilings, find_bursts
from tidegate.demand.concurrency import Moments, Spans, TickTally, curves_of, put_in_order, whole
from tidegate.demand.estimate import Unit
from tidegate.demand.fit import fit
from tidegate.demand.group_keys import Cells
from tidegate.demand.job_table import read_jobs, window_of
from tidegate.demand.model import GroupScope, encode
from tidegate.demand.step_curve import Window, average_by, episodes_above, level_at, level_times

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=20)
WINDOW = Window(5, 70)
CELLS = Cells(np.array([1, 2, 8]), 0.5, {"color": np.array([0, 1, 1], np.int32)})


def second_by_second(spans, window=WINDOW, cells=CELLS, keep=lambda cell: True):
    """The level in each unit of time."""
    return np.array(
        [
            sum(cells.amount[cell] for begin, took, cell in spans if keep(cell) and begin <= at < begin + took)
            for at in range(window.start_ms, window.end_ms)
        ]
    )


def spans_of(rows) -> Spans:
    begin, took, cell = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Spans(begin, begin + took, cell.astype(np.int32))


@given(SPANS)
def test_a_curve_is_what_counting_gives(rows):
    curve = whole(put_in_order(spans_of(rows), CELLS, WINDOW))
    counted = second_by_second(rows) * CELLS.unit
    held = level_times(curve)
    assert held.time_ms.sum() == WINDOW.length_ms
    assert held.mean() == pytest.approx(counted.mean())
    assert held.peak() == counted.max()
    for at in (0.05, 0.5, 0.9, 0.95, 1.0):
        expected = np.sort(counted)[max(math.ceil(at * counted.size) - 1, 0)]
        assert held.quantiles(np.array([at]))[0] == expected
    assert average_by(curve, 13) == pytest.approx([part.mean() for part in np.split(counted, range(13, 65, 13))])
    points = np.arange(1, WINDOW.length_ms, 7)
    assert level_at(curve, points).tolist() == counted[points - 1].tolist()


@given(SPANS)
def test_groups_add_up_to_the_whole(rows):
    found = curves_of(spans_of(rows), CELLS, WINDOW)
    whole_mean = level_times(found["total"][0]).mean()
    assert sum(level_times(curve).mean() for curve in found["color"]) == pytest.approx(whole_mean)
    for row, curve in enumerate(found["color"]):
        counted = second_by_second(rows, keep=lambda cell, row=row: CELLS.labels["color"][cell] == row)
        assert level_times(curve).mean() == pytest.approx(counted.mean() * CELLS.unit)


@given(SPANS)
def test_ticks_of_one_unit_are_exact(rows):
    spans = spans_of(rows)
    tally = TickTally((0, 1), CELLS, WINDOW)
    for part in (slice(0, 3), slice(3, None)):
        tally.add({kind: Moments(at[part], spans.cell[part]) for kind, at in enumerate((spans.begin_ms, spans.end_ms))})
    exact, ticked = curves_of(spans, CELLS, WINDOW), tally.between(0, 1)
    for name in exact:
        for one, other in zip(exact[name], ticked[name], strict=False):
            assert level_times(one).mean() == pytest.approx(level_times(other).mean())
            assert level_times(one).peak() == level_times(other).peak()


@given(SPANS, st.integers(0, 6))
def test_episodes_are_runs_above_the_line(rows, line):
    curve = whole(put_in_order(spans_of(rows), CELLS, WINDOW))
    above = second_by_second(rows) * CELLS.unit - line
    edges = np.flatnonzero(np.diff(np.concatenate(([False], above > 0, [False])).astype(int)))
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    found = episodes_above(curve, line)
    assert found.start_ms.tolist() == [begin for begin, _ in runs]
    assert found.length_ms.tolist() == [end - begin for begin, end in runs]
    assert found.height == pytest.approx([above[begin:end].max() for begin, end in runs])
    assert found.area * 3_600_000 == pytest.approx([above[begin:end].sum() for begin, end in runs])


def test_noise_is_what_ends_before_capacity_could_start():
    rows = [(10, 3, 2), (30, 20, 2)]
    curve = whole(put_in_order(spans_of(rows), CELLS, WINDOW))
    bursts = find_bursts(curve, 1.0, 10, Unit.GPUS, "jobs")
    assert [one.noise for one in bursts.largest] == [True, False]
    assert bursts.noise.value == 0.5
    assert bursts.noise_area.value * 3_600_000 == pytest.approx(3 * 3)
    assert find_bursts(curve, 1.0, None, Unit.GPUS, "jobs").noise is None


@given(st.lists(st.integers(0, 9), min_size=2, max_size=40))
def test_a_ceiling_is_the_least_bucket_that_never_overflows(values):
    series = np.array(values, np.float64)
    for one in ceilings(series, 1000, (Unit.REQUESTS_PER_S, Unit.REQUESTS), 1000):
        waits, most = 0.0, 0.0
        for value in values:
            waits = max(waits + value - one.rate, 0.0)
            most = max(most, waits)
        assert one.burst == pytest.approx(most, rel=1e-3, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(job_rows())
def test_waiting_and_running_are_what_they_are_by_hand(rows):
    tables = tables_of(rows)
    jobs = read_jobs(tables)
    window = window_of(jobs)
    total = fit(tables).total()
    seconds = range(window.start_ms // 1000, window.end_ms // 1000)
    if not total.seen:
        assert all(row[6] for row in rows)
        return
    waiting = [sum(g for _, _, g, s, w, _, _ in rows if s <= at < s + w) / 1000 for at in seconds]
    running = [
        sum(g for _, _, g, s, w, d, gone in rows if not gone and s + w <= at < s + w + d) / 1000 for at in seconds
    ]
    if seconds:
        assert total.waiting.mean.value == pytest.approx(np.mean(waiting), rel=1e-4, abs=1e-6)
        assert total.seen.mean.value == pytest.approx(np.mean(running), rel=1e-4, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(job_rows(), st.integers(1, 100))
def test_neither_time_nor_names_matter(rows, weeks):
    plain = fit(tables_of(rows))
    moved = fit(tables_of(rows, shift=weeks * 7 * 86_400_000))
    named = fit(tables_of(rows, rename=lambda name: f"x-{name}"))
    for group, later, other in zip(plain.groups, moved.groups, named.groups, strict=True):
        assert group.wanted == later.wanted == other.wanted
        assert group.tolerance == later.tolerance == other.tolerance
    assert plain.durations == moved.durations == named.durations


@settings(max_examples=20, deadline=None)
@given(job_rows())
def test_quantiles_rise_and_intervals_hold_their_number(rows):
    for group in fit(tables_of(rows)).groups:
        levels = group.wanted
        told = [levels.p05, levels.p25, levels.p50, levels.p75, levels.p90, levels.p95, levels.p99, levels.peak]
        assert [one.value for one in told] == sorted(one.value for one in told)
        assert all(one.low <= one.value <= one.high for one in (*told, levels.mean))
        assert sum(band.demand for band in levels.bands) == pytest.approx(
            levels.mean.value * sum(levels.sketch.weights, levels.sketch.zeros), rel=1e-3, abs=1e-6
        )


@settings(max_examples=15, deadline=None)
@given(job_rows())
def test_queues_of_a_model_add_up(rows):
    model = fit(tables_of(rows))
    for scope in (GroupScope.KIND, GroupScope.QUEUE):
        parts = [group for group in model.groups if group.scope is scope]
        assert sum(group.jobs for group in parts) == model.total().jobs
        assert sum(group.gpu_hours.value for group in parts) == pytest.approx(model.total().gpu_hours.value, rel=1e-4)
        assert sum(group.wanted.mean.value for group in parts) == pytest.approx(
            model.total().wanted.mean.value, rel=1e-4, abs=1e-9
        )


def test_the_order_of_rows_does_not_matter():
    rows = [("a", "batch", 1000 * (1 + at % 3), at * 7 % 50, at % 5, 10 + at, False) for at in range(40)]
    tables = tables_of(rows)
    turned = tables._replace(jobs=tables.jobs.collect().sample(fraction=1.0, shuffle=True, seed=3).lazy())
    one, other = fit(tables), fit(turned)
    assert one.groups == other.groups
    assert one.durations == other.durations


def test_very_many_jobs_give_nearly_the_same(monkeypatch):
    generator = np.random.default_rng(5)
    rows = [
        (queue, "batch", 1000, int(at), int(wait), int(took), False)
        for queue, at, wait, took in zip(
            generator.choice(["a", "b"], 4000),
            generator.integers(0, 200_000, 4000),
            generator.exponential(30, 4000),
            generator.lognormal(5, 1, 4000) + 1,
            strict=True,
        )
    ]
    exact = fit(tables_of(rows))
    for module in ("concurrency", "grouped_quantiles", "arrivals", "measure_groups"):
        monkeypatch.setattr(f"tidegate.demand.{module}.MOST_EXACT", 100)
    rough = fit(tables_of(rows))
    for one, other in zip(exact.groups, rough.groups, strict=True):
        for name in ("mean", "p50", "p95"):
            assert getattr(other.wanted, name).value == pytest.approx(getattr(one.wanted, name).value, rel=0.01, abs=1)
        assert other.tolerance.waited_p90.value == pytest.approx(one.tolerance.waited_p90.value, rel=0.005)
        assert other.arrivals.count == one.arrivals.count
    assert rough.durations[0].p90.value == pytest.approx(exact.durations[0].p90.value, rel=0.005)
    assert concurrency.MOST_EXACT == 100


def test_no_jobs_at_all():
    empty = tables_of([("a", "batch", 1000, 0, 0, 1, False)])
    model = fit(empty._replace(jobs=empty.jobs.filter(pl.lit(False))))
    assert model.groups == ()
    assert encode(model)
