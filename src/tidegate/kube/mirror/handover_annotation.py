"""What no object of Kubernetes shows and whoever takes over must know, written with the work's own object.

A note travels in the very write that carries a decision out: it is there if and only if that was done.
Must not know: how a note comes about, or what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.kube.mirror.job_patch import NO_ANNOTATIONS
from tidegate.kube.transport.client import JSON, JSON_PATCH, MERGE_PATCH
from tidegate.kube.transport.objects import Meta
from tidegate.kube.transport.writes import Write
from tidegate.manifests.words import STANDING
from tidegate.model.spec import Spec
from tidegate.model.standing import Grant, Standing

#: The longest note that is written: objects have room for 256 KiB of annotations in all.
MOST_BYTES = 16 << 10

_POINTER = f"/metadata/annotations/{STANDING.replace('/', '~1')}"


class HandoverNote(Spec, frozen=True):
    """Where a workload stands, and the nodes that were decided for its pods, in order, each with how many."""

    standing: Standing = Standing()
    nodes: tuple[tuple[str, int], ...] = ()

    def node_names(self) -> list[str]:
        """The node of each pod, in the order of their ordinals."""
        return [name for name, count in self.nodes for _ in range(count)]


def write_note(note: HandoverNote) -> str:
    """A note as text; where the nodes of a very large gang would not fit they are left out."""
    text = msgspec.json.encode(note)
    if len(text) > MOST_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(note, nodes=()))
    return text.decode()


def read_note(text: str) -> HandoverNote | None:
    """A note; None if it cannot be read: somebody else has written it."""
    try:
        return msgspec.json.decode(text, type=HandoverNote)
    except (msgspec.MsgspecError, RecursionError):
        return None


class HandoverReader:
    """Reads many notes: what their workloads were granted is mostly the same, and is kept once."""

    def __init__(self) -> None:
        self._grants: dict[tuple[Grant, ...], tuple[Grant, ...]] = {}

    def read(self, text: str) -> HandoverNote | None:
        """A note; None if it cannot be read."""
        note = read_note(text)
        if note is None or not note.standing.grants:
            return note
        grants = self._grants.setdefault(note.standing.grants, note.standing.grants)
        return HandoverNote(msgspec.structs.replace(note.standing, grants=grants), note.nodes)


def in_runs(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Names in order, with how often each comes in a row."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return tuple(runs)


def annotated(write: Write, text: str, meta: Meta | None = None) -> Write:
    """A write that also leaves a note with the object, which was last seen so; as it is where it cannot."""
    request = write.request
    if request.body is None or not (request.path.endswith("/binding") or request.method == "PATCH"):
        return write
    body = msgspec.json.decode(request.body)
    if request.content_type in (MERGE_PATCH, JSON) and isinstance(body, dict):
        about = body.setdefault("metadata", {})
        about["annotations"] = {**(about.get("annotations") or {}), STANDING: text}
    elif request.content_type == JSON_PATCH and isinstance(body, list):
        whole = next((step for step in body if step["path"] == "/metadata/annotations" and step["op"] == "add"), None)
        if whole is not None:
            whole["value"] = {**whole["value"], STANDING: text}
        elif meta is not None and not meta.annotations:  # none may have come meanwhile
            body += [NO_ANNOTATIONS, {"op": "add", "path": "/metadata/annotations", "value": {STANDING: text}}]
        else:
            body.append({"op": "add", "path": _POINTER, "value": text})
    return write._replace(request=request._replace(body=msgspec.json.encode(body)))
