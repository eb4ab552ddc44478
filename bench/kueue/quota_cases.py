"""Kueue's tables of quota arithmetic, asked of the kernels that the cycle uses.

TestAvailable: `available` and `potential`; TestDominantResourceShare: `share_ratio`, `share_for_weight`;
TestSnapshotAddRemoveWorkloadWithLendingLimit: `move_usage`.
"""

from __future__ import annotations

import json
import math
from typing import Any

from kueue.cluster import Objects, World, lots_of
from tidegate.engine.kernels.fair_victims import charge
from tidegate.engine.kernels.quota import (
    add_usage,
    available,
    move_usage,
    potential,
    remove_usage,
    resource_ratio,
    share_for_weight,
    share_ratio,
)
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.manifests.timestamps import read_time_ms
from tidegate.state.quota_tables import QuotaTree

#: What Kueue reports as the share of a branch that borrows on no weight.
MOST = (1 << 63) - 1

#: Amounts by queue, flavor and resource.
Amounts = dict[str, dict[str, int]]


def run_available(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Without usage all that is possible is available; with usage, and without it again, as Kueue says."""
    del fixtures
    world = World(Objects(cluster_queues=case["clusterQueues"], cohorts=case.get("cohorts") or []), 0)
    tree, possible = quota_view_of(world.state).tree, case["wantPotentiallyAvailable"]
    usage = [(world.branch(queue), lots_of(world, lots)) for queue, lots in (case.get("usage") or {}).items()]
    why = amounts_differ(world, tree, possible, possible)
    for moves, wanted in ((add_usage, case["wantAvailable"]), (remove_usage, possible)):
        for b, lots in usage:
            for lot, amount in lots:
                active(moves)(tree, b, lot, amount)
        why = why or amounts_differ(world, tree, wanted, possible)
    return why


def amounts_differ(world: World, tree: QuotaTree, wanted: Amounts, possible: Amounts) -> str | None:
    """Say which amounts are not as they should be; where more is in use than there is, nothing is left."""
    for name, kernel, want in (("available", available, wanted), ("possible", potential, possible)):
        found = {
            queue: {
                key: max(0, int(active(kernel)(tree, world.branch(queue), lot)))
                for key, (lot, _) in zip(lots, lots_of(world, lots), strict=True)
            }
            for queue, lots in want.items()
        }
        if found != want:
            return f"{name}: {found} here, {want} with Kueue"
    return None


def run_share(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """The dominant resource share of every branch, with what is asked added to it."""
    queues = [queue for queue in (case["clusterQueue"], case.get("lendingClusterQueue")) if queue]
    world = World(Objects(cluster_queues=queues, cohorts=case.get("cohorts") or []), read_time_ms(fixtures["now"]))
    for key in {**case["usage"], **(case.get("flvResQ") or {})}:
        world.state.quota.flavor_resource(json.loads(key)["Flavor"], json.loads(key)["Resource"])
    book, wish = quota_view_of(world.state), world.desk().requests
    for lot, amount in lots_of(world, case["usage"]):
        active(add_usage)(book.tree, world.branch(case["clusterQueue"]["metadata"]["name"]), lot, amount)
    found = []
    for name, b in world.state.quota.quota_node_rows.items():
        kind, _, short = name.partition("/")
        world.request(wish, lots_of(world, case.get("flvResQ") or {}) if kind == "queue" else [])
        active(charge)(book.tree, wish, b, 1)
        found.append((kind, short, *reported(world, book.tree, b)))
        active(charge)(book.tree, wish, b, -1)
    wanted = sorted(
        (
            "cohort" if want.get("NodeType") else "queue",
            want["Name"],
            want.get("DrValue", 0),
            want.get("DrName", ""),
            want.get("Borrowing", False),
        )
        for want in case["want"]
    )
    return None if sorted(found) == wanted else f"{sorted(found)} here, {wanted} with Kueue"


def reported(world: World, tree: QuotaTree, b: int) -> tuple[int, str, bool]:
    """The share of a branch as Kueue reports it: rounded up, the resource that it is of, and whether it borrows."""
    ratio = active(share_ratio)(tree, b)
    share = active(share_for_weight)(tree, b, ratio)
    tables = world.state.quota
    ratios = {
        tables.resources[tables.flavor_resources.resource[lot]]: active(resource_ratio)(tree, b, lot)
        for lot in range(tables.flavor_resources.top)
    }
    dominant = min((name for name, of_one in ratios.items() if of_one == ratio), default="")
    rounded = MOST if math.isinf(share) else math.ceil(share)
    return rounded, dominant if ratio > 0 else "", ratio >= 0


def run_removal(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Take workloads out of the tree and put them back: quota and usage of queues and cohorts."""
    objects = Objects(
        cluster_queues=fixtures["clusterQueues"], flavors=fixtures["flavors"], workloads=fixtures["workloads"]
    )
    world = World(objects, read_time_ms(fixtures["now"]))
    book, tables = quota_view_of(world.state), world.state.quota
    for sign, names in ((1, case.get("remove")), (-1, case.get("add"))):
        for name in names or []:
            active(move_usage)(book.tree, book.held, world.row(name), sign)
    snapshot = case["want"]["Manager"]
    for kind, wanted in (("queue", snapshot["clusterQueues"]), ("cohort", snapshot["cohorts"])):
        for name, branch in wanted.items():
            node, b = branch["ResourceNode"], tables.quota_node_rows[f"{kind}/{name}"]
            for column, values in ((tables.quota_nodes.subtree, "SubtreeQuota"), (tables.quota_nodes.usage, "Usage")):
                for lot, want in lots_of(world, node[values]):
                    if column[b, lot] != want:
                        return f"{values} of {name}: {column[b, lot]} here, {want} with Kueue"
    return None
