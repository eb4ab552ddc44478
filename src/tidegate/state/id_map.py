"""From the world's numbers to rows. A world numbers its objects from 0 upwards, so that an array is enough."""

from __future__ import annotations

import numpy as np

from tidegate.model.arrays import I32, I64

#: A number that has no row.
UNKNOWN = -1


class Numbers:
    """Rows by number."""

    def __init__(self) -> None:
        self._rows: I32 = np.full(1024, UNKNOWN, np.int32)

    def rows(self, numbers: I64) -> I64:
        """The row of each number; UNKNOWN where there is none."""
        known = numbers.view(np.uint64) < len(self._rows)  # a negative number is a large one here
        if np.count_nonzero(known) == len(numbers):
            return self._rows[numbers].astype(np.int64)
        return np.where(known, self._rows[np.where(known, numbers, 0)], UNKNOWN).astype(np.int64)

    def row(self, number: int) -> int:
        """The row of one number; UNKNOWN if there is none."""
        return int(self._rows[number]) if 0 <= number < len(self._rows) else UNKNOWN

    def put(self, numbers: I64, rows: I64) -> None:
        """Note the rows of numbers."""
        if len(numbers) and int(numbers.max()) >= len(self._rows):
            grown = np.full(max(2 * len(self._rows), int(numbers.max()) + 1), UNKNOWN, np.int32)
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        self._rows[numbers] = rows

    def drop(self, numbers: I64) -> None:
        """Forget the rows of numbers."""
        self._rows[numbers] = UNKNOWN

    def copy(self) -> Numbers:
        """A copy that shares nothing."""
        twin = Numbers()
        twin._rows = self._rows.copy()
        return twin
