"""The simulations of Muri come out exactly as published, and as a plain oracle has them on traces that were drawn."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import muri
from muri_oracle import ends_of
from rounds import RoundJob
from shared import shared
from tidegate.jit.registry import kernels_as


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("trace", "policy", "average"),
    [("trace3", "srtf", 193081.796), ("trace3", "srsf", 185021.8802), ("trace3", "las", 347213.2481)],
)
def test_the_average_completion_time_is_the_published_one(trace, policy, average):
    with kernels_as(compiled=True):
        result = muri.run_one(shared("traces/muri_philly"), trace, policy)
    assert abs(result["avg_jct_s"] - average) < 0.001


@st.composite
def traces(draw) -> list[tuple[int, int, int, int, int]]:
    """GPUs, submission in s, milliseconds of an iteration, seconds of work and of overhead: much of it the same."""
    at_once = draw(st.booleans())
    job = st.tuples(
        st.sampled_from([1, 1, 2, 4, 8, 16]),
        st.just(0) if at_once else st.integers(0, 8).map(lambda n: n * 40_000),
        st.sampled_from([100, 125, 400, 700]),
        st.sampled_from([70_000, 140_000, 1_400_000, 2_800_000]),
        st.sampled_from([4, 7, 10]),
    )
    return sorted(draw(st.lists(job, min_size=2, max_size=25)), key=lambda job: job[1])


def jobs_of(trace: list[tuple[int, int, int, int, int]], policy: str) -> list[RoundJob]:
    return [
        RoundJob(
            id=f"{at:08d}",
            work=muri.gang(gpus, policy),
            gpus=gpus,
            submit_s=float(submit_s),
            iterations=float(work_s * 1000 // iteration_ms),
            iteration_s=iteration_ms * muri.SLOWDOWN / 1000,
            overhead_s=overhead_s,
        )
        for at, (gpus, submit_s, iteration_ms, work_s, overhead_s) in enumerate(trace)
    ]


#: A job that waits for a victim to leave stays ahead of one that runs and was just moved to its level.
_VICTIM_LEAVES = [
    *[(1, 0, 100, 70_000, 4)] * 4,
    (8, 0, 100, 140_000, 4),
    (1, 40_000, 100, 70_000, 4),
    *[(8, 40_000, 100, 70_000, 4)] * 2,
    (16, 80_000, 100, 70_000, 4),
]


@pytest.mark.parametrize("policy", list(muri.POLICIES))
@given(trace=traces())
@example(trace=_VICTIM_LEAVES)
@settings(max_examples=40, deadline=None)
def test_every_job_ends_when_the_plain_oracle_says(policy, trace):
    jobs = jobs_of(trace, policy)
    with kernels_as(compiled=False):
        world = muri.simulated(jobs, policy, nodes=3).world
    assert world.ends_s.tolist() == ends_of(jobs, policy, nodes=3, gpus=muri.GPUS_A_NODE)


def test_two_ends_within_a_billionth_are_one_at_the_time_of_the_first_in_the_order():
    """The job of one GPU has the least left to do; the other ends a millisecond before it, and with it."""
    jobs = jobs_of([(1, 0, 1000, 2_000_000, 4), (2, 0, 1000, 2_000_000, 4)], "srsf")
    jobs[0] = jobs[0]._replace(iterations=jobs[0].iterations + 0.001)
    for policy, end in (("srsf", 2_030_000.001015), ("srtf", 2_030_000.0), ("las", 2_030_016.0)):
        with kernels_as(compiled=False):
            ends = muri.simulated(jobs, policy, nodes=1).world.ends_s.tolist()
        assert ends == ends_of(jobs, policy, nodes=1, gpus=8)
        assert ends[1] == pytest.approx(end, abs=1e-7)
        assert (ends[0] == ends[1]) == (policy != "las")
