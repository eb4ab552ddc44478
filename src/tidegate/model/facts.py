"""Facts that a world reports to the engine, in columns, in the order they happened.

The world numbers workloads and nodes: each keeps its number for good, and its name is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I32, I64, U8
from tidegate.model.hardware import Node
from tidegate.model.observed_status import DecayedUsage, ObservedStatus, UnmanagedPods
from tidegate.model.policy import Policy
from tidegate.model.work import Work, Workload

#: The fact is about every pod of the workload.
ALL_PODS = -1

Payload = Policy | Node | Work | ObservedStatus | DecayedUsage | UnmanagedPods


class FactKind(IntEnum):
    """Kinds of facts, each with its columns. A number is never used again for something else."""

    POLICY_CHANGED = 0  # arg: payload
    WORKLOAD_SUBMITTED = 1  # subject: workload; arg: row of the submissions
    WORKLOAD_CHANGED = 2  # subject: workload; arg: payload (Work)
    WORKLOAD_CANCELLED = 3  # subject: workload
    WORKLOAD_FINISHED = 4  # subject: workload; all it held is free
    POD_BOUND = 6  # subject: workload, pod; arg: number of the node, whichever scheduler bound it
    POD_STARTED = 7
    POD_GONE = 9  # arg: 1 + milliseconds of its workload's time, since the last fact about it, that are not lost
    POD_FAILED = 10  # arg: the same; 0: not known, as on a cluster
    NODE_ADDED = 11  # subject: node; arg: payload (Node)
    NODE_CHANGED = 12  # subject: node; arg: payload (Node)
    NODE_REMOVED = 14  # subject: node
    DEVICE_FAILED = 15  # subject: node; arg: device
    DEVICE_RECOVERED = 16  # subject: node; arg: device
    OUTCOME = 18  # subject: decision id; arg: Outcome
    USE_OBSERVED = (
        20  # subject: workload, pod; arg: milliseconds observed; values: busy GPU-ms, held GPU-ms, VRAM MiB, watts
    )
    PROGRESS_OBSERVED = 21  # subject: workload; values: remaining s, attained s
    TIMER = 23
    WORKLOAD_OBSERVED = 24  # subject: workload; arg: payload (ObservedStatus)
    DECAYED_USAGE_OBSERVED = 25  # arg: payload (DecayedUsage): of a LocalQueue
    UNMANAGED_OBSERVED = 26  # subject: node; arg: payload (UnmanagedPods): what they hold there
    #: subject: workload that is preempted again and again; arg: milliseconds that are left out, -1: all; values:
    #: milliseconds of one turn, 0: not known; id of the first decision of the turn that was seen last and would follow
    LOOP_FOUND = 28
    POD_ABSENT = 29  # subject: workload, pod; it is not on its node, and its place waits for the pod that replaces it
    POD_DONE = 27  # subject: workload, pod; it has done its part and holds nothing, and the rest goes on


class WriteOutcome(IntEnum):
    """The outcome of a write. Unknown is not failed: the world will show which."""

    DONE = 0
    FAILED = 1
    UNKNOWN = 2


class Submissions(NamedTuple):
    """The workloads submitted in one batch, in columns; row i has id `ids[i]`."""

    work: I32  # row of the batch's works
    submitted_ms: I64
    estimate_ms: I64  # 0: unknown
    ids: Sequence[str]


NO_SUBMISSIONS = Submissions(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), ())


class FactBatch(NamedTuple):
    """Facts in columns, in order."""

    kind: U8
    at_ms: I64  # when it happened; never after the `now` it is reported at
    subject: I64
    pod: I32  # ordinal of the pod in its workload, or ALL_PODS
    arg: I64
    values: F64  # (n, 4)
    payloads: tuple[Payload, ...] = ()
    works: tuple[Work, ...] = ()  # what submissions point into; a world may send all its works every time
    submissions: Submissions = NO_SUBMISSIONS

    def runs(self) -> Iterator[tuple[FactKind, slice]]:
        """Consecutive facts of one kind, so that each run can be applied at once."""
        if len(self.kind) == 0:
            return
        edges = np.flatnonzero(self.kind[1:] != self.kind[:-1]) + 1
        start = 0
        for end in [*edges.tolist(), len(self.kind)]:
            yield FactKind(int(self.kind[start])), slice(start, end)
            start = end


class _Part(NamedTuple):
    """Facts added together; a single value is repeated for all of them."""

    length: int
    kind: FactKind | U8
    at_ms: I64 | int
    subject: I64 | int
    pod: I32 | int
    arg: I64 | int
    values: F64 | Sequence[float]


class Facts:
    """Collects facts one by one or in bulk, and makes the batch."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._payloads: list[Payload] = []
        self._works: list[Work] = []
        self._added: dict[int, tuple[object, int]] = {}  # by identity: works that were added, and their first row
        self._submitted: list[Submissions] = []
        self._submitted_count = 0

    def add(
        self,
        kind: FactKind,
        at_ms: int,
        subject: int = 0,
        *,
        pod: int = ALL_PODS,
        arg: int = 0,
        values: Sequence[float] = (),
    ) -> None:
        """Add one fact."""
        padded = (*values, *(0.0 for _ in range(4 - len(values)))) if values else ()
        self._parts.append(_Part(1, kind, at_ms, subject, pod, arg, padded))

    def add_many(
        self,
        kind: FactKind | U8,
        at_ms: I64 | int,
        subject: I64,
        *,
        pod: I32 | int = ALL_PODS,
        arg: I64 | int = 0,
        values: F64 | None = None,
    ) -> None:
        """Add facts in columns; a single value is repeated."""
        if len(subject):
            self._parts.append(_Part(len(subject), kind, at_ms, subject, pod, arg, () if values is None else values))

    def policy(self, policy: Policy, at_ms: int = 0) -> None:
        """Add POLICY_CHANGED."""
        self.add(FactKind.POLICY_CHANGED, at_ms, arg=self._payload(policy))

    def node(self, number: int, node: Node, at_ms: int = 0, *, changed: bool = False) -> None:
        """Add NODE_ADDED or NODE_CHANGED."""
        kind = FactKind.NODE_CHANGED if changed else FactKind.NODE_ADDED
        self.add(kind, at_ms, number, arg=self._payload(node))

    def changed(self, number: int, work: Work, at_ms: int = 0) -> None:
        """Add WORKLOAD_CHANGED."""
        self.add(FactKind.WORKLOAD_CHANGED, at_ms, number, arg=self._payload(work))

    def observed_status(self, number: int, status: ObservedStatus, at_ms: int = 0) -> None:
        """Add WORKLOAD_OBSERVED."""
        self.add(FactKind.WORKLOAD_OBSERVED, at_ms, number, arg=self._payload(status))

    def add_payloads(self, kind: FactKind, payloads: Sequence[tuple[int, Payload]], at_ms: int = 0) -> None:
        """Add facts of one kind with a payload each, by the number of what they are about."""
        first = len(self._payloads)
        self._payloads += [payload for _, payload in payloads]
        numbers = np.array([number for number, _ in payloads], np.int64)
        at = np.arange(first, first + len(payloads), dtype=np.int64)
        self.add_many(kind, at_ms, numbers, arg=at)

    def decayed_usage(self, usage: DecayedUsage) -> None:
        """Add DECAYED_USAGE_OBSERVED."""
        self.add(FactKind.DECAYED_USAGE_OBSERVED, usage.at_ms, arg=self._payload(usage))

    def unmanaged_pods(self, number: int, pods: UnmanagedPods, at_ms: int = 0) -> None:
        """Add UNMANAGED_OBSERVED."""
        self.add(FactKind.UNMANAGED_OBSERVED, at_ms, number, arg=self._payload(pods))

    def submit(self, number: int, workload: Workload, at_ms: int | None = None) -> None:
        """Add WORKLOAD_SUBMITTED for one workload."""
        at = workload.submitted_ms if at_ms is None else at_ms
        submissions = Submissions(
            np.zeros(1, np.int32),
            np.array([workload.submitted_ms], np.int64),
            np.array([workload.estimate_ms], np.int64),
            (workload.id,),
        )
        row = self._place_of(workload.work, (workload.work,))
        self._submit(np.array([number], np.int64), submissions, row, at)

    def submit_many(self, numbers: I64, works: Sequence[Work], submissions: Submissions, at_ms: I64 | int) -> None:
        """Add WORKLOAD_SUBMITTED in columns; `submissions.work` points into `works`, of which it need not use all."""
        self._submit(numbers, submissions, self._place_of(works, works), at_ms)

    def batch(self) -> FactBatch:
        """The facts so far, as one batch."""
        if not self._parts:
            return NO_FACTS
        n = sum(part.length for part in self._parts)
        kind, pod, values = np.empty(n, np.uint8), np.empty(n, np.int32), np.zeros((n, 4), np.float64)
        at_ms, subject, arg = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        start = 0
        for part in self._parts:
            end = start + part.length
            kind[start:end], pod[start:end] = part.kind, part.pod
            at_ms[start:end], subject[start:end], arg[start:end] = part.at_ms, part.subject, part.arg
            if len(part.values):
                values[start:end] = part.values
            start = end
        return FactBatch(
            kind, at_ms, subject, pod, arg, values, tuple(self._payloads), self._all_works(), self._joined()
        )

    def _payload(self, payload: Payload) -> int:
        self._payloads.append(payload)
        return len(self._payloads) - 1

    def _submit(self, numbers: I64, submissions: Submissions, first_work: int, at_ms: I64 | int) -> None:
        if first_work:
            submissions = submissions._replace(work=submissions.work + np.int32(first_work))
        self._submitted.append(submissions)
        rows = np.arange(self._submitted_count, self._submitted_count + len(numbers), dtype=np.int64)
        self._submitted_count += len(numbers)
        self.add_many(FactKind.WORKLOAD_SUBMITTED, at_ms, numbers, arg=rows)

    def _place_of(self, source: object, works: Sequence[Work]) -> int:
        """Where these works stand among all. By identity: comparing by value would hash every one."""
        known = self._added.get(id(source))
        if known is None:
            known = self._added[id(source)] = (source, len(self._works))
            self._works.extend(works)
        return known[1]

    def _all_works(self) -> tuple[Work, ...]:
        """All works added: the world's own tuple if there is only one, so that it is recognised next time."""
        source = next(iter(self._added.values()), ((), 0))[0]
        return source if len(self._added) == 1 and isinstance(source, tuple) else tuple(self._works)

    def _joined(self) -> Submissions:
        if not self._submitted:
            return NO_SUBMISSIONS
        if len(self._submitted) == 1:
            return self._submitted[0]
        return Submissions(
            np.concatenate([each.work for each in self._submitted]),
            np.concatenate([each.submitted_ms for each in self._submitted]),
            np.concatenate([each.estimate_ms for each in self._submitted]),
            [name for each in self._submitted for name in each.ids],
        )


def _empty() -> FactBatch:
    none = np.zeros(0, np.int64)
    return FactBatch(np.zeros(0, np.uint8), none, none, np.zeros(0, np.int32), none, np.zeros((0, 4), np.float64))


NO_FACTS = _empty()
