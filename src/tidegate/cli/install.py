"""`tidegate install`: everything that a cluster needs for Tidegate to run in it, printed or applied.

Must not know: what the objects are, or how they are applied.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli.clusters import ContextOption, KubeconfigOption, needs_client, open_access, wall_ms
from tidegate.cli.errors import EXIT_NO, EXIT_OWNED, CannotRun, say, told_plainly
from tidegate.cli.namespaces import ExcludeNamespaceOption, NamespaceSelectorOption, namespace_rule
from tidegate.cli.options import JsonOption
from tidegate.cli.outputs import open_console
from tidegate.live.modes import Mode

if TYPE_CHECKING:
    from tidegate.deploy.install_spec import InstallSpec
    from tidegate.deploy.server_side_apply import AppliedObject
    from tidegate.kube.transport.client import Client
    from tidegate.kube.transport.connection import Connection

ImageOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The image; tidegate:VERSION if not named. Build it with deploy/Containerfile."),
]
PolicyWishOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="A tidegate.yaml or manifests, put into a ConfigMap; configmap:NAME, which is there; or kueue.",
        show_default=False,
    ),
]
AlertsOption = Annotated[
    bool,
    typer.Option("--prometheus-rule", help="Alerts for Prometheus' operator; runbooks are in docs/runbooks.md."),
]


def install(
    *,
    mode: Annotated[Mode, typer.Option(help="How much it may do; shadow writes nothing but its Lease.")] = Mode.SHADOW,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print it, and ask no cluster.")] = False,
    namespace: Annotated[str, typer.Option(help="Where it runs; made if it is not there.")] = "tidegate",
    image: ImageOption = None,
    replicas: Annotated[int, typer.Option(min=1, max=9, help="One leads, the others stand by.")] = 2,
    policy: PolicyWishOption = None,
    service_monitor: Annotated[bool, typer.Option("--service-monitor", help="For Prometheus' operator.")] = False,
    prometheus_rule: AlertsOption = False,
    network_policy: Annotated[
        bool, typer.Option("--network-policy", help="Only namespaces labelled metrics=enabled reach it.")
    ] = False,
    board: Annotated[bool, typer.Option("--board", help="A board, where Grafana's sidecar finds it.")] = False,
    managed_jobs_namespace_selector: NamespaceSelectorOption = "",
    exclude_namespace: ExcludeNamespaceOption = None,
    door: Annotated[bool, typer.Option("--door", help="Work that names a queue arrives held.")] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Install Tidegate in a cluster: with --dry-run print all objects, without it apply them.

    Roles allow exactly what the mode does. Installing again changes what changed; the policy stays unless
    --policy names one. Objects of options that were taken back are not deleted.

    \b
    Exit codes: 0 installed; 1 some object was refused; 2 wrong input; 3 a running Kueue owns the work.

    \b
    Examples:
      tidegate install --dry-run
      tidegate install --mode gate --policy queues/ --door --dry-run
      tidegate install --context prod --policy kueue --service-monitor
    """  # noqa: D301 - \b keeps the lines apart
    with told_plainly():
        needs_client()
        from tidegate.deploy.install_spec import InstallOptionError, InstallSpec, read_policy_wish

        try:
            wish = InstallSpec(
                mode=mode,
                namespace=namespace,
                image=InstallSpec.image if image is None else image,
                replicas=replicas,
                policy=read_policy_wish(policy, namespace),
                monitor=service_monitor,
                alerts=prometheus_rule,
                network_policy=network_policy,
                board=board,
                door=door,
                namespaces=namespace_rule(managed_jobs_namespace_selector, exclude_namespace),
            )
            wish.check()
        except InstallOptionError as error:
            raise CannotRun(str(error)) from None
        if dry_run:
            _print(wish, as_json=as_json)
            return
        access = open_access(context, kubeconfig)
        if not yes:
            _ask(wish, access)
        done = asyncio.run(_install(access, wish, keep=policy is None))
    _tell(done, as_json=as_json)


def _print(wish: InstallSpec, *, as_json: bool) -> None:
    from tidegate.deploy.objects import as_yaml, objects

    things = objects(wish)
    if as_json:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}, indent=2))
    else:
        typer.echo(as_yaml(things), nl=False)


def _ask(wish: InstallSpec, access: Connection) -> None:
    from tidegate.deploy.objects import objects

    if not typer.confirm(
        f"Apply {len(objects(wish))} objects, mode {wish.mode}, to {access.server}? --dry-run prints them", err=True
    ):
        raise CannotRun("nothing was applied; --yes does not ask")


async def _install(access: Connection, wish: InstallSpec, *, keep: bool) -> list[AppliedObject]:
    from tidegate.deploy.access_review import AccessReviewError
    from tidegate.deploy.objects import objects
    from tidegate.deploy.server_side_apply import apply_all, find_unserved
    from tidegate.kube.transport.client import Client

    things = objects(wish)
    async with Client(access, connections=2) as client:
        try:
            unserved = await find_unserved(client, things)
        except AccessReviewError as error:
            raise CannotRun(f"{access.server}: {error}; nothing was applied") from None
        if unserved:
            raise CannotRun(
                f"the cluster does not have {', '.join(unserved)}; install these kinds first, or leave out the option "
                "that needs them (--service-monitor, --prometheus-rule, --door); nothing was applied"
            )
        if wish.mode.writes:
            await _refuse_rivals(client, wish)
        return await apply_all(client, things, keep=wish.policy.config_map if keep else "")


async def _refuse_rivals(client: Client, wish: InstallSpec) -> None:
    from tidegate.live.conflicting_schedulers import look_for_kueue

    sighting = await look_for_kueue(client, wall_ms())
    if sighting.found:
        say(
            f"--mode {wish.mode}: a Kueue runs here and owns the same work ({', '.join(sighting.found)}); "
            "stop it first, or use --mode shadow; nothing was applied"
        )
        raise typer.Exit(EXIT_OWNED)


def _tell(done: list[AppliedObject], *, as_json: bool) -> None:
    from tidegate.deploy.server_side_apply import ApplyOutcome

    if as_json:
        typer.echo(json.dumps([one._asdict() for one in done], indent=2))
    else:
        console, table = open_console(), Table(box=None, show_header=False, pad_edge=False)
        for one in done:
            table.add_row(Text(one.fate, style=_STYLES.get(one.fate, "")), Text(one.kind), Text(one.name))
        console.print(table)
    troubles = [f"{one.kind} {one.name}: {one.trouble}" for one in done if one.fate is ApplyOutcome.FAILED]
    for trouble in troubles:
        say(trouble)
    if troubles:
        raise typer.Exit(EXIT_NO)


_STYLES = {"created": "green", "changed": "yellow", "failed": "red", "not tried": "red"}
