"""`tidegate shadow-report`: what Tidegate would have done differently from what happened, and what that would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.api.journal_state import damage_reported
from tidegate.api.kernels import Kernels, kernels_for
from tidegate.cli.errors import CommandError, user_errors_reported
from tidegate.cli.journal_options import opened
from tidegate.cli.shared_options import JsonOption, KernelsOption
from tidegate.journal.decision_text import DATES_MS, time_text
from tidegate.journal.store import JournalFile
from tidegate.live.observed_history import observe, run_twin
from tidegate.live.shadow_comparison import ShadowComparison, ShadowDifference, ShadowWaits, compare_with_twin
from tidegate.measure.format import count_text, percent_text
from tidegate.model.reasons.catalogue import CATALOGUE, Reason
from tidegate.model.units import duration_text
from tidegate.report.output_files import open_console

#: Workloads that are shown one by one.
_MOST_ROWS = 10

#: GPUs that were there for a larger share of the time were there all along.
_ALL_ALONG = 0.995

#: So many steps are worth the compiler's start.
_WORTH_COMPILING = 50_000


def shadow_report(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="Journal of `tidegate run --mode shadow`.")],
    *,
    rows: Annotated[int, typer.Option(help="Workloads to show one by one.", min=0)] = _MOST_ROWS,
    kernels: KernelsOption = Kernels.AUTO,
    as_json: JsonOption = False,
) -> None:
    """Say what Tidegate would have done differently from what happened, and what that would have saved.

    On the cluster as it was: work that waited though Tidegate would have placed it, and work that ran though it
    would have been held. And in the twin: the same submissions, nodes and runtimes, decided by Tidegate all along.

    \b
    Examples:
      tidegate shadow-report shadow.db
      tidegate shadow-report shadow.db --rows 50
      tidegate shadow-report shadow.db --json
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported(), opened(journal, "report on") as file:
        _refuse_others(file)
        with damage_reported(file):
            observed = observe(file.steps(), shadow=file.is_shadow)
        if not observed.work:
            raise CommandError(f"{journal}: no work was seen; let the shadow run for longer")
        console = open_console(stderr=True)
        with (
            console.status("running the same work in the twin"),
            kernels_for(kernels, worth=len(file) > _WORTH_COMPILING),
        ):
            found = compare_with_twin(observed, run_twin(observed))
    if as_json:
        typer.echo(json.dumps(_plain(found, rows)))
    else:
        _show(found, rows, open_console())


def _refuse_others(file: JournalFile) -> None:
    span = file.span_ms()
    if span is None or span[0] < DATES_MS:
        what = "it has no steps" if span is None else "it is of a simulation"
        raise CommandError(f"{file.path}: {what}; expected a journal of `tidegate run --mode shadow --journal FILE`")
    if not file.is_shadow:
        raise CommandError(f"{file.path}: it is of a run that decided itself, not of a shadow; see `tidegate explain`")


def _plain(found: ShadowComparison, rows: int) -> dict[str, Any]:
    plain = found._asdict()
    plain["happened"], plain["twin"] = found.happened._asdict(), found.twin._asdict()
    told = found.differences[:rows]
    plain["differences"] = [{**row._asdict(), "reason": row.reason.name} for row in told]
    plain["more_differences"] = len(found.differences) - len(told)
    return plain


# -- on a terminal -------------------------------------------------------------------------------------------------


def _show(found: ShadowComparison, rows: int, console: Console) -> None:
    span = f"{time_text(found.start_ms)}, {duration_text(found.end_ms - found.start_ms)}"
    console.print(Text.assemble(("Shadow", "bold cyan"), (f"  {span}", "dim")))
    there = (
        ""
        if found.gpus_available_share > _ALL_ALONG
        else f", there {percent_text(found.gpus_available_share)} of the time"
    )
    work, nodes = count_text(found.workloads, "workload"), count_text(found.nodes, "node")
    console.print(f"{work} on {nodes} with {count_text(found.gpus, 'GPU')}{there}", highlight=False)
    console.print()
    console.print(_waits_table(found))
    console.print()
    for line in _sentences(found):
        console.print(Text(line))
    if found.differences and rows:
        console.print()
        console.print(_rows_table(found.differences[:rows]))
        if len(found.differences) > rows:
            console.print(Text(f"and {len(found.differences) - rows:,} more; --rows shows them", "dim"))


def _waits_table(found: ShadowComparison) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("waits", "mean", "p50", "p90", "longest"):
        table.add_column(name, justify="left" if name == "waits" else "right")
    for name, waits in (("as it was", found.happened), ("Tidegate, in the twin", found.twin)):
        table.add_row(name, *_cells(waits))
    return table


def _cells(waits: ShadowWaits) -> list[str]:
    if not waits.workloads:
        return ["–"] * 4  # noqa: RUF001 - the dash of what is not known
    return [duration_text(ms) for ms in (waits.mean_ms, waits.p50_ms, waits.p90_ms, waits.most_ms)]


def _sentences(found: ShadowComparison) -> list[str]:
    """What it comes to, in words."""
    verb, ms = ("less", found.saved_ms) if found.saved_ms >= 0 else ("more", -found.saved_ms)
    moved = f"In the twin {found.earlier:,} of {found.started:,} start earlier and {found.later:,} later"
    lines = [
        *_not_compared(found),
        f"{moved}: {duration_text(ms)} {verb} waiting in all, {abs(found.saved_gpu_hours):,.2f} GPU-hours.",
        f"Room that stood idle for work that Tidegate would have placed: {found.unused_gpu_hours:,.2f} GPU-hours.",
        f"Held by gangs that were not whole: {found.incomplete_gang_gpu_hours:,.2f} GPU-hours.",
    ]
    if found.would_be_held:
        lines.append(
            f"Started though Tidegate would have held it: {found.would_be_held:,} workloads, "
            f"{found.would_be_held_gpu_hours:,.2f} GPU-hours."
        )
    if found.over_quota:
        lines.append(
            f"Held more than the quota of its queue: {found.over_quota:,} workloads, "
            f"{found.over_quota_gpu_hours:,.2f} GPU-hours."
        )
    return lines


def _not_compared(found: ShadowComparison) -> list[str]:
    """What the waits above leave out."""
    lines = []
    if found.waiting:
        mean, most = duration_text(found.waiting_mean_ms), duration_text(found.waiting_most_ms)
        lines.append(f"Not started at the end: {found.waiting:,}, after {mean} on average so far and {most} at most.")
    if found.left:
        lines.append(f"Over before they started: {found.left:,}.")
    if found.ran_before:
        lines.append(f"Already running when the shadow started, so their waits are unknown: {found.ran_before:,}.")
    return [*lines, "The waits above are those of all others.", ""] if lines else []


def _rows_table(rows: tuple[ShadowDifference, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("workload", overflow="ellipsis", no_wrap=True, max_width=24)
    for name in ("GPUs", "waited", "twin"):
        table.add_column(name, justify="right")
    table.add_column("Tidegate would have", overflow="fold")
    for row in rows:
        waits = ("–" if ms is None else duration_text(ms) for ms in (row.waited_ms, row.twin_ms))  # noqa: RUF001
        table.add_row(row.id, f"{row.gpus:g}", *waits, _would(row))
    return table


def _would(row: ShadowDifference) -> str:
    if row.would == "started":
        return f"started it {duration_text(row.unused_ms)} earlier"
    title = CATALOGUE[row.reason].title if row.reason is not Reason.NONE else ""
    if row.would:
        return f"{row.would} it: {title}"
    return ""
