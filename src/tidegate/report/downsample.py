"""Long curves shortened for a chart: mean and maximum of each stretch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64


class Downsampled(NamedTuple):
    """A curve in at most so many points."""

    at: list[float]
    mean: list[float | None]
    top: list[float | None]


def thin(at: I64, values: F64, most: int) -> Downsampled:
    """Stretches of equal length, as many as may be drawn."""
    each = max(-(-len(values) // most), 1)
    edges = np.arange(0, len(values), each)
    if not len(edges):
        return Downsampled([], [], [])
    counts = np.diff(np.append(edges, len(values)))
    mean = np.add.reduceat(values, edges) / counts
    top = np.maximum.reduceat(values, edges)
    return Downsampled([float(one) for one in at[edges]], rounded(mean), rounded(top))


def rounded(values: F64) -> list[float | None]:
    """Four digits are more than can be seen; what is not a number is left out."""
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values.tolist()]
