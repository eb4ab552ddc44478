"""`tidegate explain JOB`: why a job waits or what became of it, and what would change that."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.api.explanation import JobQuestion, explain_history, history_at
from tidegate.api.journal_state import damage_reported
from tidegate.api.kernels import Kernels
from tidegate.cli.errors import CommandError, user_errors_reported
from tidegate.cli.journal_options import AtOption, JournalOption, opened
from tidegate.cli.kube_options import (
    ClusterOption,
    ContextOption,
    KubeconfigOption,
    Look,
    Opened,
    opened_or_looked,
)
from tidegate.cli.progress import progress_bar
from tidegate.cli.scenario import GpusOption, NodesOption, ScenarioOptions, read_setup
from tidegate.cli.shared_options import JsonOption, KernelsOption, SeedOption
from tidegate.cli.source_options import reads_sources
from tidegate.journal.history import with_object_times
from tidegate.journal.reader import find_ids
from tidegate.journal.store import JournalFile
from tidegate.model.errors import UserError
from tidegate.report.explain import as_json, show
from tidegate.report.output_files import open_console
from tidegate.sources.options import SourceOptions
from tidegate.whatif.change_syntax import FORMS
from tidegate.whatif.explain import Explanation, JobHistory
from tidegate.whatif.search import BUDGET

if TYPE_CHECKING:
    from tidegate.kube.transport.connection import Connection
    from tidegate.live.cluster_snapshot import ClusterSnapshot
    from tidegate.live.object_times import ObjectTimes


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of workloads that begin like this, for the shell; none without a journal to read."""
    try:
        with opened(context.params.get("journal"), "explain") as file, damage_reported(file):
            return sorted(name for name in find_ids(file).values() if name.startswith(incomplete))
    except UserError:
        return []


@reads_sources
def explain_job(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Id of the job, or its name if only one job has it.", autocompletion=complete_job
        ),
    ],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Run these jobs in the twin first, as `tidegate simulate` does. Default: the latest run.",
            show_default=False,
        ),
    ] = None,
    *,
    journal: JournalOption = None,
    cluster: ClusterOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="With SOURCE: a tidegate.yaml or folder of manifests, as for `tidegate simulate`. With a cluster: its "
            "policy, as for `tidegate run`. Default: that of the installed Tidegate.",
            show_default=False,
        ),
    ] = None,
    nodes: NodesOption = "",
    gpus: GpusOption = "",
    seed: SeedOption = None,
    at: AtOption = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            metavar="CHANGE",
            help=f"Show what would happen with this change; may be repeated. {', '.join(FORMS.values())}.",
            show_default=False,
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show why this node does not take the job.", show_default=False)
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes/--no-changes", help="Search for the smallest changes that would start it now.")
    ] = True,
    trials: Annotated[int, typer.Option(help="Limit of that search, in queue heads tried.", min=1)] = BUDGET,
    kernels: KernelsOption = Kernels.AUTO,
    as_json_: JsonOption = False,
    options: SourceOptions,
) -> None:
    """Show why a job waits or what became of it, and what would change that.

    For a job that waits: what blocks it, its queue position, who holds what it waits for, and the smallest change of
    each kind that would start it now, found by trying on a copy of the cluster's state.

    \b
    Examples:
      tidegate explain train-017
      tidegate explain train-017 --at 1d2h --node h100-03
      tidegate explain train-017 --at 1d2h --if quota:research+8 --if priority:+10
      tidegate explain job-17 jobs.csv --nodes 26x8
      tidegate explain team-a/job.batch/train-017 --context prod
    """  # noqa: D301 - \b keeps the lines apart
    look = Look(cluster, context, kubeconfig, policy)
    given = ScenarioOptions(sources or [], nodes, gpus, None, Path(policy) if policy else None, options)
    question = JobQuestion(job, at, what_if or [], node, trials if changes else 0, kernels)
    with user_errors_reported(), _opened(journal, look, given, seed, kernels) as read:
        explanation = _explain(question, *read)
    if as_json_:
        typer.echo(json.dumps(as_json(explanation)))
    else:
        show(explanation, open_console())


@contextmanager
def _opened(
    journal: Path | None, look: Look, given: ScenarioOptions, seed: int | None, kernels: Kernels
) -> Iterator[Opened]:
    """The journal of a run of sources, of a look at a cluster, or one that was written before."""
    if not given.sources:
        if given.nodes or given.gpus:
            raise CommandError("--nodes and --gpus are for jobs to run: name a SOURCE after JOB")
        with opened_or_looked(journal, "explain", look) as read:
            yield read
        return
    if journal is not None or look.is_wanted:
        raise CommandError("a SOURCE of jobs and a journal or cluster are named; name one")
    from tidegate.api.journal_state import write_journal
    from tidegate.api.simulation import run_setup
    from tidegate.sim.scenario import ScenarioChanges

    setup = read_setup(given, ScenarioChanges(seed=seed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        with write_journal(path) as record:
            run_setup(setup, record, kernels, open_progress=progress_bar)
        with opened(path, "explain") as file:
            yield Opened(file)


def _explain(
    question: JobQuestion, file: JournalFile, snapshot: ClusterSnapshot | None, access: Connection | None
) -> Explanation:
    history, bound_ms = _dated(history_at(file, question), access, snapshot)
    return explain_history(question, file, history, bound_ms, progress_bar)


def _dated(
    history: JobHistory, access: Connection | None, snapshot: ClusterSnapshot | None
) -> tuple[JobHistory, Mapping[int, int]]:
    """The history dated by a cluster's objects, and since when each workload runs; a journal has its own times."""
    if access is None or snapshot is None:
        return history, {}
    times, bound = _times(access, snapshot, history.story.number)
    story = with_object_times(history.story, times.waiting_ms, bound.get(history.story.number, 0))
    return history._replace(story=story), bound


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
