"""The Philly trace as work for the twin: jobs of the virtual clusters of a Microsoft cluster in autumn 2017.

A virtual cluster becomes a queue. Machines had up to eight GPUs: a larger job is a gang of pods with eight each, and
one with the rest.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from tidegate.model.problem import printable
from tidegate.model.simulation import PlannedWorkload, RunProfile
from tidegate.model.units import DAY_MS, WEEK_MS, WHOLE_MILLI
from tidegate.model.work import GpuRequest, PodSet, Share, Work, WorkKind, Workload
from tidegate.sources.findings import SourceError

#: GPUs of the largest machines.
_PER_NODE = 8

#: Monday is the fourth day after the first of January 1970.
_FIRST_MONDAY_MS = 4 * DAY_MS


class Job(NamedTuple):
    """A row of the trace."""

    at_ms: int
    duration_ms: int
    gpus: int
    cluster: str


def read_philly(path: Path) -> list[PlannedWorkload]:
    """The jobs of the trace, from the Monday before the first of them; a SourceError says what is wrong."""
    jobs = read_jobs(path)
    if not jobs:
        return []
    first_ms = min(job.at_ms for job in jobs)
    start_ms = first_ms - (first_ms - _FIRST_MONDAY_MS) % WEEK_MS
    width = len(str(len(jobs)))
    return [_planned(job, f"philly-{number:0{width}d}", start_ms) for number, job in enumerate(jobs, 1)]


def read_jobs(path: Path) -> list[Job]:
    """The rows of the trace, in the order of the file; a SourceError lists rows that cannot be used."""
    from tidegate.sources.options import Format, SourceOptions  # polars takes long to import
    from tidegate.sources.read_sources import read_sources

    (part,) = read_sources([str(path)], SourceOptions(format=Format.PHILLY)).parts
    columns = part.frame.select("submitted_ms", "duration_ms", "gpus_milli", "queue").collect()
    wrong = [finding.text() for finding in part.findings if finding.loses]
    if (columns["gpus_milli"] % WHOLE_MILLI != 0).any() or (columns["queue"] == "").any():
        wrong.append(f"{printable(str(path))}: expected whole GPUs, and the name of a virtual cluster, in each row")
    if wrong:
        raise SourceError("\n".join(wrong))
    return [Job(at_ms, duration_ms, milli // WHOLE_MILLI, queue) for at_ms, duration_ms, milli, queue in columns.rows()]


def _planned(job: Job, name: str, start_ms: int) -> PlannedWorkload:
    workload = Workload(id=name, work=_work(job.cluster, job.gpus), submitted_ms=job.at_ms - start_ms)
    return PlannedWorkload(workload=workload, run=RunProfile(runtime_ms=max(job.duration_ms, 1)))


@cache
def _work(cluster: str, gpus: int) -> Work:
    whole, rest = divmod(gpus, _PER_NODE)
    pod_sets = [("main", whole, _PER_NODE), ("main" if not whole else "rest", 1 if rest else 0, rest)]
    return Work(
        queue=cluster,
        kind=WorkKind.TRAINING,
        pod_sets=tuple(
            PodSet(name=name, count=count, gpu=GpuRequest(share=Share.WHOLE, count=each))
            for name, count, each in pod_sets
            if count
        ),
    )
