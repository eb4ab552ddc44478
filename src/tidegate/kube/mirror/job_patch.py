"""Job patches: the changes to a job that start it, and how they are undone when it is suspended again.

Pods get the node labels of their flavors as a node selector, and their tolerations. A gang on one node gets that node
in the template's node selector. Pods on several nodes, and pods that recover alone, are created behind a scheduling
gate, and each gets its own node selector. A job that starts with fewer pods has a smaller size in its spec. An
annotation keeps the former values, written and removed together with the changes, so that any leader can undo them;
a suspended job is decoded as its owner wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from tidegate.kube.mirror.job_adapters import JobAdapter, Path, find, mappings

#: The scheduling gate that holds a pod until it is admitted.
GATE = "tidegate.io/admission"

#: The annotation with the former values of changed fields; a job that has it was started by Tidegate.
BEFORE = "tidegate.io/before"

#: The longest annotation that is decoded; node selectors and gates of all pod sets take a fraction of it.
_MOST_BYTES = 64 << 10

#: The label by which a node selector names a node.
HOST = "kubernetes.io/hostname"

#: The annotation of a job whose completions equal its parallelism.
EQUAL = "kueue.x-k8s.io/job-completions-equal-parallelism"
_COMPLETIONS: Path = ("spec", "completions")

#: The JSON patch step that fails if an object has annotations. A test of its resourceVersion would fail whenever its
#: controller writes the status.
NO_ANNOTATIONS = {"op": "test", "path": "/metadata/annotations", "value": None}

#: The manager of our patches in a job that refers to a runtime.
_PATCHER = "tidegate.io/tidegate"


class PodSetHosts(NamedTuple):
    """Where the pods of a set run."""

    pods: int
    hosts: tuple[str, ...]  # each once; empty: any
    labels: Mapping[str, str] = {}  # node labels of its flavors
    tolerations: tuple[dict[str, str], ...] = ()  # of its flavors

    @property
    def is_anywhere(self) -> bool:
        """Whether nothing is written for it."""
        return not (self.hosts or self.labels or self.tolerations)


class JobStart(NamedTuple):
    """How to start a job."""

    places: Mapping[str, PodSetHosts] = {}  # by pod set; empty: only unsuspend
    counts: bool = False  # it starts with fewer pods than it requests
    notes: bool = True  # mark it as started by Tidegate even if nothing else changes
    gated: bool = False  # each pod gets its own node, so that one created again may get another


def start_steps(adapter: JobAdapter, thing: Mapping[str, Any], start: JobStart) -> list[dict[str, Any]]:
    """The JSON patch steps that start a job; only changes."""
    base = restored(adapter, thing)
    wanted = dict(_wanted(adapter, base, start))
    note = {_pointer(path): [find(base, path), value] for path, value in wanted.items()}
    steps = []
    for path in _our_fields(adapter, thing):
        steps += _change(thing, path, wanted.get(path, find(base, path)))
    if find(thing, adapter.suspend):
        steps += _change(thing, adapter.suspend, value=False)
    return [*steps, *_note(thing, json.dumps(note, sort_keys=True))] if note or start.notes else steps


def undo_steps(adapter: JobAdapter, thing: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch steps that undo our changes and remove the annotation; nothing without it."""
    if not is_noted(thing):
        return []
    base, steps = restored(adapter, thing), []
    for path in _our_fields(adapter, thing):
        steps += _change(thing, path, find(base, path))
    return [*steps, {"op": "remove", "path": _pointer(("metadata", "annotations", BEFORE))}]


def is_noted(thing: Mapping[str, Any]) -> bool:
    """Whether Tidegate started an object."""
    return isinstance(find(thing, ("metadata", "annotations", BEFORE)), str)


def restored(adapter: JobAdapter, thing: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object as its owner wrote it, without our changes."""
    note = _read_before(thing)
    if not note:
        return thing
    copy = deepcopy(dict(thing))
    for path in _our_fields(adapter, thing):
        told = note.get(_pointer(path))
        inner = find(copy, path[:-1])
        if isinstance(told, list) and len(told) == 2 and isinstance(inner, dict):
            value = _taken_back(str(path[-1]), inner.get(path[-1]), *told)
            if value is None:
                inner.pop(path[-1], None)
            else:
                inner[path[-1]] = value
    return copy


# -- writes -----------------------------------------------------------------------------------------------------


def _wanted(adapter: JobAdapter, thing: Mapping[str, Any], start: JobStart) -> Iterator[tuple[Path, Any]]:
    """The fields to change, and their new values."""
    templates = dict(adapter.templates(thing))
    if adapter.patches and not all(place.is_anywhere for place in start.places.values()):
        yield ("spec", "runtimePatches"), [*_other_patches(thing), _patch(start)]
    for name, place in start.places.items():
        if name in templates:
            yield from _directed_fields(thing, (*templates[name], "spec"), place, gated=start.gated)
        if start.counts and adapter.size:
            yield adapter.size, place.pods
            if find(thing, ("metadata", "annotations", EQUAL)) == "true":
                yield _COMPLETIONS, place.pods


def _directed_fields(
    thing: Mapping[str, Any], spec: Path, place: PodSetHosts, *, gated: bool
) -> Iterator[tuple[Path, Any]]:
    """The fields of a template that choose nodes for its pods."""
    to_one = len(place.hosts) == 1 and not gated
    wanted = {**place.labels, **({HOST: place.hosts[0]} if to_one else {})}
    if wanted:
        selector = find(thing, (*spec, "nodeSelector"))
        yield (*spec, "nodeSelector"), {**(selector if isinstance(selector, dict) else {}), **wanted}
    if place.hosts and not to_one:
        gates = [gate for gate in mappings(thing, (*spec, "schedulingGates")) if gate.get("name") != GATE]
        yield (*spec, "schedulingGates"), [*gates, {"name": GATE}]
    if place.tolerations:
        yield (*spec, "tolerations"), with_tolerations(mappings(thing, (*spec, "tolerations")), place.tolerations)


def with_tolerations(there: list[dict[str, Any]], more: Iterable[dict[str, str]]) -> list[dict[str, Any]]:
    """Tolerations of pods and more of them, each once."""
    return [*there, *(one for one in more if one not in there)]


def _patch(start: JobStart) -> dict[str, Any]:
    jobs = [
        {"name": name, "template": {"spec": {"template": {"spec": _directed_alone(place, gated=start.gated)}}}}
        for name, place in start.places.items()
        if not place.is_anywhere
    ]
    return {"manager": _PATCHER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _directed_alone(place: PodSetHosts, *, gated: bool) -> dict[str, Any]:
    return {str(path[-1]): value for path, value in _directed_fields({}, (), place, gated=gated)}


def _other_patches(thing: Mapping[str, Any]) -> list[Any]:
    return [patch for patch in mappings(thing, ("spec", "runtimePatches")) if patch.get("manager") != _PATCHER]


# -- the former values -----------------------------------------------------------------------------------------


def _read_before(thing: Mapping[str, Any]) -> dict[str, Any]:
    """The former and written values of changed fields, by JSON pointer."""
    noted = find(thing, ("metadata", "annotations", BEFORE))
    if not isinstance(noted, str) or len(noted) > _MOST_BYTES:
        return {}
    try:
        note = json.loads(noted)
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _taken_back(name: str, found: Any, before: Any, wrote: Any) -> Any:
    """The restored value of a field; if its owner changed it since, only our part is removed."""
    if found == wrote:
        return before
    if name == "nodeSelector" and isinstance(found, dict):
        had, put = (part if isinstance(part, dict) else {} for part in (before, wrote))
        ours = {key for key, value in put.items() if had.get(key) != value == found.get(key)} | {HOST}
        kept = {key: value for key, value in found.items() if key not in ours}
        return {**kept, **{key: had[key] for key in ours & had.keys()}} or None
    if name == "tolerations" and isinstance(found, list):
        theirs, given = (part if isinstance(part, list) else [] for part in (before, wrote))
        return [one for one in found if one in theirs or one not in given] or None
    if name == "schedulingGates" and isinstance(found, list):
        return [gate for gate in found if find(gate, ("name",)) != GATE] or None
    if name == "runtimePatches" and isinstance(found, list):
        return [patch for patch in found if find(patch, ("manager",)) != _PATCHER] or None
    return found


def _our_fields(adapter: JobAdapter, thing: Mapping[str, Any]) -> Iterator[Path]:
    """Every field that Tidegate may change apart from suspend: a forged annotation cannot name others."""
    for _, path in adapter.templates(thing):
        yield (*path, "spec", "nodeSelector")
        yield (*path, "spec", "schedulingGates")
        yield (*path, "spec", "tolerations")
    if adapter.patches:
        yield ("spec", "runtimePatches")
    if adapter.size:
        yield adapter.size
        yield _COMPLETIONS


def _note(thing: Mapping[str, Any], text: str) -> list[dict[str, Any]]:
    """The steps that write the annotation; they fail if the first annotation was added meanwhile."""
    meta = find(thing, ("metadata",)) or {}
    if isinstance(meta.get("annotations"), dict):
        return _change(thing, ("metadata", "annotations", BEFORE), text)
    return [NO_ANNOTATIONS, {"op": "add", "path": "/metadata/annotations", "value": {BEFORE: text}}]


def _change(thing: Mapping[str, Any], path: Path, value: Any) -> list[dict[str, Any]]:
    """The step that sets or removes a field; none if it has that value already."""
    if find(thing, path) == value:
        return []
    if value is None:
        return [{"op": "remove", "path": _pointer(path)}]
    return [{"op": "add", "path": _pointer(path), "value": value}]


def _pointer(path: Path) -> str:
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)
