"""Jobs as the API server has them: what they ask for, whether they are suspended, and whether they are over.

Must not know: pods, places.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidegate.kube.objects import Meta, Owner
from tidegate.kube.pods import controller, created_ms
from tidegate.manifests.findings import Findings, Origin
from tidegate.manifests.forms import review
from tidegate.manifests.item import Item
from tidegate.manifests.jobs.batch import JOB
from tidegate.manifests.jobs.work import read_job
from tidegate.manifests.surroundings import Surroundings
from tidegate.manifests.words import QUEUE, WORDS
from tidegate.model.work import Work

#: Conditions that say that a Job is over.
_OVER = ("Complete", "Failed")


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class JobObject(msgspec.Struct, frozen=True):
    """A Job; what is in its spec is `manifests`' matter."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = _Status()


class SeenJob(NamedTuple):
    """A Job, as far as it concerns us."""

    uid: str
    namespace: str
    name: str
    work: Work | None  # None: it asks for nothing, or cannot be read
    suspended: bool
    over: bool
    leaving: bool
    scheduler: str  # of its pods
    queued: bool  # it names a queue
    owner: Owner | None
    created_ms: int
    refusals: tuple[str, ...]


def see_job(seen: JobObject, around: Surroundings) -> SeenJob:
    """What a Job is to us."""
    meta = seen.metadata
    spec = msgspec.json.decode(seen.spec)
    findings = Findings()
    labels = meta.labels or {}
    about = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": {key: value for key, value in labels.items() if key in WORDS},
        "annotations": {key: value for key, value in (meta.annotations or {}).items() if key in WORDS},
    }
    item = Item(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec},
        findings,
        Origin(kind="Job", name=f"{meta.namespace}/{meta.name}"),
    )
    review(item, JOB.form)
    read = read_job(item, JOB, around)
    conditions = {one.type for one in seen.status.conditions or () if one.status == "True"}
    return SeenJob(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        work=read[0].planned.workload.work if read else None,
        suspended=bool(spec.get("suspend")),
        over=bool(conditions & set(_OVER)),
        leaving=meta.deletion_timestamp is not None,
        scheduler=item.part("spec", "template", "spec").text("schedulerName"),
        queued=bool(labels.get(QUEUE)),
        owner=controller(meta),
        created_ms=created_ms(meta),
        refusals=tuple(found.problem.text() for found in findings.told if found.problem.severity == "error"),
    )
