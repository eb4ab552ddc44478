"""The preflight as text: verdict, four questions, demand curve, seven inputs, findings, waste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tidegate.config.prices import GpuPrices
from tidegate.demand.chart_data import week_curve
from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.four_questions import QuestionAnswer, Verdict
from tidegate.demand.model import DemandModel, Ground
from tidegate.demand.sentences import QUESTIONS, clock_text, verdict_text
from tidegate.measure.format import time_text
from tidegate.planning.preflight import Preflight, Replayed
from tidegate.planning.tolerance import late_weight
from tidegate.report.output_files import print_page
from tidegate.report.sparkline import demand_curve, sparkline
from tidegate.report.text.plan import GRADES, AverageDemand
from tidegate.report.text.preflight_sentences import answer_sentence, finding_text, lift_text, short_answer, waste_lines
from tidegate.report.text.seven_inputs import input_rows
from tidegate.sources.read_sources import SourceTables

_MOST_FINDINGS = 6
_TABLES = {"use": "samples of use", "capacity": "counts of capacity"}
_VERDICTS = {Verdict.READY: "green", Verdict.USABLE: "yellow", Verdict.PREMATURE: "red"}


def render_preflight(
    preflight: Preflight, seen: AverageDemand | None, prices: GpuPrices | None, console: Console
) -> None:
    """Print the preflight."""
    model = preflight.model
    parts: list[RenderableType] = [title(model), Text(), _verdict(preflight), Text()]
    parts += [_question(one, preflight) for one in preflight.answers]
    curves = _curves(preflight, seen, console.width)
    parts += [*([Text(), *curves] if curves else []), Text(), _inputs(model)]
    wasted = waste_lines(preflight, prices)
    if wasted:
        parts += [Text(), Text("What is wasted", "bold"), *_bullets(wasted)]
    if preflight.findings:
        told = [finding_text(one) for one in preflight.findings[:_MOST_FINDINGS]]
        more = len(preflight.findings) - len(told)
        told += [f"… and {more} more (--json has all)"] if more else []
        parts += [Text(), Text("Findings", "bold"), *_bullets(told)]
    print_page(Stack(*parts), console)


def title(model: DemandModel) -> Text:
    """What was read, and how much of it."""
    return Text.assemble(("Tidegate preflight", "bold cyan"), ("  " + "  ·  ".join(read_parts(model.grounds)), "dim"))


def read_parts(grounds: Sequence[Ground]) -> list[str]:
    """Each table, its rows and its length."""
    names = {origin.name.rsplit("/", 1)[-1]: None for ground in grounds for origin in ground.origins}
    listed = ", ".join(list(names)[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    tables = [
        f"{ground.rows:,} {_TABLES.get(ground.table, ground.table)} in {time_text(ground.end_ms - ground.start_ms)}"
        for ground in grounds
    ]
    return [listed, *tables] if listed else tables


def _verdict(preflight: Preflight) -> Text:
    style = f"bold {_VERDICTS[preflight.verdict]}"
    return Text(verdict_text(preflight.verdict, preflight.answers), style)


def _question(one: QuestionAnswer, preflight: Preflight) -> RenderableType:
    head = Text.assemble(
        (f"{one.grade:<9}", GRADES.get(one.grade, "")),
        (QUESTIONS[one.question], "bold"),
        "  ",
        (short_answer(one, preflight), f"bold {GRADES.get(one.grade, '')}"),
    )
    body = [Text(answer_sentence(one, preflight))]
    lift = lift_text(one)
    body += [Text(f"lifted by {lift}", "dim")] if lift else []
    return Stack(head, Padding(Stack(*body), (0, 0, 0, 9)))


def _curves(preflight: Preflight, seen: AverageDemand | None, width: int) -> list[RenderableType]:
    """The demand over time where jobs tell it, and the usual week."""
    found: list[RenderableType] = []
    total = preflight.model.total()
    if seen is not None and preflight.replayed is not None:
        name = "at least" if preflight.replayed.at_least else "floor"
        levels = [(name, float(preflight.replayed.floor.gpus))]
        levels += [("p95", total.wanted.p95.value)] if total and total.wanted else []
        found += [demand_curve(seen.at_ms, seen.gpus, levels, width), Text()]
    if total is not None and (total.wanted or total.seen):
        levels_ = total.wanted or total.seen
        assert levels_ is not None
        found += week_line("GPUs", levels_, width)
    for one in preflight.model.services[:1]:
        found += week_line("requests/s", one.rate, width)
    return [*found, Text(clock_text(preflight.model.calendar), "dim")] if found else found


def week_line(what: str, levels: Levels, width: int) -> list[Text]:
    """The usual week in blocks; nothing where it was not kept."""
    curve = week_curve(levels)
    if curve is None:
        return []
    cells = max(min(width - 34, 84), 14)
    means = np.array(curve.mean)
    parts = np.array([part.mean() for part in np.array_split(means, cells)])
    line = sparkline(parts, float(parts.max(initial=0.0)))
    reach = (f"  {means.min():,.3g} to {means.max():,.3g} {what}", "dim")
    return [Text.assemble(f"{'usual week':<11}", (line, "cyan"), reach)]


def _inputs(model: DemandModel) -> Table:
    table = Table(title="Seven inputs", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.header_style = "dim"
    for name in ("input", "", "value (90 % interval)", "samples", "from"):
        table.add_column(name, justify="right" if name == "samples" else "left")
    before = ""
    for row in input_rows(model):
        table.add_row(row.input if row.input != before else "", row.name, row.text, row.samples, row.table)
        before = row.input
    return table


def _bullets(lines: list[str]) -> list[RenderableType]:
    return [Padding(Text(line), (0, 0, 0, 2)) for line in lines]


# -- plain data ----------------------------------------------------------------------------------------------

FORMAT = "tidegate.preflight/3"


def as_json(found: Preflight, gathered: SourceTables, prices: GpuPrices | None) -> dict[str, Any]:
    """The preflight as plain data."""
    return {
        "format": FORMAT,
        "verdict": found.verdict,
        "says": verdict_text(found.verdict, found.answers),
        "answers": [
            {
                "question": one.question,
                "grade": one.grade,
                "answer": short_answer(one, found),
                "says": answer_sentence(one, found),
                "lifted_by": lift_text(one),
                "lacks": one.lacks,
                "numbers": dict(one.numbers),
            }
            for one in found.answers
        ],
        "floor": _floor_data(found.replayed),
        "findings": [
            {"code": one.code, "about": one.about, "says": finding_text(one), "gpu_hours": one.gpu_hours}
            for one in found.findings
        ],
        "waste": {"says": waste_lines(found, prices), "leaks": found.waste},
        "sources": {
            "origins": [msgspec.structs.asdict(origin) for origin in gathered.tables.origins],
            "findings": [finding.text() for finding in gathered.findings],
            "left_out_of_replay": dict(found.jobs.left_out),
            "drawn_for_replay": dict(found.jobs.drawn),
        },
        "model": found.model,
    }


def _floor_data(found: Replayed | None) -> dict[str, Any] | None:
    if found is None:
        return None
    floor = found.floor
    waits = floor.outcome.waits(found.tolerance)
    return {
        "gpus": None if found.at_least else floor.gpus,
        "at_least_gpus": floor.gpus if found.at_least else None,
        "low": floor.low_gpus,
        "high": floor.high_gpus,
        "blocks": floor.blocks,
        "block_ms": floor.block_ms,
        "no_interval": floor.none,
        "replays": floor.replays,
        "jobs": found.jobs,
        "of_jobs": found.of_jobs,
        "tolerance_ms": found.tolerance_ms,
        "tolerance_known": found.tolerance_known,
        "interactive_ms": found.tolerance.interactive_ms,
        "interactive_known": found.interactive_known,
        "declared_jobs": found.declared,
        "p95_wait_ms": floor.outcome.wait_at(950),
        "late_gpu_hours": round(late_weight(waits), 6),
        "sizes": [each._asdict() | {"counts": each.counts} for each in waits.by_size()],
        "patience": [each._asdict() | {"counts": each.counts} for each in waits.by_patience()],
        "one_less": _less_data(found),
        "peak_gpus": found.peak_gpus,
        "peak_gpu_hours": round(found.peak_gpu_h, 3),
        "floor_gpu_hours": round(found.floor_gpu_h, 3),
        "used_gpu_hours": round(found.used_gpu_h, 3),
    }


def _less_data(found: Replayed) -> dict[str, Any] | None:
    """What waits are with one GPU less than the floor; None: the widest job does not fit."""
    below = found.floor.below
    if below is None:
        return None
    waits = below.waits(found.tolerance)
    return {
        "gpus": found.floor.gpus - 1,
        "holds": below.holds(found.tolerance),
        "late": round(below.late(found.tolerance), 6),
        "late_gpu_hours": round(late_weight(waits), 6),
    }
