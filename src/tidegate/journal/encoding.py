"""Facts and decisions as bytes: columns, each in the narrowest form that keeps it exact.

The same step gives the same bytes, and the bytes give the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tidegate.model.arrays import I32, I64
from tidegate.model.decisions import DecisionBatch, RefusalCounts, StepResult
from tidegate.model.facts import NO_SUBMISSIONS, FactBatch, FactKind, Payload, Submissions
from tidegate.model.hardware import Node
from tidegate.model.observed_status import DecayedUsage, ObservedStatus, UnmanagedPods
from tidegate.model.policy import Policy
from tidegate.model.work import Work

#: Version of the packed form.
PACKING_VERSION = 3

_PAYLOADS: dict[str, type[Payload]] = {
    kind.__name__.lower(): kind for kind in (Policy, Node, Work, ObservedStatus, DecayedUsage, UnmanagedPods)
}
_TAGS = {kind: tag for tag, kind in _PAYLOADS.items()}
_NARROW = tuple((f"i{size}", -(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) for size in (1, 2, 4, 8))

_EVENT_TYPES = (np.uint8, np.int64, np.int64, np.int32, np.int64)
_DECISION_TYPES = (np.int64, np.uint8, np.int64, np.int32, np.int64, np.int64, np.int16, np.int64, np.int64)
_TALLY_TYPES = (np.int64, np.int16, np.int32)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class WorkNumbers:
    """The works of a journal, numbered as they are first asked for: each is written once, and then meant by its number.

    Steps must be packed, or unpacked, from the first one on.
    """

    def __init__(self) -> None:
        self._all: tuple[Work, ...] = ()
        self._numbers: dict[Work, int] = {}
        self._told: tuple[Work, ...] = ()  # by the world, last
        self._numbers_of_told: I64 = np.zeros(0, np.int64)

    @property
    def all(self) -> tuple[Work, ...]:
        """All works, by number; made when it is asked for, as who writes a journal seldom does."""
        if len(self._all) < len(self._numbers):
            self._all = tuple(self._numbers)
        return self._all

    def number(self, told: tuple[Work, ...], asked: I32) -> tuple[I64, tuple[Work, ...]]:
        """The number of each work that is asked for, as a place among those told; and the works that are new."""
        if told is not self._told:
            self._told, self._numbers_of_told = told, np.full(len(told), -1, np.int64)
        new, numbers = list[Work](), self._numbers_of_told[asked]
        unknown = numbers < 0
        if np.count_nonzero(unknown):
            for at in np.unique(asked[unknown]).tolist():
                if told[at] not in self._numbers:
                    self._numbers[told[at]] = len(self._numbers)
                    new.append(told[at])
                self._numbers_of_told[at] = self._numbers[told[at]]
            numbers = self._numbers_of_told[asked]
        return numbers, tuple(new)

    def add(self, new: list[Any]) -> None:
        """Take in works that were unpacked."""
        if new:
            for work in msgspec.convert(new, list[Work]):
                self._numbers[work] = len(self._numbers)


def pack_events(events: FactBatch, works: WorkNumbers | None = None) -> bytes:
    """Facts as bytes; with the works of the steps before, or on their own."""
    told = events.submissions
    numbers, new = (works or WorkNumbers()).number(events.works, told.work)
    submitted = pack_columns([numbers, told.submitted_ms, told.estimate_ms])
    return _encode(
        [
            pack_columns([events.kind, events.at_ms, events.subject, events.pod, events.arg]),
            pack_grid(events.values),
            [[_tag(payload), payload] for payload in events.payloads],
            new,
            [submitted, list(told.ids)] if len(told.ids) else None,
        ]
    )


def unpack_events(packed: bytes, works: WorkNumbers | None = None) -> FactBatch:
    """The facts that were packed; with the works of the steps before, or on their own."""
    columns, values, payloads, new, submitted = _decode(packed)
    works = works or WorkNumbers()
    works.add(new)
    kind, at_ms, subject, pod, arg = (unpack_column(c, dtype) for c, dtype in zip(columns, _EVENT_TYPES, strict=True))
    return FactBatch(
        kind,
        at_ms,
        subject,
        pod,
        arg,
        unpack_grid(values, np.float64),
        tuple(msgspec.convert(payload, _PAYLOADS[tag]) for tag, payload in payloads),
        works.all if submitted is not None else (),
        _unpack_submissions(submitted),
    )


def _unpack_submissions(packed: Any) -> Submissions:
    if packed is None:
        return NO_SUBMISSIONS
    (work, submitted, estimate), ids = packed
    return Submissions(
        unpack_column(work, np.int32),
        unpack_column(submitted, np.int64),
        unpack_column(estimate, np.int64),
        ids,
    )


class PartlyUnpacked(NamedTuple):
    """Facts of which no column is unpacked yet."""

    columns: list[Any]
    values: list[Any]
    payloads: list[Any]
    new_works: list[Any]
    submitted: Any


def unpack_partly(packed: bytes) -> PartlyUnpacked:
    """Look into packed facts without unpacking them."""
    return PartlyUnpacked(*_decode(packed))


class SubmittedWorkloads(NamedTuple):
    """Who was submitted in a step: numbers, ids, and the number of the work that each asks for."""

    numbers: list[int]
    ids: list[str]
    works: list[int]


def submitted_in(peeled: PartlyUnpacked) -> SubmittedWorkloads | None:
    """The submitted workloads; None if there are none."""
    if peeled.submitted is None:
        return None
    kind, subject, arg = (unpack_column(peeled.columns[at], np.int64) for at in (0, 2, 4))
    mine = kind == FactKind.WORKLOAD_SUBMITTED
    (work, *_), ids = peeled.submitted
    rows = arg[mine]
    works = unpack_column(work, np.int64)[rows]
    return SubmittedWorkloads(subject[mine].tolist(), [ids[row] for row in rows.tolist()], works.tolist())


def is_about(peeled: PartlyUnpacked, result: bytes, number: int) -> bool:
    """Whether a step can be about a workload: it is told of, decided about, the cause of something, or rules change."""
    if peeled.payloads or _has(peeled.columns[2], number):
        return True
    decisions = _decode(result)[0]
    return _has(decisions[2], number) or _has(decisions[8], number)


def _has(packed: list[Any], value: int) -> bool:
    """Whether a packed column has a value."""
    n, form, data = packed
    if form == "one":
        return bool(n and data == value)
    if form == "up":
        return bool(data <= value < data + n)
    return bool(np.count_nonzero(np.frombuffer(data, form) == value))


def pack_works(works: WorkNumbers) -> bytes:
    """All works so far, for a reader that does not begin at the first step."""
    return _encode(works.all)


def unpack_works(packed: bytes) -> WorkNumbers:
    """The works that were packed."""
    works = WorkNumbers()
    works.add(_decode(packed))
    return works


def pack_result(result: StepResult) -> bytes:
    """Decisions as bytes."""
    *columns, evidence, cause = result.decisions
    *packed, cause_packed = pack_columns([*columns, cause])
    decisions = [*packed, pack_grid(evidence), cause_packed]
    return _encode([decisions, pack_columns(list(result.tally)), result.next_wake_ms, result.cycles])


def unpack_result(packed: bytes) -> StepResult:
    """The decisions that were packed."""
    decisions, tally, next_wake_ms, cycles = _decode(packed)
    columns = [
        unpack_grid(column, dtype) if at == 7 else unpack_column(column, dtype)
        for at, (column, dtype) in enumerate(zip(decisions, _DECISION_TYPES, strict=True))
    ]
    rows = [unpack_column(column, dtype) for column, dtype in zip(tally, _TALLY_TYPES, strict=True)]
    return StepResult(DecisionBatch(*columns), RefusalCounts(*rows), next_wake_ms, cycles)


def _tag(payload: Payload) -> str:
    return _TAGS[type(payload)]


def pack_columns(columns: Sequence[Any]) -> list[list[Any]]:
    """Columns of integers of equal length, each as [length, form, data]."""
    n = len(columns[0])
    if n == 0:
        return [[0, "one", 0] for _ in columns]
    block = np.empty((len(columns), n), np.int64)
    for at, column in enumerate(columns):
        block[at] = column
    # The bounds of all at once: columns are many, and mostly short.
    bounds = zip(block, np.minimum.reduce(block, 1).tolist(), np.maximum.reduce(block, 1).tolist(), strict=True)
    return [_pack_between(column, low, high) for column, low, high in bounds]


def pack_column(column: Any) -> list[Any]:
    """[length, form, data]: one value for all, a count upwards, or narrow integers; floats as they are."""
    if column.dtype.kind == "f" and len(column):
        first = column[0]
        return [len(column), "one", float(first)] if (column == first).all() else [len(column), "f8", column.tobytes()]
    return pack_columns([column])[0]


def _pack_between(column: I64, low: int, high: int) -> list[Any]:
    n = len(column)
    if low == high:
        return [n, "one", low]
    if high - low == n - 1 and column[0] == low and (column[1:] - column[:-1] == 1).all():
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
    if not np.count_nonzero(grid):  # as most are
        return [[len(grid), "one", grid.dtype.type(0).item()] for _ in range(grid.shape[1])]
    if grid.dtype.kind == "f":
        return [pack_column(grid[:, at]) for at in range(grid.shape[1])]
    return pack_columns(grid.T)


def unpack_grid(packed: list[Any], dtype: Any) -> Any:
    """The grid that was packed."""
    return np.ascontiguousarray(np.stack([unpack_column(column, dtype) for column in packed], axis=1))
