"""Short ways to say fleets, work and expectations in tests.

fleet("4x h100x8 cpu=96 in r1", "2x a100x4")       nodes; `in r1` labels the rack
job("j1", "2x8", queue="a")                        two pods with eight GPUs each
job("j2", "0.5")                                   half a GPU
cluster = Cluster(fleet("2x h100x8"), placement="bestfit"); cluster.submit(job("j1", "1x8")); cluster.step()
cluster.step() == [placed("j1"), held("j2", Reason.LACKS_GPU)]
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from tidegate.engine.step import step
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import ALL_PODS, FactKind, Facts, WriteOutcome
from tidegate.model.hardware import Node, NodeShape, Taint
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import labels, resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work, Workload
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

POOL = re.compile(r"(?P<count>\d+)x (?P<model>[a-z0-9]+)x(?P<gpus>\d+)(?P<more>( [a-z_]+=\S+| in \S+)*)")


def fleet(*pools: str) -> list[Node]:
    """Nodes by description."""
    nodes = []
    for number, text in enumerate(pools):
        match = POOL.fullmatch(text)
        assert match, text
        more = dict(re.findall(r" ([a-z_]+)=(\S+)", match["more"]))
        rack = re.search(r" in (\S+)", match["more"])
        gpus = int(match["gpus"])
        capacity = {
            "cpu": int(more.get("cpu", 16 * max(gpus, 1))) * 1000,
            "memory": int(more.get("memory", 128 * max(gpus, 1))) * 1024,
            "pods": int(more.get("pods", 110)),
        }
        shape = NodeShape(
            name=match["model"],
            gpu_model=match["model"] if gpus else "",
            gpu_count=gpus,
            gpu_memory_mib=int(more.get("vram", 80)) * 1024,
            capacity=resources(capacity),
        )
        taints = (Taint(key=more["taint"]),) if "taint" in more else ()
        marks = labels({"pool": match["model"], **({"rack": rack[1]} if rack else {})})
        nodes += [
            Node(name=f"{match['model']}-{number}-{index:02d}", shape=shape, labels=marks, taints=taints)
            for index in range(int(match["count"]))
        ]
    return nodes


def pods(text: str, *, cpu: int = 1, memory: int = 1, models: tuple[str, ...] = (), **more) -> PodSet:
    """A pod set: "2x8" is two pods with eight GPUs, "1x0.5" half a GPU, "3x0" no GPU."""
    count, gpus = text.split("x") if "x" in text else ("1", text)
    amount, vram = float(gpus), more.pop("vram", 0)
    if amount == 0:
        gpu = GpuRequest()
    elif amount < 1:
        gpu = GpuRequest(share=Share.FRACTION, count=1, milli=round(amount * 1000), models=models, memory_mib=vram)
    else:
        gpu = GpuRequest(share=Share.WHOLE, count=int(amount), models=models, memory_mib=vram)
    request = resources({"cpu": cpu * 1000, "memory": memory * 1024})
    return PodSet(count=int(count), request=request, gpu=gpu, **more)


def job(id_: str, *sets: str | PodSet, at: int = 0, queue: str = "default", priority: int = 0, **more) -> Workload:
    """A workload."""
    made = tuple(text if isinstance(text, PodSet) else pods(text, **more) for text in sets)
    named = tuple(PodSet(**{**_fields(s), "name": f"s{i}"}) for i, s in enumerate(made))
    return Workload(id=id_, work=Work(queue=queue, priority=priority, pod_sets=named), submitted_ms=at)


def _fields(spec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


class Said(NamedTuple):
    """A decision, as tests like to compare it."""

    kind: DecisionKind
    id: str
    reason: Reason


def placed(id_: str, reason: Reason = Reason.PLACED) -> Said:
    """The workload got its place."""
    return Said(DecisionKind.PLACE, id_, reason)


def held(id_: str, reason: Reason) -> Said:
    """The workload waits."""
    return Said(DecisionKind.HOLD, id_, reason)


def rejected(id_: str, reason: Reason) -> Said:
    """The workload was refused for good."""
    return Said(DecisionKind.REJECT, id_, reason)


def evicted(id_: str, reason: Reason) -> Said:
    """The workload was sent away because something broke."""
    return Said(DecisionKind.EVICT, id_, reason)


def preempted(id_: str, reason: Reason = Reason.PREEMPTED_BY_ORDER) -> Said:
    """The workload was sent away for another."""
    return Said(DecisionKind.PREEMPT, id_, reason)


class Cluster:
    """An engine with facts by name, for tests. Every step is checked before and after."""

    decisions = 0  # made by all of them so far

    def __init__(self, nodes: list[Node], *, placement: str = "bestfit", order: str = "fifo", **policy) -> None:
        self.state = ClusterState()
        self.now_ms = 0
        self.nodes: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.ids: dict[int, str] = {}
        self.result: StepResult
        self.places: dict[str, list[tuple[str, int]]] = {}
        self._facts = Facts()
        strict = policy.pop("strict", False)
        self.set_policy(
            Policy(
                placement=PlacementRule(kind=PlacementKind(placement)),
                order=OrderRule(kind=OrderKind(order), strict=strict),
                **policy,
            )
        )
        for node in nodes:
            self.add_node(node)

    def set_policy(self, policy: Policy) -> None:
        """Tell of a policy."""
        self.policy = policy
        self._facts.policy(policy)

    def add_node(self, node: Node) -> None:
        """Tell of a node, or of a change of one."""
        known = node.name in self.nodes
        number = self.nodes.setdefault(node.name, len(self.nodes))
        self._facts.node(number, node, self.now_ms, changed=known)

    def submit(self, *workloads: Workload) -> Cluster:
        """Tell of new workloads."""
        for workload in workloads:
            number = self.numbers.setdefault(workload.id, len(self.numbers))
            self.ids[number] = workload.id
            self._facts.submit(number, workload, self.now_ms)
        return self

    def change(self, workload: Workload) -> Cluster:
        """Tell that a workload asks for something else."""
        self._facts.changed(self.numbers[workload.id], workload.work, self.now_ms)
        return self

    def tell(self, kind: FactKind, name: str, *, pod: int = ALL_PODS, arg: int = 0, values=()) -> Cluster:
        """Tell a fact about a workload or node."""
        number = self.nodes[name] if kind.name.startswith(("NODE", "DEVICE")) else self.numbers[name]
        self._facts.add(kind, self.now_ms, number, pod=pod, arg=arg, values=values)
        return self

    def outcome(self, decision: int, outcome: WriteOutcome) -> Cluster:
        """Tell what came of a decision."""
        self._facts.add(FactKind.OUTCOME, self.now_ms, decision, arg=outcome)
        return self

    def step(self, after_ms: int = 1_000) -> list[Said]:
        """One step; what it decided, the pods of one workload together."""
        self.now_ms += after_ms
        check(self.state)
        until_ms = self._protected_until()
        self.result = step(self.state, self._facts.batch(), self.now_ms)
        check(self.state)
        self._check_protected(until_ms)
        self._facts = Facts()
        Cluster.decisions += len(self.result.decisions.id)
        return self._said()

    def _protected_until(self) -> dict[int, int]:
        """Until when those who hold something may not be preempted, by number."""
        table, tickets, works = self.state.workloads, self.state.quota.reservations, self.state.work_classes
        until = {}
        for row in self.state.live_workloads().tolist():
            since = int(table.since_ms[row])
            if row < tickets.top and tickets.queue[row] >= 0:
                since = int(tickets.granted_ms[row])
            if table.phase[row] in (Phase.ASSUMED, Phase.RUNNING):
                until[int(table.number[row])] = since + int(works.protected_ms[table.work_class[row]])
        return until

    def _check_protected(self, until_ms: dict[int, int]) -> None:
        decisions = self.result.decisions
        for number in decisions.workload[decisions.kind == DecisionKind.PREEMPT].tolist():
            assert until_ms.get(number, 0) <= self.now_ms, f"{self.ids[number]} was preempted while it was protected"

    def _said(self) -> list[Said]:
        decisions, names = self.result.decisions, {number: name for name, number in self.nodes.items()}
        said: list[Said] = []
        for row in range(len(decisions.id)):
            kind, id_ = DecisionKind(decisions.kind[row]), self.ids[int(decisions.workload[row])]
            one = Said(kind, id_, Reason(decisions.code[row]))
            if kind is DecisionKind.PLACE:
                place = (names[int(decisions.node[row])], int(decisions.devices[row]))
                self.places.setdefault(id_, [])
                if one not in said:
                    self.places[id_] = []
                self.places[id_].append(place)
            if one not in said or kind is not DecisionKind.PLACE:
                said.append(one)
        return said

    def evidence(self, row: int) -> list[int]:
        """The numbers of a decision of the latest step."""
        return np.asarray(self.result.decisions.evidence[row]).tolist()
