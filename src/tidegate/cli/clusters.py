"""Options that name a cluster, and the way to it.

Must not know: what is asked of the cluster.
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.errors import CannotRun

if TYPE_CHECKING:
    from tidegate.kube.access import Access

ContextOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context of the kubeconfig; the current one if not named.", show_default=False),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kubeconfig; KUBECONFIG or the usual one if not named.", show_default=False),
]

#: What the command line needs in order to talk to a cluster.
_NEEDS = ("aiohttp", "prometheus_client")


def open_access(context: str | None, kubeconfig: Path | None) -> Access:
    """The way to the cluster that the options name; in a pod, its own."""
    for name in _NEEDS:
        if importlib.util.find_spec(name) is None:
            raise CannotRun(f"a cluster needs {name}, which is not installed: pip install 'tidegate[kube]'")
    from tidegate.kube.access import NoAccess
    from tidegate.kube.kubeconfig import config_access, config_files, pod_access

    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    try:
        if in_pod and context is None and kubeconfig is None:
            return pod_access(wall_ms)
        return config_access([kubeconfig] if kubeconfig else config_files(), wall_ms, context or "")
    except NoAccess as error:
        raise CannotRun(str(error)) from None


def wall_ms() -> int:
    """The time of the clock on the wall."""
    return time.time_ns() // 1_000_000
