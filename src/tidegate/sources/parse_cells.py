"""Parses cells, as polars expressions: times, durations, GPUs, shares, memory and words.

A cell that cannot be read gives null; the caller compares it with cells that were empty.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import polars as pl

from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


class CellKind(StrEnum):
    """Kinds of values."""

    TIME = "time"
    DURATION = "duration"
    GPUS = "gpus"
    SHARE = "share"
    MEMORY = "memory"
    COUNT = "count"
    NUMBER = "number"
    TEXT = "text"
    MODEL = "model"  # of a GPU, by name or in a TRES string
    OUTCOME = "outcome"
    KIND = "kind"


#: Cells that are words, even if they look like numbers.
WORDS = (CellKind.TEXT, CellKind.OUTCOME, CellKind.KIND, CellKind.MODEL)

#: Milliseconds in a unit of time.
TIME_UNITS: dict[str, float] = {
    "ns": 1e-6, "us": 1e-3, "ms": 1, "s": SECOND_MS, "min": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS,
}  # fmt: skip

#: Thousandths in a unit of GPUs or shares.
SHARE_UNITS: dict[str, float] = {"milli": 1, "percent": 10, "one": 1000}

#: MiB in a unit of memory.
MEMORY_UNITS: dict[str, float] = {
    "B": 1 / 2**20, "KiB": 1 / 2**10, "MiB": 1, "GiB": 2**10, "MB": 1e6 / 2**20, "GB": 1e9 / 2**20,
}  # fmt: skip

#: Units that a kind of cell can have; the first one is taken where nothing says which.
UNITS: dict[CellKind, tuple[str, ...]] = {
    CellKind.TIME: ("s", "ms", "us", "ns"),
    CellKind.DURATION: ("s", "ms", "us", "ns", "min", "h", "d"),
    CellKind.GPUS: ("one", "milli", "percent"),
    CellKind.SHARE: ("one", "percent", "milli"),
    CellKind.MEMORY: ("MiB", "B", "KiB", "GiB", "MB", "GB"),
}

#: Times as text: first those with a zone.
ZONED = ("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %#z")
LOCAL = (
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y/%m/%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d",
)

OUTCOMES = {
    "done": "completed completing succeeded success succeed successful done finished complete pass passed terminated "
    "exited ok cd",
    "failed": "failed fail failure error oom out_of_memory outofmemory node_fail boot_fail timeout deadline "
    "deadline_exceeded crashed evicted nf f to",
    "cancelled": "cancelled canceled cancelling killed kill stopped aborted preempted revoked deactivated ca pr",
    "running": "running run active started suspended resizing requeued stage_out r s",
    "pending": "pending queued waiting submitted created configuring requeue_hold special_exit pd",
}
KINDS = {
    "inference": "inference serving service deployment online predict prediction server llm",
    "interactive": "interactive notebook jupyter devbox workspace session debug ide dev",
}


class CellFormat(NamedTuple):
    """How a column is read."""

    cell: CellKind
    unit: str = ""
    numeric: bool = False  # its cells are numbers, even if they stand as text
    formats: tuple[str, ...] = ()  # of times as text
    zone: str = "UTC"  # of times that name none


def read_cell(column: pl.Expr, dtype: pl.DataType, how: CellFormat) -> pl.Expr:
    """The value of a column that has this type."""
    if how.cell in WORDS:
        return _read_word(column if dtype == pl.String else column.cast(pl.String), how.cell)
    if dtype.is_temporal():
        return _read_temporal(column, dtype, how)
    if dtype == pl.String and not how.numeric:
        return _read_text(column, how)
    number = column.cast(pl.Float64, strict=False) if dtype == pl.String else column
    if how.cell is CellKind.NUMBER:
        return number.cast(pl.Float64)
    return _scaled(number, _factor(how), whole=dtype.is_integer())


def _factor(how: CellFormat) -> float:
    tables = {CellKind.TIME: TIME_UNITS, CellKind.DURATION: TIME_UNITS, CellKind.MEMORY: MEMORY_UNITS}
    unit = how.unit or UNITS.get(how.cell, ("",))[0]
    return tables.get(how.cell, SHARE_UNITS).get(unit, 1) if how.cell is not CellKind.COUNT else 1


def _scaled(number: pl.Expr, factor: float, *, whole: bool) -> pl.Expr:
    if whole and factor == 1:
        return number.cast(pl.Int64)
    if whole and factor >= 1 and factor == int(factor):
        return number.cast(pl.Int64) * int(factor)
    sound = pl.when(number.is_finite()).then(number) if not whole else number
    return (sound * factor).round(mode="half_to_even").cast(pl.Int64, strict=False)


def _read_temporal(column: pl.Expr, dtype: pl.DataType, how: CellFormat) -> pl.Expr:
    if isinstance(dtype, pl.Duration):
        return column.dt.total_milliseconds()
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is None and how.zone != "UTC":
        column = column.dt.replace_time_zone(how.zone, ambiguous="earliest", non_existent="null")
    return (
        column.cast(pl.Datetime("ms")).dt.timestamp("ms") if isinstance(dtype, pl.Date) else column.dt.timestamp("ms")
    )


def _read_text(column: pl.Expr, how: CellFormat) -> pl.Expr:
    match how.cell:
        case CellKind.TIME:
            return pl.coalesce(*(_parse_time(column, form, how.zone) for form in how.formats or (*ZONED, *LOCAL)))
        case CellKind.DURATION:
            return _parse_duration(column)
        case CellKind.GPUS:
            return _parse_gpus(column)
        case CellKind.SHARE:
            return _scaled(column.str.strip_chars(" %").cast(pl.Float64, strict=False), 10, whole=False)
        case CellKind.NUMBER:
            return column.cast(pl.Float64, strict=False)
        case _:
            return _scaled(column.cast(pl.Float64, strict=False), _factor(how), whole=False)


def _parse_time(column: pl.Expr, form: str, zone: str) -> pl.Expr:
    if form in LOCAL:
        parsed = column.str.to_datetime(form, time_unit="ms", strict=False)
        if zone != "UTC":
            parsed = parsed.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        return parsed.dt.timestamp("ms")
    written = column.str.replace(r"\s*(UTC|GMT)$", "Z")
    return written.str.to_datetime(form, time_unit="ms", strict=False).dt.timestamp("ms")


def _parse_duration(column: pl.Expr) -> pl.Expr:
    """`1-02:03:04`, `02:03:04`, `03:04.5`, `1h30m`, `90s`."""
    clock = column.str.extract_groups(r"^(?:(?P<d>\d+)-)?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+(?:\.\d+)?)$")
    words = column.str.extract_groups(r"^(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?$")
    spelled = pl.when(column != "").then(_total_ms(words))
    return pl.coalesce(
        pl.when(clock.struct.field("m").is_not_null()).then(_total_ms(clock)),
        pl.when(_any_group(words)).then(spelled),
        _scaled(column.cast(pl.Float64, strict=False), SECOND_MS, whole=False),
    )


def _any_group(groups: pl.Expr) -> pl.Expr:
    return pl.any_horizontal(groups.struct.field(name).is_not_null() for name in "dhms")


def _total_ms(groups: pl.Expr) -> pl.Expr:
    units = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS}
    parts = [groups.struct.field(name).cast(pl.Float64).fill_null(0) * ms for name, ms in units.items()]
    return pl.sum_horizontal(parts).round(mode="half_to_even").cast(pl.Int64)


def _parse_gpus(column: pl.Expr) -> pl.Expr:
    """`8`, `gres/gpu=8`, `gres/gpu:a100=4,gres/gpu:h100=4`, `gpu:a100:8`, or resources without GPUs."""
    text = column.str.to_lowercase()
    total = text.str.extract(r"(?:gres/|^|,)gpu=(\d+)").cast(pl.Int64, strict=False)
    typed = text.str.extract_all(r"gpu:[^=,:()]+[=:]\d+").list.eval(
        pl.element().str.extract(r"(\d+)$").cast(pl.Int64, strict=False)
    )
    bare = text.str.extract(r"gpu:(\d+)(?:$|[,(])").cast(pl.Int64, strict=False)
    listed = pl.when(typed.list.len() > 0).then(typed.list.sum())
    none = pl.when(text.str.contains(r"^[a-z_/]+(?::[^=,]+)?[=:]") & ~text.str.contains("gpu", literal=True)).then(0)
    plain = _scaled(column.cast(pl.Float64, strict=False), 1000, whole=False)
    return pl.coalesce(plain, pl.coalesce(total, listed, bare, none) * 1000)


def _read_word(text: pl.Expr, cell: CellKind) -> pl.Expr:
    if cell is CellKind.OUTCOME:
        word = text.str.to_lowercase().str.extract(r"^([a-z_]+)")
        return word.replace_strict(_spread(OUTCOMES), default="", return_dtype=pl.String)
    if cell is CellKind.KIND:
        word = text.str.to_lowercase().str.extract(r"^([a-z]+)")
        return word.replace_strict(_spread(KINDS), default="batch", return_dtype=pl.String)
    if cell is CellKind.MODEL:
        listed = text.str.extract(r"(?:gres/)?gpu:([A-Za-z][^=,:()]*)[=:]")
        return pl.coalesce(listed, pl.when(~text.str.contains(r"[=/]")).then(text))
    return text


def _spread(words: dict[str, str]) -> dict[str, str]:
    return {word: meaning for meaning, listed in words.items() for word in listed.split()}
