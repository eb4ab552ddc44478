"""What is still to be said to people and autoscalers: the latest of each object, so much at a time, once.

Must not know: how work is followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.journal.lots import Names
from tidegate.kube.actuator.event_text import EventText, condition, deserves_nodes, event, held
from tidegate.kube.transport.writes import Ref, Write
from tidegate.model.reasons import Reason
from tidegate.model.work import Work

#: Events in a second: they are for people, and the server keeps each for an hour.
_EVENTS_PER_S = 20


class EventTarget(NamedTuple):
    """An object that something is said with: in its own condition as a pod that we schedule, or as an event."""

    ref: Ref
    has_condition: bool


@dataclass(slots=True)
class _Hold:
    """Why a workload waits."""

    code: int
    evidence: tuple[int, ...]
    work: Work
    since_ms: int = -1  # that it waits; -1: it was not asked for yet


class EventRecorder:
    """Remembers what is to be said."""

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms  # how long demand lasts that deserves nodes
        self.names = Names()  # of the quota that reasons speak of
        self._holds: dict[int, _Hold] = {}  # by number of the workload
        self._untold: dict[int, None] = {}
        self._heads: dict[Work, int] = {}  # why the first of those that ask the same waits
        self._aging: deque[tuple[int, int]] = deque()  # since when, and number: who may come to deserve nodes
        self._due: dict[str, tuple[EventTarget, EventText]] = {}  # by uid, the latest
        self._lasting: list[int] = []  # who has come to deserve nodes since somebody asked
        self._events: deque[int] = deque()  # when the latest events were said

    def hold(self, number: int, work: Work, code: int, evidence: tuple[int, ...]) -> None:
        """A workload waits for this reason."""
        known = self._holds.get(number)
        self._holds[number] = _Hold(code, evidence, work, -1 if known is None else known.since_ms)
        self._untold[number] = None
        if code != Reason.BEHIND_EQUAL:
            self._heads[work] = code

    def _deserves(self, hold: _Hold, now_ms: int) -> bool:
        """Whether demand deserves nodes by now; who waits behind one that asks the same, if that one does."""
        code = self._heads.get(hold.work, hold.code) if hold.code == Reason.BEHIND_EQUAL else hold.code
        return deserves_nodes(code) and 0 <= hold.since_ms <= now_ms - self._patience_ms

    def forget(self, number: int) -> None:
        """A workload does not wait any more."""
        self._holds.pop(number, None)
        self._untold.pop(number, None)

    def say(self, listener: EventTarget, saying: EventText) -> None:
        """Say something of an object."""
        self._due[listener.ref.uid] = (listener, saying)

    def take(self, most: int, now_ms: int, listeners: Callable[[int], Iterator[EventTarget]]) -> Iterator[Write]:
        """What is to be written now: so much at a time, as nothing depends on it."""
        self._notice_time(now_ms)
        for number in list(self._untold) if most > 0 else ():
            hold = self._holds[number]
            said = held(hold.code, hold.evidence, self.names, deserves=self._deserves(hold, now_ms))
            del self._untold[number]
            for listener in listeners(number):
                self._due[listener.ref.uid] = (listener, said)
        for uid in list(self._due):
            if most <= 0:
                return
            listener, saying = self._due[uid]
            if listener.has_condition:
                yield condition(listener.ref, saying)
            elif self._may_speak(now_ms):
                yield event(listener.ref, saying, now_ms)
            else:
                continue
            del self._due[uid]
            most -= 1

    def _notice_time(self, now_ms: int) -> None:
        """Note since when workloads wait, and whose demand has lasted by now."""
        for number in self._untold:
            hold = self._holds[number]
            if hold.since_ms < 0:
                hold.since_ms = now_ms
                self._aging.append((now_ms, number))
        while self._aging and now_ms - self._aging[0][0] >= self._patience_ms:
            since_ms, number = self._aging.popleft()
            known = self._holds.get(number)
            if known is not None and known.since_ms == since_ms and self._deserves(known, now_ms):
                self._untold[number] = None
                self._lasting.append(number)

    def _may_speak(self, now_ms: int) -> bool:
        while self._events and now_ms - self._events[0] >= 1000:
            self._events.popleft()
        if len(self._events) >= _EVENTS_PER_S:
            return False
        self._events.append(now_ms)
        return True

    def take_lasting(self) -> list[int]:
        """Workloads whose demand has come to deserve nodes since the last time."""
        lasting, self._lasting = self._lasting, []
        return [number for number in lasting if number in self._holds]
