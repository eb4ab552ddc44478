"""Objects of a case, through the product's own readers, into a state; and what that state came to, in Kueue's words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tidegate.engine.apply import apply
from tidegate.engine.kernels.columns import counters
from tidegate.engine.kernels.cycle_scratch import CycleScratch, Requests, make_scratch, request
from tidegate.engine.kernels.nominate import may_be_tried
from tidegate.engine.quota_cycle import most_pods
from tidegate.engine.quota_reservations import holdings, quota_view_of
from tidegate.engine.topology.build import topology_of
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.engine.topology.view import NONE_AGAIN, topology_view_for
from tidegate.jit.registry import active
from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.core_objects import read_node
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.import_queues import read_cluster_defaults, with_controllers
from tidegate.manifests.jobs.pod import read_pod, unmanaged_by_node
from tidegate.manifests.kueue_objects import (
    read_admission_check,
    read_configuration,
    read_resource_flavor,
    read_topology,
    topology_rule,
)
from tidegate.manifests.kueue_queues import read_cluster_queue, read_cohort, read_local_queue
from tidegate.manifests.kueue_workload import read_workload
from tidegate.manifests.object_index import ObjectIndex as Documents
from tidegate.manifests.object_index import take
from tidegate.manifests.workload_status import read_observed_status
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.facts import FactKind, Facts, WriteOutcome
from tidegate.model.observed_status import DecayedUsage, ObservedStatus
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.problem import Severity
from tidegate.model.queues import FairSharing, FairStrategy, LocalQueue, Namespace, Queue, QueueSetup, UsageSharing
from tidegate.model.struct import labels
from tidegate.model.work import Workload
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

#: Namespaces of Kueue's scheduler tests, with their labels.
NAMESPACES = {
    "default": "", "eng-alpha": "eng", "eng-beta": "eng", "eng-gamma": "eng", "sales": "sales", "lend": "lend",
}  # fmt: skip


class Objects(NamedTuple):
    """The objects of a case, by kind."""

    cluster_queues: Sequence[dict[str, Any]]
    cohorts: Sequence[dict[str, Any]] = ()
    flavors: Sequence[dict[str, Any]] = ()
    local_queues: Sequence[dict[str, Any]] = ()
    workloads: Sequence[dict[str, Any]] = ()
    nodes: Sequence[dict[str, Any]] = ()
    topologies: Sequence[dict[str, Any]] = ()
    checks: Sequence[dict[str, Any]] = ()
    limit_ranges: Sequence[dict[str, Any]] = ()
    pods: Sequence[dict[str, Any]] = ()


class Told(NamedTuple):
    """What Kueue as a whole was told: its configuration and its feature gates, where they are not the defaults."""

    transformations: Sequence[dict[str, Any]] = ()

    fair: bool = False
    strategies: Sequence[str] = ()
    usage: UsageSharing | None = None
    gates: Mapping[str, bool] = {}


NOTHING_TOLD = Told()


class World:
    """A state made of the objects of a case."""

    def __init__(self, objects: Objects, now_ms: int, told: Told = NOTHING_TOLD) -> None:
        self.findings, self.now_ms = ManifestFindings(), now_ms
        self.shares = read_shares(objects, self.findings, told)
        self.around = read_around(objects, self.findings, told)
        self.workloads = [self._workload(obj) for obj in objects.workloads]
        self.nodes = [read_node(take(obj, "Node", self.findings, group="")) for obj in objects.nodes]
        self.foreign = unmanaged_by_node(read_pod(take(obj, "Pod", self.findings, group="")) for obj in objects.pods)
        self.rejected: dict[str, set[str]] = {}
        self.state = ClusterState()
        apply(self.state, self._facts().batch(), now_ms)
        if self.findings.errors:
            raise ValueError(self.findings.texts(Severity.ERROR)[0])

    def _workload(self, obj: dict[str, Any]) -> tuple[Workload, ObservedStatus]:
        item = take(obj, "Workload", self.findings)
        return read_workload(item, self.around), read_observed_status(item, self.around)

    def _facts(self) -> Facts:
        facts = Facts()
        facts.policy(Policy(name="case", admission=AdmissionKind.KUEUE, shares=self.shares))
        for number, node in enumerate(self.nodes):
            facts.node(number, node)
        numbers = {node.name: number for number, node in enumerate(self.nodes)}
        for held in self.foreign:
            facts.unmanaged_pods(numbers[held.node], held, self.now_ms)
        for number, (workload, standing) in enumerate(self.workloads):
            if not standing.finished:
                facts.submit(number, workload, self.now_ms)
                facts.observed_status(number, standing, self.now_ms)
        return facts

    def branch(self, queue: str) -> int:
        """The row of a queue."""
        return self.state.quota.quota_node_rows[f"queue/{queue}"]

    def row(self, name: str) -> int:
        """The row of a workload."""
        return next(row for row, known in enumerate(self.state.workload_ids) if known == name)

    def desk(self) -> CycleScratch:
        """Room to think for the kernels, as a cycle has."""
        quota_view_of(self.state)
        return make_scratch(self.state.quota, 2 * self.state.quota.reservations.capacity)

    def grove(self) -> TopologyView | None:
        """The topology for the kernels, as a cycle has it; None: no flavor has one."""
        topology = topology_of(self.state)
        if topology is None:
            return None
        return topology_view_for(self.state, topology, None, NONE_AGAIN, most_pods(self.state))[1]

    def request(self, wish: Requests, lots: Iterable[tuple[int, int]], need: int = 0) -> None:
        """Request amounts of lots; `need`: it takes preemption."""
        wish.marks[counters.REQUESTED] = 0
        for lot, amount in lots:
            active(request)(wish, lot, amount, need)

    def consume(self, used: Iterable[DecayedUsage]) -> None:
        """Tell what entrances have used."""
        facts = Facts()
        for one in used:
            facts.decayed_usage(one)
        apply(self.state, facts.batch(), self.now_ms)

    def admissions(self) -> dict[str, dict[str, Any]]:
        """Who holds what: queue, and by pod set its flavors, what is charged, and pods."""
        found = {}
        for holding in holdings(self.state):
            work = self.state.works[int(self.state.workloads.work_class[holding.row])]
            sets: dict[str, dict[str, Any]] = {
                pod_set.name: {"flavors": {}, "charge": {}, "count": holding.pods[ordinal]}
                for ordinal, pod_set in enumerate(work.pod_sets)
            }
            for ordinal, resource, flavor, amount in holding.claims:
                one = sets[work.pod_sets[ordinal].name]
                one["flavors"][resource] = flavor
                if amount:
                    one["charge"][resource] = amount
            for ordinal, pod_set in enumerate(work.pod_sets):
                held = [spot for spot in holding.assignments if spot.pod_set == ordinal]
                sets[pod_set.name]["spots"] = sorted((spot.values, spot.pods) for spot in held)
                sets[pod_set.name]["awaits"] = bool(holding.awaits[ordinal])
            found[str(self.state.workload_ids[holding.row])] = {"queue": holding.queue, "sets": sets}
        return found

    def carry_out(self, decisions: DecisionBatch, *, fails: bool = False) -> None:
        """Note who was rejected; tell that admissions failed, if they did."""
        queues = {entrance.id: entrance.queue for entrance in self.shares.entrances}
        for number in decisions.workload[decisions.kind == DecisionKind.REJECT].tolist():
            workload = self.workloads[number][0]
            self.rejected.setdefault(queues[workload.work.queue], set()).add(workload.id)
        facts = Facts()
        for decision in decisions.id[decisions.kind == DecisionKind.ADMIT].tolist() if fails else ():
            facts.add(FactKind.OUTCOME, self.now_ms, decision, arg=WriteOutcome.FAILED)
        apply(self.state, facts.batch(), self.now_ms)

    def leaving(self, *, for_good: bool = False) -> set[str]:
        """Who was told to go and still holds its quota: to wait again, or for good."""
        tickets = self.state.quota.reservations
        rows = np.flatnonzero(tickets.terminating[: self.state.workloads.top])
        return {str(self.state.workload_ids[row]) for row in rows if self.state.workloads.ending[row] == for_good}

    def waiting(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Who waits by queue: those that are tried in the next cycle, and those that wait for something to happen."""
        tables, state = self.state.quota, self.state
        names = {row: name[6:] for name, row in tables.quota_node_rows.items() if name.startswith("queue/")}
        tried: dict[str, set[str]] = {}
        held = {queue: set(names) for queue, names in self.rejected.items()}
        for row in np.flatnonzero(state.workloads.phase[: state.workloads.top] == Phase.PENDING).tolist():
            w = int(state.workloads.work_class[row])
            branch = int(tables.queue_requests.queue[w])
            if branch < 0:
                continue
            epoch, strict = (
                int(tables.quota_nodes.epoch[tables.quota_nodes.root[branch]]),
                int(tables.quota_nodes.strict[branch]),
            )
            is_held = bool(tables.queue_requests.refused[w]) or epoch == int(tables.queue_requests.held[w])
            is_held |= not active(may_be_tried)(tables.reservations.block[row], strict, state.now_ms, epoch)
            (held if is_held else tried).setdefault(names[branch], set()).add(str(state.workload_ids[row]))
        return tried, held


def read_around(objects: Objects, findings: ManifestFindings, told: Told) -> ClusterDefaults:
    """What is around the workloads of a case."""
    documents = Documents()
    documents.by_key["", "LimitRange"] = [take(obj, "LimitRange", findings, group="") for obj in objects.limit_ranges]
    gates = frozenset(gate for gate, on in told.gates.items() if on)
    written = Item({"resources": {"transformations": list(told.transformations)}}, findings, ObjectOrigin())
    return read_cluster_defaults(documents, read_configuration(written)._replace(gates=gates))._replace(namespace="")


def read_shares(objects: Objects, findings: ManifestFindings, told: Told) -> QueueSetup:
    """The shares that a case's objects describe."""
    controllers = dict(read_admission_check(take(obj, "AdmissionCheck", findings)) for obj in objects.checks)
    spaces = [Namespace(name=name, labels=labels({"dep": dep} if dep else {})) for name, dep in NAMESPACES.items()]
    queues = [
        with_controllers(read_cluster_queue(take(obj, "ClusterQueue", findings)), controllers)
        for obj in objects.cluster_queues
    ]
    return QueueSetup(
        flavors=tuple(read_resource_flavor(take(obj, "ResourceFlavor", findings)) for obj in objects.flavors),
        cohorts=tuple(read_cohort(take(obj, "Cohort", findings)) for obj in objects.cohorts),
        queues=tuple(queues),
        entrances=tuple(read_entrances(objects, queues, findings)),
        namespaces=tuple(spaces),
        topologies=tuple(read_topology(take(obj, "Topology", findings)) for obj in objects.topologies),
        fair=_fair(told),
        usage=told.usage,
        partial=told.gates.get("PartialAdmission", True),
        retargets=told.gates.get("RecomputeAssignmentUponPreemptionTargetsOverlap", True),
        topology=topology_rule(told.gates),
    )


def _fair(told: Told) -> FairSharing | None:
    if not told.fair:
        return None
    return FairSharing(strategies=tuple(map(FairStrategy, told.strategies))) if told.strategies else FairSharing()


def read_entrances(objects: Objects, queues: list[Queue], findings: ManifestFindings) -> list[LocalQueue]:
    """Local queues, each once; where a later one has the name of an earlier, the later one stands."""
    del queues
    found = {}
    for obj in objects.local_queues:
        entrance = read_local_queue(take(obj, "LocalQueue", findings), "default")
        found[entrance.id] = entrance
    return list(found.values())


def lots_of(world: World, amounts: Mapping[str, int]) -> list[tuple[int, int]]:
    """Amounts by flavor and resource, as Go writes such keys: the lot and the amount of each."""
    tables, found = world.state.quota, []
    for key, amount in amounts.items():
        pair = json.loads(key)
        number = tables.resources.index(pair["Resource"])
        found.append((int(tables.flavors.flavor_resource_of[tables.flavor_rows[pair["Flavor"]], number]) - 1, amount))
    return found
