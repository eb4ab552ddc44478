"""Facts of any kind about anything, in any order: hypothesis strategies for a world that contradicts itself.

Work that is there or not, pods that no workload has, grants of queues that are gone, policies with queues removed, made
again or moved: whatever a cluster, or a mistake of ours, may tell.
"""

from __future__ import annotations

from hypothesis import strategies as st

from builders import Cluster, fleet, job, pods
from queue_strategies import QUEUES, policies
from strategies import orders, placements, replace
from tidegate.engine.quota_reservations import holding_of
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.model.hardware import TopologyLevels
from tidegate.model.observed_status import (
    Check,
    CheckState,
    DomainAssignment,
    ObservedStatus,
    PodSetAssignment,
    UnmanagedPods,
)
from tidegate.model.policy import AdmissionKind, OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Flavor, LocalQueue, QueueSetup, StopPolicy
from tidegate.model.struct import labels, resources
from tidegate.model.work import TopologyRequest, Workload
from tidegate.state.cluster import ClusterState, Counter

HOST = "kubernetes.io/hostname"
NODES = ("n0", "n1", "n2", "n3")
#: Pods that work has, and some that it does not.
ORDINALS = (-1, -1, 0, 0, 0, 1, 1, 2, 3, 7, 100_000, -2)
_pools = ("1x h100x8", "1x h100x4", "1x h100x2", "1x a100x8", "1x h100x1 cpu=4", "1x h100x8 pods=1", "1x cpux0")
_sets = ("1x1", "1x2", "2x1", "2x2", "3x1", "4x2", "1x8", "1x0", "1x0.5", "2x0.3")


class Hostile:
    """A cluster, and a world that tells it anything."""

    def __init__(self, data) -> None:
        self._data = data
        self.admission = self.pick(*AdmissionKind)
        self.topology = self.pick(True, False)
        self.cluster = Cluster([])
        self.told = 0  # workloads that were submitted
        self.cluster.set_policy(self.policy())
        for name in NODES[: data.draw(st.integers(0, 3))]:
            self.cluster.add_node(self.node(name))

    def pick(self, *choices):
        return self._data.draw(st.sampled_from(choices))

    def seldom(self, one_in: int = 6) -> bool:
        return self._data.draw(st.integers(1, one_in)) == one_in

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    # -- what there is -----------------------------------------------------------------------------------------

    def policy(self) -> Policy:
        """Queues that are removed, made again, moved or drained; sometimes none, and sometimes another admission."""
        made = self._data.draw(policies())
        kept = tuple(queue for queue in made.shares.queues if not self.seldom(4))
        queues = tuple(replace(queue, stop=self.pick(*[StopPolicy.NONE] * 5, *StopPolicy)) for queue in kept)
        entrance = LocalQueue(
            id="ns/lq", queue=self.pick("qa", "gone"), stop=self.pick(StopPolicy.NONE, StopPolicy.DRAIN)
        )
        flavors = (Flavor(name="od", topology="t" if self.topology else ""), *made.shares.flavors[1:])
        levels = (TopologyLevels(name="t", labels=("rack", HOST)),)
        shares = replace(
            made.shares, queues=queues, entrances=(entrance,), flavors=flavors, topologies=levels, partial=True
        )
        return Policy(
            order=OrderRule(kind=OrderKind(self._data.draw(orders)), reserve_after_ms=self.pick(0, 1000)),
            placement=PlacementRule(kind=PlacementKind(self._data.draw(placements))),
            admission=self.pick(*AdmissionKind) if self.seldom() else self.admission,
            shares=QueueSetup() if self.seldom(5) else shares,
        )

    def node(self, name: str):
        """A node, which may have been another before."""
        made = fleet(self.pick(*_pools))[0]
        vram = self.pick(0, 1 << 10, 80 << 10)
        marks = labels({"rack": self.pick("r1", "r2"), HOST: name})
        return replace(made, name=name, labels=marks, shape=replace(made.shape, gpu_memory_mib=vram))

    def workload(self, number: int) -> Workload:
        sets = []
        for _ in range(self.pick(1, 1, 2)):
            pod_set = pods(self.pick(*_sets))
            asks = TopologyRequest(preferred="rack") if self.topology and self.seldom(3) else TopologyRequest()
            sets.append(replace(pod_set, min_count=self.pick(0, 1), topology=asks))
        queue = self.pick(*QUEUES[:3], "ns/lq", "nowhere")
        return job(f"w{number}", *sets, queue=queue, priority=self.pick(0, 0, 5), at=self.pick(0, self.cluster.now_ms))

    # -- what is told ------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Tell anything."""
        kinds = [self.tell_work] * 3 + [self.tell_pod] * 5 + [self.tell_standing] * 2 + [self.tell_node, self.tell_rest]
        self.pick(*kinds)()

    def some(self) -> int:
        """A workload, known or not."""
        return self._data.draw(st.integers(-1, self.told))

    def tell_work(self) -> None:
        """It is submitted, once or again; it asks for something else, or is over."""
        facts, now_ms = self.cluster._facts, self.cluster.now_ms
        kind = self.pick("submit", "submit", "submit", "again", "change", "cancel", "finish")
        number = self.told if kind == "submit" else self.some()
        if kind in ("submit", "again"):
            self.told += kind == "submit"
            self.cluster.ids[number] = f"w{number}"
            facts.submit(number, self.workload(number), now_ms)
        elif kind == "change":
            facts.changed(number, self.changed(number), now_ms)
        else:
            over = FactKind.WORKLOAD_CANCELLED if kind == "cancel" else FactKind.WORKLOAD_FINISHED
            facts.add(over, now_ms, number)

    def changed(self, number: int):
        row = self.state.workload_numbers.row(number)
        if row < 0 or self.seldom(2):
            return self.workload(number).work
        return replace(self.state.works[int(self.state.workloads.work_class[row])], queue=self.pick(*QUEUES[:3]))

    def tell_pod(self) -> None:
        """A pod is anywhere, or nowhere any more."""
        bound = FactKind.POD_BOUND
        kinds = (bound, bound, bound, FactKind.POD_STARTED, FactKind.POD_GONE, FactKind.POD_FAILED)
        kind = self.pick(*kinds, FactKind.POD_DONE, FactKind.POD_DONE)
        node = self._data.draw(st.integers(-1, len(NODES)))
        self.cluster._facts.add(kind, self.cluster.now_ms, self.some(), pod=self.pick(*ORDINALS), arg=node)

    def tell_standing(self) -> None:
        """It stands anywhere: as it does, without a grant, or with one that nobody made."""
        number = self.some()
        row = self.state.workload_numbers.row(number)
        more = {
            "evicted": self.pick("", "", "", "x"), "active": not self.seldom(), "parked": self.seldom(),
            "nominated": self.seldom(), "admitted": self.pick(True, False), "requeue_at_ms": self.pick(0, 0, 3_000),
            "order_ms": self.pick(0, 0, 5), "checks": (Check(name="c", state=self.pick(*CheckState)),),
            "replaces": self.pick("", "", "w0", "w1"), "passed_over_ms": self.pick(0, 0, 500),
            "reserved": ((self.pick(*NODES), self.pick(1, 2, -1)),), "reclaimable": (("s0", self.pick(0, 0, 1, 9)),),
        }  # fmt: skip
        if row >= 0 and not self.seldom(3):
            more |= self.granted(row)
        self.cluster._facts.observed_status(number, ObservedStatus(**more), self.cluster.now_ms)

    def granted(self, row: int) -> dict[str, object]:
        """What a workload holds, or anything."""
        state = self.state
        if state.quota.holds_quota(row) and not self.seldom(3):
            held = holding_of(state, row)
            claims = [[claim for claim in held.claims if claim[0] == at] for at in range(len(held.pods))]
            spots = [
                tuple(DomainAssignment(spot.values, spot.pods) for spot in held.assignments if spot.pod_set == at)
                for at in range(9)
            ]
            grants = tuple(
                PodSetAssignment(
                    pod_set=f"s{at}", count=count, spots=spots[at],
                    flavors=tuple((resource, flavor) for _, resource, flavor, _ in claims[at]),
                    charge=tuple((resource, amount) for _, resource, _, amount in claims[at]),
                )
                for at, count in enumerate(held.pods)
            )  # fmt: skip
            return {"queue": held.queue, "grants": grants, "granted_ms": held.granted_ms}
        grants = tuple(
            PodSetAssignment(
                pod_set=pod_set.name, count=self.pick(pod_set.count, 1, 0, -1), charge=(("gpu", self.pick(0, 2, -3)),),
                flavors=(("gpu", self.pick("od", "spot", "gone")),),
                spots=(DomainAssignment((self.pick(*NODES, "gone"),), self.pick(1, 2)),) if self.seldom(3) else (),
            )
            for pod_set in state.works[int(state.workloads.work_class[row])].pod_sets
        )  # fmt: skip
        return {"queue": self.pick(*QUEUES, "gone"), "grants": grants, "granted_ms": state.now_ms}

    def tell_node(self) -> None:
        """A node comes, changes, breaks, or goes."""
        name, facts = self.pick(*NODES), self.cluster._facts
        if name not in self.cluster.nodes or self.seldom(2):
            self.cluster.add_node(self.node(name))
        elif self.seldom(2):
            self.cluster.tell(FactKind.NODE_REMOVED, name)
        elif self.seldom(2):
            kind = self.pick(FactKind.DEVICE_FAILED, FactKind.DEVICE_RECOVERED)
            self.cluster.tell(kind, name, arg=self.pick(0, 1, 7, 63, -1))
        else:
            amount = self.pick(0, 1, 5, 20)
            request = resources({"nvidia.com/gpu": amount, "cpu": amount * 1000})
            told = UnmanagedPods(node=name, request=request, charge=request, pods=amount)
            facts.unmanaged_pods(self.cluster.nodes[name], told, self.cluster.now_ms)

    def tell_rest(self) -> None:
        """The policy, or what came of a decision."""
        if self.seldom(2):
            self.cluster.set_policy(self.policy())
            return
        latest = int(self.state.counters[Counter.NEXT_DECISION])
        decision = self._data.draw(st.integers(max(latest - 12, 0), latest + 2))
        self.cluster.outcome(
            decision, self.pick(WriteOutcome.FAILED, WriteOutcome.FAILED, WriteOutcome.DONE, WriteOutcome.UNKNOWN)
        )
