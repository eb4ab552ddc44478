"""Seeking and keeping the Lease, in a thread of its own: a slow step cannot cost it.

Must not know: what a leader does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.client import Client, Request
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.resources import LEASES
from tidegate.kube.transport.response import Response
from tidegate.kube.transport.writes import FIELD_MANAGER, Ref
from tidegate.live.lease import Candidate, LeaseClaim, LeaseObject, LeaseTimes
from tidegate.live.timestamps import stamp_of
from tidegate.manifests.clock import read_time_ms
from tidegate.model.units import UnitError

_NOT_FOUND, _CONFLICT = 404, 409

#: How long one request may take: several tries must fit between two renewals.
_ANSWER_S = 3.0


#: Counts on while the machine sleeps, as the time of others does; where there is no such clock, the usual one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_s() -> float:
    """Time that passed, whatever happens to the clock on the wall."""
    return time.clock_gettime(_CLOCK)


class LeaseName(NamedTuple):
    """Which Lease."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Election:
    """A candidate that tries to lead until it is told to stop."""

    def __init__(self, access: Connection, lease: LeaseName, identity: str, times: LeaseTimes) -> None:
        self.lease, self.identity = lease, identity
        self.trouble = ""  # why the last try came to nothing
        self._access, self._times = access, times
        self._candidate = Candidate(identity, times)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._contend()), name="tidegate-lease", daemon=True)
        self._ready = threading.Event()
        self._turned = threading.Condition()
        self._counting = threading.Lock()  # no term is asked about while it is counted
        self._releases = True

    def start(self) -> None:
        """Begin to seek the Lease."""
        self._thread.start()
        self._ready.wait()

    def stop(self, *, release: bool = True) -> None:
        """End it; who leads gives the Lease back, so that others need not wait for it to expire."""
        if self._thread.is_alive():
            self._releases = release
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(timeout=2 * _ANSWER_S)

    def leads(self, term: int | None = None) -> bool:
        """Whether we lead now, in this term, and so may write.

        Who could not renew in time does not, before another may. A term that lapsed is over, even if we lead again:
        who slept through it must not write what it decided before.
        """
        with self._counting:
            return self._candidate.leads(steady_s()) and term in (None, self._candidate.term)

    @property
    def term(self) -> int:
        """The number of our latest term."""
        return self._candidate.term

    def wait(self, most_s: float) -> bool:
        """Wait until we lead, or so long; whether we lead."""
        with self._turned:
            if not self.leads():
                self._turned.wait(most_s)
        return self.leads()

    @property
    def holder(self) -> str:
        """Who holds the Lease."""
        return self._candidate.holder

    @property
    def transitions(self) -> int:
        """How often the Lease changed hands."""
        return self._candidate.transitions

    @property
    def ref(self) -> Ref:
        """The Lease as an object."""
        return Ref(LEASES, self.lease.namespace, self.lease.name, self._candidate.uid)

    def before_ms(self) -> int:
        """The time at which the leader before us wrote last, by its own clock; 0: there was none."""
        try:
            return read_time_ms(self._candidate.before)
        except UnitError:
            return 0

    # -- in the thread -----------------------------------------------------------------------------------------

    async def _contend(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        async with Client(self._access, connections=2) as client:
            known = False  # the Lease is as we wrote it, as far as we know
            while not self._stopping.is_set():
                known = await self._try(client, known=known)
                await self._pause()
            if self._releases:
                await self._release(client)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._times.retry_s)
        except TimeoutError:
            return

    async def _try(self, client: Client, *, known: bool) -> bool:
        """Try once to lead, or to lead on; whether it worked out."""
        if not known and not await self._look(client):
            return False
        sent_s = steady_s()
        claim = self._candidate.claim(sent_s, _stamp())
        if claim is None:
            return False
        led = self.leads()
        answer = await self._write(client, claim)
        if not answer.ok:
            self.trouble = "" if answer.status == _CONFLICT else answer.text()
            return False
        self.trouble = ""
        lease = msgspec.json.decode(answer.body, type=LeaseObject)
        with self._counting:
            self._candidate.won(lease, sent_s, steady_s())
        if not led:
            with self._turned:
                self._turned.notify_all()
        return True

    async def _look(self, client: Client) -> bool:
        path = LEASES.path(self.lease.namespace, self.lease.name)
        answer = await client.ask(Request("GET", path, timeout_s=self._answer_s()))
        if answer.ok:
            self._candidate.see(msgspec.json.decode(answer.body, type=LeaseObject), steady_s())
        elif answer.status == _NOT_FOUND:
            self._candidate.see(None, steady_s())
        else:
            self.trouble = answer.text()
        return answer.ok or answer.status == _NOT_FOUND

    async def _write(self, client: Client, claim: LeaseClaim) -> Response:
        meta: dict[str, Any] = {"name": self.lease.name, "namespace": self.lease.namespace}
        if claim.version:
            meta["resourceVersion"] = claim.version
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": claim.spec}
        named = self.lease.name if claim.version else ""
        method, path = "PUT" if claim.version else "POST", LEASES.path(self.lease.namespace, named)
        query = {"fieldManager": FIELD_MANAGER}
        return await client.ask(Request(method, path, query, msgspec.json.encode(body), timeout_s=self._answer_s()))

    def _answer_s(self) -> float:
        return min(_ANSWER_S, self._times.renew_s / 3)

    async def _release(self, client: Client) -> None:
        claim = self._candidate.release(_stamp())
        if claim is not None:
            await self._write(client, claim)
            self._candidate.see(None, steady_s())


def _stamp() -> str:
    return stamp_of(time.time_ns() // 1_000_000)
