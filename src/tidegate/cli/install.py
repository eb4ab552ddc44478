"""`tidegate install`: everything that a cluster needs for Tidegate to run in it, printed or applied."""

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
from tidegate.cli.run import JournalMaxSizeOption, JournalRetentionOption, ModeOption
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
    typer.Option(metavar="NAME", help="Image; default: tidegate:VERSION, built with deploy/Containerfile."),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="A tidegate.yaml or manifests, put into a ConfigMap; configmap:NAME, which exists; or kueue.",
        show_default=False,
    ),
]
NetworkPolicyOption = Annotated[
    bool,
    typer.Option("--network-policy", help="Add a NetworkPolicy: only namespaces labelled metrics=enabled reach it."),
]
ForceOption = Annotated[
    bool, typer.Option("--force-conflicts", help="Take over fields that kubectl, helm or another manager owns.")
]
InstallNoQueuesOption = Annotated[
    bool, typer.Option("--allow-no-queues", help="Gate or bind without any quota, or empty a policy that has queues.")
]
AlertsOption = Annotated[
    bool,
    typer.Option("--prometheus-rule", help="Add a PrometheusRule with alerts; see docs/runbooks.md."),
]


def install(
    *,
    mode: ModeOption = Mode.SHADOW,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the objects, and contact no cluster.")] = False,
    namespace: Annotated[str, typer.Option(help="Namespace; created if it does not exist.")] = "tidegate",
    image: ImageOption = None,
    replicas: Annotated[int, typer.Option(min=1, max=9, help="Replicas; one leads.")] = 2,
    policy: PolicyOption = None,
    service_monitor: Annotated[
        bool, typer.Option("--service-monitor", help="Add a ServiceMonitor for Prometheus' operator.")
    ] = False,
    prometheus_rule: AlertsOption = False,
    network_policy: NetworkPolicyOption = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Add a ConfigMap with a Grafana dashboard.")] = False,
    managed_jobs_namespace_selector: NamespaceSelectorOption = "",
    exclude_namespace: ExcludeNamespaceOption = None,
    admission_gate: Annotated[
        bool, typer.Option("--admission-gate", help="Hold work that names a queue when it is created.")
    ] = False,
    journal_max_size: JournalMaxSizeOption = "4Gi",
    journal_retention: JournalRetentionOption = "30d",
    allow_no_queues: InstallNoQueuesOption = False,
    force_conflicts: ForceOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
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
      tidegate install --mode gate --policy queues/ --admission-gate --dry-run
      tidegate install --context prod --policy kueue --service-monitor
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        needs_client()
        installation = _install_spec(
            policy,
            mode=mode,
            namespace=namespace,
            **({} if image is None else {"image": image}),
            replicas=replicas,
            monitor=service_monitor,
            network_policy=network_policy,
            alerts=prometheus_rule,
            dashboard=dashboard,
            admission_gate=admission_gate,
            namespaces=namespace_rule(managed_jobs_namespace_selector, exclude_namespace),
            allow_no_queues=allow_no_queues,
            journal_max_size=journal_max_size,
            journal_retention=journal_retention,
        )
        if dry_run:
            _print(installation, as_json=as_json)
            return
        access = open_access(context, kubeconfig)
        if not yes:
            _ask(installation, access)
        done = asyncio.run(_install(access, installation, force=force_conflicts))
    _tell(done, as_json=as_json)


def _install_spec(policy: str | None, **named: Any) -> InstallSpec:
    """What is to be installed; refused where that cannot be."""
    from tidegate.deploy.install_spec import InstallOptionError, InstallSpec, read_policy_wish

    try:
        installation = InstallSpec(policy=read_policy_wish(policy, named["namespace"]), **named)
        installation.check()
    except InstallOptionError as error:
        raise CommandError(str(error)) from None
    return installation


def _print(installation: InstallSpec, *, as_json: bool) -> None:
    from tidegate.deploy.install_objects import as_yaml, objects

    things = objects(installation)
    if as_json:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}, indent=2))
    else:
        typer.echo(_HOW_TO_APPLY + as_yaml(things), nl=False)
    if installation.policy.config_map and installation.policy.files is None:
        where = f"{installation.namespace}/{installation.policy.config_map}"
        print_error(f"the policy is not printed: the ConfigMap {where} stays as it is; --policy FILE prints it, too")


def _ask(installation: InstallSpec, access: Connection) -> None:
    from tidegate.deploy.install_objects import objects

    what = f"{len(objects(installation))} objects, mode {installation.mode}"
    if not typer.confirm(f"Apply {what}, to {access.server}? --dry-run prints them", err=True):
        raise CommandError("nothing was applied; --yes does not ask")


async def _install(access: Connection, installation: InstallSpec, *, force: bool) -> list[AppliedObject]:
    from tidegate.deploy.access_review import AccessReviewError
    from tidegate.deploy.admission_gate import release_policy
    from tidegate.deploy.install_objects import objects
    from tidegate.deploy.install_spec import GivenPolicy
    from tidegate.deploy.server_side_apply import apply_all, find_unserved, remove_all
    from tidegate.kube.transport.client import Client

    begins = installation.policy == GivenPolicy() and not installation.mode.writes
    things = objects(replace(installation, policy=GivenPolicy.to_begin_with()) if begins else installation)
    async with Client(access, connections=2) as client:
        try:
            unserved = await find_unserved(client, things)
        except AccessReviewError as error:
            raise CommandError(f"{access.server}: {error}; nothing was applied") from None
        if unserved:
            raise CommandError(
                f"the cluster does not have {', '.join(unserved)}; install these kinds first, or leave out the option "
                "that needs them (--service-monitor, --prometheus-rule, --admission-gate); nothing was applied"
            )
        await _refuse_another_namespace(client, installation)
        if installation.mode.writes:
            await _refuse_conflicts(client, installation)
        if installation.policy.config_map and not installation.allow_no_queues:
            await _refuse_emptied(client, installation)
        await remove_all(client, release_policy())  # gates hold again
        return await apply_all(client, things, keep=installation.policy.config_map if begins else "", force=force)


async def _refuse_emptied(client: Client, installation: InstallSpec) -> None:
    """Refuse a mode that writes without queues, and to take all queues away from a policy that has some."""
    from tidegate.live.policy_sources import NO_QUEUES, PolicyError, PolicyMissingError, PolicyUnreachableError

    queues, name, writes = (
        0,
        f"configmap:{installation.namespace}/{installation.policy.config_map}",
        installation.mode.writes,
    )
    try:
        queues = await _count_queues(client, installation)
    except PolicyMissingError:
        pass
    except PolicyError as error:
        if installation.policy.files is None and writes:
            raise CommandError(f"--mode {installation.mode}: {error}; nothing was applied") from None
    except PolicyUnreachableError:
        return  # who may not read it may not apply it either, and is told so
    if installation.policy.files is None and writes and not queues:
        raise CommandError(f"--mode {installation.mode}: {name}: {NO_QUEUES}; --policy names one; nothing was applied")
    if installation.policy.queues == 0 and queues:
        raise CommandError(
            f"--policy: it has no queues, and the one that is installed ({name}) has {queues}; "
            "--allow-no-queues takes them away; nothing was applied"
        )


async def _count_queues(client: Client, installation: InstallSpec) -> int:
    """The queues of the policy that is installed."""
    from tidegate.live.policy_sources import ConfigMap

    source = ConfigMap(installation.namespace, installation.policy.config_map)
    return len(source.read(await source.find(client)).shares.queues)


async def _refuse_another_namespace(client: Client, installation: InstallSpec) -> None:
    """Roles of the cluster have one name: a second installation would take them from the first."""
    from tidegate.deploy.access_review import bound_namespace
    from tidegate.deploy.install_spec import NAME

    there = await bound_namespace(client, NAME)
    if there not in ("", installation.namespace):
        print_error(
            f"Tidegate is installed in the namespace {there}; installing it in {installation.namespace} would take its "
            f"roles: use --namespace {there}, or uninstall it there (kubectl delete clusterrolebinding tidegate, and "
            "its namespace); nothing was applied"
        )
        raise typer.Exit(EXIT_OWNED)


async def _refuse_conflicts(client: Client, installation: InstallSpec) -> None:
    from tidegate.deploy.install_spec import NAME
    from tidegate.live.conflicting_schedulers import look_for_instances, look_for_kueue
    from tidegate.live.scope_claim import scope_of

    conflicts = await look_for_kueue(client, wall_ms())
    others = await look_for_instances(client, installation.lease, scope_of(installation.mode, NAME), wall_ms())
    found = f"a Kueue runs here and owns the same work ({', '.join(conflicts.found)})" if conflicts.found else ""
    if others:
        found = f"another instance manages the same work (Lease {others[0].lease}; {others[0].scope})"
    if found:
        print_error(f"--mode {installation.mode}: {found}; stop it first, or use --mode shadow; nothing was applied")
        raise typer.Exit(EXIT_OWNED)


def _tell(done: list[AppliedObject], *, as_json: bool) -> None:
    from tidegate.deploy.server_side_apply import ApplyOutcome

    if as_json:
        typer.echo(json.dumps([one._asdict() for one in done], indent=2))
    else:
        console, table = open_console(), Table(box=None, show_header=False, pad_edge=False)
        for one in done:
            table.add_row(Text(one.outcome, style=_STYLES.get(one.outcome, "")), Text(one.kind), Text(one.name))
        console.print(table)
    errors = [f"{one.kind} {one.name}: {one.error}" for one in done if one.outcome is ApplyOutcome.FAILED]
    for error in errors:
        print_error(error)
    if errors:
        raise typer.Exit(EXIT_NO)


#: What printed objects begin with: applied so, they have the same owner as those that `tidegate install` applies.
_HOW_TO_APPLY = "# kubectl apply --server-side --field-manager=tidegate-install -f -\n"

_STYLES = {"created": "green", "changed": "yellow", "failed": "red", "skipped": "red"}
