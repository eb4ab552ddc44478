"""Reads parts of a long journal: one workload's steps without unpacking the others, and the state at a time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from tidegate.engine.apply import apply
from tidegate.engine.step import step
from tidegate.journal.encoding import WorkNumbers, is_about, submitted_in, unpack_partly
from tidegate.journal.history import JournalNames, read_names
from tidegate.journal.store import Checkpoint, JournalFile, JournalStep, PackedStep, unpack
from tidegate.state.cluster import ClusterState


class StepsOfWorkload(NamedTuple):
    """A journal until a time, glanced through: who is in it, and the steps that matter to one workload."""

    names: JournalNames
    steps: tuple[JournalStep, ...]  # about the workload, and those that change rules or nodes
    until_ms: int


def find_number(file: JournalFile, job: str, until_ms: int | None = None) -> int | None:
    """The number of the workload with an id; None: the journal does not know it.

    An object that was deleted and created again under its name is another workload: the latest until a time is meant,
    or the first, if that is later.
    """
    number = None
    for row in file.mentioning(job.encode()):
        if number is not None and until_ms is not None and row.now_ms > until_ms:
            break
        found = submitted_in(unpack_partly(row.events))
        if found is not None and job in found.ids:
            number = dict(zip(found.ids, found.numbers, strict=True))[job]
    return number


def find_ids(file: JournalFile) -> dict[int, str]:
    """The ids of all workloads."""
    ids: dict[int, str] = {}
    for row in file.packed():
        found = submitted_in(unpack_partly(row.events))
        if found is not None:
            ids.update(zip(found.numbers, found.ids, strict=True))
    return ids


def read_steps_of(file: JournalFile, number: int, until_ms: int | None = None) -> StepsOfWorkload:
    """Glance through a journal for one workload."""
    works, ids, queues = WorkNumbers(), dict[int, str](), dict[int, int]()
    steps: list[JournalStep] = []
    end_ms = 0
    for row in _until(file.packed(), until_ms):
        peeled, end_ms = unpack_partly(row.events), row.now_ms
        found = submitted_in(peeled)
        if found is not None:
            ids.update(zip(found.numbers, found.ids, strict=True))
            queues.update(zip(found.numbers, found.works, strict=True))
        if is_about(peeled, row.result, number):
            steps.append(unpack(row, works))
        else:
            works.add(peeled.new_works)
    names = JournalNames(read_names(steps).nodes, ids, {n: works.all[at].queue for n, at in queues.items()})
    return StepsOfWorkload(names, tuple(steps), end_ms)


def _until(rows: Iterator[PackedStep], until_ms: int | None) -> Iterator[PackedStep]:
    for row in rows:
        if until_ms is not None and row.now_ms > until_ms:
            return
        yield row


# -- states ----------------------------------------------------------------------------------------------------


class JournalFollower:
    """A state that follows a journal: from its latest checkpoint on, step by step, also while it is written."""

    def __init__(self, file: JournalFile, until_ms: int | None = None) -> None:
        self._file, self._until_ms = file, until_ms
        self._take = apply if file.is_shadow else step  # who only watches decides nothing that comes about
        self._at = _restore(file, until_ms)
        self.state = self._at[1]

    def steps_left(self) -> int:
        """How many steps are to be made, as far as they are written."""
        return self._file.count(self._at[0].step, self._until_ms)

    def catch_up(self, watch: Callable[[], None] | None = None) -> int:
        """Make the steps that are written and were not made yet; says how many."""
        checkpoint, state = self._at
        made = 0
        for recorded in self._file.steps(checkpoint):
            if self._until_ms is not None and recorded.now_ms > self._until_ms:
                break
            self._take(state, recorded.events, recorded.now_ms)
            checkpoint = checkpoint._replace(step=recorded.step)
            made += 1
            if watch is not None:
                watch()
        self._at = (checkpoint, state)
        return made


def _restore(file: JournalFile, until_ms: int | None) -> tuple[Checkpoint, ClusterState]:
    """The latest checkpoint that can be read, and its state; the empty state before the first step if there is none."""
    # Of another version, or damaged: the steps tell the same, only slower.
    with suppress(ValueError, LookupError, TypeError, zlib.error):
        kept = file.checkpoint(until_ms)
        if kept is not None:
            return kept, ClusterState.load(kept.state)
    return Checkpoint(-1, WorkNumbers(), b""), ClusterState()


# -- short forms of ids ----------------------------------------------------------------------------------------

# On a cluster an id is namespace, kind and name, "team-a/job.batch/train"; in a trace it may be a name alone. The short
# form leaves out what comes before the name, or the group of the kind: "train", "team-a/train", "job/train".


def matching_ids(text: str, ids: Iterable[str]) -> list[str]:
    """The ids that a text may mean, each once: the one that it is, else those that it is short for."""
    there = set(ids)
    return [text] if text in there else sorted(one for one in there if _is_short_for(text, one))


def _is_short_for(text: str, whole: str) -> bool:
    *typed, name = text.split("/")
    *before, last = whole.split("/")
    if name != last or len(typed) > len(before):
        return False
    parts = iter(_spellings(before))
    return all(any(one in spellings for spellings in parts) for one in typed)  # in the same order


def _spellings(before: list[str]) -> list[set[str]]:
    """What stands before a name as it may be typed: a namespace, and a kind as kubectl reads it."""
    if len(before) != 2:
        return [{part} for part in before]
    namespace, full_kind = before
    kind, dot, group = full_kind.partition(".")
    return [{namespace}, {kind, f"{kind}s", full_kind, f"{kind}s{dot}{group}"}]
