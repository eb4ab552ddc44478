"""What is published about real traces comes out of the command itself; what is no demand is refused with the reason."""

from __future__ import annotations

import json

import pytest

from commands import ran
from shared import shared


def preflight(path: str, form: str) -> dict:
    return json.loads(ran("preflight", str(shared(f"traces/{path}")), "--format", form, "--json"))


def answers(found: dict) -> dict[str, dict]:
    return {one["question"]: one for one in found["answers"]}


def numbers(found: dict, question: str) -> dict[str, float]:
    return {name: one["value"] for name, one in answers(found)[question]["numbers"].items()}


def test_itp_cluster07():
    found = preflight("itp/cluster07.csv", "itp")
    floor = numbers(found, "floor")
    assert round(floor["mean"]) == 257
    assert (floor["p95"], floor["p99"], floor["peak"]) == (376, 437, 1903)
    assert "mean 257, p05 140, p50 255, p95 376, p99 437, peak 1,903 GPUs" in answers(found)["floor"]["says"]
    spikes = [one for one in found["findings"] if "peaks at" in one["says"]]
    assert len(spikes) == 1  # the only queue is not told again


def test_azure_llm():
    found = preflight("azure_llm/AzureLLMInferenceTrace_code.csv", "azure-llm")
    burst = numbers(found, "burst")
    assert round(burst["peak_to_mean_1s"]) == 26
    assert (round(burst["idc_1s"]), round(burst["idc_1m"])) == (13, 164)
    assert "peak/mean 26.1 at 1 s and 4.18 at 1 min, IDC 13.2 and 164" in answers(found)["burst"]["says"]


def test_genai_serving():
    found = preflight("genai_serving", "genai")
    said = answers(found)["residency"]["says"]
    assert "busy 7.0 % of the time they were held; 66.9 % of the samples were idle, holding 24.0 GiB" in said
    floor = numbers(found, "floor")  # a queue that was counted in requests is no demand of 0 GPUs
    assert floor["busy_p95"] == pytest.approx(20.8, abs=0.05)
    assert floor["mean"] == pytest.approx(109, abs=1)
    waiting = found["model"]["groups"][0]["waiting"]
    assert waiting["unit"] == "jobs"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("openb", "no demand"),
        ("openb/openb_pod_list_default.csv", "its times are no load"),
        ("topology/topo.csv", "is a network of hosts and switches (topology), no demand"),
        ("spot_interruptions", "capacity and no demand"),
        ("muri_philly/published.csv", "holds published results (muri), no demand"),
    ],
)
def test_what_is_no_demand_is_refused(path, says):
    assert says in ran("preflight", str(shared(f"traces/{path}")), code=2)
