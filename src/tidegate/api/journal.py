"""Reads journals: the recorded facts and decisions of a run, in the twin or on a cluster."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import polars as pl

from tidegate.api.explanation import JobExplanation, JobQuestion, explain_history, history_at
from tidegate.api.journal_state import damage_reported
from tidegate.api.kernels import read_kernels
from tidegate.journal.decision_text import time_text
from tidegate.journal.job_decisions import DecisionReader, JobDecision
from tidegate.journal.store import JournalFile, JournalStep
from tidegate.measure.format import count_text
from tidegate.measure.job_records import JobRecords, collect_job_records
from tidegate.model.errors import UserError
from tidegate.report.text.run import job_columns
from tidegate.whatif.search import BUDGET

#: Columns of the frame of decisions.
_DECISIONS: dict[str, pl.DataType | type[pl.DataType]] = {
    "id": pl.Int64,
    "at_ms": pl.Int64,
    "kind": pl.String,
    "job": pl.String,
    "reason": pl.String,
    "text": pl.String,
    "nodes": pl.List(pl.String),
    "cause": pl.String,
}


class JournalReader:
    """A journal that is open for reading. `read_journal` makes it; it is a context manager, and closes the file."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._close = weakref.finalize(self, file.close)

    def __repr__(self) -> str:
        span, steps = self.span_ms, count_text(len(self), "step")
        times = f", {time_text(span[0])} to {time_text(span[1])}" if span else ""
        return f"<JournalReader {self.path}: {steps}{times}>"

    def __len__(self) -> int:
        return len(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def span_ms(self) -> tuple[int, int] | None:
        """The times of the first and the last step; None: there are no steps."""
        return self._file.span_ms()

    @property
    def meta(self) -> dict[str, str]:
        """What was noted when the journal was made."""
        return self._file.meta()

    def steps(self) -> Iterator[JournalStep]:
        """The steps as the engine took them: facts, and decisions in columns."""
        with damage_reported(self._file):
            yield from self._file.steps()

    def decisions(self, job: str | None = None) -> pl.DataFrame:
        """One row a decision, with its reason in words; of one job, or of all."""
        rows = [_decision_row(one) for one in self._decisions() if job is None or one.job == job]
        return pl.DataFrame(rows, schema=_DECISIONS, orient="row")

    def jobs(self) -> pl.DataFrame:
        """One row a job: its queue, GPUs, times, waits, GPU time held and busy, evictions, and how it ended."""
        return job_frame(collect_job_records(self.steps()))

    def explain(
        self,
        job: str,
        *,
        at: str | None = None,
        changes: Sequence[str] = (),
        node: str | None = None,
        trials: int = BUDGET,
        kernels: str = "auto",
    ) -> JobExplanation:
        """Explain why a job waits or what became of it; the arguments are those of `tidegate.explain`."""
        question = JobQuestion(job, at, tuple(changes), node, trials, read_kernels(kernels))
        found = explain_history(question, self._file, history_at(self._file, question))
        return JobExplanation(found)

    def close(self) -> None:
        """Close the file."""
        self._close()

    def _decisions(self) -> Iterator[JobDecision]:
        reader = DecisionReader()
        for step in self.steps():
            yield from reader.read(step.now_ms, step.events, step.result)


def job_frame(records: JobRecords) -> pl.DataFrame:
    """Job records as a frame; a time that no job has is a column of nulls, and a number all the same."""
    return pl.DataFrame(job_columns(records)).with_columns(pl.col(pl.Null).cast(pl.Int64))


def _decision_row(one: JobDecision) -> tuple[Any, ...]:
    nodes = list(dict.fromkeys(place.node for place in one.places))
    return (one.id, one.at_ms, one.kind, one.job, one.reason, one.text, nodes, one.cause)


def read_journal(path: str | Path) -> JournalReader:
    """Open a journal that a run wrote: `simulate(journal=...)`, `tidegate simulate --journal` or `tidegate run`.

    Args:
        path: The file.

    Raises:
        UserError: There is no such file, or it is no journal of this version.
    """
    return JournalReader(JournalFile.open(Path(path)))


class HasJournal(Protocol):
    """What has a journal to explain jobs from: a journal, a simulation or an engine."""

    def explain(  # noqa: D102  as below
        self, job: str, *, at: str | None, changes: Sequence[str], node: str | None, trials: int, kernels: str
    ) -> JobExplanation: ...


def explain(
    journal: HasJournal | str | Path,
    job: str,
    *,
    at: str | None = None,
    changes: Sequence[str] = (),
    node: str | None = None,
    trials: int = BUDGET,
    kernels: str = "auto",
) -> JobExplanation:
    """Explain why a job waits or what became of it, and what would change that.

    For a job that waits: what blocks it, its queue position, who holds what it waits for, and the smallest change of
    each kind that would start it now, found by trying on a copy of the cluster's state.

    Args:
        journal: A journal or its path, or a simulation or an engine that has one.
        job: The id of the job, or its name if only one job has it.
        at: Explain the job at this time since the start, such as "2d3h". Default: at the end.
        changes: Changes to try together, such as "quota:research+8" or "priority:+10".
        node: A node; the explanation says why it does not take the job.
        trials: The limit of the search for smallest changes, in queue heads tried; 0 skips the search.
        kernels: "auto", "plain" or "compiled".

    Raises:
        UserError: The journal has no such job, or a change cannot be made.
    """
    if isinstance(journal, str | Path):
        with read_journal(journal) as opened:
            return opened.explain(job, at=at, changes=changes, node=node, trials=trials, kernels=kernels)
    if not hasattr(journal, "explain"):
        raise UserError(f"journal: expected a journal, its path or a simulation, found {type(journal).__name__}")
    return journal.explain(job, at=at, changes=changes, node=node, trials=trials, kernels=kernels)
