"""A batch of steps: the facts and decisions of all of them in columns, and where each step ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.decisions import NO_REFUSALS, DecisionBatch, StepResult
from tidegate.model.facts import NO_FACTS, FactBatch, FactKind, Submissions

#: For when a step wants to be called again: never.
NO_WAKE = -1


class StepBatch(NamedTuple):
    """Steps in a row. A submission's `arg` counts over the submissions of all of them."""

    now_ms: I64  # of each step
    facts_end: I64  # where its facts end
    decisions_end: I64  # and its decisions
    cycles: I64
    wake_ms: I64  # or NO_WAKE
    events: FactBatch
    decisions: DecisionBatch
    waiting: I64  # (steps, 3, queues): workloads, pods and GPU milli that wait after each step

    def steps(self) -> Iterator[tuple[int, FactBatch, StepResult]]:
        """The steps one by one, as they would have come."""
        ends = [column.tolist() for column in (self.facts_end, self.decisions_end, self.cycles, self.wake_ms)]
        first = decided = submitted = 0
        for now_ms, last, end, cycles, wake_ms in zip(self.now_ms.tolist(), *ends, strict=True):
            events, submitted = _part_of(self.events, first, last, submitted)
            columns: list[Any] = [column[decided:end] for column in self.decisions]
            decisions = DecisionBatch(*columns)
            yield now_ms, events, StepResult(decisions, NO_REFUSALS, None if wake_ms == NO_WAKE else wake_ms, cycles)
            first, decided = last, end


def _part_of(events: FactBatch, first: int, last: int, submitted: int) -> tuple[FactBatch, int]:
    """The facts of one step, and how many submissions there were until then."""
    if first == last:
        return NO_FACTS, submitted
    part = slice(first, last)
    kind, arg = events.kind[part], events.arg[part].copy()
    is_submission = kind == int(FactKind.WORKLOAD_SUBMITTED)
    end = submitted + int(np.count_nonzero(is_submission))
    columns = (events.at_ms[part], events.subject[part], events.pod[part], arg, events.values[part])
    if end == submitted:
        return FactBatch(kind, *columns), end
    arg[is_submission] -= submitted
    submissions: list[Any] = [column[submitted:end] for column in events.submissions]
    return FactBatch(kind, *columns, (), events.works, Submissions(*submissions)), end
