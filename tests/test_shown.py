"""What the world shows stands: pods that are shown on nodes that would refuse them, and nodes with too much on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import Cluster, fleet, job, pods
from strategies import fleets, orders, placements, workloads
from test_engine_mirroring import bound, foreign
from test_queues import queue, queue_cluster
from tidegate.engine.kernels.node_fit import refusal
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.model.hardware import Node, Taint, TaintEffect, TopologyLevels
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import AdmissionKind
from tidegate.model.queues import Flavor, PreemptionRule, PreemptWhom
from tidegate.model.reasons.catalogue import NODE_REFUSALS, Reason, codes_of
from tidegate.model.struct import labels, resources
from tidegate.model.work import PodSet, TopologyRequest, Workload
from tidegate.state.tables.workloads import Phase

# -- every refusal ---------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A pod that a node refuses."""

    pod: PodSet
    pool: str = "1x h100x8"
    change: Callable[[Node], Node] = lambda node: node
    beside: str = ""  # what is on the node already


def with_capacity(node: Node, **amounts: int) -> Node:
    """The node with other amounts of resources."""
    capacity = resources({**dict(node.shape.capacity), **amounts})
    return replace(node, shape=replace(node.shape, capacity=capacity))


def tainted(effect: TaintEffect) -> Callable[[Node], Node]:
    return lambda node: replace(node, taints=(Taint(key="away", effect=effect),))


EXTRA = "example.com/nic"
WITH_NIC = replace(pods("1x1"), request=resources({EXTRA: 2}))

CASES = {
    "cordoned": (Reason.NODE_DOWN, Case(pods("1x8"), change=lambda node: replace(node, unschedulable=True))),
    "not ready": (Reason.NODE_DOWN, Case(pods("1x8"), change=lambda node: replace(node, ready=False))),
    "selector": (Reason.NODE_TERMS, Case(pods("1x8", selector=labels({"rack": "r9"})))),
    "NoSchedule": (Reason.NODE_TAINT, Case(pods("1x8"), change=tainted(TaintEffect.NO_SCHEDULE))),
    "NoExecute": (Reason.NODE_TAINT, Case(pods("1x8"), change=tainted(TaintEffect.NO_EXECUTE))),
    "model": (Reason.GPU_MODEL, Case(pods("1x8", models=("b200",)))),
    "memory of whole GPUs": (Reason.GPU_MODEL, Case(pods("1x8", vram=200 << 10))),
    "more GPUs than it has": (Reason.POD_TOO_LARGE, Case(pods("1x8"), "1x h100x4")),
    "more GPUs than any node has": (Reason.POD_TOO_LARGE, Case(pods("1x60"), "1x h100x4")),
    "GPUs on a node without": (Reason.POD_TOO_LARGE, Case(pods("1x1"), "1x cpux0")),
    "a fraction on a node without": (Reason.POD_TOO_LARGE, Case(pods("1x0.5"), "1x cpux0")),
    "more memory than it has": (Reason.POD_TOO_LARGE, Case(pods("1x1", memory=900), "1x h100x1 memory=8")),
    "GPUs in use": (Reason.LACKS_GPU, Case(pods("1x8"), beside="1x4")),
    "a fraction": (Reason.LACKS_FRACTION, Case(pods("1x0.5"), "1x h100x1", beside="1x0.7")),
    "a fraction's memory": (
        Reason.LACKS_GPU_MEMORY,
        Case(pods("1x0.5", vram=40 << 10), "1x h100x1 vram=60", beside="1x0.3 vram"),
    ),
    "CPU": (Reason.LACKS_CPU, Case(pods("1x1", cpu=8), "1x h100x8 cpu=8", beside="1x1")),
    "memory": (Reason.LACKS_MEMORY, Case(pods("1x1", memory=8), "1x h100x8 memory=8", beside="1x1")),
    "slots": (Reason.LACKS_SLOT, Case(pods("1x1"), "1x h100x8 pods=1", beside="1x1")),
    "another resource": (
        Reason.LACKS_RESOURCE,
        Case(WITH_NIC, change=lambda node: with_capacity(node, **{EXTRA: 3}), beside="nic"),
    ),
}


def test_there_is_a_case_for_every_refusal_of_the_catalogue():
    assert {int(reason) for reason, _ in CASES.values()} == set(codes_of(*NODE_REFUSALS))


@pytest.mark.parametrize("admission", [None, *AdmissionKind])
@pytest.mark.parametrize("name", CASES)
def test_a_pod_that_is_shown_where_it_is_refused_is_there(name, admission):
    """It is not placed a second time, though another node would take it; and it heals when pods leave."""
    _, case = CASES[name]
    node = case.change(fleet(case.pool)[0])
    other = replace(fleet("1x h100x60 cpu=900 memory=9000 in r9")[0], name="other", labels=labels({"rack": "r9"}))
    other = with_capacity(other, **{EXTRA: 9})
    cluster = made(admission, [node])
    if case.beside:
        beside = {"nic": WITH_NIC, "1x0.3 vram": pods("1x0.3", vram=40 << 10)}.get(case.beside) or pods(case.beside)
        bound(cluster.submit(job("beside", beside, queue="a")), "beside", node.name)
        cluster.step()
    cluster.submit(job("j", case.pod, queue="a"))
    bound(cluster, "j", node.name)
    assert cluster.step() == []
    cluster.add_node(other)
    assert cluster.step() == []
    assert there(cluster) == {("j", 0): node.name, **({("beside", 0): node.name} if case.beside else {})}
    assert_used(cluster)
    for gone in ("beside", "j"):
        if gone in cluster.numbers:
            cluster.tell(FactKind.WORKLOAD_FINISHED, gone).step()
            assert_used(cluster)


@pytest.mark.parametrize("name", CASES)
def test_the_cases_are_what_they_say(name):
    reason, case = CASES[name]
    node = case.change(fleet(case.pool)[0])
    cluster = Cluster([node])
    if case.beside:
        beside = {"nic": WITH_NIC, "1x0.3 vram": pods("1x0.3", vram=40 << 10)}.get(case.beside) or pods(case.beside)
        cluster.submit(job("beside", beside))
    cluster.step()
    cluster.submit(job("j", case.pod, at=1)).step()
    sets, row = cluster.state.pod_sets, cluster.state.workload_numbers.row(cluster.numbers["j"])
    k = int(sets.pod_class[cluster.state.work_classes.first_set[cluster.state.workloads.work_class[row]]])
    assert refusal(cluster.state.hot(), k, 0) == reason


def made(admission: AdmissionKind | None, nodes: list[Node], **more) -> Cluster:
    """A cluster with queues, or without."""
    if admission is None:
        return Cluster(nodes, **more)
    return queue_cluster(nodes, queue("a", 900), admission=admission)


def there(cluster: Cluster) -> dict[tuple[str, int], str]:
    """Where every pod is by the state's books; that a pod is there twice fails."""
    state, names = cluster.state, {number: name for name, number in cluster.nodes.items()}
    found: dict[tuple[str, int], str] = {}
    for pod in range(state.pods.top):
        if state.pods.workload[pod] >= 0:
            key = (str(state.workload_ids[state.pods.workload[pod]]), int(state.pods.ordinal[pod]))
            assert key not in found, f"{key} has two places"
            found[key] = names[int(state.nodes.number[state.pods.node[pod]])]
    return found


def assert_used(cluster: Cluster) -> None:
    """What is free on each node is what its spec has less what the specs of the pods there ask for."""
    state = cluster.state
    free = {row: dict(node.shape.capacity) for row, node in state.node_specs.items()}
    gpus = {row: node.shape.gpu_count - _broken(cluster, row) for row, node in state.node_specs.items()}
    shared = {row for row, taken in state.unmanaged.items() if taken.unmanaged.request}
    for pod in range(state.pods.top):
        if state.pods.workload[pod] < 0:
            continue
        n, row = int(state.pods.node[pod]), int(state.pods.workload[pod])
        asked = _pod_set(state.works[int(state.workloads.work_class[row])].pod_sets, int(state.pods.ordinal[pod]))
        for name, amount in (*asked.request, ("pods", 1)):
            free[n][name] = free[n].get(name, 0) - amount
        gpus[n] -= asked.gpu.count
        shared |= {n} if asked.gpu.milli else set()
    for row, taken in state.unmanaged.items():
        for name, amount in (*taken.unmanaged.request, ("pods", taken.unmanaged.pods)):
            free[row][name] = free[row].get(name, 0) - amount
    for row, left in free.items():
        columns = {"cpu": state.nodes.cpu_free, "memory": state.nodes.memory_free, "pods": state.nodes.slots_free}
        columns |= {name: state.nodes.extra_free[:, e] for e, name in enumerate(state.extras)}
        for name, column in columns.items():
            assert column[row] == left.get(name, 0), name
        if row not in shared:
            assert state.nodes.idle[row] == max(gpus[row], 0)


def _broken(cluster: Cluster, row: int) -> int:
    return int((cluster.state.nodes.left[row] < -1_000_000).sum())


def _pod_set(sets: tuple[PodSet, ...], ordinal: int) -> PodSet:
    for pod_set in sets:
        if ordinal < pod_set.count:
            return pod_set
        ordinal -= pod_set.count
    raise AssertionError(ordinal)


# -- anything in any order -------------------------------------------------------------------------------------


class Told:
    """A cluster, and which pods the world has shown where."""

    def __init__(self, data, cluster: Cluster, nodes: list[Node]) -> None:
        self.data, self.cluster = data, cluster
        self.shown: dict[tuple[str, int], str] = {}
        self.specs = {node.name: node for node in nodes}
        self.sizes: dict[str, int] = {}  # pods of each workload
        self.ending: set[str] = set()  # workloads that may be over with the next step

    def draw(self, *choices):
        return self.data.draw(st.sampled_from(choices))

    def live(self) -> list[str]:
        """Workloads that are not over."""
        rows = self.cluster.state.workload_numbers
        known = [name for name, number in sorted(self.cluster.numbers.items()) if rows.row(number) >= 0]
        return [name for name in known if name not in self.ending]

    def phase(self, name: str) -> Phase:
        state = self.cluster.state
        return Phase(int(state.workloads.phase[state.workload_numbers.row(self.cluster.numbers[name])]))

    def forget(self, gone: Callable[[str, int, str], bool]) -> None:
        """Pods are gone."""
        self.shown = {(name, pod): node for (name, pod), node in self.shown.items() if not gone(name, pod, node)}

    def submit(self, workload: Workload) -> None:
        self.sizes[workload.id] = sum(pod_set.count for pod_set in workload.work.pod_sets)
        self.cluster.submit(workload)

    def show(self, name: str) -> None:
        """Show all pods of a workload, or one, on any nodes."""
        if not self.specs:
            return
        pods_shown = range(self.sizes[name]) if self.draw(True, True, False) else [self.draw(*range(self.sizes[name]))]
        for pod in pods_shown:
            node = self.draw(*sorted(self.specs))
            self.cluster.tell(FactKind.POD_BOUND, name, pod=pod, arg=self.cluster.nodes[node])
            self.shown[name, pod] = node

    def end(self, name: str) -> None:
        """A workload, or a pod of it, comes to its end."""
        phase, pod = self.phase(name), self.draw(*range(self.sizes[name]))
        kind = self.draw(FactKind.WORKLOAD_FINISHED, FactKind.POD_FAILED, FactKind.POD_DONE, FactKind.POD_STARTED)
        if phase is Phase.TERMINATING:
            kind, pod = FactKind.POD_GONE, self.draw(-1, pod)
        elif kind in (FactKind.WORKLOAD_FINISHED, FactKind.POD_STARTED):
            pod = -1
        if phase is Phase.PENDING and kind in (FactKind.POD_FAILED, FactKind.POD_DONE):
            return
        self.cluster.tell(kind, name, pod=pod)
        if kind is not FactKind.POD_STARTED:
            self.forget(lambda other, at, _: other == name and pod in (-1, at))

    def change_node(self, name: str) -> None:
        """A node is told of with anything about it changed; or it goes."""
        if self.draw(*[False] * 9, True):
            self.cluster.tell(FactKind.NODE_REMOVED, name)
            del self.specs[name]
            self.ending |= {workload for (workload, _), node in there(self.cluster).items() if node == name}
            self.forget(lambda _, __, node: node == name)
            return
        node, shape = self.specs[name], self.specs[name].shape
        effect = self.draw(*TaintEffect)
        self.specs[name] = self.draw(
            replace(node, taints=(Taint(key="away", effect=effect),)),
            replace(node, taints=()),
            replace(node, unschedulable=not node.unschedulable),
            replace(node, ready=not node.ready),
            replace(node, labels=labels({"rack": self.draw("r1", "r2"), "pool": self.draw("h100", "a100")})),
            replace(node, shape=replace(shape, gpu_count=self.draw(0, 1, 2, 4, 8, 9))),
            replace(node, shape=replace(shape, gpu_model=self.draw("h100", "a100"), gpu_memory_mib=self.draw(0, 1024))),
            with_capacity(node, cpu=self.draw(0, 4_000, 64_000), memory=self.draw(0, 2_048, 999_999)),
            with_capacity(node, pods=self.draw(0, 1, 110), **{EXTRA: self.draw(0, 1, 5)}),
        )
        self.cluster.add_node(self.specs[name])

    def fail_device(self, name: str) -> None:
        """A device fails, and whatever is on it by the books; or it recovers."""
        state, device = self.cluster.state, self.draw(0, 3)
        row = state.node_numbers.row(self.cluster.nodes[name])
        if row < 0 or len(self.cluster._facts.batch().kind):
            return  # what is on it is known only if nothing is told that may move it
        if self.draw(True, False):
            self.cluster.tell(FactKind.DEVICE_RECOVERED, name, arg=device)
            return
        self.cluster.tell(FactKind.DEVICE_FAILED, name, arg=device)
        broken = state.nodes.left[row, device] < -1_000_000
        on = [] if broken or device >= state.nodes.devices[row] else range(state.pods.top)
        for pod in on:
            if state.pods.node[pod] == row and state.pods.devices[pod] >> device & 1:
                lost = (str(state.workload_ids[state.pods.workload[pod]]), int(state.pods.ordinal[pod]))
                self.shown.pop(lost, None)
                self.ending.add(lost[0])

    def tell(self) -> None:
        """One fact, of any kind."""
        live = self.live()
        kinds = ("show", "show", "show", "node", "node", "end", "device", "foreign", "cancel", "outcome", "standing")
        kind = self.draw(*kinds)
        if kind in ("show", "end", "cancel", "standing") and live:
            name = self.draw(*live)
            if kind == "show":
                self.show(name)
            elif kind == "standing":  # nothing is granted
                told = ObservedStatus(parked=self.draw(True, False), active=self.draw(True, False))
                self.cluster._facts.observed_status(self.cluster.numbers[name], told, self.cluster.now_ms)
            else:
                self.ending.add(name)
                self.end(name) if kind == "end" else self.cluster.tell(FactKind.WORKLOAD_CANCELLED, name)
        elif kind in ("node", "device", "foreign") and self.specs:
            name = self.draw(*sorted(self.specs))
            if kind == "node":
                self.change_node(name)
            elif kind == "device":
                self.fail_device(name)
            else:
                amount = self.draw(0, 1, 5, 20)
                foreign(self.cluster, name, pods=amount, gpus=amount, cpu=amount * 1000, **{EXTRA: amount})
        elif kind == "outcome":
            decision = self.data.draw(st.integers(0, 20))
            self.cluster.outcome(decision, self.draw(*WriteOutcome))

    def check(self) -> None:
        """Whatever was shown is there, and was not decided on again."""
        self.ending.clear()
        found = there(self.cluster)
        for key, node in self.shown.items():
            assert found.get(key) == node, f"{key} is shown on {node}, and is {found.get(key)} by the books"
        decisions = self.cluster.result.decisions
        for at in (decisions.kind == DecisionKind.PLACE).nonzero()[0].tolist():
            key = (self.cluster.ids[int(decisions.workload[at])], int(decisions.pod[at]))
            assert key not in self.shown, f"{key} is shown on {self.shown[key]} and placed again"
        assert_used(self.cluster)


def any_cluster(data, nodes: list[Node]) -> Cluster:
    """A fleet, under any order and placement, with queues of either kind or without."""
    admission = data.draw(st.sampled_from([None, *AdmissionKind]))
    if admission is None:
        return Cluster(nodes, placement=data.draw(placements), order=data.draw(orders))
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
    queues = [queue(name, data.draw(st.integers(0, 12)), cohort="all", preemption=rule) for name in ("a", "b")]
    flavors = (Flavor(name="any", topology=data.draw(st.sampled_from(["", "racks"]))),)
    levels = (TopologyLevels(name="racks", labels=("pool", "rack")),)
    return queue_cluster(nodes, *queues, admission=admission, flavors=flavors, topologies=levels)


def any_work(data, number: int) -> Workload:
    """A workload of any kind, some with another resource, some in one rack."""
    made = data.draw(workloads(number, number))
    nic = data.draw(st.integers(0, 2))
    topology = data.draw(st.sampled_from([TopologyRequest(), TopologyRequest(required="rack")]))
    sets = tuple(
        replace(one, request=resources({**dict(one.request), EXTRA: nic}), topology=topology)
        for one in made.work.pod_sets
    )
    return replace(made, work=replace(made.work, pod_sets=sets))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_is_shown_stands_whatever_happens(data):
    """`Cluster.step` checks the state before and after."""
    nodes = [replace(node, name=f"n{at}") for at, node in enumerate(data.draw(fleets))]
    told = Told(data, any_cluster(data, nodes), nodes)
    for number in range(data.draw(st.integers(2, 8))):
        if number % 2 == 0 or data.draw(st.booleans()):
            told.submit(any_work(data, number))
        for _ in range(data.draw(st.integers(1, 4))):
            told.tell()
        told.cluster.step()
        told.check()
        event(f"shown: {bool(told.shown)}, over-used: {bool(told.cluster.state.nodes.overdrawn.any())}")
