"""Labels of series, whatever they are called: pods, nodes, GPUs and models; and counters as what they grew by."""

from __future__ import annotations

import polars as pl


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
    """What counters grew by since the sample before, summed by time and keys; a counter that fell began anew."""
    series = [name for name in frame.columns if name.startswith("label ")]
    if not series or frame.is_empty():
        series = []
    ordered = frame.sort(*series, "at_ms", nulls_last=True)
    before = pl.col("value").shift(1).over(series) if series else pl.col("value").shift(1)
    step = pl.when(pl.col("value") >= before).then(pl.col("value") - before).otherwise(pl.col("value"))
    rows = ordered.with_columns(grown=pl.when(before.is_not_null()).then(step)).filter(pl.col("grown").is_not_null())
    return rows.group_by("at_ms", *keys).agg(pl.col("grown").sum()).sort("at_ms", *keys)
