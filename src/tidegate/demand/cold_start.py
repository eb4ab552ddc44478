"""Cold start: how long capacity takes until it can be used, stage by stage."""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.demand.estimate import How, Number, Unit, estimate, rank_quantile
from tidegate.demand.model import ColdStart, Stage
from tidegate.model.arrays import I64
from tidegate.stats.block_quantiles import likeness
from tidegate.stats.blocks import count_units, units_of
from tidegate.stats.interval import Interval, NoInterval


def measure_starts(starts: pl.LazyFrame) -> ColdStart | None:
    """The stages that were timed."""
    table = starts.filter(pl.col("took_ms").is_not_null()).sort("stage", "took_ms").collect(engine="streaming")
    if table.height == 0:
        return None
    stages = []
    for (name,), rows in table.group_by(["stage"], maintain_order=True):
        took, by_unit = rows["took_ms"].to_numpy(), _by_unit(rows)
        p50, p90 = (rank_quantile(took, at, Unit.MS, "starts", alike=likeness(by_unit, at)) for at in (0.5, 0.9))
        stages.append(Stage(stage=str(name), p50=p50, p90=p90))
    return ColdStart(window=_one_after_the_other(stages, table.height), stages=tuple(stages))


def _by_unit(rows: pl.DataFrame) -> tuple[I64, ...]:
    """How long starts took, in order, by the unit of time in which they began: those of one launch are alike."""
    begun = rows.filter(pl.col("at_ms").is_not_null())
    if not begun.height:
        return ()
    at_ms, took = begun["at_ms"].to_numpy(), begun["took_ms"].to_numpy()
    length_ms = int(np.ptp(at_ms)) + 1
    unit = units_of(at_ms - at_ms.min(), length_ms)
    return tuple(np.sort(took[unit == number]) for number in range(count_units(length_ms)))


def _one_after_the_other(stages: list[Stage], samples: int) -> Number:
    """The medians of all stages together; without an interval, where one of them has none."""
    unsure = next((stage.p50.how for stage in stages if not stage.p50.how.has_interval()), None)
    value, low, high = (sum(getattr(stage.p50, name) for stage in stages) for name in ("value", "low", "high"))
    found = Interval(low, high) if unsure is None else NoInterval(unsure.value)
    return estimate(value, found, Unit.MS, (samples, "starts"), How.RANKS)
