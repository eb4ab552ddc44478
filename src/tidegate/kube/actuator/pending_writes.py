"""Pending writes, each with the decisions that it carries out; like expectations, slots remember them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.mirror.handover_annotation import HandoverNote, write_note
from tidegate.kube.mirror.job_adapters import Path, find
from tidegate.kube.mirror.job_patch import BEFORE, JobStart, is_noted, start_steps, undo_steps, with_tolerations
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.mirror.pods import SeenPod
from tidegate.kube.mirror.workload_pods import WorkloadPods
from tidegate.kube.transport.writes import Ref, Write, bind, edit, evict, looked_up, merge, pod_ref
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.model.decisions import NOBODY


class WriteKind(IntEnum):
    """The kind of a write."""

    BIND = 0
    START = 1  # unsuspend a job
    STOP = 2  # suspend a job, or evict a pod
    REPORT = 3  # Events, conditions and other writes that no decision depends on
    UNGATE = 4  # remove our scheduling gate from a pod
    UNDO = 5  # undo our changes to a suspended job
    TRIM = 7  # set a running job back to its admitted size
    NOTE_SIZE = 8  # write into a job's annotation that it holds fewer pods
    ALLOCATE = 6  # allocate devices to a pod's claims, before it is bound


class PendingWrite(NamedTuple):
    """A write, and the decisions that it carries out."""

    write_kind: WriteKind
    write: Write
    decisions: tuple[int, ...]
    workload: int  # number
    slot: int = -1
    again: int = 0  # how often it was retried
    generation: int = 0  # of the job it was made from


def binding(workload: WorkloadPods, ordinal: int, pod: Ref, node: str) -> PendingWrite:
    """Bind the pod of a slot to its node."""
    return PendingWrite(WriteKind.BIND, bind(pod, node), _decisions(workload, ordinal), workload.number, ordinal)


def allocating(workload: WorkloadPods, ordinal: int, writes: list[Write]) -> list[PendingWrite]:
    """Allocate devices to the claims of a slot's pod."""
    return [PendingWrite(WriteKind.ALLOCATE, write, (), workload.number, ordinal) for write in writes]


def ungating(
    workload: WorkloadPods, ordinal: int, pod: SeenPod, selector: Mapping[str, str], more: Sequence[dict[str, str]]
) -> PendingWrite:
    """Remove the gate of a slot's pod, and add a node selector and tolerations."""
    spec: dict[str, object] = {"schedulingGates": None}
    if selector:
        spec["nodeSelector"] = selector
    if needs_tolerations(pod, more):  # the list is replaced; the server refuses to drop one that was added meanwhile
        spec["tolerations"] = with_tolerations(_tolerations(pod), more)
    write = merge(pod.ref, {"metadata": {"annotations": {BEFORE: "{}"}}, "spec": spec})
    return PendingWrite(WriteKind.UNGATE, write, _decisions(workload, ordinal), workload.number, ordinal)


def needs_tolerations(pod: SeenPod, wanted: Sequence[dict[str, str]]) -> bool:
    """Whether a pod lacks some of these tolerations. The server lets them be added to any pod."""
    return bool(wanted) and any(one not in _tolerations(pod) for one in wanted)


def _tolerations(pod: SeenPod) -> list[dict[str, Any]]:
    return pod.shape.item.value["spec"].get("tolerations") or []


def starting(workload: WorkloadPods, job: SeenJob, start: JobStart) -> PendingWrite:
    """Unsuspend a job: this write carries out all decisions about it."""
    decisions = tuple(slot.decision for slot in workload.slots if slot.decision != NOBODY)
    steps = start_steps(job.adapter, msgspec.json.decode(job.thing), start)
    suspend = job.adapter.suspend
    write = looked_up(edit(job.ref, [_unchanged(job), *steps]), job.ref, lambda thing: not find(thing, suspend))
    return PendingWrite(WriteKind.START, write, decisions, workload.number, generation=job.generation)


def trimming(workload: WorkloadPods, job: SeenJob, size: int) -> PendingWrite:
    """Set a running job back to the number of pods it holds quota for."""
    pointer = "/" + "/".join(map(str, job.adapter.size))
    write = edit(job.ref, [_unchanged(job), {"op": "replace", "path": pointer, "value": size}])
    return PendingWrite(WriteKind.TRIM, write, (), workload.number, generation=job.generation)


def noting_size(workload: WorkloadPods, job: SeenJob, note: HandoverNote) -> PendingWrite:
    """Write that a running job holds less, unless its spec or annotation changed meanwhile."""
    path = f"/metadata/annotations/{HANDOVER_NOTE.replace('/', '~1')}"
    unchanged = {"op": "test", "path": path, "value": job.annotation(HANDOVER_NOTE)}
    change = {"op": "replace", "path": path, "value": write_note(note)}
    write = edit(job.ref, [_unchanged(job), unchanged, change])
    return PendingWrite(WriteKind.NOTE_SIZE, write, (), workload.number, generation=job.generation)


def undoing(workload: WorkloadPods, job: SeenJob) -> list[PendingWrite]:
    """Undo our changes to a suspended job; its start time has to be cleared for that."""
    writes = []
    if job.begun:
        forget = merge(job.ref, {"status": {"startTime": None}}, part="status")
        writes.append(PendingWrite(WriteKind.UNDO, forget, (), workload.number))
    steps = undo_steps(job.adapter, msgspec.json.decode(job.thing))
    write = looked_up(edit(job.ref, [_unchanged(job), *steps]), job.ref, lambda thing: not is_noted(thing))
    return [*writes, PendingWrite(WriteKind.UNDO, write, (), workload.number)]


def stopping_job(workload: WorkloadPods, job: SeenJob, decision: int) -> PendingWrite:
    """Suspend a job: its controller deletes its pods."""
    write = merge(job.ref, _nested(job.adapter.suspend, value=True))
    return PendingWrite(WriteKind.STOP, write, _known(decision), workload.number)


def stopping_pod(workload: WorkloadPods, ordinal: int, pod: Ref, decision: int) -> PendingWrite:
    """Evict a pod, as its PodDisruptionBudget allows; otherwise the eviction is retried."""
    return PendingWrite(WriteKind.STOP, evict(pod), _known(decision), workload.number, ordinal)


def evicted_pod(pending: PendingWrite) -> Ref:
    """The pod of an eviction."""
    *_, namespace, _, name, _ = pending.write.request.path.split("/")
    return pod_ref(namespace, name, pending.write.key)


def reporting(write: Write) -> PendingWrite:
    """A write that no decision depends on."""
    return PendingWrite(WriteKind.REPORT, write, (), NOBODY)


def _decisions(workload: WorkloadPods, ordinal: int) -> tuple[int, ...]:
    return _known(workload.slots[ordinal].decision)


def _known(decision: int) -> tuple[int, ...]:
    """A decision that awaits its outcome; none if the previous leader made it."""
    return () if decision == NOBODY else (decision,)


def _unchanged(job: SeenJob) -> dict[str, Any]:
    """The JSON patch step that fails if the job's spec changed since it was observed."""
    return {"op": "test", "path": "/metadata/generation", "value": job.generation}


def _nested(path: Path, *, value: object) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value
