"""Explains one job: why it waits or what became of it, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from tidegate.api.journal_state import catch_up, damage_reported, follow, read_at, replay_kernels
from tidegate.api.kernels import Kernels
from tidegate.api.progress import OpenProgress, silent
from tidegate.journal.queue_position import date_holders
from tidegate.journal.store import JournalFile
from tidegate.measure.loops import loop_text, loops_in
from tidegate.model.errors import UserError
from tidegate.report.explain import as_json, show
from tidegate.report.output_files import console_text
from tidegate.whatif.explain import (
    Explanation,
    JobHistory,
    explain_past,
    explain_waiting,
    missing_on_node,
    read_history,
)

#: Nothing is known of when pods were bound but what the journal says.
_AS_WRITTEN: Mapping[int, int] = MappingProxyType({})


class JobQuestion(NamedTuple):
    """What to find out about a job."""

    job: str
    at: str | None
    changes: Sequence[str]
    node: str | None
    trials: int
    kernels: Kernels


class JobExplanation:
    """Why a job waits or what became of it, and what would change that. `explain` makes it.

    `str(explanation)` is the text that `tidegate explain` prints.
    """

    def __init__(self, found: Explanation) -> None:
        self._found = found

    def __repr__(self) -> str:
        return "\n".join((self.headline, *self.because, *((self.lift,) if self.lift else ())))

    def __str__(self) -> str:
        return console_text(partial(show, self._found))

    @property
    def job(self) -> str:
        """The id of the job."""
        return self._found.job

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self._found.answer.headline

    @property
    def because(self) -> tuple[str, ...]:
        """What led to it, sentence by sentence."""
        return self._found.answer.because

    @property
    def lift(self) -> str:
        """What lifts the reason that it waits for; empty where it does not wait."""
        return self._found.answer.lift

    @property
    def changes(self) -> tuple[str, ...]:
        """The smallest change of each kind that would start it now."""
        return tuple(str(change["text"]) for change in self.to_dict()["changes"])

    @property
    def starts(self) -> bool | None:
        """Whether it would start with the changes that were tried; None: none were."""
        return None if self._found.asked is None else self._found.asked.outcome.starts

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, as `tidegate explain --json` prints it."""
        return as_json(self._found)


def history_at(file: JournalFile, question: JobQuestion) -> JobHistory:
    """What a journal has about a job up to the time of the question."""
    with damage_reported(file):
        history = read_history(file, question.job, read_at(file, question.at))
    if history is None:
        raise UserError(f"--at {question.at}: {question.job} was not submitted yet; name a later time")
    return history


def explain_history(
    question: JobQuestion,
    file: JournalFile,
    history: JobHistory,
    bound_ms: Mapping[int, int] = _AS_WRITTEN,
    open_progress: OpenProgress = silent,
) -> Explanation:
    """The explanation of a job; `bound_ms` says since when each workload runs, where the journal does not."""
    if question.changes or question.node or history.waits:
        explanation = _tried(question, file, history, bound_ms, open_progress)
    else:
        explanation = explain_past(history)
    return _with_loops(explanation, history, file)


def _tried(
    question: JobQuestion,
    file: JournalFile,
    history: JobHistory,
    bound_ms: Mapping[int, int],
    open_progress: OpenProgress,
) -> Explanation:
    """The explanation of a job from a copy of the state that its journal leads to."""
    follower = follow(file, history.until_ms)
    with replay_kernels(follower, question.kernels):
        state = catch_up(file, follower, open_progress)
        date_holders(state, bound_ms)
        with open_progress("trying changes", question.trials) as bar:
            explanation = explain_waiting(history, state, question.changes, question.trials, bar.update)
    if question.node is None:
        return explanation
    return explanation._replace(node=question.node, lacks=missing_on_node(history, state, question.node))


def _with_loops(explanation: Explanation, history: JobHistory, file: JournalFile) -> Explanation:
    """The explanation with the preemption loops that the job is part of."""
    if not history.may_loop:
        return explanation
    story = history.story
    with damage_reported(file):
        loops = loops_in(step for step in file.steps() if step.now_ms <= story.until_ms)
    mine = [loop for loop in loops if any(story.id in (pair.cause, pair.victim) for pair in loop.pairs)]
    return explanation.because(*map(loop_text, mine))
