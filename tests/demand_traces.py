"""Demand traces of the shared data as canonical tables, for tests and benchmarks of what is fitted to them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import polars as pl

from tidegate.demand.tables import CAPACITY, JOBS, REQUESTS, USE, RowOrigin, Tables
from tidegate.demand.time_zone import Calendar


def shaped(frame: pl.LazyFrame, schema: pl.Schema) -> pl.LazyFrame:
    """The frame with every column of the schema; what it lacks is null, or "" where it is a name."""
    have = set(frame.collect_schema().names())
    return frame.select(
        pl.col(name).cast(kind) if name in have else pl.lit("" if kind == pl.String else None).cast(kind).alias(name)
        for name, kind in schema.items()
    )


def itp(path: Path) -> Tables:
    seconds = pl.col("submission_time") * 1000
    frame = pl.scan_csv(path).select(
        id="job_id",
        kind=pl.lit("batch"),
        gpus_milli=pl.col("num_gpu") * 1000,
        pods=pl.lit(1),
        submitted_ms=seconds,
        duration_ms=pl.col("duration") * 1000,
    )
    return _tables(path, "itp", jobs=shaped(frame, JOBS), calendar=Calendar.NONE)


def philly(path: Path) -> Tables:
    frame = (
        pl.scan_csv(path, try_parse_dates=True)
        .drop_nulls()
        .with_row_index("row")
        .select(
            id=pl.format("p{}", "row"),
            queue="cluster",
            kind=pl.lit("batch"),
            gpus_milli=pl.col("num_gpus") * 1000,
            pods=pl.lit(1),
            submitted_ms=pl.col("timestamp").dt.epoch("ms"),
            duration_ms=(pl.col("duration") * 1000).cast(pl.Int64),
        )
    )
    return _tables(path, "philly", jobs=shaped(frame, JOBS))


def azure(path: Path) -> Tables:
    at = pl.col("TIMESTAMP").str.to_datetime("%Y-%m-%d %H:%M:%S%.f").dt.epoch("ms")
    frame = pl.scan_csv(path).select(
        at_ms=at, window_ms=pl.lit(0), count=pl.lit(1.0), tokens_in="ContextTokens", tokens_out="GeneratedTokens"
    )
    return _tables(path, "azure-llm", requests=shaped(frame, REQUESTS))


def servegen(path: Path) -> Tables:
    frame = (
        pl.read_csv(path)
        .lazy()
        .select(
            at_ms=pl.col("ts_s") * 1000,
            window_ms=pl.lit(600_000),
            count=pl.col("rate_rps") * 600,
            client=pl.col("client").cast(pl.String),
            arrival_cv="cv_iat",
        )
    )
    return _tables(path, "servegen", requests=shaped(frame, REQUESTS), calendar=Calendar.NONE)


def genai(folder: Path) -> Tables:
    duty = _tar(folder / "pod_gpu_duty_cycle_anon.tar.gz").rename({"value": "duty"})
    vram = _tar(folder / "pod_gpu_memory_used_bytes_anon.tar.gz").rename({"value": "bytes"})
    frame = (
        duty.lazy()
        .join(vram.lazy(), on=["timestamp_anon", "container_ip"], how="left")
        .select(
            at_ms=(pl.col("timestamp_anon") * 1000).cast(pl.Int64),
            every_ms=pl.lit(57_000),
            allocation="container_ip",
            gpus_milli=pl.lit(1000),
            busy_milli=(pl.col("duty") * 10).round(),
            vram_mib=(pl.col("bytes") / 2**20).round(),
        )
    )
    return _tables(folder, "genai", use=shaped(frame, USE))


def helios(folder: Path) -> Tables:
    frames = [
        pl.read_csv(path, try_parse_dates=True).select(
            at_ms=pl.col("time").dt.epoch("ms"),
            every_ms=pl.lit(60_000),
            queue=pl.lit(path.name.split("_")[1]),
            total_milli=pl.col("total_gpu_num") * 1000,
            running_milli=pl.col("running_gpu_num") * 1000,
            pending_milli=pl.col("pending_gpu_num") * 1000,
            running_jobs="running_gpujob_num",
            pending_jobs="pending_gpujob_num",
        )
        for path in sorted(folder.glob("earth_*.csv.gz"))
    ]
    return _tables(folder, "helios", capacity=shaped(pl.concat(frames).lazy(), CAPACITY))


def _tar(path: Path) -> pl.DataFrame:
    with tarfile.open(path) as archive:
        member = archive.extractfile(archive.getmembers()[0])
        assert member is not None
        return pl.read_csv(io.BytesIO(member.read()), null_values=["NULL", ""])


def _tables(path: Path, kind: str, *, calendar: Calendar = Calendar.EPOCH, **frames: pl.LazyFrame) -> Tables:
    return Tables(**frames, calendar=calendar, origins=(RowOrigin(path.name, kind, "", 0),))
