"""Rate-limited Events and pod conditions; the latest of each reason and object wins.

What lasts is said again before the server forgets it (Events live for an hour). What only happens is said once.
Nothing that is decided depends on any of it: conditions come first, as autoscalers read them, then Events, then those
that can be left out.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

from tidegate.journal.quota_names import QuotaNames
from tidegate.kube.actuator.event_text import (
    FAILED_SCHEDULING,
    GATED,
    PENDING,
    EventText,
    condition,
    deserves_nodes,
    event,
    pending_text,
)
from tidegate.kube.transport.writes import Ref, Write
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Work

#: Events in a second: they are for people, and the server keeps each for an hour.
_EVENTS_PER_S = 20

#: Events about work that waits that may wait themselves; beyond that they are tried again after minutes.
_MOST_EVENTS = 1_000

#: Events that can be left out, and are left out where more than so many wait.
_MOST_MINOR = 1_000

#: Workloads whose reasons are put into words at a time: more would be written later anyway.
_MOST_HOLDS = 256

#: What lasts is said again after this time, before the server forgets it.
REPEAT_MS = 45 * 60_000

#: How long demand lasts that deserves nodes, where nobody says how long they take to come.
SCALE_UP_DELAY_MS = 120_000

#: The same reason with other numbers is said again after this time.
_CHANGED_MS = 5 * 60_000


class EventTarget(NamedTuple):
    """An object that something is said of; pods that we schedule or hold have a condition for it too."""

    ref: Ref
    has_condition: bool
    gated: bool = False  # a pod with a scheduling gate of ours: the condition keeps the API server's reason

    def text(self, text: EventText) -> EventText:
        """What is said of this object: pods that we schedule have kube-scheduler's word for why they wait."""
        if self.gated:
            return text._replace(condition=GATED)
        return text._replace(reason=FAILED_SCHEDULING) if self.has_condition and text.reason == PENDING else text


class EventSubjects(Protocol):
    """Who knows the objects that something is said of."""

    def targets(self, number: int) -> Iterable[EventTarget]:
        """The objects of a workload that waits."""

    def lasts(self, uid: str) -> bool:
        """Whether what is wrong with an object still is."""


class _Said(NamedTuple):
    """What was said of one object that waits: there may be a hundred thousand, so texts are kept as hashes."""

    code: int
    message: int
    at_ms: int
    condition: int


_NOTHING_SAID = _Said(code=-1, message=0, at_ms=0, condition=0)


@dataclass(slots=True)
class _Hold:
    """Why a workload waits."""

    code: int
    evidence: tuple[int, ...]
    work: Work
    since_ms: int = -1  # that it waits; -1: it was not asked for yet
    said: dict[str, _Said] = field(default_factory=dict)  # by uid
    repeats: bool = False  # it is on the list of what is said again


@dataclass(slots=True)
class _Fault:
    """What is wrong with an object."""

    target: EventTarget
    text: EventText
    due_ms: int = -1  # when it is said next; -1: it is not on the list yet


class EventRecorder:
    """Remembers what is to be said."""

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms  # how long demand lasts that deserves nodes
        self.names = QuotaNames()  # of the quota that reasons speak of
        self.now_ms = 0  # when something was last taken
        self._holds: dict[int, _Hold] = {}  # by number of the workload
        self._unreported: dict[int, None] = {}
        self._new_holds: list[int] = []  # numbers, since something was last taken
        self._heads: dict[Work, int] = {}  # why the first of those that ask the same waits
        self._aging: deque[tuple[int, int]] = deque()  # since when, and number: who may come to deserve nodes
        self._lasting: list[int] = []  # whose demand came to deserve nodes since the last time
        self._faults: dict[str, _Fault] = {}  # by uid
        self._fresh: list[tuple[str, int]] = []  # uids of those, and in how many ms to say it
        self._again: list[tuple[int, str, int]] = []  # heap: when; uid of an object, or number of a workload
        self._conditions: dict[str, tuple[EventTarget, EventText]] = {}  # by uid
        self._events: dict[tuple[str, str], tuple[EventTarget, EventText]] = {}  # by uid and reason
        self._minor: dict[tuple[str, str], tuple[EventTarget, EventText]] = {}
        self._written: deque[int] = deque()  # when the latest events were written

    # -- what is to be said ------------------------------------------------------------------------------------

    def hold(self, number: int, work: Work, code: int, evidence: tuple[int, ...]) -> None:
        """A workload waits for this reason."""
        known = self._holds.get(number)
        if known is None:
            self._holds[number] = _Hold(code, evidence, work)
            self._new_holds.append(number)
        else:
            known.code, known.evidence, known.work = code, evidence, work
        self._unreported[number] = None
        if code != Reason.BEHIND_EQUAL:
            self._heads[work] = code

    def touch(self, number: int) -> None:
        """A workload that waits has one more pod to say it with."""
        if number in self._holds:
            self._unreported[number] = None

    def forget(self, number: int) -> None:
        """A workload does not wait any more."""
        self._holds.pop(number, None)
        self._unreported.pop(number, None)

    def tell(self, target: EventTarget, text: EventText, *, minor: bool = False) -> None:
        """Say once what happened to an object; `minor`: it may be left out."""
        if not minor:
            self._events[target.ref.uid, text.reason] = (target, text)
        elif len(self._minor) < _MOST_MINOR:
            self._minor[target.ref.uid, text.reason] = (target, text)

    def warn(self, target: EventTarget, text: EventText, after_ms: int = 0) -> None:
        """Say what is wrong with an object, and again while that lasts; `after_ms`: only if it lasts so long."""
        known = self._faults.get(target.ref.uid)
        if known is None or known.text != text:
            self._faults[target.ref.uid] = _Fault(target, text)
            self._fresh.append((target.ref.uid, after_ms))

    # -- what is written ---------------------------------------------------------------------------------------

    def take(self, most: int, now_ms: int, subjects: EventSubjects) -> Iterator[Write]:
        """What is to be written now: so much at a time, as nothing depends on it."""
        self.now_ms = now_ms
        self._notice_time(now_ms)
        if most <= 0:
            return
        self._say_again(now_ms, subjects)
        room = _MOST_HOLDS if len(self._conditions) < _MOST_HOLDS else 0
        for number in list(islice(self._unreported, room)):
            self._say_hold(number, now_ms, subjects)
        for uid in list(self._conditions)[:most]:
            target, text = self._conditions.pop(uid)
            yield condition(target.ref, text)
            most -= 1
        for waiting in (self._events, self._minor):
            for key in list(waiting)[:most]:
                if not self._may_write(now_ms):
                    return
                target, text = waiting.pop(key)
                yield event(target.ref, text, now_ms)
                most -= 1

    def _say_hold(self, number: int, now_ms: int, subjects: EventSubjects) -> None:
        """Say why a workload waits, to each of its objects that does not know."""
        hold = self._holds[number]
        del self._unreported[number]
        said = pending_text(hold.work, hold.code, hold.evidence, self.names, deserves=self._deserves(hold, now_ms))
        left_out = False
        for target in subjects.targets(number):
            text, uid = target.text(said), target.ref.uid
            known = hold.said.get(uid, _NOTHING_SAID)
            shown = hash((text.condition_reason, text.message)) if target.has_condition else 0
            if known.condition != shown:
                self._conditions[uid] = (target, text)
            known = known._replace(condition=shown)
            if _is_news(known, hold.code, hash(text.message), now_ms):
                if len(self._events) < _MOST_EVENTS:
                    self._events[uid, text.reason] = (target, text)
                    known = _Said(hold.code, hash(text.message), now_ms, shown)
                else:
                    left_out = True
            hold.said[uid] = known
        if not hold.repeats:
            hold.repeats = True
            heapq.heappush(self._again, (now_ms + (_CHANGED_MS if left_out else REPEAT_MS), "", number))

    def _say_again(self, now_ms: int, subjects: EventSubjects) -> None:
        """Say what is wrong for the first time, and again what still is."""
        for uid, after_ms in self._fresh:
            self._say_later(uid, now_ms + after_ms)
        self._fresh = []
        while self._again and self._again[0][0] <= now_ms:
            due_ms, uid, number = heapq.heappop(self._again)
            if uid in self._faults and self._faults[uid].due_ms == due_ms:
                self._say_fault(uid, now_ms, subjects)
            elif number in self._holds:
                self._holds[number].repeats = False
                self._unreported[number] = None

    def _say_fault(self, uid: str, now_ms: int, subjects: EventSubjects) -> None:
        if not subjects.lasts(uid):
            del self._faults[uid]
            return
        target, text = self._faults[uid].target, self._faults[uid].text
        said = target.text(text)
        if target.has_condition:
            self._conditions[uid] = (target, said)
        self._events[uid, said.reason] = (target, said)
        self._say_later(uid, now_ms + REPEAT_MS)

    def _say_later(self, uid: str, due_ms: int) -> None:
        if uid in self._faults:
            self._faults[uid].due_ms = due_ms
            heapq.heappush(self._again, (due_ms, uid, -1))

    def _may_write(self, now_ms: int) -> bool:
        while self._written and now_ms - self._written[0] >= 1000:
            self._written.popleft()
        if len(self._written) >= _EVENTS_PER_S:
            return False
        self._written.append(now_ms)
        return True

    # -- demand that lasts -------------------------------------------------------------------------------------

    def _deserves(self, hold: _Hold, now_ms: int) -> bool:
        """Whether demand deserves nodes by now; who waits behind one that asks the same, if that one does."""
        code = self._heads.get(hold.work, hold.code) if hold.code == Reason.BEHIND_EQUAL else hold.code
        return deserves_nodes(code) and 0 <= hold.since_ms <= now_ms - self._patience_ms

    def _notice_time(self, now_ms: int) -> None:
        """Note since when workloads wait, and whose demand has lasted by now."""
        for number in self._new_holds:
            if number in self._holds:
                self._holds[number].since_ms = now_ms
                self._aging.append((now_ms, number))
        self._new_holds = []
        while self._aging and now_ms - self._aging[0][0] >= self._patience_ms:
            since_ms, number = self._aging.popleft()
            known = self._holds.get(number)
            if known is not None and known.since_ms == since_ms and self._deserves(known, now_ms):
                self._unreported[number] = None
                self._lasting.append(number)

    def take_lasting(self) -> list[int]:
        """Workloads whose demand has come to deserve nodes since the last time."""
        lasting, self._lasting = self._lasting, []
        return [number for number in lasting if number in self._holds]


def _is_news(said: _Said, code: int, message: int, now_ms: int) -> bool:
    """Whether an object should have an Event: it has none, none of this reason, or an old one."""
    if said.code != code:
        return True
    age_ms = now_ms - said.at_ms
    return age_ms >= REPEAT_MS or (age_ms >= _CHANGED_MS and said.message != message)
