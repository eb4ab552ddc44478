"""The comparison of policies on one trace: measures as ratios to the first policy, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.measure.format import count_text, time_text
from tidegate.measure.matched_jobs import cut_completions, cut_waits, finished_by, match
from tidegate.measure.summary import RunSummary
from tidegate.model.struct import Spec
from tidegate.report.compare_measure import (
    Certainty,
    ComparedMeasure,
    MeasureOutcome,
    interval_cell,
    outcome_cell,
    outcomes_of,
    outcomes_of_cut,
)
from tidegate.report.compare_queues import LEGEND, PolicyRuns, QueueRows, compare_queues, queue_table
from tidegate.stats.interval import CONFIDENCE

#: Findings of each policy that are listed.
_MOST_FINDINGS = 3

#: Columns for the names of measures, and for each policy.
_FIRST, _EACH = 18, 20


class PolicyComparison(Spec, frozen=True):
    """Policies side by side."""

    policies: tuple[str, ...]
    workloads: int
    seeds: int  # runs of each policy; values are means over them
    measures: tuple[ComparedMeasure, ...]
    queues: tuple[QueueRows, ...] = ()  # where any policy has queues with quota
    findings: tuple[tuple[str, ...], ...] = ()  # what stands out, by policy
    finished: int = 0  # workloads that finished in every run: those that JCT is of
    finished_more: tuple[int, ...] = ()  # workloads that finished as well, by policy; none: the same under all

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


_Value = Callable[[RunSummary], float | None]

#: Of the same work under every policy: name, and where it stands in a spread.
_WAITS = (
    ("mean wait", "mean_ms"),
    ("p50 wait", "p50_ms"),
    ("p95 wait", "p95_ms"),
    ("p99 wait", "p99_ms"),
    ("max wait", "max_ms"),
)

#: Name, unit, whether lower is better, and where it stands in a summary.
_MEASURES: tuple[tuple[str, str, bool, _Value], ...] = (
    ("allocation", "share", False, lambda summary: summary.allocation_share),
    ("busy share", "share", False, lambda summary: summary.total.busy_share),
    ("fragmentation", "share", True, lambda summary: summary.fragmented_share),
    ("fairness", "index", False, lambda summary: summary.fairness),
    ("evictions", "count", True, lambda summary: summary.total.evictions),
    ("not finished", "count", True, lambda summary: summary.total.workloads - summary.total.finished),
)


#: The same, where there are queues with quota.
_QUOTA_MEASURES: tuple[tuple[str, str, bool, _Value], ...] = (
    ("due", "share", False, lambda summary: summary.due_share()),
    ("fairness of due", "index", False, lambda summary: summary.due_fairness()),
    ("fairness of use", "index", False, lambda summary: summary.use_fairness()),
    ("borrowed", "GPU-h", False, lambda summary: sum(share.borrowed_gpu_h for share in summary.shares)),
    ("preemptions", "count", True, lambda summary: summary.total.preemptions),
    ("lost", "GPU-h", True, lambda summary: sum(share.preempted_lost_gpu_h for share in summary.shares)),
)


# -- comparing -------------------------------------------------------------------------------------------------


def compare(policies: Sequence[PolicyRuns], findings: Sequence[tuple[str, ...]] = ()) -> PolicyComparison:
    """Compare policies with the first of them; workloads are matched by their ids."""
    matched = match([runs.lives for runs in policies])
    waited, taken = cut_waits(matched), cut_completions(matched)
    with_quota = any(summary.shares for runs in policies for summary in runs.summaries)
    finished, more = finished_by(matched)
    return PolicyComparison(
        policies=tuple(runs.name for runs in policies),
        workloads=len(policies[0].lives[0].number),
        seeds=len(policies[0].lives),
        measures=(
            *(ComparedMeasure(name, "ms", True, outcomes_of_cut(waited, field)) for name, field in _WAITS),
            ComparedMeasure("mean JCT", "ms", True, outcomes_of_cut(taken, "mean_ms")),
            ComparedMeasure("makespan", "ms", True, _makespans(policies)),
            *(
                ComparedMeasure(
                    name, unit, lower, outcomes_of([tuple(map(value, runs.summaries)) for runs in policies])
                )
                for name, unit, lower, value in (*_MEASURES, *(_QUOTA_MEASURES if with_quota else ()))
            ),
        ),
        queues=compare_queues(policies, matched) if with_quota else (),
        findings=tuple(findings),
        finished=finished,
        finished_more=more if any(more) else (),
    )


def _makespans(policies: Sequence[PolicyRuns]) -> tuple[MeasureOutcome, ...]:
    """From the first submission to the last end; at least, where some work was not over at the end of a run."""
    values = [tuple(summary.makespan_ms for summary in runs.summaries) for runs in policies]
    return outcomes_of(values, at_least=[any(one.total.censored for one in runs.summaries) for runs in policies])


# -- showing ---------------------------------------------------------------------------------------------------


def render_comparison(comparison: PolicyComparison, console: Console) -> None:
    """Print a table, or several if there are more policies than fit next to each other."""
    others = range(1, len(comparison.policies))
    fit = max((console.width - _FIRST) // _EACH - 1, 1)
    console.print(Text.assemble((count_text(comparison.workloads, "workload"), "bold"), " under each policy\n"))
    for begin in others[::fit] or (1,):
        shown = [0, *others[begin - 1 : begin - 1 + fit]]
        shown = [at for at in shown if at < len(comparison.policies)]
        console.print(_table(comparison, shown))
        console.print()
    if comparison.queues:
        console.print(queue_table(comparison.policies, comparison.queues))
        console.print()
    if lines := _findings(comparison):
        console.print(lines)
        console.print()
    console.print(Text(_footnote(comparison), "dim"))


def _findings(comparison: PolicyComparison) -> Table | None:
    """What stands out under which policies, that of all of them first."""
    under: dict[str, list[str]] = {}
    for name, texts in zip(comparison.policies, comparison.findings, strict=False):
        for text in texts[:_MOST_FINDINGS]:
            under.setdefault(text, []).append(name)
    table = Table.grid(padding=(0, 1, 0, 0))
    for text, names in sorted(under.items(), key=lambda item: -len(item[1])):
        whose = "" if len(names) == len(comparison.policies) else f"{', '.join(names)}: "
        table.add_row(Text("•", "cyan"), Text.assemble((whose, "bold"), text))
    return table if under else None


def _footnote(comparison: PolicyComparison) -> str:
    if len(comparison.policies) < 2:
        return "One policy alone: name another to compare it with."
    due = f" {LEGEND}" if comparison.queues else ""
    seeds = f" Means over {comparison.seeds} seeds." if comparison.seeds > 1 else ""
    return (
        f"x: ratio to {comparison.policies[0]}; below it the {100 * CONFIDENCE:.0f} % interval of the ratio"
        f"{_blocks(comparison)}. *: the interval excludes 1. Where there is none, a difference may be chance."
        f"{seeds}{_this_work(comparison)}{_open(comparison)}{_finished(comparison)}{due}"
    )


def _finished(comparison: PolicyComparison) -> str:
    """What JCT is of, where some work finished under some policies only."""
    if not comparison.finished_more:
        return ""
    pairs = zip(comparison.policies, comparison.finished_more, strict=True)
    more = ", ".join(f"{count:,} under {name}" for name, count in pairs if count)
    return f" JCT is of the {count_text(comparison.finished, 'workload')} that finished in every run; more did: {more}."


def _open(comparison: PolicyComparison) -> str:
    outcomes = [one for measure in comparison.measures for one in measure.outcomes]
    if all(one.value_is is Certainty.EXACTLY for one in outcomes):
        return ""
    return (
        " ≥: at least, as work is not over at the end; waits count until the same time under every policy, "
        "and their ratio is at least (≥), at most (≤) or so far (~)."
    )


def _this_work(comparison: PolicyComparison) -> str:
    found = [one.interval for measure in comparison.measures for one in measure.outcomes]
    if not any(interval is not None and interval.this_work for interval in found):
        return ""
    return " s: of this work alone, from the spread between seeds; other work like it may differ by more."


def _blocks(comparison: PolicyComparison) -> str:
    """How long the blocks of time are that intervals come from."""
    found = [one.interval for measure in comparison.measures for one in measure.outcomes if one.interval]
    lengths = [interval.block_ms for interval in found if interval.blocks]
    if not lengths:
        return ""
    shortest, longest = time_text(min(lengths)), time_text(max(lengths))
    return f", from blocks of {shortest if shortest == longest else f'{shortest} to {longest}'}"


def _table(comparison: PolicyComparison, shown: list[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True, min_width=13)
    for at in shown:
        table.add_column(Text(comparison.policies[at]), justify="right", no_wrap=True, overflow="ellipsis")
    for measure in comparison.measures:
        outcomes = [measure.outcomes[at] for at in shown]
        table.add_row(measure.name, *(outcome_cell(measure, outcome) for outcome in outcomes))
        if any(outcome.interval for outcome in outcomes):
            table.add_row("", *(interval_cell(outcome.interval) for outcome in outcomes))
    return table
