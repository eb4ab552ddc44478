"""`tidegate run`: the live service in a cluster, in mode shadow, gate or bind."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.api.kernels import Kernels, compiles
from tidegate.cli.errors import EXIT_BUG, EXIT_OWNED, EXIT_UNREACHABLE, CommandError, print_error, user_errors_reported
from tidegate.cli.kube_options import ContextOption, KubeconfigOption, open_access, wall_ms
from tidegate.cli.namespace_options import ExcludeNamespaceOption, NamespaceSelectorOption, namespace_rule
from tidegate.cli.shared_options import KernelsOption
from tidegate.live.logs import LogForm, ServiceLog, open_log
from tidegate.live.modes import Mode
from tidegate.model.units import UnitError, parse_quantity, read_duration_ms

if TYPE_CHECKING:
    from tidegate.kube.actuator.provisioning import NodeRequestOptions
    from tidegate.kube.transport.connection import Connection
    from tidegate.live.election import LeaseName
    from tidegate.live.journal_rotation import JournalLimits
    from tidegate.live.lease import LeaseTimes
    from tidegate.live.policy_sources import PolicySource
    from tidegate.live.policy_watcher import PolicyWatcher
    from tidegate.live.service import LiveService, ServiceOptions
    from tidegate.model.policy import Policy


ModeOption = Annotated[Mode, typer.Option(help="shadow writes nothing but its Lease.")]
PolicySourceOption = Annotated[
    str,
    typer.Option(
        metavar="SOURCE",
        help="A tidegate.yaml, a folder of manifests, configmap:NAMESPACE/NAME, or kueue (the cluster's objects).",
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(help="Namespace of the Lease and the ConfigMap; default: the context's.", show_default=False),
]
JournalPathOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the journal to this file.", show_default=False)
]
JournalMaxSizeOption = Annotated[
    str, typer.Option(metavar="SIZE", help="Size limit of a replica's journal files; the oldest are removed.")
]
JournalRetentionOption = Annotated[
    str, typer.Option(metavar="DURATION", help="Keep journals of earlier terms this long.")
]
AllowNoQueuesOption = Annotated[
    bool, typer.Option("--allow-no-queues", help="Gate or bind without queues, so without any quota.")
]
LeaseOption = Annotated[str, typer.Option(metavar="[NAMESPACE/]NAME", help="Lease of the leader election.")]
ListenOption = Annotated[
    str, typer.Option(metavar="[HOST]:PORT", help="Address of /healthz, /readyz and /metrics; '' for none.")
]
AskNodesOption = Annotated[
    str,
    typer.Option(
        metavar="MEANS",
        help="How nodes are requested for a suspended job: pods (not before it starts), capacity-buffer, "
        "or provisioning-request:CLASS.",
    ),
]
IdentityOption = Annotated[
    str | None,
    typer.Option(help="Name of this replica; default: the host name with a random suffix.", show_default=False),
]


SchedulerOption = Annotated[str, typer.Option(help="schedulerName of the pods to bind.")]
LeaseDurationOption = Annotated[str, typer.Option(help="Time after which another replica may acquire the Lease.")]
RenewDeadlineOption = Annotated[str, typer.Option(help="Time after which a leader that cannot renew stops writing.")]
RetryPeriodOption = Annotated[str, typer.Option(help="Time between two tries to acquire or renew the Lease.")]
ClaimsNamespaceOption = Annotated[
    str, typer.Option(help="Namespace of the Lease with all scope claims; the same for all instances.")
]
PolicyPeriodOption = Annotated[
    str, typer.Option(help="Period of reading policy files; objects in the cluster are watched.")
]
ScaleUpDelayOption = Annotated[
    str, typer.Option(help="How long work waits before nodes are requested for it; set it to their startup time.")
]
LogOption = Annotated[LogForm, typer.Option(help="Format of log lines; auto: text on a terminal, else JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log every step, also those without decisions.")]
MetricsTokenOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="/metrics requires the bearer token in this file.", show_default=False),
]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Serve TLS with this certificate.", show_default=False)
]
TlsKeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.", show_default=False)]
MetricsCaOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="/metrics requires a client certificate of this CA.", show_default=False),
]


def run_live(
    *,
    mode: ModeOption = Mode.SHADOW,
    policy: PolicySourceOption,
    allow_no_queues: AllowNoQueuesOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    namespace: NamespaceOption = None,
    journal: JournalPathOption = None,
    journal_max_size: JournalMaxSizeOption = "4Gi",
    journal_retention: JournalRetentionOption = "30d",
    lease: LeaseOption = "tidegate",
    listen: ListenOption = ":8080",
    metrics_token_file: MetricsTokenOption = None,
    tls_cert_file: TlsCertOption = None,
    tls_key_file: TlsKeyOption = None,
    metrics_client_ca_file: MetricsCaOption = None,
    identity: IdentityOption = None,
    scheduler_name: SchedulerOption = "tidegate",
    lease_duration: LeaseDurationOption = "15s",
    renew_deadline: RenewDeadlineOption = "10s",
    retry_period: RetryPeriodOption = "2s",
    claims_namespace: ClaimsNamespaceOption = "kube-system",
    policy_period: PolicyPeriodOption = "5s",
    scale_up_delay: ScaleUpDelayOption = "2m",
    ask_nodes_by: AskNodesOption = "pods",
    managed_jobs_namespace_selector: NamespaceSelectorOption = "",
    exclude_namespace: ExcludeNamespaceOption = None,
    log: LogOption = LogForm.AUTO,
    verbose: VerboseOption = False,
    kernels: KernelsOption = Kernels.AUTO,
) -> None:
    """Run Tidegate in a cluster, until SIGTERM.

    SIGHUP reads the policy again, SIGUSR1 logs threads and state, SIGUSR2 turns debug lines on or off.

    \b
    shadow  decides and records, and writes nothing but its Lease
    gate    lets work start and makes it stop; the cluster's scheduler binds
    bind    binds pods whose schedulerName is tidegate

    \b
    Exit codes: 0 stopped; 2 wrong input; 3 a running Kueue owns the work; 69 no API server; 70 a bug.

    \b
    Examples:
      tidegate run --policy kueue --context prod --journal shadow.db
      tidegate run --mode bind --policy tidegate.yaml
      tidegate run --mode gate --policy configmap:tidegate/policy
    """  # noqa: D301 - \b keeps the lines apart
    protection = (metrics_token_file, tls_cert_file, tls_key_file, metrics_client_ca_file)
    with user_errors_reported():
        access = open_access(context, kubeconfig)
        from tidegate.live.election import SCOPE_CLAIMS
        from tidegate.live.service import ServiceOptions

        where, times = namespace or access.namespace, _times(lease_duration, renew_deadline, retry_period)
        settings = ServiceOptions(
            mode=mode,
            lease=_lease_name(lease, where),
            identity=identity or f"{socket.gethostname()}_{secrets.token_hex(4)}",
            journal=journal,
            journal_limits=_journal_limits(journal_max_size, journal_retention),
            scheduler=scheduler_name,
            times=times,
            claims=SCOPE_CLAIMS._replace(namespace=claims_namespace),
            namespaces=namespace_rule(managed_jobs_namespace_selector, exclude_namespace),
        )
        source = _policy_source(mode, policy, where, quota=not allow_no_queues)
        start = _Start(access, settings, open_log(log, verbose=verbose))
        with start.listening(listen, protection):
            watcher, first = start.load_policy(source, read_duration_ms("--policy-period", policy_period))
            start.check_cluster(ask_nodes_by, scale_up_delay)
            start.warm_up(first, kernels)
            start.serve(watcher, first)


class _Start:
    """The phases of the start, reported by the endpoints."""

    def __init__(self, access: Connection, settings: ServiceOptions, log: ServiceLog) -> None:
        from tidegate.live.diagnostics import Diagnostics
        from tidegate.live.startup import Startup

        self._access, self._settings, self._log = access, settings, log
        self._startup, self._diagnostics = Startup(log), Diagnostics(log)
        self._diagnostics.summary = lambda: {"starting": self._startup.phase}
        self._diagnostics.start()

    @contextmanager
    def listening(self, listen: str, protection: Sequence[Path | None]) -> Iterator[None]:
        """Serve the endpoints."""
        from tidegate.live.endpoints import EndpointAccess, Endpoints, ListenAddressError

        if not listen:
            yield
            return
        try:
            endpoints = Endpoints(listen, self._startup.probes, EndpointAccess(*protection))
            endpoints.__enter__()
        except ListenAddressError as error:
            raise CommandError(str(error)) from None
        try:
            yield
        finally:
            endpoints.__exit__()

    def check_cluster(self, ask_nodes_by: str, scale_up_delay: str) -> None:
        """Check how nodes are requested; exit if another scheduler owns the same work."""
        self._startup.begin("looking at the cluster")
        scale_up_delay_ms = read_duration_ms("--scale-up-delay", scale_up_delay)
        self._settings = replace(
            self._settings,
            node_requests=_node_requests(self._access, ask_nodes_by),
            scale_up_delay_ms=scale_up_delay_ms,
        )
        _refuse_conflicts(self._access, self._settings, self._log)

    def load_policy(self, source: PolicySource, every_ms: int) -> tuple[PolicyWatcher, Policy]:
        """Read the policy for the first time."""
        from tidegate.live.policy_sources import PolicyError, PolicyUnreachableError
        from tidegate.live.policy_watcher import PolicyWatcher

        self._startup.begin("reading the policy")
        try:
            watcher = PolicyWatcher(self._access, source, every_ms / 1000)
            return watcher, watcher.first()
        except PolicyError as error:
            raise CommandError(str(error)) from None
        except PolicyUnreachableError as error:
            print_error(
                f"the policy cannot be read: {error}; it may be valid: check the API server and the permissions"
            )
            raise typer.Exit(EXIT_UNREACHABLE) from None

    def warm_up(self, policy: Policy, kernels: Kernels) -> None:
        """Compile and load the kernels."""
        from tidegate.live.kernel_warmup import compile_first, warm_up

        compiled = compiles(kernels, worth=True)
        self._log.info("kernels", compiled=compiled)
        if compiled:
            self._startup.begin("compiling kernels")
            ready = compile_first(self._startup.note_compiling)
            self._log.info("kernels ready" if ready else "compiling kernels in this process", before=ready)
        self._startup.begin("trying kernels" if compiled else "starting")
        warm_up(policy, compiled=compiled)

    def serve(self, watcher: PolicyWatcher, first: Policy) -> None:
        """Run until it is stopped."""
        from tidegate.live.service import LiveService

        service = LiveService(self._settings, self._access, watcher, first, self._log)
        _handle_signals(service)
        self._startup.end(service.probes)
        self._diagnostics.summary = service.summary
        try:
            service.run()
        except Exception as error:  # noqa: BLE001 - every bug is logged
            self._log.error("bug", error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
            raise typer.Exit(EXIT_BUG) from None


def _journal_limits(max_size: str, retention: str) -> JournalLimits:
    from tidegate.live.journal_rotation import LEAST_MAX_BYTES, JournalLimits

    try:
        max_bytes = int(parse_quantity(max_size))
    except UnitError as error:
        raise CommandError(f"--journal-max-size: expected {error}, found {max_size!r}") from None
    if max_bytes < LEAST_MAX_BYTES:
        raise CommandError(f"--journal-max-size: expected {LEAST_MAX_BYTES >> 20}Mi or more, found {max_size}")
    return JournalLimits(max_bytes, read_duration_ms("--journal-retention", retention))


def _times(lease_duration: str, renew_deadline: str, retry_period: str) -> LeaseTimes:
    from tidegate.live.lease import LeaseTimes

    times = LeaseTimes(
        read_duration_ms("--lease-duration", lease_duration) / 1000,
        read_duration_ms("--renew-deadline", renew_deadline) / 1000,
        read_duration_ms("--retry-period", retry_period) / 1000,
    )
    if not times.lease_s > times.renew_s > times.retry_s > 0:
        raise CommandError(
            "expected --lease-duration > --renew-deadline > --retry-period > 0, "
            f"found {lease_duration}, {renew_deadline} and {retry_period}"
        )
    return times


def _node_requests(access: Connection, text: str) -> NodeRequestOptions:
    """Parse --ask-nodes-by; refused if the cluster lacks the API for it."""
    from tidegate.kube.actuator.provisioning import NodeRequestKind, NodeRequestOptions, find_lack
    from tidegate.kube.transport.client import Client

    means, _, named = text.partition(":")
    if means not in set(NodeRequestKind) or bool(named) != (means == NodeRequestKind.REQUEST):
        raise CommandError(
            f"--ask-nodes-by: expected pods, capacity-buffer or provisioning-request:CLASS, found {text!r}"
        )
    by = NodeRequestOptions(NodeRequestKind(means), named)

    async def look() -> str:
        async with Client(access, connections=1) as client:
            return await find_lack(client, by)

    lack = asyncio.run(look()) if by.kind else ""
    if lack:
        raise CommandError(f"--ask-nodes-by {text}: {lack}")
    return by


def _lease_name(text: str, namespace: str) -> LeaseName:
    from tidegate.live.election import LeaseName

    where, _, name = text.rpartition("/")
    if not name or "/" in where:
        raise CommandError(f"--lease: expected NAMESPACE/NAME, found {text!r}")
    return LeaseName(where or namespace, name)


def _policy_source(mode: Mode, text: str, namespace: str, *, quota: bool) -> PolicySource:
    """The policy source: a mode that writes needs queues, a shadow may start without a policy."""
    from tidegate.live.policy_sources import CheckedPolicy, PolicyError, policy_source

    try:
        source = policy_source(text, namespace)
    except PolicyError as error:
        raise CommandError(str(error)) from None
    if mode.writes and not quota:
        return source
    return CheckedPolicy(source, may_be_missing=not mode.writes)


def _refuse_conflicts(access: Connection, settings: ServiceOptions, log: ServiceLog) -> None:
    """Exit if a running Kueue owns the same work and the mode writes."""
    from tidegate.kube.transport.client import Client
    from tidegate.live.conflicting_schedulers import ConflictingScheduler, look_for_kueue

    async def look() -> ConflictingScheduler:
        async with Client(access, connections=2) as client:
            return await look_for_kueue(client, wall_ms())

    conflicts = asyncio.run(look())
    if conflicts.hidden or conflicts.unanswered:
        log.warning("cannot check whether Kueue runs", hidden=conflicts.hidden, error=conflicts.unanswered)
    if conflicts.found and settings.mode.writes:
        found = ", ".join(conflicts.found)
        print_error(
            f"--mode {settings.mode}: a Kueue runs here and owns the same work ({found}); "
            "stop it first, or use --mode shadow, which only watches"
        )
        raise typer.Exit(EXIT_OWNED)
    if conflicts.found:
        log.info("running next to Kueue", found=conflicts.found)


def _handle_signals(service: LiveService) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    signal.signal(signal.SIGHUP, lambda *_: service.reload())
