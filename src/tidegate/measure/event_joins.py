"""Joins of columns of events: the next event of a key, events between two, rows by number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64

#: The order of what never came.
NEVER = 1 << 62

#: A time that has not come.
NOT_YET = -1


class Marks(NamedTuple):
    """Things that happened to a key, in columns. Keys are small: with an order they share 63 bits."""

    key: I64
    order: I64
    at_ms: I64


def join_marks(*parts: Marks) -> Marks:
    """All marks together."""
    return Marks(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def first_after(marks: Marks, key: I64, order: I64) -> tuple[I64, I64]:
    """For each key the order and time of its first mark after an order; order NEVER where there is none."""
    ordered, place = _sought(marks, key, order + 1)
    return _found(ordered, place, key)


def first_of(*ends: tuple[I64, I64], never_ms: int) -> tuple[I64, I64]:
    """Of several ends, as `first_after` gives them, the first; `never_ms` is the time of what never ended."""
    order, at_ms = np.full(len(ends[0][0]), NEVER), np.full(len(ends[0][0]), never_ms)
    for one_order, one_ms in ends:
        at_ms = np.where(one_order < order, one_ms, at_ms)
        order = np.minimum(one_order, order)
    return order, at_ms


def all_between(marks: Marks, key: I64, after: I64, until: I64) -> tuple[Marks, I64, I64]:
    """All marks by key and order; and where those of each key, after an order and up to another, begin and end."""
    ordered, first = _sought(marks, key, after + 1)
    return ordered, first, np.maximum(_sought(marks, key, until + 1)[1], first)


def _sought(marks: Marks, key: I64, order: I64) -> tuple[Marks, I64]:
    """The marks by key and order, and the place where each pair would go."""
    most = int(marks.order.max(initial=0)) + 1
    combined = marks.key * (most + 1) + marks.order
    by_key = np.argsort(combined, kind="stable")
    place = np.searchsorted(combined[by_key], key * (most + 1) + np.minimum(order, most))
    return Marks(*(column[by_key] for column in marks)), place


def _found(ordered: Marks, place: I64, key: I64) -> tuple[I64, I64]:
    count = len(ordered.key)
    if count == 0:
        return np.full(len(key), NEVER), np.zeros(len(key), np.int64)
    at = np.clip(place, 0, count - 1)
    hit = (place >= 0) & (place < count) & (ordered.key[at] == key)
    return np.where(hit, ordered.order[at], NEVER), np.where(hit, ordered.at_ms[at], 0)


def same_keys(*columns: tuple[I64, I64]) -> list[I64]:
    """One small key for each distinct pair, the same in all columns."""
    most = max((int(second.max(initial=0)) for _, second in columns), default=0) + 2
    pairs = [first * most + second + 1 for first, second in columns]
    _, keys = np.unique(np.concatenate(pairs), return_inverse=True)
    return np.split(keys.astype(np.int64), np.cumsum([len(pair) for pair in pairs])[:-1])


class WorkloadRows:
    """From numbers of workloads to rows; what is said about unknown ones is left out."""

    def __init__(self, number: I64) -> None:
        self.number = number

    def of(self, numbers: I64) -> I64:
        """The row of each number, -1 where it is unknown."""
        if not len(self.number):
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        return np.where(self.number[at] == numbers, at, -1)

    def first(self, numbers: I64, values: I64) -> I64:
        """The first value of each; NOT_YET where there is none."""
        rows = self.of(numbers)
        column = np.full(len(self.number), NOT_YET)
        column[rows[rows >= 0][::-1]] = values[rows >= 0][::-1]  # of equal rows the last one written stays
        return column

    def sums(self, numbers: I64, values: I64) -> I64:
        """The sum of integers for each."""
        rows = self.of(numbers)
        column = np.zeros(len(self.number), np.int64)
        np.add.at(column, rows[rows >= 0], values[rows >= 0])
        return column

    def totals(self, numbers: I64, values: F64) -> F64:
        """The sum of floats for each."""
        rows = self.of(numbers)
        known = rows >= 0
        return np.bincount(rows[known], values[known], len(self.number)).astype(np.float64)
