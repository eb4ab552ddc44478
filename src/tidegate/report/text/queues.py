"""Queues against their quota, as a table, as plain data and as CSV."""

from __future__ import annotations

import csv
from typing import Any, TextIO

import numpy as np
from rich.table import Table
from rich.text import Text

from tidegate.measure.format import amount_text, percent_text
from tidegate.measure.queues import QueueShare
from tidegate.measure.quota import QuotaUse
from tidegate.measure.summary import RunSummary, TimeSpread, WorkloadGroup
from tidegate.model.arrays import F64
from tidegate.model.units import WHOLE_MILLI, gpus_text
from tidegate.report.sparkline import sparkline

_MOST_QUEUES = 16

#: Columns from which there is room for curves, and their length.
_WIDE, _CELLS = 110, 24


def queue_table(summary: RunSummary, use: QuotaUse | None, width: int) -> Table | None:
    """What each queue had against what it owns, those with the most quota first."""
    if not summary.shares or use is None:
        return None
    wide = width >= _WIDE
    curve = (f"{'use of quota, day by day':<{_CELLS}}",) if wide else ()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("queue", no_wrap=True, max_width=24, min_width=9)
    for name in ("quota", "used", "borrowed", "lent", "of its due", "preempted", "lost", *curve):
        table.add_column(name, justify="left" if name in curve else "right", no_wrap=True)
    order = sorted(range(len(summary.shares)), key=lambda q: (-summary.shares[q].quota_gpu_h, q))
    for q in order[:_MOST_QUEUES]:
        table.add_row(*_row(summary.shares[q]), *([_curve(use, q)] if wide else []))
    if len(order) > _MOST_QUEUES:
        table.add_row(Text(f"{len(order) - _MOST_QUEUES:,} more", "dim"))
    return table


def _row(share: QueueShare) -> list[Text | str]:
    return [
        Text(share.name),
        gpus_text(round(share.quota_gpus * WHOLE_MILLI)),
        amount_text(share.used_gpus),
        _hours(share.borrowed_gpu_h),
        _hours(share.lent_gpu_h),
        Text(percent_text(share.due_share), _mood(share.due_share)),
        f"{share.preempted:,}" if share.preempted else Text("0", "dim"),
        _hours(share.preempted_lost_gpu_h),
    ]


def _mood(due: float | None) -> str:
    """The colour of how much a queue had of its due."""
    return "" if due is None or due >= 0.9 else "yellow" if due >= 0.5 else "red"


def _hours(gpu_h: float) -> Text:
    return Text(f"{amount_text(gpu_h)} h") if gpu_h > 0 else Text("0", "dim")


def _curve(use: QuotaUse, q: int) -> Text:
    """Use over time; a full block is twice the quota, or the most that was used where nothing is owned."""
    used, quota = _shrunk(use.used_milli[:, q]), float(use.quota_milli[:, q].max(initial=0))
    return Text(sparkline(used, 2 * quota if quota else float(used.max(initial=1.0))), "cyan")


def _shrunk(values: F64) -> F64:
    """Averages over as many equal stretches as there are cells."""
    edges = np.linspace(0, len(values), _CELLS + 1)
    so_far = np.interp(edges, np.arange(len(values) + 1), np.concatenate([[0.0], np.cumsum(values)]))
    means: F64 = np.diff(so_far) / max(len(values) / _CELLS, 1e-9)
    return means


LEGEND = (
    "GPUs on average; borrowed, lent and lost in GPU-hours. Its due: what it wanted within its own quota. "
    "Lost: work of its own that preemptions undid."
)


# -- for programs ----------------------------------------------------------------------------------------------


def quota_as_json(use: QuotaUse) -> dict[str, Any]:
    """Use against quota over time, by queue."""
    return {
        "at_ms": use.at_ms.tolist(),
        "used_gpus": {name: _rounded(use.used_milli[:, q]) for q, name in enumerate(use.queues)},
        "quota_gpus": {name: _rounded(use.quota_milli[:, q]) for q, name in enumerate(use.queues)},
        "due_gpus": {name: _rounded(use.due_milli[:, q]) for q, name in enumerate(use.queues)},
    }


def _rounded(milli: F64) -> list[float]:
    rounded: list[float] = np.round(milli / WHOLE_MILLI, 3).tolist()
    return rounded


_SPREAD = ("mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")

#: Columns of queues: of what became of their work, of open waits (quantiles from there on are at least what they say),
#: of GPU-hours, and of what they own.
_COUNTS = ("workloads", "finished", "running", "waiting", "rejected", "cancelled")
_BOUNDS = ("open_ms", "completion_open_ms")
_HOURS = ("allocated_gpu_h", "waited_gpu_h", "served_share", "evictions", "preemptions", "lost_gpu_h")
_OWNED = tuple(name for name in QueueShare.__struct_fields__ if name != "name")


def write_queue_csv(summary: RunSummary, file: TextIO) -> None:
    """One line a queue: what became of its work, and what it had against what it owns."""
    rows = queue_rows(summary)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("queue", *queue_fields()))
    for name, row in rows.items():
        writer.writerow([name, *map(_cell, row)])


def queue_fields() -> tuple[str, ...]:
    """The columns of a row of a queue, after its name."""
    spreads = (f"{kind}_{name}" for kind in ("wait", "completion") for name in _SPREAD)
    return (*_COUNTS, *spreads, *_BOUNDS, *_HOURS, *_OWNED)


def queue_rows(summary: RunSummary) -> dict[str, list[Any]]:
    """What became of the work of each queue, and what it had against what it owns; None where there is nothing."""
    groups = {group.name: group for group in summary.queues}
    shares = {share.name: share for share in summary.shares}
    return {name: _queue_row(groups.get(name), shares.get(name)) for name in sorted({*groups, *shares})}


def _queue_row(group: WorkloadGroup | None, share: QueueShare | None) -> list[Any]:
    spreads: list[TimeSpread | None] = [group.wait if group else None, group.completion if group else None]
    return [
        *(getattr(group, field, None) for field in _COUNTS),
        *(getattr(spread, name, None) for spread in spreads for name in _SPREAD),
        *(getattr(group, field, None) for field in (*_BOUNDS, *_HOURS)),
        *(getattr(share, field, None) for field in _OWNED),
    ]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.15g}" if isinstance(value, float) else str(value)
