"""How long capacity takes until it can be used: by stage, and one stage after the other.

Must not know: what is started.
"""

from __future__ import annotations

import polars as pl

from tidegate.demand.document import ColdStart, Stage
from tidegate.demand.numbers import How, Number, Unit, rank_quantile, trim


def measure_starts(starts: pl.LazyFrame) -> ColdStart | None:
    """The stages that were timed."""
    table = starts.filter(pl.col("took_ms").is_not_null()).sort("stage", "took_ms").collect(engine="streaming")
    if table.height == 0:
        return None
    stages = []
    for (name,), rows in table.group_by(["stage"], maintain_order=True):
        took = rows["took_ms"].to_numpy()
        p50, p90 = (rank_quantile(took, at, Unit.MS, "starts") for at in (0.5, 0.9))
        stages.append(Stage(stage=str(name), p50=p50, p90=p90))
    window = Number(
        value=trim(sum(stage.p50.value for stage in stages)),
        unit=Unit.MS,
        samples=table.height,
        low=trim(sum(stage.p50.low for stage in stages)),
        high=trim(sum(stage.p50.high for stage in stages)),
        how=How.RANKS,
        table="starts",
    )
    return ColdStart(window=window, stages=tuple(stages))
