"""Work cleanup: finds and removes gates, annotations and node selectors that Tidegate wrote into work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from tidegate.deploy.access_review import list_objects
from tidegate.kube.actuator.provisioning import BUFFERS, REQUESTS, TEMPLATES
from tidegate.kube.mirror.job_adapters import KINDS, JobAdapter, find
from tidegate.kube.mirror.job_patch import BEFORE, GATE, undo_steps
from tidegate.kube.transport.client import JSON_PATCH, MERGE_PATCH, ApiRequest, Client
from tidegate.kube.transport.resources import PODS, Resource
from tidegate.kube.transport.response import ApiResponse
from tidegate.kube.transport.writes import Ref, edit, merge
from tidegate.manifests.label_names import IGNORE, KIND, QUEUE, RUNTIME, SUBMIT

#: Annotations that users write.
_THEIRS = frozenset((RUNTIME, SUBMIT, KIND, IGNORE))
_OURS = "tidegate.io/"

#: The name prefix of node requests.
_ASKING = "tidegate-"

_NOT_FOUND, _INVALID = 404, 422

#: Why our changes stay in a running job, and what that means.
_GATE_STAYS = "a gate in its template cannot be removed while it runs; uninstall again when it is over"
_SELECTOR_STAYS = "it runs: its new pods have the same node selector and tolerations"

Steps = list[dict[str, Any]]


class WrittenWork(NamedTuple):
    """An object with our gate, annotations or node selector."""

    ref: Ref
    gate: bool  # it, or pods that it creates, have our gate
    steps: Steps  # JSON patch steps that remove all our changes
    notes: Steps  # those of them that the server always accepts
    template: bool = False  # our changes are in a pod template
    begun: bool = False  # it is suspended with a start time, so its template is immutable


class HeldWork(NamedTuple):
    """Work that nothing starts without Tidegate."""

    ref: Ref
    adapter: JobAdapter | None  # None: a pod whose scheduler is Tidegate


async def find_written(client: Client) -> AsyncIterator[WrittenWork]:
    """All objects with our changes."""
    for adapter in KINDS:
        async for thing in list_objects(client, adapter.resource):
            written = _written_in_job(adapter, thing)
            if written is not None:
                yield written
    async for thing in list_objects(client, PODS):
        written = _written_in_pod(thing)
        if written is not None:
            yield written


async def find_held(client: Client, scheduler: str) -> AsyncIterator[HeldWork]:
    """Suspended jobs that name a queue, and pods that wait for our scheduler."""
    for adapter in KINDS:
        async for thing in list_objects(client, adapter.resource, labelSelector=QUEUE):
            if adapter.suspend and find(thing, adapter.suspend) and not find(thing, ("metadata", "ownerReferences")):
                yield HeldWork(_ref(adapter.resource, thing), adapter)
    waits = f"spec.schedulerName={scheduler},spec.nodeName=,status.phase=Pending"
    async for thing in list_objects(client, PODS, fieldSelector=waits):
        yield HeldWork(_ref(PODS, thing), None)


async def find_node_requests(client: Client) -> AsyncIterator[Ref]:
    """Node requests of jobs."""
    for kind in (REQUESTS, BUFFERS, TEMPLATES):
        async for thing in list_objects(client, kind):
            if thing["metadata"]["name"].startswith(_ASKING) and find(thing, ("metadata", "ownerReferences")):
                yield _ref(kind, thing)


class TakenBack(NamedTuple):
    """The result of a cleanup."""

    done: bool
    left: str = ""  # what stays and why, or why it failed
    gate: bool = False  # pods that it creates have our gate, unless a policy removes it


async def take_back(client: Client, written: WrittenWork) -> TakenBack:
    """Remove our changes, as far as the server allows it."""
    if written.template and written.begun:
        forget = merge(written.ref, {"status": {"startTime": None}}, part="status").request
        await client.ask(ApiRequest("PATCH", forget.path, {}, forget.body, MERGE_PATCH))
    answer = await _edit(client, written.ref, written.steps)
    if answer.ok or answer.status == _NOT_FOUND:
        return TakenBack(done=True)
    if answer.status != _INVALID or not written.template:
        return TakenBack(done=False, left=answer.text())
    if written.notes:
        await _edit(client, written.ref, written.notes)
    return TakenBack(not written.gate, _GATE_STAYS if written.gate else _SELECTOR_STAYS, written.gate)


async def start(client: Client, held: HeldWork) -> str:
    """Unsuspend a job; the error, if there is one."""
    assert held.adapter is not None
    path = "/" + "/".join(map(str, held.adapter.suspend))
    answer = await _edit(client, held.ref, [{"op": "add", "path": path, "value": False}])
    return "" if answer.ok or answer.status == _NOT_FOUND else answer.text()


async def _edit(client: Client, ref: Ref, steps: Steps) -> ApiResponse:
    asked = edit(ref, steps).request
    return await client.ask(ApiRequest("PATCH", asked.path, {}, asked.body, JSON_PATCH))


def _written_in_job(adapter: JobAdapter, thing: Mapping[str, Any]) -> WrittenWork | None:
    waits = bool(adapter.suspend and find(thing, adapter.suspend))
    if _is_over(adapter, thing):  # its template creates no pods any more
        notes = _annotation_steps(thing)
        return WrittenWork(_ref(adapter.resource, thing), gate=False, steps=notes, notes=notes) if notes else None
    undo = [step for step in undo_steps(adapter, thing) if not step["path"].startswith("/metadata/")]
    if not waits:  # the size of a running job stays
        undo = [step for step in undo if step["path"].endswith(("/nodeSelector", "/schedulingGates", "/tolerations"))]
    notes = _annotation_steps(thing)
    if not undo and not notes:
        return None
    gate = any(step["path"].endswith("/schedulingGates") for step in undo)
    begun = waits and find(thing, ("status", "startTime")) is not None
    kept = [step for step in notes if not (gate and step["path"].endswith(_pointer(BEFORE)))]
    return WrittenWork(_ref(adapter.resource, thing), gate, [*undo, *notes], kept, bool(undo), begun)


def _is_over(adapter: JobAdapter, thing: Mapping[str, Any]) -> bool:
    conditions = find(thing, ("status", "conditions")) or ()
    return any(one.get("type") in adapter.over and one.get("status") == "True" for one in conditions)


def _written_in_pod(thing: Mapping[str, Any]) -> WrittenWork | None:
    gates = [gate.get("name") for gate in find(thing, ("spec", "schedulingGates")) or ()]
    notes, lift = _annotation_steps(thing), list[dict[str, Any]]()
    if GATE in gates:
        path = f"/spec/schedulingGates/{gates.index(GATE)}"
        lift = [{"op": "test", "path": f"{path}/name", "value": GATE}, {"op": "remove", "path": path}]
    if not lift and not notes:
        return None
    return WrittenWork(_ref(PODS, thing), gate=bool(lift), steps=[*lift, *notes], notes=notes)


def _annotation_steps(thing: Mapping[str, Any]) -> Steps:
    """JSON patch steps that remove our annotations."""
    found = find(thing, ("metadata", "annotations")) or {}
    ours = sorted(key for key in found if key.startswith(_OURS) and key not in _THEIRS)
    return [{"op": "remove", "path": f"/metadata/annotations/{_pointer(key)}"} for key in ours]


def _pointer(key: str) -> str:
    return key.replace("/", "~1")


def _ref(kind: Resource, thing: Mapping[str, Any]) -> Ref:
    meta = thing["metadata"]
    return Ref(kind, meta.get("namespace", ""), meta["name"], meta["uid"])
