"""Who leads: what a Lease says, and what a candidate may do about it. Times are its own, as it saw things happen.

Whether a leader still leads is not told by the time that it wrote, as clocks differ, but by how long its Lease has not
changed before our eyes. So a clock that is hours off changes nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from tidegate.kube.transport.objects import KubeObjectMeta

_NOBODY = ""


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    """What a Lease says."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseObject(msgspec.Struct, frozen=True):
    """A Lease."""

    metadata: KubeObjectMeta
    spec: LeaseSpec = LeaseSpec()


class LeaseTimes(NamedTuple):
    """How long a Lease is good for, in seconds."""

    lease_s: float = 15.0  # after which others may take over
    renew_s: float = 10.0  # after which who could not renew stops by itself
    retry_s: float = 2.0  # between two tries


class LeaseClaim(NamedTuple):
    """What a candidate wants the Lease to say."""

    spec: LeaseSpec
    version: str  # that it was seen at; empty: there was none


class Candidate:
    """One who wants to lead."""

    def __init__(self, identity: str, times: LeaseTimes) -> None:
        self.identity, self.times = identity, times
        self._seen: LeaseObject | None = None
        self._changed_s = 0.0  # when it was last seen to be another than before
        self._until_s = 0.0  # until when we lead, unless we renew
        self.term = 0  # times that we came to lead; one that lapsed does not go on, whoever led in between
        self.before = ""  # when the latest holder before us wrote last, by its own clock

    @property
    def holder(self) -> str:
        """Who holds the Lease, as far as is known."""
        return (self._seen.spec.holder_identity or _NOBODY) if self._seen else _NOBODY

    @property
    def transitions(self) -> int:
        """How often the Lease changed hands."""
        return (self._seen.spec.lease_transitions or 0) if self._seen else 0

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the Lease."""
        return (self._seen.metadata.labels or {}) if self._seen else {}

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the Lease."""
        return (self._seen.metadata.annotations or {}) if self._seen else {}

    @property
    def uid(self) -> str:
        """The uid of the Lease."""
        return self._seen.metadata.uid if self._seen else ""

    def leads(self, at_s: float) -> bool:
        """Whether we lead at this time."""
        return at_s < self._until_s

    def see(self, lease: LeaseObject | None, at_s: float) -> None:
        """The Lease is this now."""
        if lease is None or self._seen is None or lease.spec != self._seen.spec:
            self._changed_s = at_s
        self._seen = lease
        if self.holder != self.identity:
            self._until_s = 0.0
            self.before = (lease.spec.renew_time or "") if lease is not None else self.before

    def claim(self, at_s: float, stamp: str) -> LeaseClaim | None:
        """What to write in order to lead, or to lead on; None: another does, and its time is not over."""
        if self._seen is None:
            return LeaseClaim(self._spec(stamp, stamp, 0), "")
        spec, version = self._seen.spec, self._seen.metadata.resource_version
        if self.holder == self.identity:
            return LeaseClaim(self._spec(spec.acquire_time or stamp, stamp, self.transitions), version)
        if self.holder != _NOBODY and at_s < self._changed_s + (spec.lease_duration_seconds or self.times.lease_s):
            return None
        return LeaseClaim(self._spec(stamp, stamp, self.transitions + 1), version)

    def release(self, stamp: str) -> LeaseClaim | None:
        """What to write in order to lead no more, so that others need not wait; None: we do not lead."""
        if self._seen is None or self.holder != self.identity:
            return None
        spec = LeaseSpec(_NOBODY, 1, stamp, stamp, self.transitions)
        return LeaseClaim(spec, self._seen.metadata.resource_version)

    def won(self, lease: LeaseObject, sent_s: float, heard_s: float) -> None:
        """What we claimed was written; we sent it then, and hear of it now. A term that is over is not renewed."""
        self._seen, self._changed_s = lease, sent_s
        if not self.leads(heard_s):
            self.term += 1
        self._until_s = sent_s + self.times.renew_s if self.holder == self.identity else 0.0

    def _spec(self, acquired: str, renewed: str, transitions: int) -> LeaseSpec:
        return LeaseSpec(self.identity, math.ceil(self.times.lease_s), acquired, renewed, transitions)
