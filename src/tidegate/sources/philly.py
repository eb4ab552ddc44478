"""The Philly trace: jobs of the virtual clusters of a Microsoft cluster in autumn 2017.

One row a job: `timestamp`, `duration` in seconds, `num_gpus`, `cluster`; in any order. A virtual cluster becomes a
queue. Machines had up to eight GPUs: a larger job is a gang of pods with eight each, and one with what is left.
Must not know: quotas, policies, machines.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.model.simulation import PlannedWorkload, RunProfile
from tidegate.model.units import SECOND_MS
from tidegate.model.work import GpuRequest, PodSet, Share, Work, WorkKind, Workload
from tidegate.sources.trace_file import TraceCell, read_table

#: GPUs of the largest machines.
_PER_NODE = 8

#: GPUs that one job may ask for.
_MOST_GPUS = 100_000

#: The longest a job may take, in seconds: ten years.
_LONGEST_S = 10 * 366 * 86_400


class Job(NamedTuple):
    """A row of the trace."""

    at: datetime
    duration_ms: int
    gpus: int
    cluster: str


def read_philly(path: Path) -> list[PlannedWorkload]:
    """The jobs of the trace, from the Monday before the first of them; an UnusableTrace says what is wrong."""
    jobs = read_jobs(path)
    if not jobs:
        return []
    start = _monday(min(job.at for job in jobs))
    width = len(str(len(jobs)))
    return [_planned(job, f"philly-{number:0{width}d}", start) for number, job in enumerate(jobs, 1)]


def read_jobs(path: Path) -> list[Job]:
    """The rows of the trace, in the order of the file."""
    table: dict[str, list[Any]] = dict(read_table(path, _CELLS).columns)
    return [Job(*row) for row in zip(*(table[column] for column in _CELLS), strict=True)]


def split_quota(jobs: list[Job], gpus: int) -> dict[str, int]:
    """Split GPUs over the virtual clusters: in proportion to their GPU time, at least the largest job of each."""
    time, least = Counter[str](), Counter[str]()
    for job in jobs:
        time[job.cluster] += job.duration_ms * job.gpus
        least[job.cluster] = max(least[job.cluster], job.gpus)
    if sum(least.values()) > gpus:
        raise ValueError(f"{gpus} GPUs are fewer than the largest jobs need: {sum(least.values())}")
    raised: set[str] = set()
    while True:
        others = [name for name in time if name not in raised]
        left, total = gpus - sum(least[name] for name in raised), sum(time[name] for name in others)
        below = [name for name in others if time[name] * left < least[name] * total]
        if not below:
            return dict(sorted({**{name: least[name] for name in raised}, **_rounded(time, others, left)}.items()))
        raised.update(below)


def _rounded(time: Counter[str], names: list[str], gpus: int) -> dict[str, int]:
    """Whole GPUs in proportion, by the largest remainders."""
    total = sum(time[name] for name in names)
    parts = {name: divmod(time[name] * gpus, total) for name in names}
    by_rest = sorted(names, key=lambda name: (-parts[name][1], name))
    short = gpus - sum(whole for whole, _ in parts.values())
    return {name: parts[name][0] + (name in by_rest[:short]) for name in names}


def _planned(job: Job, name: str, start: datetime) -> PlannedWorkload:
    submitted_ms = int((job.at - start).total_seconds()) * SECOND_MS
    workload = Workload(id=name, work=_work(job.cluster, job.gpus), submitted_ms=submitted_ms)
    return PlannedWorkload(workload=workload, run=RunProfile(runtime_ms=job.duration_ms))


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


def _monday(at: datetime) -> datetime:
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


# -- cells -----------------------------------------------------------------------------------------------------


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _duration_ms(text: str) -> int:
    seconds = float(text)
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError(text)
    return max(round(seconds * SECOND_MS), 1)


def _gpus(text: str) -> int:
    count = float(text)
    if count != int(count) or not 1 <= count <= _MOST_GPUS:
        raise ValueError(text)
    return int(count)


def _cluster(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


_CELLS = {
    "timestamp": TraceCell('a time such as "2017-10-09 07:01:55"', _time),
    "duration": TraceCell("seconds above 0", _duration_ms),
    "num_gpus": TraceCell("a whole number of GPUs of at least 1", _gpus),
    "cluster": TraceCell("the name of a virtual cluster", _cluster),
}
