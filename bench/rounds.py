"""A world of scheduling rounds, as in the simulators of Tiresias and Muri.

Every arrival, completion and service mark is a round, and each round costs every running job a fixed overhead of
progress. Time is kept in seconds with fractions, in the published order of operations; the engine sees milliseconds.
Times that differ by less than a billionth of themselves are one time there, and that of the first in the order stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.facts import FactBatch, FactKind, Facts
from tidegate.model.hardware import Node
from tidegate.model.policy import OrderKind, Policy
from tidegate.model.work import Work, Workload

#: Times that differ by no more than this part of themselves are one: arrivals, and ends but those of Tiresias-L.
_SAME_TIME = 1e-9


class RoundJob(NamedTuple):
    """A job that is a number of equal iterations."""

    id: str
    work: Work
    gpus: int
    submit_s: float
    iterations: float
    iteration_s: float
    overhead_s: float  # progress lost in each round


class RoundWorld:
    """Jobs in rounds. `ends_s` has each job's exact end once it is over."""

    def __init__(self, nodes: Sequence[Node], jobs: Sequence[RoundJob], policy: Policy) -> None:
        self.jobs = sorted(jobs, key=lambda job: job.submit_s)
        self.ends_s = np.full(len(self.jobs), math.nan)
        las = policy.order.kind is OrderKind.LAS
        self._marks_gpu_s = policy.order.las_limits_gpu_s if las else ()
        self._joins_ends = 0.0 if las else _SAME_TIME
        self._nodes, self._policy = nodes, policy
        self._time_s = 0.0
        self._opened = False
        self._next_arrival = 0
        self._running: list[int] = []
        self._terminating: list[int] = []
        self._remaining = np.array([job.iterations for job in self.jobs], np.float64)
        self._attained_s = np.zeros(len(self.jobs), np.float64)

    def now_ms(self) -> int:
        """The time, in whole milliseconds."""
        return int(self._time_s * 1000)

    def is_over(self) -> bool:
        """Whether every job has ended."""
        return bool(np.isfinite(self.ends_s).all())

    def poll(self, until_ms: int | None) -> FactBatch:
        """The facts of the next round; within a round, the facts that complete it."""
        del until_ms  # rounds are where the published protocol puts them
        facts = Facts()
        if not self._opened:
            self._opened = True
            self._report_fleet(facts)
        if self._terminating:
            facts.add_many(FactKind.POD_GONE, self.now_ms(), np.array(self._terminating, np.int64))
            self._terminating = []
            return facts.batch()
        self._next_round(facts)
        return facts.batch()

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Start and stop jobs, at once."""
        running = set(self._running)
        for kind, number in zip(decisions.kind.tolist(), decisions.workload.tolist(), strict=True):
            if kind == DecisionKind.PLACE:
                running.add(number)
            elif kind in (DecisionKind.PREEMPT, DecisionKind.EVICT):
                running.discard(number)
                self._terminating.append(number)
        self._running = sorted(running)

    def _report_fleet(self, facts: Facts) -> None:
        facts.policy(self._policy)
        for number, node in enumerate(self._nodes):
            facts.node(number, node)

    def _next_round(self, facts: Facts) -> None:
        arrival_s = self.jobs[self._next_arrival].submit_s if self._next_arrival < len(self.jobs) else math.inf
        end_s, ended = self._next_end()
        event_s = min(arrival_s, end_s)
        mark_s = self._next_mark_s()
        before, self._time_s = self._time_s, min(event_s, mark_s)
        if event_s <= mark_s:
            if end_s == event_s:
                self._end(facts, ended)
            if arrival_s == event_s:
                self._arrive(facts, arrival_s)
        self._progress(facts, before)

    def _next_end(self) -> tuple[float, list[int]]:
        """When the next jobs end, and which they are: those that end at the same time as the first of them."""
        ends: dict[float, list[int]] = {}
        for number in sorted(self._running, key=self._service_left):
            end_s = self._time_s + self._remaining[number] * self.jobs[number].iteration_s
            same = (other_s for other_s in ends if math.isclose(other_s, end_s, rel_tol=self._joins_ends))
            ends.setdefault(next(same, end_s), []).append(number)
        return min(ends.items(), default=(math.inf, []))

    def _service_left(self, number: int) -> float:
        """The rank of a running job, where the order goes by what is left to do."""
        job = self.jobs[number]
        left_s = float(self._remaining[number] * job.iteration_s)
        return left_s * job.gpus if self._policy.order.kind is OrderKind.SRSF else left_s

    def _end(self, facts: Facts, ended: list[int]) -> None:
        self.ends_s[ended] = self._time_s
        self._running = [job for job in self._running if job not in ended]
        facts.add_many(FactKind.WORKLOAD_FINISHED, self.now_ms(), np.array(sorted(ended), np.int64))

    def _arrive(self, facts: Facts, at_s: float) -> None:
        arrived = []
        while self._next_arrival < len(self.jobs) and _is_now(self.jobs[self._next_arrival], at_s):
            number, job = self._next_arrival, self.jobs[self._next_arrival]
            facts.submit(number, Workload(id=job.id, work=job.work, submitted_ms=int(at_s * 1000)), self.now_ms())
            arrived.append(number)
            self._next_arrival += 1
        self._report_progress(facts, arrived)

    def _progress(self, facts: Facts, before_s: float) -> None:
        """A round: every running job progresses, less its overhead."""
        now_s = self._time_s
        for number in self._running:
            job = self.jobs[number]
            self._remaining[number] -= max(now_s - before_s - job.overhead_s, 0) / job.iteration_s
            # In this order: the association of the floats is part of the published result.
            self._attained_s[number] = (self._attained_s[number] + now_s) - before_s
        self._report_progress(facts, self._running)

    def _report_progress(self, facts: Facts, numbers: list[int]) -> None:
        if numbers:
            values = np.zeros((len(numbers), 4), np.float64)
            values[:, 0] = [self._remaining[number] * self.jobs[number].iteration_s for number in numbers]
            values[:, 1] = self._attained_s[numbers]
            facts.add_many(FactKind.PROGRESS_OBSERVED, self.now_ms(), np.array(numbers, np.int64), values=values)

    def _next_mark_s(self) -> float:
        """When the next running job will have attained a mark of service."""
        next_s = math.inf
        for number in self._running:
            gpus, attained_s = self.jobs[number].gpus, self._attained_s[number]
            for mark in self._marks_gpu_s:
                if attained_s * gpus < mark:
                    next_s = min(next_s, math.ceil(mark / gpus) - attained_s + self._time_s)
                    break
        return next_s


def _is_now(job: RoundJob, at_s: float) -> bool:
    """Whether a job is submitted at this time."""
    return math.isclose(job.submit_s, at_s, rel_tol=_SAME_TIME)
