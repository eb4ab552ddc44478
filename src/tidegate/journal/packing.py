"""Facts and decisions as bytes: columns, each in the narrowest form that keeps it exact.

The same step gives the same bytes, and the bytes give the same step.
Must not know: files, or what any column means.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tidegate.model.decisions import DecisionBatch, StepResult, Tally
from tidegate.model.facts import NO_SUBMISSIONS, EventBatch, Submissions
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy
from tidegate.model.work import Work

#: Version of the packed form.
PACKING_VERSION = 1

_PAYLOADS: dict[str, type[Policy | Node | Work]] = {"policy": Policy, "node": Node, "work": Work}
_NARROW = tuple((f"i{size}", -(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) for size in (1, 2, 4, 8))

_EVENT_TYPES = (np.uint8, np.int64, np.int64, np.int32, np.int64)
_DECISION_TYPES = (np.int64, np.uint8, np.int64, np.int32, np.int64, np.int64, np.int16, np.int64, np.int64)
_TALLY_TYPES = (np.int64, np.int16, np.int32)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def pack_events(events: EventBatch) -> bytes:
    """Facts as bytes."""
    columns = [pack_column(column) for column in (events.kind, events.at_ms, events.subject, events.pod, events.arg)]
    told = events.submissions
    submitted = [pack_column(column) for column in told[:4]]
    return _encode(
        [
            columns,
            pack_grid(events.values),
            [[_tag(payload), payload] for payload in events.payloads],
            events.works,
            [submitted, list(told.ids)] if len(told.ids) else None,
        ]
    )


def unpack_events(packed: bytes) -> EventBatch:
    """The facts that were packed."""
    columns, values, payloads, works, submitted = _decode(packed)
    kind, at_ms, subject, pod, arg = (unpack_column(c, dtype) for c, dtype in zip(columns, _EVENT_TYPES, strict=True))
    return EventBatch(
        kind,
        at_ms,
        subject,
        pod,
        arg,
        unpack_grid(values, np.float64),
        tuple(msgspec.convert(payload, _PAYLOADS[tag]) for tag, payload in payloads),
        tuple(msgspec.convert(work, Work) for work in works),
        _unpack_submissions(submitted),
    )


def _unpack_submissions(packed: Any) -> Submissions:
    if packed is None:
        return NO_SUBMISSIONS
    (work, submitted, estimate, deadline), ids = packed
    return Submissions(
        unpack_column(work, np.int32),
        unpack_column(submitted, np.int64),
        unpack_column(estimate, np.int64),
        unpack_column(deadline, np.int64),
        ids,
    )


def pack_result(result: StepResult) -> bytes:
    """Decisions as bytes."""
    decisions = [pack_grid(column) if column.ndim > 1 else pack_column(column) for column in result.decisions]
    return _encode([decisions, [pack_column(column) for column in result.tally], result.next_wake_ms, result.cycles])


def unpack_result(packed: bytes) -> StepResult:
    """The decisions that were packed."""
    decisions, tally, next_wake_ms, cycles = _decode(packed)
    columns = [
        unpack_grid(column, dtype) if at == 7 else unpack_column(column, dtype)
        for at, (column, dtype) in enumerate(zip(decisions, _DECISION_TYPES, strict=True))
    ]
    rows = [unpack_column(column, dtype) for column, dtype in zip(tally, _TALLY_TYPES, strict=True)]
    return StepResult(DecisionBatch(*columns), Tally(*rows), next_wake_ms, cycles)


def _tag(payload: Policy | Node | Work) -> str:
    return type(payload).__name__.lower()


def pack_column(column: Any) -> list[Any]:
    """[length, form, data]: one value for all, a count upwards, or narrow integers."""
    n = len(column)
    if n == 0:
        return [0, "one", 0]
    if column.dtype.kind == "f":
        first = column[0]
        return [n, "one", float(first)] if (column == first).all() else [n, "f8", column.tobytes()]
    low, high = int(column.min()), int(column.max())
    if low == high:
        return [n, "one", low]
    if high - low == n - 1 and int(column[0]) == low and (column[1:] - column[:-1] == 1).all():
        return [n, "up", low]
    for form, lowest, highest in _NARROW:
        if lowest <= low and high <= highest:
            return [n, form, column.astype(form).tobytes()]
    raise AssertionError(column.dtype)


def unpack_column(packed: list[Any], dtype: Any) -> Any:
    """The column that was packed."""
    n, form, data = packed
    if form == "one":
        return np.full(n, data, dtype)
    if form == "up":
        return np.arange(data, data + n, dtype=dtype)
    return np.frombuffer(data, form).astype(dtype)


def pack_grid(grid: Any) -> list[Any]:
    """A grid, column by column."""
    return [pack_column(grid[:, at]) for at in range(grid.shape[1])]


def unpack_grid(packed: list[Any], dtype: Any) -> Any:
    """The grid that was packed."""
    return np.ascontiguousarray(np.stack([unpack_column(column, dtype) for column in packed], axis=1))
