"""Claims of scopes: which instance manages which work, in one object for the whole cluster.

Replicas of an instance share a Lease, and one of them leads. Two instances have two Leases, so both could lead and
manage the same pods. Therefore an instance that writes also claims its scope. All claims are annotations of one Lease,
written with the version that was read, so that of two instances whose scopes overlap only one has a claim.
As with a Lease, a claim has lapsed when it has not changed before our eyes for as long as it is good for; what clocks
of others say does not matter. A claim is the instance's: a replica that takes over from another one continues it.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from tidegate.live.lease import LeaseObject, LeaseSpec, LeaseTimes
from tidegate.live.modes import Mode

#: Begins the names of annotations that are claims.
CLAIM_PREFIX = "claim.tidegate.io/"


class InstanceScope(msgspec.Struct, frozen=True, rename="camel"):
    """Which work an instance manages: pods that name its scheduler, or, without one, work that names a queue."""

    mode: str = ""
    scheduler: str = ""

    def overlaps(self, other: InstanceScope) -> bool:
        """Whether some work may be of both: what names a queue may also name any scheduler."""
        return not self.scheduler or not other.scheduler or self.scheduler == other.scheduler

    def __str__(self) -> str:
        return f"{self.mode}, schedulerName {self.scheduler}" if self.scheduler else self.mode


def scope_of(mode: Mode, scheduler: str) -> InstanceScope:
    """The scope of a mode that writes, where pods that are ours to bind name this scheduler."""
    return InstanceScope(mode.value, scheduler if mode is Mode.BIND else "")


class ScopeClaim(msgspec.Struct, frozen=True, rename="camel"):
    """What an instance claims."""

    lease: str  # of the instance, as namespace/name
    scope: InstanceScope
    holder: str  # the replica that leads it
    renew_time: str
    lease_duration_seconds: int


def read_claims(lease: LeaseObject | None) -> list[ScopeClaim]:
    """The claims in an object, without annotations that are none."""
    found = []
    for name, text in _annotations(lease).items():
        if name.startswith(CLAIM_PREFIX):
            with suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(text, type=ScopeClaim))
    return found


class _Sighting(NamedTuple):
    """A claim of another instance as it was last seen to change."""

    claim: ScopeClaim
    changed_s: float
    renewed: bool  # before our eyes: its instance runs

    def has_lapsed(self, at_s: float) -> bool:
        return at_s >= self.changed_s + max(self.claim.lease_duration_seconds, 1)


class Claimant:
    """An instance that wants to manage its scope."""

    def __init__(self, lease: str, holder: str, scope: InstanceScope, times: LeaseTimes) -> None:
        self.lease, self.holder, self.scope, self.times = lease, holder, scope, times
        self._seen: LeaseObject | None = None
        self._others: dict[str, _Sighting] = {}  # by annotation
        self._until_s = 0.0  # until when our claim holds, unless we renew it
        self.term = 0  # times that our claim began to hold
        self.unreadable = ""  # the annotation that is no claim; nothing is claimed while there is one

    def holds(self, at_s: float) -> bool:
        """Whether our claim holds at this time."""
        return at_s < self._until_s

    def see(self, lease: LeaseObject | None, at_s: float) -> None:
        """The object with the claims is this now."""
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
        """A claim of another instance that overlaps ours and has not lapsed."""
        return next((one.claim for one in self._overlapping(at_s)), None)

    def conflict(self, at_s: float) -> str:
        """Which instance manages the same work, and what to do; empty: none is seen to run."""
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
        """The metadata and spec to write in order to hold our claim; None: another instance has one that overlaps."""
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
        """What we claimed was written; we sent it then, and hear of it now."""
        self.see(lease, heard_s)
        if not self.holds(heard_s):
            self.term += 1
        self._until_s = sent_s + self.times.renew_s

    @property
    def version(self) -> str:
        """The version of the object as it was last seen; empty: there is none."""
        return self._seen.metadata.resource_version if self._seen else ""


def claims_of(lease: LeaseObject, instance: str) -> tuple[list[str], list[ScopeClaim | str]]:
    """The annotations with claims of an instance, and what others claim; the annotation where that cannot be read."""
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
    """The annotation of an instance: a digest, as a Lease's name may be longer than an annotation's."""
    return CLAIM_PREFIX + hashlib.blake2b(lease.encode(), digest_size=8).hexdigest()
