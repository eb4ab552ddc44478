"""Pods as the API server has them: who they are, where they are, how they fare, and what they ask for.

Must not know: workloads, places.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from tidegate.kube.objects import Meta, Owner
from tidegate.kube.shapes import PodSpec, Shape, Shapes
from tidegate.manifests.clock import read_time_ms
from tidegate.manifests.words import GROUP, GROUP_TOTAL
from tidegate.model.units import UnitError


class Life(IntEnum):
    """How far a pod is in its life."""

    PENDING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3

    @property
    def is_over(self) -> bool:
        """It holds nothing any more."""
        return self >= Life.SUCCEEDED


_LIVES = {"Running": Life.RUNNING, "Succeeded": Life.SUCCEEDED, "Failed": Life.FAILED}


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class PodObject(msgspec.Struct, frozen=True):
    """A Pod, the fields that are needed."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: _Status = _Status()


class SeenPod(NamedTuple):
    """A pod, as small as it gets: there are a hundred thousand."""

    uid: str
    namespace: str
    name: str
    node: str  # empty: it has none yet
    life: Life
    leaving: bool  # it was told to go
    gated: bool  # somebody else has to let it go first
    scheduler: str
    owner: Owner | None  # the one that controls it
    group: str
    group_total: int
    created_ms: int
    shape: Shape


def created_ms(meta: Meta) -> int:
    """When an object was made."""
    try:
        return read_time_ms(meta.creation_timestamp)
    except UnitError:
        return 0


def controller(meta: Meta) -> Owner | None:
    """Who controls an object, if anybody does."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def see_pod(seen: PodObject, shapes: Shapes) -> SeenPod:
    """What a Pod is to us."""
    meta, spec = seen.metadata, seen.spec
    group = (meta.labels or {}).get(GROUP, "")
    total = (meta.annotations or {}).get(GROUP_TOTAL, "") if group else ""
    return SeenPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        node=spec.node_name,
        life=_LIVES.get(seen.status.phase, Life.PENDING),
        leaving=meta.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        scheduler=spec.scheduler_name,
        owner=controller(meta),
        group=group,
        group_total=int(total) if total.isdecimal() and len(total) < 7 else 0,
        created_ms=created_ms(meta),
        shape=shapes.of(meta, spec),
    )
