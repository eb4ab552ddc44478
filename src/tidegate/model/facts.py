"""What the world tells the engine: facts in columns, in the order they happened.

The world numbers what it tells about: a workload or node keeps its number for good, and names travel once.
Must not know: rows of the state, decisions' reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tidegate.model.columns import F64, I32, I64, U8
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy
from tidegate.model.work import Work, Workload

#: The fact is about every pod of the workload.
ALL_PODS = -1


class EventKind(IntEnum):
    """Kinds of facts; `value` columns as told beside each."""

    POLICY_CHANGED = 0  # arg: payload
    WORKLOAD_SUBMITTED = 1  # subject: workload; arg: row of the submissions
    WORKLOAD_CHANGED = 2  # subject: workload; arg: payload (Work)
    WORKLOAD_CANCELLED = 3  # subject: workload
    WORKLOAD_FINISHED = 4  # subject: workload; all it held is free
    POD_CREATED = 5  # subject: workload, pod
    POD_BOUND = 6
    POD_STARTED = 7
    POD_TERMINATING = 8
    POD_GONE = 9
    POD_FAILED = 10
    NODE_ADDED = 11  # subject: node; arg: payload (Node)
    NODE_CHANGED = 12  # subject: node; arg: payload (Node)
    NODE_STAGE = 13  # subject: node; arg: stage
    NODE_REMOVED = 14  # subject: node
    DEVICE_FAILED = 15  # subject: node; arg: device
    DEVICE_RECOVERED = 16  # subject: node; arg: device
    INTERRUPTION = 17  # subject: node; arg: milliseconds until it is taken
    OUTCOME = 18  # subject: decision id; arg: Outcome
    LOAD_OBSERVED = 19  # subject: workload; values: arrivals, in flight, queued, tokens
    USE_OBSERVED = (
        20  # subject: workload, pod; arg: milliseconds observed; values: busy GPU-ms, held GPU-ms, VRAM MiB, watts
    )
    PROGRESS_OBSERVED = 21  # subject: workload; values: remaining s, attained s
    CHECKPOINTED = 22  # subject: workload
    TIMER = 23


class Outcome(IntEnum):
    """What came of a decision that was carried out. Unknown is not failed: the world will show which."""

    DONE = 0
    FAILED = 1
    UNKNOWN = 2


class Submissions(NamedTuple):
    """The workloads submitted in one batch, in columns; row i has id `ids[i]`."""

    work: I32  # row of the batch's works
    submitted_ms: I64
    estimate_ms: I64
    deadline_ms: I64
    ids: Sequence[str]


NO_SUBMISSIONS = Submissions(
    np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), ()
)


class EventBatch(NamedTuple):
    """Facts in columns, in order."""

    kind: U8
    at_ms: I64  # when it happened; never after the `now` it is told at
    subject: I64
    pod: I32  # ordinal of the pod in its workload, or ALL_PODS
    arg: I64
    values: F64  # (n, 4)
    payloads: tuple[Policy | Node | Work, ...] = ()
    works: tuple[Work, ...] = ()
    submissions: Submissions = NO_SUBMISSIONS

    def runs(self) -> Iterator[tuple[EventKind, slice]]:
        """Consecutive facts of one kind, so that each run can be applied at once."""
        if len(self.kind) == 0:
            return
        edges = np.flatnonzero(np.diff(self.kind)) + 1
        start = 0
        for end in [*edges.tolist(), len(self.kind)]:
            yield EventKind(int(self.kind[start])), slice(start, end)
            start = end


class Facts:
    """Collects facts one by one or in bulk, and makes the batch."""

    def __init__(self) -> None:
        self._parts: list[tuple[U8, I64, I64, I32, I64, F64]] = []
        self._payloads: list[Policy | Node | Work] = []
        self._works: dict[int, int] = {}
        self._work_list: list[Work] = []
        self._submitted: list[Submissions] = []
        self._submitted_count = 0

    def add(
        self,
        kind: EventKind,
        at_ms: int,
        subject: int = 0,
        *,
        pod: int = ALL_PODS,
        arg: int = 0,
        values: Sequence[float] = (),
    ) -> None:
        """Add one fact."""
        padded = np.zeros((1, 4), np.float64)
        padded[0, : len(values)] = values
        self._parts.append(
            (
                np.array([kind], np.uint8),
                np.array([at_ms], np.int64),
                np.array([subject], np.int64),
                np.array([pod], np.int32),
                np.array([arg], np.int64),
                padded,
            )
        )

    def add_many(
        self,
        kind: EventKind | U8,
        at_ms: I64 | int,
        subject: I64,
        *,
        pod: I32 | int = ALL_PODS,
        arg: I64 | int = 0,
        values: F64 | None = None,
    ) -> None:
        """Add facts in columns; a single value stands for all."""
        n = len(subject)
        if n == 0:
            return
        self._parts.append(
            (
                np.broadcast_to(np.asarray(kind, np.uint8), n),
                np.broadcast_to(np.asarray(at_ms, np.int64), n),
                np.asarray(subject, np.int64),
                np.broadcast_to(np.asarray(pod, np.int32), n),
                np.broadcast_to(np.asarray(arg, np.int64), n),
                np.zeros((n, 4), np.float64) if values is None else values,
            )
        )

    def policy(self, policy: Policy, at_ms: int = 0) -> None:
        """Add POLICY_CHANGED."""
        self.add(EventKind.POLICY_CHANGED, at_ms, arg=self._payload(policy))

    def node(self, number: int, node: Node, at_ms: int = 0, *, changed: bool = False) -> None:
        """Add NODE_ADDED or NODE_CHANGED."""
        kind = EventKind.NODE_CHANGED if changed else EventKind.NODE_ADDED
        self.add(kind, at_ms, number, arg=self._payload(node))

    def submit(self, number: int, workload: Workload, at_ms: int | None = None) -> None:
        """Add WORKLOAD_SUBMITTED for one workload."""
        at = workload.submitted_ms if at_ms is None else at_ms
        submissions = Submissions(
            np.zeros(1, np.int32),
            np.array([workload.submitted_ms], np.int64),
            np.array([workload.estimate_ms], np.int64),
            np.array([workload.deadline_ms], np.int64),
            (workload.id,),
        )
        self.submit_many(np.array([number], np.int64), (workload.work,), submissions, at)

    def submit_many(self, numbers: I64, works: Sequence[Work], submissions: Submissions, at_ms: I64 | int) -> None:
        """Add WORKLOAD_SUBMITTED in columns; `submissions.work` points into `works`."""
        n = len(numbers)
        used, at = np.unique(submissions.work, return_inverse=True)
        remap = np.array([self._work(works[work]) for work in used.tolist()], np.int32)
        self._submitted.append(submissions._replace(work=remap[at]))
        rows = np.arange(self._submitted_count, self._submitted_count + n, dtype=np.int64)
        self._submitted_count += n
        self.add_many(EventKind.WORKLOAD_SUBMITTED, at_ms, numbers, arg=rows)

    def batch(self) -> EventBatch:
        """The facts so far, as one batch."""
        if not self._parts:
            return EMPTY_EVENTS
        kind, at_ms, subject, pod, arg, values = (np.concatenate(c) for c in zip(*self._parts, strict=True))
        return EventBatch(
            kind, at_ms, subject, pod, arg, values, tuple(self._payloads), tuple(self._work_list), self._joined()
        )

    def _payload(self, payload: Policy | Node | Work) -> int:
        self._payloads.append(payload)
        return len(self._payloads) - 1

    def _work(self, work: Work) -> int:
        # By identity: a world shares its Work objects, and comparing by value would hash every one.
        row = self._works.get(id(work))
        if row is None:
            row = self._works[id(work)] = len(self._work_list)
            self._work_list.append(work)
        return row

    def _joined(self) -> Submissions:
        if not self._submitted:
            return NO_SUBMISSIONS
        if len(self._submitted) == 1:
            return self._submitted[0]
        return Submissions(
            np.concatenate([told.work for told in self._submitted]),
            np.concatenate([told.submitted_ms for told in self._submitted]),
            np.concatenate([told.estimate_ms for told in self._submitted]),
            np.concatenate([told.deadline_ms for told in self._submitted]),
            [name for told in self._submitted for name in told.ids],
        )


def _empty() -> EventBatch:
    none = np.zeros(0, np.int64)
    return EventBatch(np.zeros(0, np.uint8), none, none, np.zeros(0, np.int32), none, np.zeros((0, 4), np.float64))


EMPTY_EVENTS = _empty()
