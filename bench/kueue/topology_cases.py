"""Kueue's table of topology assignments (scheduler.TestFindTopologyAssignments), asked of our search.

`run(case, fixtures)` says None where our spots are Kueue's, else in a sentence what differs. `numbers(case, fixtures)`
compares what the refusals say: how many would fit, and why nodes were not taken.
"""

from __future__ import annotations

import re
from typing import Any

from tidegate.engine.topology.query import PodSetQuery
from tidegate.manifests.core_objects import read_node
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.pod_requests import read_requests
from tidegate.manifests.quantity import charged
from tidegate.manifests.selectors import read_node_affinity, read_tolerations
from tidegate.manifests.topology_requests import read_topology_assignment, read_topology_request
from tidegate.model.hardware import TopologyLevels
from tidegate.model.observed_status import DomainAssignment, UnmanagedPods
from tidegate.model.queues import Flavor, TopologyRule
from tidegate.model.struct import Resources, labels, resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import PodSet
from tidegate.state.topology import build
from topology_search import Found, Shortfall, TopologySearch

FLAVOR, SIBLING = "default", "sibling"

#: Kueue's defaults for the gates that matter here.
GATES = {
    "TASProfileMixed": True,
    "TASRespectNodeAffinityPreferred": False,
    "TASBalancedPlacement": False,
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "SkipReassignmentForPodOwnedWorkloads": True,
    "TASHandleOverlappingFlavors": True,
}

#: What a refusal of Kueue says, and what it is here.
REFUSALS = (
    ("no topology domains at level", TopologyFailure.NO_DOMAINS),
    ("is above the podset topology", TopologyFailure.SLICE_ABOVE),
    ("must be at a lower level", TopologyFailure.SLICE_ABOVE),
    ("must evenly divide", TopologyFailure.SLICE_SIZE),
    ("slice size not provided", TopologyFailure.SLICE_SIZE),
    ("no requested topology level for", TopologyFailure.SLICE_LEVEL_UNKNOWN),
    ("no requested topology level", TopologyFailure.LEVEL_UNKNOWN),
    ("topology level not specified", TopologyFailure.NO_LEVEL),
    ("contains the stale domain", TopologyFailure.STALE),
)


def run(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Say how our spots differ from Kueue's; None: they do not."""
    del fixtures  # each case has its nodes
    found = ask(case)
    for want in case["podSets"]:
        name = want.get("podSetName", "")
        refused = found.shortfall is not None and name in found.shortfall.pod_sets
        if want.get("wantReason"):
            if not refused:
                return f"pod set {name!r} fits here; Kueue says: {want['wantReason']}"
        elif want.get("wantAssignment") is None:
            if name in found.assignments:
                return f"pod set {name!r} fits here; Kueue does not get to it"
        elif name not in found.assignments:
            return f"pod set {name!r} does not fit here ({found.failure.name}), with Kueue it does"
        elif found.assignments[name] != wanted_spots(want):
            ours, theirs = spots_text(found.assignments[name]), spots_text(wanted_spots(want))
            return f"pod set {name!r}: {ours} here, {theirs} with Kueue"
    return None


def numbers(case: dict[str, Any], fixtures: dict[str, Any]) -> str | None:
    """Say how the numbers of our refusal differ from those in Kueue's message; None: they do not."""
    del fixtures
    found = ask(case)
    message = next((want["wantReason"] for want in case["podSets"] if want.get("wantReason")), "")
    if not message:
        return None
    for text, failure in REFUSALS:
        if text in message:
            return None if found.failure is failure else f"{found.failure.name} here; Kueue says: {message}"
    assert found.shortfall is not None
    said, meant = stated(message), counted(found.shortfall)
    return None if said == meant else f"{meant} here; Kueue says: {message}"


def ask(case: dict[str, Any]) -> Found:
    """What our search says to a case."""
    gates = {**GATES, **(case.get("featureGates") or {})}
    rule = TopologyRule(
        mixed=gates["TASProfileMixed"],
        likes=gates["TASRespectNodeAffinityPreferred"],
        balanced=gates["TASBalancedPlacement"],
        elastic=gates["ElasticJobsViaWorkloadSlicesWithTAS"],
    )
    wanted = [read_wanted(pod_set) for pod_set in case["podSets"]]
    search = TopologySearch(grown(case, sibling=gates["TASHandleOverlappingFlavors"]), rule)
    if gates["TASHandleOverlappingFlavors"]:
        use(search, SIBLING, case.get("priorFlavorUsage"))
    use(search, FLAVOR, case.get("priorOwnUsage"))
    workload = case.get("workload") or {}
    failed = (workload.get("status") or {}).get("unhealthyNodes")
    if not failed:
        return search.find(wanted, as_if_empty=case.get("simulateEmpty", False))
    held = {
        grant["name"]: read_topology_assignment(item(grant.get("topologyAssignment") or {}))
        for grant in workload["status"]["admission"]["podSetAssignments"]
    }
    with_spots = [one._replace(held=held.get(one.pod_set.name, ())) for one in wanted]
    stays = gates["SkipReassignmentForPodOwnedWorkloads"] and is_of_one_pod(workload["metadata"])
    return search.replace(with_spots, failed[0]["name"], stays=stays)


def is_of_one_pod(meta: dict[str, Any]) -> bool:
    owners = meta.get("ownerReferences") or []
    grouped = (meta.get("annotations") or {}).get("kueue.x-k8s.io/is-group-workload") == "true"
    return len(owners) == 1 and not grouped and (owners[0]["kind"], owners[0]["apiVersion"]) == ("Pod", "v1")


def item(value: dict[str, Any]) -> Item:
    return Item(value, ManifestFindings(), ObjectOrigin())


def grown(case: dict[str, Any], *, sibling: bool) -> Any:
    """The trees of a case: the flavor it asks, and a sibling on the same nodes."""
    nodes = dict(enumerate(read_node(item(node)) for node in case["nodes"] or []))
    wanted = labels(case.get("nodeLabels") or {})
    names = (FLAVOR, SIBLING) if sibling else (FLAVOR,)
    flavors = [Flavor(name=name, node_labels=wanted, topology="levels") for name in names]
    topology = build(nodes, flavors, [TopologyLevels(name="levels", labels=tuple(case["levels"]))])
    foreign: dict[str, list[Resources]] = {}
    for pod in case.get("pods") or []:
        on, phase = pod["spec"].get("nodeName"), (pod.get("status") or {}).get("phase")
        if on and phase not in ("Failed", "Succeeded"):
            foreign.setdefault(on, []).append(charged(read_requests(item(pod["spec"]))))
    for on, held in foreign.items():
        total: dict[str, int] = {}
        for name, amount in (pair for amounts in held for pair in amounts):
            total[name] = total.get(name, 0) + amount
        topology.set_unmanaged(UnmanagedPods(node=on, charge=resources(total), pods=len(held)))
    return topology


def use(search: TopologySearch, flavor: str, usage: list[dict[str, Any]] | None) -> None:
    for used in usage or []:
        asked = used["SinglePodRequests"]
        amounts = resources({one["name"]: one["value"] for one in asked} if isinstance(asked, list) else asked)
        search.add(flavor, [DomainAssignment(values=tuple(used["Values"]), count=used["Count"])], amounts)


def read_wanted(pod_set: dict[str, Any]) -> PodSetQuery:
    """What a pod set of a case asks for."""
    request = pod_set.get("topologyRequest")
    terms, preferred = read_node_affinity(item(pod_set.get("nodeAffinity") or {}))
    topology = read_topology_request(item({**(request or {}), "podSetGroupName": pod_set.get("podSetGroupName")}))
    made = PodSet(
        name=pod_set.get("podSetName", ""),
        count=pod_set["count"],
        selector=labels(pod_set.get("nodeSelector") or {}),
        terms=terms,
        preferred=preferred,
        tolerations=read_tolerations(item({"t": pod_set.get("tolerations")}).items("t")),
        topology=topology,
    )
    previous = pod_set.get("previousAssignment")
    return PodSetQuery(
        pod_set=made,
        flavor=FLAVOR,
        pods=pod_set["count"],
        amounts=resources(pod_set["requests"] or {}),
        is_implied=request is None,
        held=read_topology_assignment(item(previous)) if previous else (),
    )


def wanted_spots(want: dict[str, Any]) -> tuple[DomainAssignment, ...]:
    domains = want["wantAssignment"].get("Domains") or []
    return tuple(DomainAssignment(values=tuple(domain["Values"]), count=domain["Count"]) for domain in domains)


def spots_text(spots: tuple[DomainAssignment, ...]) -> str:
    return ", ".join(f"{spot.count} in {'/'.join(spot.values)}" for spot in spots) or "nothing"


def stated(message: str) -> dict[str, int]:
    """The numbers of a message of Kueue."""
    found: dict[str, int] = {}
    if match := re.search(r"fit only (\d+) out of (\d+)", message):
        found |= {"fits": int(match[1]), "needed": int(match[2])}
    elif match := re.search(r"any of (\d+)", message):
        found |= {"fits": 0, "needed": int(match[1])}
    for fits, needed, level in re.findall(r"(\d+)/(\d+) slice\(s\) fit on level ([^;. ]+\.[^;. ]+)", message):
        found |= {f"{level} fits": int(fits), f"{level} needed": int(needed)}
    if match := re.search(r"Total nodes: (\d+); excluded: (.*)", message):
        found["nodes"] = int(match[1])
        for what, count in re.findall(r'((?:resource|taint) ".*?"|\w+): (\d+)', match[2]):
            name = what.split('"')[1] if what.startswith("resource") else what.split()[0]
            name = "not meant" if name in ("nodeSelector", "affinity", "taint") else name
            found[name] = found.get(name, 0) + int(count)
    return found


def counted(shortfall: Shortfall) -> dict[str, int]:
    """The same numbers of our refusal."""
    found = {"fits": shortfall.fits, "needed": shortfall.needed}
    if shortfall.layers:
        found = {}
        for level, fits, needed in shortfall.layers:
            found |= {f"{level} fits": fits, f"{level} needed": needed}
    excluded = {
        "not meant": shortfall.tainted + shortfall.unmatched,  # a node can be both, and Kueue looks at taints first
        "topologyDomain": shortfall.external,
        **dict(shortfall.lacking),
    }
    excluded = {name: count for name, count in excluded.items() if count}
    return found | ({"nodes": shortfall.nodes} | excluded if excluded else {})
