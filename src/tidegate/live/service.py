"""The live service: standby, leader, standby again, until it is stopped."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.kube.actuator.event_recorder import SCALE_UP_DELAY_MS
from tidegate.kube.actuator.provisioning import NO_NODE_REQUESTS, NodeRequestOptions
from tidegate.kube.mirror.namespaces import ManagedNamespaces, NamespaceRule
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.loop_thread import LoopThread
from tidegate.kube.transport.reflector import ReflectorStats
from tidegate.kube.transport.writes import EventMessage, event_write
from tidegate.kube.world import KubeWorld, WorldOptions
from tidegate.live.clock import SteadyClock
from tidegate.live.decision_log import FailureLog
from tidegate.live.election import SCOPE_CLAIMS, Claiming, Election, LeadershipTerm, LeaseName, steady_s
from tidegate.live.endpoints import Probes
from tidegate.live.handover import decode_shared_handover, read_shared_handover
from tidegate.live.journal_rotation import JournalLimits, RotatingJournal
from tidegate.live.leader_loop import LeaderContext, LeaderLoop
from tidegate.live.lease import LeaseTimes
from tidegate.live.logs import ServiceLog
from tidegate.live.memory_tuning import Collector, give_back_large_blocks, keep_large_blocks
from tidegate.live.metrics import Metrics
from tidegate.live.modes import Mode
from tidegate.live.policy_watcher import PolicyResult, PolicyUpdate, PolicyWatcher
from tidegate.live.scope_claim import scope_of
from tidegate.model.facts import WriteOutcome
from tidegate.model.policy import Policy

#: A loop that made no turn for so long is not alive.
_STUCK_S = 60.0

#: Timeout of writes at the end, and the period of a standby.
_DRAIN_S, _STANDBY_S = 10.0, 0.5


@dataclass(frozen=True)
class ServiceOptions:
    """How the service runs."""

    mode: Mode
    lease: LeaseName
    identity: str
    journal: Path | None = None
    journal_limits: JournalLimits = field(default_factory=JournalLimits)
    scheduler: str = "tidegate"
    times: LeaseTimes = field(default_factory=LeaseTimes)
    claims: LeaseName = SCOPE_CLAIMS  # the object with the claims of all instances
    scale_up_delay_ms: int = SCALE_UP_DELAY_MS  # how long pods wait before nodes are requested
    node_requests: NodeRequestOptions = NO_NODE_REQUESTS
    namespaces: NamespaceRule = NamespaceRule()  # noqa: RUF009 - frozen


def wall_ms() -> int:
    """The time of the wall clock."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Elapsed time, whatever happens to the wall clock."""
    return round(steady_s() * 1000)


class LiveService:
    """Tidegate in a cluster."""

    def __init__(
        self, settings: ServiceOptions, access: Connection, policies: PolicyWatcher, policy: Policy, log: ServiceLog
    ) -> None:
        self.settings, self._access, self._policies, self._policy, self._log = settings, access, policies, policy, log
        self.metrics = Metrics()
        self.election = Election(access, settings.lease, settings.identity, settings.times, _claiming(settings))
        self._collector = Collector()
        self._journal = _open_journal(settings)
        self._journal_problem = ""  # why the journal is degraded, as last logged
        self._stopping = threading.Event()
        self._turned_s = time.monotonic()
        self._world: KubeWorld | None = None
        self._term: LeaderLoop | None = None
        self._counted: dict[str, int] = {}
        self._failures = FailureLog(log)
        self._last_heard: dict[
            str, tuple[int, float]
        ] = {}  # by resource: number of updates, and when the latest arrived
        self._left_out: dict[str, str] = {}  # kinds that may not be listed, as it was said of them
        self._relist = False  # the managed work changed: the cluster has to be relisted
        self._releases = True  # no write is in flight: the next leader may start at once
        self._conflict = ""  # another instance that manages the same work, as last logged

    def stop(self) -> None:
        """Stop it after the pending writes."""
        self._stopping.set()

    def reload(self) -> None:
        """Read the policy again."""
        self._policies.ask()

    def run(self) -> None:
        """Run until it is stopped."""
        self.metrics.start(self.settings.mode)
        self._use_policy(self._policy)
        self._policies.start()
        try:
            self.election.start()
            while not self._stopping.is_set():
                self._stand_by_and_lead()
        finally:
            self._policies.stop()
            self.election.stop(release=self._releases)
            self._log.info("stopped")

    # -- standby and leader ------------------------------------------------------------------------------------

    def _stand_by_and_lead(self) -> None:
        """Watch the cluster and wait for the Lease; then lead until the term ends."""
        clock = SteadyClock(wall_ms, elapsed_ms)
        leadership = LeadershipTerm(self.election)
        may_write = leadership.holds if self.settings.mode.writes else lambda: False
        options = WorldOptions(
            ownership=_ownership(self.settings, self._policy),
            may_write=may_write,
            scale_up_delay_ms=self.settings.scale_up_delay_ms,
            node_requests=self.settings.node_requests,
            when_listed=give_back_large_blocks,
        )
        self._relist = False
        keep_large_blocks()
        self._collector.pause()
        with KubeWorld(self._access, self._policy, clock, random.random, options) as world:
            self._world = world
            self._log.info("waiting for the lease", lease=str(self.settings.lease), identity=self.settings.identity)
            while not self._is_over() and not self.election.wait(_STANDBY_S):
                self._look_after()
            if not self._is_over():
                leadership.begin()
                clock.not_before(self.election.before_ms())
                shared = self._take_over(world, leadership)
                if shared is not None:
                    self._lead(world, shared, leadership)
            self._world = self._term = None
        self._collector.forget()

    def _is_over(self) -> bool:
        return self._relist or self._stopping.is_set()

    def _take_over(self, world: KubeWorld, leadership: LeadershipTerm) -> str | None:
        """Read the handover of the previous leader; None if the Lease is lost or the service stopped before."""
        if not self.settings.mode.writes:
            return ""
        while leadership.holds() and not self._stopping.is_set():
            self._look_after()
            kept = read_shared_handover(self._access, self.settings.lease)
            if isinstance(kept, str):
                world.before = decode_shared_handover(kept)
                return kept
            self._log.warning("cannot read the state of the previous leader", error=kept.text())
            self._stopping.wait(_STANDBY_S)
        return None

    def _lead(self, world: KubeWorld, shared_handover: str, leadership: LeadershipTerm) -> None:
        self._log.info("leading", lease=str(self.settings.lease), transitions=self.election.transitions)
        journal = self._journal
        context = LeaderContext(self.settings.mode, self.settings.lease, self.metrics, self._log)
        term = self._term = LeaderLoop(context, world, journal, shared_handover)
        if journal is not None:
            journal.begin(term.state)
            self._report_journal(journal)
        self._collector.pause()  # the first step applies all objects
        self._releases, clean = False, False
        try:
            term.serve(lambda: self._is_over() or not leadership.holds(), self._look_after)
            clean = True
        finally:
            self._releases = self._drain(world, _DRAIN_S if clean and leadership.holds() else 0.0)
            if journal is not None:
                journal.end()
            self.metrics.end_term()
        if not self._is_over():
            self._log.warning("lost the lease", holder=self.election.holder, error=self.election.problem)

    def _drain(self, world: KubeWorld, most_s: float) -> bool:
        """Wait for writes, so that the Lease can be released; False: it has to expire, as some are in flight."""
        drained = world.drain(most_s)
        if not drained:
            self._log.warning("stopped with writes in flight", writes=world.api.pool.backlog)
        return drained

    # -- periodic tasks ----------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        self._turned_s = time.monotonic()
        for thread in self._threads():
            thread.check()
        self._collector.resume(settled=self._is_settled())
        self.metrics.leader.set(self.election.leads())
        self.metrics.transitions.set(self.election.transitions)
        self._report_conflict()
        self._count_writes()
        if self._world is not None and self._world.needs_relist and not self._relist:
            self._relist = True
            self._log.info("listing the cluster again", why="the labels of a namespace changed whether it is managed")
        if self._journal is not None and self._term is not None:
            self._look_after_journal(self._journal)
        for update in self._policies.take():
            self._hear(update)

    def _threads(self) -> list[LoopThread]:
        """The threads that must run."""
        world = self._world
        return [self.election.thread, self._policies.thread, *([world.api.thread] if world is not None else [])]

    def _report_conflict(self) -> None:
        """Log once that another instance manages the same work, and once that it no longer does."""
        conflict = self.election.conflict
        self.metrics.conflict.set(bool(conflict))
        if conflict and not self._conflict:
            self._log.error("refusing to lead", conflict=conflict)
        elif self._conflict and not conflict:
            self._log.info("conflict is over")
        self._conflict = conflict

    def _look_after_journal(self, journal: RotatingJournal) -> None:
        """Rotate the journal if it is time; a new file begins with a relist of the cluster."""
        self._report_journal(journal)
        if journal.wants_new_file() and not self._relist:
            self._relist = True
            self._log.info("new journal", why="there is room again" if journal.problem else "it has reached its size")

    def _report_journal(self, journal: RotatingJournal) -> None:
        """Report once that steps are not recorded, and once that they are again."""
        self.metrics.journal_degraded.set(bool(journal.problem))
        self.metrics.journal_skipped.set(journal.skipped)
        if bool(journal.problem) == bool(self._journal_problem):
            return
        self._journal_problem = journal.problem
        if journal.problem:
            self._log.warning("journal degraded", file=str(journal.path), error=journal.problem)
            text = f"steps are not recorded, scheduling goes on: {journal.problem}"
            self._record_event(EventMessage("JournalDegraded", text, "Record", warning=True))
        else:
            self._log.info("journal goes on", file=str(journal.path), skipped=journal.skipped)
            self._record_event(EventMessage("JournalGoesOn", f"steps are recorded again in {journal.path}", "Record"))

    def _is_settled(self) -> bool:
        """Whether all kinds are listed, and a leader has made its first step."""
        listed = self._world is not None and self._world.api.listed.is_set()
        return listed and (self._term is None or self._term.steps > 0)

    def _hear(self, update: PolicyUpdate) -> None:
        """Handle an update of the policy; if it is refused or unreachable, the one in force stays."""
        source = self._policies.source.name
        self.metrics.policy_unreachable.set(update.result is PolicyResult.UNREACHABLE)
        if update.result is PolicyResult.REACHABLE:
            self._log.info("policy reachable again", policy=source)
        elif update.policy is not None:
            self._apply_policy(update.policy)
        else:
            refused = update.result is PolicyResult.REFUSED
            self.metrics.policies.labels(update.result).inc()
            if refused:
                self.metrics.policy_bad.set(1)
            say = self._log.error if refused else self._log.warning
            say(f"policy {update.result}", policy=source, error=update.problem)
            reason = "PolicyRefused" if refused else "PolicyUnreachable"
            self._record_event(EventMessage(reason, update.problem, "Reload", warning=True))

    def _apply_policy(self, policy: Policy) -> None:
        self.metrics.policy_bad.set(0)
        if policy == self._policy:
            self._log.info("policy unchanged", digest=self._policy.digest())
            return
        self._use_policy(policy)
        if self._world is not None:
            self._world.change_policy(policy)
            if _ownership(self.settings, policy) != self._world.options.ownership:
                self._relist = True
                self._log.info("listing the cluster again", why="the policy changed which work is followed")
        self._record_event(EventMessage("PolicyTaken", f"policy {policy.digest()} is in force", "Reload"))

    def _use_policy(self, policy: Policy) -> None:
        self._policy = policy
        self.metrics.policies.labels("taken").inc()
        self.metrics.policy.clear()
        self.metrics.policy.labels(policy.name, policy.digest()).set(1)
        self._log.info("policy", source=self._policies.source.name, name=policy.name, digest=policy.digest())

    def _record_event(self, said: EventMessage) -> None:
        """Record an Event about the Lease; a shadow writes none."""
        if self._world is not None and self.settings.mode.writes and self.election.leads():
            now_ms = wall_ms()
            name = f"{self.settings.lease.name}.{now_ms:x}"
            self._world.say(event_write(self.election.ref, said, name, now_ms))

    def _count_writes(self) -> None:
        world = self._world
        if world is None:
            return
        for outcome in WriteOutcome:
            word, count = outcome.name.lower(), world.outcomes[outcome]
            self.metrics.writes.labels(word).inc(max(count - self._counted.get(word, 0), 0))
            self._counted[word] = count
        self.metrics.in_flight.set(world.api.pool.backlog)
        self._failures.note(world.take_failures())
        for kind, stats in world.api.stats_by_kind():
            self.metrics.watch_age_s.labels(kind).set(self._watch_age_s(kind, stats))
            for what in ("lists", "watches", "events", "cuts", "skipped"):
                self.metrics.watched.labels(kind, what).set(getattr(stats, what))
            self.metrics.left_out.labels(kind).set(bool(stats.left_out))
        self._report_failures(world)
        for kind, why in world.api.left_out():
            if self._left_out.get(kind) != why:
                self._log.warning("left out", resource=kind, why=why)
        self._left_out = dict(world.api.left_out())

    def _report_failures(self, world: KubeWorld) -> None:
        """Count objects that could not be handled; the latest is logged with its trace, as it is a bug."""
        guard = world.reconciler.guard
        for kind, failures in guard.failures.items():
            self.metrics.unreadable.labels(kind).inc(failures)
        guard.failures.clear()
        failure, guard.latest = guard.latest, None
        if failure is not None:
            self._log.error("object not handled", object=failure.ref.text, error=failure.error, trace=failure.trace)

    def _watch_age_s(self, kind: str, stats: ReflectorStats) -> float:
        """Time since the latest update or bookmark of a resource; 0 if it is not watched."""
        if stats.absent or stats.left_out:
            return 0.0
        heard, now_s = stats.events + stats.bookmarks, time.monotonic()
        if self._last_heard.get(kind, (-1, 0.0))[0] != heard:
            self._last_heard[kind] = (heard, now_s)
        return now_s - self._last_heard[kind][1]

    # -- called by other threads -------------------------------------------------------------------------------

    @property
    def probes(self) -> Probes:
        """The functions behind the endpoints."""
        return Probes(self._problems, self._unready_reasons, self.metrics.text)

    def summary(self) -> dict[str, object]:
        """A short summary of its state."""
        election, world, term = self.election, self._world, self._term
        told: dict[str, object] = {
            "mode": self.settings.mode.value,
            "identity": self.settings.identity,
            "lease": str(self.settings.lease),
            "leads": election.leads(),
            "term": election.term,
            "holder": election.holder,
            "conflict": election.conflict,
            "policy": self._policy.digest(),
            "loop_turned_s": round(time.monotonic() - self._turned_s, 3),
            "alive": self._problems(),
            "ready": self._unready_reasons(),
        }
        if world is not None:
            told |= {
                "listed": world.api.listed.is_set(),
                "updates_waiting": len(world.api.updates),
                "writes_waiting": world.api.pool.backlog,
                "writes": {outcome.name.lower(): count for outcome, count in world.outcomes.items()},
                "latest_failure": world.latest_failure,
                "watches": world.api.problems(),
            }
        if term is not None:
            told |= {"steps": term.steps, "nodes": len(term.state.node_specs)}
        return told

    def _problems(self) -> list[str]:
        """Why it is not alive."""
        still_s = time.monotonic() - self._turned_s
        stuck = [f"the loop has not turned for {still_s:.0f} s"] if still_s > _STUCK_S else []
        return stuck + [problem for problem in (thread.problem() for thread in self._threads()) if problem]

    def _unready_reasons(self) -> list[str]:
        """Why it is not ready to lead or to take over."""
        world = self._world
        if world is None:
            return ["the cluster is not watched yet"]
        if not world.api.listed.is_set():
            return ["not all kinds are listed yet", *world.api.problems()]
        if self.election.conflict:
            return [self.election.conflict]
        return [f"the lease: {self.election.problem}"] if self.election.problem else []


def _open_journal(settings: ServiceOptions) -> RotatingJournal | None:
    if settings.journal is None:
        return None
    meta = {"mode": settings.mode.value, "identity": settings.identity}
    return RotatingJournal(settings.journal, meta, settings.journal_limits)


def _claiming(settings: ServiceOptions) -> Claiming | None:
    """The claim of the scope, so that no other instance manages the same work; a shadow claims none."""
    if not settings.mode.writes:
        return None
    return Claiming(scope_of(settings.mode, settings.scheduler), settings.claims)


def _ownership(settings: ServiceOptions, policy: Policy) -> Ownership:
    """Which work is managed in a mode: a shadow with queues ignores work without one, and gate mode binds nothing."""
    mode, watches = settings.mode, settings.mode is Mode.SHADOW
    scheduler = "" if mode is Mode.GATE else settings.scheduler
    unqueued = not (watches and policy.shares.queues)
    return Ownership(
        scheduler=scheduler,
        gates=mode is not Mode.BIND,
        watches=watches,
        unqueued=unqueued,
        namespaces=ManagedNamespaces(settings.namespaces),
    )
