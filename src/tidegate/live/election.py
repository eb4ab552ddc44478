"""Leader election, in a thread of its own, so that a slow step cannot cost the Lease.

A leader holds the Lease of its instance. In modes that write to work it also holds the claim of its scope, so that two
instances do not manage the same work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.loop_thread import LoopThread
from tidegate.kube.transport.objects import time_ms
from tidegate.kube.transport.resources import LEASES
from tidegate.kube.transport.response import ApiResponse
from tidegate.kube.transport.writes import FIELD_MANAGER, EventMessage, Ref, event_write, micro_time
from tidegate.live.lease import Candidate, LeaseObject, LeaseSpec, LeaseTimes
from tidegate.live.scope_claim import Claimant, InstanceScope

_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422

#: Timeout of a request: several tries must fit between two renewals.
_ANSWER_S = 3.0

#: Tries to write a claim while other instances write theirs.
_CLAIM_TRIES = 3

#: The labels of our Leases.
_LABELS = {"app.kubernetes.io/name": "tidegate"}

#: A clock that counts while the machine sleeps, or else the monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_s() -> float:
    """Elapsed time, whatever happens to the wall clock."""
    return time.clock_gettime(_CLOCK)


class LeaseName(NamedTuple):
    """The name of a Lease."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


#: The Lease with the claims of all instances of a cluster, in a namespace where tenants do not write.
SCOPE_CLAIMS = LeaseName("kube-system", "tidegate-claims")


class Claiming(NamedTuple):
    """The scope that an instance claims, and the Lease with all claims."""

    scope: InstanceScope
    at: LeaseName = SCOPE_CLAIMS


class Election:
    """A candidate in the election, until it is stopped."""

    def __init__(
        self, access: Connection, lease: LeaseName, identity: str, times: LeaseTimes, claiming: Claiming | None = None
    ) -> None:
        self.lease, self.identity = lease, identity
        self.problem = ""  # the error of the latest try
        self.conflict = ""  # which other instance manages the same work, and what to do
        self._access, self._times = access, times
        self._candidate = Candidate(identity, times)
        self._claims_at = claiming.at if claiming is not None else SCOPE_CLAIMS
        self._claimant = Claimant(str(lease), identity, claiming.scope, times) if claiming is not None else None
        self._thread = LoopThread("tidegate-lease", self._run)
        self._turned = threading.Condition()
        self._counting = threading.Lock()  # no thread reads the term while it changes
        self._releases = True

    def start(self) -> None:
        """Start the election."""
        self._thread.start()

    def stop(self, *, release: bool = True) -> None:
        """Stop it; a leader releases the Lease, so that others need not wait until it expires."""
        self._releases = release
        self._thread.stop(2 * _ANSWER_S)

    @property
    def thread(self) -> LoopThread:
        """The thread of the election."""
        return self._thread

    def leads(self, term: int | None = None) -> bool:
        """Whether this replica leads now, in this term, and so may write.

        A leader that cannot renew in time stops before another may lead. A term that lapsed is over, even if the same
        replica leads again: one that slept must not write what it decided before.
        """
        with self._counting:
            now_s = steady_s()
            claimed = self._claimant is None or self._claimant.holds(now_s)
            return self._candidate.leads(now_s) and claimed and term in (None, self.term)

    @property
    def term(self) -> int:
        """The number of the latest term: it grows when a lapsed Lease or claim is acquired again."""
        return self._candidate.term + (self._claimant.term if self._claimant is not None else 0)

    def wait(self, most_s: float) -> bool:
        """Wait at most so long for leadership; whether this replica leads."""
        with self._turned:
            if not self.leads():
                self._turned.wait(most_s)
        return self.leads()

    @property
    def holder(self) -> str:
        """The holder of the Lease."""
        return self._candidate.holder

    @property
    def transitions(self) -> int:
        """How often the Lease changed hands."""
        return self._candidate.transitions

    @property
    def ref(self) -> Ref:
        """The reference to the Lease."""
        return Ref(LEASES, self.lease.namespace, self.lease.name, self._candidate.uid)

    def before_ms(self) -> int:
        """When the previous leader renewed last, by its own clock; 0: there was none."""
        return time_ms(self._candidate.before)

    # -- in the thread -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        async with Client(self._access, connections=2) as client:
            known = False  # the Lease is as this replica wrote it
            while not self._thread.stopping.is_set():
                led = self.leads()
                known = await self._try(client, known=known)
                if known:
                    await self._claim(client)
                if not led and self.leads():
                    with self._turned:
                        self._turned.notify_all()
                await self._pause()
            if self._releases:
                await self._release(client)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._thread.stopping.wait(), self._times.retry_s)
        except TimeoutError:
            return

    async def _try(self, client: Client, *, known: bool) -> bool:
        """Try once to acquire or renew the Lease; whether that worked."""
        if not known and not await self._look(client):
            return False
        sent_s = steady_s()
        claim = self._candidate.claim(sent_s, _stamp())
        if claim is None:
            return False
        answer = await self._write(client, claim.spec, claim.version)
        if not answer.ok:
            self.problem = "" if answer.status == _CONFLICT else answer.text()
            return False
        lease = self._read(answer)
        if lease is None:
            return False
        with self._counting:
            self._candidate.won(lease, sent_s, steady_s())
        return True

    async def _look(self, client: Client) -> bool:
        """Read the Lease; whether that worked, also if there is none."""
        answer = await self._get(client, self.lease)
        if answer.status == _NOT_FOUND:
            self._candidate.see(None, steady_s())
            return True
        lease = self._read(answer)
        if lease is not None:
            self._candidate.see(lease, steady_s())
        return lease is not None

    async def _write(self, client: Client, spec: LeaseSpec, version: str) -> ApiResponse:
        meta = {"labels": {**self._candidate.labels, **_LABELS}, "annotations": self._candidate.annotations}
        return await self._put(client, self.lease, {"metadata": meta, "spec": spec}, version)

    async def _release(self, client: Client) -> None:
        claim = self._candidate.release(_stamp())
        if claim is not None:
            await self._write(client, claim.spec, claim.version)
            self._candidate.see(None, steady_s())

    # -- the claim ---------------------------------------------------------------------------------------------

    async def _claim(self, client: Client) -> None:
        """Renew the claim, or check whether another instance still has one; only the holder of the Lease does."""
        claimant = self._claimant
        if claimant is None:
            return
        fresh = claimant.holds(steady_s())  # the object is as this replica wrote it
        for _ in range(_CLAIM_TRIES):
            if not fresh and not await self._look_at_claims(client, claimant):
                return
            sent_s = steady_s()
            wanted = claimant.claim(sent_s, _stamp())
            await self._note_conflict(client, claimant.conflict(sent_s))
            if wanted is None:
                self.problem = self._why_waiting(claimant)
                return
            answer = await self._put_claim(client, wanted, claimant.version)
            if answer.status != _CONFLICT:
                self._note_claim(claimant, answer, sent_s)
                return
            fresh = False  # another instance wrote its claim meanwhile

    def _note_claim(self, claimant: Claimant, answer: ApiResponse, sent_s: float) -> None:
        lease = self._read(answer, "the claim of the scope: ")
        if lease is not None:
            with self._counting:
                claimant.won(lease, sent_s, steady_s())

    async def _look_at_claims(self, client: Client, claimant: Claimant) -> bool:
        answer = await self._get(client, self._claims_at)
        if answer.status == _NOT_FOUND:
            claimant.see(None, steady_s())
            return True
        lease = self._read(answer, "the claim of the scope: ")
        if lease is not None:
            claimant.see(lease, steady_s())
        return lease is not None

    async def _put_claim(self, client: Client, wanted: Mapping[str, Any], version: str) -> ApiResponse:
        meta = {"labels": _LABELS, "annotations": wanted["annotations"]}
        return await self._put(client, self._claims_at, {"metadata": meta, "spec": wanted["spec"]}, version)

    def _why_waiting(self, claimant: Claimant) -> str:
        if claimant.unreadable:
            return f"Lease {self._claims_at}: annotation {claimant.unreadable} is no claim; delete the annotation"
        overlapping_claim = claimant.overlapping_claim(steady_s())
        return self.conflict or (
            f"the claim of Lease {overlapping_claim.lease} has not expired yet" if overlapping_claim else ""
        )

    async def _note_conflict(self, client: Client, conflict: str) -> None:
        """Record an Event about our Lease, once."""
        is_new = conflict and not self.conflict
        self.conflict = conflict
        if is_new:
            now_ms = time.time_ns() // 1_000_000
            said = EventMessage("ScopeConflict", conflict, "Lead", warning=True)
            name = f"{self.lease.name}.{now_ms:x}"
            await client.ask(event_write(self.ref, said, name, now_ms).request._replace(timeout_s=_ANSWER_S))

    # -- requests ----------------------------------------------------------------------------------------------

    async def _get(self, client: Client, lease: LeaseName) -> ApiResponse:
        return await client.ask(ApiRequest("GET", LEASES.path(*lease), timeout_s=self._answer_s()))

    async def _put(self, client: Client, lease: LeaseName, fields: dict[str, Any], version: str) -> ApiResponse:
        """Replace or create a Lease with a PUT to its name, which a role can allow for one name."""
        meta = {**fields["metadata"], "name": lease.name, "namespace": lease.namespace}
        if version:
            meta["resourceVersion"] = version
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": fields["spec"]}
        query, encoded = {"fieldManager": FIELD_MANAGER}, msgspec.json.encode(body)
        answer = await client.ask(ApiRequest("PUT", LEASES.path(*lease), query, encoded, timeout_s=self._answer_s()))
        if answer.status == _INVALID and not version:  # it was created meanwhile, so the version is missing
            return answer._replace(status=_CONFLICT)
        return answer

    def _read(self, answer: ApiResponse, what: str = "") -> LeaseObject | None:
        """Decode the Lease in a response; None, and a problem, if it is none: a proxy may have answered."""
        if not answer.ok:
            self.problem = what + answer.text()
            return None
        try:
            lease = msgspec.json.decode(answer.body, type=LeaseObject)
        except msgspec.MsgspecError as error:
            self.problem = f"{what}the answer is no Lease: {error}"
            return None
        self.problem = ""
        return lease

    def _answer_s(self) -> float:
        return min(_ANSWER_S, self._times.renew_s / 3)


def _stamp() -> str:
    return micro_time(time.time_ns() // 1_000_000)


_NEVER = -1


class LeadershipTerm:
    """The right to write for one term.

    It ends with the Lease and does not come back: a process may sleep through the end of its Lease and another leader's
    term, and lead again. What it decided before is about an outdated cluster, so each write checks its own term.
    """

    def __init__(self, election: Election) -> None:
        self._election, self._term = election, _NEVER

    def begin(self) -> None:
        """Begin the current term of the election."""
        self._term = self._election.term

    def holds(self) -> bool:
        """Whether the Lease is held now, without a break since the term began."""
        return self._election.leads(self._term)
