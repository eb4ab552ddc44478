"""How long a sample stands for: the usual time between samples of the same thing.

Must not know: files, formats.
"""

from __future__ import annotations

import polars as pl

from tidegate.sources.columns import Columns
from tidegate.sources.options import Table

#: Samples that are looked at.
_LOOKED_AT = 200_000

_OF = {Table.USE: ("allocation",), Table.CAPACITY: ("queue", "gpu_model")}


def fill_period(frame: pl.LazyFrame, columns: Columns) -> pl.LazyFrame:
    """Say how long each sample stands for, where the table does not."""
    if columns.table not in _OF or columns.of("every") is not None:
        return frame
    return frame.with_columns(every_ms=pl.lit(usual_period_ms(frame, columns.table), dtype=pl.Int64))


def usual_period_ms(frame: pl.LazyFrame, table: Table) -> int | None:
    """The most common time between two samples of the same thing, over the first ones; None if there are none."""
    things = list(_OF[table])
    looked = frame.select("at_ms", *things).head(_LOOKED_AT).collect(engine="streaming")
    steps = looked.unique().sort(*things, "at_ms").select(*things, step=pl.col("at_ms").diff().over(things))
    counts = steps.filter(pl.col("step") > 0).group_by("step").len().sort("len", "step", descending=[True, False])
    return int(counts["step"][0]) if len(counts) else None
