"""Metrics by meaning: their current name, older names, and the unit."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """Something that is measured."""

    key: str
    names: tuple[str, ...]  # the newest first; older ones are read where the newest is not there
    scale: float = 1  # to the unit that is used here
    counter: bool = False  # it only grows
    needed: str = ""  # for what it is needed


def _signal(key: str, names: str, scale: float = 1, *, counter: bool = False, needed: str = "") -> Metric:
    return Metric(key, tuple(names.split()), scale, counter, needed)


#: DCGM: what GPUs do.
DCGM = (
    _signal("busy", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1000, needed="busy time of GPUs"),
    _signal("busy_coarse", "DCGM_FI_DEV_GPU_UTIL dcgm_gpu_utilization nvidia_gpu_duty_cycle", 10),
    _signal("vram", "DCGM_FI_DEV_FB_USED dcgm_fb_used", needed="VRAM that is held"),
    _signal("vram_free", "DCGM_FI_DEV_FB_FREE dcgm_fb_free"),
    _signal("power", "DCGM_FI_DEV_POWER_USAGE dcgm_power_usage"),
)


class ServingEngine(NamedTuple):
    """An engine that serves models: its counters of requests and tokens, and its queue."""

    name: str
    requests: Metric
    tokens_in: Metric
    tokens_out: Metric
    latency_sum: Metric  # seconds
    latency_count: Metric
    running: Metric
    waiting: Metric
    models: tuple[str, ...]  # labels that name the model


def _server(name: str, models: str, **signals: str) -> ServingEngine:
    gauges = ("running", "waiting")
    made = {key: _signal(key, names, counter=key not in gauges) for key, names in signals.items()}
    return ServingEngine(name, models=tuple(models.split()), **made)


ENGINES = (
    _server(
        "vLLM",
        "model_name served_model_name",
        requests="vllm:request_success_total vllm:request_success vllm:e2e_request_latency_seconds_count",
        tokens_in="vllm:prompt_tokens_total vllm:prompt_tokens",
        tokens_out="vllm:generation_tokens_total vllm:generation_tokens",
        latency_sum="vllm:e2e_request_latency_seconds_sum",
        latency_count="vllm:e2e_request_latency_seconds_count",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
    ),
    _server(
        "SGLang",
        "model_name",
        requests="sglang:num_requests_total sglang:e2e_request_latency_seconds_count",
        tokens_in="sglang:prompt_tokens_total",
        tokens_out="sglang:generation_tokens_total",
        latency_sum="sglang:e2e_request_latency_seconds_sum",
        latency_count="sglang:e2e_request_latency_seconds_count",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
    ),
    _server(
        "TGI",
        "model_id model",
        requests="tgi_request_success tgi_request_success_total tgi_request_count tgi_request_count_total",
        tokens_in="tgi_request_input_length_sum",
        tokens_out="tgi_request_generated_tokens_sum",
        latency_sum="tgi_request_duration_sum",
        latency_count="tgi_request_duration_count",
        running="tgi_batch_current_size",
        waiting="tgi_queue_size",
    ),
)

#: kube-state-metrics: pods, what they ask for, and what nodes have.
KUBE = {
    "asked": _signal("asked", "kube_pod_container_resource_requests", needed="GPUs that pods hold and wait for"),
    "phase": _signal("phase", "kube_pod_status_phase"),
    "allocatable": _signal("allocatable", "kube_node_status_allocatable", needed="GPUs that nodes have"),
    "created": _signal("created", "kube_pod_created"),
    "started": _signal("started", "kube_pod_start_time"),
    "ended": _signal("ended", "kube_pod_completion_time"),
    "owner": _signal("owner", "kube_pod_info"),
}

#: Kueue: queues.
KUEUE = {
    "pending_jobs": _signal("pending_jobs", "kueue_pending_workloads", needed="queue depth"),
    "running_jobs": _signal("running_jobs", "kueue_admitted_active_workloads kueue_reserving_active_workloads"),
    "running": _signal("running", "kueue_cluster_queue_resource_usage kueue_cluster_queue_resource_reservation", 1000),
    "pending": _signal("pending", "kueue_cluster_queue_resource_pending", 1000),
    "total": _signal("total", "kueue_cluster_queue_nominal_quota", 1000),
}

#: Karpenter: how long nodes take, by the condition that came true.
KARPENTER = (
    _signal("sum", "operator_nodeclaim_status_condition_transition_seconds_sum", counter=True),
    _signal(
        "count",
        "operator_nodeclaim_status_condition_transition_seconds_count",
        counter=True,
        needed="how long nodes take to come",
    ),
)
STAGES = {"Registered": "node", "Initialized": "driver"}

#: Names of resources that are GPUs, as kube-state-metrics spells them.
GPU_RESOURCES = "nvidia_com_gpu|amd_com_gpu|nvidia_com_gpu_shared|gpu_intel_com_i915|nvidia_com_mig_.*"


def every_metric() -> list[Metric]:
    """All of them."""
    served = [
        part
        for engine in ENGINES
        for part in (
            engine.requests,
            engine.tokens_in,
            engine.tokens_out,
            engine.latency_sum,
            engine.running,
            engine.waiting,
        )
    ]
    return [*DCGM, *served, *KUBE.values(), *KUEUE.values(), *KARPENTER]
