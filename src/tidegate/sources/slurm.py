"""Slurm's accounting: `sacct -P`, `sacct -p` with any of its columns, and `sacct --json`.

A job is its own row; its steps are left out. An array that still waits is one row that stands for its tasks. Times are
the host's, without a zone. Slurm lists jobs that were there in the time that it was asked for, also those that had
begun before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from tidegate.model.problem import printable
from tidegate.sources.detect_columns import ColumnOverride
from tidegate.sources.findings import Code, SourceError, SourceFinding
from tidegate.sources.options import CanonicalTable, Format, SourceOptions
from tidegate.sources.source_result import SourceTable
from tidegate.sources.table_file import TableFile, polars_error, table_in_memory
from tidegate.sources.table_reader import TableHints, read_table_file

EXPORT = (
    "sacct -a -X -P --format=JobID,Submit,Start,End,ElapsedRaw,State,AllocTRES,ReqTRES,NNodes,Account,Partition,JobName"
)

#: Columns of sacct for each field, best first.
_COLUMNS = {
    "id": ("JobID", "JobIDRaw"),
    "submitted": ("Submit",),
    "started": ("Start",),
    "ended": ("End",),
    "duration": ("ElapsedRaw", "Elapsed"),
    "outcome": ("State",),
    "gpus": ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "NGPUs"),
    "gpu_model": ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES"),
    "queue": ("Account", "Partition", "QOS", "User"),
    "pods": ("AllocNodes", "NNodes"),
    "priority": ("Priority",),
    "kind": ("JobName",),
}
_INTERACTIVE = r"(?i)^(interactive|bash|sh|zsh|salloc|jupyter.*|.*notebook.*|sys/dashboard.*|code-server|vscode.*)$"


def is_sacct(names: tuple[str, ...]) -> bool:
    """Whether a header is one of sacct's."""
    return bool({"JobID", "JobIDRaw"} & set(names)) and bool({"Submit", "Start", "Elapsed", "ElapsedRaw"} & set(names))


def read_sacct(file: TableFile, options: SourceOptions, overrides: dict[str, ColumnOverride]) -> SourceTable:
    """Read what sacct printed; a SourceError says what to print instead."""
    there = set(file.names)
    resources = [name for name in _COLUMNS["gpus"] if name in there]
    if not resources and "gpus" not in overrides:
        raise SourceError(f"{file.name}: has no column that says how many GPUs jobs have; export it again: {EXPORT}")
    chosen = {
        field: ColumnOverride(next(name for name in names if name in there))
        for field, names in _COLUMNS.items()
        if there & set(names)
    }
    wanted = TableHints(
        overrides={**chosen, **overrides},
        zone=options.timezone,
        table=CanonicalTable.JOBS,
        exact=True,
        extra_columns=tuple(resources[:2]),
        prepare=lambda raw: _prepare(raw, resources[:2], there),
    )
    part = read_table_file(file, wanted, Format.SLURM)
    return _with_arrays(_with_steps(part._replace(since_ms=_since_ms(part)), file, wanted))


def _since_ms(part: SourceTable) -> int | None:
    """From when on all jobs that were there are listed: sacct leaves out those that had ended before, and no others."""
    first = part.frame.select(pl.col("ended_ms").min()).collect(engine="streaming").item()
    return first if isinstance(first, int) else None


def _prepare(raw: pl.LazyFrame, resources: list[str], there: set[str]) -> pl.LazyFrame:
    """Jobs only; what was allocated, or else requested; interactive sessions marked."""
    ids = pl.col("JobID") if "JobID" in there else pl.col("JobIDRaw").cast(pl.String)
    raw = raw.filter(~ids.str.contains(".", literal=True).fill_null(value=False))
    if resources:
        raw = raw.with_columns(pl.coalesce(resources).alias(resources[0]))
    if "JobName" in there:
        session = pl.col("JobName").str.contains(_INTERACTIVE)
        raw = raw.with_columns(pl.when(session).then(pl.lit("interactive")).otherwise(pl.lit("batch")).alias("JobName"))
    return raw


def _with_steps(part: SourceTable, file: TableFile, wanted: TableHints) -> SourceTable:
    """Say how many steps were left out."""
    name = wanted.overrides["id"].column if "id" in wanted.overrides else ""
    if name not in file.names:
        return part
    steps = file.careful([name]).select(pl.col(name).cast(pl.String).str.contains(".", literal=True).sum())
    count = int(steps.collect(engine="streaming").item())
    if not count:
        return part
    found = SourceFinding(Code.JOB_STEP, part.name, count)
    return part._replace(rows=part.rows + count, findings=(*part.findings, found))


def _with_arrays(part: SourceTable) -> SourceTable:
    """A row for each task of arrays that wait."""
    waiting = pl.col("id").str.contains("[", literal=True)
    ids = part.frame.filter(waiting).select("id").collect(engine="streaming")["id"]
    if not len(ids):
        return part
    more = sum(count_tasks(text) - 1 for text in ids)
    counts = {text: count_tasks(text) for text in ids}
    copies = pl.col("id").replace_strict(counts, default=1, return_dtype=pl.Int64)
    tasks = part.frame.filter(waiting).with_columns(pl.int_ranges(0, copies).alias("\x00task")).explode("\x00task")
    named = pl.col("id").str.replace(r"\[.*\]", "") + pl.col("\x00task").cast(pl.String)
    frame = pl.concat([part.frame.filter(~waiting), tasks.with_columns(id=named).drop("\x00task")])
    return part._replace(frame=frame, rows=part.rows + more, kept=part.kept + more)


def count_tasks(text: str) -> int:
    """How many tasks `123_[1-9:2,12%4]` stands for."""
    listed = re.search(r"\[([^\]%]*)", text)
    total = 0
    for piece in listed[1].split(",") if listed else ():
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", piece.strip())
        if found:
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            total += max(0, last - first) // max(step, 1) + 1
    return max(total, 1)


# -- JSON ------------------------------------------------------------------------------------------------------


def read_sacct_json(path: Path, options: SourceOptions, overrides: dict[str, ColumnOverride]) -> SourceTable:
    """Read what `sacct --json` printed, of any version of its format."""
    name = printable(str(path))
    try:
        value = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise SourceError(f"{name}: is not JSON: {error}; was it cut short?") from None
    except OSError as error:
        raise polars_error(name, error) from None
    jobs = value.get("jobs") if isinstance(value, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise SourceError(f"{name}: jobs: expected a list of jobs, as sacct --json prints it")
    rows = [_row(job) for job in jobs]
    schema = dict.fromkeys(
        ("JobID", "Account", "Partition", "JobName", "State", "AllocTRES", "ReqTRES"), pl.String()
    ) | dict.fromkeys(("Submit", "Start", "End", "ElapsedRaw", "NNodes", "Priority"), pl.Int64())
    frame = pl.DataFrame(rows, schema=schema, strict=False)
    return read_sacct(table_in_memory(name, frame), options._replace(timezone="UTC"), overrides)


def _row(job: dict[str, Any]) -> dict[str, Any]:
    times, tres = _inner(job, "time"), _inner(job, "tres")
    return {
        "JobID": _job_id(job),
        "Account": job.get("account"),
        "Partition": job.get("partition"),
        "JobName": job.get("name"),
        "State": _state(job),
        "AllocTRES": _tres(tres.get("allocated")),
        "ReqTRES": _tres(tres.get("requested")),
        "Submit": _number(times.get("submission")) or None,
        "Start": _number(times.get("start")) or None,
        "End": _number(times.get("end")) or None,
        "ElapsedRaw": _number(times.get("elapsed")),
        "NNodes": _number(job.get("allocation_nodes")) or None,
        "Priority": _number(job.get("priority")),
    }


def _inner(job: dict[str, Any], key: str) -> dict[str, Any]:
    found = job.get(key)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> int | None:
    """A number, or one in Slurm's `{set, infinite, number}`."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _job_id(job: dict[str, Any]) -> str:
    array = _inner(job, "array")
    task, parent = _number(array.get("task_id")), _number(array.get("job_id"))
    if parent and task is not None:
        return f"{parent}_{task}"
    tasks = array.get("task")
    return f"{parent}_[{tasks}]" if parent and isinstance(tasks, str) and tasks else str(job.get("job_id", ""))


def _state(job: dict[str, Any]) -> str | None:
    found = _inner(job, "state").get("current") or job.get("job_state")
    listed = found if isinstance(found, list) else [found]
    return str(listed[0]) if listed and listed[0] else None


def _tres(listed: Any) -> str | None:
    if not isinstance(listed, list):
        return None
    return ",".join(_tres_texts(entry for entry in listed if isinstance(entry, dict))) or None


def _tres_texts(entries: Iterable[dict[str, Any]]) -> Iterable[str]:
    for entry in entries:
        kind, name = entry.get("type", ""), entry.get("name") or ""
        yield f"{kind}/{name}={entry.get('count', 0)}" if name else f"{kind}={entry.get('count', 0)}"
