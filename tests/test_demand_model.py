"""The document, its differences, samples of it, answers, findings and waste."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl
import pytest

import demand_traces as traces
from demand_jobs import tables_of
from shared import shared
from tidegate.demand.chart_data import duration_curve, outlook_points, week_curve
from tidegate.demand.durations import Meaning
from tidegate.demand.findings import FindingCode, find
from tidegate.demand.fit import fit
from tidegate.demand.four_questions import DemandQuestion, Grade, MissingData, Verdict, answer, judge
from tidegate.demand.model import VERSION, GroupScope, encode, read
from tidegate.demand.model_diff import diff
from tidegate.demand.sentences import finding_text, verdict_text, waste_text
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import STARTS, USE, Tables
from tidegate.demand.tolerance import ToleranceBasis
from tidegate.demand.waste import Leak, find_waste
from tidegate.model.problem import Report
from tidegate.model.units import DAY_MS, HOUR_MS


def weeks(days: int = 21, seed: int = 1):
    """Jobs of two queues and kinds with days and nights, waits, and some that give up."""
    generator = np.random.default_rng(seed)
    rows = []
    for hour in range(24 * days):
        for _ in range(generator.poisson(3 + 3 * np.sin(2 * np.pi * hour / 24) + (hour % 50 == 0) * 20)):
            queue, kind = ("a", "batch") if generator.random() < 0.7 else ("b", "inference")
            gpus = int(generator.choice([1000, 2000, 8000, 16000], p=[0.6, 0.2, 0.15, 0.05]))
            wait, took = int(generator.exponential(120)), int(generator.lognormal(7, 1.2)) + 1
            at = hour * 3600 + int(generator.integers(0, 3600))
            rows.append((queue, kind, gpus, at, wait, took, bool(generator.random() < 0.03)))
    return rows


@pytest.fixture(scope="module")
def model():
    return fit(tables_of(weeks()))


def test_the_document_comes_back_whole_and_small(model):
    text = encode(model)
    report = Report()
    assert read(text, report) == model
    assert encode(read(text, report)) == text
    assert report.errors == 0
    assert len(text) < 150_000
    assert len(text.splitlines()) > 300  # a line for each field: what changed can be seen


def test_the_same_rows_give_the_same_bytes(model):
    assert encode(fit(tables_of(weeks()))) == encode(model)


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        (b"{", "", "not JSON"),
        (b"[]", "format", "list"),
        (b'{"format": "tidegate.plan", "version": 1}', "format", "tidegate.plan"),
        (b'{"format": "tidegate.demand", "version": 99}', "version", "99"),
        (f'{{"format": "tidegate.demand", "version": {VERSION}, "groups": 3}}'.encode(), "groups", "3"),
    ],
)
def test_what_is_no_document_is_refused_with_its_reason(text, path, found):
    report = Report()
    assert read(text, report) is None
    told = [problem for problem in report.problems if (problem.path[:1] or ("",))[0] == path]
    assert told
    assert found in told[0].found


def test_an_older_version_says_what_to_do(model):
    other = encode(model).replace(f'"version": {VERSION}'.encode(), b'"version": 0')
    report = Report()
    assert read(other, report) is None
    assert "make it again" in report.problems[0].text()


def test_every_number_has_its_ground(model):
    tables = {ground.table for ground in model.grounds}
    seen = []

    def walk(value):
        if isinstance(value, dict):
            if {"value", "unit"} <= set(value):
                seen.append(value)
                assert value["low"] <= value["value"] <= value["high"]
                assert value["samples"] >= 0
                assert value.get("table", "jobs") in tables
            for item in value.values():
                walk(item)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)

    walk(msgspec.to_builtins(model))
    assert len(seen) > 200


def even_weeks(seed, rate=1.0):
    """Two weeks of jobs of an hour and more, at an even rate."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 14 * 86_400, rng.poisson(600 * rate)))
    run, wait = rng.exponential(5000, at.size).astype(int) + 1, rng.exponential(300, at.size).astype(int)
    sizes = rng.choice([1000, 2000, 8000], at.size)
    return fit(tables_of([("a", "batch", *map(int, row), False) for row in zip(sizes, at * 1, wait, run, strict=True)]))


def test_windows_of_the_same_demand_do_not_differ_beyond_the_noise_and_twice_the_demand_does():
    pairs = [(even_weeks(2 * seed), even_weeks(2 * seed + 1)) for seed in range(4)]
    called = [change.path for pair in pairs for change in diff(*pair) if change.beyond_noise]
    assert len(called) <= 1
    twice = [change.path for change in diff(pairs[0][0], even_weeks(99, rate=2.0)) if change.beyond_noise]
    assert "groups[total].wanted.mean" in twice


def test_equal_models_do_not_differ_and_others_say_where(model):
    assert diff(model, model) == ()
    more = fit(tables_of(weeks() + [("c", "batch", 64_000, 3600 * hour, 0, 3600, False) for hour in range(24 * 21)]))
    changes = {change.path: change for change in diff(model, more)}
    moved = changes["groups[total].wanted.mean"]
    assert moved.beyond_noise
    assert moved.ratio > 1.5
    assert changes["groups[queue c]"].before is None
    assert not any("sketch" in path for path in changes)
    back = {change.path: change for change in diff(more, model)}
    assert back["groups[total].wanted.mean"].after == moved.before


def test_a_sample_has_the_same_seven_inputs(model):
    again = fit(sample(model, 3))
    one, other = model.total(), again.total()
    near = pytest.approx
    # stated in docs/demand.md: means 10 %, p95 25 %, spreads of durations 5 %, dispersion a factor of 2.5
    assert other.jobs == near(one.jobs, rel=0.02)
    assert other.gpu_hours.value == near(one.gpu_hours.value, rel=0.05)
    assert other.wanted.mean.value == near(one.wanted.mean.value, rel=0.1)
    assert other.wanted.p95.value == near(one.wanted.p95.value, rel=0.25)
    assert other.waiting.mean.value == near(one.waiting.mean.value, rel=0.25)
    assert other.tolerance.waited_p90.value == near(one.tolerance.waited_p90.value, rel=0.1)
    assert other.tolerance.cancelled.value == near(one.tolerance.cancelled.value, abs=0.015)
    for left, right in zip(one.arrivals.dispersion, other.arrivals.dispersion, strict=True):
        assert 1 / 2.5 < right.idc.value / left.idc.value < 2.5
    for left, right in zip(model.mix, again.mix, strict=True):
        assert right.share.value == near(left.share.value, abs=0.05)
    for left, right in zip(model.durations, again.durations, strict=True):
        for name in ("p50", "p90", "cv"):
            assert getattr(right, name).value == near(getattr(left, name).value, rel=0.06)


def test_a_sample_is_the_seed_s_and_scales(model):
    one, same, other = (sample(model, seed).jobs.collect() for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
    double = sample(model, 1, scale=2.0, length_ms=7 * DAY_MS).jobs.collect()
    assert double.height == pytest.approx(2 * one.height / 3, rel=0.05)
    assert double["submitted_ms"].is_sorted()
    assert double["gpus_milli"].min() >= 1000


@pytest.mark.parametrize(
    ("read_trace", "path"),
    [(traces.itp, "traces/itp/cluster07.csv"), (traces.itp, "traces/itp/cluster01.csv")],
)
def test_samples_of_real_jobs(read_trace, path):
    model = fit(read_trace(shared(path)))
    one, other = model.total(), fit(sample(model, 1)).total()
    assert other.wanted.mean.value == pytest.approx(one.wanted.mean.value, rel=0.2)
    assert other.wanted.p95.value == pytest.approx(one.wanted.p95.value, rel=0.25)
    assert other.gpu_hours.value == pytest.approx(one.gpu_hours.value, rel=0.12)


def test_samples_of_requests_and_use():
    azure = fit(traces.azure(shared("traces/azure_llm/AzureLLMInferenceTrace_code.csv")))
    (one,), (other,) = azure.services, fit(sample(azure, 1)).services
    assert other.rate.mean.value == pytest.approx(one.rate.mean.value, rel=0.05)
    assert other.rate.p95.value == pytest.approx(one.rate.p95.value, rel=0.1)
    for left, right in zip(one.arrivals.dispersion[:3], other.arrivals.dispersion[:3], strict=True):
        assert 0.5 < right.idc.value / left.idc.value < 2
    genai = fit(traces.genai(shared("traces/genai_serving")))
    left, right = genai.residency, fit(sample(genai, 1)).residency
    assert right.duty.value == pytest.approx(left.duty.value, rel=0.05)
    assert right.idle.value == pytest.approx(left.idle.value, rel=0.05)
    assert right.busy.p95.value == pytest.approx(left.busy.p95.value, rel=0.1)
    assert right.idle_vram_gib.value == pytest.approx(left.idle_vram_gib.value, rel=0.1)


def use_table(busy, vram=20_000) -> pl.LazyFrame:
    rows = [
        {
            "at_ms": at * 60_000,
            "every_ms": 60_000,
            "allocation": name,
            "gpus_milli": 1000,
            "busy_milli": milli,
            "vram_mib": vram,
        }
        for name, series in busy.items()
        for at, milli in enumerate(series)
    ]
    return traces.shaped(pl.DataFrame(rows).lazy(), USE)


def test_residency_by_hand():
    seen = fit(Tables(use=use_table({"x": [0] * 90 + [500] * 30, "y": [1000] * 120}))).residency
    assert seen.duty.value == pytest.approx((0.5 * 30 + 120) / 240, rel=1e-5)
    assert seen.idle.value == pytest.approx(90 / 240)
    assert seen.idle_gpu_hours.value == pytest.approx(1.5)
    assert (seen.allocations[0].name, seen.allocations[0].longest_idle_ms) == ("x", 90 * 60_000)
    assert seen.idle_vram_gib.value == pytest.approx(20_000 / 1024, rel=1e-4)


def test_answers_are_graded_by_what_is_known(model):
    starts = traces.shaped(
        pl.DataFrame(
            {"at_ms": [0] * 3, "stage": ["node", "node", "weights"], "took_ms": [60_000, 80_000, 30_000]}
        ).lazy(),
        STARTS,
    )
    tables = tables_of(weeks())
    declared = tables.jobs.with_columns(pl.lit(60_000).alias("tolerated_wait_ms"))
    full = fit(tables._replace(jobs=declared, starts=starts, use=use_table({"x": [0] * 90 + [500] * 30})))
    answers = {one.question: one for one in answer(full)}
    assert {one.grade for one in answers.values()} == {Grade.MEASURED}
    assert judge(tuple(answers.values())) is Verdict.READY
    assert full.cold_start.window.value == 90_000  # the medians, one after the other
    less = {one.question: one for one in answer(model)}
    assert less[DemandQuestion.BURST].lacks == (MissingData.NO_COLD_START,)
    assert less[DemandQuestion.RESIDENCY].grade is Grade.ASSUMED
    bare = answer(fit(tables_of(weeks(), started=False)))
    assert judge(bare) is Verdict.PREMATURE
    assert verdict_text(Verdict.PREMATURE, bare) == "Premature: two of four answers are assumptions."


def test_tolerance_is_declared_revealed_or_not_known(model):
    assert model.total().tolerance.basis is ToleranceBasis.GIVEN_UP
    assert model.total().broken is not None
    rows = [(*row[:6], False) for row in weeks()]
    assert fit(tables_of(rows)).total().tolerance.basis is ToleranceBasis.ACCEPTED
    tables = tables_of(rows)
    declared = tables._replace(jobs=tables.jobs.with_columns(pl.lit(60_000).alias("tolerated_wait_ms")))
    total = fit(declared).total()
    assert total.tolerance.basis is ToleranceBasis.DECLARED
    assert total.tolerance.tolerated.value == 60_000
    late = sum(row[4] > 60 for row in rows) / len(rows)
    assert total.broken.late.value == pytest.approx(late, rel=1e-4)


def test_the_depth_that_breaks_tolerance_by_hand():
    """Every tenth job meets a deep queue and waits too long; the others wait for nothing."""
    rows = []
    for at in range(400):
        crowded = at % 10 == 0
        rows += [("a", "batch", 8000, at * 1000, 500 if crowded else 0, 10, False)]
        rows += [("a", "batch", 1000, at * 1000 + 1, 300 if crowded else 0, 10, False)]
    tables = tables_of(rows)
    declared = tables._replace(jobs=tables.jobs.with_columns(pl.lit(60_000).alias("tolerated_wait_ms")))
    broken = fit(declared).total().broken
    assert broken.late.value == pytest.approx(0.1)
    assert broken.depth.value == 8  # whoever finds eight GPUs waiting, waits too long


def test_findings_and_waste(model):
    rows = [*weeks(), ("a", "batch", 400_000, 5000, 0, 60, False)]
    tables = tables_of(rows)
    urgent = tables._replace(
        jobs=tables.jobs.with_columns(priority=pl.when(pl.int_range(pl.len()) % 5 == 0).then(0).otherwise(9))
    )
    spiky = fit(urgent._replace(use=use_table({"x": [0] * 90 + [500] * 30, "y": [0] * 119 + [10]})))
    codes = {one.code for one in find(spiky)}
    assert {FindingCode.ALL_URGENT, FindingCode.IDLE_HOLDER, FindingCode.SPIKE, FindingCode.GAVE_UP} <= codes
    assert all(finding_text(one) for one in find(spiky))
    waste = {one.leak: one for one in find_waste(spiky)}
    assert waste[Leak.IDLE].gpu_hours == pytest.approx((90 + 119) / 60, rel=1e-4)
    wanted = spiky.total().wanted
    hours = (spiky.grounds[0].end_ms - spiky.grounds[0].start_ms) / HOUR_MS
    above = sum(band.demand for band in wanted.bands[-2:])
    assert waste[Leak.PEAK].gpu_hours == pytest.approx((wanted.peak.value - wanted.p95.value) * hours - above, rel=1e-3)
    assert waste_text(waste[Leak.PEAK]).startswith("Buying for the peak")
    assert FindingCode.ALL_URGENT not in {one.code for one in find(model)}


def test_gangs_need_more_than_a_node(model):
    gang = next(one for one in model.durations if one.size == "9-16")
    assert Meaning.NEEDS_GANG in gang.meaning
    assert all(one.fitted is None or 0 <= one.fitted.distance <= 1 for one in model.durations)


def test_shares_of_the_mix_add_up(model):
    assert sum(one.share.value for one in model.mix) == pytest.approx(1, abs=1e-4)
    by_hour = np.sum([one.week for one in model.mix], axis=0)
    idle = by_hour == 0  # hours in which nothing is asked for have no shares
    assert by_hour[~idle] == pytest.approx(np.ones((~idle).sum()), abs=1e-3)
    assert idle.mean() < 0.2


def test_what_screens_draw(model):
    wanted = model.total().wanted
    curve = duration_curve(wanted)
    assert list(curve.level) == sorted(curve.level, reverse=True)
    assert curve.level[0] == wanted.peak.value
    assert curve.level[50] == pytest.approx(wanted.p50.value, rel=0.1)
    week = week_curve(wanted)
    assert len(week.mean) == 168
    points = outlook_points(model.outlooks[0])
    assert all(point.low <= point.middle <= point.high for point in points)
    assert points[0].at_ms == model.outlooks[0].end_ms
    assert {one.kind for one in model.mix} == {"batch", "inference"}
    assert model.group(GroupScope.QUEUE, "a").wanted.week is not None


def test_where_nine_of_ten_start_at_once_nobody_was_asked_for_patience():
    rows = [("a", "batch", 1000, at, 300 if at % 20 == 0 else 0, 60, False) for at in range(200)]
    tolerance = fit(tables_of(rows)).total().tolerance
    assert tolerance.basis == "none"
    assert tolerance.tolerated is None
    assert tolerance.waited_p99.value > 0
