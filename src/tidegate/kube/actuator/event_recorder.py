"""Rate-limited Events and pod conditions; the latest of each reason and object wins.

What lasts is repeated before the server forgets it (Events live for an hour); what happens once is recorded once.
No decision depends on either. Conditions come first, as autoscalers read them, then Events, then minor Events.
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

#: The rate limit of Events a second: they are for people, and the server keeps each for an hour.
_EVENTS_PER_S = 20

#: Most Events about pending work in the queue; more are retried after minutes.
_MOST_EVENTS = 1_000

#: Most minor Events in the queue; more are dropped.
_MOST_MINOR = 1_000

#: Workloads whose reasons become texts at a time: more would be written later anyway.
_MOST_HOLDS = 256

#: What lasts is repeated after this time, before the server forgets it.
REPEAT_MS = 45 * 60_000

#: The default scale-up delay: how long pods wait before nodes are requested for them.
SCALE_UP_DELAY_MS = 120_000

#: The same reason with another message is repeated after this time.
_CHANGED_MS = 5 * 60_000


class EventTarget(NamedTuple):
    """The object of an Event; pods that Tidegate binds or gates have a condition, too."""

    ref: Ref
    has_condition: bool
    gated: bool = False  # a pod with a scheduling gate of ours: the condition keeps the API server's reason

    def text(self, text: EventText) -> EventText:
        """The text for this object: pods that Tidegate binds have kube-scheduler's reason for waiting."""
        if self.gated:
            return text._replace(condition=GATED)
        return text._replace(reason=FAILED_SCHEDULING) if self.has_condition and text.reason == PENDING else text


class EventSubjects(Protocol):
    """Finds the objects of Events."""

    def targets(self, number: int) -> Iterable[EventTarget]:
        """The objects of a pending workload."""

    def lasts(self, uid: str) -> bool:
        """Whether the fault of an object lasts."""


class _Reported(NamedTuple):
    """What was recorded for one pending object: there may be many, so texts are kept as hashes."""

    code: int
    message: int
    at_ms: int
    condition: int


_NOTHING_SAID = _Reported(code=-1, message=0, at_ms=0, condition=0)


@dataclass(slots=True)
class _Hold:
    """Why a workload is pending."""

    code: int
    evidence: tuple[int, ...]
    work: Work
    since_ms: int = -1  # that it is pending; -1: not taken yet
    said: dict[str, _Reported] = field(default_factory=dict)  # by uid
    repeats: bool = False  # it is scheduled for a repeat


@dataclass(slots=True)
class _Fault:
    """A fault of an object."""

    target: EventTarget
    text: EventText
    due_ms: int = -1  # when it is repeated; -1: not scheduled yet


class EventRecorder:
    """Queues Events and conditions, and limits their rate."""

    def __init__(self, scale_up_delay_ms: int) -> None:
        self._scale_up_delay_ms = scale_up_delay_ms  # how long pods wait before nodes are requested
        self.names = QuotaNames()  # of the quota in messages
        self.now_ms = 0  # when something was last taken
        self._holds: dict[int, _Hold] = {}  # by number of the workload
        self._unreported: dict[int, None] = {}
        self._new_holds: list[int] = []  # numbers, since something was last taken
        self._heads: dict[Work, int] = {}  # why the first of those with equal requests waits
        self._aging: deque[tuple[int, int]] = deque()  # since when, and number: may need nodes later
        self._lasting: list[int] = []  # that need nodes since the last call
        self._faults: dict[str, _Fault] = {}  # by uid
        self._fresh: list[tuple[str, int]] = []  # their uids, and in how many ms to record them
        self._due: list[tuple[int, str, int]] = []  # heap: when; uid of an object, or number of a workload
        self._conditions: dict[str, tuple[EventTarget, EventText]] = {}  # by uid
        self._events: dict[tuple[str, str], tuple[EventTarget, EventText]] = {}  # by uid and reason
        self._minor: dict[tuple[str, str], tuple[EventTarget, EventText]] = {}
        self._written: deque[int] = deque()  # when the latest Events were written

    # -- records -------------------------------------------------------------------------------------------

    def hold(self, number: int, work: Work, code: int, evidence: tuple[int, ...]) -> None:
        """Record why a workload is pending."""
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
        """A pending workload has one more pod."""
        if number in self._holds:
            self._unreported[number] = None

    def forget(self, number: int) -> None:
        """A workload is not pending any more."""
        self._holds.pop(number, None)
        self._unreported.pop(number, None)

    def record(self, target: EventTarget, text: EventText, *, minor: bool = False) -> None:
        """Record an Event once; `minor`: it may be dropped."""
        if not minor:
            self._events[target.ref.uid, text.reason] = (target, text)
        elif len(self._minor) < _MOST_MINOR:
            self._minor[target.ref.uid, text.reason] = (target, text)

    def warn(self, target: EventTarget, text: EventText, after_ms: int = 0) -> None:
        """Record a fault of an object and repeat it while it lasts; `after_ms`: only if it lasts so long."""
        known = self._faults.get(target.ref.uid)
        if known is None or known.text != text:
            self._faults[target.ref.uid] = _Fault(target, text)
            self._fresh.append((target.ref.uid, after_ms))

    # -- writes -----------------------------------------------------------------------------------------------

    def take(self, most: int, now_ms: int, subjects: EventSubjects) -> Iterator[Write]:
        """The next writes, at most so many: no decision depends on them."""
        self.now_ms = now_ms
        self._notice_time(now_ms)
        if most <= 0:
            return
        self._repeat_due(now_ms, subjects)
        room = _MOST_HOLDS if len(self._conditions) < _MOST_HOLDS else 0
        for number in list(islice(self._unreported, room)):
            self._record_hold(number, now_ms, subjects)
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

    def _record_hold(self, number: int, now_ms: int, subjects: EventSubjects) -> None:
        """Record why a workload is pending, for each of its objects that does not show it."""
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
            if _is_due(known, hold.code, hash(text.message), now_ms):
                if len(self._events) < _MOST_EVENTS:
                    self._events[uid, text.reason] = (target, text)
                    known = _Reported(hold.code, hash(text.message), now_ms, shown)
                else:
                    left_out = True
            hold.said[uid] = known
        if not hold.repeats:
            hold.repeats = True
            heapq.heappush(self._due, (now_ms + (_CHANGED_MS if left_out else REPEAT_MS), "", number))

    def _repeat_due(self, now_ms: int, subjects: EventSubjects) -> None:
        """Record new faults, and repeat those that are due."""
        for uid, after_ms in self._fresh:
            self._schedule_repeat(uid, now_ms + after_ms)
        self._fresh = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, uid, number = heapq.heappop(self._due)
            if uid in self._faults and self._faults[uid].due_ms == due_ms:
                self._record_fault(uid, now_ms, subjects)
            elif number in self._holds:
                self._holds[number].repeats = False
                self._unreported[number] = None

    def _record_fault(self, uid: str, now_ms: int, subjects: EventSubjects) -> None:
        if not subjects.lasts(uid):
            del self._faults[uid]
            return
        target, text = self._faults[uid].target, self._faults[uid].text
        said = target.text(text)
        if target.has_condition:
            self._conditions[uid] = (target, said)
        self._events[uid, said.reason] = (target, said)
        self._schedule_repeat(uid, now_ms + REPEAT_MS)

    def _schedule_repeat(self, uid: str, due_ms: int) -> None:
        if uid in self._faults:
            self._faults[uid].due_ms = due_ms
            heapq.heappush(self._due, (due_ms, uid, -1))

    def _may_write(self, now_ms: int) -> bool:
        while self._written and now_ms - self._written[0] >= 1000:
            self._written.popleft()
        if len(self._written) >= _EVENTS_PER_S:
            return False
        self._written.append(now_ms)
        return True

    # -- the scale-up delay ------------------------------------------------------------------------------------

    def _deserves(self, hold: _Hold, now_ms: int) -> bool:
        """Whether a workload needs nodes by now, or the one with equal requests that it waits behind."""
        code = self._heads.get(hold.work, hold.code) if hold.code == Reason.BEHIND_EQUAL else hold.code
        return deserves_nodes(code) and 0 <= hold.since_ms <= now_ms - self._scale_up_delay_ms

    def _notice_time(self, now_ms: int) -> None:
        """Note since when workloads are pending, and which have waited for the scale-up delay."""
        for number in self._new_holds:
            if number in self._holds:
                self._holds[number].since_ms = now_ms
                self._aging.append((now_ms, number))
        self._new_holds = []
        while self._aging and now_ms - self._aging[0][0] >= self._scale_up_delay_ms:
            since_ms, number = self._aging.popleft()
            known = self._holds.get(number)
            if known is not None and known.since_ms == since_ms and self._deserves(known, now_ms):
                self._unreported[number] = None
                self._lasting.append(number)

    def take_lasting(self) -> list[int]:
        """Workloads that need nodes since the last call."""
        lasting, self._lasting = self._lasting, []
        return [number for number in lasting if number in self._holds]


def _is_due(said: _Reported, code: int, message: int, now_ms: int) -> bool:
    """Whether an Event is due: there is none, none of this reason, or an old one."""
    if said.code != code:
        return True
    age_ms = now_ms - said.at_ms
    return age_ms >= REPEAT_MS or (age_ms >= _CHANGED_MS and said.message != message)
