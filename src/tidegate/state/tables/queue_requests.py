"""What a work class requests of its queue, at the row of the work class."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class QueueRequests(ColumnTable):
    """What a work class requests of its queue, at the row of the work class."""

    fills: ClassVar = {"queue": NONE, "local_queue": NONE, "next_class": NONE, "held": -1}

    queue: I64
    local_queue: I64
    first_ask: I64
    asks: I64
    next_class: I64  # chain of its queue
    partial: I64  # 1: it may start with fewer pods
    refused: I64  # Reason why its queue does not consider it; 0: it does
    held: I64  # epoch of the tree at which it was refused: not tried before the next
    held_code: I64


QUEUE, LOCAL_QUEUE, FIRST_ASK, ASKS, NEXT_CLASS, PARTIAL, REFUSED, HELD, HELD_CODE = range(len(QueueRequests.columns))
