"""Kueue's tables of whole cycles: objects in through the product's import, one `decide`, who got what, who must go."""

from __future__ import annotations

from typing import Any

from kueue.cluster import Objects, Told, World
from tidegate.engine.decide import decide
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.timestamps import read_time_ms
from tidegate.manifests.workload_status import read_pod_set_assignment


def run(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Say how a cycle's decisions differ from Kueue's; None: they do not."""
    told = Told(fair=case.get("enableFairSharing", False), gates=case.get("featureGates") or {})
    world = World(objects_of(case, fixtures), read_time_ms(fixtures["now"]), told)
    decisions, _ = decide(world.state)
    world.carry_out(decisions, fails=bool(case.get("admissionError")))
    return differs(case, world)


def objects_of(case: dict[str, Any], fixtures: dict[str, Any]) -> Objects:
    """The objects of a case, its own after those that the table shares."""
    return Objects(
        cluster_queues=[*fixtures.get("clusterQueues", []), *(case.get("additionalClusterQueues") or [])],
        cohorts=case.get("cohorts") or [],
        flavors=fixtures.get("resourceFlavors", []),
        local_queues=[*fixtures.get("queues", []), *(case.get("additionalLocalQueues") or [])],
        workloads=case.get("workloads") or [],
        nodes=case.get("nodes") or fixtures.get("nodes") or [],
        topologies=case.get("topologies") or fixtures.get("topologies") or [],
        limit_ranges=[obj for obj in case.get("objects") or [] if "limits" in obj["spec"]],
    )


def differs(case: dict[str, Any], world: World) -> str | None:
    """Compare what a state came to with what a case wants."""
    wanted = {key: admission_of(want) for key, want in (case.get("wantAssignments") or {}).items()}
    found = world.admissions()
    if wanted != found:
        return f"admitted {text(found, wanted)} here, {text(wanted, found)} with Kueue"
    for name, here, holds in (
        ("must go", world.leaving(), is_leaving),
        ("are replaced", world.leaving(for_good=True), is_replaced),
    ):
        there = {
            f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
            for workload in case.get("wantWorkloads") or []
            if holds(workload)
        }
        if here != there:
            return f"{sorted(here)} {name} here, {sorted(there)} with Kueue"
    tried, held = world.waiting()
    for name, waiting, key in (("left", tried, "wantLeft"), ("inadmissible", held, "wantInadmissibleLeft")):
        wants = {queue: set(names) for queue, names in (case.get(key) or {}).items() if names}
        if waiting != wants:
            return f"{name}: {waiting} here, {wants} with Kueue"
    return None


def admission_of(want: dict[str, Any]) -> dict[str, Any]:
    """An admission of Kueue in the form of `World.admissions`."""
    sets = {}
    for assigned in want.get("podSetAssignments") or []:
        grant = read_pod_set_assignment(Item(assigned, ManifestFindings(), ObjectOrigin()))
        sets[grant.pod_set] = {
            "flavors": dict(grant.flavors),
            "charge": dict(grant.charge),
            "count": grant.count,
            "spots": sorted((spot.values, spot.count) for spot in grant.spots),
            "awaits": grant.awaits_topology,
        }
    return {"queue": want["clusterQueue"], "sets": sets}


def is_leaving(workload: dict[str, Any]) -> bool:
    """Whether a workload was told to go and still holds its quota."""
    conditions = {c["type"]: c["status"] == "True" for c in (workload.get("status") or {}).get("conditions", [])}
    return bool(conditions.get("Evicted") and conditions.get("QuotaReserved"))


def is_replaced(workload: dict[str, Any]) -> bool:
    """Whether a larger slice of the same job has taken over from a workload."""
    conditions = (workload.get("status") or {}).get("conditions", [])
    return any(c["type"] == "Finished" and c.get("reason") == "WorkloadSliceReplaced" for c in conditions)


def text(ones: dict[str, Any], others: dict[str, Any]) -> str:
    """What is in one and not, or not so, in the other."""
    return str({key: value for key, value in ones.items() if others.get(key) != value})
