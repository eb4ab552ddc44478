"""Alibaba's trace of generative serving: a folder of packed CSV files, one per metric, on two clocks.

Busy time and VRAM of each pod become use, requests become requests, queue sizes become capacity, and loads of models
become starts. The metrics and the request trace have different clocks and are not brought together.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from tidegate.model.problem import printable
from tidegate.sources.canonicalize import fitted
from tidegate.sources.findings import Code, SourceError, SourceFinding
from tidegate.sources.options import CanonicalTable, Format
from tidegate.sources.source_result import SourceTable, source_table
from tidegate.sources.table_file import polars_error

#: What one file can hold, unpacked.
MOST_BYTES = 2_000_000_000

#: Between samples; the clock of the metrics runs at 0.95 of a minute.
STEP_MS = 57_000

DUTY, VRAM = "pod_gpu_duty_cycle", "pod_gpu_memory_used_bytes"
REQUESTS, RATES, QUEUE = "lora_request_trace", "qps", "queue_size_raw"
LOADS = {"basemodel_update_latency": "weights", "lora_update_latency": "adapter"}
_READ = (DUTY, VRAM, REQUESTS, RATES, QUEUE, *LOADS)
_OTHERS = (
    "controlnet_latency_data",
    "model_predict_data",
    "pipeline_inference_data",
    "pipeline_update_latency",
    "queue_rt_raw",
)

_MS = (pl.col("timestamp_anon") * 1000).round().cast(pl.Int64).alias("at_ms")


def metric_of(path: Path) -> str:
    """The metric that a file holds, by its name; empty if it is none of the trace."""
    stem = path.name.removesuffix(".tar.gz").removesuffix(".csv").removesuffix("_anon")
    return stem if stem in (*_READ, *_OTHERS) else ""


def read_genai(paths: list[Path]) -> list[SourceTable]:
    """The tables of the trace, of as many of its files as there are."""
    metrics = {metric_of(path): path for path in sorted(paths)}
    unknown = [path for path in paths if not metric_of(path)]
    if unknown:
        raise SourceError(f"{printable(str(unknown[0]))}: is no file of the genai trace; expected {', '.join(_READ)}")
    makers: list[Callable[[dict[str, Path]], Iterable[SourceTable]]] = [_use, _requests, _capacity, _starts]
    parts = [part for make in makers for part in make(metrics)]
    if not parts:
        some = printable(str(paths[0]))
        raise SourceError(
            f"{some}: holds times of single steps, no demand; name the folder, or one of {', '.join(_READ)}"
        )
    left = [path.name for metric, path in metrics.items() if metric in _OTHERS]
    if REQUESTS in metrics and RATES in metrics:
        left.append(metrics[RATES].name)
    if left:
        why = "times of single steps" + (", and rates on another clock than the requests" if len(left) > 1 else "")
        found = SourceFinding(Code.FILE_LEFT_OUT, parts[0].name, len(left), more=f"{', '.join(sorted(left))}: {why}")
        parts[0] = parts[0]._replace(findings=(*parts[0].findings, found))
    return parts


def _use(metrics: dict[str, Path]) -> Iterable[SourceTable]:
    if DUTY not in metrics and VRAM not in metrics:
        return
    empty = {"at_ms": pl.Int64, "allocation": pl.String}
    busy = _by_pod(metrics.get(DUTY), pl.col("value").mul(10).round().cast(pl.Int64).alias("busy_milli"), empty)
    vram = _by_pod(metrics.get(VRAM), pl.col("value").floordiv(2**20).cast(pl.Int64).alias("vram_mib"), empty)
    both = busy.join(vram, on=["at_ms", "allocation"], how="full", coalesce=True).sort("at_ms", "allocation")
    for name in ("busy_milli", "vram_mib"):
        if name not in both.columns:
            both = both.with_columns(pl.lit(None, dtype=pl.Int64).alias(name))
    frame = fitted(both.with_columns(every_ms=pl.lit(STEP_MS), gpus_milli=pl.lit(1000)), CanonicalTable.USE)
    path = metrics.get(DUTY) or metrics[VRAM]
    yield _part(path, CanonicalTable.USE, frame, len(both))


def _by_pod(path: Path | None, value: pl.Expr, empty: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """One value per pod and time; samples of no pod are left out, and of two at a time the first counts."""
    if path is None:
        return pl.DataFrame(schema=empty)
    named = pl.col("container_ip").is_not_null() & ~pl.col("container_ip").is_in(["", "NULL"])
    rows = _read(path).filter(named & pl.col("value").is_finite() & (pl.col("value") >= 0))
    return rows.select(_MS, pl.col("container_ip").alias("allocation"), value).unique(
        ["at_ms", "allocation"], keep="first", maintain_order=True
    )


def _requests(metrics: dict[str, Path]) -> Iterable[SourceTable]:
    if REQUESTS in metrics:
        rows = _read(metrics[REQUESTS])
        frame = rows.select(
            at_ms=pl.col("gmt_create").str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False).dt.timestamp("ms"),
            window_ms=pl.lit(0),
            count=pl.lit(1.0),
            service=pl.col("checkpoint_model_version_id").fill_null(""),
            client=pl.col("groupId").fill_null(""),
            latency_ms=(pl.col("exec_time_seconds") * 1000).round().cast(pl.Int64),
        )
        yield _part(metrics[REQUESTS], CanonicalTable.REQUESTS, fitted(frame, CanonicalTable.REQUESTS), len(rows))
    elif RATES in metrics:
        rows = _read(metrics[RATES])
        frame = rows.select(
            _MS,
            window_ms=pl.lit(STEP_MS),
            count=pl.col("value") * STEP_MS / 1000,
            service=pl.col("request_type").fill_null(""),
            client=pl.col("container_ip").fill_null("").replace("NULL", ""),
        )
        yield _part(metrics[RATES], CanonicalTable.REQUESTS, fitted(frame, CanonicalTable.REQUESTS), len(rows))


def _capacity(metrics: dict[str, Path]) -> Iterable[SourceTable]:
    if QUEUE in metrics:
        rows = _read(metrics[QUEUE])
        frame = rows.select(_MS, every_ms=pl.lit(STEP_MS), pending_jobs=pl.col("value").round().cast(pl.Int64))
        summed = frame.group_by("at_ms", "every_ms").agg(pl.col("pending_jobs").sum()).sort("at_ms")
        yield _part(metrics[QUEUE], CanonicalTable.CAPACITY, fitted(summed, CanonicalTable.CAPACITY), len(rows))


def _starts(metrics: dict[str, Path]) -> Iterable[SourceTable]:
    for metric, stage in LOADS.items():
        if metric in metrics:
            rows = _read(metrics[metric])
            took = pl.col("value").round().cast(pl.Int64).alias("took_ms")
            frame = rows.filter(pl.col("value") >= 0).select(_MS, took, stage=pl.lit(stage))
            yield _part(metrics[metric], CanonicalTable.STARTS, fitted(frame, CanonicalTable.STARTS), len(rows))


def _part(path: Path, table: CanonicalTable, frame: pl.DataFrame, rows: int) -> SourceTable:
    name = printable(str(path))
    lost = rows - len(frame) if table not in (CanonicalTable.CAPACITY, CanonicalTable.USE) else 0
    findings = (SourceFinding(Code.MISSING_VALUE, name, lost),) if lost else ()
    return source_table(name, Format.GENAI, table, frame, findings)._replace(rows=rows)


def _read(path: Path) -> pl.DataFrame:
    """The table in a packed file; it is a few MB."""
    name = printable(str(path))
    try:
        if not path.name.endswith(".tar.gz"):
            return pl.read_csv(path, infer_schema_length=None)
        with tarfile.open(path, "r:gz") as packed:
            member = next((one for one in packed if one.isfile() and one.name.endswith(".csv")), None)
            content = packed.extractfile(member) if member is not None and member.size <= MOST_BYTES else None
            if content is None:
                raise SourceError(f"{name}: holds no CSV file of a size that can be read")
            return pl.read_csv(content.read(), infer_schema_length=None)
    except (tarfile.TarError, EOFError, zlib.error):
        raise SourceError(f"{name}: is no whole .tar.gz; was it cut short? Copy it again") from None
    except (PolarsError, OSError) as error:
        raise polars_error(name, error) from None
