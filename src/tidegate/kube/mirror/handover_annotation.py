"""The handover annotation: what a workload holds and where its pods run, for the next leader.

The write that carries out a decision has the annotation, so it exists if and only if that write was done. Everyone who
may write the object may forge it, so it is bounded, versioned and decoded field by field; `handover_check` decides how
much of it is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta as Limit

from tidegate.kube.mirror.job_patch import NO_ANNOTATIONS
from tidegate.kube.transport.client import JSON, JSON_PATCH, MERGE_PATCH
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.kube.transport.writes import Write
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.model.observed_status import DomainAssignment, ObservedStatus, PodSetAssignment
from tidegate.model.struct import Spec
from tidegate.state.classes import MOST_PODS

#: The longest annotation that is written or decoded: an object has room for 256 KiB of annotations.
MOST_BYTES = 16 << 10

#: The version of the fields. Added fields do not change it; an annotation with a higher one is ignored.
VERSION = 1

_POINTER = f"/metadata/annotations/{HANDOVER_NOTE.replace('/', '~1')}"

_Name = Annotated[str, Limit(max_length=253)]
_Pods = Annotated[int, Limit(ge=0, le=MOST_PODS)]
_TimeMs = Annotated[int, Limit(ge=0, le=1 << 50)]


class HandoverNote(Spec, frozen=True):
    """What a workload holds, and the decided nodes of its pods in order, each with a count."""

    standing: ObservedStatus = ObservedStatus()
    nodes: tuple[tuple[str, int], ...] = ()

    def node_names(self) -> list[str]:
        """The node of each pod, in the order of their ordinals."""
        return [name for name, count in self.nodes for _ in range(count)]

    def pods(self) -> int:
        """The number of pods with quota or nodes in it."""
        return max(sum(grant.count for grant in self.standing.grants), sum(count for _, count in self.nodes))

    def with_fewer(self, sizes: Mapping[str, int], nodes: list[str]) -> HandoverNote:
        """The annotation for at most so many pods by pod set, on these nodes."""
        grants = tuple(
            msgspec.structs.replace(grant, count=min(grant.count, sizes.get(grant.pod_set, grant.count)))
            for grant in self.standing.grants
        )
        kept = nodes if all(nodes) else self.node_names()[: len(nodes)]
        standing = msgspec.structs.replace(self.standing, grants=grants)
        return HandoverNote(standing=standing, nodes=in_runs(kept) if self.nodes else ())


class _SpotText(msgspec.Struct, frozen=True):
    values: Annotated[tuple[_Name, ...], Limit(min_length=1, max_length=16)]
    count: Annotated[int, Limit(ge=1, le=MOST_PODS)]


class _GrantText(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod set was granted: flavors, not amounts, which follow from its requests."""

    pod_set: _Name
    count: _Pods
    flavors: tuple[tuple[_Name, _Name], ...] = ()
    spots: tuple[_SpotText, ...] = ()
    awaits_topology: bool = False


class _StandingText(msgspec.Struct, frozen=True, omit_defaults=True):
    queue: _Name = ""
    grants: tuple[_GrantText, ...] = ()
    granted_ms: _TimeMs = 0
    evicted: _Name = ""
    evictions: Annotated[int, Limit(ge=0, le=1_000_000)] = 0


class _NoteText(msgspec.Struct, frozen=True):
    """The annotation as JSON; unknown fields of newer versions are ignored."""

    version: int = VERSION
    standing: _StandingText = _StandingText()
    nodes: tuple[tuple[_Name, Annotated[int, Limit(ge=1, le=MOST_PODS)]], ...] = ()


def write_note(note: HandoverNote) -> str:
    """Encode the annotation; the nodes of a very large gang are left out if they do not fit."""
    told = note.standing
    grants = tuple(
        _GrantText(
            grant.pod_set,
            grant.count,
            grant.flavors,
            tuple(_SpotText(spot.values, spot.count) for spot in grant.spots),
            grant.awaits_topology,
        )
        for grant in told.grants
    )
    standing = _StandingText(told.queue, grants, told.granted_ms, told.evicted, told.evictions)
    text = msgspec.json.encode(_NoteText(VERSION, standing, note.nodes))
    if len(text) > MOST_BYTES:
        text = msgspec.json.encode(_NoteText(VERSION, standing))
    return text.decode()


def read_note(text: str) -> HandoverNote | None:
    """Decode the annotation; None if it is invalid, or of a newer version."""
    if len(text) > MOST_BYTES:
        return None
    try:
        found = msgspec.json.decode(text, type=_NoteText)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not 0 < found.version <= VERSION or sum(count for _, count in found.nodes) > MOST_PODS:
        return None
    return HandoverNote(standing=_standing(found.standing), nodes=found.nodes)


def _standing(found: _StandingText) -> ObservedStatus:
    grants = tuple(
        PodSetAssignment(
            pod_set=grant.pod_set,
            count=grant.count,
            flavors=grant.flavors,
            spots=tuple(DomainAssignment(values=spot.values, count=spot.count) for spot in grant.spots),
            awaits_topology=grant.awaits_topology,
        )
        for grant in found.grants
    )
    return ObservedStatus(
        queue=found.queue,
        grants=grants,
        granted_ms=found.granted_ms,
        evicted=found.evicted,
        admitted=bool(found.queue and grants),
        evictions=found.evictions,
    )


def in_runs(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Run-length encode names."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return tuple(runs)


def annotated(write: Write, text: str, meta: KubeObjectMeta | None = None) -> Write:
    """Add the handover annotation to a write, if it can carry one; `meta` is the object as last observed."""
    request = write.request
    if request.body is None or not (request.path.endswith("/binding") or request.method == "PATCH"):
        return write
    body = msgspec.json.decode(request.body)
    if request.content_type in (MERGE_PATCH, JSON) and isinstance(body, dict):
        about = body.setdefault("metadata", {})
        about["annotations"] = {**(about.get("annotations") or {}), HANDOVER_NOTE: text}
    elif request.content_type == JSON_PATCH and isinstance(body, list):
        whole = next((step for step in body if step["path"] == "/metadata/annotations" and step["op"] == "add"), None)
        if whole is not None:
            whole["value"] = {**whole["value"], HANDOVER_NOTE: text}
        elif meta is not None and not meta.annotations:  # it fails if the first one was added meanwhile
            body += [NO_ANNOTATIONS, {"op": "add", "path": "/metadata/annotations", "value": {HANDOVER_NOTE: text}}]
        else:
            body.append({"op": "add", "path": _POINTER, "value": text})
    return write._replace(request=request._replace(body=msgspec.json.encode(body)))
