"""`tidegate explain JOB`: what became of a workload, why, and what would change it.

Must not know: how answers are found or worded.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tidegate.cli.errors import CannotRun, told_plainly
from tidegate.cli.runs import last_run_path, read_duration_ms
from tidegate.journal.refusal import why_not
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile, Step
from tidegate.journal.story import Cast, Story, read_cast, tell_story
from tidegate.journal.words import Answer, explain, lack_text, time_text


def explain_job(
    job: Annotated[str, typer.Argument(help="Id of the workload.")],
    *,
    journal: Annotated[Path | None, typer.Option(help="Journal to read; the latest run's if not named.")] = None,
    node: Annotated[str | None, typer.Option(help="Say why this node does not take it.")] = None,
    at: Annotated[str | None, typer.Option(help='As it was then: a time since the start, such as "2d3h".')] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what became of a job, why, and what would change it.

    Example: tidegate explain train-017 --node h100-03
    """
    with told_plainly():
        file = JournalFile.open(journal or last_run_path())
        steps = _until(list(file.steps()), at)
        cast = read_cast(steps)
        story = tell_story(steps, _number(job, cast.workloads, "job"))
        assert story is not None
        answer = explain(story, cast)
        lacks = _lacks(steps, story, cast, node) if node else ()
    if as_json:
        typer.echo(msgspec.json.encode({"job": job, **answer._asdict(), "node": node, "lacks": lacks}).decode())
    else:
        show(answer, lacks, Console())


def _until(steps: list[Step], at: str | None) -> list[Step]:
    if at is None:
        return steps
    until_ms = read_duration_ms("--at", at)
    kept = [step for step in steps if step.now_ms <= until_ms]
    if not kept:
        raise CannotRun(
            f"--at {at}: the journal begins at {time_text(steps[0].now_ms) if steps else 'no time: it is empty'}"
        )
    return kept


def _number(name: str, names: dict[int, str], what: str) -> int:
    for number, known in names.items():
        if known == name:
            return number
    close = difflib.get_close_matches(name, names.values(), 3, 0.5)
    hint = (
        f"did you mean {', '.join(close)}?"
        if close
        else f"it has {len(names):,} {what}s, for example " + ", ".join(sorted(names.values())[:3])
    )
    raise CannotRun(f"no {what} {name!r} in this journal; {hint}")


def _lacks(steps: list[Step], story: Story, cast: Cast, node: str) -> tuple[str, ...]:
    number = _number(node, {n: known.name for n, known in cast.nodes.items()}, "node")
    state = replay(steps).state
    if state.workload_numbers.row(story.number) < 0:
        raise CannotRun(f"{story.id} is over: name a time when it was not, with --at")
    return tuple(lack_text(lack, node) for lack in why_not(state, story.number, number))


def show(answer: Answer, lacks: tuple[str, ...], console: Console) -> None:
    """Print an answer."""
    console.print(Text(answer.headline, style="bold"))
    for sentence in (*answer.because, *lacks):
        console.print(Text(sentence))
    if answer.lift:
        console.print(Text(answer.lift, style="green"))
