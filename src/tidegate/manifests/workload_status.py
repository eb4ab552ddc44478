"""Reads the status of a Kueue Workload: conditions, admission and checks."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.manifests.cluster_defaults import NO_DEFAULTS, ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.label_names import GATED_BY, GROUP_WORKLOAD, REPLACES
from tidegate.manifests.pod_requests import exceeds_limits
from tidegate.manifests.quantity import charged
from tidegate.manifests.topology_requests import read_topology_assignment
from tidegate.model.observed_status import Check, CheckState, ObservedStatus, PodSetAssignment
from tidegate.model.struct import labels
from tidegate.model.units import SECOND_MS

#: Reasons of an eviction after which a workload is queued again with the time of the eviction.
_REQUEUED_LAST = ("PodsReadyTimeout", "AdmissionCheck")


class Condition(NamedTuple):
    """A condition, and since when."""

    status: str = ""
    reason: str = ""
    since_ms: int = 0

    @property
    def holds(self) -> bool:
        """Whether it is so."""
        return self.status == "True"


def read_observed_status(item: Item, defaults: ClusterDefaults = NO_DEFAULTS) -> ObservedStatus:
    """Read the status of a Workload."""
    spec, status, annotations = item.mapping("spec"), item.mapping("status"), _annotations(item)
    found = read_conditions(status)
    reserved, evicted = found.get("QuotaReserved", _UNREPORTED), found.get("Evicted", _UNREPORTED)
    holds = reserved.holds and "admission" in status
    return ObservedStatus(
        queue=status.mapping("admission").text("clusterQueue") if holds else "",
        grants=_grants(item) if holds else (),
        granted_ms=reserved.since_ms if holds else 0,
        evicted=(evicted.reason or "Evicted") if evicted.holds else "",
        preempted=found.get("Preempted", _UNREPORTED).holds,
        active=spec.flag("active", default=True),
        finished=found.get("Finished", _UNREPORTED).holds,
        requeue_at_ms=_requeue_at_ms(status),
        parked=_is_parked(found, annotations),
        outside_limits=_contradicts(item, defaults),
        order_ms=evicted.since_ms if evicted.holds and evicted.reason in _REQUEUED_LAST else 0,
        checks=tuple(_check(check) for check in status.items("admissionChecks")),
        reclaimable=tuple((pods.text("name"), pods.whole("count")) for pods in status.items("reclaimablePods")),
        unhealthy=tuple(node.text("name") for node in status.items("unhealthyNodes")),
        pinned=_is_of_one_pod(item),
        replaces=annotations.get(REPLACES, ""),
        gated=_is_gated(spec, status),
        admitted=found.get("Admitted", _UNREPORTED).holds,
        ready=found.get("PodsReady", _UNREPORTED).holds,
    )


_UNREPORTED = Condition()


def read_conditions(status: Item) -> dict[str, Condition]:
    """Read conditions by their type."""
    return {
        item.text("type"): Condition(item.text("status"), item.text("reason"), item.time_ms("lastTransitionTime"))
        for item in status.items("conditions")
    }


def _annotations(item: Item) -> dict[str, str]:
    return item.mapping("metadata").pairs("annotations")


def _is_of_one_pod(item: Item) -> bool:
    """Whether a workload is a single pod, which stays where it is until it is over."""
    owners = item.mapping("metadata").items("ownerReferences")
    if len(owners) != 1 or _annotations(item).get(GROUP_WORKLOAD) == "true":
        return False
    return (owners[0].text("kind"), owners[0].text("apiVersion")) == ("Pod", "v1")


def _grants(item: Item) -> tuple[PodSetAssignment, ...]:
    counts = {pods.text("name", "main"): pods.whole("count", 1) for pods in item.mapping("spec").items("podSets")}
    assigned = item.mapping("status").mapping("admission").items("podSetAssignments")
    return tuple(read_pod_set_assignment(inner, counts) for inner in assigned)


def read_pod_set_assignment(item: Item, counts: dict[str, int] | None = None) -> PodSetAssignment:
    """Read what one pod set was granted; without a count of its own it is the pod set's."""
    name = item.text("name", "main")
    if counts is not None and name not in counts:
        item.refuse("name", f"a pod set of the workload ({', '.join(counts)})", name)
    topology = item.mapping("topologyAssignment")
    waits = item.text("delayedTopologyRequest") == "Pending" and "topologyAssignment" not in item
    return PodSetAssignment(
        pod_set=name,
        count=item.whole("count", (counts or {}).get(name, 0)),
        flavors=labels(item.pairs("flavors")),
        charge=charged(item.amounts("resourceUsage")),
        spots=read_topology_assignment(topology),
        awaits_topology=waits,
    )


def _check(item: Item) -> Check:
    return Check(name=item.needed_text("name"), state=item.choice("state", CheckState, CheckState.PENDING))


def _requeue_at_ms(status: Item) -> int:
    """Not before this time: of the requeue state, or the latest that a check asks for."""
    waits = [
        check.time_ms("lastTransitionTime") + check.whole("requeueAfterSeconds") * SECOND_MS
        for check in status.items("admissionChecks")
        if check.text("state") == CheckState.RETRY and "requeueAfterSeconds" in check
    ]
    return max([status.mapping("requeueState").time_ms("requeueAt"), *waits])


def _is_parked(found: dict[str, Condition], annotations: dict[str, str]) -> bool:
    """Whether it waits for its owner, whatever room there is."""
    requeued, reserved = found.get("Requeued", _UNREPORTED), found.get("QuotaReserved", _UNREPORTED)
    on_hold = reserved.status == "False" and reserved.reason == "OnHold"
    replaced = found.get("WaitingForReplacementPods", _UNREPORTED).holds
    return requeued.status == "False" or on_hold or replaced or bool(annotations.get(GATED_BY))


def _contradicts(item: Item, defaults: ClusterDefaults) -> bool:
    namespace = item.mapping("metadata").text("namespace") or defaults.namespace
    specs = [pods.mapping("template").mapping("spec") for pods in item.mapping("spec").items("podSets")]
    found = [exceeds_limits(spec, defaults, namespace) for spec in specs]  # all of them, so that each is reported
    return True in found


def _is_gated(spec: Item, status: Item) -> bool:
    """Whether a gate keeps it from preempting; a gate without a position is closed."""
    positions = {gate.text("name"): gate.text("position") for gate in status.items("preemptionGates")}
    return any(positions.get(gate.text("name"), "Closed") == "Closed" for gate in spec.items("preemptionGates"))
