"""Jobs of the canonical table as workloads for the twin, and nodes for them where nobody names any.

What a trace leaves out (priorities, pods, GPU models, nodes) gets a default, and each default is listed in
`TraceJobs.assumed`. A runtime that is not known is drawn from jobs of the same kind and size.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.censoring import UNKNOWN_RUNTIME, complete, observe, outcome_left, runtime
from tidegate.demand.tables import JOBS, Tables
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.simulation import PlannedWorkload, RunProfile
from tidegate.model.struct import resources
from tidegate.model.units import DAY_MS, WHOLE_MILLI
from tidegate.model.work import GpuRequest, PodSet, Share, Work, WorkKind, Workload
from tidegate.stats.quantile import weighted_quantiles

#: GPUs of a node, and of the largest pod, where nothing says it.
USUAL_GPUS = 8

#: Pods that a node runs, as the kubelet's default is.
_PODS = 110

#: The queue of jobs that name none.
DEFAULT_QUEUE = "default"

#: Nodes that nobody names hold the demand for this share of the time.
_COVERED = 0.95

#: The first Monday after the epoch: a run of dated jobs begins on a Monday, so that its times show weekdays.
_MONDAY_MS, _WEEK_MS = 4 * DAY_MS, 7 * DAY_MS


class TraceJobs(NamedTuple):
    """Workloads for the twin, and what was assumed of them."""

    work: list[PlannedWorkload]
    assumed: tuple[str, ...]  # defaults of what the trace does not say
    notes: tuple[str, ...]  # jobs that are left out, and runtimes that are drawn


class _Pods(NamedTuple):
    """What pods are made from."""

    per_node: int  # GPUs of the largest node
    models: frozenset[str]  # GPU models of the nodes; empty: no node names one


def trace_jobs(tables: Tables, nodes: list[Node], seed: int = 0) -> TraceJobs:
    """Workloads from gathered tables, for a cluster with these nodes or one that is not known yet."""
    if tables.jobs is None:
        return TraceJobs([], (), ())
    table = _read(tables.jobs)
    usable = table.filter(pl.col("left_out") == "").drop("left_out")
    drawn = usable.height - int((usable["left"] == 0).sum()) if usable.height else 0
    done = complete(usable, observe(table, tables.since_ms, tables.until_ms), seed)
    known = done.filter(pl.col("duration_ms") != UNKNOWN_RUNTIME)
    unknown = done.height - known.height
    reasons = [*table.filter(pl.col("left_out") != "")["left_out"], *["their runtime is not known"] * unknown]
    pods = _Pods(_most_gpus(nodes) or USUAL_GPUS, frozenset(n.shape.gpu_model.lower() for n in nodes) - {""})
    work = _planned(known, pods, dated=tables.calendar.dates)
    return TraceJobs(
        work, _assumed(known, pods), (*_left_out(reasons), *_drawn(drawn - unknown), *_models(known, pods))
    )


def enough_nodes(work: list[PlannedWorkload]) -> list[Node]:
    """Nodes that hold the work for most of the time if nothing waits, and its largest workload at any time."""
    gpus = np.array([_gpus(planned.workload.work) for planned in work], np.int64)
    begin = np.array([planned.workload.submitted_ms for planned in work], np.int64)
    end = begin + np.array([planned.run.runtime_ms for planned in work], np.int64)
    at = np.concatenate([end, begin])
    order = np.argsort(at, kind="stable")  # of things at one time, ends come first
    level = np.cumsum(np.concatenate([-gpus, gpus])[order])[:-1]
    by_level = np.argsort(level, kind="stable")
    width = np.diff(at[order]).astype(np.float64)
    covered = weighted_quantiles(level[by_level], width[by_level], np.array([_COVERED]))[0]
    return plain_nodes(-(-max(int(covered), int(gpus.max())) // USUAL_GPUS), USUAL_GPUS)


def plain_nodes(count: int, gpus: int, model: str = "", first: int = 0) -> list[Node]:
    """Nodes with GPUs and nothing else that limits work."""
    shape = NodeShape(
        name=f"{model or 'gpu'}x{gpus}", gpu_model=model, gpu_count=gpus, capacity=resources({"pods": _PODS})
    )
    width = max(4, len(str(first + count - 1)))
    return [Node(name=f"node-{number:0{width}d}", shape=shape) for number in range(first, first + count)]


def _most_gpus(nodes: list[Node]) -> int:
    return max((node.shape.gpu_count for node in nodes), default=0)


def _gpus(work: Work) -> int:
    """Whole GPUs that a workload needs at most."""
    return sum(pods.count * max(pods.gpu.count, 1) for pods in work.pod_sets)


# -- rows ------------------------------------------------------------------------------------------------------


def _read(jobs: pl.LazyFrame) -> pl.DataFrame:
    reason = (
        pl.when(pl.col("submitted_ms").is_null())
        .then(pl.lit("they have no time"))
        .when(pl.col("gpus_milli").fill_null(0) <= 0)
        .then(pl.lit("they ask for no GPU"))
        .otherwise(pl.lit(""))
    )
    cancelled = pl.col("outcome").fill_null("") == "cancelled"
    return (
        jobs.select(JOBS.names())
        .with_columns(runtime().alias("duration_ms"), cancelled=cancelled, left=outcome_left(), left_out=reason)
        .collect(engine="streaming")
    )


def _planned(table: pl.DataFrame, pods: _Pods, *, dated: bool) -> list[PlannedWorkload]:
    if not table.height:
        return []
    first_ms = int(table["submitted_ms"].min())  # type: ignore[arg-type]  # not empty, and no null in it
    zero_ms = (first_ms - _MONDAY_MS) // _WEEK_MS * _WEEK_MS + _MONDAY_MS if dated else first_ms
    columns = _unique_ids(table).select(
        "id",
        pl.col("submitted_ms") - zero_ms,
        pl.col("duration_ms").clip(1),
        pl.when(pl.col("queue").fill_null("") == "").then(pl.lit(DEFAULT_QUEUE)).otherwise("queue").alias("queue"),
        "kind",
        pl.col("priority").fill_null(0),
        pl.col("tolerated_wait_ms").fill_null(0).clip(0),
        "gpus_milli",
        pl.col("pods").fill_null(0),
        pl.col("gpu_model").fill_null(""),
    )
    return [
        PlannedWorkload(
            workload=Workload(id=name, work=_work(pods, *asked), submitted_ms=submitted_ms),
            run=RunProfile(runtime_ms=runtime_ms),
        )
        for name, submitted_ms, runtime_ms, *asked in columns.iter_rows()
    ]


def _unique_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Ids that come again, from several sources, get a number."""
    named = table.with_columns(id=pl.when(pl.col("id").fill_null("") == "").then(pl.lit("job")).otherwise("id"))
    if not named["id"].is_duplicated().any():
        return named
    count = pl.col("id").cum_count().over("id")
    return named.with_columns(id=pl.when(count > 1).then(pl.format("{}-{}", "id", count)).otherwise("id"))


@cache
def _work(  # noqa: PLR0913, PLR0917  a row of the table
    pods: _Pods, queue: str, kind: str, priority: int, tolerated_ms: int, gpus_milli: int, count: int, model: str
) -> Work:
    models = (model,) if model and model.lower() in pods.models else ()
    return Work(
        queue=queue,
        kind=WorkKind(kind),
        priority=priority,
        tolerated_wait_ms=tolerated_ms,
        pod_sets=tuple(_pod_sets(gpus_milli, count, pods.per_node, models)),
    )


def _pod_sets(milli: int, count: int, per_node: int, models: tuple[str, ...]) -> list[PodSet]:
    """Equal pods if the trace says how many; else as few as nodes allow, and one with the rest."""
    if count > 1 and milli % count == 0:
        return [PodSet(name="main", count=count, gpu=gpu_request(milli // count, models))]
    whole, rest = divmod(milli, per_node * WHOLE_MILLI)
    full = [PodSet(name="main", count=whole, gpu=gpu_request(per_node * WHOLE_MILLI, models))] if whole else []
    name = "rest" if whole else "main"
    return [*full, PodSet(name=name, count=1, gpu=gpu_request(rest, models))] if rest else full


def gpu_request(milli: int, models: tuple[str, ...]) -> GpuRequest:
    """Whole GPUs, or a part of one."""
    if milli < WHOLE_MILLI:
        return GpuRequest(share=Share.FRACTION, count=1, milli=milli, models=models)
    return GpuRequest(share=Share.WHOLE, count=-(-milli // WHOLE_MILLI), models=models)


# -- what was assumed ------------------------------------------------------------------------------------------


def _assumed(table: pl.DataFrame, pods: _Pods) -> tuple[str, ...]:
    """Defaults of what no row says."""
    said = {name: bool((table[name].fill_null("") != "").any()) for name in ("queue", "gpu_model")}
    defaults = {
        f"queue {DEFAULT_QUEUE}": not said["queue"],
        "priority 0": table["priority"].null_count() == table.height,
        f"pods of at most {pods.per_node} GPUs": table["pods"].null_count() == table.height,
        "any GPU model": not said["gpu_model"] and bool(pods.models),
    }
    return tuple(text for text, is_assumed in defaults.items() if is_assumed)


def _left_out(reasons: list[str]) -> list[str]:
    return [f"{reasons.count(reason):,} jobs are left out because {reason}" for reason in sorted(set(reasons))]


def _drawn(count: int) -> list[str]:
    return [f"{count:,} runtimes are not known and drawn from jobs of the same kind and size"] if count > 0 else []


def _models(table: pl.DataFrame, pods: _Pods) -> list[str]:
    """A note on GPU models that no node has."""
    asked = table["gpu_model"].fill_null("")
    missing = asked.filter((asked != "") & ~asked.str.to_lowercase().is_in(sorted(pods.models)))
    if not len(missing):
        return []
    names = ", ".join(sorted(set(missing))[:3])
    return [f"{len(missing):,} jobs ask for a GPU model that no node has ({names}) and take any"]
