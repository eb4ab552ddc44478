"""Whatever changes wakes everybody who may start because of it: a full scan of the state at rest finds nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Cluster, job, placed, pods, preempted
from full_scan import missed_wakes
from preemption_watch import Watch
from test_preemption_places import seeds
from test_preemption_properties import Contended, relaxed
from test_queues import queue, queue_cluster
from tidegate.model.facts import FactKind
from tidegate.model.hardware import Node
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import PreemptionRule, PreemptWhom, QueueSetup
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import labels
from tidegate.model.work import TopologyRequest, Workload
from tidegate.state.tables.workloads import Phase
from tidegate.state.topology import HOST
from victim_cases import RACKS, hosts, replace, shares_of, with_work
from victim_cases import queue as victim_queue

WITHIN = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
RECLAIM = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)

#: Seeds with which some version of the engine did not try who could start.
FOUND = (129, 241, 369, 2351, 2412, 57_715, 1_000_101)


class Changing(Contended):
    """A contended world whose nodes, devices, work and quotas change too; sometimes places go by topology."""

    def __init__(self, seed: int, admission: AdmissionKind = AdmissionKind.TIDEGATE) -> None:
        super().__init__(seed, admission)
        own = admission is AdmissionKind.TIDEGATE and bool(self.cluster.policy.shares.queues)
        self.by_topology = self.rng.random() < 0.25 and own
        if self.by_topology:
            self._label_nodes()
            shares = self.cluster.policy.shares
            flavors = tuple(replace(flavor, topology="net") for flavor in shares.flavors)
            shares = replace(shares, flavors=flavors, topologies=(RACKS,))
            self.cluster.set_policy(replace(self.cluster.policy, shares=shares))
        self.specs = {node.name: node for node in self.nodes}

    def _label_nodes(self) -> None:
        """Give every node a rack and a host."""
        for at, node in enumerate(self.nodes):
            marks = labels({**dict(node.labels), HOST: node.name, "rack": f"r{at % 2}"})
            self.nodes[at] = replace(node, labels=marks)
            self.cluster.add_node(self.nodes[at])

    def gang(self) -> Workload:
        """A gang, which may ask for a rack or a host of its own."""
        made = super().gang()
        if not self.by_topology or self.rng.random() < 0.5:
            return made
        asks = TopologyRequest(required=self.rng.choice(["rack", HOST]))
        return with_work(made, pod_sets=tuple(replace(s, topology=asks) for s in made.work.pod_sets))

    def change(self) -> None:
        """Maybe something about a node, a device, some work or the quotas."""
        kind = self.rng.random()
        if kind < 0.15:
            self._change_node()
        elif kind < 0.3:
            event = self.rng.choice([FactKind.DEVICE_FAILED, FactKind.DEVICE_RECOVERED])
            name = self.rng.choice(sorted(self.cluster.nodes))
            self.cluster.tell(event, name, arg=self.rng.randint(0, 3))
        elif kind < 0.45:
            self._change_work()
        elif kind < 0.5 and self.cluster.policy.shares.queues:
            self._change_quota()

    def _change_node(self) -> None:
        """A node is cordoned or open again, goes, or is there again."""
        name = self.rng.choice(sorted(self.specs))
        if self.rng.random() < 0.3:
            self.cluster.tell(FactKind.NODE_REMOVED, name)
        else:
            self.cluster.add_node(replace(self.specs[name], unschedulable=self.rng.random() < 0.5))

    def _change_work(self) -> None:
        waits = [name for name in sorted(self.cluster.numbers) if self.watch.phase(name) is Phase.PENDING]
        if waits:
            self.cluster.change(replace(self.gang(), id=self.rng.choice(waits)))

    def _change_quota(self) -> None:
        """A queue owns more or less than before."""
        policy, at = self.cluster.policy, self.rng.randrange(3)
        made = list(policy.shares.queues)
        quotas = tuple(replace(quota, nominal=self.rng.randint(0, 12) * 1_000) for quota in made[at].quotas)
        made[at] = replace(made[at], quotas=quotas)
        self.cluster.set_policy(replace(policy, shares=replace(policy.shares, queues=tuple(made))))

    def live(self, rounds: int) -> None:
        """Let all of that happen; after every step nobody was missed."""
        for _ in range(rounds):
            self.submit(0, 4)
            self.happen()
            self.change()
            self.watch.step(self.rng.choice([1, 1_000, 1_000, 5_000, 30_000]))
            assert missed_wakes(self.cluster) == []


class Unqueued(Changing):
    """The same without queues: a workload starts wherever it fits, in order."""

    def _shares(self, nodes: list[Node]) -> QueueSetup:
        return QueueSetup()


@relaxed
@given(st.data())
def test_in_our_own_mode_everybody_is_tried_who_may_start_or_preempt(data):
    Changing(data.draw(seeds)).live(8)


@relaxed
@given(st.data())
def test_by_kueues_rules_everybody_is_tried_who_may_start(data):
    Changing(data.draw(seeds), AdmissionKind.KUEUE).live(8)


@relaxed
@given(st.data())
def test_without_queues_everybody_is_tried_who_may_start(data):
    Unqueued(data.draw(seeds)).live(8)


@pytest.mark.parametrize("seed", FOUND)
def test_who_was_missed_once_is_tried(seed):
    Changing(seed).live(8)


def test_when_work_begins_to_leave_others_are_evicted_at_once():
    """Who cannot be evicted was in the way. As soon as it leaves, the rest is enough, before it is gone."""
    cluster = queue_cluster(hosts("1x h100x8"), queue("a", 8, preemption=WITHIN))
    stays = with_work(job("stays", "1x4", queue="a"), preemptible=False)
    Watch(cluster.submit(stays, job("low", "1x4", queue="a"))).step()
    cluster.submit(job("high", "1x8", queue="a", priority=9, at=1_000))
    assert preempted("low", Reason.PREEMPTED_IN_QUEUE) not in cluster.step()
    cluster.tell(FactKind.WORKLOAD_CANCELLED, "stays")
    assert preempted("low", Reason.PREEMPTED_IN_QUEUE) in cluster.step()


def test_when_a_queue_begins_to_borrow_its_work_is_reclaimed_at_once():
    """Its first job is in the way of the owner, and cannot be reclaimed until a second one borrows."""
    cluster = two_owners()
    cluster.submit(job("own", "1x8", queue="a", at=2_000))
    assert not any(one.id == "first" for one in cluster.step())
    cluster.submit(job("second", "1x1", queue="b", at=3_000))
    assert preempted("first", Reason.RECLAIMED_IN_COHORT) in cluster.step()


def test_by_topology_a_broken_device_is_no_room():
    """One of two hosts has a broken device: who needs a whole host gets the other."""
    cluster, nodes = by_topology("2x h100x4")
    cluster.tell(FactKind.DEVICE_FAILED, nodes[0].name, arg=1)
    cluster.submit(job("gang", pods("2x2", topology=TopologyRequest(required=HOST)), queue="a"))
    assert placed("gang") in cluster.step()
    assert {node for node, _ in cluster.places["gang"]} == {nodes[1].name}


@pytest.mark.parametrize("level", ["", HOST])
def test_by_topology_pods_go_where_devices_take_them(level):
    """A host with four devices in part use has as much left as a whole one, and no whole device."""
    cluster, nodes = by_topology("2x h100x4")
    cluster.submit(job("parts", pods("4x0.6", selector=labels({HOST: nodes[0].name})), queue="a"))
    cluster.step()
    cluster.submit(job("whole", pods("1x1", topology=TopologyRequest(required=level)), queue="a", at=1_000))
    assert placed("whole") in cluster.step()
    assert {node for node, _ in cluster.places["whole"]} == {nodes[1].name}


def test_by_topology_work_whose_spots_are_reserved_for_another_starts_elsewhere():
    """The tightest host is cleared for another: who fits there by its amounts goes to the other host."""
    cluster, nodes = by_topology("2x h100x4")
    first = labels({HOST: nodes[0].name})
    Watch(cluster.submit(job("low", pods("1x2", selector=first), queue="a"))).step()
    cluster.submit(job("high", pods("1x4", selector=first), queue="a", priority=9, at=1_000))
    assert preempted("low", Reason.PREEMPTED_IN_QUEUE) in cluster.step()
    cluster.submit(job("next", "1x2", queue="a", at=2_000))
    assert placed("next") in cluster.step()
    assert {node for node, _ in cluster.places["next"]} == {nodes[1].name}


def by_topology(*pools: str) -> tuple[Cluster, list[Node]]:
    """Hosts in a rack, and a queue that owns all of them and places work by topology."""
    nodes = hosts(*(f"{pool} in r0" for pool in pools))
    has = sum(node.shape.gpu_count for node in nodes)
    cluster = Cluster(nodes)
    shares = shares_of(victim_queue("a", has, WITHIN), topology=True)
    cluster.set_policy(Policy(admission=AdmissionKind.TIDEGATE, shares=shares))
    return cluster, nodes


def two_owners() -> Cluster:
    """Queues that own eight and four GPUs, on nodes of as many; the job of the second is on the larger node."""
    nodes = hosts("1x h100x8", "1x h100x4")
    a, b = queue("a", 8, cohort="all", preemption=RECLAIM), queue("b", 4, cohort="all")
    cluster = queue_cluster(nodes, a, b)
    cluster.submit(job("first", "1x4", queue="b", selector=labels({HOST: nodes[0].name})))
    cluster.step()
    return cluster
