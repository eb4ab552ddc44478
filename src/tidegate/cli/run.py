"""`tidegate run`: Tidegate in a cluster, watching, gating or binding.

Must not know: how anything is decided, followed or written.
"""

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

from tidegate.cli.errors import EXIT_BUG, EXIT_OWNED, EXIT_UNREACHABLE, CommandError, print_error, user_errors_reported
from tidegate.cli.kube_options import ContextOption, KubeconfigOption, open_access, wall_ms
from tidegate.cli.namespace_options import ExcludeNamespaceOption, NamespaceSelectorOption, namespace_rule
from tidegate.cli.shared_options import Kernels, KernelsOption, read_duration_ms
from tidegate.cli.simulate_runner import compiles
from tidegate.live.logs import Log, LogForm, open_log
from tidegate.live.modes import Mode
from tidegate.model.units import UnitError, parse_quantity

if TYPE_CHECKING:
    from tidegate.kube.actuator.provisioning import NodeRequestOptions
    from tidegate.kube.transport.connection import Connection
    from tidegate.live.election import LeaseName
    from tidegate.live.journal_rotation import JournalLimits
    from tidegate.live.lease import LeaseTimes
    from tidegate.live.policy_sources import PolicySource
    from tidegate.live.policy_watcher import PolicyWatcher
    from tidegate.live.service import Service, ServiceOptions
    from tidegate.model.policy import Policy


ModeOption = Annotated[Mode, typer.Option(help="How much it does; shadow writes nothing but its Lease.")]
PolicySourceOption = Annotated[
    str,
    typer.Option(
        metavar="SOURCE",
        help="A tidegate.yaml, a folder of manifests, configmap:NAMESPACE/NAME, or kueue: the cluster's objects.",
    ),
]
NamespaceOption = Annotated[
    str | None, typer.Option(help="Of the Lease and ConfigMap; the context's if not named.", show_default=False)
]
JournalPathOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the journal here.", show_default=False)
]
JournalMaxSizeOption = Annotated[
    str, typer.Option(metavar="SIZE", help="Most that all journal files take together; the oldest are removed.")
]
JournalRetentionOption = Annotated[
    str, typer.Option(metavar="DURATION", help="How long journals of earlier terms are kept.")
]
AllowNoQueuesOption = Annotated[
    bool, typer.Option("--allow-no-queues", help="Gate or bind though the policy has no queues, without any quota.")
]
LeaseOption = Annotated[str, typer.Option(metavar="[NAMESPACE/]NAME", help="The Lease that replicas share.")]
ListenOption = Annotated[
    str, typer.Option(metavar="[HOST]:PORT", help="Answer /healthz, /readyz and /metrics here; '' for none.")
]
AskNodesOption = Annotated[
    str,
    typer.Option(
        metavar="MEANS",
        help="How nodes are asked for a suspended job: pods (it has none yet), capacity-buffer, "
        "or provisioning-request:CLASS.",
    ),
]
IdentityOption = Annotated[
    str | None,
    typer.Option(help="This replica; the host with a random end if not named.", show_default=False),
]


SchedulerOption = Annotated[str, typer.Option(help="The schedulerName of pods that are ours to bind.")]
LeaseDurationOption = Annotated[str, typer.Option(help="After which others may take over.")]
RenewDeadlineOption = Annotated[str, typer.Option(help="After which a leader that cannot renew stops writing.")]
RetryPeriodOption = Annotated[str, typer.Option(help="Between two tries to take or renew the Lease.")]
ClaimsNamespaceOption = Annotated[
    str, typer.Option(help="Where instances claim the work that they manage; the same for all of a cluster.")
]
PolicyPeriodOption = Annotated[
    str, typer.Option(help="Between two looks at files of the policy; objects of the cluster are watched.")
]
PatienceOption = Annotated[
    str, typer.Option(help="How long work waits before nodes are requested for it; as long as nodes take to start.")
]
LogOption = Annotated[LogForm, typer.Option(help="How lines look; readable on a terminal, else JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log every step, also those without decisions.")]
MetricsTokenOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="/metrics asks for the bearer token in it.", show_default=False)
]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Listen with TLS, with this certificate.", show_default=False)
]
TlsKeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key.", show_default=False)]
MetricsCaOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="/metrics asks for a client certificate of this CA.", show_default=False),
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
    patience: PatienceOption = "2m",
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
        where, times = namespace or access.namespace, _times(lease_duration, renew_deadline, retry_period)
        settings = _settings(mode, _lease_name(lease, where), identity, times)
        limits, claims = _journal_limits(journal_max_size, journal_retention), _claims_at(claims_namespace)
        settings = replace(settings, journal=journal, journal_limits=limits, scheduler=scheduler_name, claims=claims)
        source = _policy_source(mode, policy, where, quota=not allow_no_queues)
        settings = replace(settings, namespaces=namespace_rule(managed_jobs_namespace_selector, exclude_namespace))
        start = _Start(access, settings, open_log(log, verbose=verbose))
        with start.listening(listen, protection):
            follower, first = start.load_policy(source, read_duration_ms("--policy-period", policy_period))
            start.look_around(ask_nodes_by, patience)
            start.warm_up_and_serve(follower, first, kernels)


class _Start:
    """The steps of a start, with endpoints that say which one it is at."""

    def __init__(self, access: Connection, settings: ServiceOptions, log: Log) -> None:
        from tidegate.live.diagnostics import Diagnostics
        from tidegate.live.startup import Startup

        self._access, self._settings, self._log = access, settings, log
        self._startup, self._diagnostics = Startup(log), Diagnostics(log)
        self._diagnostics.summary = lambda: {"starting": self._startup.phase}
        self._diagnostics.start()

    @contextmanager
    def listening(self, listen: str, protection: Sequence[Path | None]) -> Iterator[None]:
        """Answer over HTTP, protected as the files say."""
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

    def look_around(self, ask_nodes_by: str, patience: str) -> None:
        """See how nodes are asked for and after how long; end where another scheduler owns the same work."""
        self._startup.begin("looking at the cluster")
        patience_ms = read_duration_ms("--patience", patience)
        self._settings = replace(
            self._settings, nodes_by=_nodes_by(self._access, ask_nodes_by), patience_ms=patience_ms
        )
        _refuse_rivals(self._access, self._settings, self._log)

    def load_policy(self, source: PolicySource, every_ms: int) -> tuple[PolicyWatcher, Policy]:
        """Read the policy for the first time."""
        self._startup.begin("reading the policy")
        return _load_policy(self._access, source, every_ms)

    def warm_up_and_serve(self, follower: PolicyWatcher, first: Policy, kernels: Kernels) -> None:
        """Have the kernels ready, then run until it is told to stop."""
        self._warm_up(first, kernels)
        self._serve(follower, first)

    def _warm_up(self, policy: Policy, kernels: Kernels) -> None:
        """Have the kernels ready before it leads."""
        from tidegate.live.kernel_warmup import compile_first, warm_up

        compiled = compiles(kernels, worth=True)
        self._log.info("kernels", compiled=compiled)
        if compiled:
            self._startup.begin("compiling kernels")
            ready = compile_first(self._startup.note_compiling)
            self._log.info("kernels ready" if ready else "compiling kernels in this process", before=ready)
        self._startup.begin("trying kernels" if compiled else "starting")
        warm_up(policy, compiled=compiled)

    def _serve(self, follower: PolicyWatcher, first: Policy) -> None:
        """Run until it is told to stop."""
        from tidegate.live.service import Service

        service = Service(self._settings, self._access, follower, first, self._log)
        _obey_signals(service)
        self._startup.end(service.probes)
        self._diagnostics.summary = service.summary
        try:
            service.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said in the form of the log
            self._log.error("bug", error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
            raise typer.Exit(EXIT_BUG) from None


def _settings(mode: Mode, lease: LeaseName, identity: str | None, times: LeaseTimes) -> ServiceOptions:
    from tidegate.live.service import ServiceOptions

    named = identity or f"{socket.gethostname()}_{secrets.token_hex(4)}"
    return ServiceOptions(mode=mode, lease=lease, identity=named, times=times)


def _claims_at(namespace: str) -> LeaseName:
    """The object with the claims of all instances."""
    from tidegate.live.election import SCOPE_CLAIMS

    return SCOPE_CLAIMS._replace(namespace=namespace)


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


def _nodes_by(access: Connection, text: str) -> NodeRequestOptions:
    """How nodes are asked for; refused where the cluster has not what it takes."""
    from tidegate.kube.actuator.provisioning import NodeRequestKind, NodeRequestOptions
    from tidegate.kube.transport.client import Client
    from tidegate.live.autoscaler_check import find_lack

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
    """Where the policy comes from: a mode that writes needs queues, a shadow may begin before there is a policy."""
    from tidegate.live.policy_sources import MayBeMissing, PolicyError, WithQueues, policy_source

    try:
        source = policy_source(text, namespace)
    except PolicyError as error:
        raise CommandError(str(error)) from None
    if mode.writes:
        return WithQueues(source) if quota else source
    return MayBeMissing(source)


def _load_policy(access: Connection, source: PolicySource, every_ms: int) -> tuple[PolicyWatcher, Policy]:
    from tidegate.live.policy_sources import PolicyError, PolicyUnreachableError
    from tidegate.live.policy_watcher import PolicyWatcher

    try:
        follower = PolicyWatcher(access, source, every_ms / 1000)
        return follower, follower.first()
    except PolicyError as error:
        raise CommandError(str(error)) from None
    except PolicyUnreachableError as error:
        print_error(
            f"the policy cannot be read: {error}; the policy may be fine: check the API server, and what we may read"
        )
        raise typer.Exit(EXIT_UNREACHABLE) from None


def _refuse_rivals(access: Connection, settings: ServiceOptions, log: Log) -> None:
    """One owner for one object: where a Kueue runs, only the mode that writes nothing may."""
    from tidegate.kube.transport.client import Client
    from tidegate.live.conflicting_schedulers import ConflictingScheduler, look_for_kueue

    async def look() -> ConflictingScheduler:
        async with Client(access, connections=2) as client:
            return await look_for_kueue(client, wall_ms())

    sighting = asyncio.run(look())
    if sighting.hidden or sighting.unanswered:
        log.warning("cannot check whether Kueue runs", hidden=sighting.hidden, trouble=sighting.unanswered)
    if sighting.found and settings.mode.writes:
        found = ", ".join(sighting.found)
        print_error(
            f"--mode {settings.mode}: a Kueue runs here and owns the same work ({found}); "
            "stop it first, or use --mode shadow, which only watches"
        )
        raise typer.Exit(EXIT_OWNED)
    if sighting.found:
        log.info("running next to Kueue", found=sighting.found)


def _obey_signals(service: Service) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    signal.signal(signal.SIGHUP, lambda *_: service.reload())
