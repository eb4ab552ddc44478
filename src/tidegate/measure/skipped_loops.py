"""What the twin left out of loops: the last turn that was seen came so many times more, and nothing else meanwhile.

Who was in the loop stood as it did while time passed. What it held then is of no length, and what the turn was made of
counts as often as it would have come.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.measure.event_joins import NEVER, Marks, all_between, first_after
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import I64
from tidegate.model.facts import EventKind


class LeftOut(NamedTuple):
    """Loops that were found, in columns, a row for each workload in one."""

    number: I64
    order: I64
    left_ms: I64  # 0 where how long a turn takes is not known: then nothing is known of what was left out
    turns: I64
    begins: I64  # the order of the last decision before the turn

    def times(self, number: I64, order: I64) -> I64:
        """How often things came that happened to a workload: once, or with each turn that was left out."""
        return 1 + self._of_turn(self.turns, number, order)

    def later_ms(self, number: I64, order: I64) -> I64:
        """How much later such things came for the last time."""
        return self._of_turn(self.left_ms, number, order)

    def _of_turn(self, column: I64, number: I64, order: I64) -> I64:
        """What a column says of the turn that things were a part of; 0: of none."""
        found, row = first_after(Marks(self.number, self.order, np.arange(len(self.number))), number, order)
        again = (found < NEVER) & (np.append(self.begins, 0)[row] < order)
        values: I64 = np.where(again, np.append(column, 0)[row], 0)
        return values

    def between(self, number: I64, after: I64, until: I64) -> I64:
        """How much time was left out for workloads, after an order and up to another."""
        ordered, first, end = all_between(Marks(self.number, self.order, self.left_ms), number, after, until)
        sums = np.append(0, np.cumsum(ordered.at_ms))
        left: I64 = sums[end] - sums[first]
        return left


def left_out_of(flat: Flat) -> LeftOut:
    """What was left out of a run."""
    found, decisions = flat.facts.of(EventKind.LOOP_FOUND), flat.decisions
    turn_ms, first = found.value.astype(np.int64), found.second_value.astype(np.int64)
    left_ms = np.where(turn_ms > 0, np.maximum(found.arg, 0), 0)
    last = np.searchsorted(decisions.id, first) - 1
    begins = np.where(last >= 0, np.append(decisions.order, 0)[last], -1)
    return LeftOut(found.subject, found.order, left_ms, left_ms // np.maximum(turn_ms, 1), begins)
