"""The simulations of Muri come out exactly as published."""

from __future__ import annotations

import pytest

import muri
from shared import shared
from tidegate.engine.kernels.registry import kernels_as


@pytest.mark.parametrize(
    ("trace", "policy", "average"),
    [("trace3", "srtf", 193081.796), ("trace3", "srsf", 185021.8802), ("trace3", "las", 347213.2481)],
)
def test_the_average_completion_time_is_the_published_one(trace, policy, average):
    with kernels_as(compiled=True):
        result = muri.run_one(shared("traces/muri_philly"), trace, policy)
    assert abs(result["avg_jct_s"] - average) < 0.001
