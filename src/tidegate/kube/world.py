"""A Kubernetes cluster as a `World`: facts from informers, decisions as writes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from tidegate.journal.quota_names import quota_names_of
from tidegate.kube.actuator.event_recorder import SCALE_UP_DELAY_MS
from tidegate.kube.actuator.event_text import blocked
from tidegate.kube.actuator.pending_writes import PendingWrite, WriteKind, evicted_pod
from tidegate.kube.actuator.provisioning import NO_NODE_REQUESTS, NodeRequestOptions
from tidegate.kube.mirror.dra import CLAIM_KINDS, SLICES, ClaimObject
from tidegate.kube.mirror.handover_annotation import MOST_BYTES, HandoverNote, annotated, read_note
from tidegate.kube.mirror.handover_check import HandoverCheck
from tidegate.kube.mirror.job_adapters import JOB, KINDS, JobAdapter
from tidegate.kube.mirror.jobs import JobObject, see_job
from tidegate.kube.mirror.namespaces import NAMESPACES
from tidegate.kube.mirror.nodes import NodeObject, NodeReader
from tidegate.kube.mirror.object_guard import ObjectFailure, failure_of, guarded
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.pod_spec_cache import PodSpecCache
from tidegate.kube.mirror.pods import (
    PodObject,
    ProtobufPods,
    SeenPod,
    UnmanagedPod,
    note_in,
    see_listed,
    see_pod,
)
from tidegate.kube.mirror.queue_objects import AROUND_KINDS, QUEUE_KINDS, QueueObject, QueueObjects, ReadQueueObjects
from tidegate.kube.reconciler import Reconciler
from tidegate.kube.takeover import HandoverState, Takeover
from tidegate.kube.transport.api_thread import ApiThread, WriteReport
from tidegate.kube.transport.backoff import Jitter
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.protobuf import ListedPod
from tidegate.kube.transport.reflector import ReflectorOptions, WatchedKind
from tidegate.kube.transport.resources import NODES, PODS, Resource
from tidegate.kube.transport.update_queue import Update
from tidegate.kube.transport.write_pool import BUDGET, WriteLimits
from tidegate.kube.transport.writes import Ref, Write
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.manifests.cluster_defaults import NO_DEFAULTS
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.model.decisions import NOBODY, DecisionBatch
from tidegate.model.facts import NO_FACTS, FactBatch, WriteOutcome
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy

#: Writes that may wait or be in flight while Events and conditions are added.
_SAID_AT_ONCE = 64

#: Writes that carry the handover annotation.
_NOTED = (WriteKind.START, WriteKind.STOP, WriteKind.BIND, WriteKind.UNGATE)

#: The kind that failures to decode queue objects are counted as.
_POLICY = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)

#: How long a poll without a timer waits, so that the loop can be stopped.
_BREATH_MS = 500


#: Writes that failed and were not reported yet, at most.
_MOST_FAILURES = 1_000


class WriteFailure(NamedTuple):
    """A write that failed, or whose outcome is unknown."""

    write: str  # the kind of write
    object: str
    outcome: str  # failed or unknown
    message: str  # of the server


@dataclass(frozen=True)
class WorldOptions:
    """How a cluster is watched and written to."""

    ownership: Ownership = Ownership()  # noqa: RUF009 - frozen
    limits: WriteLimits = WriteLimits()  # noqa: RUF009 - a tuple
    reflector_options: ReflectorOptions = ReflectorOptions()  # noqa: RUF009 - frozen
    batch_ms: int = 10  # updates that arrive this soon after the first are handled in one batch
    scale_up_delay_ms: int = SCALE_UP_DELAY_MS  # how long pods wait before node autoscalers are asked for nodes
    node_requests: NodeRequestOptions = NO_NODE_REQUESTS
    queues: bool = False  # the policy is the cluster's Kueue objects
    when_listed: Callable[[], object] = lambda: (
        None
    )  # called when all kinds are listed: no large list is read after that
    may_write: Callable[[], bool] = lambda: True  # checked before each write; once False, it stays False


class KubeWorld:
    """A Kubernetes cluster as a world. Use it in a with statement."""

    def __init__(
        self,
        access: Connection,
        policy: Policy,
        clock: Callable[[], int],
        jitter: Jitter,
        options: WorldOptions | None = None,
    ) -> None:
        self.options = options = options or WorldOptions()
        self.pod_specs = PodSpecCache()
        self.reconciler = Reconciler(self.options.ownership, self.options.scale_up_delay_ms, self.options.node_requests)
        self._write_outcomes = WriteOutcomes(self.reconciler)
        self._policy, self._policies, self._clock = policy, [policy], clock  # in force, and not reported yet
        self._now_ms = 0
        self._queue_objects = QueueObjects()
        self._namespaces = options.ownership.namespaces
        policy_kinds = AROUND_KINDS + (QUEUE_KINDS if options.queues else ())
        if self._namespaces.needs_labels and NAMESPACES not in policy_kinds:
            policy_kinds += (NAMESPACES,)
        # Kinds of updates by number, in the order in which they are handled.
        self._claims_at = len(policy_kinds)
        self._nodes_at = self._claims_at + len(CLAIM_KINDS)
        self._pods_at = self._nodes_at + 1 + len(KINDS)
        self._cluster_defaults = NO_DEFAULTS
        self._unknown_namespace: dict[str, Update] = {}  # by uid: work in namespaces that are not listed yet
        self._namespace_names: dict[str, str] = {}  # by uid
        self.needs_relist = False  # a namespace is managed now, or no longer: relist the cluster
        self._jobs: dict[
            str, tuple[JobAdapter, JobObject]
        ] = {}  # by uid: managed jobs, decoded again when the defaults change
        self.policy_findings: tuple[str, ...] = ()  # why the latest objects are not in force; empty: they are
        self.watched_kinds = self._watched_kinds(policy_kinds)
        self.api = ApiThread(
            access,
            self.watched_kinds,
            jitter,
            limits=options.limits,
            reflector_options=options.reflector_options,
            may_write=options.may_write,
        )
        self._notes: dict[int, str] = {}  # by number of the workload: its handover annotation, until it is written
        self._found_notes: dict[str, str] = {}  # by uid: annotations of the previous leader; only until the first sync
        self._synced = False
        self.before = HandoverState()
        self.outcomes = dict.fromkeys(WriteOutcome, 0)
        self.latest_failure = ""
        self._failures: deque[WriteFailure] = deque(maxlen=_MOST_FAILURES)

    def _watched_kinds(self, policy_kinds: tuple[Resource, ...]) -> list[WatchedKind]:
        kinds = [
            *(WatchedKind(kind, QueueObject, partial(_kept, kind), optional=True) for kind in policy_kinds),
            *(WatchedKind(kind, ClaimObject, lambda thing: thing, optional=True) for kind in CLAIM_KINDS),
            WatchedKind(NODES, NodeObject, NodeReader().read),
            *(
                WatchedKind(adapter.resource, JobObject, self._shrink_job, optional=adapter is not JOB)
                for adapter in KINDS
            ),
            WatchedKind(
                PODS, PodObject, self._shrink_pod, pages=ProtobufPods(self.pod_specs, self.options.ownership.ignores)
            ),
        ]
        return [watched._replace(shrink=guarded(watched.resource, watched.shrink)) for watched in kinds]

    def __enter__(self) -> Self:
        self.api.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.api.stop()

    # -- the protocol ------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time; it never goes back."""
        self._now_ms = max(self._now_ms, self._clock())
        return self._now_ms

    def poll(self, until_ms: int | None) -> FactBatch:
        """The facts since the last poll; waits for updates, but not beyond `until_ms`, and never for long."""
        if not self.api.listed.is_set():
            return self._await_lists()
        wait_ms = _BREATH_MS if until_ms is None else min(max(until_ms - self.now_ms(), 0), _BREATH_MS)
        if self.api.updates.wait(wait_ms / 1000) and self.options.batch_ms:
            time.sleep(self.options.batch_ms / 1000)
        return self._take_facts()

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Write the decisions."""
        self.reconciler.decide(decisions)
        self._send()

    def change_policy(self, policy: Policy) -> None:
        """Put another policy in force from the next poll on."""
        self._policy = policy
        self._policies.append(policy)
        self.api.updates.note(None)

    def say(self, write: Write) -> None:
        """Make a write that no decision depends on."""
        self.api.send([PendingWrite(WriteKind.REPORT, write, (), NOBODY)])

    def take_failures(self) -> list[WriteFailure]:
        """Writes that failed since the last call, or whose outcome is unknown; of very many, the latest."""
        failures = list(self._failures)
        self._failures.clear()
        return failures

    def note(self, number: int, text: str) -> None:
        """Set the handover annotation that the next write to the workload's object carries."""
        self._notes[number] = text

    def drain(self, most_s: float) -> bool:
        """Wait so long for pending writes, then send nothing more; False: some are still in flight."""
        return self.api.drain(most_s)

    # -- the previous leader -----------------------------------------------------------------------------------

    def _keep_note(self, uid: str, text: str | None) -> None:
        """Keep the handover annotation of the previous leader; later ones are our own."""
        if self._synced:
            return
        if text and len(text) <= MOST_BYTES:
            self._found_notes[uid] = text
        else:
            self._found_notes.pop(uid, None)
        if len(self._found_notes) > 2 * len(self.api.updates) + 1_000:  # a standby may run for months
            self._found_notes = {uid: found for uid, found in self._found_notes.items() if uid in self.api.updates}

    def _take_over(self) -> None:
        """At the first sync, take over the decisions of the previous leader."""
        self._synced = True
        found, self._found_notes = self._found_notes, {}

        def note_of(uid: str) -> HandoverNote | None:
            return read_note(found.pop(uid)) if uid in found else None

        labels_of = self.reconciler.node_registry.labels_of
        check = HandoverCheck(note_of, self._policy.shares, labels_of, self.now_ms())
        Takeover(self.reconciler).resume(check, self.before)

    # -- updates -----------------------------------------------------------------------------------------------

    def _await_lists(self) -> FactBatch:
        """Report no facts, so that nothing is decided, before every kind has been listed once."""
        self.api.listed.wait(_BREATH_MS / 1000)
        if self.api.failure is not None:
            raise self.api.failure
        return self._take_facts() if self.api.listed.is_set() else NO_FACTS

    def _take_facts(self) -> FactBatch:
        if not self._synced:
            self.options.when_listed()
        news, notes = self.api.updates.take()
        for note in notes:
            if isinstance(note, WriteReport):
                self._hear(note)
            elif isinstance(note, BaseException):
                raise note
        news.sort(key=lambda one: one.kind)
        told = self._read_policy(news)
        claims = any(self._claims_at <= one.kind < self._nodes_at for one in news)
        news = [*reversed(news), *reversed(self._take_known_namespace())]
        while news:  # of a large cluster there are many: each is freed once it is handled
            self._see_guarded(news.pop())
        if claims:
            with self.reconciler.guard.over(Ref(SLICES, "", "")):
                self.reconciler.settle_claims()
        if not self._synced:
            self._take_over()
        self._send()
        facts = self.reconciler.take_facts()
        if told is not None and self.options.queues and not self.policy_findings:
            self._policies = [self._policy]
        for policy in self._policies:
            facts.policies.append(policy)
            self.reconciler.name_quota(quota_names_of(policy.shares), policy.shares.flavors)
        self._policies = []
        return facts.batch(self.now_ms())

    def _read_policy(self, news: list[Update]) -> ReadQueueObjects | None:
        """Read queue objects and cluster defaults; None if they mean what they meant before."""
        for one in news:
            if one.kind < self._claims_at and not isinstance(one.thing, ObjectFailure):
                assert one.thing is None or isinstance(one.thing, dict)
                self._queue_objects.see(one.uid, one.thing)
                if self.watched_kinds[one.kind].resource is NAMESPACES:
                    self._see_namespace(one.uid, one.thing)
        told = None
        with self.reconciler.guard.over(Ref(_POLICY, "", "")):
            told = self._queue_objects.read()
        if told is not None:
            self._handle_refusal(told)
        return told

    def _see_namespace(self, uid: str, thing: dict[str, Any] | None) -> None:
        """Handle an update of a namespace; None: it was deleted."""
        meta = thing["metadata"] if thing is not None else {}
        name = self._namespace_names[uid] = meta.get("name") or self._namespace_names.get(uid, "")
        changed = self._namespaces.see(name, None if thing is None else dict(meta.get("labels") or {}))
        self.needs_relist = self.needs_relist or changed
        if thing is None:
            del self._namespace_names[uid]

    def _take_known_namespace(self) -> list[Update]:
        """Updates of work whose namespace is listed now, and was not when they arrived."""
        found = [one for one in self._unknown_namespace.values() if self._namespaces.knows(self._ref(one).namespace)]
        for one in found:
            del self._unknown_namespace[one.uid]
        return found

    def _handle_refusal(self, told: ReadQueueObjects) -> None:
        """Decode managed jobs again under new cluster defaults; invalid queue objects leave the old ones in force."""
        if told.around != self._cluster_defaults:
            self._cluster_defaults = told.around
            for uid, (adapter, thing) in list(self._jobs.items()):
                with self.reconciler.guard.over(Ref(adapter.resource, thing.metadata.namespace, thing.metadata.name)):
                    self.reconciler.see_job(uid, see_job(thing, adapter, self._cluster_defaults))
        if self.options.queues:
            self.policy_findings = told.findings if self._synced else ()
            if not self.policy_findings:
                self._policy = msgspec.structs.replace(self._policy, shares=told.shares)

    def _ref(self, news: Update) -> Ref:
        """The object that an update is about."""
        thing, resource = news.thing, self.watched_kinds[news.kind].resource
        if isinstance(thing, SeenPod):
            return thing.ref
        if isinstance(thing, JobObject | ClaimObject):
            return Ref(resource, thing.metadata.namespace, thing.metadata.name, news.uid)
        return Ref(resource, "", thing.name if isinstance(thing, Node) else "", news.uid)

    def _see_guarded(self, news: Update) -> None:
        """Handle one update under the guard; its reference is made only on a failure, as there are many updates."""
        try:
            self._see(news)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - data from outside
            self.reconciler.guard.note(failure_of(self._ref(news), error))

    def _see(self, news: Update) -> None:
        thing = news.thing
        self._unknown_namespace.pop(news.uid, None)
        if isinstance(thing, UnmanagedPod):
            self.reconciler.see_pod(news.uid, thing)
            return
        if isinstance(thing, JobObject | SeenPod) and not self._namespaces.knows(self._ref(news).namespace):
            self._unknown_namespace[news.uid] = news
        if isinstance(thing, ObjectFailure):
            self.reconciler.guard.note(thing)
        elif self._claims_at <= news.kind < self._nodes_at:
            assert thing is None or isinstance(thing, ClaimObject)
            self.reconciler.see_claim(CLAIM_KINDS[news.kind - self._claims_at], news.uid, thing)
        elif news.kind == self._nodes_at:
            assert thing is None or isinstance(thing, Node)
            self.reconciler.see_node(news.uid, thing)
        elif self._nodes_at < news.kind < self._pods_at:
            assert thing is None or isinstance(thing, JobObject)
            self._see_job(news.uid, KINDS[news.kind - self._nodes_at - 1], thing)
        elif news.kind == self._pods_at:
            assert thing is None or isinstance(thing, SeenPod)
            self.reconciler.see_pod(news.uid, thing)

    def _shrink_job(self, job: JobObject) -> JobObject:
        self._keep_note(job.metadata.uid, (job.metadata.annotations or {}).get(HANDOVER_NOTE))
        return job.kept()

    def _shrink_pod(self, pod: PodObject | ListedPod) -> SeenPod | UnmanagedPod:
        if isinstance(pod, PodObject):
            self._keep_note(pod.metadata.uid, (pod.metadata.annotations or {}).get(HANDOVER_NOTE))
            return see_pod(pod, self.pod_specs)
        seen = see_listed(pod, self.pod_specs)
        if isinstance(seen, SeenPod):
            self._keep_note(seen.uid, note_in(pod))
        return seen

    def _see_job(self, uid: str, adapter: JobAdapter, thing: JobObject | None) -> None:
        self.reconciler.see_job(uid, None if thing is None else see_job(thing, adapter, self._cluster_defaults))
        if thing is not None and self.reconciler.has_job(uid):
            self._jobs[uid] = (adapter, thing)
        else:
            self._jobs.pop(uid, None)

    def _hear(self, carried: WriteReport) -> None:
        outcome = carried.result.outcome
        assert isinstance(carried.pending, PendingWrite)
        self.outcomes[outcome] += 1
        if outcome is not WriteOutcome.DONE:
            failure = _failure(carried.pending, outcome, carried.result.answer.text())
            self.latest_failure = f"{failure.write} of {failure.object}: {failure.message}"
            self._failures.append(failure)
        if BUDGET in carried.result.answer.causes:
            self.reconciler.say(evicted_pod(carried.pending), blocked(carried.result.answer.message))
        with self.reconciler.guard.over(Ref(PODS, "", "", carried.pending.write.key)):
            self._write_outcomes.settle(carried.pending, outcome)

    def _send(self) -> None:
        writes = self.reconciler.take_writes()
        writes += self.reconciler.take_events(_SAID_AT_ONCE - self.api.pool.backlog, self.now_ms())
        if writes and self.options.may_write():  # a term that ended does not come back in this world
            self.api.send(self._annotated(writes))

    def _annotated(self, writes: list[PendingWrite]) -> list[PendingWrite]:
        """Pending writes with their handover annotations; pods of a job with an annotation need none."""
        started = {pending.workload for pending in writes if pending.write_kind is WriteKind.START}
        sent = []
        for pending in writes:
            text = self._notes.get(pending.workload)
            if (
                text is not None
                and pending.write_kind in _NOTED
                and not (_is_of_pod(pending) and pending.workload in started)
            ):
                job = self._jobs.get(pending.write.key)
                meta = job[1].metadata if job is not None else None
                pending = pending._replace(write=annotated(pending.write, text, meta))  # noqa: PLW2901
            sent.append(pending)
        for number in started:
            self._notes.pop(number, None)
        return sent


def _failure(pending: PendingWrite, outcome: WriteOutcome, message: str) -> WriteFailure:
    ref = pending.write.ref
    what = ref.text if ref is not None else pending.write.key
    return WriteFailure(pending.write_kind.name.lower(), what, outcome.name.lower(), message)


def _kept(resource: Resource, thing: QueueObject) -> dict[str, Any]:
    return thing.kept(resource)


def _is_of_pod(pending: PendingWrite) -> bool:
    return pending.write_kind in (WriteKind.BIND, WriteKind.UNGATE)
