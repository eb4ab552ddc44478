"""What is known of the cluster, turned into facts; what was decided, turned into orders.

It follows nodes, jobs and pods, and keeps a roster for each workload that is ours. Pods that are not ours take up room.
Must not know: the network, clocks, threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tidegate.journal.lots import Names
from tidegate.kube.claims import ClaimObject, Claims
from tidegate.kube.family import Family
from tidegate.kube.fleet import Fleet
from tidegate.kube.groups import Groups
from tidegate.kube.jobs import SeenJob
from tidegate.kube.kinds import OWNERS
from tidegate.kube.letting import Letting
from tidegate.kube.notes import Note
from tidegate.kube.orders import Order, Purpose, saying
from tidegate.kube.pods import Gate, Life, SeenPod
from tidegate.kube.provisioning import NO_NODES, NodesBy
from tidegate.kube.reach import Reach
from tidegate.kube.resources import Resource
from tidegate.kube.rosters import Asked, Kind, Roster, Stage
from tidegate.kube.sayings import PAST, unsupported
from tidegate.kube.shapes import Shapes
from tidegate.kube.tidings import Tidings
from tidegate.kube.voice import Listener, Voice
from tidegate.kube.writes import Ref
from tidegate.model.decisions import NOBODY, DecisionBatch, DecisionKind
from tidegate.model.facts import ALL_PODS, EventKind, Outcome
from tidegate.model.hardware import Node
from tidegate.model.reasons import Reason
from tidegate.model.spec import resources
from tidegate.model.standing import Consumed, Standing
from tidegate.model.work import Work
from tidegate.state.interning import MOST_PODS

_SAID = (DecisionKind.HOLD, DecisionKind.REJECT)
_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE)


#: Orders that stand for one pod of a workload.
_OF_ONE = (Purpose.BIND, Purpose.LIFT, Purpose.ALLOCATE)

#: How long demand lasts that deserves nodes, where nobody says how long they take to come.
PATIENCE_MS = 120_000

__all__ = ["PATIENCE_MS", "Before", "Ledger", "Reach"]


class Before(NamedTuple):
    """What a leader before us knew that belongs to no single object."""

    consumed: tuple[Consumed, ...] = ()
    waiting: Mapping[str, Standing] = {}  # by id, workloads that others were evicted for, or that were passed over


class Ledger:
    """Follows the cluster."""

    def __init__(self, reach: Reach, patience_ms: int = PATIENCE_MS, nodes_by: NodesBy = NO_NODES) -> None:
        self.reach = reach
        self.fleet = Fleet()
        self.refused: dict[str, tuple[str, ...]] = {}  # by uid: work that names us and that we cannot do, and why
        self.past: dict[str, Ref] = {}  # by uid: work that was not held at the door, and runs without us
        self._tidings = Tidings()
        self._next_number = 0
        self._pods: dict[str, SeenPod] = {}
        self._rosters: dict[int, Roster] = {}
        self._of_job: dict[str, Roster] = {}  # by uid of the job
        self._seats: dict[str, tuple[Roster, int]] = {}  # by uid of the pod
        self._family = Family()
        self._groups = Groups()
        self._claims = Claims()
        self._claiming: dict[str, SeenPod] = {}  # by uid: pods with claims, as they were seen
        self._shapes = Shapes()  # of pods with claims
        self._voice = Voice(patience_ms)
        self._letting = Letting(reach, self.fleet, self._pods, self._claims)
        self._letting.nodes_by = nodes_by

    def take_tidings(self) -> Tidings:
        """What there is to tell since the last time."""
        self.fleet.tell_rooms(self._tidings)
        for decision in self._letting.take_failed():
            self._tidings.outcome(decision, Outcome.FAILED)
        tidings, self._tidings = self._tidings, Tidings()
        return tidings

    def take_orders(self) -> list[Order]:
        """What is to be written since the last time."""
        return self._letting.take_orders()

    def take_sayings(self, most: int, now_ms: int) -> list[Order]:
        """What is to be said of work that waits: so much at a time, as nothing depends on it."""
        orders = [saying(write) for write in self._voice.take(most, now_ms, self._listeners)]
        for number in self._voice.take_lasting():
            roster = self._rosters.get(number)
            if roster is not None:
                self._letting.ask_for_nodes(roster)
        return orders

    def _listeners(self, number: int) -> Iterator[Listener]:
        """Whom to say it with: pods that we bind have a condition for it, others and jobs get an event."""
        roster = self._rosters.get(number)
        if roster is None or self.reach.watches:
            return
        for slot in roster.slots:
            pod = self._pods[slot.pod] if slot.pod else None
            if pod is not None and not pod.node:
                yield Listener(pod.ref, self.reach.binds_pod(pod))
        if roster.kind is Kind.JOB:
            yield Listener(roster.ref, has_condition=False)

    def _refuse(self, listener: Listener, why: tuple[str, ...]) -> None:
        if self.refused.get(listener.ref.uid) != why and not self.reach.watches:
            self._voice.say(listener, unsupported(why))
        self.refused[listener.ref.uid] = why

    def _let_pass(self, ref: Ref) -> None:
        if ref.uid not in self.past:
            self._voice.say(Listener(ref, has_condition=False), PAST)
        self.past[ref.uid] = ref

    def has_job(self, uid: str) -> bool:
        """Whether a job is ours, or would be if it could be read."""
        return uid in self._of_job or uid in self.refused

    def name_quota(self, names: Names) -> None:
        """What reasons mean by their numbers of quota, from now on."""
        self._voice.names = names

    # -- what is seen ------------------------------------------------------------------------------------------

    def see_node(self, uid: str, node: Node | None) -> None:
        """A node is as it is now, or gone."""
        self.fleet.see(uid, node, self._tidings)

    def see_job(self, uid: str, job: SeenJob | None) -> None:
        """A job is as it is now, or gone."""
        if job is None:
            self._family.forget(uid)
        elif job.owner is not None:
            self._seat_again(self._family.own(uid, job.owner.uid))
            return
        roster = self._of_job.get(uid)
        if job is None or not self.reach.is_past(job):
            self.past.pop(uid, None)
        if job is None or job.over or job.leaving:
            self.refused.pop(uid, None)
            if roster is not None:
                self._finish(roster)
        elif roster is None:
            if self.reach.has_job(job):
                self._take_job(job)
        else:
            self._follow_job(roster, job)

    def _follow_job(self, roster: Roster, job: SeenJob) -> None:
        """A job of ours has changed."""
        stopped = job.suspended and not roster.suspended and roster.stage is Stage.PLACED
        if stopped or (roster.stage is Stage.WAITING and self.reach.is_past(job)):
            self._finish(roster)  # somebody else suspended it, and it begins anew; or let it go, and it is past us
            self._take_job(job)
            return
        roster.job = job
        self._follow_change(roster, job)
        self._give_back(roster)
        if roster.undoing and roster.undoing != job.version:
            self._letting.end_undoing(roster)
        if roster.stage is Stage.LEAVING:
            self._settle_leaving(roster)

    def see_claim(self, resource: Resource, uid: str, thing: ClaimObject | None) -> None:
        """A slice, class or claim of devices is as it is now, or gone; what follows is settled later."""
        self._claims.see(resource, uid, thing)

    def settle_claims(self) -> None:
        """Look again at nodes and pods, as devices by claim or what is asked of them changed."""
        self.fleet.see_devices(self._claims.counts(), self._tidings)
        for uid, pod in list(self._claiming.items()):
            self.see_pod(uid, pod)

    def _with_claims(self, pod: SeenPod) -> SeenPod:
        """A pod with what its claims ask for; one whose claims are not there yet waits as behind a gate."""
        asked = self._claims.asked(pod.namespace, pod.claims, pod.uid)
        if asked.waits:
            return pod._replace(gate=Gate.OTHERS)
        shape = self._shapes.with_devices(pod.shape, resources(dict(asked.devices)))
        if asked.refusals:
            shape = shape._replace(refusals=asked.refusals)
        return pod._replace(shape=shape)

    def see_pod(self, uid: str, pod: SeenPod | None) -> None:
        """A pod is as it is now, or gone."""
        if pod is not None and pod.claims:
            self._claiming[uid] = pod
            pod = self._with_claims(pod)
        elif pod is None:
            self._claiming.pop(uid, None)
        if pod is None:
            known = self._pods.pop(uid, None)
            self.refused.pop(uid, None)
            self.past.pop(uid, None)
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
        if roster is None or (order.purpose in _OF_ONE and not _fills(roster, order)):
            return  # it is over, or another pod fills the slot now, by an order of its own
        for decision in order.decisions:
            if outcome is not Outcome.UNKNOWN or not order.again:  # that it is not known is told once
                self._tidings.outcome(decision, outcome)
        if outcome is Outcome.DONE:
            if order.purpose is Purpose.ALLOCATE:
                self._letting.count_allocated(roster, order.slot)
            return
        if order.purpose in _OF_ONE and outcome is Outcome.FAILED:
            self._fail_one(roster, order)
        if order.purpose is Purpose.UNDO:
            self._letting.end_undoing(roster)
        elif (outcome is Outcome.UNKNOWN and self._is_wanted(roster, order)) or (
            order.purpose is Purpose.STOP and roster.stage is Stage.LEAVING
        ):
            self._letting.orders.append(order._replace(again=order.again + 1))

    def _fail_one(self, roster: Roster, order: Order) -> None:
        """A pod surely is not where it was to be."""
        slot = roster.slots[order.slot]
        if order.purpose is Purpose.ALLOCATE:
            self._letting.fail_to_allocate(roster, order.slot)
        if slot.bound:
            return
        if slot.decision == NOBODY:  # whoever decided it is gone: there is no decision to be told of
            self._tidings.about(EventKind.POD_GONE, roster.number, order.slot)
        slot.give_up()
        if roster.stage is Stage.LEAVING:  # it holds nothing any more
            self._settle_leaving(roster)

    def _is_wanted(self, roster: Roster, order: Order) -> bool:
        if order.purpose is Purpose.STOP:
            return roster.stage is Stage.LEAVING
        if order.purpose is Purpose.START:
            return roster.stage is Stage.PLACED and roster.suspended
        return roster.stage is Stage.PLACED and not roster.slots[order.slot].bound

    # -- jobs --------------------------------------------------------------------------------------------------

    def _take_job(self, job: SeenJob) -> None:
        uid, pods = job.ref.uid, sum(pod_set.count for pod_set in job.work.pod_sets) if job.work else 0
        many = (f"spec: asks for {pods:,} pods, at most {MOST_PODS:,}",) if pods > MOST_PODS else ()
        why = job.refusals + many + (job.unbound if self.reach.binds_job(job) else ())
        if self.reach.is_past(job):
            self._let_pass(job.ref)
        elif why:
            self._refuse(Listener(job.ref, has_condition=False), why)
        elif job.work is not None:
            self.refused.pop(uid, None)
            roster = self._enrol(Kind.JOB, job.ref, job.work, job.created_ms)
            roster.job = job
            self._of_job[uid] = roster
            self._seat_again(self._family.claim(uid))

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
        self._voice.forget(roster.number)
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
                self.see_pod(uid, self._claiming.get(uid, self._pods[uid]))

    # -- pods --------------------------------------------------------------------------------------------------

    def _find_seat(self, pod: SeenPod) -> None:
        """Let a pod fill a slot of its workload, which is made for it if it is one of its own.

        One that was over before we came still shows which place its workload holds.
        """
        if not pod.node and (pod.life.is_over or pod.leaving):
            return
        owner, is_ours = pod.owner, self.reach.has_pod(pod)
        if owner is not None and owner.kind in OWNERS and not (pod.group and is_ours):
            eldest = self._family.eldest(owner.uid)
            roster = self._of_job.get(eldest)
            if roster is None:
                self._family.await_job(eldest, pod.uid)
                if eldest in self.refused and self.reach.binds_pod(pod):
                    self._voice.say(Listener(pod.ref, has_condition=True), unsupported(self.refused[eldest]))
            else:
                self._seat(roster, pod, roster.set_of(pod.role, pod.shape.work.pod_sets[0]))
        elif is_ours:
            self._take_alone(pod)
        elif self.reach.is_pod_past(pod):
            self._let_pass(pod.ref)

    def _take_alone(self, pod: SeenPod) -> None:
        """A pod that is work of its own, or one of a group: that is work once it is whole."""
        binds = self.reach.binds_pod(pod)
        why = pod.shape.refusals + (pod.shape.unbound if binds else ())
        if why:
            self._refuse(Listener(pod.ref, binds), why)
        elif not pod.group and pod.life.is_over:
            return
        elif not pod.group:
            self._seat(self._enrol(Kind.POD, pod.ref, pod.shape.work, pod.created_ms), pod, "")
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
        if pod.claims and pod.shape.refusals and not pod.node and roster.kind is not Kind.JOB:
            self._finish(roster, EventKind.WORKLOAD_CANCELLED)  # its claim went to somebody else
            self._take_alone(pod)
            return
        if pod.node and not slot.bound:
            slot.bound, slot.node = True, self.fleet.number_of(pod.node)
            if roster.stage is Stage.WAITING:
                roster.stage = Stage.PLACED  # bound before we came, or by somebody else
            self._tidings.about(EventKind.POD_BOUND, roster.number, ordinal, slot.node)
        if pod.life is Life.RUNNING and not slot.started:
            slot.started = True
            whole = len(roster.slots) == 1  # which is told of at once for all such
            self._tidings.about(EventKind.POD_STARTED, roster.number, ALL_PODS if whole else ordinal)
        if pod.life.is_over:
            self._end_pod(uid, pod, roster, ordinal)
        elif slot.node != NOBODY and roster.stage is Stage.PLACED:
            self._letting.bind(roster, ordinal, pod)

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
        else:
            del self._seats[uid]
            slot.empty()
            self._spare(roster, ordinal)

    def _lose(self, uid: str, roster: Roster, ordinal: int) -> None:
        """A pod of a workload is gone, or as good as gone."""
        slot = roster.slots[ordinal]
        del self._seats[uid]
        slot.empty()
        self._give_back(roster)
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

    def _give_back(self, roster: Roster) -> None:
        """Let pods that are done and will not be made again give back what they held; the rest goes on."""
        if roster.stage is not Stage.PLACED or roster.job is None:
            return
        for pod_set, pods in roster.job.spares.items():
            for ordinal in roster.to_spare(pod_set, pods):
                self._spare(roster, ordinal)

    def _spare(self, roster: Roster, ordinal: int) -> None:
        roster.slots[ordinal].spare = True
        self._tidings.take_back(EventKind.POD_BOUND, roster.number, ordinal)
        self._tidings.about(EventKind.POD_DONE, roster.number, ordinal)

    def _settle_leaving(self, roster: Roster) -> None:
        """Once nobody of a workload that was told to go holds anything it waits again, unless pods of it are gone.

        A job makes its pods again; nobody makes others again.
        """
        if any(roster.holders()) or (roster.kind is Kind.JOB and not (roster.suspended or roster.is_gated)):
            return
        if roster.kind is not Kind.JOB and not all(slot.pod for slot in roster.slots):
            self._finish(roster)
        elif roster.comes_back:
            roster.comes_back = False
            self._start(roster)
        else:
            self._wait_again(roster)
            self._tidings.about(EventKind.POD_GONE, roster.number)

    def _wait_again(self, roster: Roster) -> None:
        roster.give_up_places()
        if roster.granted:
            filled = self._unseat(roster)
            roster.resize(roster.work)
            self._seat_again(filled)
        if roster.job is not None:
            self._follow_change(roster, roster.job)
        self._letting.undo(roster)

    # -- what was decided before us ----------------------------------------------------------------------------

    def resume(self, notes: Callable[[str], Note | None], before: Before) -> None:
        """Take up what a leader before us decided, as far as it left notes: by uid of the job or pod."""
        for consumed in before.consumed:
            self._tidings.consumed(consumed)
        for roster in list(self._rosters.values()):
            if roster.suspended and self._letting.nodes_by.kind:
                roster.asked = Asked.PERHAPS
            uids = (roster.ref.uid, *(slot.pod for slot in roster.slots))
            note = next((note for note in map(notes, uids) if note is not None), None)
            waiting = before.waiting.get(roster.id, Standing())
            if note is not None:
                self._take_up(roster, note, waiting)
            elif waiting != Standing():
                self._tidings.standing(roster.number, waiting)

    def _take_up(self, roster: Roster, note: Note, waiting: Standing) -> None:
        standing, holds = note.standing, any(slot.bound for slot in roster.slots)
        if roster.suspended and not (standing.evicted and holds):  # it waits, whatever it held
            standing = replace(waiting, evictions=standing.evictions, requeue_at_ms=standing.requeue_at_ms)
        elif roster.suspended:
            roster.stage = Stage.LEAVING
        elif standing.evicted:  # it was to go, and was let go again
            standing = Standing(evictions=standing.evictions)
        else:
            self._take_grants(roster, standing)
            if not all(slot.bound for slot in roster.slots):
                self._take_places(roster, note.node_names())
        self._tidings.standing(roster.number, standing)

    def _take_grants(self, roster: Roster, standing: Standing) -> None:
        """It may have started with fewer pods than it asks for."""
        if len(roster.slots) == 1:
            return
        asked = {pods.name: (ordinal, pods.count) for ordinal, pods in enumerate(roster.work.pod_sets)}
        fewer = [
            (asked[grant.pod_set][0], grant.count)
            for grant in standing.grants
            if grant.count < asked.get(grant.pod_set, (0, 0))[1]
        ]
        if fewer:
            filled = self._unseat(roster)
            for ordinal, count in fewer:
                roster.grant(ordinal, count)
            self._seat_again(filled)

    def _take_places(self, roster: Roster, names: list[str]) -> None:
        """Pods that are not bound yet have the nodes that were decided; who of a set gets which makes no difference."""
        if len(names) != len(roster.slots):
            return
        for name, _ in roster.sizes():
            ordinals = roster.ordinals(name)
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
            if kind == DecisionKind.ADMIT and code == Reason.ADMITTED_PARTLY:
                roster.grant(ordinal, evidence[2])
            elif kind == DecisionKind.PLACE and ordinal < len(roster.slots):
                if number not in placed:
                    self._tidings.take_back(EventKind.POD_GONE, number)  # it was sent away and placed in one step
                roster.slots[ordinal].node, roster.slots[ordinal].decision = node, decision
                placed[number] = roster
            elif kind in _AWAY:
                placed.pop(number, None)
                self._send_away(roster, decision, gently=kind == DecisionKind.PREEMPT)
            elif kind in _SAID:
                self._voice.hold(number, roster.work, code, tuple(evidence))
        for roster in placed.values():
            if roster.stage is Stage.LEAVING:
                roster.comes_back = True
            else:
                self._start(roster)

    def _start(self, roster: Roster) -> None:
        roster.stage = Stage.PLACED
        self._voice.forget(roster.number)
        self._letting.start(roster)

    def _send_away(self, roster: Roster, decision: int, *, gently: bool) -> None:
        roster.stage, roster.comes_back, roster.starts_after = Stage.LEAVING, False, False
        self._letting.stop(roster, decision, gently=gently)
        self._settle_leaving(roster)


def _fills(roster: Roster, order: Order) -> bool:
    """Whether the pod that an order is about still fills its slot."""
    return order.slot < len(roster.slots) and roster.slots[order.slot].pod == order.write.key
