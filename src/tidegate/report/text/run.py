"""A run as text and as plain data: the share of useful GPU time, sparklines, tables and findings."""

from __future__ import annotations

import csv
from typing import Any, NamedTuple, TextIO

import numpy as np
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from tidegate.measure.findings import find
from tidegate.measure.format import UNKNOWN, amount_text, count_text, percent_text, time_text
from tidegate.measure.job_records import NOT_YET, Fate, JobRecords
from tidegate.measure.quota import QuotaUse
from tidegate.measure.requests import KINDS
from tidegate.measure.summary import RunSummary, WorkloadGroup, idle_gpu_ms
from tidegate.measure.time_series import ClusterSamples
from tidegate.model.arrays import F64
from tidegate.model.units import HOUR_MS, SECOND_MS, WHOLE_MILLI, gpus_text
from tidegate.report.output_files import print_page
from tidegate.report.sparkline import curves
from tidegate.report.text.queues import LEGEND, queue_table, quota_as_json

_MOST_QUEUES = 8
_MOST_HOLDERS = 5
_MOST_FINDINGS = 4

#: Columns from which there is room for bars.
_WIDE = 96


def render(
    summary: RunSummary, lives: JobRecords, samples: ClusterSamples, console: Console, use: QuotaUse | None = None
) -> None:
    """Print the report."""
    print_page(_page(Run(summary, lives, samples, use), console.width), console)


class Run(NamedTuple):
    """What is reported on."""

    summary: RunSummary
    lives: JobRecords
    samples: ClusterSamples
    use: QuotaUse | None


def _page(run: Run, width: int) -> Stack:
    summary = run.summary
    queues = queue_table(summary, run.use, width)
    parts: list[RenderableType | None] = [
        _headline(summary, on_nodes=bool(run.samples.nodes)),
        curves(summary, run.samples, width),
        _groups(summary, width),
        Stack(queues, Text(LEGEND, "dim")) if queues else None,
        _holders(run.lives),
        _findings(run),
    ]
    page: list[RenderableType] = [_title(summary, run.samples)]
    for part in parts:
        page += [Text(), part] if part is not None else []
    return Stack(*page)


def headline_text(run: Run) -> str:
    """What was run, and the sentences to remember of it, as plain text."""
    lines = [_title(run.summary, run.samples), _headline(run.summary, on_nodes=bool(run.samples.nodes))]
    return "\n".join(line.plain for line in lines)


# -- in words --------------------------------------------------------------------------------------------------


def _title(summary: RunSummary, samples: ClusterSamples) -> Text:
    gpus = int(samples.up_milli.max(initial=0)) // WHOLE_MILLI
    machines = count_text(len(samples.nodes), "node") if samples.nodes else "no nodes, quota of"
    parts = (
        f"{machines}{', ' if samples.nodes else ' '}{count_text(gpus, 'GPU')}",
        time_text(summary.end_ms - summary.start_ms),
        f"{count_text(summary.total.workloads, 'workload')} in {count_text(len(summary.queues), 'queue')}",
    )
    return Text.assemble(("Tidegate", "bold cyan"), ("  " + "  ·  ".join(parts), "dim"))


def _headline(summary: RunSummary, *, on_nodes: bool) -> Text:
    """The sentences to remember if one reads nothing else."""
    return Text("\n").join([_use_sentence(summary, on_nodes=on_nodes), _wait_sentence(summary)])


def _use_sentence(summary: RunSummary, *, on_nodes: bool) -> Text:
    if summary.allocation_share is None:
        return Text("There were no GPUs.")
    what = "GPUs were allocated " if on_nodes else "The quota of GPUs was used "
    allocated = (what, (percent_text(summary.allocation_share), "bold"), " of the time")
    share = summary.total.busy_share
    if share is None or summary.useful_share is None:
        return Text.assemble(*allocated, ". Whether they were busy was not observed.")
    return Text.assemble(
        *allocated,
        " and busy ",
        (percent_text(share), f"bold {_mood(share)}"),
        " of that: of every 100 GPU-hours paid for, ",
        (f"{100 * summary.useful_share:.0f}", f"bold {_mood(summary.useful_share)}"),
        " did work.",
    )


def _wait_sentence(summary: RunSummary) -> Text:
    total, wait = summary.total, summary.total.wait
    if wait is None:
        return Text("Nothing waited, because nothing was submitted.")
    fates = (("running", total.running), ("waiting", total.waiting), ("rejected", total.rejected))
    others = [f"{count:,} {name}" for name, count in (*fates, ("cancelled", total.cancelled)) if count]
    ended = f"{total.finished:,} of {count_text(total.workloads, 'workload')} finished"
    at_once = wait.p50_ms < SECOND_MS and not total.is_bound(wait.p50_ms)
    half, most = ("for at least" if total.is_bound(wait_ms) else "at most" for wait_ms in (wait.p50_ms, wait.p90_ms))
    return Text.assemble(
        "Half of the work " + ("started at once" if at_once else f"waited {half} "),
        ("" if at_once else time_text(wait.p50_ms), "bold"),
        f", nine in ten {most} " if most == "at most" else f", one in ten {most} ",
        (time_text(wait.p90_ms), "bold"),
        f"; {ended}" + (f" ({', '.join(others)})." if others else "."),
    )


def _findings(run: Run) -> Table | None:
    most = _MOST_FINDINGS + (2 if run.use else 0)
    found = find(run.summary, run.lives, run.use)[:most]
    table = Table.grid(padding=(0, 1, 0, 0))
    for finding in found:
        table.add_row(Text("•", "cyan"), Text(finding.text))
    return table if found else None


def _mood(share: float) -> str:
    """The colour of a busy share."""
    return "red" if share < 0.35 else "yellow" if share < 0.65 else "green"


# -- tables ----------------------------------------------------------------------------------------------------


def _groups(summary: RunSummary, width: int) -> Table:
    """Everything, then queue by queue, then by kind of work."""
    wide = width >= _WIDE
    served = ("served",) if wide else ()
    table = _table("", "work", "GPU-hours", "wait p50", "wait p90", "JCT p50", *served, "busy", "evicted")
    table.add_row(*_group_row(summary.total, "", wide=wide))
    queues = sorted(summary.queues, key=lambda group: -group.allocated_gpu_h)
    table.add_row(Text("by queue", "dim"))
    for group in queues[:_MOST_QUEUES]:
        table.add_row(*_group_row(group, "  ", wide=wide))
    if len(queues) > _MOST_QUEUES:
        table.add_row(Text(f"  {len(queues) - _MOST_QUEUES:,} more", "dim"))
    table.add_row(Text("by kind", "dim"))
    for group in sorted(summary.kinds, key=lambda group: -group.allocated_gpu_h):
        table.add_row(*_group_row(group, "  ", wide=wide))
    return table


def _group_row(group: WorkloadGroup, indent: str, *, wide: bool) -> list[Text | str]:
    wait, completion = group.wait, group.completion
    return [
        Text(indent + group.name),
        f"{group.workloads:,}",
        amount_text(group.allocated_gpu_h),
        _wait_text(group, wait.p50_ms if wait else None),
        _wait_text(group, wait.p90_ms if wait else None),
        _bound_text(completion.p50_ms, is_bound=group.is_completion_bound(completion.p50_ms))
        if completion
        else UNKNOWN,
        *([percent_text(group.served_share)] if wide else []),
        _busy_text(group.busy_share, wide=wide),
        f"{group.evictions:,}" if group.evictions else Text("0", "dim"),
    ]


def _wait_text(group: WorkloadGroup, wait_ms: float | None) -> str:
    """A quantile of waits."""
    return UNKNOWN if wait_ms is None else _bound_text(wait_ms, is_bound=group.is_bound(wait_ms))


def _bound_text(at_ms: float, *, is_bound: bool) -> str:
    """A quantile of times; with a sign where it is longer still, because some had not ended."""
    return ("≥" if is_bound else "") + time_text(at_ms)


def _busy_text(share: float | None, *, wide: bool) -> Text:
    if share is None:
        return Text(UNKNOWN, "dim")
    filled = round(10 * min(share, 1.0))
    bar = ("█" * filled, _mood(share)), ("░" * (10 - filled), "dim"), " "
    return Text.assemble(*(bar if wide else ()), (f"{percent_text(share):>5}", _mood(share)))


def _holders(lives: JobRecords) -> Table | None:
    """Who held most GPU time without using it."""
    worst = most_idle(lives)
    if not worst:
        return None
    table = _table("most idle", "queue", "kind", "GPUs", "idle GPU-hours", "busy")
    for justify, column in zip(("left", "left"), table.columns[1:3], strict=True):
        column.justify = justify  # type: ignore[assignment]  # a literal to mypy
    for row in worst:
        busy = lives.busy_gpu_ms[row] / lives.observed_gpu_ms[row]
        table.add_row(
            Text(lives.ids[row]),
            Text(lives.queues[lives.queue[row]]),
            KINDS[lives.kind[row]].value,
            gpus_text(int(lives.gpu_milli[row])),
            amount_text(float(idle_gpu_ms(lives)[row]) / HOUR_MS),
            _busy_text(float(busy), wide=False),
        )
    return table


def most_idle(lives: JobRecords) -> list[int]:
    """Rows of the workloads that held most GPU time idle, the worst first."""
    idle = idle_gpu_ms(lives)
    worst = np.argsort(-idle, kind="stable")[:_MOST_HOLDERS]
    return [row for row in worst.tolist() if idle[row] > 0]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True, max_width=24, min_width=9)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


# -- for programs ----------------------------------------------------------------------------------------------


def as_json(
    summary: RunSummary, lives: JobRecords, samples: ClusterSamples, use: QuotaUse | None = None
) -> dict[str, Any]:
    """The whole report as plain data; what is not known is null."""
    idle = idle_gpu_ms(lives)
    return {
        **({"quota": quota_as_json(use)} if use else {}),
        "summary": summary.as_json(),
        "findings": [finding.text for finding in find(summary, lives, use)],
        "most_idle": [{"id": lives.ids[row], "idle_gpu_h": float(idle[row]) / HOUR_MS} for row in most_idle(lives)],
        "samples": {
            "every_ms": samples.every_ms,
            "at_ms": samples.at_ms.tolist(),
            **sample_columns(samples),
            "waiting_gpus": {
                queue: _numbers(samples.waiting_milli[:, at] / WHOLE_MILLI) for at, queue in enumerate(samples.queues)
            },
        },
    }


def _numbers(values: F64) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 3) for value in values.tolist()]


def write_csv(lives: JobRecords, file: TextIO) -> None:
    """One line a workload; what has not happened is empty."""
    columns = job_columns(lives)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_csv_cell, values) for values in columns.values()), strict=True))


def _csv_cell(value: object) -> object:
    return f"{value:.15g}" if isinstance(value, float) else value  # the csv module writes None as nothing


def job_columns(lives: JobRecords) -> dict[str, list[Any]]:
    """One row a workload, in columns; what has not happened is None."""
    times = ("submitted_ms", "first_placed_ms", "started_ms", "finished_ms")
    numbers = (
        *("waited_ms", "held_milli_ms", "busy_gpu_ms", "observed_gpu_ms"),
        *("evictions", "lost_milli_ms", "preemptions"),
    )
    return {
        "number": lives.number.tolist(),
        "id": lives.ids,
        "queue": [lives.queues[queue] for queue in lives.queue.tolist()],
        "kind": [KINDS[kind].value for kind in lives.kind.tolist()],
        **{name: getattr(lives, name).tolist() for name in ("priority", "pods", "gpu_milli")},
        "fate": [Fate(fate).name.lower() for fate in lives.fate.tolist()],
        **{name: [None if at == NOT_YET else at for at in getattr(lives, name).tolist()] for name in times},
        **{name: getattr(lives, name).tolist() for name in numbers},
    }


def sample_columns(samples: ClusterSamples) -> dict[str, list[float | None]]:
    """GPUs over time, in columns; what was not observed is None."""
    return {
        "gpus": _numbers(samples.up_milli / WHOLE_MILLI),
        "allocated_gpus": _numbers(samples.allocated_milli / WHOLE_MILLI),
        "busy_gpus": _numbers(samples.busy_gpus),
        "observed_gpus": _numbers(samples.observed_gpus),
        "fragmented_gpus": _numbers(samples.fragmented_milli / WHOLE_MILLI),
    }
