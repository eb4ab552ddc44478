"""`tidegate explain JOB`: what became of a workload, why, and what would change it.

Must not know: how answers are found or worded.
"""

from __future__ import annotations

import difflib
import json
import sqlite3
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from tidegate.cli.errors import CannotRun, told_plainly
from tidegate.cli.outputs import open_console
from tidegate.cli.runs import last_run_path, read_duration_ms
from tidegate.journal.refusal import why_not
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalError, JournalFile, Step
from tidegate.journal.story import Cast, Story, read_cast, tell_story
from tidegate.journal.words import Answer, explain, lack_text, time_text


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of workloads that begin like this, for the shell; none where there is no journal to look into."""
    try:
        names = read_cast(_read_steps(context.params.get("journal"))).workloads.values()
    except (CannotRun, JournalError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def explain_job(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the workload.", autocompletion=complete_job)],
    *,
    journal: Annotated[Path | None, typer.Option(help="Journal to read; the latest run's if not named.")] = None,
    node: Annotated[str | None, typer.Option(help="Say why this node does not take it.")] = None,
    at: Annotated[str | None, typer.Option(help='As it was then: a time since the start, such as "2d3h".')] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what became of a job, why, and what would change it.

    \b
    Examples:
      tidegate explain train-017
      tidegate explain train-017 --at 1d2h --node h100-03
    """  # noqa: D301 - \b keeps the lines apart
    with told_plainly():
        everything = _read_steps(journal)
        number = _number(job, read_cast(everything).workloads, "job")
        steps = _until(everything, at)
        cast = read_cast(steps)
        story = tell_story(steps, number)
        if story is None:
            raise CannotRun(f"--at {at}: {job} was not submitted yet; name a later time")
        answer = explain(story, cast)
        lacks = _lacks(steps, story, cast, node) if node else ()
    if as_json:
        typer.echo(json.dumps({"job": job, **answer._asdict(), "node": node, "lacks": lacks}))
    else:
        show(answer, lacks, open_console())


def _read_steps(journal: Path | None) -> list[Step]:
    """Every step of a journal, or of the latest run."""
    path = journal or last_run_path()
    if journal is None and not path.is_file():
        raise CannotRun("there is no run to explain yet; run `tidegate simulate` first, or name a journal (--journal)")
    file = JournalFile.open(path)
    try:
        return list(file.steps())
    except (sqlite3.Error, msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:  # damaged bytes
        raise CannotRun(f"{path}: damaged, a step cannot be read ({error}); run it again into a new journal") from None
    finally:
        file.close()


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
