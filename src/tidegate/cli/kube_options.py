"""Options that name a cluster, and its connection."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tidegate.cli.errors import CommandError, print_error
from tidegate.cli.journal_options import opened
from tidegate.journal.store import JournalFile
from tidegate.report.output_files import open_console

if TYPE_CHECKING:
    from tidegate.kube.transport.connection import Connection
    from tidegate.live.cluster_snapshot import ClusterSnapshot

ContextOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current one.", show_default=False),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kubeconfig; default: KUBECONFIG or ~/.kube/config.", show_default=False),
]

ClusterOption = Annotated[bool, typer.Option("--cluster", help="Read the cluster of the current context.")]
LookPolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="With a cluster: its policy, as for `tidegate run`; default: the installed one.",
        show_default=False,
    ),
]

#: Packages that are needed for a cluster.
_NEEDS = ("aiohttp", "prometheus_client", "google.protobuf")


def needs_client() -> None:
    """Refuse to go on without the packages for a cluster."""
    for name in _NEEDS:
        if not _is_installed(name):
            raise CommandError(f"a cluster needs {name}, which is not installed: pip install 'tidegate[kube]'")


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even what it is a part of
        return False


def open_access(context: str | None, kubeconfig: Path | None) -> Connection:
    """The connection that the options name; in a pod, that of its service account."""
    needs_client()
    from tidegate.kube.transport.connection import ConnectionConfigError
    from tidegate.kube.transport.kubeconfig import config_access, config_files, pod_access

    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    try:
        if in_pod and context is None and kubeconfig is None:
            return pod_access(wall_ms)
        return config_access([kubeconfig] if kubeconfig else config_files(), wall_ms, context or "")
    except ConnectionConfigError as error:
        raise CommandError(str(error)) from None


class Look(NamedTuple):
    """The cluster to read, if one is named."""

    current: bool
    context: str | None
    kubeconfig: Path | None
    policy: str | None  # None: that of the installation

    @property
    def is_wanted(self) -> bool:
        """Whether to read a cluster, and not a journal."""
        return self.current or self.context is not None or self.kubeconfig is not None


class Opened(NamedTuple):
    """A journal; with that of a snapshot, the objects in it."""

    file: JournalFile
    snapshot: ClusterSnapshot | None = None
    access: Connection | None = None


@contextmanager
def opened_or_looked(journal: Path | None, command: str, take_snapshot: Look) -> Iterator[Opened]:
    """Open a journal, or that of a snapshot of a cluster."""
    if not take_snapshot.is_wanted:
        with opened(journal, command) as file:
            yield Opened(file)
        return
    if journal is not None:
        raise CommandError(f"a journal ({journal}) and a cluster are named; name one")
    with tempfile.TemporaryDirectory() as folder:
        path, access = Path(folder) / "look.db", open_access(take_snapshot.context, take_snapshot.kubeconfig)
        snapshot = _look(take_snapshot, access, path)
        with opened(path, command) as file:
            yield Opened(file, snapshot, access)


def _look(take_snapshot: Look, access: Connection, path: Path) -> ClusterSnapshot:
    from tidegate.live.cluster_snapshot import SnapshotError
    from tidegate.live.cluster_snapshot import take_snapshot as look_once
    from tidegate.live.policy_sources import PolicyError, PolicyUnreachableError, policy_source
    from tidegate.live.policy_watcher import PolicyWatcher

    console = open_console(stderr=True)
    try:
        with console.status("looking at the cluster"):
            named, found = (take_snapshot.policy, "--policy") if take_snapshot.policy else _installed(access)
            policy = PolicyWatcher(access, policy_source(named, access.namespace), 0).first()
            snapshot = look_once(access, policy, path, wall_ms)
    except (PolicyError, PolicyUnreachableError) as error:
        hint = "" if take_snapshot.policy else "; name another with --policy"
        raise CommandError(f"{error}{hint}") from None
    except SnapshotError as error:
        raise CommandError(str(error)) from None
    print_error(f"policy {policy.name} ({found}), digest {policy.digest()}")
    return snapshot


def _installed(access: Connection) -> tuple[str, str]:
    """The policy of the Tidegate that is installed, and how it was found."""
    from tidegate.kube.transport.client import Client
    from tidegate.live.installed_policy import InstalledPolicy, find_installed_policy

    async def find() -> InstalledPolicy:
        async with Client(access, connections=2) as client:
            return await find_installed_policy(client)

    found = asyncio.run(find())
    return found.source, found.found


def wall_ms() -> int:
    """The time of the wall clock."""
    return time.time_ns() // 1_000_000
