"""Sizes of jobs: classes by the GPUs of the whole job."""

from __future__ import annotations

import numpy as np

from tidegate.model.arrays import I64

#: Sizes by the most GPUs in them, and their names.
SIZES = ((999, "<1"), (1_000, "1"), (2_000, "2"), (4_000, "3-4"), (8_000, "5-8"), (16_000, "9-16"), (64_000, "17-64"))
LARGEST = "65+"
SIZE_NAMES = (*(name for _, name in SIZES), LARGEST)


def size_of(gpus_milli: I64) -> I64:
    """The row of SIZE_NAMES of each job."""
    return np.searchsorted(np.array([most for most, _ in SIZES]), gpus_milli, side="left")
