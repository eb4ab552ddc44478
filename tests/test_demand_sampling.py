"""Samples that come at times of their own: late ones, rare ones, and those that tell nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tidegate.demand.estimate import How
from tidegate.demand.findings import find
from tidegate.demand.fit import fit
from tidegate.demand.sampling import ONE_LOOK, SampleGrid, TimedSamples, held_at
from tidegate.demand.sentences import finding_text
from tidegate.demand.tables import CAPACITY, USE, Tables
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.sources.read_sources import read_sources

ROWS = 2_000


def shaped(schema: pl.Schema, **columns) -> pl.DataFrame:
    given = {name: value if isinstance(value, pl.Series) else pl.lit(value) for name, value in columns.items()}
    empty = {name: pl.lit("" if dtype == pl.String else None) for name, dtype in schema.items()}
    return pl.select(**(empty | given)).select(schema.names()).cast(schema)


def even(rows: int = ROWS, every_ms: int = MINUTE_MS) -> np.ndarray:
    return np.arange(rows, dtype=np.int64) * every_ms


def late(seed: int = 0) -> np.ndarray:
    """Every minute, but up to a second early or late."""
    return even() + np.random.default_rng(seed).integers(0, 2_000, ROWS)


def counted(at_ms: np.ndarray, **columns) -> pl.DataFrame:
    usual = {"every_ms": MINUTE_MS, "total_milli": 16_000, "running_milli": 10_000, "pending_milli": 2_000}
    return shaped(CAPACITY, at_ms=pl.Series(at_ms), **(usual | columns))


def used(pod: str, at_ms: np.ndarray, **columns) -> pl.DataFrame:
    usual = {"every_ms": MINUTE_MS, "gpus_milli": 1_000, "busy_milli": 500, "vram_mib": 1_024}
    return shaped(USE, at_ms=pl.Series(at_ms), allocation=pod, **(usual | columns))


def total_of(*frames: pl.DataFrame):
    return fit(Tables(capacity=pl.concat(frames).lazy())).total()


def test_counters_that_are_a_second_late_count_once():
    total = total_of(counted(late()))
    assert [total.wanted.p05.value, total.wanted.p95.value, total.wanted.peak.value] == [12, 12, 12]
    assert total.bursts.episodes.value == 0


def test_queues_that_are_counted_less_often_count_in_between():
    rare = counted(even(ROWS // 5, 5 * MINUTE_MS), queue="b", every_ms=5 * MINUTE_MS)
    total = total_of(counted(even(), queue="a"), rare)
    assert [total.wanted.p05.value, total.wanted.peak.value] == [24, 24]


def test_a_counter_that_nobody_read_is_not_0():
    total = total_of(counted(even(), pending_milli=None))
    assert (total.wanted.mean.value, total.seen.mean.value, total.waiting) == (10, 10, None)
    model = fit(Tables(capacity=counted(even(), running_milli=None, pending_milli=None).lazy()))
    assert (model.total(), model.outlooks) == (None, ())
    assert (model.fleet.total.mean.value, model.fleet.free_p95) == (16, None)


def test_a_counter_that_is_missing_at_times_is_not_0_then():
    running = pl.Series([10_000 if row < 700 or row > 1_300 else None for row in range(ROWS)])
    total = total_of(counted(even(), running_milli=running))
    assert (total.wanted.mean.value, total.wanted.p05.value) == (12, 12)
    assert total.gpu_hours.how is How.AT_LEAST
    assert total.gpu_hours.value == pytest.approx(running.is_not_null().sum() * 12 / 60, rel=1e-5)


def test_pods_that_are_sampled_less_often_hold_their_gpus_in_between():
    often = [used(f"p{pod}", late(pod)) for pod in range(20)]
    rare = [used(f"r{pod}", even(ROWS // 5, 5 * MINUTE_MS), every_ms=5 * MINUTE_MS) for pod in range(10)]
    seen = fit(Tables(use=pl.concat([*often, *rare]).lazy())).residency
    assert (seen.held.p50.value, seen.held.peak.value) == (30, 30)
    assert seen.held.mean.value == pytest.approx(30, rel=0.01)
    assert seen.busy.peak.value == 15


def test_gpus_of_one_pod_that_are_read_one_after_the_other_are_one_look():
    looks = np.repeat(even(10), 8) + np.tile(np.arange(8), 10) * 5
    samples = TimedSamples(np.zeros(80, np.int64), looks, np.full(80, MINUTE_MS))
    held = held_at(samples, [np.ones(80, np.int64)], SampleGrid(0, MINUTE_MS, 10), ONE_LOOK)[0]
    assert held.tolist() == [8.0] * 10


def test_an_idle_spell_ends_where_samples_are_missing():
    at_ms = np.concatenate((even(60), even(60) + 5 * HOUR_MS))
    seen = fit(Tables(use=used("x", at_ms, busy_milli=0).lazy())).residency
    assert seen.allocations[0].longest_idle_ms == HOUR_MS
    assert seen.held.mean.value == 1


def test_memory_that_nobody_measured_is_not_told_as_0():
    known, unknown = (
        [finding_text(one) for one in find(fit(Tables(use=used("x", even(120), busy_milli=0, vram_mib=vram).lazy())))]
        for vram in (2_048, None)
    )
    assert "x held a GPU for 2h without work, 2.0 GiB of memory with it." in known
    assert "x held a GPU for 2h without work." in unknown


def test_memory_of_a_pod_is_weighted_with_time():
    often, rare = even(60), HOUR_MS + even(12, 5 * MINUTE_MS)
    frames = [used("x", often, vram_mib=1_024), used("x", rare, vram_mib=3_072, every_ms=5 * MINUTE_MS)]
    seen = fit(Tables(use=pl.concat(frames).lazy())).residency
    assert seen.allocations[0].vram_gib == pytest.approx(2) == seen.vram_gib.value


def test_how_long_samples_stand_for_is_the_usual_time_between_them(tmp_path):
    """Times that are never quite the same have no most common one; the shortest is a tenth of the usual."""
    rng = np.random.default_rng(3)
    lines = ["timestamp_ms,pod,gpu_util"]
    for pod, every_ms in (("a", MINUTE_MS), ("b", 5 * MINUTE_MS)):
        at_ms = 1_772_409_600_000 + even(600 * MINUTE_MS // every_ms, every_ms)
        moved = at_ms + rng.integers(0, 27_000, at_ms.size)
        lines += [f"{at},{pod},50" for at in moved.tolist()]
    path = tmp_path / "use.csv"
    path.write_text("\n".join(lines))
    every = read_sources([str(path)]).tables.use.group_by("allocation").agg(pl.col("every_ms").unique()).collect()
    found = {pod: told[0] for pod, told in every.rows()}
    assert found["a"] == pytest.approx(MINUTE_MS, rel=0.05)
    assert found["b"] == pytest.approx(5 * MINUTE_MS, rel=0.05)
