"""`tidegate check FILE…`: is a `tidegate.yaml` right, and what does it contain?

Must not know: how files are read, or what makes them right.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Console

from tidegate.model.build import build_policy
from tidegate.model.document import Document, WorkEntry
from tidegate.model.problem import Severity, path_text
from tidegate.model.units import HOUR_MS, WHOLE_MILLI, duration_text
from tidegate.sources.setupfile import FileProblem, Reviewed, review_file

#: What a command exits with when its input is wrong.
EXIT_BAD_INPUT = 2


class Summary(NamedTuple):
    """What a file contains."""

    pools: int
    nodes: int
    gpus: int
    gpu_models: dict[str, int]
    policy: str
    workloads: int
    pods: int
    gpu_hours: float  # of work, if nothing is ever interrupted


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files in the format of tidegate.yaml.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per file, each on a line.")] = False,
) -> None:
    """Say whether files are right, and what they contain."""
    raise typer.Exit(check_files(files, as_json=as_json, console=Console()))


def check_files(paths: list[Path], as_json: bool, console: Console) -> int:  # noqa: FBT001  the CLI's contract
    """Print what is wrong with each file, or what it contains; 0 if all can be used, 2 if not."""
    code = 0
    for path in paths:
        reviewed = review_file(path)
        if reviewed.document is None:
            code = EXIT_BAD_INPUT
        if as_json:
            _say(console, msgspec.json.encode(_as_json(reviewed)).decode())
        else:
            _print_problems(reviewed, console)
            _print_summary(reviewed, console)
    return code


def _print_problems(reviewed: Reviewed, console: Console) -> None:
    lines = reviewed.lines()
    for number, line in enumerate(lines):
        is_warning = number < len(reviewed.problems) and _severity(reviewed.problems[number]) is Severity.WARNING
        _say(console, line, style="yellow" if is_warning else "red")


def _severity(problem: FileProblem) -> Severity:
    return problem.problem.severity


def _print_summary(reviewed: Reviewed, console: Console) -> None:
    if reviewed.document is None:
        return
    summary = summarize(reviewed.document)
    models = ", ".join(f"{count:,} {name or 'unnamed'}" for name, count in sorted(summary.gpu_models.items()))
    _say(console, f"{reviewed.file}: fine", style="green")
    _say(
        console,
        f"  machines  {_count(summary.pools, 'pool')}, {_count(summary.nodes, 'node')}, "
        f"{_count(summary.gpus, 'GPU')}" + (f" ({models})" if models else ""),
    )
    _say(console, f"  policy    {summary.policy}")
    _say(
        console,
        f"  work      {_count(summary.workloads, 'workload')}, {_count(summary.pods, 'pod')}, "
        f"{summary.gpu_hours:,.1f} GPU-hours asked",
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: never wrapped, never taken for markup, and without what the terminal cannot show."""
    showable = text.encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.out(showable, style=style, highlight=False)


def summarize(document: Document) -> Summary:
    """Count what a document contains."""
    pools, policy = document.cluster.pools, build_policy(document.policy)
    models: Counter[str] = Counter()
    for pool in pools:
        models[pool.shape.gpu] += pool.count * pool.shape.gpus
    return Summary(
        pools=len(pools),
        nodes=sum(pool.count for pool in pools),
        gpus=models.total(),
        gpu_models={name: count for name, count in models.items() if count},
        policy=f"{policy.name}: {policy.order.kind} order, {policy.placement.kind} placement, "
        f"decides every {duration_text(policy.cycle_ms)}" + ("" if policy.waits else ", nothing waits"),
        workloads=sum(entry.copies for entry in document.work),
        pods=sum(entry.copies * sum(pods.count for pods in entry.pod_entries()) for entry in document.work),
        gpu_hours=sum(map(_gpu_milli_ms, document.work)) / (WHOLE_MILLI * HOUR_MS),
    )


def _gpu_milli_ms(entry: WorkEntry) -> int:
    return entry.copies * entry.runtime * sum(pods.count * pods.gpus for pods in entry.pod_entries())


def _as_json(reviewed: Reviewed) -> dict[str, Any]:
    return {
        "file": reviewed.file,
        "ok": reviewed.document is not None,
        "problems": [_problem_as_json(problem) for problem in reviewed.problems],
        "more_problems": reviewed.more,
        "summary": summarize(reviewed.document)._asdict() if reviewed.document else None,
    }


def _problem_as_json(located: FileProblem) -> dict[str, Any]:
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
