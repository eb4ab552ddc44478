"""`tidegate queues`: show the tree of cohorts and queues with quota, use and waiting workloads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from tidegate.api.journal_state import catch_up, damage_reported, follow, read_at, replay_kernels
from tidegate.api.kernels import Kernels
from tidegate.cli.errors import CommandError, user_errors_reported
from tidegate.cli.journal_options import AtOption, JournalOption
from tidegate.cli.kube_options import (
    ClusterOption,
    ContextOption,
    KubeconfigOption,
    Look,
    LookPolicyOption,
    opened_or_looked,
)
from tidegate.cli.progress import progress_bar
from tidegate.cli.shared_options import JsonOption, KernelsOption
from tidegate.journal.reader import JournalFollower
from tidegate.journal.store import JournalFile
from tidegate.measure.share_tree import share_tree_of
from tidegate.report.output_files import open_console
from tidegate.report.text.queue_tree import QueueTreeOptions, as_json, page

#: Seconds between two looks at a journal that is written.
_EVERY_S = 0.5


def show_queues(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="JOURNAL", help="Journal to read. Default: that of the latest run.", show_default=False),
    ] = None,
    *,
    journal: JournalOption = None,
    cluster: ClusterOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    policy: LookPolicyOption = None,
    at: AtOption = None,
    resources: Annotated[
        bool, typer.Option("--resources", help="Show a row for each resource in each flavor.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every queue, even if a cohort has very many.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow a journal while it is written, until Ctrl-C.")] = False,
    kernels: KernelsOption = Kernels.AUTO,
    as_json_: JsonOption = False,
) -> None:
    """Show the tree of cohorts and queues: quota, use, borrowing, lending, and what waits.

    \b
    Examples:
      tidegate queues
      tidegate queues run.db --at 2d3h --resources
      tidegate queues run.db --watch
      tidegate queues --context prod
    """  # noqa: D301 - \b keeps the lines apart
    shown = QueueTreeOptions(resources=resources, every=every)
    with user_errors_reported():
        if file and journal:
            raise CommandError(f"two journals are named, {file} and --journal {journal}; name one")
        if watch and (at or as_json_):
            raise CommandError("--watch shows what comes; it does not go with --at or --json")
        look = Look(cluster, context, kubeconfig, policy)
        with opened_or_looked(file or journal, "show the queues of", look) as (read, *_):
            with damage_reported(read):
                until_ms, span_ms = read_at(read, at), read.span_ms()
            follower = follow(read, until_ms)
            with replay_kernels(follower, kernels):
                if watch:
                    _watch(read, follower, shown)
                    return
                tree = share_tree_of(catch_up(read, follower, progress_bar))
            if until_ms is not None and span_ms is not None:
                tree = tree._replace(at_ms=min(until_ms, span_ms[1]))  # nothing changed since the step before
    if as_json_:
        typer.echo(json.dumps(as_json(tree)))
    else:
        console = open_console()
        console.print(page(tree, shown))


def _watch(file: JournalFile, follower: JournalFollower, shown: QueueTreeOptions) -> None:
    """Show the tree again on each change, in place on a terminal, until Ctrl-C."""
    console = open_console()
    with _until_interrupted():
        catch_up(file, follower, progress_bar)
        with Live(console=console, auto_refresh=False) as live, damage_reported(file):
            while True:
                live.update(page(share_tree_of(follower.state), _fitting(shown, console)), refresh=True)
                while not follower.catch_up():
                    time.sleep(_EVERY_S)


def _fitting(shown: QueueTreeOptions, console: Console) -> QueueTreeOptions:
    """On a terminal no more lines than it has."""
    return shown._replace(most_lines=max(console.height - 4, 4)) if console.is_terminal else shown


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """End on Ctrl-C without an error."""
    try:
        yield
    except KeyboardInterrupt:
        return
