"""Writes the journal, in memory, on disk, or both, and resumes an interrupted run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from tidegate.journal.encoding import WorkNumbers, pack_events, pack_result
from tidegate.journal.store import JournalError, JournalFile, JournalStep, PackedStep
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.policy import Policy
from tidegate.model.step_batch import StepBatch
from tidegate.state.cluster import ClusterState

#: Bytes of steps before the first checkpoint; and how many bytes of steps each byte of a checkpoint stands for.
_FIRST_CHECKPOINT = 1 << 19
_SPARSE = 16


class Journal:
    """Keeps steps in memory, and on disk where a file is given."""

    def __init__(self, file: JournalFile | None = None, *, remember: bool = True) -> None:
        self._file = file
        self._remember = remember
        self._policy = ""
        self.steps: list[JournalStep] = []
        self._count = 0
        self._state: ClusterState | None = None
        self._keep_at = _FIRST_CHECKPOINT
        self._behind = False  # whether the state is ahead of what is written down

    def follow(self, state: ClusterState) -> None:
        """Keep checkpoints of this state on disk, every now and then: it is as it was after each step."""
        self._state = state

    def keep(self) -> None:
        """Keep a checkpoint of the state now, where there is a file and a state to keep."""
        if self._file is not None and self._state is not None and self._count:
            taken = self._file.keep(self._state.dump())
            self._keep_at = self._file.written + max(_FIRST_CHECKPOINT, _SPARSE * taken)

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Write a step down."""
        self._policy = policy_after(events, self._policy)
        if self._file is not None:
            self._file.append(now_ms, self._policy, events, result)
        if self._remember:
            self.steps.append(JournalStep(self._count, now_ms, self._policy, events, result))
        self._count += 1
        if not self._behind and self._state is not None and self._file is not None:
            self._keep_at_times(self._file)

    def append_batch(self, stretch: StepBatch) -> None:
        """Write many steps down; the state is as it was after the last, and kept then if at all."""
        self._behind = True
        with self._file.together() if self._file is not None else nullcontext():
            for now_ms, events, result in stretch.steps():
                self.append(now_ms, events, result)
        self._behind = False
        if self._state is not None and self._file is not None:
            self._keep_at_times(self._file)

    def _keep_at_times(self, file: JournalFile) -> None:
        # Not after the first step: whoever begins there has one step to make, and a live run has no memory to spare.
        if file.written >= self._keep_at and self._count > 1:
            self.keep()


class ResumedJournal(Journal):
    """Takes up a run that was broken off: what is on disk already must come out the same, then it goes on."""

    def __init__(self, file: JournalFile, *, remember: bool = True) -> None:
        super().__init__(file, remember=remember)
        self._written: Iterator[PackedStep] | None = iter(list(file.packed()))
        self._works = WorkNumbers()

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Compare with what is on disk, or write down what is new."""
        row = next(self._written, None) if self._written is not None else None
        if row is None:
            self._written = None
            super().append(now_ms, events, result)
            return
        if (row.now_ms, row.events, row.result) != (now_ms, pack_events(events, self._works), pack_result(result)):
            raise JournalError(
                f"step {row.step} at {row.now_ms} ms differs from the journal: it was written by another run, "
                "policy or version; start a new journal"
            )
        self._policy = policy_after(events, self._policy)
        if self._remember:
            self.steps.append(JournalStep(row.step, now_ms, self._policy, events, result))
        self._count += 1


def policy_after(events: FactBatch, before: str) -> str:
    """The digest of the policy in force after these facts."""
    if not events.payloads:
        return before
    for at in (events.kind == FactKind.POLICY_CHANGED).nonzero()[0].tolist():
        policy = events.payloads[int(events.arg[at])]
        assert isinstance(policy, Policy)
        before = policy.digest()
    return before
