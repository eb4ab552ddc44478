"""Reads the output of `kubectl get … -o json` or `-o yaml`: a List, or one object after the other.

Workloads of Kueue, jobs of every kind and pods become jobs; nodes become capacity, at the latest time that the dump
shows. What objects ask for is read by `manifests`; here is when they began and ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tidegate.demand.tables import CAPACITY
from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.core_objects import read_node
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings
from tidegate.manifests.import_queues import read_cluster_defaults, read_kueue_configuration
from tidegate.manifests.import_workloads import ObjectKey, object_key, owners_of_workloads
from tidegate.manifests.jobs.pod import POD
from tidegate.manifests.jobs.to_workload import read_job
from tidegate.manifests.kinds import KINDS, KUEUE
from tidegate.manifests.kueue_workload import read_workload
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, ManifestDocument, ObjectIndex, index_objects
from tidegate.manifests.object_meta import ManifestMeta, read_meta
from tidegate.manifests.workload_status import Condition, read_conditions
from tidegate.model.problem import Severity, printable
from tidegate.model.work import GpuRequest, Share, WorkKind, Workload
from tidegate.sources.detect_columns import ColumnOverride
from tidegate.sources.findings import CellPlace, Code, SourceError, SourceFinding
from tidegate.sources.options import CanonicalTable, Format
from tidegate.sources.source_result import SourceTable, source_table
from tidegate.sources.table_file import table_in_memory
from tidegate.sources.table_reader import TableHints, read_table_file
from tidegate.sources.yaml_data import FileReadError
from tidegate.sources.yaml_file import read_all

#: Compute slices of a whole GPU, of which a MIG profile names its part.
_SLICES = 7

_OVER = {"Complete": "done", "Completed": "done", "Succeeded": "done", "Finished": "done", "Failed": "failed"}
_SERVES = ("Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet", "RayService", "InferenceService")
_SESSIONS = ("Notebook", "Workspace")


class JobTimes(NamedTuple):
    """When an object began and ended."""

    started_ms: int | None = None
    ended_ms: int | None = None
    outcome: str = "pending"


def read_kubectl_dump(paths: list[Path]) -> list[SourceTable]:
    """The tables of files that belong to one cluster; a SourceError says why there are none."""
    name = printable(", ".join(str(path) for path in paths[:3]) + (" …" if len(paths) > 3 else ""))
    found = ManifestFindings()
    objects = index_objects([document for path in paths for document in _documents(path)], found)
    around = read_cluster_defaults(objects, read_kueue_configuration(objects))
    rows, owned = _jobs(objects, around)
    findings = [*_said(found, name)]
    if owned:
        findings.append(SourceFinding(Code.OWNED_OBJECT, name, owned))
    parts = []
    times = _observed_ms(objects, rows)
    if rows:
        parts.append(_part(name, rows, tuple(findings), max(times, default=None)))
    capacity = _capacity(objects, rows, times)
    if capacity:
        frame = pl.DataFrame(capacity, schema=CAPACITY)
        parts.append(
            source_table(name, Format.KUBERNETES, CanonicalTable.CAPACITY, frame, () if rows else tuple(findings))
        )
    if not parts:
        findings_text = "; ".join(found.texts()[:3])
        raise SourceError(
            f"{name}: has no Job, Workload, Pod or Node: expected kubectl get … -o json"
            + (f"; {findings_text}" if findings_text else "")
        )
    return parts


# -- documents -------------------------------------------------------------------------------------------------


def _documents(path: Path) -> Iterator[ManifestDocument]:
    name = printable(str(path))
    try:
        if path.suffix in (".yaml", ".yml"):
            values: Iterable[Any] = [plain.data for plain in read_all(path)]
        else:
            values = _json_values(path.read_text(encoding="utf-8"))
        for number, value in enumerate(values, 1):
            yield ManifestDocument(value, name, number)
    except FileReadError as error:
        line = f":{error.place.line}" if error.place else ""
        raise SourceError(f"{name}{line}: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{name}:{error.lineno}: is not JSON: {error.msg}; was it cut short? Export it again"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{name}: cannot be read: {error}") from None


def _json_values(text: str) -> Iterator[Any]:
    """One JSON value after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        yield value


def _said(found: ManifestFindings, name: str) -> Iterator[SourceFinding]:
    """What manifests say, as findings: what cannot be read, and what is left out."""
    wrong = [one for one in found.listed if one.problem.severity is Severity.ERROR]
    left = [
        one for one in found.listed if one.problem.severity is Severity.WARNING and "is not read" in one.problem.found
    ]
    for code, listed in ((Code.UNREADABLE_CELL, wrong), (Code.OBJECT_LEFT_OUT, left)):
        if listed:
            places = tuple(CellPlace(0, one.origin.about(), "") for one in listed[:3])
            yield SourceFinding(code, name, len(listed), places, "object", more=listed[0].problem.text())


# -- work ------------------------------------------------------------------------------------------------------


def _jobs(objects: ObjectIndex, around: ClusterDefaults) -> tuple[list[dict[str, Any]], int]:
    """A row for each piece of work, and how many objects another one speaks for."""
    rows: list[dict[str, Any]] = []
    represented, owned = owners_of_workloads(objects), 0
    for item in objects.of(KUEUE, "Workload"):
        meta = read_meta(item.quiet(), DEFAULT_NAMESPACE)
        kind = next((_kind_of_owner(owner.kind) for owner in meta.owners), "batch")
        rows.append(_row(read_workload(item, around), _workload_times(item), kind))
    there = {object_key(key, item) for key, item in objects.jobs()} | represented
    for key, item in [*objects.jobs(), *((("", "Pod"), pod) for pod in objects.of("", "Pod"))]:
        meta = read_meta(item.quiet(), DEFAULT_NAMESPACE)
        if (*key, meta.namespace, meta.name) in represented or _is_owned(meta, there):
            owned += 1
            continue
        shape = KINDS[key].job if key != ("", "Pod") else POD
        assert shape is not None
        life = _pod_times(item) if key == ("", "Pod") else _job_times(item)
        for one in read_job(item, shape, around):
            work = one.planned.workload
            owner = next((owner.kind for owner in meta.owners), key[1])
            named = (
                _kind_of_owner(owner) if work.work.kind in (WorkKind.BATCH, WorkKind.TRAINING) else str(work.work.kind)
            )
            rows.append(_row(work, life, named))
    return rows, owned


def _is_owned(meta: ManifestMeta, there: set[ObjectKey]) -> bool:
    """Whether an owner is there; a Deployment owns a pod through a ReplicaSet named after it."""
    for owner in meta.owners:
        deployment = owner.name.rpartition("-")[0]
        if (owner.group, owner.kind, meta.namespace, owner.name) in there:
            return True
        if owner.kind == "ReplicaSet" and ("apps", "Deployment", meta.namespace, deployment) in there:
            return True
    return False


def _kind_of_owner(kind: str) -> str:
    if kind in _SERVES:
        return "inference"
    return "interactive" if kind in _SESSIONS else "batch"


def _row(workload: Workload, life: JobTimes, kind: str) -> dict[str, Any]:
    sets = workload.work.pod_sets
    queue = workload.work.queue if workload.work.queue != "default" else ""
    models = sorted({model for pods in sets for model in pods.gpu.models})
    return {
        "id": workload.id,
        "queue": queue or workload.id.partition("/")[0],
        "kind": kind,
        "gpu_model": models[0] if len(models) == 1 else "",
        "gpus": sum(pods.count * _milli(pods.gpu) for pods in sets),
        "pods": sum(pods.count for pods in sets),
        "submitted": workload.submitted_ms or None,
        "started": life.started_ms,
        "ended": life.ended_ms,
        "priority": workload.work.priority,
        "outcome": life.outcome,
    }


def _milli(gpu: GpuRequest) -> int:
    if gpu.share is Share.FRACTION:
        return gpu.count * gpu.milli
    if gpu.share is Share.WHOLE:
        return gpu.count * 1000
    slices = gpu.profile.partition("g")[0]
    return round(gpu.count * 1000 * int(slices) / _SLICES) if slices.isdecimal() else 0


def _part(
    name: str, rows: list[dict[str, Any]], findings: tuple[SourceFinding, ...], until_ms: int | None
) -> SourceTable:
    whole = {"gpus", "pods", "submitted", "started", "ended", "priority"}
    schema = {field: pl.Int64() if field in whole else pl.String() for field in rows[0]}
    units = {"gpus": "milli", "submitted": "ms", "started": "ms", "ended": "ms"}
    overrides = {field: ColumnOverride(field, units.get(field, "")) for field in rows[0]}
    wanted = TableHints(overrides, table=CanonicalTable.JOBS, documented=True)
    part = read_table_file(table_in_memory(name, pl.DataFrame(rows, schema=schema)), wanted, Format.KUBERNETES)
    return part._replace(findings=(*findings, *part.findings), until_ms=until_ms)


# -- when ------------------------------------------------------------------------------------------------------


def _held(status: Item) -> dict[str, Condition]:
    """Conditions that are true."""
    return {name: condition for name, condition in read_conditions(status).items() if condition.holds}


def _since_ms(held: dict[str, Condition], *names: str) -> int | None:
    """Since when the first of these conditions is true."""
    return next((held[name].since_ms or None for name in names if name in held), None)


def _workload_times(item: Item) -> JobTimes:
    quiet = item.quiet()
    held = _held(quiet.mapping("status"))
    started = _since_ms(held, "Admitted", "QuotaReserved")
    if "Finished" in held:
        outcome = "failed" if "Fail" in held["Finished"].reason else "done"
        return JobTimes(started, _since_ms(held, "Finished"), outcome)
    if not quiet.mapping("spec").flag("active", default=True):
        return JobTimes(started, _since_ms(held, "Evicted"), "cancelled")
    return JobTimes(started, None, "running" if started else "pending")


def _job_times(item: Item) -> JobTimes:
    status = item.quiet().mapping("status")
    held = _held(status)
    begun = (status.time_ms(key) for key in ("startTime", "jobStatusStartTime", "start"))
    started = next(filter(None, begun), None) or _since_ms(held, "Running")
    over = next((name for name in _OVER if name in held), None)
    ended = status.time_ms("completionTime") or status.time_ms("endTime") or _since_ms(held, *_OVER)
    if over or ended:
        return JobTimes(started, ended, _OVER[over] if over else "done")
    serves = status.whole("readyReplicas") > 0 or status.whole("active") > 0
    if serves and started is None:
        started = _since_ms(held, "Available")
    return JobTimes(started, None, "running" if started or serves else "pending")


def _pod_times(item: Item) -> JobTimes:
    status = item.quiet().mapping("status")
    started, phase = status.time_ms("startTime") or None, status.text("phase")
    ended = max((_end_ms(container) for container in status.items("containerStatuses")), default=0) or None
    if phase in ("Succeeded", "Failed"):
        return JobTimes(started, ended, "done" if phase == "Succeeded" else "failed")
    return JobTimes(started, None, "running" if started and phase == "Running" else "pending")


def _end_ms(container: Item) -> int:
    return container.mapping("state").mapping("terminated").time_ms("finishedAt")


# -- capacity --------------------------------------------------------------------------------------------------


def _observed_ms(objects: ObjectIndex, rows: list[dict[str, Any]]) -> list[int]:
    """Times that the dump shows: none is later than the dump."""
    times = [time for item in objects.of("", "Node") for time in _times(item)]
    return times + [row[key] for row in rows for key in ("submitted", "started", "ended") if row[key]]


def _capacity(objects: ObjectIndex, rows: list[dict[str, Any]], times: list[int]) -> list[dict[str, Any]]:
    """What nodes have by model, at the latest time that is known; and what runs and waits, where there is one model."""
    totals: dict[str, int] = {}
    for item in objects.of("", "Node"):
        shape = read_node(item).shape
        if shape.gpu_count:
            totals[shape.gpu_model] = totals.get(shape.gpu_model, 0) + shape.gpu_count * 1000
    if not totals or not times:
        return []
    states = {state: [row for row in rows if row["outcome"] == state] for state in ("running", "pending")}
    whole = len(totals) == 1 and bool(rows)
    running = {
        "running_milli": sum(row["gpus"] for row in states["running"]) if whole else None,
        "pending_milli": sum(row["gpus"] for row in states["pending"]) if whole else None,
        "running_jobs": len(states["running"]) if whole else None,
        "pending_jobs": len(states["pending"]) if whole else None,
    }
    at_ms = max(times)
    return [
        {"at_ms": at_ms, "every_ms": None, "queue": "", "gpu_model": model, "total_milli": total, **running}
        for model, total in sorted(totals.items())
    ]


def _times(item: Item) -> Iterator[int]:
    quiet = item.quiet()
    found = [quiet.mapping("metadata").time_ms("creationTimestamp")]
    for condition in quiet.mapping("status").items("conditions"):
        found += [condition.time_ms(key) for key in ("lastHeartbeatTime", "lastTransitionTime")]
    return filter(None, found)
