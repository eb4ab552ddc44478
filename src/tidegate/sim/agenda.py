"""What will happen when: a queue of things to come, put in and taken out by the column.

A list of sorted runs, merged as they grow, so that a million entries cost a few sorts and no heap.
Must not know: what the entries mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.columns import I64

_MOST_RUNS = 12


class Entries(NamedTuple):
    """Things to come, in columns."""

    at_ms: I64
    kind: I64
    subject: I64
    pod: I64
    arg: I64

    def sorted(self) -> Entries:
        """By time; equal times stay in the order they were put in."""
        order = np.argsort(self.at_ms, kind="stable")
        return Entries(*(column[order] for column in self))

    def part(self, start: int, end: int) -> Entries:
        """A stretch of the entries."""
        return Entries(*(column[start:end] for column in self))


def join(parts: list[Entries]) -> Entries:
    """One after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Entries(*(np.zeros(0, np.int64) for _ in range(5)))
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Agenda:
    """Things to come, in the order of time."""

    def __init__(self) -> None:
        self._runs: list[Entries] = []  # each sorted, older ones first
        self._fresh: list[Entries] = []  # put in, not yet sorted

    def put(self, at_ms: I64 | int, kind: int, subject: I64 | int, pod: I64 | int = -1, arg: I64 | int = 0) -> None:
        """Put entries in; a single value stands for all."""
        columns = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(c, np.int64)) for c in (at_ms, kind, subject, pod, arg))
        )
        if columns[0].size:
            self._fresh.append(Entries(*columns))

    def next_ms(self) -> int | None:
        """The time of the next entry; None if there is none."""
        self._settle()
        return min((int(run.at_ms[0]) for run in self._runs), default=None)

    def take_until(self, until_ms: int) -> Entries:
        """Take out everything up to and including a time, in order."""
        self._settle()
        taken, kept = [], []
        for run in self._runs:
            cut = int(np.searchsorted(run.at_ms, until_ms, side="right"))
            if cut:
                taken.append(run.part(0, cut))
            if cut < len(run.at_ms):
                kept.append(run.part(cut, len(run.at_ms)))
        self._runs = kept
        return join(taken).sorted()

    def _settle(self) -> None:
        if self._fresh:
            self._runs.append(join(self._fresh).sorted())
            self._fresh = []
        if len(self._runs) > _MOST_RUNS:
            # The small ones together: each entry is merged a few times only.
            self._runs.sort(key=lambda run: -len(run.at_ms))
            half = len(self._runs) // 2
            self._runs = [*self._runs[:half], join(self._runs[half:]).sorted()]
