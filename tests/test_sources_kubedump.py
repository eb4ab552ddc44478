"""What kubectl prints of a cluster, as jobs and capacity."""

from __future__ import annotations

import json

import pytest
import yaml

from tidegate.sources.findings import Code, SourceError
from tidegate.sources.options import CanonicalTable, Format
from tidegate.sources.read_sources import read_sources


def _time(minute):
    return f"2026-03-02T08:{minute:02d}:00Z"


def _meta(name, owner=None, minute=0):
    meta = {"name": name, "namespace": "team-a", "creationTimestamp": _time(minute), "uid": name}
    if owner:
        kind, of = owner
        meta["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": kind, "name": of, "uid": of, "controller": True}]
    return meta


def _spec(gpus):
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}


def _job(name, gpus, parallelism, status):
    spec = {"parallelism": parallelism, "completions": parallelism, "template": {"spec": _spec(gpus)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _meta(name), "spec": spec, "status": status}


def _condition(kind, minute, reason=""):
    return {"type": kind, "status": "True", "lastTransitionTime": _time(minute), "reason": reason, "message": ""}


DONE = _job(
    "done", 8, 2, {"startTime": _time(5), "completionTime": _time(35), "conditions": [_condition("Complete", 35)]}
)
FAILED = _job("failed", 1, 1, {"startTime": _time(5), "conditions": [_condition("Failed", 7)]})
WAITS = _job("waits", 4, 1, {})
POD_OF_DONE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": _meta("done-x", ("Job", "done")),
    "spec": _spec(8),
    "status": {"phase": "Succeeded"},
}
ALONE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": _meta("alone"),
    "spec": {**_spec(1), "nodeName": "n1"},
    "status": {
        "phase": "Succeeded",
        "startTime": _time(1),
        "containerStatuses": [{"state": {"terminated": {"finishedAt": _time(9)}}}],
    },
}
SERVES = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": _meta("llm-7", ("ReplicaSet", "llm")),
    "spec": {**_spec(2), "nodeName": "n1"},
    "status": {"phase": "Running", "startTime": _time(2)},
}
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": _meta("job-queued", ("Job", "queued")),
    "spec": {
        "queueName": "lq",
        "priority": 7,
        "podSets": [{"name": "main", "count": 4, "template": {"spec": _spec(8)}}],
    },
    "status": {
        "conditions": [
            _condition("QuotaReserved", 10),
            _condition("Admitted", 11),
            _condition("Finished", 31, "Succeeded"),
        ]
    },
}
QUEUED = _job("queued", 8, 4, {"startTime": _time(11), "completionTime": _time(31)})
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "H100"}, "creationTimestamp": _time(0)},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "64"},
        "conditions": [{**_condition("Ready", 0), "lastHeartbeatTime": _time(50)}],
    },
}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": _meta("svc"), "spec": {}}
ALL = [DONE, FAILED, WAITS, POD_OF_DONE, ALONE, SERVES, WORKLOAD, QUEUED, NODE, SERVICE]


def _write(tmp_path, kind):
    whole = {"apiVersion": "v1", "kind": "List", "items": ALL}
    texts = {
        "list.json": json.dumps(whole),
        "pretty.json": json.dumps(whole, indent=2),
        "stream.json": "\n".join(json.dumps(one) for one in ALL),
        "list.yaml": yaml.safe_dump(whole),
        "stream.yaml": yaml.safe_dump_all(ALL),
    }
    path = tmp_path / kind
    path.write_text(texts[kind])
    return path


@pytest.mark.parametrize("kind", ["list.json", "pretty.json", "stream.json", "list.yaml", "stream.yaml"])
def test_a_dump_of_a_cluster(tmp_path, kind):
    gathered = read_sources([str(_write(tmp_path, kind))])
    assert {part.format for part in gathered.parts} == {Format.KUBERNETES}
    jobs = {row["id"]: row for row in gathered.tables.jobs.collect().to_dicts()}
    assert set(jobs) == {f"team-a/{name}" for name in ("done", "failed", "waits", "alone", "llm-7", "job-queued")}
    done = jobs["team-a/done"]
    assert (done["gpus_milli"], done["pods"], done["outcome"], done["duration_ms"]) == (16_000, 2, "done", 30 * 60_000)
    assert done["started_ms"] - done["submitted_ms"] == 5 * 60_000
    assert (jobs["team-a/failed"]["outcome"], jobs["team-a/failed"]["duration_ms"]) == ("failed", 2 * 60_000)
    assert (jobs["team-a/waits"]["outcome"], jobs["team-a/waits"]["started_ms"]) == ("pending", None)
    assert (jobs["team-a/alone"]["outcome"], jobs["team-a/alone"]["duration_ms"]) == ("done", 8 * 60_000)
    assert (jobs["team-a/llm-7"]["kind"], jobs["team-a/llm-7"]["outcome"]) == ("inference", "running")
    queued = jobs["team-a/job-queued"]
    assert (queued["gpus_milli"], queued["queue"], queued["priority"]) == (32_000, "team-a/lq", 7)
    assert (queued["started_ms"] - queued["submitted_ms"], queued["duration_ms"]) == (11 * 60_000, 20 * 60_000)
    told = {found.code: found.times for found in gathered.findings}
    assert told == {Code.OWNED_OBJECT: 2, Code.OBJECT_LEFT_OUT: 1}
    capacity = gathered.tables.capacity.collect().to_dicts()
    assert [(row["gpu_model"], row["total_milli"], row["running_milli"], row["pending_milli"]) for row in capacity] == [
        ("H100", 8_000, 2_000, 4_000)
    ]


def test_several_files_are_one_cluster(tmp_path):
    (tmp_path / "jobs.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [DONE, QUEUED]}))
    (tmp_path / "workloads.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [WORKLOAD]}))
    for sources in ([str(tmp_path)], [str(tmp_path / "jobs.json"), str(tmp_path / "workloads.json")]):
        gathered = read_sources(sources)
        assert [part.table for part in gathered.parts] == [CanonicalTable.JOBS]
        assert gathered.tables.jobs.collect()["id"].to_list() == ["team-a/job-queued", "team-a/done"]


def test_an_object_that_cannot_be_read_is_told(tmp_path):
    broken = _job("broken", "many", 1, {})
    (tmp_path / "x.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [DONE, broken]}))
    gathered = read_sources([str(tmp_path / "x.json")])
    assert gathered.tables.jobs.collect()["id"].to_list() == ["team-a/done"]
    assert any("Job team-a/broken" in found.text() for found in gathered.findings)


def test_a_dump_without_work_is_refused(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [SERVICE]}))
    with pytest.raises(SourceError, match="has no Job, Workload, Pod or Node"):
        read_sources([str(tmp_path / "x.json")])
