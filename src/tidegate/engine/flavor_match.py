"""Which flavors and queues accept a kind of work at all, quota aside."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.model.hardware import TaintEffect
from tidegate.model.queues import Flavor, footprint_of
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import Labels, labels
from tidegate.model.work import NodeTerm, PodSet, TopologyRequest, Work
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE


def refuse_work(state: ClusterState, work: Work, local_queue: int, quota_node: int) -> Reason:
    """Why a queue does not consider a kind of work; NONE if it does."""
    if quota_node == NONE:
        return Reason.NO_QUEUE
    if state.quota.local_queues.closed[local_queue] or state.quota.quota_nodes.closed[quota_node]:
        return Reason.QUEUE_CLOSED
    if not _accepts_namespace(state, work, quota_node):
        return Reason.NAMESPACE_REFUSED
    return Reason.NONE


def _accepts_namespace(state: ClusterState, work: Work, quota_node: int) -> bool:
    queue = next(q for q in state.policy.shares.queues if state.quota.quota_node_rows[f"queue/{q.name}"] == quota_node)
    if queue.namespaces == ():
        return True
    namespace = work.queue.partition("/")[0]
    known = {space.name: dict(space.labels) for space in state.policy.shares.namespaces}
    if queue.namespaces is None or namespace not in known:
        return False
    has = {"kubernetes.io/metadata.name": namespace, **known[namespace]}
    return all(requirement.holds(has) for requirement in queue.namespaces)


def flavor_mismatch(
    state: ClusterState, quota_node: int, pod_set: PodSet, name: str, resources: frozenset[str]
) -> Reason:
    """Why a flavor does not match the pods of a set; NONE if it does."""
    flavor = next((flavor for flavor in state.policy.shares.flavors if flavor.name == name), None)
    if flavor is None:
        return Reason.FLAVOR_MISSING
    implied = bool(state.quota.quota_nodes.topology_only[quota_node]) and not pod_set.topology
    if (
        state.policy.shares.topology.enabled
        and not implied
        and not _topology_matches(state, pod_set, flavor, resources)
    ):
        return Reason.FLAVOR_TOPOLOGY
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    for taint in flavor.node_taints:
        if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not any(t.tolerates(taint) for t in tolerations):
            return Reason.FLAVOR_TAINT
    if not _labels_match(pod_set, flavor.node_labels):
        return Reason.FLAVOR_TERMS
    return Reason.NONE


def _topology_matches(state: ClusterState, pod_set: PodSet, flavor: Flavor, resources: frozenset[str]) -> bool:
    """Whether topology agrees: a set that requests topology needs a flavor with its levels, another set one without."""
    if not pod_set.topology:
        return not flavor.topology
    if not flavor.topology:  # it may still give what is counted next to the topology's flavor
        return not resources & {name for name, _ in footprint_of(pod_set)}
    levels = next((t.labels for t in state.policy.shares.topologies if t.name == flavor.topology), ())
    return all(level in levels for level in levels_of(pod_set.topology))


def levels_of(topology: TopologyRequest) -> list[str]:
    """The levels that a request names."""
    named = [topology.required, topology.preferred, *(rule.level for rule in topology.slices)]
    named += [topology.spread.level] if topology.spread is not None else []
    return [level for level in named if level]


def _labels_match(pod_set: PodSet, found: Labels) -> bool:
    """Whether a flavor's labels match the pods, as far as the flavor's own label keys go."""
    has = dict(found)
    if any(key in has and has[key] != value for key, value in pod_set.selector):
        return False
    terms = []
    for term in pod_set.terms:
        about = tuple(requirement for requirement in term.requirements if requirement.key in has)
        if not about:
            return True  # a term without the flavor's keys: any of its nodes may match
        terms.append(NodeTerm(requirements=about))
    return not terms or any(term.holds(has) for term in terms)


def on_flavors(pod_set: PodSet, flavors: Sequence[Flavor]) -> PodSet:
    """The pods of a set as they look for nodes once they have these flavors."""
    selector, tolerations = dict(pod_set.selector), list(pod_set.tolerations)
    for flavor in flavors:
        selector |= dict(flavor.node_labels)
        tolerations += [one for one in flavor.tolerations if one not in tolerations]
    return msgspec.structs.replace(pod_set, selector=labels(selector), tolerations=tuple(tolerations))
