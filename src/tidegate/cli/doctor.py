"""`tidegate doctor`: is a cluster ready for a mode, and if not, what to do?"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli.errors import EXIT_NO, CommandError, user_errors_reported
from tidegate.cli.kube_options import ContextOption, KubeconfigOption, open_access, wall_ms
from tidegate.cli.shared_options import JsonOption
from tidegate.live.modes import Mode
from tidegate.report.output_files import open_console

if TYPE_CHECKING:
    from tidegate.deploy.access_review import Account
    from tidegate.deploy.check_result import CheckResult
    from tidegate.deploy.readiness_checks import CheckTarget
    from tidegate.kube.transport.connection import Connection

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    *,
    mode: Annotated[Mode, typer.Option(help="Mode to check for.")] = Mode.SHADOW,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the installation.")] = "tidegate",
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Policy as for `tidegate run`; default: the installed one.",
            show_default=False,
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            metavar="[NAMESPACE/]NAME",
            help="Service account whose permissions are checked; default: your own.",
            show_default=False,
        ),
    ] = None,
    lease: Annotated[str, typer.Option(help="Lease of the leader election.")] = "tidegate",
    as_json: JsonOption = False,
) -> None:
    """Check a cluster: version, kinds, permissions, clocks, a running Kueue, the Lease, the policy, the admission gate.

    Also: other instances, who owns the fields of what is installed, and gates or annotations left behind.

    Nothing is written. Each line says what was found; where something is wrong, what was expected and what to do.

    \b
    Exit codes: 0 it will work (warnings included); 1 it will not; 2 wrong input.

    \b
    Examples:
      tidegate doctor --context prod
      tidegate doctor --mode gate --account tidegate
      tidegate doctor --mode bind --policy kueue --json
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        access = open_access(context, kubeconfig)
        target = _target(mode, namespace, lease, policy, account)
        findings = asyncio.run(_look(access, target))
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _print(findings)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(EXIT_NO)


def _target(mode: Mode, namespace: str, lease: str, policy: str | None, account: str | None) -> CheckTarget:
    from tidegate.deploy.install_spec import GivenPolicy, InstallOptionError, InstallSpec
    from tidegate.deploy.readiness_checks import CheckTarget
    from tidegate.live.election import LeaseName
    from tidegate.live.policy_sources import PolicyError, policy_source

    try:
        InstallSpec(namespace=namespace).check()
        source = policy_source(policy or GivenPolicy().source, namespace)
    except (InstallOptionError, PolicyError) as error:
        raise CommandError(str(error)) from None
    return CheckTarget(
        mode, LeaseName(namespace, lease), source, _account(account, namespace), wall_ms(), policy is not None
    )


def _account(text: str | None, namespace: str) -> Account | None:
    from tidegate.deploy.access_review import Account

    if text is None:
        return None
    where, _, name = text.rpartition("/")
    if not name or "/" in where:
        raise CommandError(f"--account: expected NAMESPACE/NAME, found {text!r}")
    return Account(where or namespace, name)


async def _look(access: Connection, target: CheckTarget) -> list[CheckResult]:
    from tidegate.deploy.readiness_checks import check_readiness
    from tidegate.kube.transport.client import Client

    async with Client(access, connections=8) as client:
        return [finding async for finding in check_readiness(client, target)]


def _print(findings: list[CheckResult]) -> None:
    console, table = open_console(), Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    for finding in findings:
        told = [finding.found]
        told += [f"expected: {finding.expected}"] if finding.expected else []
        told += [f"do: {finding.remedy}"] if finding.remedy else []
        table.add_row(Text(finding.level, style=_STYLES[finding.level]), Text(finding.check), Text("\n".join(told)))
    console.print(table)
    counts = Counter(finding.level.value for finding in findings)
    console.print(Text(", ".join(f"{counts[level]} {level}" for level in _STYLES if counts[level])))
