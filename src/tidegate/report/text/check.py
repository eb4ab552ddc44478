"""What is wrong with `tidegate.yaml` files and folders of manifests, and what they contain."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from tidegate.config.convert import build_policy
from tidegate.config.schema import ConfigDocument
from tidegate.config.schema_work import WorkEntry
from tidegate.manifests.import_all import ImportedCluster
from tidegate.measure.format import count_text
from tidegate.model.problem import Severity, path_text
from tidegate.model.queues import Cohort, Queue, QueueSetup
from tidegate.model.units import HOUR_MS, WHOLE_MILLI, duration_text
from tidegate.report.output_files import print_line
from tidegate.sources.config_file import LocatedProblem, ReviewedConfig, review_file
from tidegate.sources.manifest_dir import ManifestDir, holds_manifests, review_manifest_dir


class FileSummary(NamedTuple):
    """What a file contains."""

    pools: int
    nodes: int
    gpus: int
    gpu_models: dict[str, int]
    policy: str
    queues: int
    cohorts: int
    quota_gpus: float  # of all queues and cohorts
    workloads: int
    pods: int
    gpu_hours: float  # of work, if nothing is ever interrupted


def check_files(paths: list[Path], console: Console, *, as_json: bool) -> bool:
    """Print what is wrong with each file, or what it contains; say whether all can be used."""
    usable = True
    for path in paths:
        if holds_manifests(path):
            usable &= _check_folder(path, console, as_json=as_json)
            continue
        reviewed = review_file(path)
        usable &= reviewed.document is not None
        if as_json:
            print_line(console, msgspec.json.encode(_as_json(reviewed)).decode())
        else:
            _print_problems(reviewed, console)
            _print_summary(reviewed, console)
    return usable


def _print_problems(reviewed: ReviewedConfig, console: Console) -> None:
    lines = reviewed.lines()
    for number, line in enumerate(lines):
        is_warning = number < len(reviewed.problems) and _severity(reviewed.problems[number]) is Severity.WARNING
        print_line(console, line, style="yellow" if is_warning else "red")


def _severity(problem: LocatedProblem) -> Severity:
    return problem.problem.severity


def _print_summary(reviewed: ReviewedConfig, console: Console) -> None:
    if reviewed.document is None:
        return
    summary = summarize(reviewed.document)
    models = ", ".join(f"{count:,} {name or 'unnamed'}" for name, count in sorted(summary.gpu_models.items()))
    print_line(console, f"{reviewed.file}: fine", style="green")
    print_line(
        console,
        f"  machines  {count_text(summary.pools, 'pool')}, {count_text(summary.nodes, 'node')}, "
        f"{count_text(summary.gpus, 'GPU')}" + (f" ({models})" if models else ""),
    )
    print_line(console, f"  policy    {summary.policy}")
    if summary.queues:
        cohorts = f" in {count_text(summary.cohorts, 'cohort')}" if summary.cohorts else ""
        print_line(
            console,
            f"  shares    {count_text(summary.queues, 'queue')}{cohorts}, {summary.quota_gpus:,g} GPUs of quota",
        )
    print_line(
        console,
        f"  work      {count_text(summary.workloads, 'workload')}, {count_text(summary.pods, 'pod')}, "
        f"{summary.gpu_hours:,.1f} GPU-hours asked",
    )


def summarize(document: ConfigDocument) -> FileSummary:
    """Count what a document contains."""
    pools, policy = document.cluster.pools, build_policy(document.policy)
    shares, models = policy.shares, Counter[str]()
    for pool in pools:
        models[pool.shape.gpu] += pool.count * pool.shape.gpus
    named = {queue.cohort for queue in shares.queues} | {cohort.name for cohort in shares.cohorts}
    return FileSummary(
        pools=len(pools),
        nodes=sum(pool.count for pool in pools),
        gpus=models.total(),
        gpu_models={name: count for name, count in models.items() if count},
        policy=f"{policy.name}: {policy.order.kind} order, {policy.placement.kind} placement, "
        f"decides every {duration_text(policy.cycle_ms)}" + ("" if policy.waits else ", nothing waits"),
        queues=len(shares.queues),
        cohorts=len(named - {""}),
        quota_gpus=_quota_milli(shares) / WHOLE_MILLI,
        workloads=sum(entry.copies for entry in document.work),
        pods=sum(entry.copies * sum(pods.count for pods in entry.pod_entries()) for entry in document.work),
        gpu_hours=sum(map(_gpu_milli_ms, document.work)) / (WHOLE_MILLI * HOUR_MS),
    )


def _quota_milli(shares: QueueSetup) -> int:
    specs: list[Queue | Cohort] = [*shares.queues, *shares.cohorts]
    return sum(quota.nominal for spec in specs for quota in spec.quotas if quota.resource == "gpu")


def _gpu_milli_ms(entry: WorkEntry) -> int:
    return entry.copies * entry.runtime * sum(pods.count * pods.gpus for pods in entry.pod_entries())


def _as_json(reviewed: ReviewedConfig) -> dict[str, Any]:
    return {
        "file": reviewed.file,
        "ok": reviewed.document is not None,
        "problems": [_problem_as_json(problem) for problem in reviewed.problems],
        "more_problems": reviewed.more,
        "summary": summarize(reviewed.document)._asdict() if reviewed.document else None,
    }


def _problem_as_json(located: LocatedProblem) -> dict[str, Any]:
    problem, place = located.problem, located.place
    return {
        "severity": problem.severity,
        "path": path_text(problem.path),
        "line": place.line if place else None,
        "column": place.column if place else None,
        "expected": problem.expected,
        "found": problem.found,
        "hint": problem.hint,
        "message": problem.message(),
    }


# -- folders ---------------------------------------------------------------------------------------------------

_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


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


def _check_folder(path: Path, console: Console, *, as_json: bool) -> bool:
    """Print what is wrong with a folder, and what it contains; say whether it can be used."""
    folder = review_manifest_dir(path)
    if as_json:
        print_line(console, msgspec.json.encode(_folder_as_json(folder)).decode())
    else:
        for found, line in zip(folder.findings, folder.lines(), strict=False):
            print_line(console, line, style=_STYLES[found.severity])
        for line in folder.lines()[len(folder.findings) :]:
            print_line(console, line)
        _print_folder_summary(folder, console)
    return folder.loaded is not None


def _print_folder_summary(folder: ManifestDir, console: Console) -> None:
    if folder.loaded is None:
        return
    has = summarize_folder(folder.loaded)
    warnings = sum(found.severity is Severity.WARNING for found in folder.findings)
    fine = f"fine, with {count_text(warnings, 'warning')}" if warnings else "fine"
    print_line(console, f"{folder.path}: {fine}", style="green")
    print_line(console, f"  machines  {count_text(has.nodes, 'node')}, {count_text(has.gpus, 'GPU')}")
    print_line(
        console,
        f"  shares    {count_text(has.queues, 'queue')}, {count_text(has.cohorts, 'cohort')}, "
        f"{count_text(has.flavors, 'flavor')}, {count_text(has.entrances, 'local queue')}",
    )
    print_line(console, f"  work      {count_text(has.workloads, 'workload')}, {count_text(has.pods, 'pod')}")


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


def _folder_as_json(folder: ManifestDir) -> dict[str, Any]:
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
