"""Jobs of every kind as objects of the API server: requests, suspension, completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.mirror.job_adapters import OWNERS, JobAdapter, find, mappings
from tidegate.kube.mirror.job_patch import is_noted, restored
from tidegate.kube.mirror.pod_spec_cache import refusals, unbindable
from tidegate.kube.mirror.pods import controller
from tidegate.kube.transport.objects import KubeObjectMeta, KubeOwnerReference, time_ms
from tidegate.kube.transport.writes import Ref
from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import check_fields
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.jobs.pod_parts import JobParts
from tidegate.manifests.jobs.to_workload import read_parts
from tidegate.manifests.kinds import KINDS
from tidegate.manifests.label_names import KNOWN_LABELS, QUEUE, RECOVERY
from tidegate.model.work import Recovery, Work


class JobObject(msgspec.Struct, frozen=True):
    """A job of any kind as the API server has it."""

    metadata: KubeObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")

    def kept(self) -> JobObject:
        """A copy that does not keep the page alive that it was decoded from."""
        return JobObject(self.metadata, self.spec.copy(), self.status.copy())


class SeenJob(NamedTuple):
    """An observed job."""

    ref: Ref
    adapter: JobAdapter
    thing: bytes  # metadata and spec, as far as writes depend on them
    version: str
    generation: int
    work: Work | None  # None: it requests nothing, or cannot be decoded
    suspended: bool
    started: bool  # Tidegate started it
    begun: bool  # it has a start time, which makes its template immutable
    reclaimable: Mapping[str, int]  # pods that are done and not created again, by pod set
    over: bool
    terminating: bool
    schedulers: frozenset[str]  # of its pods
    queued: bool  # it names a queue
    owner: KubeOwnerReference | None  # a job that owns it
    created_ms: int
    refusals: tuple[str, ...]  # why it is not supported
    unbound: tuple[str, ...]  # why Tidegate cannot bind its pods, though kube-scheduler could

    def annotation(self, key: str) -> str:
        """An annotation as last observed; empty if there is none."""
        found = find(msgspec.json.decode(self.thing), ("metadata", "annotations", key))
        return found if isinstance(found, str) else ""

    def wanted(self) -> dict[str, int]:
        """How many pods it still creates, by pod set."""
        sets = self.work.pod_sets if self.work is not None else ()
        return {pods.name: pods.count - self.reclaimable.get(pods.name, 0) for pods in sets}


def see_job(seen: JobObject, adapter: JobAdapter, around: ClusterDefaults) -> SeenJob:
    """Decode a job."""
    meta = seen.metadata
    thing = _thing(seen)
    suspended, started = bool(adapter.suspend and find(thing, adapter.suspend)), is_noted(thing)
    item = _item(meta, adapter, (restored(adapter, thing) if suspended else thing)["spec"])
    parts = _read(item, adapter, around)
    read = read_parts(item, parts, around) if parts.groups else []
    owner = controller(meta)
    return SeenJob(
        ref=Ref(adapter.resource, meta.namespace, meta.name, meta.uid),
        adapter=adapter,
        thing=msgspec.json.encode({"metadata": thing["metadata"], "spec": thing["spec"]}),
        version=meta.resource_version,
        generation=meta.generation,
        work=_with_recovery(read[0].planned.workload.work, adapter, meta) if read else None,
        suspended=suspended,
        started=started,
        begun="startTime" in thing["status"],
        reclaimable=adapter.reclaimable(thing) if adapter.reclaimable is not None else {},
        over=_is_over(adapter, thing),
        terminating=meta.deletion_timestamp is not None,
        schedulers=frozenset(group.template.quiet().mapping("spec").text("schedulerName") for group in parts.groups),
        queued=bool((meta.labels or {}).get(QUEUE)),
        owner=owner if owner is not None and owner.group_kind in OWNERS else None,
        created_ms=time_ms(meta.creation_timestamp),
        refusals=(*refusals(item.findings), *_bad_recovery(meta)),
        unbound=unbindable(item.findings),
    )


def _with_recovery(work: Work, adapter: JobAdapter, meta: KubeObjectMeta) -> Work:
    """The work with its recovery rule: from its label, or else from its kind."""
    said = (meta.labels or {}).get(RECOVERY, "")
    recovery = Recovery(said) if said in tuple(Recovery) else adapter.recovery
    return msgspec.structs.replace(work, recovery=recovery)


def _bad_recovery(meta: KubeObjectMeta) -> tuple[str, ...]:
    """Why the recovery label is invalid."""
    said = (meta.labels or {}).get(RECOVERY, "")
    if not said or said in tuple(Recovery):
        return ()
    return (f"metadata.labels[{RECOVERY}]: expected {' or '.join(Recovery)}, found {said}",)


def _thing(seen: JobObject) -> dict[str, Any]:
    meta = seen.metadata
    about: dict[str, Any] = {"resourceVersion": meta.resource_version}
    if meta.annotations is not None:
        about["annotations"] = meta.annotations
    spec, status = msgspec.json.decode(seen.spec), msgspec.json.decode(seen.status)
    return {
        "metadata": about,
        "spec": spec if isinstance(spec, dict) else {},
        "status": status if isinstance(status, dict) else {},
    }


def _item(meta: KubeObjectMeta, adapter: JobAdapter, spec: dict[str, Any]) -> Item:
    """The object as `manifests` decodes it, with the known labels and annotations only."""
    resource = adapter.resource
    about = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": {key: value for key, value in (meta.labels or {}).items() if key in KNOWN_LABELS},
        "annotations": {key: value for key, value in (meta.annotations or {}).items() if key in KNOWN_LABELS},
    }
    value = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about, "spec": spec}
    return Item(value, ManifestFindings(), ObjectOrigin(kind=resource.kind, name=f"{meta.namespace}/{meta.name}"))


def _read(item: Item, adapter: JobAdapter, around: ClusterDefaults) -> JobParts:
    kind = KINDS[adapter.key].job
    assert kind is not None
    check_fields(item, kind.form)
    return kind.split(item, around)


def _is_over(adapter: JobAdapter, thing: dict[str, Any]) -> bool:
    conditions = mappings(thing, ("status", "conditions"))
    true = {str(one.get("type")) for one in conditions if one.get("status") == "True"}
    said = any(find(thing, path) in words for path, words in adapter.over_states.items())
    return said or bool(true & set(adapter.over))
