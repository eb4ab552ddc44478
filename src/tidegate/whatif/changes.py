"""Changes to try on a fork: more quota, one more node, another priority.

A change becomes ordinary facts; nothing else changes the fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tidegate.journal.quota_names import FlavorResourceName
from tidegate.model.errors import UserError
from tidegate.model.facts import FactBatch, FactKind, Facts
from tidegate.model.hardware import Node, TaintEffect
from tidegate.model.policy import Policy
from tidegate.model.queues import Cohort, Flavor, Queue, QueueSetup, Quota, StopPolicy
from tidegate.model.struct import labels
from tidegate.model.work import NodeRequirement, NodeTerm, Operator, PodSet, Toleration, Work
from tidegate.state.cluster import ClusterState

_replace = msgspec.structs.replace


class MoreQuota(NamedTuple):
    """A queue or cohort owns more of a lot; less if the amount is below zero."""

    branch: str
    lot: FlavorResourceName
    amount: int


class MoreBorrowing(NamedTuple):
    """A queue or cohort may borrow more of a lot; None: without limit."""

    branch: str
    lot: FlavorResourceName
    amount: int | None


class MoreNodes(NamedTuple):
    """Nodes come that are like one that is there."""

    like: int  # number
    nodes: int


class AllowModel(NamedTuple):
    """A workload accepts one more GPU model."""

    workload: int
    model: str


class AllowFlavor(NamedTuple):
    """A workload tolerates a flavor's taints, and its node selector does not keep it away."""

    workload: int
    flavor: str


class SetPriority(NamedTuple):
    """A workload has another priority."""

    workload: int
    priority: int


class StopWorkloads(NamedTuple):
    """A workload is stopped and does not come back: what it held is free."""

    workload: int


class MoveToQueue(NamedTuple):
    """A workload is submitted to another queue, or to another LocalQueue."""

    workload: int
    queue: str


class OpenQueue(NamedTuple):
    """A queue that was stopped admits again."""

    queue: str


Change = (
    MoreQuota
    | MoreBorrowing
    | MoreNodes
    | AllowModel
    | AllowFlavor
    | SetPriority
    | StopWorkloads
    | MoveToQueue
    | OpenQueue
)  # a closed set: words and the command line know each of them


def is_own(change: Change, state: ClusterState, number: int) -> bool:
    """Whether the owners of a workload can make a change: to it, or to other work of its namespace.

    Quota, borrowing, nodes, closed queues and the work of others are an administrator's matter.
    """
    if isinstance(change, MoreQuota | MoreBorrowing | MoreNodes | OpenQueue):
        return False
    return change.workload == number or _namespace(state, change.workload) == _namespace(state, number)


def _namespace(state: ClusterState, number: int) -> str:
    """The namespace of a workload; empty: its id has none."""
    row = state.workload_numbers.row(number)
    namespace, slash, _ = str(state.workload_ids[row]).partition("/") if row >= 0 else ("", "", "")
    return namespace if slash else ""


class ImpossibleChangeError(UserError):
    """A change that this state does not have the parts for; the text says which."""


def facts_of(state: ClusterState, changes: Sequence[Change]) -> FactBatch:
    """The facts that make the changes, at the state's own time."""
    facts, policy, nodes = Facts(), state.policy, 0
    works: dict[int, Work] = {}
    for change in changes:
        if isinstance(change, MoreQuota | MoreBorrowing | OpenQueue):
            policy = _change_policy(policy, change)
        elif isinstance(change, MoreNodes):
            for node in _more_nodes(state, change, nodes):
                facts.node(_next_node(state) + nodes, node, state.now_ms)
                nodes += 1
        elif isinstance(change, StopWorkloads):
            facts.add(FactKind.WORKLOAD_FINISHED, state.now_ms, change.workload)
        else:
            known = works.get(change.workload) or work_of(state, change.workload)
            works[change.workload] = _change_work(state, known, change)
    if policy != state.policy:
        facts.policy(policy, state.now_ms)
    for number, work in works.items():
        facts.changed(number, work, state.now_ms)
    return facts.batch()


# -- policy ----------------------------------------------------------------------------------------------------


def _change_policy(policy: Policy, change: MoreQuota | MoreBorrowing | OpenQueue) -> Policy:
    shares = policy.shares
    if isinstance(change, OpenQueue):
        queues = tuple(_replace(q, stop=StopPolicy.NONE) if q.name == change.queue else q for q in shares.queues)
        entrances = tuple(_replace(e, stop=StopPolicy.NONE) if e.queue == change.queue else e for e in shares.entrances)
        return _replace(policy, shares=_replace(shares, queues=queues, entrances=entrances))
    branch = branch_of(shares, change.branch)
    quotas = tuple(_change_quota(quota, change) for quota in branch.quotas)
    changed = _replace(branch, quotas=quotas)
    if isinstance(changed, Queue):
        queues = tuple(changed if queue.name == change.branch else queue for queue in shares.queues)
        return _replace(policy, shares=_replace(shares, queues=queues))
    cohorts = tuple(changed if cohort.name == change.branch else cohort for cohort in shares.cohorts)
    return _replace(policy, shares=_replace(shares, cohorts=cohorts))


def branch_of(shares: QueueSetup, name: str) -> Queue | Cohort:
    """The queue of a name, or the cohort if no queue has it."""
    branches: list[Queue | Cohort] = [*shares.queues, *shares.cohorts]
    for branch in branches:
        if branch.name == name:
            return branch
    raise ImpossibleChangeError(f"there is no queue or cohort {name!r}")


def _change_quota(quota: Quota, change: MoreQuota | MoreBorrowing) -> Quota:
    if FlavorResourceName(quota.flavor, quota.resource) != change.lot:
        return quota
    if isinstance(change, MoreQuota):
        return _replace(quota, nominal=max(0, quota.nominal + change.amount))
    if change.amount is None or quota.borrow_limit is None:
        return _replace(quota, borrow_limit=None)
    return _replace(quota, borrow_limit=max(0, quota.borrow_limit + change.amount))


# -- nodes -----------------------------------------------------------------------------------------------------


def _next_node(state: ClusterState) -> int:
    """The first number that no node has."""
    return int(state.nodes.number[: state.nodes.top].max(initial=-1)) + 1


def _more_nodes(state: ClusterState, change: MoreNodes, before: int) -> list[Node]:
    like = state.node_specs[state.node_numbers.row(change.like)]
    return [_twin_of(like, f"{like.name}+{before + number + 1}") for number in range(change.nodes)]


def _twin_of(node: Node, name: str) -> Node:
    """A node like another: what is labelled with that one's name is labelled with its own."""
    marks = labels({key: name if value == node.name else value for key, value in node.labels})
    return _replace(node, name=name, labels=marks, ready=True, unschedulable=False)


# -- work ------------------------------------------------------------------------------------------------------


def work_of(state: ClusterState, number: int) -> Work:
    """What a workload asks for."""
    row = state.workload_numbers.row(number)
    if row < 0:
        raise ImpossibleChangeError(f"workload {number} is over")
    return state.works[int(state.workloads.work_class[row])]


def _change_work(state: ClusterState, work: Work, change: AllowModel | AllowFlavor | SetPriority | MoveToQueue) -> Work:
    if isinstance(change, SetPriority):
        return _replace(work, priority=change.priority)
    if isinstance(change, MoveToQueue):
        return _replace(work, queue=change.queue)
    if isinstance(change, AllowModel):
        sets = tuple(_with_model(pod_set, change.model) for pod_set in work.pod_sets)
        return _replace(work, pod_sets=sets)
    flavor = next(flavor for flavor in state.policy.shares.flavors if flavor.name == change.flavor)
    return _replace(work, pod_sets=tuple(_with_flavor(pod_set, flavor) for pod_set in work.pod_sets))


def _with_model(pod_set: PodSet, model: str) -> PodSet:
    """Pods that accept one more model; who accepts any already does."""
    if not pod_set.gpu.models:
        return pod_set
    models = tuple(sorted({*pod_set.gpu.models, model}))
    return _replace(pod_set, gpu=_replace(pod_set.gpu, models=models))


def _with_flavor(pod_set: PodSet, flavor: Flavor) -> PodSet:
    """Pods that a flavor takes: its taints are tolerated, and no selector or affinity asks for other labels."""
    known = (*pod_set.tolerations, *flavor.tolerations)
    taints = [
        taint
        for taint in flavor.node_taints
        if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not any(one.tolerates(taint) for one in known)
    ]
    added = tuple(Toleration(key=taint.key, value=taint.value, effect=taint.effect) for taint in taints)
    has = dict(flavor.node_labels)
    selector = tuple((key, value) for key, value in pod_set.selector if has.get(key, value) == value)
    terms = pod_set.terms
    if terms and has:
        wanted = tuple(NodeRequirement(key=key, operator=Operator.IN, values=(value,)) for key, value in has.items())
        terms = (*terms, NodeTerm(requirements=wanted))
    return _replace(pod_set, tolerations=(*pod_set.tolerations, *added), selector=selector, terms=terms)
