"""Kueue's tables of orders, asked of the kernels that the cycle uses.

TestSatisfiesPreemptionPolicy: `allows`; TestCandidatesOrdering: the heap of candidates; TestMakeClusterQueueOrdering:
`next_queue`; TestFsAdmission: `head_of`; TestScheduleForAFS: whole cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kueue.cluster import Objects, Told, World
from kueue.cycle_cases import admission_of, text
from tidegate.engine.decide import decide
from tidegate.engine.fair_usage import settle_use
from tidegate.engine.kernels.columns import candidates, counters, quota_node_flags
from tidegate.engine.kernels.cycle_scratch import CycleScratch
from tidegate.engine.kernels.fair_victims import NOBODY, PRUNED, next_queue, sort_candidates
from tidegate.engine.kernels.nominate import head_of
from tidegate.engine.kernels.preemption_candidates import (
    ANY,
    HIERARCHY,
    LOWER,
    LOWER_OR_NEWER,
    NEVER,
    SAME_QUEUE,
    allows,
    describe_candidate,
    pop_candidate,
    push_candidate,
)
from tidegate.engine.quota_cycle import params_of
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.kueue_objects import read_configuration
from tidegate.manifests.kueue_queues import read_decayed_usage
from tidegate.manifests.object_index import take
from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.observed_status import DecayedUsage
from tidegate.model.queues import UsageSharing

POLICIES = {"Never": NEVER, "LowerPriority": LOWER, "LowerOrNewerEqualPriority": LOWER_OR_NEWER, "Any": ANY}


def run_policy(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Whether a policy lets one workload preempt another."""
    objects = Objects(cluster_queues=[queue_named("queue")], workloads=[case["preemptor"], case["candidate"]])
    world = World(objects, read_time_ms(fixtures["now"]), Told(gates=case.get("featureGates") or {}))
    found = bool(active(allows)(quota_view_of(world.state).held, POLICIES[case["policy"]], 0, 1))
    return None if found == case.get("want", False) else f"{found} here, {not found} with Kueue"


def queue_named(name: str, *, usage_based: bool = False) -> dict[str, Any]:
    """A queue for a case that names one and says nothing about it."""
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if usage_based else {}
    return {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, **scope}}


def entrance_named(name: str, queue: str) -> dict[str, Any]:
    """An entrance for a case that names one and says nothing about it."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": queue}}


def consumed(name: str, amounts: dict[str, str], at: str) -> DecayedUsage:
    """What an entrance has used, through the reader of its status."""
    status = {"fairSharing": {"admissionFairSharingStatus": {"consumedResources": amounts, "lastUpdate": at}}}
    used = read_decayed_usage(
        take({**entrance_named(name, ""), "status": status}, "LocalQueue", ManifestFindings()), "default"
    )
    assert used is not None
    return used


# -- candidates ------------------------------------------------------------------------------------------------


def run_candidates(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """In which order candidates of the preemptor's queue and of others are taken."""
    infos = case["candidates"]
    queues = {"preemptor"} | {info.get("ClusterQueue") or "preemptor" for info in infos}
    by_use = bool((case.get("featureGates") or {}).get("AdmissionFairSharing"))
    objects = Objects(
        cluster_queues=[queue_named(name, usage_based=by_use) for name in sorted(queues)],
        local_queues=[entrance_named(queue_of(info), info["ClusterQueue"]) for info in infos if queue_of(info)],
        workloads=[holder(info) for info in infos],
    )
    usage = UsageSharing(half_life_ms=0, sampling_ms=0) if by_use else None
    world = World(objects, read_time_ms(fixtures["now"]), Told(usage=usage, gates=case.get("featureGates") or {}))
    used = {queue_of(info): info.get("LocalQueueFSUsage") for info in infos}
    world.consume(consumed(name, {"cpu": str(amount)}, fixtures["now"]) for name, amount in used.items() if amount)
    settle_use(world.state)
    desk = world.desk()
    collect(world, desk, world.branch("preemptor"), [world.branch(name) for name in queues])
    for size in range(len(infos), 0, -1):
        active(pop_candidate)(desk.preemption, size)
    order = [int(desk.preemption.candidates[c, candidates.WORKLOAD]) for c in desk.preemption.heap[: len(infos)][::-1]]
    found = [str(world.state.workload_ids[row]).partition("/")[2] for row in order]
    return None if found == case["wantCandidates"] else f"{found} here, {case['wantCandidates']} with Kueue"


def queue_of(info: dict[str, Any]) -> str:
    """The entrance that a candidate came by; empty: none."""
    return str(info["Obj"]["spec"].get("queueName", ""))


def holder(info: dict[str, Any]) -> dict[str, Any]:
    """A candidate as an object that holds quota: without that it would be no candidate."""
    workload = info["Obj"]
    metadata, status = {"namespace": "default", **workload["metadata"]}, workload["status"]
    if "admission" in status:
        return {**workload, "metadata": metadata}
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-11-15T00:00:00Z"}
    admission = {"clusterQueue": "preemptor", "podSetAssignments": [{"name": "main", "count": 1}]}
    whole = {**status, "conditions": [*status["conditions"], reserved], "admission": admission}
    return {**workload, "metadata": metadata, "status": whole}


def collect(world: World, desk: CycleScratch, queue: int, of_queues: Sequence[int]) -> None:
    """Put the workloads of queues among the candidates, each with the claim that a preemptor of the queue has on it."""
    book, branches = quota_view_of(world.state), world.state.quota.reservations.queue
    rows = [world.state.workload_numbers.row(number) for number in range(len(world.workloads))]
    for c, row in enumerate(row for row in rows if branches[row] in of_queues):
        claim = SAME_QUEUE if branches[row] == queue else HIERARCHY
        active(describe_candidate)(book.tree, book.held, desk.preemption.candidates[c], row, claim)
        active(push_candidate)(desk.preemption, c)
        desk.requests.marks[counters.CANDIDATES] = c + 1


# -- queues ----------------------------------------------------------------------------------------------------


def run_queues(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """From which queue victims are taken next under fair sharing, if what is taken stays in the tree."""
    workloads, actions = case.get("admitted") or [], case.get("actions") or []
    objects = Objects(case["clusterQueues"], cohorts=case.get("cohorts") or [], workloads=workloads)
    world = World(objects, read_time_ms(fixtures["now"]), Told(fair=True))
    book, desk, queue = quota_view_of(world.state), world.desk(), world.branch(case["preemptorCQ"])
    names = {row: name.partition("/")[2] for name, row in world.state.quota.quota_node_rows.items()}
    collect(world, desk, queue, [world.branch(name) for name in case["candidateCQs"]])
    active(sort_candidates)(book, desk)
    found: list[str] = []
    while (target := active(next_queue)(book.tree, desk.preemption, queue)) != NOBODY:
        if target == PRUNED:
            continue
        if len(found) < len(actions) and actions[len(found)] == "drop":
            desk.preemption.quota_nodes[target, quota_node_flags.SEEN] = 1
        else:
            first = desk.preemption.quota_nodes[target, quota_node_flags.FIRST]
            desk.preemption.quota_nodes[target, quota_node_flags.FIRST] = desk.preemption.candidates[
                first, candidates.NEXT
            ]
        found.append(names[target])
    wanted = case.get("wantOrder") or []
    return None if found == wanted else f"{found} here, {wanted} with Kueue"


def run_head(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Which workload of a queue is tried first, where entrances that used less go first."""
    del fixtures
    now, name = "2026-11-15T00:00:00Z", case["cq"]["metadata"]["name"]
    entrances = [{**one, "spec": {**one["spec"], "clusterQueue": name}} for one in case["lqs"]]
    objects = Objects(cluster_queues=[case["cq"]], local_queues=entrances, workloads=case["wls"])
    configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "admissionFairSharing": case.get("afsConfig")}
    told = read_configuration(Item(configuration, ManifestFindings(), ObjectOrigin()))
    world = World(objects, read_time_ms(now), Told(usage=told.usage))
    used = case.get("initConsumedResources") or {}
    world.consume(consumed(entrance.partition("/")[2], amounts, now) for entrance, amounts in used.items())
    settle_use(world.state)
    book, turn = quota_view_of(world.state), params_of(world.state)
    row = active(head_of)(book.tree, book.held, book.asked.queue_requests, turn.now_ms, world.branch(name))
    found, wanted = str(world.state.workload_ids[row]), case["wantWl"]["metadata"]
    return None if found == f"{wanted['namespace']}/{wanted['name']}" else f"{found} here, {wanted['name']} with Kueue"


# -- cycles ----------------------------------------------------------------------------------------------------


def run_cycles(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Who is admitted after as many cycles as there are workloads.

    A queue that a case deletes is gone from the API while nobody has told the scheduler yet: it decides on what it was
    told, and so do we.
    """
    objects = Objects(
        cluster_queues=fixtures["clusterQueues"],
        flavors=fixtures["resourceFlavors"],
        local_queues=fixtures["queues"],
        workloads=case["workloads"],
    )
    on = bool((case.get("featureGates") or {}).get("AdmissionFairSharing"))
    usage = UsageSharing(half_life_ms=10_000, sampling_ms=1_000) if on else None
    world = World(objects, read_time_ms(fixtures["now"]), Told(fair=on, usage=usage))
    world.consume(consumed(name, amounts, fixtures["now"]) for name, amounts in case["initialUsage"].items())
    for _ in case["workloads"]:
        decide(world.state)
    wanted = {
        f"{one['metadata']['namespace']}/{one['metadata']['name']}": admission_of(one["status"]["admission"])
        for one in case["wantWorkloads"]
        if "admission" in one["status"]
    }
    found = world.admissions()
    return None if found == wanted else f"admitted {text(found, wanted)} here, {text(wanted, found)} with Kueue"
