"""`tidegate uninstall`: everything of Tidegate removed from a cluster; what runs goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli.errors import EXIT_NO, CommandError, print_error, user_errors_reported
from tidegate.cli.kube_options import ContextOption, KubeconfigOption, open_access
from tidegate.cli.shared_options import JsonOption
from tidegate.model.units import read_duration_ms
from tidegate.report.output_files import open_console

if TYPE_CHECKING:
    from tidegate.deploy.uninstall import Removal, UninstallSpec
    from tidegate.kube.transport.connection import Connection

_STYLES = {"removed": "green", "cleaned": "green", "started": "green", "held": "yellow", "failed": "red"}


def uninstall(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and change nothing.")] = False,
    namespace: Annotated[str, typer.Option(help="Namespace of the installation.")] = "tidegate",
    start_suspended: Annotated[
        bool, typer.Option("--start-suspended", help="Start suspended jobs that name a queue, without any quota.")
    ] = False,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="Timeout of the replicas' end.")] = "60s",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove Tidegate from a cluster: admission policies, the program, what it wrote into work, its own objects.

    What runs goes on. Gates are lifted, so pods that waited behind them start. Suspended jobs stay suspended
    unless --start-suspended. The policy goes, too: save it first. The namespace goes if nothing else is in it.
    Of jobs that run, templates cannot be changed: do it again when these are over.

    \b
    Exit codes: 0 all was done, held and stays list what is left; 1 something failed; 2 wrong input.

    \b
    Examples:
      tidegate uninstall --dry-run
      tidegate uninstall --context prod
      tidegate uninstall --context prod --start-suspended --yes
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        access = open_access(context, kubeconfig)
        options = replace(_options(namespace), starts_suspended=start_suspended, dry_run=dry_run)
        options = replace(options, leave_s=read_duration_ms("--wait", wait) / 1000)
        if not yes and not dry_run:
            _ask(namespace, access)
        done = asyncio.run(_uninstall(access, options))
    _tell(done, as_json=as_json)


def _options(namespace: str) -> UninstallSpec:
    from tidegate.deploy.install_spec import InstallOptionError, InstallSpec
    from tidegate.deploy.uninstall import UninstallSpec

    installed = InstallSpec(namespace=namespace)
    try:
        installed.check()
    except InstallOptionError as error:
        raise CommandError(str(error)) from None
    return UninstallSpec(installed.lease)


def _ask(namespace: str, access: Connection) -> None:
    question = f"Remove Tidegate in {namespace}, with its policy, from {access.server}? --dry-run lists what is removed"
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was removed; --yes does not ask")


async def _uninstall(access: Connection, options: UninstallSpec) -> list[Removal]:
    from tidegate.deploy.access_review import AccessReviewError
    from tidegate.deploy.uninstall import find_other_home
    from tidegate.deploy.uninstall import uninstall as remove_all
    from tidegate.kube.transport.client import Client

    async with Client(access, connections=4) as client:
        try:
            other = await find_other_home(client, options.lease.namespace)
            if other:
                raise CommandError(
                    f"it is installed in the namespace {other}: --namespace {other}; nothing was removed"
                )
            return await remove_all(client, options)
        except AccessReviewError as error:
            raise CommandError(f"{access.server}: {error}; run it as a user who may") from None


def _tell(done: list[Removal], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in done], indent=2))
    else:
        console, table = open_console(), Table(box=None, show_header=False, pad_edge=False)
        for one in done:
            table.add_row(
                Text(one.outcome, style=_STYLES.get(one.outcome, "")), Text(one.kind), Text(one.name), Text(one.why)
            )
        console.print(table if done else Text("nothing of Tidegate is there"))
    failures = [f"{one.kind} {one.name}: {one.why}" for one in done if one.outcome == "failed"]
    for failure in failures:
        print_error(failure)
    if failures:
        raise typer.Exit(EXIT_NO)
