"""Residency: GPU memory held against compute used, in all, by model served, and by pod. Input six.

Loaded is not active: an allocation with nothing to do is idle. What was not sampled is not idle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace

from tidegate.demand.concurrency_stats import Levels, Track, measure_levels, track_series
from tidegate.demand.estimate import How, Number, Unit, estimate, exact, trim, unit_interval
from tidegate.demand.sampling import ONE_LOOK, TimedSamples, grid_of, held_at
from tidegate.demand.sketches import Sketch, sketch_of
from tidegate.demand.time_zone import Calendar
from tidegate.model.struct import Spec
from tidegate.model.units import HOUR_MS, WHOLE_MILLI
from tidegate.stats.blocks import count_units, linear_interval, units_of
from tidegate.stats.interval import widest

#: Holders that are listed: those with the most idle GPU-hours.
MOST_TOLD = 24

#: A spell goes on where one sample is missed; where samples lie further apart, in usual times, it is cut.
_MOST_APART = 2.5

_MIB_PER_GIB = 1024


class GpuHolder(Spec, frozen=True):
    """A pod, or all pods of a model, and what became of the GPUs it held."""

    name: str
    held_gpu_hours: float
    busy_share: float
    idle_share: float  # of the time it was sampled, without anything to do
    vram_gib: float | None  # held on average
    longest_idle_ms: int  # without a break


class Residency(Spec, frozen=True):
    """Memory held against compute used."""

    pods: int
    every_ms: int  # how long a sample stands for, usually
    held: Levels  # GPUs that were held
    busy: Levels  # GPUs' worth of work: what would do if work could be packed
    duty: Number  # busy time over held time
    idle: Number  # the share of sampled time with nothing to do
    idle_gpu_hours: Number
    idle_vram_gib: Number | None  # held while idle, on average
    vram_gib: Number | None  # held at all times, on average
    vram_share: Number | None  # of the GPU's memory, where its size is known
    busy_run_ms: float  # how long busy and idle spells last on average, as sampled; at least, if none was seen to end
    idle_run_ms: float
    busy_spread: Sketch  # thousandths of a GPU, while busy
    vram_spread: Sketch | None  # MiB
    services: tuple[GpuHolder, ...]
    allocations: tuple[GpuHolder, ...]


def measure_residency(use: pl.LazyFrame, calendar: Calendar) -> Residency | None:
    """All numbers of what was held and used."""
    samples = (
        use.filter(pl.col("busy_milli").is_not_null()).with_columns(_gpu_ms(), _idle()).collect(engine="streaming")
    )
    if samples.height == 0:
        return None
    pods = _sum_by(samples, "allocation")
    sums = _Sums(pods, _by_time(samples))
    spells = _spells(samples)
    vram = samples.filter(pl.col("vram_mib").is_not_null())
    idle_hours = pods["idle_gpu_ms"].to_numpy() / HOUR_MS
    held, busy = _tracks(samples)
    return Residency(
        pods=pods.height,
        every_ms=held.step_ms,
        held=measure_levels(held, Unit.GPUS, "use", calendar),
        busy=measure_levels(busy, Unit.GPUS, "use", calendar),
        duty=_ratio(sums, "busy_gpu_ms", "gpu_ms", Unit.SHARE),
        idle=_ratio(sums, "idle_ms", "sampled_ms", Unit.SHARE),
        idle_gpu_hours=exact(float(idle_hours.sum()), Unit.GPU_HOURS, pods.height, "use"),
        idle_vram_gib=_gib(_ratio(sums, "idle_vram_ms", "idle_seen_ms", Unit.MIB)) if vram.height else None,
        vram_gib=_gib(_ratio(sums, "vram_ms", "vram_seen_ms", Unit.MIB)) if vram.height else None,
        vram_share=_vram_share(sums),
        busy_run_ms=trim(_mean_spell(spells, idle=False)),
        idle_run_ms=trim(_mean_spell(spells, idle=True)),
        busy_spread=_spread(samples.filter(~pl.col("idle")), "busy_milli") or Sketch(),
        vram_spread=_spread(vram, "vram_mib"),
        services=_holders(samples.filter(pl.col("service") != ""), spells, "service"),
        allocations=_holders(samples, spells, "allocation"),
    )


def _gpu_ms() -> pl.Expr:
    return (pl.col("gpus_milli").fill_null(WHOLE_MILLI) / WHOLE_MILLI * pl.col("every_ms")).alias("gpu_ms")


def _idle() -> pl.Expr:
    return (pl.col("busy_milli") == 0).alias("idle")


class _Sums(NamedTuple):
    """What was held and used, in sums by pod, and by unit of time."""

    pods: pl.DataFrame
    time: pl.DataFrame


def _by_time(samples: pl.DataFrame) -> pl.DataFrame:
    """Sums of each unit of time; nothing in one in which no sample was taken."""
    at_ms = samples["at_ms"].to_numpy()
    length_ms = int(np.ptp(at_ms)) + 1
    unit = pl.Series("unit", units_of(at_ms - at_ms.min(), length_ms))
    every = pl.DataFrame({"unit": np.arange(count_units(length_ms), dtype=np.int64)})
    return every.join(_sum_by(samples.with_columns(unit), "unit"), on="unit", how="left", maintain_order="left")


def _sum_by(samples: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sums of each allocation, or of each of other things, in order of their names."""
    every, idle, vram = pl.col("every_ms"), pl.col("idle"), pl.col("vram_mib")
    total = pl.col("vram_total_mib")
    both = vram.is_not_null() & (total.fill_null(0) > 0)
    return (
        samples.group_by(by)
        .agg(
            pl.col("gpu_ms").sum(),
            (pl.col("gpu_ms") * pl.col("busy_milli") / WHOLE_MILLI).sum().alias("busy_gpu_ms"),
            pl.col("gpu_ms").filter(idle).sum().alias("idle_gpu_ms"),
            every.sum().alias("sampled_ms"),
            every.filter(idle).sum().alias("idle_ms"),
            (vram * every).filter(idle).sum().alias("idle_vram_ms"),
            every.filter(idle & vram.is_not_null()).sum().alias("idle_seen_ms"),
            (vram * every).sum().alias("vram_ms"),
            every.filter(vram.is_not_null()).sum().alias("vram_seen_ms"),
            (vram * every).filter(both).sum().alias("vram_part_ms"),
            (total * every).filter(both).sum().alias("vram_total_ms"),
        )
        .sort(by)
    )


def _tracks(samples: pl.DataFrame) -> tuple[Track, Track]:
    """GPUs held and GPUs busy over time, in the steps they were sampled in."""
    known = samples.select(
        pl.col("allocation").rank("dense").cast(pl.Int64),
        "at_ms",
        pl.col("every_ms").fill_null(pl.col("every_ms").median().cast(pl.Int64)).fill_null(1),
        pl.col("gpus_milli").fill_null(WHOLE_MILLI).alias("held"),
        (pl.col("gpus_milli").fill_null(WHOLE_MILLI) * pl.col("busy_milli")).alias("busy"),
    )
    taken = TimedSamples(*(known[name].to_numpy() for name in ("allocation", "at_ms", "every_ms")))
    grid = grid_of(taken)
    held, busy = held_at(taken, [known[name].to_numpy() for name in ("held", "busy")], grid, ONE_LOOK)
    levels = (held / WHOLE_MILLI, busy / WHOLE_MILLI**2)
    return tuple(track_series(one, grid.step_ms, grid.start_ms, samples.height) for one in levels)  # type: ignore[return-value]


def _ratio(sums: _Sums, part: str, whole: str, unit: Unit) -> Number:
    """A ratio of sums: by whole pods, whose samples say much the same, and by blocks of time, in which pods are alike.

    Whichever interval is wider: pods of one service are busy and idle together.
    """
    total = max(float(sums.pods[whole].sum()), 1e-9)
    value = float(sums.pods[part].sum()) / total
    of_pods, of_time = (
        (table[part].to_numpy().astype(np.float64) - value * table[whole].to_numpy()) / total for table in sums
    )
    ends = (unit_interval(value, of_pods, sums.pods.height), linear_interval(value, of_time)[0])
    return estimate(value, widest(*ends), unit, (sums.pods.height, "use"), How.UNITS)


def _gib(number: Number) -> Number:
    value, low, high = (trim(mib / _MIB_PER_GIB) for mib in (number.value, number.low, number.high))
    return replace(number, value=value, low=low, high=high, unit=Unit.GIB)


def _vram_share(sums: _Sums) -> Number | None:
    if float(sums.pods["vram_total_ms"].sum()) <= 0:
        return None
    return _ratio(sums, "vram_part_ms", "vram_total_ms", Unit.SHARE)


def _spells(samples: pl.DataFrame) -> pl.DataFrame:
    """Times without a break in which an allocation was idle, or was not; of several GPUs, all of them were.

    Where samples are missing, the end of a spell is not known: it is `cut`.
    """
    at_once = samples.group_by("allocation", "at_ms").agg(
        pl.col("service").first(), pl.col("idle").all(), pl.col("every_ms").max()
    )
    apart = pl.col("at_ms").diff() > _MOST_APART * pl.col("every_ms").shift(1)
    broken = (apart | (pl.col("allocation") != pl.col("allocation").shift(1))).fill_null(True)
    new = broken | (pl.col("idle") != pl.col("idle").shift(1))
    return (
        at_once.sort("allocation", "at_ms")
        .with_columns(new.fill_null(True).cum_sum().alias("spell"), broken.shift(-1).fill_null(True).alias("cut"))
        .group_by("spell")
        .agg(pl.col("allocation", "service", "idle").first(), pl.col("every_ms").sum(), pl.col("cut").last())
        .sort("spell")
    )


def _mean_spell(spells: pl.DataFrame, *, idle: bool) -> float:
    """How long spells last: their time over those that were seen to end."""
    mine = spells.filter(pl.col("idle") == idle)
    return float(mine["every_ms"].sum()) / max(int((~mine["cut"]).sum()), 1)


def _spread(samples: pl.DataFrame, column: str) -> Sketch | None:
    if samples.height == 0:
        return None
    return sketch_of(samples[column].to_numpy(), samples["every_ms"].to_numpy() / HOUR_MS)


def _weighted(column: str) -> pl.Expr:
    """The mean over the time that samples stand for; null where the column is not known."""
    value, every = pl.col(column), pl.col("every_ms")
    total = every.filter(value.is_not_null()).sum()
    return pl.when(total > 0).then((value * every).sum() / total)


def _holders(samples: pl.DataFrame, spells: pl.DataFrame, by: str) -> tuple[GpuHolder, ...]:
    """Those that kept the most GPU-hours idle, first."""
    every = pl.col("every_ms")
    longest = spells.filter(pl.col("idle")).group_by(by).agg(every.max().alias("longest"))
    rows = (
        samples.group_by(by)
        .agg(
            (pl.col("gpu_ms").sum() / HOUR_MS).alias("held"),
            ((pl.col("gpu_ms") * pl.col("busy_milli")).sum() / (pl.col("gpu_ms").sum() * WHOLE_MILLI)).alias("busy"),
            (every.filter(pl.col("idle")).sum() / every.sum()).alias("share"),
            (_weighted("vram_mib") / _MIB_PER_GIB).alias("vram"),
            pl.col("gpu_ms").filter(pl.col("idle")).sum().alias("idle_gpu_ms"),
        )
        .join(longest, on=by, how="left")
        .sort(["idle_gpu_ms", by], descending=[True, False])
        .head(MOST_TOLD)
    )
    return tuple(
        GpuHolder(
            name=str(row[by]),
            held_gpu_hours=trim(row["held"]),
            busy_share=trim(row["busy"]),
            idle_share=trim(row["share"]),
            vram_gib=None if row["vram"] is None else trim(row["vram"]),
            longest_idle_ms=int(row["longest"] or 0),
        )
        for row in rows.iter_rows(named=True)
    )
