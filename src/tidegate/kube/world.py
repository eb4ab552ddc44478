"""A cluster as a world: facts from lists and watches, decisions as writes.

Must not know: how anything is decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tidegate.kube.access import Access
from tidegate.kube.following import Pace
from tidegate.kube.inbox import News
from tidegate.kube.jobs import JobObject, SeenJob, see_job
from tidegate.kube.ledger import Ledger, Reach
from tidegate.kube.link import Carried, Link, Topic
from tidegate.kube.nodes import NodeObject, read_node_object
from tidegate.kube.orders import Order, Purpose
from tidegate.kube.pauses import Draw
from tidegate.kube.pods import PodObject, SeenPod, see_pod
from tidegate.kube.pool import Limits
from tidegate.kube.resources import JOBS, NODES, PODS
from tidegate.kube.shapes import Shapes
from tidegate.kube.writes import Write
from tidegate.manifests.surroundings import NOTHING_AROUND
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
            Topic(JOBS, JobObject, lambda job: see_job(job, NOTHING_AROUND)),
            Topic(PODS, PodObject, lambda pod: see_pod(pod, self.shapes)),
        ]
        self.link = Link(access, topics, draw, limits=options.limits, pace=options.pace, may_write=options.may_write)
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

    def drain(self, most_s: float) -> bool:
        """Wait until what is being written is written; False if that takes longer."""
        until_s = time.monotonic() + most_s
        while self.link.pool.backlog and time.monotonic() < until_s:
            time.sleep(0.02)
        return not self.link.pool.backlog

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
        self._send()
        tidings = self.ledger.take_tidings()
        for policy in self._policies:
            tidings.policy(policy)
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
            self.link.send(orders)
