"""The numbers that were published about the shared traces, from the model."""

from __future__ import annotations

import pytest

import demand_traces as traces
from shared import shared
from tidegate.demand.fit import fit
from tidegate.demand.model import GroupScope


def test_itp_concurrency():
    total = fit(traces.itp(shared("traces/itp/cluster07.csv"))).total()
    wanted = total.wanted
    assert [round(one.value) for one in (wanted.mean, wanted.p95, wanted.p99, wanted.peak)] == [257, 376, 437, 1903]
    assert wanted.p95.low < 376 < wanted.p95.high
    assert total.jobs == 12_699
    assert total.seen is None  # nobody recorded starts
    assert total.waiting is None


def test_philly_concurrency_and_its_queues():
    model = fit(traces.philly(shared("traces/philly/philly.csv")))
    wanted = model.total().wanted
    assert [round(one.value) for one in (wanted.mean, wanted.p95, wanted.peak)] == [374, 758, 1243]
    queues = [group for group in model.groups if group.scope is GroupScope.QUEUE]
    assert len(queues) == 15
    assert sum(group.jobs for group in queues) == model.total().jobs == 82_247
    assert sum(group.wanted.mean.value for group in queues) == pytest.approx(wanted.mean.value, rel=1e-4)


def test_azure_bursts():
    (service,) = fit(traces.azure(shared("traces/azure_llm/AzureLLMInferenceTrace_code.csv"))).services
    by_window = {one.window_ms: one for one in service.arrivals.dispersion}
    assert round(by_window[1000].peak_to_mean.value) == 26
    assert round(by_window[60_000].peak_to_mean.value, 1) == 4.2
    assert round(by_window[1000].idc.value) == 13
    assert round(by_window[60_000].idc.value) == 164
    assert round(service.arrivals.gap_cv.value, 1) == 13.2


def test_servegen_rate():
    (service,) = fit(traces.servegen(shared("traces/servegen/language_m-large_clients.csv.gz"))).services
    rate = service.rate
    assert [round(one.value) for one in (rate.mean, rate.p95, rate.p99, rate.peak)] == [196, 342, 408, 583]
    assert service.outlook is not None


def test_genai_residency():
    seen = fit(traces.genai(shared("traces/genai_serving"))).residency
    assert round(100 * seen.duty.value, 1) == 7.0
    assert round(100 * seen.idle.value, 1) == 66.9
    assert round(seen.idle_vram_gib.value, 1) == 24.0
    assert [round(one.value, 1) for one in (seen.busy.mean, seen.busy.p95, seen.busy.peak)] == [7.7, 20.8, 29.7]
    assert round(seen.held.mean.value) == 109


def test_helios_counters_are_running_and_pending():
    model = fit(traces.helios(shared("traces/helios_earth")))
    total = model.total()
    assert total.wanted.mean.value == pytest.approx(total.seen.mean.value + total.waiting.mean.value, rel=1e-5)
    assert model.fleet.total is not None
    assert len([group for group in model.groups if group.scope is GroupScope.QUEUE]) == 8
