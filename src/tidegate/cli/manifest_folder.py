"""Folders of manifests on the command line: what is wrong with one, what it contains, and a run with it.

Must not know: what manifests mean.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from tidegate.cli.errors import EXIT_BAD_INPUT
from tidegate.config.convert import Setup
from tidegate.manifests.import_all import ImportedCluster
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.problem import Severity, path_text
from tidegate.model.simulation import InitialState, PlannedWorkload
from tidegate.model.units import DAY_MS
from tidegate.report.output_files import open_console
from tidegate.sources.config_file import LocatedProblem
from tidegate.sources.manifest_dir import ManifestDir, review_manifest_dir

_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_OBJECT = re.compile(rb'(^|[{,\s])("apiVersion"|apiVersion)\s*:|^partitions\s*:', re.MULTILINE)

#: Times beyond this are dates, and not counted from the start of a run.
_DATES_MS = 3_650 * DAY_MS


class FolderSummary(NamedTuple):
    """What a folder contains."""

    nodes: int
    gpus: int
    queues: int
    cohorts: int
    flavors: int
    entrances: int
    workloads: int
    pods: int


def holds_manifests(path: Path) -> bool:
    """Say whether a path is a folder, or a file that begins like a Kubernetes object."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return _OBJECT.search(file.read(1 << 16)) is not None
    except (OSError, ValueError):
        return False


def check_folder(path: Path, console: Console, *, as_json: bool) -> int:
    """Print all that is to be said about a folder, and what it contains; 0 if it can be used, 2 if not."""
    folder = review_manifest_dir(path)
    if as_json:
        say(console, msgspec.json.encode(_as_json(folder)).decode())
    else:
        for found, line in zip(folder.findings, folder.lines(), strict=False):
            say(console, line, style=_STYLES[found.severity])
        for line in folder.lines()[len(folder.findings) :]:
            say(console, line)
        _print_summary(folder, console)
    return 0 if folder.loaded is not None else EXIT_BAD_INPUT


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: never wrapped, never taken for markup, and without what the terminal cannot show."""
    showable = text.encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.out(showable, style=style, highlight=False)


def say_notes(notes: list[str]) -> None:
    """Tell what somebody should know before a run, beside its results."""
    for note in notes:
        say(open_console(stderr=True), note, style="yellow")


def counted(number: int, what: str) -> str:
    """A number with its word: 1 node, 2 nodes."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _print_summary(folder: ManifestDir, console: Console) -> None:
    if folder.loaded is None:
        return
    has = summarize_folder(folder.loaded)
    warnings = sum(found.severity is Severity.WARNING for found in folder.findings)
    fine = f"fine, with {counted(warnings, 'warning')}" if warnings else "fine"
    say(console, f"{folder.path}: {fine}", style="green")
    say(console, f"  machines  {counted(has.nodes, 'node')}, {counted(has.gpus, 'GPU')}")
    say(
        console,
        f"  shares    {counted(has.queues, 'queue')}, {counted(has.cohorts, 'cohort')}, "
        f"{counted(has.flavors, 'flavor')}, {counted(has.entrances, 'local queue')}",
    )
    say(console, f"  work      {counted(has.workloads, 'workload')}, {counted(has.pods, 'pod')}")


def summarize_folder(loaded: ImportedCluster) -> FolderSummary:
    """Count what a folder contains."""
    shares = loaded.shares
    return FolderSummary(
        nodes=len(loaded.nodes),
        gpus=sum(node.shape.gpu_count for node in loaded.nodes),
        queues=len(shares.queues),
        cohorts=len(shares.cohorts),
        flavors=len(shares.flavors),
        entrances=len(shares.entrances),
        workloads=len(loaded.work),
        pods=sum(pods.count for planned in loaded.work for pods in planned.workload.work.pod_sets),
    )


def _as_json(folder: ManifestDir) -> dict[str, Any]:
    return {
        "file": folder.path,
        "ok": folder.loaded is not None,
        "files": folder.files,
        "documents": folder.documents,
        "problems": [_finding_as_json(found) for found in folder.findings],
        "more_problems": folder.more,
        "summary": summarize_folder(folder.loaded)._asdict() if folder.loaded else None,
    }


def _finding_as_json(found: LocatedProblem) -> dict[str, Any]:
    origin, problem = found.origin, found.problem
    return {
        "severity": problem.severity,
        "file": origin.file,
        "document": origin.document,
        "kind": origin.kind,
        "name": origin.name,
        "path": path_text(problem.path),
        "line": found.place.line if found.place else None,
        "column": found.place.column if found.place else None,
        "expected": problem.expected,
        "found": problem.found,
        "hint": problem.hint,
        "message": problem.message(),
    }


def with_folder(setup: Setup, loaded: ImportedCluster) -> Setup:
    """The setup with a folder's shares, its nodes if it has any, and its work beside the setup's own.

    Where work of the folder holds quota, the run begins at the folder's moment: the setup's own work comes after it.
    """
    policy = msgspec.structs.replace(setup.policy, shares=loaded.shares)
    work, snapshot = to_submit(loaded)
    return setup._replace(
        nodes=list(loaded.nodes) or setup.nodes,
        policy=policy,
        work=[*(_moved(planned, snapshot.at_ms) for planned in setup.work), *work],
        snapshot=snapshot,
    )


def to_submit(loaded: ImportedCluster) -> tuple[list[PlannedWorkload], InitialState]:
    """The work of a folder that is still to be done, by the time since the first of it was created; where it stands."""
    standings = dict(loaded.standings)
    ended = {name for name, standing in standings.items() if standing.finished or not standing.active}
    work = [planned for planned in loaded.work if planned.workload.id not in ended]
    since_ms = min((p.workload.submitted_ms for p in work if p.workload.submitted_ms > _DATES_MS), default=0)
    moved = [_moved(p, -since_ms) if p.workload.submitted_ms > _DATES_MS else p for p in work]
    kept = [(p.workload.id, _since(standings[p.workload.id], since_ms)) for p in moved if p.workload.id in standings]
    if not any(_says_something(standing) for _, standing in kept):
        return moved, InitialState()
    granted_ms = [standing.granted_ms for _, standing in kept if standing.queue]
    at_ms = max([p.workload.submitted_ms for p in moved] + granted_ms)
    return moved, InitialState(at_ms=at_ms, standings=tuple(kept))


def _says_something(standing: ObservedStatus) -> bool:
    """Whether a workload stands anywhere but at the end of its queue."""
    return bool(standing.queue or standing.requeue_at_ms or standing.replaces or standing.parked or standing.order_ms)


def _moved(planned: PlannedWorkload, by_ms: int) -> PlannedWorkload:
    workload = planned.workload
    moved = msgspec.structs.replace(workload, submitted_ms=workload.submitted_ms + by_ms)
    return msgspec.structs.replace(planned, workload=moved)


def _since(standing: ObservedStatus, since_ms: int) -> ObservedStatus:
    times = {name: getattr(standing, name) for name in ("granted_ms", "requeue_at_ms", "order_ms")}
    moved = {name: max(at_ms - since_ms, 0) for name, at_ms in times.items() if at_ms > _DATES_MS}
    return msgspec.structs.replace(standing, **moved)


def unused(folder: ManifestDir) -> list[str]:
    """What a run in the twin does not use of a folder, in words."""
    loaded = folder.loaded or ImportedCluster()
    warnings = sum(found.severity is Severity.WARNING for found in folder.findings)
    told = [f"{folder.path}: {counted(warnings, 'warning')}; `tidegate check {folder.path}` lists them"]
    lines = told if warnings else []
    if loaded.nodes and any(standing.queue for _, standing in loaded.standings):
        lines.append(f"{folder.path}: work that was admitted goes on and holds its quota, but no room on the nodes")
    if loaded.foreign:
        lines.append(f"{folder.path}: what other pods hold on the nodes is not counted")
    return lines
