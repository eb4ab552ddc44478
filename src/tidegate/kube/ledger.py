"""What is known of the cluster, turned into facts; what was decided, turned into orders.

It follows nodes, jobs and pods, and keeps a roster for each workload that is ours. Pods that are not ours take up room.
Must not know: the network, clocks, threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.journal.lots import Names
from tidegate.kube.fleet import Fleet
from tidegate.kube.groups import Groups
from tidegate.kube.jobs import SeenJob
from tidegate.kube.notes import Note
from tidegate.kube.orders import Order, Purpose, binding, saying_why, starting, stopping_job, stopping_pod
from tidegate.kube.pods import Life, SeenPod
from tidegate.kube.resources import JOBS
from tidegate.kube.rosters import Kind, Roster, Stage
from tidegate.kube.sayings import Saying, held, unsupported
from tidegate.kube.tidings import Tidings
from tidegate.kube.writes import Ref, pod_ref
from tidegate.model.decisions import NOBODY, DecisionBatch, DecisionKind
from tidegate.model.facts import EventKind, Outcome
from tidegate.model.hardware import Node
from tidegate.model.standing import Consumed, Standing
from tidegate.model.work import Work
from tidegate.state.interning import MOST_PODS

#: The queue of work that names none.
NO_QUEUE = Work().queue

_SAID = (DecisionKind.HOLD, DecisionKind.REJECT)
_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE)


@dataclass(frozen=True)
class Reach:
    """What is ours: pods that name us as their scheduler, and jobs of such pods or, to be gated, with a queue.

    Who only watches follows work as if it were ours, whoever schedules it.
    """

    scheduler: str = "tidegate"
    gates: bool = False
    watches: bool = False
    unqueued: bool = True  # of what others schedule: also what names no queue

    def has_job(self, job: SeenJob) -> bool:
        """Whether a job is ours."""
        watched = self.watches and (self.unqueued or job.queued)
        return job.owner is None and (watched or job.scheduler == self.scheduler or (self.gates and job.queued))

    def has_pod(self, pod: SeenPod) -> bool:
        """Whether a pod that no job controls is ours, and may go."""
        queued = pod.shape.work.queue != NO_QUEUE
        watched = self.watches and pod.owner is None and (self.unqueued or queued)
        return watched or (pod.scheduler == self.scheduler and not pod.gated)


class Before(NamedTuple):
    """What a leader before us knew that belongs to no single object."""

    consumed: tuple[Consumed, ...] = ()
    nominated: frozenset[str] = frozenset()  # ids of workloads that others were told to go for


class Ledger:
    """Follows the cluster."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.fleet = Fleet()
        self.refused: dict[str, tuple[str, ...]] = {}  # by uid: work that names us and that we cannot do, and why
        self.names = Names()  # of the quota that reasons speak of
        self._tidings = Tidings()
        self._orders: list[Order] = []
        self._next_number = 0
        self._pods: dict[str, SeenPod] = {}
        self._rosters: dict[int, Roster] = {}
        self._of_job: dict[str, Roster] = {}  # by uid of the job
        self._seats: dict[str, tuple[Roster, int]] = {}  # by uid of the pod
        self._orphans: dict[str, list[str]] = {}  # pods whose job is not known, by uid of the job
        self._groups = Groups()
        self._sayings: dict[str, Saying] = {}  # by uid of the pod: the latest that is not written yet

    def take_tidings(self) -> Tidings:
        """What there is to tell since the last time."""
        self.fleet.tell_rooms(self._tidings)
        tidings, self._tidings = self._tidings, Tidings()
        return tidings

    def take_orders(self) -> list[Order]:
        """What is to be written since the last time."""
        orders, self._orders = self._orders, []
        return orders

    def take_sayings(self, most: int) -> list[Order]:
        """What is to be said with pods that wait: so much at a time, as nothing depends on it."""
        orders: list[Order] = []
        while self._sayings and len(orders) < most:
            uid = next(iter(self._sayings))
            said, pod = self._sayings.pop(uid), self._pods.get(uid)
            if pod is not None and not pod.node:
                orders.append(saying_why(_ref(pod), said))
        return orders

    # -- what is seen ------------------------------------------------------------------------------------------

    def see_node(self, uid: str, node: Node | None) -> None:
        """A node is as it is now, or gone."""
        self.fleet.see(uid, node, self._tidings)

    def see_job(self, uid: str, job: SeenJob | None) -> None:
        """A job is as it is now, or gone."""
        roster = self._of_job.get(uid)
        if job is None or job.over or job.leaving:
            self.refused.pop(uid, None)
            if roster is not None:
                self._finish(roster)
        elif roster is None:
            if self.reach.has_job(job):
                self._take_job(job)
        elif job.suspended and not roster.suspended and roster.stage is Stage.PLACED:
            self._finish(roster)  # somebody else suspended it: it begins anew
            self._take_job(job)
        else:
            roster.suspended = job.suspended
            self._follow_change(roster, job)
            if roster.stage is Stage.LEAVING:
                self._settle_leaving(roster)

    def see_pod(self, uid: str, pod: SeenPod | None) -> None:
        """A pod is as it is now, or gone."""
        if pod is None:
            known = self._pods.pop(uid, None)
            self.refused.pop(uid, None)
            if known is not None and known.group:
                self._groups.leave(known)
        else:
            is_new = uid not in self._pods
            self._pods[uid] = pod
            if uid not in self._seats and (is_new or not pod.life.is_over):
                self._find_seat(pod)
        seat = self._seats.get(uid)
        if seat is not None:
            self._follow_pod(uid, pod, *seat)
        self._count(uid)

    def hear(self, order: Order, outcome: Outcome) -> None:
        """An order was carried out, or not; what is not known, or had to be done anyway, is ordered again."""
        roster = self._rosters.get(order.workload)
        if roster is None or (order.purpose is Purpose.BIND and not _fills(roster, order)):
            return  # it is over, or another pod fills the slot now, by an order of its own
        for decision in order.decisions:
            if outcome is not Outcome.UNKNOWN or not order.again:  # that it is not known is told once
                self._tidings.outcome(decision, outcome)
        if outcome is Outcome.DONE:
            return
        if order.purpose is Purpose.BIND and outcome is Outcome.FAILED and not roster.slots[order.slot].bound:
            self._fail_one(roster, order.slot)
        if (outcome is Outcome.UNKNOWN and self._is_wanted(roster, order)) or (
            order.purpose is Purpose.STOP and roster.stage is Stage.LEAVING
        ):
            self._orders.append(order._replace(again=order.again + 1))

    def _fail_one(self, roster: Roster, ordinal: int) -> None:
        """A pod surely is not where it was to be; one of work that is leaving holds nothing any more."""
        slot = roster.slots[ordinal]
        if slot.decision == NOBODY:  # whoever decided it is gone: there is no decision to be told of
            self._tidings.about(EventKind.POD_GONE, roster.number, ordinal)
        slot.give_up()
        if roster.stage is Stage.LEAVING:
            self._settle_leaving(roster)

    def _is_wanted(self, roster: Roster, order: Order) -> bool:
        if order.purpose is Purpose.STOP:
            return roster.stage is Stage.LEAVING
        if order.purpose is Purpose.START:
            return roster.stage is Stage.PLACED and roster.suspended
        return roster.stage is Stage.PLACED and not roster.slots[order.slot].bound

    # -- jobs --------------------------------------------------------------------------------------------------

    def _take_job(self, job: SeenJob) -> None:
        pods = sum(pod_set.count for pod_set in job.work.pod_sets) if job.work else 0
        many = (f"spec.parallelism: asks for {pods:,} pods, at most {MOST_PODS:,}",) if pods > MOST_PODS else ()
        if job.refusals or many or job.work is None:
            self.refused[job.uid] = job.refusals + many
            return
        roster = self._enrol(Kind.JOB, Ref(JOBS, job.namespace, job.name, job.uid), job.work, job.created_ms)
        roster.suspended = job.suspended
        self._of_job[job.uid] = roster
        self._seat_again(self._orphans.pop(job.uid, []))

    def _follow_change(self, roster: Roster, job: SeenJob) -> None:
        """A job that waits may change what it asks for; one that has its place keeps it as it is."""
        if job.work is None or job.work == roster.work or roster.stage is not Stage.WAITING:
            return
        filled = self._unseat(roster)
        roster.resize(job.work)
        self._tidings.changed(roster.number, job.work)
        self._seat_again(filled)

    # -- rosters -----------------------------------------------------------------------------------------------

    def _enrol(self, kind: Kind, ref: Ref, work: Work, created_ms: int) -> Roster:
        roster = Roster(self._next_number, kind, ref, work)
        self._next_number += 1
        self._rosters[roster.number] = roster
        self._tidings.submitted(roster.number, roster.id, work, created_ms)
        return roster

    def _finish(self, roster: Roster, kind: EventKind = EventKind.WORKLOAD_FINISHED) -> None:
        """A workload is over; pods of it that are still there take up room like anybody's."""
        del self._rosters[roster.number]
        if roster.kind is Kind.JOB:
            del self._of_job[roster.ref.uid]
        self._tidings.about(kind, roster.number)
        for uid in self._unseat(roster):
            pod = self._pods.get(uid)
            if pod is not None and roster.kind is Kind.GROUP and not pod.node:
                self._find_seat(pod)  # it waits for its group to be whole again
            self._count(uid)

    def _unseat(self, roster: Roster) -> list[str]:
        filled = [slot.pod for slot in roster.slots if slot.pod]
        for uid in filled:
            del self._seats[uid]
        return filled

    def _seat_again(self, uids: list[str]) -> None:
        for uid in uids:
            if uid in self._pods:
                self.see_pod(uid, self._pods[uid])

    # -- pods --------------------------------------------------------------------------------------------------

    def _find_seat(self, pod: SeenPod) -> None:
        """Let a pod fill a slot of its workload, which is made for it if it is one of its own.

        One that was over before we came still shows which place its workload holds.
        """
        if not pod.node and (pod.life.is_over or pod.leaving):
            return
        owner = pod.owner
        if owner is not None and owner.kind == JOBS.kind:
            roster = self._of_job.get(owner.uid)
            if roster is None:
                self._orphans.setdefault(owner.uid, []).append(pod.uid)
            else:
                self._seat(roster, pod, "")
        elif self.reach.has_pod(pod):
            self._take_alone(pod)

    def _take_alone(self, pod: SeenPod) -> None:
        """A pod that is work of its own, or one of a group: that is work once it is whole."""
        if pod.shape.refusals:
            if pod.uid not in self.refused:
                self._sayings[pod.uid] = unsupported(pod.shape.refusals)
            self.refused[pod.uid] = pod.shape.refusals
        elif not pod.group and pod.life.is_over:
            return
        elif not pod.group:
            self._seat(self._enrol(Kind.POD, _ref(pod), pod.shape.work, pod.created_ms), pod, "")
        else:
            whole = self._groups.join(pod)
            if whole is not None and not all(member.life.is_over for member, _ in whole.members):
                roster = self._enrol(Kind.GROUP, whole.ref, whole.work, whole.created_ms)
                for member, pod_set in whole.members:
                    self._seat(roster, member, pod_set)
                for member, _ in whole.members:
                    if member.uid != pod.uid and member.uid in self._seats:
                        self._follow_pod(member.uid, member, *self._seats[member.uid])
                        self._count(member.uid)

    def _seat(self, roster: Roster, pod: SeenPod, pod_set: str) -> None:
        ordinal = roster.seat(pod.uid, pod_set)
        if ordinal >= 0:
            self._seats[pod.uid] = (roster, ordinal)

    def _count(self, uid: str) -> None:
        """Count a pod as somebody else's if it has a node and no seat."""
        pod = self._pods.get(uid)
        stranger = pod is not None and pod.node and not pod.life.is_over and uid not in self._seats
        self.fleet.count_in(uid, pod if stranger else None)

    def _follow_pod(self, uid: str, pod: SeenPod | None, roster: Roster, ordinal: int) -> None:
        slot = roster.slots[ordinal]
        if pod is None or (pod.leaving and not pod.node):
            self._lose(uid, roster, ordinal)
            return
        if pod.node and not slot.bound:
            slot.bound, slot.node = True, self.fleet.number_of(pod.node)
            if roster.stage is Stage.WAITING:
                roster.stage = Stage.PLACED  # bound before we came, or by somebody else
            self._tidings.about(EventKind.POD_BOUND, roster.number, ordinal, slot.node)
        if pod.life is Life.RUNNING and not slot.started:
            slot.started = True
            self._tidings.about(EventKind.POD_STARTED, roster.number, ordinal)
        if pod.life.is_over:
            self._end_pod(uid, pod, roster, ordinal)
        elif slot.node != NOBODY and roster.stage is Stage.PLACED:
            self._bind(roster, ordinal, pod)

    def _end_pod(self, uid: str, pod: SeenPod, roster: Roster, ordinal: int) -> None:
        """A pod has done its work, or failed at it; a job's controller knows what follows."""
        slot = roster.slots[ordinal]
        slot.done = pod.life is Life.SUCCEEDED
        if roster.kind is Kind.POD:
            self._finish(roster)
        elif roster.kind is Kind.JOB or roster.stage is Stage.LEAVING:
            self._lose(uid, roster, ordinal)
        elif not slot.done:
            self._tidings.about(EventKind.POD_FAILED, roster.number, ordinal)
            del self._seats[uid]
            slot.empty()
        elif all(one.done for one in roster.slots):
            self._finish(roster)

    def _lose(self, uid: str, roster: Roster, ordinal: int) -> None:
        """A pod of a workload is gone, or as good as gone."""
        slot = roster.slots[ordinal]
        del self._seats[uid]
        slot.empty()
        if roster.stage is Stage.LEAVING:
            self._settle_leaving(roster)
        elif roster.kind is Kind.POD:
            waits = roster.stage is Stage.WAITING
            self._finish(roster, EventKind.WORKLOAD_CANCELLED if waits else EventKind.WORKLOAD_FINISHED)
        elif roster.kind is Kind.GROUP:
            if roster.stage is Stage.WAITING:
                self._finish(roster, EventKind.WORKLOAD_CANCELLED)
            else:
                self._tidings.about(EventKind.POD_GONE, roster.number, ordinal)

    def _settle_leaving(self, roster: Roster) -> None:
        """Once nobody of a workload that was told to go holds anything it waits again, unless pods of it are gone.

        A job makes its pods again; nobody makes others again.
        """
        if any(roster.holders()) or (roster.kind is Kind.JOB and not roster.suspended):
            return
        if roster.kind is not Kind.JOB and not all(slot.pod for slot in roster.slots):
            self._finish(roster)
        elif roster.comes_back:
            roster.comes_back = False
            self._start(roster)
        else:
            roster.give_up_places()
            self._tidings.about(EventKind.POD_GONE, roster.number)

    # -- what was decided before us ----------------------------------------------------------------------------

    def resume(self, notes: Callable[[str], Note | None], before: Before) -> None:
        """Take up what a leader before us decided, as far as it left notes: by uid of the job or pod."""
        for consumed in before.consumed:
            self._tidings.consumed(consumed)
        for roster in list(self._rosters.values()):
            uids = (roster.ref.uid, *(slot.pod for slot in roster.slots))
            note = next((note for note in map(notes, uids) if note is not None), None)
            if note is not None:
                self._take_up(roster, note, nominated=roster.id in before.nominated)
            elif roster.id in before.nominated:
                self._tidings.standing(roster.number, Standing(nominated=True))

    def _take_up(self, roster: Roster, note: Note, *, nominated: bool) -> None:
        standing, holds = note.standing, any(slot.bound for slot in roster.slots)
        if roster.suspended and not (standing.evicted and holds):  # it waits, whatever it held
            standing = Standing(evictions=standing.evictions, requeue_at_ms=standing.requeue_at_ms, nominated=nominated)
        elif roster.suspended:
            roster.stage = Stage.LEAVING
        elif standing.evicted:  # it was to go, and was let go again
            standing = Standing(evictions=standing.evictions)
        else:
            self._take_places(roster, note.node_names())
        self._tidings.standing(roster.number, standing)

    def _take_places(self, roster: Roster, names: list[str]) -> None:
        """Pods that are not bound yet have the nodes that were decided; who of a set gets which makes no difference."""
        if len(names) != len(roster.slots):
            return
        for pods in roster.work.pod_sets:
            ordinals = roster.ordinals(pods.name)
            left = Counter(self.fleet.number_of(names[ordinal]) for ordinal in ordinals)
            left.subtract(roster.slots[ordinal].node for ordinal in ordinals if roster.slots[ordinal].bound)
            nodes = (node for node, count in left.items() for _ in range(count))
            for ordinal in (ordinal for ordinal in ordinals if not roster.slots[ordinal].bound):
                roster.slots[ordinal].node = next(nodes, NOBODY)
                if roster.slots[ordinal].node != NOBODY:
                    self._tidings.about(EventKind.POD_BOUND, roster.number, ordinal, roster.slots[ordinal].node)
        self._start(roster)

    # -- what is decided ---------------------------------------------------------------------------------------

    def decide(self, decisions: DecisionBatch) -> None:
        """Turn decisions into orders."""
        rows = zip(
            decisions.id.tolist(), decisions.kind.tolist(), decisions.workload.tolist(), decisions.pod.tolist(),
            decisions.node.tolist(), decisions.code.tolist(), decisions.evidence.tolist(), strict=True,
        )  # fmt: skip
        placed: dict[int, Roster] = {}
        for decision, kind, number, ordinal, node, code, evidence in rows:
            roster = self._rosters.get(number)
            if roster is None:
                continue
            if kind == DecisionKind.PLACE and ordinal < len(roster.slots):
                if number not in placed:
                    self._tidings.take_back(EventKind.POD_GONE, number)  # it was sent away and placed in one step
                roster.slots[ordinal].node, roster.slots[ordinal].decision = node, decision
                placed[number] = roster
            elif kind in _AWAY:
                placed.pop(number, None)
                self._send_away(roster, decision, gently=kind == DecisionKind.PREEMPT)
            elif kind in _SAID:
                self._say(roster, held(code, tuple(evidence), self.names))
        for roster in placed.values():
            if roster.stage is Stage.LEAVING:
                roster.comes_back = True
            else:
                self._start(roster)

    def _say(self, roster: Roster, said: Saying) -> None:
        for slot in roster.slots:
            if slot.pod and self._pods[slot.pod].scheduler == self.reach.scheduler:
                self._sayings[slot.pod] = said

    def _start(self, roster: Roster) -> None:
        roster.stage = Stage.PLACED
        if roster.kind is Kind.JOB and roster.suspended:
            self._orders.append(starting(roster))
        for ordinal, slot in enumerate(roster.slots):
            if slot.pod:
                self._bind(roster, ordinal, self._pods[slot.pod])

    def _bind(self, roster: Roster, ordinal: int, pod: SeenPod) -> None:
        """Bind a pod to the node of its slot, unless that is done, ordered, or another scheduler's matter."""
        slot = roster.slots[ordinal]
        if slot.node == NOBODY or pod.node or slot.told or pod.scheduler != self.reach.scheduler:
            return
        slot.told = True
        self._orders.append(binding(roster, ordinal, _ref(pod), self.fleet.name_of(slot.node)))

    def _send_away(self, roster: Roster, decision: int, *, gently: bool) -> None:
        roster.stage, roster.comes_back = Stage.LEAVING, False
        if roster.kind is Kind.JOB:
            self._orders.append(stopping_job(roster, decision))
        else:
            for ordinal, slot in enumerate(roster.slots):
                if slot.holds:
                    self._orders.append(
                        stopping_pod(roster, ordinal, _ref(self._pods[slot.pod]), decision, gently=gently)
                    )
        self._settle_leaving(roster)


def _ref(pod: SeenPod) -> Ref:
    return pod_ref(pod.namespace, pod.name, pod.uid)


def _fills(roster: Roster, order: Order) -> bool:
    """Whether the pod that an order is about still fills its slot."""
    return order.slot < len(roster.slots) and roster.slots[order.slot].pod == order.write.key
