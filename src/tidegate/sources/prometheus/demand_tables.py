"""Makes the canonical tables of the metrics of a server.

Gauges are averaged over each step, so that nothing between two points is lost and nothing that ended lingers; counters
are read as they are, and what they grew by is computed here.
"""

from __future__ import annotations

import polars as pl

from tidegate.sources.canonicalize import fitted
from tidegate.sources.findings import Code, SourceFinding
from tidegate.sources.options import CanonicalTable
from tidegate.sources.prometheus.metric_names import (
    DCGM,
    ENGINES,
    GPU_RESOURCES,
    KARPENTER,
    KUBE,
    KUEUE,
    STAGES,
    Metric,
    ServingEngine,
)
from tidegate.sources.prometheus.range_query import RangeQuery

Answer = tuple[pl.DataFrame | None, list[SourceFinding]]

#: Starts that one window may count.
_MOST_STARTS = 1_000

_SERVES = ("ReplicaSet", "StatefulSet", "LeaderWorkerSet", "RayCluster")


class MetricReader:
    """What a server has, and what was asked of it."""

    def __init__(self, asker: RangeQuery, names: frozenset[str]) -> None:
        self.asker = asker
        self.names = names
        self.queries: list[str] = []
        self.older: dict[Metric, str] = {}

    @property
    def step_ms(self) -> int:
        """The period of a sample."""
        return self.asker.span.step_ms

    def name(self, signal: Metric) -> str:
        """The name that the server has for something; empty if it has none."""
        found = next((name for name in signal.names if name in self.names), "")
        if found and found != signal.names[0]:
            self.older[signal] = found
        return found

    def read(self, signal: Metric, matching: str = "") -> pl.DataFrame:
        """The series of something, over each step, in the unit that is used here; no rows if the server has none."""
        name = self.name(signal)
        if not name:
            return pl.DataFrame(schema={"at_ms": pl.Int64, "value": pl.Float64})
        over = "last_over_time" if signal.counter else "avg_over_time"
        # A millisecond less than the step: a sample at both ends would count twice.
        found = self.ask(f"{over}({name}{matching}[{self.step_ms - 1}ms])")
        return found.with_columns(pl.col("value") * signal.scale)

    def ask(self, query: str) -> pl.DataFrame:
        """The answer to a query over the whole time."""
        self.queries.append(query)
        return self.asker.range(query).filter(pl.col("value").is_finite())


# -- use -------------------------------------------------------------------------------------------------------

_GPU = ("queue", "pod", "device", "profile", "gpu_model")


def use_of(metrics: MetricReader) -> Answer:
    """What pods did with their GPUs, by DCGM."""
    found = {signal.key: _by_gpu(metrics.read(signal)) for signal in DCGM}
    frames = [frame.rename({"value": key}) for key, frame in found.items() if len(frame)]
    if not frames:
        return None, []
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.join(frame, on=["at_ms", *_GPU], how="full", coalesce=True)
    absent = [pl.lit(None, dtype=pl.Float64).alias(key) for key in found if key not in whole.columns]
    whole = whole.with_columns(absent).filter(pl.col("pod") != "").sort("at_ms", *_GPU)
    sharers = pl.col("pod").n_unique().over("at_ms", "device", "profile")
    whole = whole.with_columns(pl.when(pl.col("device") != "").then(sharers).otherwise(1).alias("sharers"))
    rows = whole.select(
        "at_ms",
        "queue",
        "gpu_model",
        every_ms=pl.lit(metrics.step_ms),
        allocation=pl.concat_str("queue", "pod", "device", separator="/").str.strip_chars("/"),
        service=pl.col("pod").replace_strict(_models(metrics), default=""),
        gpus_milli=_device_milli() // pl.col("sharers"),
        busy_milli=_rounded(pl.coalesce("busy", "busy_coarse")).clip(0, 1000),
        vram_mib=_rounded(pl.col("vram")),
        vram_total_mib=_rounded(pl.col("vram") + pl.col("vram_free")),
        power_w=_rounded(pl.col("power")),
    )
    shared = whole.filter(pl.col("sharers") > 1)["device"].n_unique()
    return fitted(rows, CanonicalTable.USE), [SourceFinding(Code.SERIES_SHARED, "", shared)] if shared else []


def _rounded(number: pl.Expr) -> pl.Expr:
    return number.round(mode="half_to_even").cast(pl.Int64)


def _by_gpu(frame: pl.DataFrame) -> pl.DataFrame:
    keyed = named(
        frame,
        queue=workload(frame, "namespace"),
        pod=workload(frame, "pod"),
        device=label(frame, "UUID", "uuid", "device", "gpu"),
        profile=label(frame, "GPU_I_PROFILE"),
        gpu_model=label(frame, "modelName", "modelname", "gpu_model"),
    )
    return keyed.group_by("at_ms", *_GPU).agg(pl.col("value").mean())


def _device_milli() -> pl.Expr:
    """A MIG slice is its part of the seven of a GPU."""
    slices = pl.col("profile").str.extract(r"^(\d)g").cast(pl.Int64)
    return pl.when(slices.is_not_null()).then(slices * 1000 // 7).otherwise(1000)


def _models(metrics: MetricReader) -> dict[str, str]:
    """The model that a pod serves."""
    found: dict[str, str] = {}
    for engine in ENGINES:
        frame = metrics.read(engine.running)
        if len(frame):
            pairs = frame.select(pod=workload(frame, "pod"), model=label(frame, *engine.models)).unique()
            found.update({pod: model for pod, model in pairs.sort("pod", "model").rows() if pod and model})
    return found


# -- requests --------------------------------------------------------------------------------------------------


def requests_of(metrics: MetricReader) -> Answer:
    """Requests in windows, by engine and model."""
    frames = [frame for engine in ENGINES if (frame := _served(metrics, engine)) is not None]
    return (fitted(pl.concat(frames), CanonicalTable.REQUESTS) if frames else None), []


def _served(metrics: MetricReader, engine: ServingEngine) -> pl.DataFrame | None:
    counts = _grown(metrics, engine, engine.requests, "count")
    if counts is None:
        return None
    rows = counts
    for key, signal in (
        ("tokens_in", engine.tokens_in),
        ("tokens_out", engine.tokens_out),
        ("seconds", engine.latency_sum),
        ("timed", engine.latency_count),
    ):
        more = _grown(metrics, engine, signal, key)
        if more is not None:
            rows = rows.join(more, on=["at_ms", "service", "client"], how="left")
        else:
            rows = rows.with_columns(pl.lit(None, dtype=pl.Float64).alias(key))
    mean = pl.when(pl.col("timed") > 0).then(pl.col("seconds") / pl.col("timed") * 1000)
    return rows.sort("at_ms", "service", "client").select(
        pl.col("at_ms") - metrics.step_ms,
        "service",
        "client",
        "count",
        window_ms=pl.lit(metrics.step_ms),
        tokens_in=_rounded(pl.col("tokens_in")),
        tokens_out=_rounded(pl.col("tokens_out")),
        latency_ms=_rounded(mean),
    )


def _grown(metrics: MetricReader, engine: ServingEngine, signal: Metric, key: str) -> pl.DataFrame | None:
    frame = metrics.read(signal)
    if frame.is_empty():
        return None
    keyed = frame.with_columns(service=label(frame, *engine.models), client=workload(frame, "namespace"))
    return increases(keyed, "service", "client").rename({"grown": key})


# -- capacity --------------------------------------------------------------------------------------------------


def capacity_of(metrics: MetricReader) -> Answer:
    """Queues of Kueue where it is there, else what nodes have and pods hold; and requests that wait."""
    frames = [_engines(metrics)]
    frames.append(_kueue(metrics) if any(metrics.name(signal) for signal in KUEUE.values()) else _kube(metrics))
    there = [fitted(frame, CanonicalTable.CAPACITY) for frame in frames if frame is not None and len(frame)]
    return (pl.concat(there).sort("at_ms", "queue") if there else None), []


def _engines(metrics: MetricReader) -> pl.DataFrame | None:
    rows = []
    for engine in ENGINES:
        sides = []
        for key, signal in (("running_jobs", engine.running), ("pending_jobs", engine.waiting)):
            frame = metrics.read(signal)
            keyed = named(frame, queue=label(frame, *engine.models))
            sides.append(keyed.group_by("at_ms", "queue").agg(_rounded(pl.col("value").sum()).alias(key)))
        if any(len(side) for side in sides):
            rows.append(sides[0].join(sides[1], on=["at_ms", "queue"], how="full", coalesce=True))
    return pl.concat(rows).with_columns(every_ms=pl.lit(metrics.step_ms)) if rows else None


def _kueue(metrics: MetricReader) -> pl.DataFrame | None:
    columns = {"running": "running_milli", "pending": "pending_milli", "total": "total_milli"}
    whole: pl.DataFrame | None = None
    for key, signal in KUEUE.items():
        counted = key not in columns
        frame = metrics.read(signal, "" if counted else '{resource=~".*/gpu.*"}')
        if frame.is_empty():
            continue
        keyed = named(frame, queue=label(frame, "cluster_queue"))
        summed = keyed.group_by("at_ms", "queue").agg(_rounded(pl.col("value").sum()).alias(columns.get(key, key)))
        whole = summed if whole is None else whole.join(summed, on=["at_ms", "queue"], how="full", coalesce=True)
    return whole.with_columns(every_ms=pl.lit(metrics.step_ms)) if whole is not None else None


def _kube(metrics: MetricReader) -> pl.DataFrame | None:
    asked, phase, nodes = (metrics.name(KUBE[key]) for key in ("asked", "phase", "allocatable"))
    rows = []
    if nodes:
        total = metrics.ask(f'sum(avg_over_time({nodes}{{resource=~"{GPU_RESOURCES}"}}[{metrics.step_ms - 1}ms]))')
        rows.append(total.select("at_ms", queue=pl.lit(""), total_milli=_rounded(pl.col("value") * 1000)))
    for state, key in (("Running", "running"), ("Pending", "pending")):
        if not (asked and phase):
            break
        query = (
            f'sum by (namespace) (sum by (namespace, pod) ({asked}{{resource=~"{GPU_RESOURCES}"}}) '
            f'* on (namespace, pod) group_left () max by (namespace, pod) ({phase}{{phase="{state}"}} == 1))'
        )
        found = metrics.ask(query)
        keyed = found.select("at_ms", queue=label(found, "namespace"), milli=_rounded(pl.col("value") * 1000))
        rows.append(keyed.rename({"milli": f"{key}_milli"}))
    there = [frame for frame in rows if len(frame)]
    if not there:
        return None
    whole = pl.concat(there, how="diagonal").group_by("at_ms", "queue").agg(pl.all().sum())
    return whole.with_columns(every_ms=pl.lit(metrics.step_ms))


# -- jobs and starts -------------------------------------------------------------------------------------------


def jobs_of(metrics: MetricReader) -> Answer:
    """Pods with GPUs as jobs, those of one owner as one, by kube-state-metrics."""
    asked = metrics.name(KUBE["asked"])
    if not asked:
        return None, []
    held = metrics.ask(f'sum by (namespace, pod) ({asked}{{resource=~"{GPU_RESOURCES}"}})')
    if held.is_empty():
        return None, []
    pods = (
        held.with_columns(queue=label(held, "namespace"), pod=label(held, "pod"))
        .group_by("queue", "pod")
        .agg(first=pl.col("at_ms").min(), last=pl.col("at_ms").max(), gpus=pl.col("value").max())
    )
    for key in ("created", "started", "ended"):
        pods = pods.join(_moments(metrics, key), on=["queue", "pod"], how="left")
    pods = pods.join(_owners(metrics), on=["queue", "pod"], how="left").with_columns(
        pl.col("owner", "kind").fill_null("")
    )
    serves = pl.col("kind").is_in(_SERVES)
    alone = serves | (pl.col("owner") == "")
    gone = pl.col("last") < metrics.asker.span.end_ms - 5 * metrics.step_ms
    pods = pods.with_columns(
        id=pl.concat_str("queue", pl.when(alone).then(pl.col("pod")).otherwise(pl.col("owner")), separator="/"),
        kind=pl.when(serves).then(pl.lit("inference")).otherwise(pl.lit("batch")),
        ended=pl.coalesce("ended", pl.when(gone).then(pl.col("last"))),
        created=pl.coalesce("created", "first"),
    )
    rows = pods.group_by("id", "queue", "kind").agg(
        gpus_milli=_rounded(pl.col("gpus").sum() * 1000),
        pods=pl.len(),
        submitted_ms=pl.col("created").min(),
        started_ms=pl.when(pl.col("started").is_not_null().all()).then(pl.col("started").max()),
        ended_ms=pl.when(pl.col("ended").is_not_null().all()).then(pl.col("ended").max()),
    )
    over = pl.col("ended_ms").is_not_null()
    rows = rows.with_columns(
        duration_ms=(pl.col("ended_ms") - pl.col("started_ms")).clip(0),
        outcome=pl.when(over)
        .then(pl.lit(""))
        .when(pl.col("started_ms").is_not_null())
        .then(pl.lit("running"))
        .otherwise(pl.lit("pending")),
    )
    return fitted(rows.filter(pl.col("gpus_milli") > 0).sort("submitted_ms", "id"), CanonicalTable.JOBS), []


def _moments(metrics: MetricReader, key: str) -> pl.DataFrame:
    """A time that pods have as a value, in seconds."""
    schema = {"queue": pl.String, "pod": pl.String, key: pl.Int64}
    name = metrics.name(KUBE[key])
    frame = metrics.ask(f"max by (namespace, pod) ({name})") if name else pl.DataFrame()
    if frame.is_empty():
        return pl.DataFrame(schema=schema)
    keyed = frame.select(queue=label(frame, "namespace"), pod=label(frame, "pod"), value="value")
    return keyed.group_by("queue", "pod").agg(_rounded(pl.col("value").max() * 1000).alias(key))


def _owners(metrics: MetricReader) -> pl.DataFrame:
    schema = {"queue": pl.String, "pod": pl.String, "owner": pl.String, "kind": pl.String}
    name = metrics.name(KUBE["owner"])
    frame = (
        metrics.ask(f"max by (namespace, pod, created_by_kind, created_by_name) ({name})") if name else pl.DataFrame()
    )
    if frame.is_empty():
        return pl.DataFrame(schema=schema)
    keyed = frame.select(
        queue=label(frame, "namespace"),
        pod=label(frame, "pod"),
        owner=label(frame, "created_by_name"),
        kind=label(frame, "created_by_kind"),
    )
    return keyed.unique(["queue", "pod"], keep="first", maintain_order=True)


def starts_of(metrics: MetricReader) -> Answer:
    """How long nodes took to come, by Karpenter."""
    total, count = (metrics.read(signal) for signal in KARPENTER)
    if total.is_empty() or count.is_empty():
        return None, []
    sides = [increases(frame.with_columns(type=label(frame, "type")), "type") for frame in (total, count)]
    both = sides[0].join(sides[1].rename({"grown": "times"}), on=["at_ms", "type"])
    came = both.filter((pl.col("times") >= 1) & pl.col("type").is_in(list(STAGES)))
    rows = came.select(
        "at_ms",
        stage=pl.col("type").replace_strict(STAGES),
        took_ms=_rounded(pl.col("grown") / pl.col("times") * 1000),
        times=_rounded(pl.col("times")).clip(1, _MOST_STARTS),
    )
    each = rows.select(pl.exclude("times").repeat_by("times")).explode("at_ms", "stage", "took_ms")
    return (fitted(each.sort("at_ms", "stage"), CanonicalTable.STARTS) if len(each) else None), []


# -- labels and counters ---------------------------------------------------------------------------------------


def label(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of these labels that a series has; empty if it has none."""
    there = [pl.col(f"label {name}").replace("", None) for name in names if f"label {name}" in frame.columns]
    return pl.coalesce(*there, pl.lit("")) if there else pl.lit("")


def workload(frame: pl.DataFrame, what: str) -> pl.Expr:
    """A label of the workload that a series is about.

    Without honorLabels, Prometheus puts the exporter's own pod there, and what is meant under `exported_`.
    """
    exported = label(frame, f"exported_{what}")
    own = label(frame, what, f"{what}_name")
    exporter = label(frame, "pod").str.contains("dcgm-exporter|nvidia-dcgm|kube-state-metrics")
    return pl.when(exported != "").then(exported).when(~exporter).then(own).otherwise(pl.lit(""))


def named(frame: pl.DataFrame, **labels: pl.Expr) -> pl.DataFrame:
    """Time and value with these labels as columns."""
    return frame.select("at_ms", "value", **labels)


def increases(frame: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """The increase of counters since the sample before, summed by time and keys; a counter that fell was reset."""
    series = [name for name in frame.columns if name.startswith("label ")]
    if not series or frame.is_empty():
        series = []
    ordered = frame.sort(*series, "at_ms", nulls_last=True)
    before = pl.col("value").shift(1).over(series) if series else pl.col("value").shift(1)
    step = pl.when(pl.col("value") >= before).then(pl.col("value") - before).otherwise(pl.col("value"))
    rows = ordered.with_columns(grown=pl.when(before.is_not_null()).then(step)).filter(pl.col("grown").is_not_null())
    return rows.group_by("at_ms", *keys).agg(pl.col("grown").sum()).sort("at_ms", *keys)
