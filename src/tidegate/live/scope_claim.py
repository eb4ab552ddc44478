"""Scope claims: which instance manages which work, in one object for the whole cluster.

Replicas of an instance share a Lease, and one of them leads. Two instances have two Leases, so both could manage the
same pods. Therefore an instance that writes also claims its scope. All claims are annotations of one Lease, written
with optimistic concurrency, so that of two overlapping scopes only one is claimed. Like a Lease, a claim expires when
it was not observed to change for its duration. It belongs to the instance: the next leader continues it.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from tidegate.live.lease import LeaseObject, LeaseSpec, LeaseTimes
from tidegate.live.modes import Mode

#: The prefix of the annotations with claims.
CLAIM_PREFIX = "claim.tidegate.io/"


class InstanceScope(msgspec.Struct, frozen=True, rename="camel"):
    """The work that an instance manages: pods with its schedulerName, or else work that names a queue."""

    mode: str = ""
    scheduler: str = ""

    def overlaps(self, other: InstanceScope) -> bool:
        """Whether some work may be in both: work that names a queue may name any scheduler."""
        return not self.scheduler or not other.scheduler or self.scheduler == other.scheduler

    def __str__(self) -> str:
        return f"{self.mode}, schedulerName {self.scheduler}" if self.scheduler else self.mode


def scope_of(mode: Mode, scheduler: str) -> InstanceScope:
    """The scope of a mode that writes, with the schedulerName of pods that it binds."""
    return InstanceScope(mode.value, scheduler if mode is Mode.BIND else "")


class ScopeClaim(msgspec.Struct, frozen=True, rename="camel"):
    """The claim of an instance."""

    lease: str  # of the instance, as namespace/name
    scope: InstanceScope
    holder: str  # its leader
    renew_time: str
    lease_duration_seconds: int


def read_claims(lease: LeaseObject | None) -> list[ScopeClaim]:
    """The claims in the Lease; invalid annotations are ignored."""
    found = []
    for name, text in _annotations(lease).items():
        if name.startswith(CLAIM_PREFIX):
            with suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(text, type=ScopeClaim))
    return found


class _Sighting(NamedTuple):
    """A claim of another instance, as last observed to change."""

    claim: ScopeClaim
    changed_s: float
    renewed: bool  # it was observed to change: its instance runs

    def has_lapsed(self, at_s: float) -> bool:
        return at_s >= self.changed_s + max(self.claim.lease_duration_seconds, 1)


class Claimant:
    """A candidate for the claim of a scope."""

    def __init__(self, lease: str, holder: str, scope: InstanceScope, times: LeaseTimes) -> None:
        self.lease, self.holder, self.scope, self.times = lease, holder, scope, times
        self._seen: LeaseObject | None = None
        self._others: dict[str, _Sighting] = {}  # by annotation
        self._until_s = 0.0  # until when the claim holds, unless it is renewed
        self.term = 0  # number of terms
        self.unreadable = ""  # an invalid annotation; nothing is claimed while there is one

    def holds(self, at_s: float) -> bool:
        """Whether the claim holds at this time."""
        return at_s < self._until_s

    def see(self, lease: LeaseObject | None, at_s: float) -> None:
        """Observe the Lease with the claims."""
        self._seen, self.unreadable = lease, ""
        before, self._others = self._others, {}
        for name, text in _annotations(lease).items():
            if not name.startswith(CLAIM_PREFIX) or name == _annotation(self.lease):
                continue
            try:
                claim = msgspec.json.decode(text, type=ScopeClaim)
            except msgspec.MsgspecError:
                self.unreadable = name
                continue
            known = before.get(name)
            if known is None:
                self._others[name] = _Sighting(claim, at_s, renewed=False)
            elif known.claim != claim:
                self._others[name] = _Sighting(claim, at_s, renewed=True)
            else:
                self._others[name] = known

    def overlapping_claim(self, at_s: float) -> ScopeClaim | None:
        """A claim of another instance that overlaps and has not expired."""
        return next((one.claim for one in self._overlapping(at_s)), None)

    def conflict(self, at_s: float) -> str:
        """Which running instance manages the same work, and what to do; empty: none."""
        for one in self._overlapping(at_s):
            if one.renewed:
                claim = one.claim
                return (
                    f"the instance of Lease {claim.lease} ({claim.scope}; {claim.holder} leads) manages the same work "
                    f"as this one ({self.scope}); stop one of them, or run this one with --mode shadow"
                )
        return ""

    def _overlapping(self, at_s: float) -> list[_Sighting]:
        return [
            one for one in self._others.values() if one.claim.scope.overlaps(self.scope) and not one.has_lapsed(at_s)
        ]

    def claim(self, at_s: float, stamp: str) -> dict[str, Any] | None:
        """The metadata and spec to write to hold the claim; None while another claim overlaps."""
        if self.unreadable or self.overlapping_claim(at_s) is not None:
            return None
        mine = ScopeClaim(self.lease, self.scope, self.holder, stamp, math.ceil(self.times.lease_s))
        lapsed = {name for name, one in self._others.items() if one.has_lapsed(at_s)}
        annotations = {name: text for name, text in _annotations(self._seen).items() if name not in lapsed}
        annotations[_annotation(self.lease)] = msgspec.json.encode(mine).decode()
        held = [self.lease, *(one.claim.lease for name, one in self._others.items() if name not in lapsed)]
        spec = LeaseSpec(", ".join(sorted(held)), mine.lease_duration_seconds, renew_time=stamp)
        return {"annotations": annotations, "spec": spec}

    def won(self, lease: LeaseObject, sent_s: float, heard_s: float) -> None:
        """Note that the claim was written, with the times of request and response."""
        self.see(lease, heard_s)
        if not self.holds(heard_s):
            self.term += 1
        self._until_s = sent_s + self.times.renew_s

    @property
    def version(self) -> str:
        """The resourceVersion of the Lease as last observed; empty: there is none."""
        return self._seen.metadata.resource_version if self._seen else ""


def claims_of(lease: LeaseObject, instance: str) -> tuple[list[str], list[ScopeClaim | str]]:
    """The annotations with an instance's claims, and the claims of others, or their invalid annotations."""
    mine, others = list[str](), list[ScopeClaim | str]()
    for name, text in _annotations(lease).items():
        if name == _annotation(instance):
            mine.append(name)
        elif name.startswith(CLAIM_PREFIX):
            try:
                others.append(msgspec.json.decode(text, type=ScopeClaim))
            except msgspec.MsgspecError:
                others.append(name)
    return mine, others


def _annotations(lease: LeaseObject | None) -> dict[str, str]:
    return (lease.metadata.annotations or {}) if lease is not None else {}


def _annotation(lease: str) -> str:
    """The annotation of an instance: a digest, as names of Leases are too long for it."""
    return CLAIM_PREFIX + hashlib.blake2b(lease.encode(), digest_size=8).hexdigest()
