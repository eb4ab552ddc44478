"""Kueue's tables of preemption: `find_targets`, asked with the assignment that a case gives, names whom and why.

TestPreemption and TestHierarchicalPreemptions decide the classic way, TestFairPreemptions by shares.
"""

from __future__ import annotations

from typing import Any

from kueue.cluster import Objects, Told, World
from tidegate.engine.kernels.classic_victims import find_targets
from tidegate.engine.kernels.columns import counters
from tidegate.engine.kernels.cycle_scratch import request
from tidegate.engine.quota_cycle import params_of
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.queues import charge_of
from tidegate.model.reasons.catalogue import Reason

#: The mode of an assignment that takes preemption, as Kueue numbers it.
PREEMPT = 1

#: Kueue's reasons for a preemption.
REASONS = {
    "InClusterQueue": Reason.PREEMPTED_IN_QUEUE,
    "InCohortReclamation": Reason.RECLAIMED_IN_COHORT,
    "InCohortReclaimWhileBorrowing": Reason.RECLAIMED_WHILE_BORROWING,
    "InCohortFairSharing": Reason.PREEMPTED_FOR_SHARE,
}

#: Who is preempted, and why.
Victims = dict[str, Reason]


def run_classic(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Whom a workload preempts the classic way."""
    found, wanted = victims_of(case, fixtures, case["assignment"]["PodSets"], Told()), wanted_victims(case)
    if len(found) != case.get("wantPreempted", 0):
        return f"{text(found)} here, {case.get('wantPreempted', 0)} with Kueue, of them {text(wanted)}"
    before = leaving(case["admitted"])  # who goes already is told nothing more
    return differs({name: why for name, why in found.items() if name not in before}, wanted)


def run_fair(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Whom a workload preempts under fair sharing, for all the CPU that it asks for."""
    flavor = {"Name": case.get("assignmentFlavor") or "default", "Mode": PREEMPT}
    assigned = [{"Name": "main", "Count": 1, "Flavors": {"cpu": flavor}}]
    wanted = {}
    for name in case.get("wantPreempted") or {}:
        workload, _, why = name.rpartition(":")
        wanted[workload] = REASONS[why]
    told = Told(fair=True, strategies=case.get("strategies") or ())
    return differs(victims_of(case, fixtures, assigned, told), wanted)


def wanted_victims(case: dict[str, Any]) -> Victims:
    """Who of a case's workloads is told to go, and why."""
    before = leaving(case["admitted"])
    return {name: REASONS[why] for name, why in leaving(case["wantWorkloads"]).items() if name not in before}


def leaving(workloads: list[dict[str, Any]]) -> dict[str, str]:
    """Who was told to go, and the reason of the preemption if it was one."""
    found = {}
    for workload in workloads:
        meta = workload["metadata"]
        held = {
            one["type"]: one["reason"] for one in workload["status"].get("conditions", []) if one["status"] == "True"
        }
        if "Evicted" in held:
            found[f"{meta.get('namespace', '')}/{meta['name']}"] = held.get("Preempted", "")
    return found


def victims_of(case: dict[str, Any], fixtures: dict[str, Any], assigned: list[dict[str, Any]], told: Told) -> Victims:
    """Whom our search preempts for what was assigned."""
    objects = Objects(
        cluster_queues=case["clusterQueues"],
        cohorts=case.get("cohorts") or [],
        flavors=case.get("flavors") or fixtures["flavors"],
        workloads=[*case["admitted"], {**case["incoming"], "status": {}}],  # it comes: it holds nothing yet
    )
    world = World(objects, read_time_ms(fixtures["now"]), told)
    wants = request_assigned(world, assigned)
    book, desk, turn = quota_view_of(world.state), world.desk(), params_of(world.state)
    desk.requests.marks[counters.REQUESTED] = desk.requests.marks[counters.TARGETS] = 0
    for lot, amount, need in wants:
        active(request)(desk.requests, lot, amount, need)
    incoming = world.state.workload_numbers.row(len(world.workloads) - 1)
    queue = world.branch(case["targetCQ"])
    before = book.tree.quota.copy()
    found = active(find_targets)(book, desk, None, turn.fair, queue, incoming)
    if (book.tree.quota != before).any():
        raise ValueError("the search has changed the tree")
    return {str(world.state.workload_ids[row]): Reason(code) for row, code in desk.preemption.targets[:found].tolist()}


def request_assigned(world: World, assigned: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Lot, amount, and 1 where it takes preemption, of all that the latest workload was assigned."""
    found = []
    pod_sets = world.workloads[-1][0].work.pod_sets
    for pod_set, given in zip(pod_sets, assigned, strict=True):
        for resource, amount in charge_of(pod_set):
            flavor = given["Flavors"][resource]
            lot = world.state.quota.flavor_resource(flavor["Name"], resource)
            found.append((lot, amount * given.get("Count", 0), int(flavor["Mode"] == PREEMPT)))
    return found


def differs(found: Victims, wanted: Victims) -> str | None:
    """Say how the victims differ; None: they do not."""
    return None if found == wanted else f"{text(found)} here, {text(wanted)} with Kueue"


def text(victims: Victims) -> str:
    """Victims and reasons in words."""
    return ", ".join(f"{name} {why.name}" for name, why in sorted(victims.items())) or "nobody"
