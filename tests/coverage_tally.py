"""Counting how often intervals hold the truth."""

from __future__ import annotations

import numpy as np

from tidegate.demand.estimate import Number


class Tally:
    """How often intervals held the truth, by case."""

    def __init__(self) -> None:
        self.cases: dict[str, list[bool | None]] = {}

    def add(self, case: str, number: Number, truth: float, *, none: bool | None = None) -> None:
        """Count an interval; `none` where the window carries none, which is right where hardly any can carry one."""
        held = number.low <= truth <= number.high if number.how.has_interval() else none
        self.cases.setdefault(case, []).append(held)

    def shares(self) -> dict[str, tuple[float, float]]:
        """The share of the intervals that held the truth, and that of the windows that carried one."""
        told = {case: [one for one in held if one is not None] for case, held in self.cases.items()}
        return {case: (float(np.mean(told[case])), len(told[case]) / len(self.cases[case])) for case in told}
