"""`tidegate install`: everything that a cluster needs for Tidegate to run in it, printed or applied.

Must not know: what the objects are, or how they are applied.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli.errors import EXIT_NO, EXIT_OWNED, CommandError, print_error, user_errors_reported
from tidegate.cli.kube_options import ContextOption, KubeconfigOption, needs_client, open_access, wall_ms
from tidegate.cli.namespace_options import ExcludeNamespaceOption, NamespaceSelectorOption, namespace_rule
from tidegate.cli.shared_options import JsonOption
from tidegate.live.modes import Mode
from tidegate.report.output_files import open_console

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
JournalSizeWishOption = Annotated[
    str, typer.Option(metavar="SIZE", help="Most that a replica's journals take; its volume is twice that.")
]
JournalRetentionWishOption = Annotated[
    str, typer.Option(metavar="DURATION", help="How long journals of earlier terms are kept.")
]
NetworkPolicyOption = Annotated[
    bool, typer.Option("--network-policy", help="Only namespaces labelled metrics=enabled reach it.")
]
ForceOption = Annotated[
    bool, typer.Option("--force-conflicts", help="Take over fields that kubectl, helm or another manager owns.")
]
NoQueuesWishOption = Annotated[
    bool, typer.Option("--allow-no-queues", help="Gate or bind without any quota, or empty a policy that has queues.")
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
    network_policy: NetworkPolicyOption = False,
    board: Annotated[bool, typer.Option("--board", help="A board, where Grafana's sidecar finds it.")] = False,
    managed_jobs_namespace_selector: NamespaceSelectorOption = "",
    exclude_namespace: ExcludeNamespaceOption = None,
    door: Annotated[bool, typer.Option("--door", help="Work that names a queue arrives held.")] = False,
    journal_max_size: JournalSizeWishOption = "4Gi",
    journal_retention: JournalRetentionWishOption = "30d",
    allow_no_queues: NoQueuesWishOption = False,
    force_conflicts: ForceOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Install Tidegate in a cluster: with --dry-run print all objects, without it apply them.

    Roles allow exactly what the mode does. Installing again changes what changed; the policy stays unless
    --policy names one. Objects of options that were taken back are not deleted; `tidegate uninstall` removes all.
    Everything is applied on the server's side as tidegate-install, so that what is printed and what is applied agree.

    \b
    Exit codes: 0 installed; 1 some object was refused; 2 wrong input; 3 another owns the work or the roles.

    \b
    Examples:
      tidegate install --dry-run
      tidegate install --mode gate --policy queues/ --door --dry-run
      tidegate install --context prod --policy kueue --service-monitor
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        needs_client()
        wish = _read_wish(
            policy,
            mode=mode,
            namespace=namespace,
            **({} if image is None else {"image": image}),
            replicas=replicas,
            monitor=service_monitor,
            network_policy=network_policy,
            alerts=prometheus_rule,
            board=board,
            door=door,
            namespaces=namespace_rule(managed_jobs_namespace_selector, exclude_namespace),
            allow_no_queues=allow_no_queues,
            journal_max_size=journal_max_size,
            journal_retention=journal_retention,
        )
        if dry_run:
            _print(wish, as_json=as_json)
            return
        access = open_access(context, kubeconfig)
        if not yes:
            _ask(wish, access)
        done = asyncio.run(_install(access, wish, force=force_conflicts))
    _tell(done, as_json=as_json)


def _read_wish(policy: str | None, **named: Any) -> InstallSpec:
    """What is to be installed; refused where that cannot be."""
    from tidegate.deploy.install_spec import InstallOptionError, InstallSpec, read_policy_wish

    try:
        wish = InstallSpec(policy=read_policy_wish(policy, named["namespace"]), **named)
        wish.check()
    except InstallOptionError as error:
        raise CommandError(str(error)) from None
    return wish


def _print(wish: InstallSpec, *, as_json: bool) -> None:
    from tidegate.deploy.install_objects import as_yaml, objects

    things = objects(wish)
    if as_json:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}, indent=2))
    else:
        typer.echo(_HOW_TO_APPLY + as_yaml(things), nl=False)
    if wish.policy.config_map and wish.policy.files is None:
        where = f"{wish.namespace}/{wish.policy.config_map}"
        print_error(f"the policy is not printed: the ConfigMap {where} stays as it is; --policy FILE prints it, too")


def _ask(wish: InstallSpec, access: Connection) -> None:
    from tidegate.deploy.install_objects import objects

    if not typer.confirm(
        f"Apply {len(objects(wish))} objects, mode {wish.mode}, to {access.server}? --dry-run prints them", err=True
    ):
        raise CommandError("nothing was applied; --yes does not ask")


async def _install(access: Connection, wish: InstallSpec, *, force: bool) -> list[AppliedObject]:
    from tidegate.deploy.access_review import AccessReviewError
    from tidegate.deploy.install_objects import gate_release, objects
    from tidegate.deploy.install_spec import GivenPolicy
    from tidegate.deploy.server_side_apply import apply_all, find_unserved, remove_all
    from tidegate.kube.transport.client import Client

    begins = wish.policy == GivenPolicy() and not wish.mode.writes
    things = objects(replace(wish, policy=GivenPolicy.to_begin_with()) if begins else wish)
    async with Client(access, connections=2) as client:
        try:
            unserved = await find_unserved(client, things)
        except AccessReviewError as error:
            raise CommandError(f"{access.server}: {error}; nothing was applied") from None
        if unserved:
            raise CommandError(
                f"the cluster does not have {', '.join(unserved)}; install these kinds first, or leave out the option "
                "that needs them (--service-monitor, --prometheus-rule, --door); nothing was applied"
            )
        await _refuse_another_namespace(client, wish)
        if wish.mode.writes:
            await _refuse_rivals(client, wish)
        if wish.policy.config_map and not wish.allow_no_queues:
            await _refuse_emptied(client, wish)
        await remove_all(client, gate_release())  # gates hold again
        return await apply_all(client, things, keep=wish.policy.config_map if begins else "", force=force)


async def _refuse_emptied(client: Client, wish: InstallSpec) -> None:
    """Refuse a mode that writes without queues, and to take all queues away from a policy that has some."""
    from tidegate.live.policy_sources import NO_QUEUES, PolicyError, PolicyMissingError, PolicyUnreachableError

    queues, name, writes = 0, f"configmap:{wish.namespace}/{wish.policy.config_map}", wish.mode.writes
    try:
        queues = await _count_queues(client, wish)
    except PolicyMissingError:
        pass
    except PolicyError as error:
        if wish.policy.files is None and writes:
            raise CommandError(f"--mode {wish.mode}: {error}; nothing was applied") from None
    except PolicyUnreachableError:
        return  # who may not read it may not apply it either, and is told so
    if wish.policy.files is None and writes and not queues:
        raise CommandError(f"--mode {wish.mode}: {name}: {NO_QUEUES}; --policy names one; nothing was applied")
    if wish.policy.queues == 0 and queues:
        raise CommandError(
            f"--policy: it has no queues, and the one that is installed ({name}) has {queues}; "
            "--allow-no-queues takes them away; nothing was applied"
        )


async def _count_queues(client: Client, wish: InstallSpec) -> int:
    """The queues of the policy that is installed."""
    from tidegate.live.policy_sources import ConfigMap

    source = ConfigMap(wish.namespace, wish.policy.config_map)
    return len(source.read(await source.find(client)).shares.queues)


async def _refuse_another_namespace(client: Client, wish: InstallSpec) -> None:
    """Roles of the cluster have one name: a second installation would take them from the first."""
    from tidegate.deploy.access_review import bound_namespace
    from tidegate.deploy.install_spec import NAME

    there = await bound_namespace(client, NAME)
    if there not in ("", wish.namespace):
        print_error(
            f"Tidegate is installed in the namespace {there}; installing it in {wish.namespace} would take its roles: "
            f"use --namespace {there}, or uninstall it there (kubectl delete clusterrolebinding tidegate, and "
            "its namespace); nothing was applied"
        )
        raise typer.Exit(EXIT_OWNED)


async def _refuse_rivals(client: Client, wish: InstallSpec) -> None:
    from tidegate.deploy.install_spec import NAME
    from tidegate.live.conflicting_schedulers import look_for_instances, look_for_kueue
    from tidegate.live.scope_claim import scope_of

    sighting = await look_for_kueue(client, wall_ms())
    others = await look_for_instances(client, wish.lease, scope_of(wish.mode, NAME), wall_ms())
    found = f"a Kueue runs here and owns the same work ({', '.join(sighting.found)})" if sighting.found else ""
    if others:
        found = f"another instance manages the same work (Lease {others[0].lease}; {others[0].scope})"
    if found:
        print_error(f"--mode {wish.mode}: {found}; stop it first, or use --mode shadow; nothing was applied")
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
        print_error(trouble)
    if troubles:
        raise typer.Exit(EXIT_NO)


#: What printed objects begin with: applied so, they have the same owner as those that `tidegate install` applies.
_HOW_TO_APPLY = "# kubectl apply --server-side --field-manager=tidegate-install -f -\n"

_STYLES = {"created": "green", "changed": "yellow", "failed": "red", "skipped": "red"}
