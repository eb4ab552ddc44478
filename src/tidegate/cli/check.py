"""`tidegate check FILE…|DIR…`: is a `tidegate.yaml`, or a folder of manifests, right, and what does it contain?

Must not know: how files are read, or what makes them right.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Console

from tidegate.cli.errors import EXIT_BAD_INPUT
from tidegate.cli.manifest_folder import check_folder, counted, holds_manifests, say
from tidegate.config.convert import build_policy
from tidegate.config.schema import ConfigDocument
from tidegate.config.schema_work import WorkEntry
from tidegate.model.problem import Severity, path_text
from tidegate.model.queues import Cohort, Queue, QueueSetup
from tidegate.model.units import HOUR_MS, WHOLE_MILLI, duration_text
from tidegate.report.output_files import open_console
from tidegate.sources.config_file import LocatedProblem, ReviewedConfig, review_file


class Summary(NamedTuple):
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


def check(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR", help="Files in the format of tidegate.yaml, or folders of manifests."),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per file, each on a line.")] = False,
) -> None:
    """Say whether files, and folders of Kubernetes manifests, are right, and what they contain.

    \b
    Examples:
      tidegate check tidegate.yaml
      tidegate check manifests/
      tidegate check teams/*.yaml --json
    """  # noqa: D301 - \b keeps the lines apart
    raise typer.Exit(check_files(files, as_json=as_json, console=open_console()))


def check_files(paths: list[Path], as_json: bool, console: Console) -> int:  # noqa: FBT001  the CLI's contract
    """Print what is wrong with each file, or what it contains; 0 if all can be used, 2 if not."""
    code = 0
    for path in paths:
        if holds_manifests(path):
            code = max(code, check_folder(path, console, as_json=as_json))
            continue
        reviewed = review_file(path)
        if reviewed.document is None:
            code = EXIT_BAD_INPUT
        if as_json:
            say(console, msgspec.json.encode(_as_json(reviewed)).decode())
        else:
            _print_problems(reviewed, console)
            _print_summary(reviewed, console)
    return code


def _print_problems(reviewed: ReviewedConfig, console: Console) -> None:
    lines = reviewed.lines()
    for number, line in enumerate(lines):
        is_warning = number < len(reviewed.problems) and _severity(reviewed.problems[number]) is Severity.WARNING
        say(console, line, style="yellow" if is_warning else "red")


def _severity(problem: LocatedProblem) -> Severity:
    return problem.problem.severity


def _print_summary(reviewed: ReviewedConfig, console: Console) -> None:
    if reviewed.document is None:
        return
    summary = summarize(reviewed.document)
    models = ", ".join(f"{count:,} {name or 'unnamed'}" for name, count in sorted(summary.gpu_models.items()))
    say(console, f"{reviewed.file}: fine", style="green")
    say(
        console,
        f"  machines  {counted(summary.pools, 'pool')}, {counted(summary.nodes, 'node')}, "
        f"{counted(summary.gpus, 'GPU')}" + (f" ({models})" if models else ""),
    )
    say(console, f"  policy    {summary.policy}")
    if summary.queues:
        cohorts = f" in {counted(summary.cohorts, 'cohort')}" if summary.cohorts else ""
        say(console, f"  shares    {counted(summary.queues, 'queue')}{cohorts}, {summary.quota_gpus:,g} GPUs of quota")
    say(
        console,
        f"  work      {counted(summary.workloads, 'workload')}, {counted(summary.pods, 'pod')}, "
        f"{summary.gpu_hours:,.1f} GPU-hours asked",
    )


def summarize(document: ConfigDocument) -> Summary:
    """Count what a document contains."""
    pools, policy = document.cluster.pools, build_policy(document.policy)
    shares, models = policy.shares, Counter[str]()
    for pool in pools:
        models[pool.shape.gpu] += pool.count * pool.shape.gpus
    named = {queue.cohort for queue in shares.queues} | {cohort.name for cohort in shares.cohorts}
    return Summary(
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
