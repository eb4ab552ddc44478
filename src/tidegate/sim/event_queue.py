"""A queue of timed events, put in and taken out by the column.

A list of sorted runs, merged as they grow, so that a million events cost a few sorts and no heap.
"""

from __future__ import annotations

import numpy as np

from tidegate.model.arrays import I64

_MOST_RUNS = 12

_COLUMNS = 6


class Events:
    """Events in the columns of one block: a slice or a new order of it is one operation."""

    __slots__ = ("at_ms", "block")

    def __init__(self, block: I64) -> None:
        self.block = block  # (columns, entries)
        self.at_ms: I64 = block[0]

    @property
    def kind(self) -> I64:
        """What happens."""
        column: I64 = self.block[1]
        return column

    @property
    def subject(self) -> I64:
        """The subject it happens to."""
        column: I64 = self.block[2]
        return column

    @property
    def pod(self) -> I64:
        """The part of the subject."""
        column: I64 = self.block[3]
        return column

    @property
    def arg(self) -> I64:
        """A further argument."""
        column: I64 = self.block[4]
        return column

    @property
    def order(self) -> I64:
        """When it was put in, counted."""
        column: I64 = self.block[5]
        return column

    def __len__(self) -> int:
        return len(self.at_ms)

    def part(self, start: int, end: int) -> Events:
        """A slice of the events."""
        return Events(self.block[:, start:end])

    def take(self, which: I64) -> Events:
        """Some of the events, in a new order."""
        return Events(self.block.take(which, axis=1))

    def sorted(self) -> Events:
        """By time; equal times stay in the order they were put in."""
        return self.take(np.lexsort((self.order, self.at_ms)))


def join(parts: list[Events]) -> Events:
    """Concatenate."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Events(np.zeros((_COLUMNS, 0), np.int64))
    return Events(np.concatenate([part.block for part in parts], axis=1))


class EventQueue:
    """Events in the order of time."""

    def __init__(self) -> None:
        self._runs: list[Events] = []  # each sorted, older ones first
        self._fresh: list[Events] = []  # put in, not yet sorted
        self._put = 0  # events so far

    def put(self, at_ms: I64 | int, kind: int, subject: I64 | int, pod: I64 | int = -1, arg: I64 | int = 0) -> None:
        """Put events in; a single value applies to all, except for the subject."""
        subjects = np.atleast_1d(subject)
        if len(subjects):
            block = np.empty((_COLUMNS, len(subjects)), np.int64)
            block[0], block[1], block[2], block[3], block[4] = at_ms, kind, subjects, pod, arg
            block[5] = np.arange(self._put, self._put + len(subjects))
            self._put += len(subjects)
            self._fresh.append(Events(block))

    def empty(self) -> Events:
        """Take out everything, in order."""
        self._settle()
        taken = join(self._runs).sorted()
        self._runs = []
        return taken

    def peek(self) -> Events:
        """Everything, in order; it stays."""
        self._settle()
        return join(self._runs).sorted()

    def fill(self, entries: Events, put: int) -> None:
        """Put back events that were taken out and handled elsewhere, with the new count."""
        if len(entries):
            self._fresh.append(entries)
        self._put = put

    def count(self) -> int:
        """Events put in so far."""
        return self._put

    def next_ms(self) -> int | None:
        """The time of the next event; None if there is none."""
        self._settle()
        return min((int(run.at_ms[0]) for run in self._runs), default=None)

    def take_until(self, until_ms: int) -> Events:
        """Take out everything up to and including a time, in order."""
        self._settle()
        taken, kept = [], []
        for run in self._runs:
            if run.at_ms[0] > until_ms:
                kept.append(run)
                continue
            cut = int(run.at_ms.searchsorted(until_ms, side="right"))
            taken.append(run.part(0, cut))
            if cut < len(run):
                kept.append(run.part(cut, len(run)))
        self._runs = kept
        return join(taken).sorted()

    def _settle(self) -> None:
        if self._fresh:
            self._runs.append(join(self._fresh).sorted())
            self._fresh = []
        if len(self._runs) > _MOST_RUNS:
            # The small ones together: each event is merged only a few times.
            self._runs.sort(key=lambda run: -len(run))
            half = len(self._runs) // 2
            self._runs = [*self._runs[:half], join(self._runs[half:]).sorted()]
