"""Local queues: one row for each LocalQueue, and one for each queue that work is submitted to directly."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class LocalQueues(ColumnTable):
    """Local queues as a table."""

    fills: ClassVar = {"queue": NONE, "weight_milli": 1000}
    grids: ClassVar = {"decayed_usage": "resource", "rank": "one"}

    queue: I64
    weight_milli: I64
    closed: I64
    at_ms: I64  # when its usage was decayed last
    decayed_usage: I64  # (rows, resources): decayed usage in thousandths
    rank: I64  # (rows, 1): by decayed usage; the highest used most


QUEUE, WEIGHT_MILLI, CLOSED, AT_MS = range(len(LocalQueues.columns))
