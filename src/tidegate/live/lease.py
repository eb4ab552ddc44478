"""Leases: what a candidate may write, by its own clock.

A Lease expires when it was not observed to change for its duration, as in client-go: the times in it do not matter, so
clocks may differ by hours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from tidegate.kube.transport.objects import KubeObjectMeta

_NOBODY = ""


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    """The spec of a Lease."""

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
    """The timing of a Lease, in seconds."""

    lease_s: float = 15.0  # Lease duration: after it, others may acquire it
    renew_s: float = 10.0  # renew deadline: after it, a leader that could not renew stops
    retry_s: float = 2.0  # retry period


class LeaseClaim(NamedTuple):
    """The spec that a candidate writes."""

    spec: LeaseSpec
    version: str  # resourceVersion to replace; empty: create it


class Candidate:
    """A candidate for a Lease."""

    def __init__(self, identity: str, times: LeaseTimes) -> None:
        self.identity, self.times = identity, times
        self._seen: LeaseObject | None = None
        self._changed_s = 0.0  # when it was last observed to change
        self._until_s = 0.0  # until when this replica leads, unless it renews
        self.term = 0  # number of terms; a lapsed term never continues
        self.before = ""  # when the previous holder renewed last, by its own clock

    @property
    def holder(self) -> str:
        """The holder of the Lease, as last observed."""
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
        """Whether this replica leads at this time."""
        return at_s < self._until_s

    def see(self, lease: LeaseObject | None, at_s: float) -> None:
        """Observe the Lease."""
        if lease is None or self._seen is None or lease.spec != self._seen.spec:
            self._changed_s = at_s
        self._seen = lease
        if self.holder != self.identity:
            self._until_s = 0.0
            self.before = (lease.spec.renew_time or "") if lease is not None else self.before

    def claim(self, at_s: float, stamp: str) -> LeaseClaim | None:
        """What to write to acquire or renew the Lease; None while another replica holds it."""
        if self._seen is None:
            return LeaseClaim(self._spec(stamp, stamp, 0), "")
        spec, version = self._seen.spec, self._seen.metadata.resource_version
        if self.holder == self.identity:
            return LeaseClaim(self._spec(spec.acquire_time or stamp, stamp, self.transitions), version)
        if self.holder != _NOBODY and at_s < self._changed_s + (spec.lease_duration_seconds or self.times.lease_s):
            return None
        return LeaseClaim(self._spec(stamp, stamp, self.transitions + 1), version)

    def release(self, stamp: str) -> LeaseClaim | None:
        """What to write to release the Lease; None if this replica does not hold it."""
        if self._seen is None or self.holder != self.identity:
            return None
        spec = LeaseSpec(_NOBODY, 1, stamp, stamp, self.transitions)
        return LeaseClaim(spec, self._seen.metadata.resource_version)

    def won(self, lease: LeaseObject, sent_s: float, heard_s: float) -> None:
        """Note that the Lease was written, sent and answered at these times. A lapsed term is not renewed."""
        self._seen, self._changed_s = lease, sent_s
        if not self.leads(heard_s):
            self.term += 1
        self._until_s = sent_s + self.times.renew_s if self.holder == self.identity else 0.0

    def _spec(self, acquired: str, renewed: str, transitions: int) -> LeaseSpec:
        return LeaseSpec(self.identity, math.ceil(self.times.lease_s), acquired, renewed, transitions)
