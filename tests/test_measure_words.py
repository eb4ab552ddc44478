"""Time marks, numbers in words, spreading over bins, findings."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_measure_lives import two_jobs
from tidegate.measure.findings import find
from tidegate.measure.format import amount_text, count_text, percent_text, time_text
from tidegate.measure.job_records import collect_job_records
from tidegate.measure.summary import RunSummary, summarise
from tidegate.measure.time_axis import clock, time_marks, weekday
from tidegate.measure.time_series import ClusterSamples, resample, spread
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS


@pytest.mark.parametrize(
    ("start", "end", "most", "labels"),
    [
        (0, 7 * DAY_MS, 10, ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]),
        (DAY_MS // 2, 3 * DAY_MS, 10, ["Tue", "Wed"]),
        (0, DAY_MS, 4, ["00:00", "06:00", "12:00", "18:00"]),
        (0, 10 * MINUTE_MS, 5, ["00:00", "00:02", "00:04", "00:06", "00:08"]),
        (0, 28 * DAY_MS, 5, ["day 1", "day 8", "day 15", "day 22"]),
        (0, 400 * DAY_MS, 4, ["day 1", "day 113", "day 225", "day 337"]),
        (0, 0, 5, []),
    ],
)
def test_time_marks(start: int, end: int, most: int, labels: list[str]) -> None:
    assert [mark.label for mark in time_marks(start, end, most)] == labels


@given(st.integers(0, 10**13), st.integers(1, 10**12), st.integers(1, 40))
def test_marks_are_within_and_few(start: int, length: int, most: int) -> None:
    marks = time_marks(start, start + length, most)
    assert len(marks) <= most + 1
    assert all(start <= mark.at_ms < start + length for mark in marks)


def test_weekdays() -> None:
    assert weekday(0) == "Mon", "a twin begins on a Monday"
    assert weekday(1_762_992_000_000) == "Thu", "13 November 2025"
    assert clock(25 * HOUR_MS + 5 * MINUTE_MS) == "01:05"


def test_numbers_in_words() -> None:
    assert [percent_text(share) for share in (None, 0, 0.001, 0.714, 1)] == ["–", "0 %", "<1 %", "71 %", "100 %"]  # noqa: RUF001
    assert [time_text(ms) for ms in (None, 0, 3, 5_400_000.4)] == ["–", "0s", "<1s", "1h30m"]  # noqa: RUF001
    assert [amount_text(amount) for amount in (0, 0.01, 0.26, 2.0, 9.96, 12_345.6)] == [
        "0", "<0.1", "0.3", "2", "10", "12,346",
    ]  # fmt: skip
    assert [count_text(count, "node") for count in (0, 1, 1_200)] == ["0 nodes", "1 node", "1,200 nodes"]


def test_an_observation_is_spread_evenly() -> None:
    edges = np.array([0, 10, 20, 30])
    from_ms, until_ms = np.array([5, 10, 7]), np.array([25, 20, 7])
    amounts = np.array([40.0, 3.0, 9.0])  # the last took no time: nothing to spread
    assert spread(from_ms, until_ms, amounts, edges).tolist() == [10, 23, 10]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 500), st.floats(0, 1e6)), max_size=20))
def test_spreading_loses_nothing(windows: list[tuple[int, int, float]]) -> None:
    from_ms = np.array([start for start, _, _ in windows], np.int64)
    until_ms = from_ms + np.array([length for _, length, _ in windows], np.int64)
    amounts = np.array([amount for _, _, amount in windows], np.float64)
    parts = spread(from_ms, until_ms, amounts, np.arange(0, 1601, 100))
    assert parts.sum() == pytest.approx(amounts.sum(), abs=1e-3)


def samples_of(values: list[float], covered: list[int]) -> ClusterSamples:
    """Samples of which only the bins matter."""
    column, none = np.array(values), np.zeros((len(values), 0))
    at_ms = np.arange(len(values)) * 10
    return ClusterSamples(10, at_ms, np.array(covered), *[column] * 6, (), none, none, (), none, none, none)


def test_resampling_weighs_by_time() -> None:
    samples = samples_of([4.0, 8.0, np.nan, 2.0], [5, 10, 10, 5])  # from 5 to 35 ms
    assert resample(samples, samples.up_milli, 1).tolist() == [(4 * 5 + 8 * 10 + 2 * 5) / 20]
    thirds = resample(samples, samples.up_milli, 3)
    assert thirds.tolist() == [6, 8, 2]
    sixths = resample(samples, samples.up_milli, 6)
    assert sixths.tolist()[:3] == [4, 8, 8]
    assert np.isnan(sixths[3:5]).all()


def summary_with(**fields: object) -> RunSummary:
    return msgspec.structs.replace(summarise(collect_job_records(two_jobs()), 32_000_000), **fields)


def texts(summary: RunSummary) -> list[str]:
    return [finding.text for finding in find(summary, collect_job_records(two_jobs()))]


def test_findings_of_a_small_run() -> None:
    """Of 25.5 GPU-s held 20 were observed; w1 waited 9 s; by queue x 100 %, y 5.5/14.5."""
    summary = summary_with()
    wanted = 0.6 * (summary.end_ms - summary.start_ms) / HOUR_MS
    assert texts(summary_with(idle_wanted_gpu_h=wanted)) == [
        "On average 0.6 allocated GPUs stood idle while as many were waited for.",
        "Use was observed for 78 % of the allocated time: the rest is unknown, not idle.",
        "Queues were served unevenly: x got 100 % of the GPU time it held or waited for, y 38 % (fairness 0.83).",
    ]


def test_findings_that_need_a_cause() -> None:
    total = summary_with().total
    busy = msgspec.structs.replace(
        total, busy_share=None, idle_gpu_h=0.0, evictions=3, lost_gpu_h=total.allocated_gpu_h
    )
    found = texts(summary_with(total=busy, fairness=1.0, fragmented_share=0.1))
    assert found == [
        "Whether GPUs were busy was not observed: find out before you buy more.",
        "3 evictions threw away <0.1 GPU-hours, 100 % of what was allocated.",
        "On average 0.2 GPUs were free but too scattered for the pods usually asked for.",
    ]


def test_idle_and_waiting_count_where_they_meet() -> None:
    """GPUs that idle on one day and work that waits on the next have nothing to do with each other."""
    samples = samples_of([0.0] * 4, [10, 10, 10, 5])
    samples = samples._replace(
        observed_gpus=np.array([8.0, 8.0, 8.0, 8.0]),
        busy_gpus=np.array([0.0, 8.0, 5.0, np.nan]),
        waiting_milli=np.array([[0.0, 0.0], [4000, 4000], [1000, 1000], [9000, 0]]),
    )
    assert samples.idle_wanted_gpu_h() * HOUR_MS == pytest.approx(min(3, 2) * 10)
    apart = samples._replace(waiting_milli=samples.waiting_milli * [[1], [1], [0], [0]])
    assert apart.idle_wanted_gpu_h() == 0
    assert texts(summary_with(idle_wanted_gpu_h=0.0))[0].startswith("Use was observed")


def test_slack_is_told_by_what_was_waited_for() -> None:
    """Nine jobs of ten start at once, and the tenth waits for 7,488 GPU-hours: that is not hardly anything."""
    summary = summary_with(allocation_share=0.5)
    assert summary.total.wait is not None
    at_once = msgspec.structs.replace(summary.total.wait, p90_ms=0.0)
    few = msgspec.structs.replace(summary.total, wait=at_once, waited_gpu_h=summary.capacity_gpu_h)
    assert not [text for text in texts(summary_with(allocation_share=0.5, total=few)) if "hardly anything" in text]
    none = msgspec.structs.replace(few, waited_gpu_h=0.0)
    assert [text for text in texts(summary_with(allocation_share=0.5, total=none)) if "hardly anything" in text]
