"""The published simulations of SRTF, SRSF and Tiresias-L once more, slow and plain, to compare the engine with.

Written from the published protocol (`../shared/traces/README.md`), with lists of jobs instead of an engine. Jobs that
are equal in the order go by their place in the trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from rounds import RoundJob

LIMITS_GPU_S = (3250, 7200)


@dataclass
class Job:
    """A job that was submitted and has not ended."""

    at: int  # its place in the trace
    job: RoundJob
    iterations: float
    attained_s: float = 0.0
    level: int = 0
    runs: bool = False

    def left_s(self) -> float:
        return self.iterations * self.job.iteration_s

    def advance(self, from_s: float, to_s: float) -> None:
        if self.runs:
            self.iterations -= max(to_s - from_s - self.job.overhead_s, 0) / self.job.iteration_s
            self.attained_s = self.attained_s + to_s - from_s


def ends_of(jobs: list[RoundJob], order: str, nodes: int, gpus: int) -> list[float]:
    """When each job ends."""
    arrivals = [(at_s, list(group)) for at_s, group in groupby(enumerate(jobs), key=lambda pair: pair[1].submit_s)]
    queue: list[Job] = []
    ends = [math.nan] * len(jobs)
    now_s = 0.0
    while arrivals or queue:
        next_end_s, ending = next_end(queue, now_s, order)
        next_arrival_s = arrivals[0][0] if arrivals else math.inf
        before_s, now_s = now_s, min(next_end_s, next_arrival_s, next_mark(queue, now_s, order))
        if next_end_s == now_s:
            for job in ending:
                ends[job.at] = now_s
                queue.remove(job)
        for job in queue:
            job.advance(before_s, now_s)
        if order == "las":
            demote(queue)
        if next_arrival_s == now_s:
            queue += [Job(at, job, job.iterations) for at, job in arrivals.pop(0)[1]]
        schedule(queue, order, [gpus] * nodes)
    return ends


def next_end(queue: list[Job], now_s: float, order: str) -> tuple[float, list[Job]]:
    """When jobs end next, and which: each ends with the first before it in the queue that ends at that time."""
    found: list[tuple[float, list[Job]]] = []
    for job in (job for job in queue if job.runs):
        end_s = now_s + job.left_s()
        tolerance = 0 if order == "las" else 1e-9
        for at_s, ending in found:
            if math.isclose(at_s, end_s, rel_tol=tolerance):
                ending.append(job)
                break
        else:
            found.append((end_s, [job]))
    return min(found, key=lambda one: one[0], default=(math.inf, []))


def next_mark(queue: list[Job], now_s: float, order: str) -> float:
    """When the next job will have had enough of its level."""
    return min(
        (
            math.ceil(LIMITS_GPU_S[job.level] / job.job.gpus) - job.attained_s + now_s
            for job in queue
            if order == "las" and job.runs and job.level < len(LIMITS_GPU_S)
        ),
        default=math.inf,
    )


def demote(queue: list[Job]) -> None:
    """Move those who had enough of their level to the tail of the next, in the order they were submitted."""
    enough = [
        job
        for job in queue
        if job.runs and job.level < len(LIMITS_GPU_S) and job.attained_s * job.job.gpus >= LIMITS_GPU_S[job.level]
    ]
    for job in sorted(enough, key=lambda job: job.at):
        job.level += 1
        queue.remove(job)
        queue.append(job)


def schedule(queue: list[Job], order: str, free: list[int]) -> None:
    """Sort the jobs and give the empty cluster to them, one after the other."""
    if order == "las":
        queue.sort(key=lambda job: job.level)
        total = sum(free)
        for job in queue:
            job.runs = job.job.gpus <= total
            total -= job.job.gpus if job.runs else 0
        queue.sort(key=lambda job: (job.level, not job.runs))
        return
    service = {job.at: job.left_s() * job.job.gpus if order == "srsf" else job.left_s() for job in queue}
    queue.sort(key=lambda job: (service[job.at], job.at))
    full = max(free)
    for job in queue:
        job.runs = place(job.job.gpus, free, full)


def place(gpus: int, free: list[int], full: int) -> bool:
    """Take GPUs of the first node that has enough; a larger gang takes empty nodes, and one for the rest."""
    wanted = [full] * (gpus // full) + ([gpus % full] if gpus % full else [])
    taken: list[int] = []
    for part in wanted:
        fits = (node for node, left in enumerate(free) if node not in taken and left >= part)
        node = next(fits, None)
        if node is None:
            return False
        taken.append(node)
    for node, part in zip(taken, wanted, strict=True):
        free[node] -= part
    return True
