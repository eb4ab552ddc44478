"""Kueue's tables of cycles with topologies: objects in through the product's import, one `decide`, who goes where."""

from __future__ import annotations

import re
from typing import Any

from kueue.cluster import Objects, Told, World
from kueue.cycle_cases import admission_of, is_leaving, text
from tidegate.engine.decide import decide
from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.reasons.catalogue import Reason

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def run(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Say how a cycle's decisions differ from Kueue's; None: they do not."""
    gates = case.get("featureGates") or {}
    told = Told(transformations=case.get("resourceTransformations") or (), gates=gates)
    now = fixtures.get("now") or max(_TIME.findall(str(case)), default="2026-01-01T00:00:00Z")
    world = World(objects_of(case, fixtures), read_time_ms(now), told)
    decisions, _ = decide(world.state)
    world.carry_out(decisions)
    evicted = {
        world.workloads[number][0].id
        for number in decisions.workload[decisions.code == Reason.NO_REPLACEMENT_DOMAIN].tolist()
    }
    return differs(case, world, evicted)


def objects_of(case: dict[str, Any], fixtures: dict[str, Any]) -> Objects:
    """The objects of a case; where its table says nothing of local queues, one for each queue by its name."""
    queues = fixtures.get("queues") or [local_queue(queue["metadata"]["name"]) for queue in case["clusterQueues"]]
    return Objects(
        cluster_queues=case["clusterQueues"],
        cohorts=case.get("cohorts") or [],
        flavors=case["resourceFlavors"],
        local_queues=queues,
        workloads=case["workloads"],
        nodes=case["nodes"] or [],
        topologies=case["topologies"],
        checks=case.get("admissionChecks") or [],
        pods=case.get("pods") or [],
    )


def local_queue(queue: str) -> dict[str, Any]:
    """The local queue of Kueue's own test for a queue."""
    name = queue.replace("-cq-", "-lq-")
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": queue}}


def differs(case: dict[str, Any], world: World, evicted: set[str]) -> str | None:
    """Compare what a state came to with what a case wants."""
    settled = {
        f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        for obj in case["workloads"]
        if is_admitted(obj) and not (obj["status"].get("unhealthyNodes") and "wantWorkloads" not in case)
    }
    wanted = {key: admission_of(want) for key, want in (case.get("wantNewAssignments") or {}).items()}
    found = {key: value for key, value in world.admissions().items() if key not in settled}
    if wanted != found:
        return f"admitted {text(found, wanted)} here, {text(wanted, found)} with Kueue"
    if "wantWorkloads" in case:
        there = {name_of(obj) for obj in case["wantWorkloads"] if is_leaving(obj)}
        here = world.leaving()
    else:
        told = case.get("wantEvents") or []
        there = {
            f"{event['Key']['Namespace']}/{event['Key']['Name']}"
            for event in told
            if event.get("Reason") == "EvictedDueToNodeFailures"
        }
        here = evicted
    if here != there:
        return f"{sorted(here)} must go here, {sorted(there)} with Kueue"
    tried, held = world.waiting()
    for name, waiting, key in (("left", tried, "wantLeft"), ("inadmissible", held, "wantInadmissibleLeft")):
        wants = {queue: set(names) for queue, names in (case.get(key) or {}).items() if names}
        if waiting != wants:
            return f"{name}: {waiting} here, {wants} with Kueue"
    return None


def name_of(obj: dict[str, Any]) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def is_admitted(obj: dict[str, Any]) -> bool:
    conditions = (obj.get("status") or {}).get("conditions", [])
    return any(c["type"] == "Admitted" and c["status"] == "True" for c in conditions)
