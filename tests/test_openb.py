"""The openb experiment comes out exactly as published."""

from __future__ import annotations

import pytest

import openb
from shared import shared
from tidegate.jit.registry import kernels_as

pytestmark = pytest.mark.compiles

FINAL = {
    "failed_pods": "failed_pods",
    "used_milli": "used_gpu_milli_final",
    "cpu_milli": "cpu_milli_used_final",
    "gpus_touched": "gpus_touched_final",
}


@pytest.mark.parametrize("policy", ["dotprod", "clustering", "packing", "bestfit", "fgd"])
@pytest.mark.parametrize("workload", ["default", "gpuspec33", "multigpu50"])
def test_a_deterministic_run_equals_its_published_final_state_and_curve(workload, policy):
    folder = shared("traces/openb")
    expected = openb.read_keyed(folder / "expected_final_states.csv", ("workload", "policy", "seed"))
    curves = openb.read_keyed(folder / "published_curves.csv", ("workload", "sc_policy", "seed"))
    name = openb.PUBLISHED_NAMES[policy]
    with kernels_as(compiled=True):
        result = openb.run_one(folder, workload, 43, policy)
    final, curve = expected[workload, name, "43"], curves[f"openb_pod_list_{workload}", name, "43"]
    assert openb.differences(result, final, curve) == []


def test_random_comes_close_to_its_published_mean():
    folder = shared("traces/openb")
    means = openb.read_keyed(folder / "published_allocation.csv", ("workload", "policy", "arrival_pct"))
    with kernels_as(compiled=True):
        results = [openb.run_one(folder, "default", seed, "random") for seed in range(42, 47)]
    for percent in ("100", "130"):
        mean = sum(result[f"alloc_{percent}"] for result in results) / len(results)
        assert abs(mean - float(means["default", "01-Random", percent]["alloc_ratio_mean"])) < 0.4


@pytest.mark.parametrize(
    ("workload", "seed", "pods", "policy"),
    [
        *(("default", 42, 4000, policy) for policy in ("bestfit", "clustering", "packing", "dotprod", "random")),
        *(("gpushare40", 44, 250, policy) for policy in ("fgd", "tide")),  # plain, these look at every device
    ],
)
def test_plain_kernels_give_the_same_journal_as_compiled_ones(workload, seed, pods, policy):
    folder = shared("traces/openb")
    digests = []
    for compiled in (True, False):
        with kernels_as(compiled=compiled):
            digests.append(openb.digest_of(folder, workload, seed, policy, pods=pods))
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("workload", "least"), [("default", 0.8), ("multigpu50", 0.5), ("gpuspec10", 1.0)])
def test_tide_gains_on_fgd(workload, least):
    folder = shared("traces/openb")
    means = openb.read_keyed(folder / "published_allocation.csv", ("workload", "policy", "arrival_pct"))
    with kernels_as(compiled=True):
        results = [openb.run_one(folder, workload, seed, "tide") for seed in (42, 43, 44)]
    for percent in ("100", "130"):
        mean = sum(result[f"alloc_{percent}"] for result in results) / len(results)
        assert mean - float(means[workload, "06-FGD", percent]["alloc_ratio_mean"]) >= least
