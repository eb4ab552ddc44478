"""Maps columns of a table to fields: by name and values, or by --map."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from tidegate.sources.field_catalog import FIELDS, NEEDS, ColumnField
from tidegate.sources.findings import SourceError
from tidegate.sources.options import CanonicalTable
from tidegate.sources.parse_cells import LOCAL, UNITS, WORDS, ZONED, CellFormat, CellKind, read_cell

_SUFFIXES = {
    word: unit
    for unit, words in {
        "ns": "ns nanos nanoseconds",
        "us": "us micros microseconds",
        "ms": "ms msec millis milliseconds",
        "s": "s sec secs seconds",
        "min": "min mins minutes",
        "h": "h hr hrs hours",
        "d": "days",
        "milli": "milli",
        "percent": "percent pct perc",
        "one": "ratio",
        "B": "bytes",
        "KiB": "kib kb",
        "MiB": "mib mb",
        "GiB": "gib gb",
        "": "rps w",
    }.items()
    for word in words.split()
}


class ColumnMapping(NamedTuple):
    """The column of a field, and how it is read; without a column the value is the same in every row."""

    field: str
    column: str
    how: CellFormat
    constant: str = ""
    by: str = "name"  # name, user or format
    sure: bool = True  # its unit is said, or follows from the values

    def text(self) -> str:
        """`submitted = created_at (time, ms)`."""
        if not self.column:
            return f"{self.field} = {self.constant} in every row"
        unit = self.how.unit or ("text" if self.how.formats else "")
        return f"{self.field} = {self.column} ({', '.join(part for part in (self.how.cell, unit) if part)})"


class TableColumns(NamedTuple):
    """What the columns of a file are."""

    table: CanonicalTable
    chosen: tuple[ColumnMapping, ...]

    def of(self, field: str) -> ColumnMapping | None:
        """The column that a field has."""
        return next((one for one in self.chosen if one.field == field), None)


class ColumnOverride(NamedTuple):
    """The column of one field with its unit, or a value for every row, as --map gives it."""

    column: str = ""
    unit: str = ""
    constant: str = ""


def read_map_option(text: str) -> dict[str, ColumnOverride]:
    """Read `submitted=created_at:ms,gpus=num_gpu,queue==research`; a SourceError says what is wrong with it."""
    overrides: dict[str, ColumnOverride] = {}
    known = {field.name for fields in FIELDS.values() for field in fields}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        field, sign, rest = part.partition("=")
        if not sign or not rest.strip("=") or field.strip() not in known:
            raise SourceError(
                f"--map {part}: expected FIELD=COLUMN, FIELD=COLUMN:UNIT or FIELD==VALUE, "
                f"with a field of {', '.join(sorted(known))}"
            )
        if rest.startswith("="):
            overrides[field.strip()] = ColumnOverride(constant=rest[1:].strip())
            continue
        column, colon, unit = rest.strip().rpartition(":")
        units = {unit for listed in UNITS.values() for unit in listed}
        overrides[field.strip()] = (
            ColumnOverride(column, unit) if colon and unit in units else ColumnOverride(rest.strip())
        )
    return overrides


# -- guessing --------------------------------------------------------------------------------------------------


class DetectionHints(NamedTuple):
    """What is known of a table before its columns are detected."""

    overrides: Mapping[str, ColumnOverride] = {}
    zone: str = "UTC"  # of times that name none
    table: CanonicalTable | None = None
    whole: bool = False  # nothing but the overrides is to be read


def detect_columns(name: str, sample: pl.DataFrame, known: DetectionHints) -> TableColumns:
    """Which table this is, and what its columns are; a SourceError says what is missing."""
    tables = [known.table] if known.table else list(FIELDS)
    found = [_choose(name, one, sample, known) for one in tables]
    whole = [mapping for mapping in found if not missing(mapping)]
    if not whole:
        raise SourceError(_missing_text(name, sample, found))
    return max(whole, key=lambda mapping: (_score(mapping), -tables.index(mapping.table)))


def missing(mapping: TableColumns) -> list[tuple[str, ...]]:
    """What must be there and is not."""
    there = {one.field for one in mapping.chosen}
    return [needed for needed in NEEDS[mapping.table] if not there & set(needed)]


def _score(mapping: TableColumns) -> int:
    telling = {field for needed in NEEDS[mapping.table][1:] for field in needed}
    wished = sum(10 for one in mapping.chosen if one.by == "user")
    return wished + len(mapping.chosen) + 3 * sum(one.field in telling for one in mapping.chosen)


def _missing_text(name: str, sample: pl.DataFrame, found: list[TableColumns]) -> str:
    columns = ", ".join(sample.columns[:20]) or "none"
    # Where nothing was recognised at all, it is jobs that people bring.
    best = min(found, key=lambda mapping: (len(missing(mapping)) if mapping.chosen else 99, -len(mapping.chosen)))
    needs = " and ".join(" or ".join(needed) for needed in missing(best))
    example = missing(best)[0][0]
    nested = [column for column in sample.columns if is_nested(sample[column])]
    if nested:
        columns += f" (not read, because their cells hold more than one value: {', '.join(nested[:20])})"
    return (
        f"{name}: no column was recognised as {needs} of a table of {best.table}; found the columns {columns}; "
        f"say which it is: --map {example}=COLUMN, or --map {example}==VALUE if it is the same in every row"
    )


def _choose(name: str, table: CanonicalTable, sample: pl.DataFrame, known: DetectionHints) -> TableColumns:
    chosen: list[ColumnMapping] = []
    zone = known.zone
    taken: set[str] = {override.column for override in known.overrides.values()}
    for field in FIELDS[table]:
        override = known.overrides.get(field.name)
        if override is not None:
            chosen.append(_overridden(name, field, override, sample, zone))
            continue
        column = None if known.whole else _best(field, sample, taken)
        if column is None:
            continue
        how, sure = _how(field, column, sample[column], "", zone)
        if not _readable(sample[column], how):
            continue
        chosen.append(ColumnMapping(field.name, column, how, sure=sure))
        if field.cell is not CellKind.GPUS:  # a TRES string says the model, too
            taken.add(column)
    return TableColumns(table, _agreed(chosen, sample))


def _overridden(
    name: str, field: ColumnField, override: ColumnOverride, sample: pl.DataFrame, zone: str
) -> ColumnMapping:
    if not override.column:
        return ColumnMapping(
            field.name, "", CellFormat(field.cell, override.unit, zone=zone), constant=override.constant, by="user"
        )
    if override.column not in sample.columns:
        raise SourceError(
            f"{name}: --map {field.name}={override.column}: there is no such column; "
            f"found {', '.join(sample.columns[:20])}"
        )
    if is_nested(sample[override.column]):
        raise SourceError(
            f"{name}: --map {field.name}={override.column}: the column holds {_nested_text(sample[override.column])}, "
            "expected one value in each row; export its parts as columns of their own"
        )
    if override.unit and override.unit not in UNITS.get(field.cell, ()):
        units = ", ".join(UNITS.get(field.cell, ())) or "none"
        raise SourceError(f"{name}: --map {field.name}={override.column}:{override.unit}: expected a unit of {units}")
    how, sure = _how(field, override.column, sample[override.column], override.unit, zone)
    return ColumnMapping(field.name, override.column, how, by="user", sure=sure)


def _best(field: ColumnField, sample: pl.DataFrame, taken: set[str]) -> str | None:
    ranks = {alias: rank for rank, alias in enumerate(field.names.split())}
    free = [column for column in sample.columns if column not in taken and not is_nested(sample[column])]
    if len(sample):
        free = [column for column in free if sample[column].null_count() < len(sample)]
    matches = [(ranks[word], column) for column in free for word in [_bare(column)[0]] if word in ranks]
    return min(matches, default=(0, None))[1]


def is_nested(values: pl.Series) -> bool:
    """Whether cells hold more than one value."""
    return values.dtype.is_nested() or values.dtype in {pl.Binary, pl.Object}


def _nested_text(values: pl.Series) -> str:
    if isinstance(values.dtype, pl.Struct):
        return "records"
    return "lists" if values.dtype.is_nested() else "bytes"


def _bare(column: str) -> tuple[str, str]:
    """The name without capitals, spaces and unit, and the unit."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", column)
    parts = [part for part in re.split(r"[^a-z0-9%]+", spaced.lower()) if part]
    unit = ""
    if len(parts) > 1 and parts[-1] in _SUFFIXES:
        unit = _SUFFIXES[parts.pop()]
    return "".join(parts), unit


def _how(field: ColumnField, column: str, values: pl.Series, unit: str, zone: str) -> tuple[CellFormat, bool]:
    """How a column is read, and whether its unit is sure."""
    allowed = UNITS.get(field.cell, ())
    named = _bare(column)[1]
    unit = unit or (named if named in allowed else "")
    if field.cell is CellKind.GPUS and not unit:
        unit = {"gpumilli": "milli", "plangpu": "percent"}.get(_bare(column)[0], "")
    numbers = _numbers(values) if field.cell not in WORDS else None
    numeric = numbers is not None
    if field.cell is CellKind.TIME and not numeric:
        return CellFormat(CellKind.TIME, formats=_formats(values), zone=zone), True
    if numbers is None or not allowed or unit:
        return CellFormat(field.cell, unit, numeric, zone=zone), True
    guessed = _unit_by_size(field.cell, numbers)
    return CellFormat(field.cell, guessed or allowed[0], numeric, zone=zone), bool(
        guessed
    ) or field.cell is CellKind.GPUS


def _numbers(values: pl.Series) -> pl.Series | None:
    """The values as numbers; None if most are none."""
    if values.dtype.is_numeric():
        return values.cast(pl.Float64).drop_nulls()
    if values.dtype != pl.String:
        return None
    there = values.drop_nulls()
    numbers = there.cast(pl.Float64, strict=False).drop_nulls()
    return numbers if len(numbers) and len(numbers) * 2 > len(there) else None


def _unit_by_size(cell: CellKind, numbers: pl.Series) -> str:
    """The unit that the size of the values shows; empty if it does not."""
    usual, largest = (numbers.abs().quantile(part) or 0 for part in (0.5, 0.99))
    if cell is CellKind.TIME:
        limits = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": 1e20}
        return next((unit for unit, most in limits.items() if usual < most), "") if usual >= 5e8 else ""
    if cell is CellKind.SHARE:
        return "one" if largest <= 1 else "percent"
    if cell is CellKind.MEMORY:
        return "B" if usual > 1e7 else "MiB" if usual > 1000 else ""
    return ""


def is_calendar(mapping: TableColumns, sample: pl.DataFrame) -> bool:
    """Whether its times are of a calendar; numbers too small for one count from the start of a trace."""
    times = [one for one in mapping.chosen if one.how.cell is CellKind.TIME and one.column]
    for one in times:
        numbers = _numbers(sample[one.column])
        if numbers is None or (not one.how.numeric and not sample[one.column].dtype.is_numeric()):
            return True
        if len(numbers) and _unit_by_size(CellKind.TIME, numbers):
            return True
    return False


def _formats(values: pl.Series) -> tuple[str, ...]:
    """The format that all values have; none if they have several or are typed."""
    if values.dtype != pl.String:
        return ()
    there = values.drop_nulls().to_frame("x")
    for form in (*ZONED, *LOCAL):
        read = there.select(read_cell(pl.col("x"), pl.String(), CellFormat(CellKind.TIME, formats=(form,)))).to_series()
        if len(there) and read.null_count() * 10 <= len(there):
            return (form,)
    return ()


def _readable(values: pl.Series, how: CellFormat) -> bool:
    """Whether at least some of the values can be read so."""
    there = values.drop_nulls().to_frame("x")
    if not len(there):
        return True
    read = there.select(read_cell(pl.col("x"), values.dtype, how)).to_series()
    return read.null_count() * 2 <= len(there)


def _agreed(chosen: list[ColumnMapping], sample: pl.DataFrame) -> tuple[ColumnMapping, ...]:
    """With start, end and duration in one table, the duration's unit is the one that fits."""
    by_field = {one.field: one for one in chosen}
    parts = [by_field.get(field) for field in ("started", "ended", "duration")]
    if any(one is None or not one.column for one in parts) or parts[2] is None or parts[2].sure:
        return tuple(chosen)
    started, ended, duration = (
        sample.select(read_cell(pl.col(one.column), sample[one.column].dtype, one.how)).to_series()
        for one in parts
        if one is not None
    )
    ratio = ((ended - started) / duration).drop_nans().drop_nulls().median()
    scale = {1.0: "s", 0.001: "ms", 1e-6: "us", 60.0: "min", 3600.0: "h"}
    fitting = [unit for size, unit in scale.items() if isinstance(ratio, float) and 0.9 < ratio / size < 1.1]
    if not fitting:
        return tuple(chosen)
    fixed = parts[2]._replace(how=parts[2].how._replace(unit=fitting[0]), sure=True)
    return tuple(fixed if one.field == "duration" else one for one in chosen)
