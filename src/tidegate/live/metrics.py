"""Prometheus metrics: decisions, durations, queues, quota, watches and writes.

A metric with the meaning of one of Kueue's has its name, so that dashboards and alerts keep working.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

import tidegate
from tidegate.kube.actuator.workload_events import ObjectCounts
from tidegate.live.modes import Mode
from tidegate.live.start_latency import StartLatency
from tidegate.measure.share_tree import BranchUse, share_tree_of
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.units import WHOLE_MILLI
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.workloads import Phase

#: Histogram buckets in seconds: Kueue's waits, times until work is bound or runs, and steps.
_WAITS_S = tuple(2.5 * 2**n for n in range(14))
_SLI_S = (1.0, *_WAITS_S, 43_200.0, 86_400.0)
_STEPS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

#: Kueue's eviction reasons.
_EVICTED = {
    Reason.QUEUE_DRAINED: "ClusterQueueStopped", Reason.NODE_LOST: "NodeFailures", Reason.DEVICE_LOST: "NodeFailures",
}  # fmt: skip
_PREEMPTED = {
    Reason.PREEMPTED_IN_QUEUE: "InClusterQueue", Reason.RECLAIMED_IN_COHORT: "InCohortReclamation",
    Reason.RECLAIMED_WHILE_BORROWING: "InCohortReclaimWhileBorrowing",
    Reason.PREEMPTED_FOR_SHARE: "InCohortFairSharing",
}  # fmt: skip

#: Resources that quota counts in thousandths.
_MILLI = ("cpu", "gpu")

_QUEUE = ("cluster_queue",)
_LOT = ("cohort", "cluster_queue", "flavor", "resource")


class Metrics:
    """All metrics in a registry of their own; read from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._kueue()
        self._own()
        self._objects()
        self._connections()
        self._set: set[tuple[Gauge, tuple[str, ...]]] = set()
        self._unqueued: set[tuple[Gauge, tuple[str, ...]]] = set()
        self._queues: dict[str, str] = {}  # ClusterQueue by LocalQueue
        self._proposes = False  # decisions are not written
        self._latency = StartLatency(
            lambda queue, seconds: self.bound_s.labels(self._cluster_queue(queue)).observe(seconds),
            lambda queue, seconds: self.running_s.labels(self._cluster_queue(queue)).observe(seconds),
        )

    def text(self) -> tuple[bytes, str]:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _kueue(self) -> None:
        self.pending = self._gauge(
            "kueue_pending_workloads", "Number of pending workloads, by queue and status.", (*_QUEUE, "status")
        )
        self.active = self._gauge(
            "kueue_admitted_active_workloads", "Number of workloads that hold quota, by queue.", _QUEUE
        )
        self.nominal = self._gauge("kueue_cluster_queue_nominal_quota", "Nominal quota of a queue.", _LOT)
        self.borrowing = self._gauge("kueue_cluster_queue_borrowing_limit", "Borrowing limit of a queue.", _LOT)
        self.lending = self._gauge("kueue_cluster_queue_lending_limit", "Lending limit of a queue.", _LOT)
        self.usage = self._gauge(
            "kueue_cluster_queue_resource_usage", "Quota in use, by queue, flavor and resource.", _LOT
        )
        self.share = self._gauge(
            "kueue_cluster_queue_weighted_share",
            "Dominant resource share of a queue, divided by its weight.",
            ("cluster_queue", "cohort"),
        )
        self.status = self._gauge(
            "kueue_cluster_queue_status", "1 for the status of a queue: active or pending.", (*_QUEUE, "status")
        )
        self.admitted = self._counter("kueue_admitted_workloads", "Number of workloads admitted.", _QUEUE)
        self.evicted = self._counter(
            "kueue_evicted_workloads",
            "Number of evictions of workloads that held quota, by reason.",
            (*_QUEUE, "reason"),
        )
        whose = ("preempting_cluster_queue", "reason")
        self.preempted = self._counter(
            "kueue_preempted_workloads", "Number of workloads preempted, by the queue of the work that preempts.", whose
        )
        self.attempts = self._counter(
            "kueue_admission_attempts", "Number of steps that decided something, by result.", ("result",)
        )
        self.attempt_s = self._histogram(
            "kueue_admission_attempt_duration_seconds", "Duration of these steps in seconds.", ("result",)
        )
        self.wait_s = self._histogram(
            "kueue_admission_wait_time_seconds", "Time from submission to admission in seconds.", _QUEUE, _WAITS_S
        )

    def _own(self) -> None:
        build = self._gauge("tidegate_build_info", "1, with version and mode as labels.", ("version", "mode"))
        self.build = build
        self.leader = self._gauge("tidegate_leader", "1 if this replica leads.")
        self.transitions = self._gauge("tidegate_lease_transitions", "Number of times that the Lease changed hands.")
        self.step_s = self._histogram(
            "tidegate_step_seconds", "Duration of a step: facts are applied, decisions made.", ()
        )
        self.cycle_s = self._histogram("tidegate_cycle_seconds", "Mean duration of a scheduling cycle in a step.", ())
        self.lag_s = self._histogram(
            "tidegate_lag_seconds", "Time from the arrival of an update to the step that takes it in.", ()
        )
        self.bound_s = self._histogram(
            "tidegate_time_to_bound_seconds", "Time from submission until all pods have a node.", _QUEUE, _SLI_S
        )
        self.running_s = self._histogram(
            "tidegate_time_to_running_seconds", "Time from submission until all pods run.", _QUEUE, _SLI_S
        )
        self.facts = self._counter("tidegate_facts", "Number of facts about the cluster, by kind.", ("kind",))
        self.decisions = self._counter(
            "tidegate_decisions",
            "Number of decisions, by kind and reason; in shadow mode proposals.",
            ("kind", "reason"),
        )
        self.requeued = self._counter(
            "tidegate_requeued_workloads", "Number of workloads that are queued again because a write failed.", _QUEUE
        )
        self.unconfirmed = self._gauge(
            "tidegate_assumed_workloads", "Number of workloads that were started and do not run yet."
        )
        self.unconfirmed_s = self._gauge(
            "tidegate_assumed_oldest_seconds", "Time since the oldest of these was started."
        )
        self.gpus = self._gauge("tidegate_gpus", "Number of GPUs of all nodes: total, and free.", ("state",))
        self.nodes = self._gauge("tidegate_nodes", "Number of nodes.")

    def _objects(self) -> None:
        self.unmanaged = self._gauge(
            "tidegate_unmanaged_pods", "Number of pods on nodes that Tidegate does not manage."
        )
        self.refused = self._gauge(
            "tidegate_refused_objects", "Number of objects that ask for what Tidegate does not support."
        )
        self.bypassed = self._gauge(
            "tidegate_bypassed_objects", "Number of objects that name a queue and run without being admitted."
        )
        self.gates_left = self._gauge(
            "tidegate_gates_left_over", "Number of pods with Tidegate's scheduling gate that belong to no workload."
        )
        self.watch_age_s = self._gauge(
            "tidegate_watch_age_seconds", "Time since the API server last sent something for a resource.", ("resource",)
        )

    def _connections(self) -> None:
        self.writes = self._counter("tidegate_writes", "Number of writes, by outcome.", ("outcome",))
        self.in_flight = self._gauge("tidegate_writes_waiting", "Number of writes that are queued or in flight.")
        self.watched = self._gauge(
            "tidegate_watch_total", "Number of lists, watches, events, cuts and skipped objects.", ("resource", "what")
        )
        self.unreadable = self._counter(
            "tidegate_object_failures", "Failures to handle an object, by resource.", ("resource",)
        )
        self.left_out = self._gauge(
            "tidegate_kind_left_out", "1 if Tidegate may not read a resource and does without it.", ("resource",)
        )
        self.policies = self._counter("tidegate_policy_loads", "Number of policies read, by result.", ("result",))
        self.policy_bad = self._gauge(
            "tidegate_policy_refused", "1 if the latest policy was refused and an older one is in force."
        )
        self.policy_unreachable = self._gauge(
            "tidegate_policy_unreachable", "1: the policy cannot be read now; the one in force stays."
        )
        self.conflict = self._gauge(
            "tidegate_scope_conflict", "1: another instance manages the same work, so this one does not lead."
        )
        self.policy = self._gauge("tidegate_policy_info", "1, with the policy in force.", ("name", "digest"))
        self.journal_degraded = self._gauge(
            "tidegate_journal_degraded", "1: the journal cannot be written; scheduling goes on."
        )
        self.journal_skipped = self._gauge("tidegate_journal_skipped_steps", "Steps that the journal does not have.")
        self.checks = self._counter(
            "tidegate_state_checks", "Number of checks of the whole state, by result.", ("result",)
        )

    def _gauge(self, name: str, told: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(name, told, tuple(labels), registry=self.registry)

    def _counter(self, name: str, told: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, told, tuple(labels), registry=self.registry)

    def _histogram(
        self, name: str, told: str, labels: Iterable[str], buckets: tuple[float, ...] = _STEPS_S
    ) -> Histogram:
        return Histogram(name, told, tuple(labels), registry=self.registry, buckets=buckets)

    def start(self, mode: str) -> None:
        """Set version and mode."""
        self._proposes = mode == Mode.SHADOW
        self.build.labels(tidegate.__version__, mode).set(1)

    # -- each step ---------------------------------------------------------------------------------------------

    def note_step(self, state: ClusterState, events: FactBatch, result: StepResult, took_s: float) -> None:
        """Count a step."""
        self.step_s.observe(took_s)
        self.cycle_s.observe(took_s / max(result.cycles, 1))
        for kind, count in zip(*np.unique(events.kind, return_counts=True), strict=True):
            self.facts.labels(FactKind(int(kind)).name).inc(int(count))
        decisions = result.decisions
        pairs, counts = np.unique(np.stack((decisions.kind, decisions.code)), axis=1, return_counts=True)
        for kind, code, count in zip(pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), strict=True):
            self.decisions.labels(DecisionKind(kind).name, Reason(code).name).inc(count)
        self._queues = {entrance.id: entrance.queue for entrance in state.policy.shares.entrances}
        self._latency.note(state, events)
        if not self._proposes:
            self._note_admissions(state, result, took_s)
            self._note_departures(state, result)

    def _note_admissions(self, state: ClusterState, result: StepResult, took_s: float) -> None:
        kind = DecisionKind.ADMIT if state.quota else DecisionKind.PLACE
        admitted = np.unique(result.decisions.workload[result.decisions.kind == kind])
        if len(result.decisions.id):
            word = "success" if len(admitted) else "inadmissible"
            self.attempts.labels(word).inc()
            self.attempt_s.labels(word).observe(took_s)
        for row in _rows(state, admitted).tolist():
            queue = self._queue_of(state, row)
            self.admitted.labels(queue).inc()
            self.wait_s.labels(queue).observe(max(state.now_ms - int(state.workloads.submitted_ms[row]), 0) / 1000)

    def _note_departures(self, state: ClusterState, result: StepResult) -> None:
        """Count evictions; work whose start could not be written counts as requeued."""
        decisions = result.decisions
        away = (decisions.kind == DecisionKind.PREEMPT) | (decisions.kind == DecisionKind.EVICT)
        for at in np.flatnonzero(away).tolist():
            reason, row = Reason(int(decisions.code[at])), state.workload_numbers.row(int(decisions.workload[at]))
            queue = self._queue_of(state, row) if row != UNKNOWN else ""
            preempted = decisions.kind[at] == DecisionKind.PREEMPT
            if reason is Reason.BIND_FAILED:
                self.requeued.labels(queue).inc()
                continue
            word = "Preempted" if preempted else _EVICTED.get(reason, reason.name)
            self.evicted.labels(queue, word).inc()
            if preempted:
                cause = state.workload_numbers.row(int(decisions.cause[at]))
                by = self._queue_of(state, cause) if cause != UNKNOWN else ""
                self.preempted.labels(by, _PREEMPTED.get(reason, reason.name)).inc()

    def _queue_of(self, state: ClusterState, row: int) -> str:
        """The ClusterQueue of a workload, or the queue that it names."""
        return self._cluster_queue(state.works[int(state.workloads.work_class[row])].queue)

    def _cluster_queue(self, queue: str) -> str:
        return self._queues.get(queue, queue)

    def note_objects(self, counts: ObjectCounts) -> None:
        """Set the counts of objects with faults."""
        self.refused.set(counts.refused)
        self.bypassed.set(counts.bypassed)
        self.gates_left.set(counts.gates_left)
        self.unmanaged.set(counts.unmanaged)

    def end_term(self) -> None:
        """Reset the metrics that only a leader has."""
        self.leader.set(0)
        for gauge in (self.unconfirmed, self.unconfirmed_s, self.refused, self.bypassed, self.gates_left):
            gauge.set(0)
        for gauge, labels in self._set:
            gauge.remove(*labels)
        self._set, self._unqueued = set(), set()

    # -- periodic gauges ---------------------------------------------------------------------------------------

    def follow(self, state: ClusterState) -> None:
        """Set the gauges from the state."""
        table, rows = state.workloads, state.live_workloads()
        assumed = rows[table.phase[rows] == Phase.ASSUMED]
        self.unconfirmed.set(len(assumed))
        oldest_ms = state.now_ms - int(table.since_ms[assumed].min()) if len(assumed) else 0
        self.unconfirmed_s.set(oldest_ms / 1000)
        there = list(state.node_specs)
        self.nodes.set(len(there))
        self.gpus.labels("total").set(int(state.nodes.devices[there].sum()))
        self.gpus.labels("free").set(max(int(state.nodes.left_total[there].sum()), 0) / WHOLE_MILLI)
        now = set[tuple[Gauge, tuple[str, ...]]]()
        if state.quota:
            for branch in share_tree_of(state).branches:
                if branch.is_queue:
                    now |= self._follow_queue(branch, _inadmissible(state, branch.name))
            now |= self._follow_waiting(state, rows[state.quota.queue_requests.queue[table.work_class[rows]] == NONE])
        else:
            now |= self._follow_waiting(state, rows)
        for gauge, labels in self._set - now:
            gauge.remove(*labels)  # of a deleted queue
        self._set = now

    def _follow_queue(self, branch: BranchUse, inadmissible: int) -> set[tuple[Gauge, tuple[str, ...]]]:
        told: list[tuple[Gauge, tuple[str, ...], float]] = [
            (self.pending, (branch.name, "active"), branch.waiting - inadmissible),
            (self.pending, (branch.name, "inadmissible"), inadmissible),
            (self.active, (branch.name,), branch.admitted),
            (self.share, (branch.name, branch.parent), float("inf") if branch.share is None else branch.share),
            (self.status, (branch.name, "active"), not branch.closed),
            (self.status, (branch.name, "pending"), branch.closed),
        ]
        for use in branch.lots:
            lot: tuple[str, ...] = (branch.parent, branch.name, use.lot.flavor, use.lot.resource)
            unit = 1000 if use.lot.resource in _MILLI else 1
            told += [(self.nominal, lot, use.nominal / unit), (self.usage, lot, use.used / unit)]
            for gauge, limit in ((self.borrowing, use.borrow_limit), (self.lending, use.lend_limit)):
                told.append((gauge, lot, float("inf") if limit is None else limit / unit))
        for gauge, labels, value in told:
            gauge.labels(*labels).set(value)
        return {(gauge, labels) for gauge, labels, _ in told}

    def _follow_waiting(self, state: ClusterState, rows: I64) -> set[tuple[Gauge, tuple[str, ...]]]:
        """Set the gauges of work without quota, by the queue that it names, or "default"."""
        counts = dict.fromkeys(self._unqueued, 0.0)
        table = state.workloads
        for w, held, waits in zip(
            table.work_class[rows].tolist(),
            (table.held_code[rows] != 0).tolist(),
            (table.phase[rows] == Phase.PENDING).tolist(),
            strict=True,
        ):
            queue = state.works[w].queue
            key = (self.pending, (queue, "inadmissible" if held else "active")) if waits else (self.active, (queue,))
            counts[key] = counts.get(key, 0.0) + 1
        for (gauge, labels), count in counts.items():
            gauge.labels(*labels).set(count)
        self._unqueued = {key for key, count in counts.items() if count}
        return set(counts)


def _rows(state: ClusterState, numbers: I64) -> I64:
    rows = state.workload_numbers.rows(numbers)
    known: I64 = rows[rows != UNKNOWN]
    return known


def _inadmissible(state: ClusterState, queue: str) -> int:
    """How many workloads of a queue were tried and wait until something changes."""
    table, rows = state.workloads, state.live_workloads()
    branch = state.quota.quota_node_rows.get(f"queue/{queue}", -1)
    here = state.quota.queue_requests.queue[table.work_class[rows]] == branch
    return int(np.count_nonzero(here & (table.phase[rows] == Phase.PENDING) & (table.held_code[rows] != 0)))
