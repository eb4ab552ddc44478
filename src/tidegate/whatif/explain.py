"""Why a job waits or what became of it, from its journal, and what would change that."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tidegate.journal.decision_text import Answer, explain, lack_text, proposal_text
from tidegate.journal.history import Cast, Moment, Story, as_watched, tell_story
from tidegate.journal.phases import Doing, cut_spells
from tidegate.journal.queue_position import Line, Room, Want, find_room, find_wants, stand_in_line
from tidegate.journal.reader import find_ids, find_number, glance
from tidegate.journal.store import JournalFile
from tidegate.journal.why_not import why_not
from tidegate.journal.workload_ids import ids_meant
from tidegate.model.decisions import DecisionKind
from tidegate.model.errors import UserError
from tidegate.state.cluster import ClusterState
from tidegate.whatif.change_syntax import read_change
from tidegate.whatif.changes import Change, Impossible
from tidegate.whatif.effect import Outcome, find_outcome
from tidegate.whatif.search import Findings, find_remedies

#: Workloads that an ambiguous short form lists.
_MOST_MEANT = 6


class WhatIf(NamedTuple):
    """Changes, and what they would do together."""

    changes: tuple[Change, ...]
    outcome: Outcome


class Explanation(NamedTuple):
    """Everything there is to say about a job; for one that does not wait, the answer alone."""

    job: str
    answer: Answer
    number: int = -1
    state: ClusterState | None = None
    line: Line | None = None
    wants: tuple[Want, ...] = ()
    room: Room | None = None
    findings: Findings | None = None
    outcomes: tuple[Outcome, ...] = ()  # of the remedies
    asked: WhatIf | None = None
    node: str | None = None
    lacks: tuple[str, ...] = ()

    def because(self, *sentences: str) -> Explanation:
        """The same, with more reasons."""
        return self._replace(answer=self.answer._replace(because=(*self.answer.because, *sentences)))


class JobHistory(NamedTuple):
    """What a journal has about one job up to a time."""

    story: Story
    cast: Cast
    until_ms: int | None  # None: to the end of the journal
    proposed: Moment | None = None  # in shadow mode: what Tidegate would do now

    @property
    def waits(self) -> bool:
        """Whether the job waits at the end: for quota, or with quota for a place."""
        last = cut_spells(self.story)[-1]
        held = last.cause is not None and last.cause.decision is DecisionKind.HOLD
        return last.doing is Doing.WAITING or (last.doing is Doing.ADMITTED and held)

    @property
    def may_loop(self) -> bool:
        """Whether the job was preempted, or preempted others, so often that it may be part of a preemption loop."""
        preempted = sum(moment.decision is DecisionKind.PREEMPT for moment in self.story.moments)
        return preempted >= 2 or len(self.story.victims) >= 2


def read_history(file: JournalFile, job: str, until_ms: int | None) -> JobHistory | None:
    """What a journal has about a job, named by its id or a short form of it; None if it was submitted later."""
    number = find_number(file, job, until_ms)
    if number is None:
        number = _by_short_form(file, job, until_ms)
    glanced = glance(file, number, until_ms)
    story = tell_story(glanced.steps, number)
    if story is None:
        return None
    story, proposed = as_watched(story) if file.is_shadow else (story, None)
    return JobHistory(story._replace(until_ms=glanced.until_ms), glanced.cast, until_ms, proposed)


def _by_short_form(file: JournalFile, job: str, until_ms: int | None) -> int:
    ids = find_ids(file)
    meant = ids_meant(job, ids.values())
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
        line=stand_in_line(state, number),
        wants=tuple(want for want in find_wants(state, number) if want.missing),
    )
    if not explanation.wants:
        explanation = explanation._replace(room=find_room(state, number))
    if changes:
        return explanation._replace(asked=WhatIf(changes, find_outcome(state, number, changes)))
    if not trials:
        return explanation
    findings = find_remedies(state, number, trials, on_progress)
    outcomes = tuple(find_outcome(state, number, remedy.changes) for remedy in findings.remedies)
    return explanation._replace(findings=findings, outcomes=outcomes)


def _read_change(history: JobHistory, state: ClusterState, text: str) -> Change:
    if not history.waits:
        raise UserError(f"--if: {history.story.id} does not wait; name a time when it did, with --at")
    try:
        return read_change(text, state, history.story.number)
    except Impossible as error:
        raise UserError(f"--if {text}: {error}") from None


def missing_on_node(history: JobHistory, state: ClusterState, node: str) -> tuple[str, ...]:
    """Why a node does not take the job."""
    numbers = {spec.name: number for number, spec in history.cast.nodes.items()}
    number = numbers[known_name(node, numbers, "node")]
    if state.workload_numbers.row(history.story.number) < 0:
        raise UserError(f"{history.story.id} is over: name a time when it was not, with --at")
    return tuple(lack_text(lack, node) for lack in why_not(state, history.story.number, number))
