"""How work that has its place is let go: jobs started and stopped, gates lifted, devices allocated, pods bound.

It makes the orders; whether work has a place, and what follows from what came of them, is the ledger's matter.
Must not know: facts, the network.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.kube.claims import Claims
from tidegate.kube.fleet import Fleet
from tidegate.kube.orders import (
    Order,
    allocating,
    binding,
    lifting,
    saying,
    starting,
    stopping_job,
    stopping_pod,
    undoing,
)
from tidegate.kube.pins import Place, Start
from tidegate.kube.pods import Gate, SeenPod
from tidegate.kube.provisioning import NodesBy, asking, asking_no_more
from tidegate.kube.reach import Reach
from tidegate.kube.rosters import Asked, Roster, Stage
from tidegate.model.decisions import NOBODY


class Letting:
    """Makes the orders that let work go, and that take it back."""

    def __init__(self, reach: Reach, fleet: Fleet, pods: Mapping[str, SeenPod], claims: Claims) -> None:
        self._reach, self._fleet, self._pods, self._claims = reach, fleet, pods, claims
        self.nodes_by = NodesBy()
        self.orders: list[Order] = []
        self.failed: list[int] = []  # decisions that cannot be carried out

    def take_orders(self) -> list[Order]:
        """What is to be written since the last time."""
        orders, self.orders = self.orders, []
        return orders

    def take_failed(self) -> list[int]:
        """Decisions that cannot be carried out, since the last time."""
        failed, self.failed = self.failed, []
        return failed

    # -- jobs --------------------------------------------------------------------------------------------------

    def ask_for_nodes(self, roster: Roster) -> None:
        """Ask for nodes for a job that waits and has no pods that autoscalers could see."""
        if self.nodes_by.kind and roster.suspended and roster.job is not None and roster.asked is not Asked.YES:
            roster.asked = Asked.YES
            self.orders += map(saying, asking(roster.job, dict(roster.sizes()), self.nodes_by))

    def start(self, roster: Roster) -> None:
        """Let a workload go to its places, once what we wrote into it before is taken back."""
        if roster.asked and roster.job is not None:
            roster.asked = Asked.NO
            self.orders += map(saying, asking_no_more(roster.job, dict(roster.sizes()), self.nodes_by))
        if roster.undoing:
            roster.starts_after = True
        else:
            self._let_job_go(roster)
        for ordinal, slot in enumerate(roster.slots):
            if slot.pod:
                self.bind(roster, ordinal, self._pods[slot.pod])

    def _let_job_go(self, roster: Roster) -> None:
        job = roster.job
        if job is not None and job.suspended and roster.stage is Stage.PLACED:
            binds = self._reach.binds_job(job)
            counts = bool(roster.granted) and any(pods.min_count for pods in roster.work.pod_sets)
            places = {name: self._place(roster, name, pods, binds=binds) for name, pods in roster.sizes()}
            self.orders.append(starting(roster, job, Start(places, counts, not binds)))

    def _place(self, roster: Roster, pod_set: str, pods: int, *, binds: bool) -> Place:
        """Where the pods of a set go; those that we bind need not be sent, nor those whose data is somewhere."""
        if binds or (roster.job is not None and roster.job.unbound):
            return Place(pods, ())
        nodes = sorted({roster.slots[ordinal].node for ordinal in roster.ordinals(pod_set)})
        hosts = [self._fleet.host_of(node) for node in nodes if node != NOBODY]
        return Place(pods, tuple(hosts) if all(hosts) else ())

    def undo(self, roster: Roster) -> None:
        """Take back what we wrote into a job that waits, suspended."""
        job = roster.job
        if job is not None and job.suspended and job.started and not roster.undoing:
            roster.undoing = job.version
            self.orders += undoing(roster, job)

    def end_undoing(self, roster: Roster) -> None:
        """What was taken back is seen, or could not be taken back: who was to start after it starts."""
        roster.undoing = ""
        if roster.starts_after:
            roster.starts_after = False
            self._let_job_go(roster)

    def stop(self, roster: Roster, decision: int, *, gently: bool) -> None:
        """Tell a workload to go."""
        if roster.job is not None and not roster.is_gated:
            self.orders.append(stopping_job(roster, roster.job, decision))
            return
        for ordinal, slot in enumerate(roster.slots):
            if slot.holds:
                pod = self._pods[slot.pod].ref
                self.orders.append(stopping_pod(roster, ordinal, pod, decision, gently=gently))

    # -- pods --------------------------------------------------------------------------------------------------

    def bind(self, roster: Roster, ordinal: int, pod: SeenPod) -> None:
        """Send a pod to the node of its slot, unless that is done, ordered, or another scheduler's matter."""
        slot = roster.slots[ordinal]
        if slot.node == NOBODY or pod.node or slot.told or pod.gate is Gate.OTHERS:
            return
        binds = self._reach.binds_pod(pod)
        slot.told = binds or pod.gate is Gate.OURS
        if pod.gate is Gate.OURS:
            host = "" if binds or pod.shape.unbound else self._fleet.host_of(slot.node)
            self.orders.append(lifting(roster, ordinal, pod.ref, host))
        if binds and pod.claims:
            self._allocate(roster, ordinal, pod)
        elif binds:
            self.orders.append(binding(roster, ordinal, pod.ref, self._fleet.name_of(slot.node)))

    def _allocate(self, roster: Roster, ordinal: int, pod: SeenPod) -> None:
        """Give the claims of a pod devices of its node first; it is bound when they have them."""
        slot = roster.slots[ordinal]
        writes = self._claims.allocate(pod.ref, pod.claims, self._fleet.name_of(slot.node))
        if writes is None:
            self.fail_to_allocate(roster, ordinal)
            slot.give_up()
        else:
            slot.claims = len(writes)
            self.orders += allocating(roster, ordinal, writes)

    def count_allocated(self, roster: Roster, ordinal: int) -> None:
        """One more write to a pod's claims is done; after the last it is bound."""
        slot = roster.slots[ordinal]
        slot.claims -= 1
        if not slot.claims and roster.stage is Stage.PLACED and slot.node != NOBODY:
            pod = self._pods[slot.pod]
            self.orders.append(binding(roster, ordinal, pod.ref, self._fleet.name_of(slot.node)))

    def fail_to_allocate(self, roster: Roster, ordinal: int) -> None:
        """The claims of a pod have no devices."""
        slot, pod = roster.slots[ordinal], self._pods[roster.slots[ordinal].pod]
        self._claims.forget_promises(pod.namespace, pod.claims)
        if slot.decision != NOBODY:
            self.failed.append(slot.decision)
