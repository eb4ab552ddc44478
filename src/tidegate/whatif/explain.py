"""Why a job waits or what became of it, from its journal, and what would change that."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tidegate.journal.decision_text import JobAnswer, explain, mismatch_text, proposal_text
from tidegate.journal.history import (
    HistoryEntry,
    JournalNames,
    WorkloadHistory,
    read_workload_history,
    without_proposals,
)
from tidegate.journal.phases import PhaseKind, split_phases
from tidegate.journal.queue_position import (
    GpuHolders,
    QueuePosition,
    QuotaShortage,
    find_gpu_holders,
    find_queue_position,
    find_shortages,
)
from tidegate.journal.reader import find_ids, find_number, matching_ids, read_steps_of
from tidegate.journal.store import JournalFile
from tidegate.journal.why_not import why_not
from tidegate.model.decisions import DecisionKind
from tidegate.model.errors import UserError
from tidegate.state.cluster import ClusterState
from tidegate.whatif.change_syntax import read_change
from tidegate.whatif.changes import Change, ImpossibleChangeError
from tidegate.whatif.effect import ChangeEffect, find_effect
from tidegate.whatif.search import FixSearchResult, find_fixes

#: Workloads that an ambiguous short form lists.
_MOST_MEANT = 6


class WhatIf(NamedTuple):
    """Changes, and what they would do together."""

    changes: tuple[Change, ...]
    outcome: ChangeEffect


class Explanation(NamedTuple):
    """Everything there is to say about a job; for one that does not wait, the answer alone."""

    job: str
    answer: JobAnswer
    number: int = -1
    state: ClusterState | None = None
    line: QueuePosition | None = None
    wants: tuple[QuotaShortage, ...] = ()
    room: GpuHolders | None = None
    findings: FixSearchResult | None = None
    outcomes: tuple[ChangeEffect, ...] = ()  # of the fixes
    asked: WhatIf | None = None
    node: str | None = None
    lacks: tuple[str, ...] = ()

    def because(self, *sentences: str) -> Explanation:
        """The same, with more reasons."""
        return self._replace(answer=self.answer._replace(because=(*self.answer.because, *sentences)))


class JobHistory(NamedTuple):
    """What a journal has about one job up to a time."""

    story: WorkloadHistory
    cast: JournalNames
    until_ms: int | None  # None: to the end of the journal
    proposed: HistoryEntry | None = None  # in shadow mode: what Tidegate would do now

    @property
    def waits(self) -> bool:
        """Whether the job waits at the end: for quota, or with quota for a place."""
        last = split_phases(self.story)[-1]
        held = last.cause is not None and last.cause.decision is DecisionKind.HOLD
        return last.doing is PhaseKind.WAITING or (last.doing is PhaseKind.ADMITTED and held)

    @property
    def may_loop(self) -> bool:
        """Whether the job was preempted, or preempted others, so often that it may be part of a preemption loop."""
        preempted = sum(entry.decision is DecisionKind.PREEMPT for entry in self.story.entries)
        return preempted >= 2 or len(self.story.victims) >= 2


def read_history(file: JournalFile, job: str, until_ms: int | None) -> JobHistory | None:
    """What a journal has about a job, named by its id or a short form of it; None if it was submitted later."""
    number = find_number(file, job, until_ms)
    if number is None:
        number = _by_short_form(file, job, until_ms)
    glanced = read_steps_of(file, number, until_ms)
    story = read_workload_history(glanced.steps, number)
    if story is None:
        return None
    story, proposed = without_proposals(story) if file.is_shadow else (story, None)
    return JobHistory(story._replace(until_ms=glanced.until_ms), glanced.names, until_ms, proposed)


def _by_short_form(file: JournalFile, job: str, until_ms: int | None) -> int:
    ids = find_ids(file)
    meant = matching_ids(job, ids.values())
    if len(meant) > 1:
        raise UserError(f"{job} may be {', '.join(meant[:_MOST_MEANT])}; name one of them")
    number = find_number(file, meant[0] if meant else known_name(job, ids.values(), "job"), until_ms)
    assert number is not None
    return number


def known_name(name: str, names: Iterable[str], what: str) -> str:
    """The name if it exists; else an error with the nearest ones."""
    there = sorted(names)
    if name in there:
        return name
    close = difflib.get_close_matches(name, there, 3, 0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {_some(there, what)}"
    raise UserError(f"no {what} {name!r} in this journal; {hint}")


def _some(there: list[str], what: str) -> str:
    return f"{len(there):,} {what}s, for example {', '.join(there[:3])}" if there else f"no {what}s"


def explain_past(history: JobHistory) -> Explanation:
    """What became of a job, without anything tried on a state."""
    explanation = Explanation(history.story.id, explain(history.story, history.cast))
    if history.proposed is None:
        return explanation
    return explanation.because(proposal_text(history.proposed, history.cast))


def explain_waiting(
    history: JobHistory,
    state: ClusterState,
    what_ifs: Sequence[str],
    trials: int,
    on_progress: Callable[[int], None] | None = None,
) -> Explanation:
    """Why a job waits in a state, its queue position, and what the named changes, or the smallest ones, would do."""
    explanation, number = explain_past(history), history.story.number
    changes = tuple(_read_change(history, state, text) for text in what_ifs)
    if not history.waits:
        return explanation
    explanation = explanation._replace(
        number=number,
        state=state,
        line=find_queue_position(state, number),
        wants=tuple(want for want in find_shortages(state, number) if want.missing),
    )
    if not explanation.wants:
        explanation = explanation._replace(room=find_gpu_holders(state, number))
    if changes:
        return explanation._replace(asked=WhatIf(changes, find_effect(state, number, changes)))
    if not trials:
        return explanation
    findings = find_fixes(state, number, trials, on_progress)
    outcomes = tuple(find_effect(state, number, fix.changes) for fix in findings.fixes)
    return explanation._replace(findings=findings, outcomes=outcomes)


def _read_change(history: JobHistory, state: ClusterState, text: str) -> Change:
    if not history.waits:
        raise UserError(f"--if: {history.story.id} does not wait; name a time when it did, with --at")
    try:
        return read_change(text, state, history.story.number)
    except ImpossibleChangeError as error:
        raise UserError(f"--if {text}: {error}") from None


def missing_on_node(history: JobHistory, state: ClusterState, node: str) -> tuple[str, ...]:
    """Why a node does not take the job."""
    numbers = {spec.name: number for number, spec in history.cast.nodes.items()}
    number = numbers[known_name(node, numbers, "node")]
    if state.workload_numbers.row(history.story.number) < 0:
        raise UserError(f"{history.story.id} is over: name a time when it was not, with --at")
    return tuple(mismatch_text(lack, node) for lack in why_not(state, history.story.number, number))
