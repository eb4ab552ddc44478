"""Kueue's table of flavor assignments: `assign`, asked for one workload, gives flavors, modes, usage and borrowing.

Kueue's test puts a stub where the search for victims is: it says that preemption finds victims, or none. Here the
search is the real one. The two differ only where victims make a queue stop at a flavor (whenCanPreempt=MayStopSearch);
there the usage of the case is held by work that can be preempted, so that the search says what the stub says.
"""

from __future__ import annotations

import json
from typing import Any

from kueue.cluster import Objects, Told, World, lots_of
from tidegate.engine.kernels.columns import choices, entries, flavor_tries
from tidegate.engine.kernels.cycle_scratch import CycleScratch
from tidegate.engine.kernels.domain_fit import weigh_topology
from tidegate.engine.kernels.entry_request import amount_of, whole_amount
from tidegate.engine.kernels.flavor_assignment import assign, group_of
from tidegate.engine.kernels.nominate import open_entry, scale
from tidegate.engine.quota_cycle import params_of
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.quantity import charged
from tidegate.state.quota_tables import QuotaView

NOW_MS = 1_800_000_000_000
RESERVED = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-11-15T00:00:00Z"}
NO_CANDIDATES = 0

#: What is compared.
PARTS = ("mode", "borrowing", "usage", "flavors", "counts", "requests")


def run(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Say how our assignment differs from Kueue's; None: it does not."""
    world = World(objects_of(case, fixtures), NOW_MS, Told(fair=case.get("enableFairSharing", False)))
    row = world.state.workload_numbers.row(len(world.workloads) - 1)
    book, desk, turn = quota_view_of(world.state), world.desk(), params_of(world.state)
    active(open_entry)(book, desk.heads, turn.cycle, 0, world.branch(case["clusterQueue"]["metadata"]["name"]), row)
    active(scale)(book.held, book.asked, desk.heads, 0, 0, 0)
    active(assign)(book, desk, turn, 0)
    active(weigh_topology)(book, desk, world.grove(), 0)
    found = found_of(world, book, desk, int(desk.heads.entries[0, entries.MODE]))
    wanted = wanted_of(world, case, found)
    parts = [part for part in PARTS if found[part] != wanted[part]]
    return "; ".join(f"{part}: {found[part]} here, {wanted[part]} with Kueue" for part in parts) or None


# -- objects ---------------------------------------------------------------------------------------------------


def objects_of(case: dict[str, Any], fixtures: dict[str, Any]) -> Objects:
    """The objects of a case: the queues, who holds their quota, and last the workload in question."""
    queue, second = case["clusterQueue"], case.get("secondaryClusterQueue")
    name, cohort = queue["metadata"]["name"], queue["spec"].get("cohortName")
    stops = stops_for_victims(case)
    if stops:
        preemption = {**queue["spec"].get("preemption", {}), "withinClusterQueue": "LowerPriority"}
        queue = {**queue, "spec": {**queue["spec"], "preemption": preemption}}
    holders = holders_of(name, case.get("clusterQueueUsage") or {})
    if second:
        # Kueue's stub says "Preempt", which by its meaning has victims in the own queue: only there can they be.
        holds = name if stops and not holders else second["metadata"]["name"]
        holders += holders_of(holds, case.get("secondaryClusterQueueUsage") or {})
    return Objects(
        cluster_queues=[queue, second] if second else [queue],
        cohorts=[{"metadata": {"name": cohort}, "spec": {}}] if cohort else [],
        flavors=list(fixtures["resourceFlavors"].values()),
        local_queues=[{"metadata": {"name": "entrance", "namespace": "default"}, "spec": {"clusterQueue": name}}],
        workloads=[*holders, *slice_of(case, name), workload_of(case)],
        topologies=case.get("topologies") or [],
    )


def stops_for_victims(case: dict[str, Any]) -> bool:
    """Whether the queue stops at a flavor for the victims that the stub of the case finds there."""
    stub = [one["value"] for one in case.get("simulationResult") or []]
    finds = all(value.get("preemptionPossiblity", NO_CANDIDATES) != NO_CANDIDATES for value in stub)
    return finds and case["clusterQueue"]["spec"]["flavorFungibility"]["whenCanPreempt"] == "MayStopSearch"


def holders_of(queue: str, usage: dict[str, int]) -> list[dict[str, Any]]:
    """Work of low priority that holds this much of a queue's quota: of CPU a core each, of others all at once."""
    found = []
    for key, amount in usage.items():
        flavor, resource = json.loads(key)["Flavor"], json.loads(key)["Resource"]
        each, number = ("1", amount // 1000) if resource == "cpu" else (str(amount), 1)
        for i in range(number):
            name = f"{queue}-{flavor}-{resource.replace('/', '-')}-{i}"
            found.append(admitted(name, queue, {resource: each}, {resource: flavor}, priority=-1))
    return found


def admitted(
    name: str, queue: str, requests: dict[str, str], flavors: dict[str, str], *, priority: int = 0
) -> dict[str, Any]:
    """A workload of one pod that holds quota."""
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"resources": {"requests": requests}}]}}}
    assigned = {"name": "main", "count": 1, "flavors": flavors, "resourceUsage": requests}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "podSets": [pods]},
        "status": {
            "conditions": [RESERVED],
            "admission": {"clusterQueue": queue, "podSetAssignments": [assigned]},
        },
    }


def slice_of(case: dict[str, Any], queue: str) -> list[dict[str, Any]]:
    """The slice that the workload of a case replaces, if it does."""
    found = []
    for asked in (case.get("preemptWorkloadSlice") or {}).get("TotalRequests", []):
        amounts = {one["name"]: one["value"] for one in asked["Requests"]}
        requests = {name: f"{value}m" if name == "cpu" else str(value) for name, value in amounts.items()}
        found.append(admitted("before", queue, requests, asked["Flavors"]))
    return found


def workload_of(case: dict[str, Any]) -> dict[str, Any]:
    """The workload in question."""
    meta: dict[str, Any] = {"name": "workload", "namespace": "default"}
    if case.get("preemptWorkloadSlice"):
        meta["annotations"] = {"kueue.x-k8s.io/workload-slice-replacement-for": "default/before"}
    done = case.get("wlReclaimablePods") or []
    if not (case.get("featureGates") or {}).get("ReclaimablePods", True):
        done = []  # a Kueue with the gate off does not read them
    spec = {"queueName": "entrance", "podSets": case["wlPods"]}
    return {"metadata": meta, "spec": spec, "status": {"reclaimablePods": done}}


# -- comparison ------------------------------------------------------------------------------------------------


def found_of(world: World, book: QuotaView, desk: CycleScratch, mode: int) -> dict[str, Any]:
    """What our assignment came to; counts and requests by pod set."""
    tables, heads, work = world.state.quota, desk.heads, world.workloads[-1][0].work
    w = world.state.intern_work(work)
    flavors: dict[str, Any] = {one.name: {} for one in work.pod_sets}
    requests: dict[str, Any] = {one.name: {} for one in work.pod_sets}
    usage: dict[int, int] = {}
    for a in range(int(tables.queue_requests.asks[w])):
        ask = int(tables.queue_requests.first_ask[w]) + a
        name = work.pod_sets[tables.pod_set_needs.ordinal[tables.resource_requests.pod_set[ask]]].name
        resource, lot = (
            tables.resources[tables.resource_requests.resource[ask]],
            int(heads.choice[0, choices.FLAVOR_RESOURCE, a]) - 1,
        )
        if asks := active(whole_amount)(book.asked, heads, 0, ask):
            requests[name][resource] = asks
        if lot >= 0:
            flavor = list(tables.flavor_rows)[tables.flavor_resources.flavor[lot]]
            flavors[name][resource] = (flavor, int(heads.choice[0, choices.MODE, a]), tried(world, book, desk, ask))
            usage[lot] = usage.get(lot, 0) + active(amount_of)(book, heads, 0, ask)
    counts = {one.name: int(heads.pods[0, ordinal]) for ordinal, one in enumerate(work.pod_sets)}
    borrowing = int(heads.entries[0, entries.BORROW])
    return dict(zip(PARTS, (mode, borrowing, usage, flavors, counts, requests), strict=True))


def tried(world: World, book: QuotaView, desk: CycleScratch, ask: int) -> int:
    """The flavor after which the search goes on next time; -1: from the first."""
    tables = world.state.quota
    s = int(tables.resource_requests.pod_set[ask])
    branch = int(tables.queue_requests.queue[world.state.pod_sets.work_class[s]])
    group = active(group_of)(book.tree, book.asked, branch, int(tables.resource_requests.resource[ask]))
    leader = int(tables.pod_set_needs.ordinal[tables.pod_set_needs.leader[s]])
    slot = leader * int(tables.quota_nodes.groups[branch]) + group - int(tables.quota_nodes.first_group[branch])
    return int(desk.heads.tries[0, flavor_tries.TRIED, slot]) - 1


def wanted_of(world: World, case: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What Kueue's assignment came to. Pod sets after one that gets nothing are not in it: they get nothing either."""
    want = case["wantAssignment"]
    flavors: dict[str, Any] = {one["name"]: {} for one in case["wlPods"]}
    counts, requests = dict(found["counts"]), dict(found["requests"])
    for one in want.get("PodSets") or []:
        name = one["Name"]
        counts[name] = one["Count"]
        requests[name] = dict(charged(Item({"r": one["Requests"]}, ManifestFindings(), ObjectOrigin()).amounts("r")))
        flavors[name] = {
            resource: (given["Name"], given.get("Mode", 0), given.get("TriedFlavorIdx", 0))
            for resource, given in (one.get("Flavors") or {}).items()
        }
    usage = dict(lots_of(world, want["Usage"]["Quota"]["Assigned"]))
    wanted = (case.get("wantRepMode", 0), want.get("Borrowing", 0), usage, flavors, counts, requests)
    return dict(zip(PARTS, wanted, strict=True))
