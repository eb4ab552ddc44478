"""Kueue's decision tables: which module decides which, and which cases are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kueue import cycle_cases, flavor_cases, grove_cases, order_cases, quota_cases, topology_cases, victim_cases

RUNNERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], str | None]] = {
    "scheduler.runScheduleTestCases": cycle_cases.run,
    "scheduler.TestAvailable": quota_cases.run_available,
    "scheduler.TestDominantResourceShare": quota_cases.run_share,
    "scheduler.TestSnapshotAddRemoveWorkloadWithLendingLimit": quota_cases.run_removal,
    "scheduler.TestFindTopologyAssignments": topology_cases.run,
    "scheduler.TestScheduleForTAS": grove_cases.run,
    "scheduler.runTASScheduleTestCases": grove_cases.run,
    "common.TestSatisfiesPreemptionPolicy": order_cases.run_policy,
    "preemption.TestCandidatesOrdering": order_cases.run_candidates,
    "fairsharing.TestMakeClusterQueueOrdering": order_cases.run_queues,
    "queue.TestFsAdmission": order_cases.run_head,
    "scheduler.TestScheduleForAFS": order_cases.run_cycles,
    "flavorassigner.TestAssignFlavors": flavor_cases.run,
    "preemption.TestPreemption": victim_cases.run_classic,
    "preemption.TestHierarchicalPreemptions": victim_cases.run_classic,
    "preemption.TestFairPreemptions": victim_cases.run_fair,
}

#: Gates that are off by default and not built here, each with the reason.
LEFT_OUT = {
    "ConcurrentAdmission": "ConcurrentAdmission (alpha): several flavors are not raced for one workload",
}


def skip_reason(table: str, case: dict[str, Any]) -> str:
    """Why a case is left out; empty: it is not."""
    if table not in RUNNERS:
        return "not decided yet"
    gates = case.get("featureGates") or {}
    return next((why for gate, why in LEFT_OUT.items() if gates.get(gate)), "")
