"""What must hold all the time, whatever operators do: checked on each change, and a while after it.

Quota is never exceeded when work starts; no pod is placed on a node that takes none; gangs run whole; every pod that is
lost and every change of a work has an explanation: its owner, an operator, or an Event of Tidegate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gameday.load import has_condition
from gameday.policies import excess
from gameday.records import Deed, PodRecord, Records, WorkRecord, written_by_tidegate
from gameday.watching import Change

#: How long a write that was under way may arrive after its node was closed, or the policy changed.
IN_FLIGHT_S = 5.0
#: How long a policy may take to be in force: it is watched, read in a thread of its own, and taken at the next step.
POLICY_S = 15.0
#: How long a gang may be in parts, and a pod may be sent to a node that takes none.
GANG_S, STUCK_S = 30.0, 40.0
#: How long a disruption budget lasts: so long pods may not be evicted.
BUDGET_S = 60.0
#: How long more pods may run than were admitted, until a job's controller has made it smaller.
GROWN_S = 10.0
#: How long an Event may come after what it explains: they are limited to 20 a second.
EVENT_S = 60.0
#: How long after a change the Event of it may still be unwritten, so that it is lost with a leader that is killed.
_UNWRITTEN_S = 3.0

#: What is noted when a node is as it was: it explains nothing.
BACK = "node is back"

STARTED = frozenset(("Admitted", "Resumed", "Rescheduled", "QuotaReserved"))
STOPPED = frozenset(("Preempted", "Evicted"))
WAITING = frozenset(("Requeued", "Resumed"))

#: Nodes in the text of an Event.
_NODE = re.compile(r"\bn\d+\b")


class Violation(NamedTuple):
    """Something that must not be."""

    at_s: float  # since the day began
    rule: str
    object: str
    what: str


class _Expected(NamedTuple):
    """An Event that must come about one of these objects."""

    since_s: float
    due_s: float
    uids: tuple[str, ...]
    reasons: frozenset[str]
    object: str
    what: str
    causes: frozenset[str] = frozenset()  # an eviction for another reason than preemption follows a deed about these


class _Death(NamedTuple):
    """A pod that was lost, to be explained once Events have had their time."""

    at_s: float
    due_s: float
    pod: PodRecord


class Rules:
    """Checks changes, in their order."""

    def __init__(
        self, records: Records, deleters: Callable[[], Mapping[str, str]] = dict, event_s: float = EVENT_S
    ) -> None:
        self.records, self._deleters, self._event_s = records, deleters, event_s
        self.violations: list[Violation] = []
        self.deaths: Counter[str] = Counter()
        self.losses: list[tuple[float, str, str]] = []  # when, which pod, why
        self.waits: dict[str, list[float]] = {}
        self.most_late_s = 0.0  # of bindings to a node that had just been closed
        self._expected: list[_Expected] = []
        self._dead: list[_Death] = []
        self._halves: dict[str, float] = {}
        self._grown: dict[str, float] = {}
        self._told: set[tuple[str, str]] = set()

    def see(self, change: Change) -> None:
        """Check one change."""
        kind = change.kind
        if kind == "nodes":
            self.records.see_node(change)
        elif kind == "configmaps":
            self.records.see_policy(change)
        elif kind == "events":
            self.records.see_event(change)
        elif kind == "pods":
            self._see_pod(change)
        else:
            self._see_work(change)

    def complain(self, at_s: float, rule: str, about: str, what: str) -> None:
        """Something does not hold; each rule about each object once."""
        if (rule, about) not in self._told:
            self._told.add((rule, about))
            self.violations.append(Violation(round(at_s - self.records.began_s, 1), rule, about, what))

    # -- work --------------------------------------------------------------------------------------------------

    def _see_work(self, change: Change) -> None:
        name = change.thing["metadata"].get("labels", {}).get("gameday/work", "")
        known = self.records.works.get(name)
        was = known is not None and bool(known.uid)
        suspended, size = (known.suspended, known.size) if known is not None else (True, 0)
        work = self.records.see_work(change)
        if work is None or change.gone or "suspend" not in change.thing["spec"]:
            return
        work.suspended = bool(change.thing["spec"]["suspend"])
        work.over = has_condition(change.thing, "Complete", "Completed", "Failed")
        self._follow_queue(work, change)
        ours = written_by_tidegate(change.thing, "spec", "suspend")
        if suspended and not work.suspended:
            self._see_started(work, change.at_s, ours=ours)
        elif was and work.suspended and not suspended:
            self._see_stopped(work, change.at_s, ours=ours)
        elif was and not work.suspended and work.size < size:
            if written_by_tidegate(change.thing, "spec", "parallelism"):
                self._expect(change.at_s, (work.uid,), frozenset(("Trimmed",)), name, "its size was set back")
            else:
                work.admitted = min(work.admitted, work.size)
        if has_condition(change.thing, "Failed") and not any(self.records.deeds_about(_about(work), 0, change.at_s)):
            self.complain(change.at_s, "work is lost", name, "it failed, and nobody did anything to it")

    def _follow_queue(self, work: WorkRecord, change: Change) -> None:
        queue = change.thing["metadata"]["labels"].get("kueue.x-k8s.io/queue-name", "")
        if queue != work.queue:
            work.queue, work.moved = queue, bool(work.held()) or not work.suspended

    def _see_started(self, work: WorkRecord, at_s: float, *, ours: bool) -> None:
        if not ours:
            if not any(self.records.deeds_about(_about(work), at_s - 30, at_s + 1)):
                self.complain(at_s, "change without an actor", work.name, "it was resumed by nobody that we know")
            work.bypassed = True
            return
        work.bypassed = work.moved = work.released = False
        work.admitted, work.admitted_s = work.size, at_s
        self._count_wait(work, at_s)
        self._expect(at_s, (work.uid,), STARTED, work.name, "it was resumed")

    def _see_stopped(self, work: WorkRecord, at_s: float, *, ours: bool) -> None:
        work.bypassed, work.released = False, not ours
        if ours:
            nodes = {f"node/{pod.node}" for pod in work.pods.values() if pod.node}
            causes = _about(work) | {f"queue/{work.queue}", *nodes}
            self._expect(at_s, (work.uid,), STOPPED, work.name, "it was suspended", causes)
            self._expect(at_s, (work.uid,), WAITING, work.name, "its pods left")
        elif not any(self.records.deeds_about(_about(work), at_s - 30, at_s + 1)):
            self.complain(at_s, "change without an actor", work.name, "it was suspended by nobody that we know")

    def _count_wait(self, work: WorkRecord, at_s: float) -> None:
        if not work.first_s:
            work.first_s = at_s
            self.waits.setdefault(work.kind.name, []).append(at_s - work.made_s)

    # -- pods --------------------------------------------------------------------------------------------------

    def _see_pod(self, change: Change) -> None:
        uid = change.thing["metadata"]["uid"]
        before = self.records.pods.get(uid)
        was = (before.node, before.freed_s, before.over) if before is not None else ("", 0.0, False)
        used = self.records.used() if change.thing["spec"].get("nodeName") and not was[0] else {}
        pod = self.records.see_pod(change)
        if pod is None:
            return
        work = self.records.works[pod.work]
        if pod.freed_s and not was[1]:
            self._see_let_go(work, pod, pod.freed_s)
        if pod.node and not was[0] and not pod.over:
            self._see_bound(work, pod, change.at_s)
            self._check_quota(work, pod, change.at_s, used)
        if pod.over and not was[2] and pod.node and pod.phase != "Succeeded":
            self._dead.append(_Death(change.at_s, change.at_s + self._event_s, pod))

    def _see_let_go(self, work: WorkRecord, pod: PodRecord, at_s: float) -> None:
        """Its gate was lifted: by us, as nobody else does. Pods of a Deployment are admitted one by one."""
        alone = work.kind.name in ("deployment", "pod")
        since_s = at_s if alone else min(at_s, work.admitted_s or at_s)
        self._expect(since_s, _uids(work, pod), STARTED, pod.name, "its gate was lifted")
        if not work.uid or work.kind.name == "deployment":
            work.admitted_s = at_s
            self._count_wait(work, at_s)

    def _see_bound(self, work: WorkRecord, pod: PodRecord, at_s: float) -> None:
        node = self.records.nodes.get(pod.node)
        if node is None:
            self.complain(at_s, "pod on an unusable node", pod.name, f"{pod.node} was never seen")
        elif not node.usable:
            late_s = at_s - node.since_s
            self.most_late_s = max(self.most_late_s, late_s)
            if late_s > IN_FLIGHT_S:
                self.complain(
                    at_s, "pod on an unusable node", pod.name, f"bound to {pod.node} {late_s:.1f} s after it closed"
                )
        if not work.uid or work.kind.name == "deployment":
            if not pod.freed_s:
                self._expect(at_s, _uids(work, pod), STARTED, pod.name, "it was bound")
                work.admitted_s = at_s
            self._count_wait(work, at_s)

    def _check_quota(self, work: WorkRecord, pod: PodRecord, at_s: float, before: Mapping[str, int]) -> None:
        """A pod that is bound takes nothing beyond a policy that was in force since its work was let go."""
        used = self.records.used()
        since_s = min(work.admitted_s or at_s, at_s) - POLICY_S
        found = [excess(limits, used, before) for limits in self.records.limits_since(since_s)]
        if all(found):
            self.complain(at_s, "quota exceeded", work.name, f"{found[-1]}, as {pod.name} is bound")

    # -- later -------------------------------------------------------------------------------------------------

    def check_time(self, now_s: float) -> None:
        """Check what may last for a while only, and what was to come."""
        for work in self.records.works.values():
            self._check_gang(work, now_s)
            self._check_growth(work, now_s)
        for pod in self.records.pods.values():
            self._check_stuck(pod, now_s)
        due = [one for one in self._expected if one.due_s <= now_s]
        self._expected = [one for one in self._expected if one.due_s > now_s]
        for expected in due:
            self._check_told(expected)
        dead = [one for one in self._dead if one.due_s <= now_s]
        self._dead = [one for one in self._dead if one.due_s > now_s]
        by = self._deleters() if dead else {}
        for death in dead:
            self._explain(death, by.get(death.pod.name, ""))

    def _check_told(self, expected: _Expected) -> None:
        told = self.records.told_about(expected.uids, expected.reasons, expected.since_s)
        at_s, work = expected.due_s - self._event_s, self.records.works.get(expected.object)
        if told is None and expected.reasons == WAITING and work is not None and (work.gone or work.over):
            return  # it came to its end as it was stopped
        if told is None and any(at_s - 1 <= kill_s <= at_s + _UNWRITTEN_S for kill_s in self.records.kills):
            return
        if told is None:
            reasons = ", ".join(sorted(expected.reasons))
            self.complain(at_s, "change without an Event", expected.object, f"{expected.what}: no Event {reasons}")
        elif told.reason == "Evicted" and expected.causes:
            causes = expected.causes | {f"node/{name}" for name in _NODE.findall(told.note)}
            deeds = self.records.deeds_about(causes, at_s - 180, at_s + 1)
            if all(deed.action == BACK for deed in deeds):
                self.complain(at_s, "evicted without a cause", expected.object, told.note)

    def _check_gang(self, work: WorkRecord, now_s: float) -> None:
        if not work.kind.gang or work.gone:
            self._halves.pop(work.name, None)
            return
        size = work.size
        nodes = self.records.nodes  # a pod of a node that is gone runs nowhere, and stays until it is collected
        pods = [pod for pod in work.pods.values() if pod.node not in nodes or nodes[pod.node].there]
        whole = sum(pod.holds or pod.phase == "Succeeded" for pod in pods)
        if not 0 < whole < size or not any(pod.holds for pod in pods):
            self._halves.pop(work.name, None)
            return
        since_s = self._halves.setdefault(work.name, now_s)
        kept = any(self.records.deeds_about(frozenset((f"budget/{work.name}",)), since_s - BUDGET_S, now_s))
        if now_s - since_s > GANG_S + kept * BUDGET_S:  # its other pods may be evicted once their budget is gone
            self.complain(since_s, "gang in parts", work.name, f"{whole} of {size} pods have nodes, for {GANG_S:.0f} s")

    def _check_growth(self, work: WorkRecord, now_s: float) -> None:
        if work.kind.name == "deployment" or not work.admitted or work.bypassed:
            self._grown.pop(work.name, None)
            return
        staying = sum(pod.holds and not pod.leaving_s for pod in work.pods.values())
        if staying <= work.admitted:
            self._grown.pop(work.name, None)
        elif now_s - self._grown.setdefault(work.name, now_s) > GROWN_S:
            self.complain(now_s, "work has grown", work.name, f"{staying} pods run, admitted were {work.admitted}")

    def _check_stuck(self, pod: PodRecord, now_s: float) -> None:
        node = self.records.nodes.get(pod.host)
        if pod.node or pod.over or pod.leaving_s or pod.gated or node is None or node.usable:
            return
        since_s = max(node.since_s, pod.freed_s)
        if now_s - since_s > STUCK_S:
            self.complain(since_s, "pod sent to an unusable node", pod.name, f"it waits for {pod.host}")

    def _explain(self, death: _Death, by: str) -> None:
        """Say why a pod was lost. What Tidegate evicts has an Event, whatever else happened to it."""
        pod, at_s = death.pod, death.at_s
        work = self.records.works[pod.work]
        about = frozenset((f"pod/{pod.uid}", f"node/{pod.node}", f"work/{pod.work}"))
        begun_s = pod.leaving_s or at_s
        told = self.records.told_about(_uids(work, pod), STOPPED, begun_s - self._event_s)
        deeds = self.records.deeds_about(about, begun_s - 180, at_s + 2)
        deed = next((one for one in deeds if one.action != BACK), None)
        if told is not None:
            why = f"{told.reason}: {_gist(told.note)}"
        elif deed is not None and by != "tidegate":
            why = f"operator: {deed.action}"
        elif by == "kube-controller-manager" and not work.suspended:
            why = "its controller, by itself"
        else:
            why = "nobody knows"
            self.complain(
                at_s, "pod lost without explanation", pod.name, f"on {pod.node}, {pod.phase}, deleted by {by}"
            )
        self.deaths[why] += 1
        self.losses.append((at_s, pod.name, why))

    def _expect(
        self,
        at_s: float,
        uids: tuple[str, ...],
        reasons: frozenset[str],
        about: str,
        what: str,
        causes: frozenset[str] = frozenset(),
    ) -> None:
        self._expected.append(
            _Expected(at_s - self._event_s / 2, at_s + self._event_s, uids, reasons, about, what, causes)
        )

    @property
    def pending(self) -> bool:
        """Whether something is still to be explained."""
        return bool(self._expected or self._dead)


def _about(work: WorkRecord) -> frozenset[str]:
    return frozenset((f"work/{work.name}", *(f"pod/{uid}" for uid in work.pods)))


def _uids(work: WorkRecord, pod: PodRecord) -> tuple[str, ...]:
    """The objects whose Events may explain what happens to a pod."""
    if work.kind.name == "group":
        return tuple(work.pods)
    return (pod.uid, work.uid) if work.uid and work.kind.name != "deployment" else (pod.uid,)


def _gist(note: str) -> str:
    """An Event in short, without names and numbers."""
    first = note.partition(". ")[0]
    head, _, why = first.rpartition(": ")
    return why if head else first


__all__ = ["Deed", "Rules", "Violation"]
