"""`tidegate explain JOB`: what became of a workload, why, and what would change it.

Must not know: how answers are found or worded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.progress import BarColumn, Progress, TextColumn

from tidegate.cli.errors import CannotRun, told_plainly
from tidegate.cli.journal_options import (
    AtOption,
    JournalOption,
    catch_up,
    damage_told,
    follow,
    kernels_for,
    known,
    opened,
    until_of,
)
from tidegate.cli.kube_options import (
    ClusterOption,
    ContextOption,
    KubeconfigOption,
    Look,
    LookPolicyOption,
    opened_or_looked,
)
from tidegate.cli.shared_options import JsonOption, KernelsOption
from tidegate.cli.simulate_runner import Kernels
from tidegate.journal.decision_text import explain, lack_text, proposal_text
from tidegate.journal.history import Cast, Moment, Story, as_watched, date_story, tell_story
from tidegate.journal.phases import Doing, cut_spells
from tidegate.journal.queue_position import date_holders, find_room, find_wants, stand_in_line
from tidegate.journal.reader import find_ids, find_number, glance
from tidegate.journal.store import JournalError, JournalFile
from tidegate.journal.why_not import why_not
from tidegate.journal.workload_ids import ids_meant
from tidegate.measure.loops import loop_text, loops_in
from tidegate.model.decisions import DecisionKind
from tidegate.report.explain import Asked, Explanation, as_json, show
from tidegate.report.output_files import open_console
from tidegate.state.cluster import ClusterState
from tidegate.whatif.change_syntax import FORMS, read_change
from tidegate.whatif.changes import Change, Impossible
from tidegate.whatif.effect import find_outcome
from tidegate.whatif.search import BUDGET, find_remedies

if TYPE_CHECKING:
    from tidegate.kube.transport.connection import Connection
    from tidegate.live.cluster_snapshot import ClusterSnapshot
    from tidegate.live.object_times import ObjectTimes

#: Workloads that a short form may mean that are named.
_MOST_MEANT = 6


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of workloads that begin like this, for the shell; none where there is no journal to look into."""
    try:
        with opened(context.params.get("journal"), "explain") as file, damage_told(file):
            return sorted(name for name in find_ids(file).values() if name.startswith(incomplete))
    except (CannotRun, JournalError):
        return []


def explain_job(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Id of the workload, or its name where that means one.", autocompletion=complete_job
        ),
    ],
    *,
    journal: JournalOption = None,
    cluster: ClusterOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    policy: LookPolicyOption = None,
    at: AtOption = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            metavar="CHANGE",
            help=f"Say what would happen then; may be repeated. {', '.join(FORMS.values())}.",
            show_default=False,
        ),
    ] = None,
    node: Annotated[str | None, typer.Option(help="Say why this node does not take it.")] = None,
    changes: Annotated[
        bool, typer.Option("--changes/--no-changes", help="Look for the smallest changes that would start it now.")
    ] = True,
    trials: Annotated[
        int, typer.Option(help="What looking for changes may cost, in queue heads tried.", min=1)
    ] = BUDGET,
    kernels: KernelsOption = Kernels.AUTO,
    as_json_: JsonOption = False,
) -> None:
    """Say what became of a job, why, and what would change it.

    For a job that waits: what blocks it, its place in the queue, who holds what it waits for, and the smallest change
    of each kind that would start it now, found by trying on a copy of the cluster's state.

    \b
    Examples:
      tidegate explain train-017
      tidegate explain train-017 --at 1d2h --node h100-03
      tidegate explain train-017 --at 1d2h --if quota:research+8 --if priority:+10
      tidegate explain team-a/job.batch/train-017 --context prod
    """  # noqa: D301 - \b keeps the lines apart
    look = Look(cluster, context, kubeconfig, policy)
    with told_plainly(), opened_or_looked(journal, "explain", look) as (file, snapshot, access):
        told, bound_ms = _dated(_read(file, job, at), access, snapshot)
        follower = follow(file, told.until_ms) if what_if or node or _waits(told.story) else None
        if follower is None:
            explanation = Explanation(told.story.id, explain(told.story, told.cast))
        else:
            with kernels_for(follower, kernels):
                told = told._replace(state=catch_up(file, follower))
                date_holders(follower.state, bound_ms)
                asked = tuple(_read_ifs(told, what_if or []))
                explanation = _explain(told, asked, trials if changes and not asked else 0)
            if node:
                explanation = explanation._replace(node=node, lacks=_lacks(told, node))
        explanation = _with_loops(_with_proposal(explanation, told), told.story, file)
    if as_json_:
        typer.echo(json.dumps(as_json(explanation)))
    else:
        show(explanation, open_console())


def _dated(told: _Told, access: Connection | None, snapshot: ClusterSnapshot | None) -> tuple[_Told, Mapping[int, int]]:
    """What a look tells, dated by objects, and since when each workload runs; a journal has its own times."""
    if access is None or snapshot is None:
        return told, {}
    times, bound = _times(access, snapshot, told.story.number)
    return told._replace(story=date_story(told.story, times.waiting_ms, bound.get(told.story.number, 0))), bound


def _times(access: Connection, snapshot: ClusterSnapshot, job: int) -> tuple[ObjectTimes, dict[int, int]]:
    """Since when a workload waits, and since when each runs, by their numbers, as objects tell it."""
    from tidegate.kube.transport.client import Client
    from tidegate.live.object_times import read_times

    async def read() -> ObjectTimes:
        async with Client(access, connections=2) as client:
            return await read_times(client, snapshot.objects.get(job))

    times = asyncio.run(read())
    bound: dict[int, int] = {}
    for uid, at_ms in times.bound_ms.items():
        if uid in snapshot.pods:
            bound[snapshot.pods[uid]] = max(at_ms, bound.get(snapshot.pods[uid], 0))
    return times, bound


class _Told(NamedTuple):
    """What a journal tells of a workload."""

    story: Story
    cast: Cast
    until_ms: int | None  # None: to its end
    state: ClusterState | None = None  # None: it does not wait, and nobody asked
    proposed: Moment | None = None  # of who only watched: what it would do now


def _read(file: JournalFile, job: str, at: str | None) -> _Told:
    with damage_told(file):
        until_ms = until_of(file, at)
        number = find_number(file, job, until_ms)
        if number is None:
            number = _by_short_form(file, job, until_ms)
        glanced = glance(file, number, until_ms)
        story = tell_story(glanced.steps, number)
    if story is None:
        raise CannotRun(f"--at {at}: {job} was not submitted yet; name a later time")
    story, proposed = as_watched(story) if file.is_shadow else (story, None)
    return _Told(story._replace(until_ms=glanced.until_ms), glanced.cast, until_ms, proposed=proposed)


def _by_short_form(file: JournalFile, job: str, until_ms: int | None) -> int:
    """The workload that this is short for, if it means one only."""
    ids = find_ids(file)
    meant = ids_meant(job, ids.values())
    if len(meant) > 1:
        raise CannotRun(f"{job} may be {', '.join(meant[:_MOST_MEANT])}; name one of them")
    number = find_number(file, meant[0] if meant else known(job, ids.values(), "job"), until_ms)
    assert number is not None
    return number


def _with_proposal(explanation: Explanation, told: _Told) -> Explanation:
    if told.proposed is None:
        return explanation
    answer = explanation.answer
    because = (*answer.because, proposal_text(told.proposed, told.cast))
    return explanation._replace(answer=answer._replace(because=because))


def _with_loops(explanation: Explanation, story: Story, file: JournalFile) -> Explanation:
    """Say it if the workload is part of a preemption loop; looked for only where it was preempted or preempts again."""
    preempted = sum(moment.decision is DecisionKind.PREEMPT for moment in story.moments)
    if preempted < 2 and len(story.victims) < 2:
        return explanation
    with damage_told(file):
        loops = loops_in(step for step in file.steps() if step.now_ms <= story.until_ms)
    mine = [loop for loop in loops if any(story.id in (pair.cause, pair.victim) for pair in loop.pairs)]
    answer = explanation.answer
    because = (*answer.because, *map(loop_text, mine))
    return explanation._replace(answer=answer._replace(because=because))


def _waits(story: Story) -> bool:
    """Whether a workload waits at the end of its story: for quota, or with quota for a place."""
    last = cut_spells(story)[-1]
    held = last.cause is not None and last.cause.decision is DecisionKind.HOLD
    return last.doing is Doing.WAITING or (last.doing is Doing.ADMITTED and held)


def _read_ifs(told: _Told, texts: list[str]) -> Iterator[Change]:
    if texts and (told.state is None or not _waits(told.story)):
        raise CannotRun(f"--if: {told.story.id} does not wait; name a time when it did, with --at")
    for text in texts:
        assert told.state is not None
        try:
            yield read_change(text, told.state, told.story.number)
        except Impossible as error:
            raise CannotRun(f"--if {text}: {error}") from None


def _explain(told: _Told, asked: tuple[Change, ...], trials: int) -> Explanation:
    answer, state, number = explain(told.story, told.cast), told.state, told.story.number
    if state is None or not _waits(told.story):
        return Explanation(told.story.id, answer)
    found = Explanation(
        told.story.id,
        answer,
        number=number,
        state=state,
        line=stand_in_line(state, number),
        wants=tuple(want for want in find_wants(state, number) if want.missing),
    )
    if not found.wants:
        found = found._replace(room=find_room(state, number))
    if asked:
        return found._replace(asked=Asked(asked, find_outcome(state, number, asked)))
    if not trials:
        return found
    with _bar(trials) as watch:
        findings = find_remedies(state, number, trials, watch)
    outcomes = tuple(find_outcome(state, number, remedy.changes) for remedy in findings.remedies)
    return found._replace(findings=findings, outcomes=outcomes)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A bar that shows how much of a search is spent."""
    console = open_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("trying changes", total=total)
        yield lambda spent: bar.update(task, completed=spent)


def _lacks(told: _Told, node: str) -> tuple[str, ...]:
    numbers = {spec.name: number for number, spec in told.cast.nodes.items()}
    number = numbers[known(node, numbers, "node")]
    assert told.state is not None
    if told.state.workload_numbers.row(told.story.number) < 0:
        raise CannotRun(f"{told.story.id} is over: name a time when it was not, with --at")
    return tuple(lack_text(lack, node) for lack in why_not(told.state, told.story.number, number))
