"""A cluster as a world: facts from lists and watches, decisions as writes.

Must not know: how anything is decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tidegate.journal.lots import names_of
from tidegate.kube.access import Access
from tidegate.kube.following import Pace
from tidegate.kube.inbox import News
from tidegate.kube.jobs import JobObject, SeenJob, see_job
from tidegate.kube.ledger import Before, Ledger, Reach
from tidegate.kube.link import Carried, Link, Topic
from tidegate.kube.nodes import NodeObject, read_node_object
from tidegate.kube.notes import annotated, read_note
from tidegate.kube.objects import Meta
from tidegate.kube.orders import Order, Purpose
from tidegate.kube.pauses import Draw
from tidegate.kube.pods import PodObject, SeenPod, see_pod
from tidegate.kube.pool import Limits
from tidegate.kube.resources import JOBS, NODES, PODS
from tidegate.kube.shapes import Shapes
from tidegate.kube.writes import Write
from tidegate.manifests.surroundings import NOTHING_AROUND
from tidegate.manifests.words import STANDING
from tidegate.model.decisions import NOBODY, DecisionBatch
from tidegate.model.facts import EMPTY_EVENTS, EventBatch, Outcome
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy

_NODES, _JOBS, _PODS = range(3)

#: Writes that may wait or be in flight when one that nothing depends on is added.
_SAID_AT_ONCE = 64

#: How long a poll waits when there is nothing to wait for, so that whoever runs the loop can stop it.
_BREATH_MS = 500


@dataclass(frozen=True)
class WorldOptions:
    """How a cluster is followed and written to."""

    reach: Reach = Reach()  # noqa: RUF009 - frozen
    limits: Limits = Limits()  # noqa: RUF009 - a tuple
    pace: Pace = Pace()  # noqa: RUF009 - frozen
    gather_ms: int = 10  # news that come this soon after the first are told together
    may_write: Callable[[], bool] = lambda: True  # asked before each write


class KubeWorld:
    """A cluster that is there. Use it in a with statement."""

    def __init__(
        self, access: Access, policy: Policy, clock: Callable[[], int], draw: Draw, options: WorldOptions | None = None
    ) -> None:
        self.options = options = options or WorldOptions()
        self.shapes = Shapes()
        self.ledger = Ledger(self.options.reach)
        self._policies, self._clock = [policy], clock  # those that are still to be told
        self._now_ms = 0
        topics = [
            Topic(NODES, NodeObject, read_node_object),
            Topic(JOBS, JobObject, self._see_job),
            Topic(PODS, PodObject, self._see_pod),
        ]
        self.link = Link(access, topics, draw, limits=options.limits, pace=options.pace, may_write=options.may_write)
        self._notes: dict[int, str] = {}  # by number of the workload: what is to be left with its object
        self._found: dict[str, str] = {}  # by uid: notes of a leader before us; only until the first look
        self._looked = False
        self.before = Before()
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.latest_failure = ""

    def __enter__(self) -> Self:
        self.link.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.link.stop()

    # -- the protocol ------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time; a clock that is set back stands still until it has caught up."""
        self._now_ms = max(self._now_ms, self._clock())
        return self._now_ms

    def poll(self, until_ms: int | None) -> EventBatch:
        """News since the last poll; waits for some, but not beyond `until_ms`, and never for long."""
        if not self.link.listed.is_set():
            return self._await_lists()
        wait_ms = _BREATH_MS if until_ms is None else min(max(until_ms - self.now_ms(), 0), _BREATH_MS)
        if self.link.inbox.wait(wait_ms / 1000) and self.options.gather_ms:
            time.sleep(self.options.gather_ms / 1000)
        return self._told()

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Write what was decided."""
        self.ledger.decide(decisions)
        self._send()

    def change_policy(self, policy: Policy) -> None:
        """Have another policy from the next poll on."""
        self._policies.append(policy)
        self.link.inbox.note(None)

    def say(self, write: Write) -> None:
        """Write something that nothing depends on."""
        self.link.send([Order(Purpose.SAY, write, (), NOBODY)])

    def note(self, number: int, text: str) -> None:
        """Leave this with the work's own object, in the next write that is about it."""
        self._notes[number] = text

    def drain(self, most_s: float) -> bool:
        """Wait until what is being written is written; False if that takes longer."""
        until_s = time.monotonic() + most_s
        while self.link.pool.backlog and time.monotonic() < until_s:
            time.sleep(0.02)
        return not self.link.pool.backlog

    # -- what was before us ------------------------------------------------------------------------------------

    def _keep_note(self, meta: Meta) -> None:
        """Keep what a leader before us left with an object; later notes are our own."""
        text = (meta.annotations or {}).get(STANDING)
        if self._looked:
            return
        if text:
            self._found[meta.uid] = text
        else:
            self._found.pop(meta.uid, None)
        if len(self._found) > 2 * len(self.link.inbox) + 1_000:  # a replica may stand by for months
            self._found = {uid: found for uid, found in self._found.items() if uid in self.link.inbox}

    def _take_over(self) -> None:
        """At the first look: take up what was decided before us."""
        self._looked = True
        found, self._found = self._found, {}
        self.ledger.resume(lambda uid: read_note(found[uid]) if uid in found else None, self.before)

    # -- what came ---------------------------------------------------------------------------------------------

    def _await_lists(self) -> EventBatch:
        """Nothing is told, and so nothing decided, before everything has been listed once."""
        self.link.listed.wait(_BREATH_MS / 1000)
        if self.link.failure is not None:
            raise self.link.failure
        return self._told() if self.link.listed.is_set() else EMPTY_EVENTS

    def _told(self) -> EventBatch:
        news, notes = self.link.inbox.take()
        for note in notes:
            if isinstance(note, Carried):
                self._hear(note)
            elif isinstance(note, BaseException):
                raise note
        for one in sorted(news, key=lambda one: one.kind):
            self._see(one)
        if not self._looked:
            self._take_over()
        self._send()
        tidings = self.ledger.take_tidings()
        for policy in self._policies:
            tidings.policy(policy)
            self.ledger.names = names_of(policy.shares)
        self._policies = []
        return tidings.batch(self.now_ms())

    def _see(self, news: News) -> None:
        thing = news.thing
        if news.kind == _NODES:
            assert thing is None or isinstance(thing, Node)
            self.ledger.see_node(news.uid, thing)
        elif news.kind == _JOBS:
            assert thing is None or isinstance(thing, SeenJob)
            self.ledger.see_job(news.uid, thing)
        else:
            assert thing is None or isinstance(thing, SeenPod)
            self.ledger.see_pod(news.uid, thing)

    def _see_job(self, job: JobObject) -> SeenJob:
        self._keep_note(job.metadata)
        return see_job(job, NOTHING_AROUND)

    def _see_pod(self, pod: PodObject) -> SeenPod:
        self._keep_note(pod.metadata)
        return see_pod(pod, self.shapes)

    def _hear(self, carried: Carried) -> None:
        outcome = carried.result.outcome
        self.outcomes[outcome] += 1
        if outcome is not Outcome.DONE:
            self.latest_failure = f"{carried.order.purpose.name}: {carried.result.answer.text()}"
        self.ledger.hear(carried.order, outcome)

    def _send(self) -> None:
        orders = self.ledger.take_orders()
        orders += self.ledger.take_sayings(_SAID_AT_ONCE - self.link.pool.backlog)
        if orders and self.options.may_write():
            self.link.send(self._annotated(orders))

    def _annotated(self, orders: list[Order]) -> list[Order]:
        """Orders with the notes that go with them; pods of a job that has its note need none."""
        started = {order.workload for order in orders if order.purpose is Purpose.START}
        sent = []
        for order in orders:
            text = self._notes.get(order.workload)
            if text is not None and not (order.purpose is Purpose.BIND and order.workload in started):
                order = order._replace(write=annotated(order.write, text))  # noqa: PLW2901
            sent.append(order)
        for number in started:
            self._notes.pop(number, None)
        return sent
