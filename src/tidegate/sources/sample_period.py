"""How long a sample stands for: the usual time between samples of the same thing."""

from __future__ import annotations

import polars as pl

from tidegate.sources.detect_columns import TableColumns
from tidegate.sources.options import CanonicalTable

#: Samples that are looked at.
_LOOKED_AT = 200_000

#: Steps of one thing that say how often it is sampled; with fewer, it is as all others.
_LEAST_STEPS = 5

_OF = {CanonicalTable.USE: ("allocation",), CanonicalTable.CAPACITY: ("queue", "gpu_model")}


def fill_period(frame: pl.LazyFrame, columns: TableColumns) -> pl.LazyFrame:
    """Say how long each sample stands for, where the table does not."""
    if columns.table not in _OF or columns.of("every") is not None:
        return frame
    things = list(_OF[columns.table])
    steps = _steps(frame, things)
    usual = _median(steps)
    own = steps.group_by(things).agg(pl.col("step").sort().get((pl.len() - 1) // 2).alias("own"), pl.len())
    other = own.filter((pl.col("len") >= _LEAST_STEPS) & (pl.col("own") != pl.lit(usual, dtype=pl.Int64))).select(
        *things, "own"
    )
    if other.is_empty():
        return frame.with_columns(every_ms=pl.lit(usual, dtype=pl.Int64))
    joined = frame.drop("every_ms", strict=False).join(other.lazy(), on=things, how="left", maintain_order="left")
    return joined.with_columns(every_ms=pl.col("own").fill_null(usual)).select(frame.collect_schema().names())


def _steps(frame: pl.LazyFrame, things: list[str]) -> pl.DataFrame:
    """Times between two samples of the same thing, of the first ones."""
    looked = frame.select("at_ms", *things).head(_LOOKED_AT).collect(engine="streaming")
    steps = looked.unique().sort(*things, "at_ms").select(*things, step=pl.col("at_ms").diff().over(things))
    return steps.filter(pl.col("step") > 0)


def _median(steps: pl.DataFrame) -> int | None:
    """The step that half of them do not exceed: of times that are never quite the same, none is common."""
    return int(steps["step"].sort()[(len(steps) - 1) // 2]) if len(steps) else None
