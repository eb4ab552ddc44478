"""Outcomes of writes: each becomes a fact for the engine, the next write, or a retry of the same write."""

from __future__ import annotations

from tidegate.kube.actuator.pending_writes import PendingWrite, WriteKind
from tidegate.kube.mirror.workload_pods import WorkloadPods, WorkloadStage
from tidegate.kube.reconciler import Reconciler
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import FactKind, WriteOutcome

#: Writes about one pod of a workload.
_OF_ONE = (WriteKind.BIND, WriteKind.UNGATE, WriteKind.ALLOCATE)

#: Writes that are retried even after a definite failure: nothing else would cause them.
_NEEDED = (WriteKind.STOP, WriteKind.TRIM)

#: How often a start is retried before another placement is decided.
_MOST_STARTS = 5


class WriteOutcomes:
    """Handles the outcomes of writes."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    def settle(self, pending: PendingWrite, outcome: WriteOutcome) -> None:
        """Handle the outcome of a write; an unknown or needed write is retried."""
        workload, of_one = self._reconciler.workloads.get(pending.workload), pending.write_kind in _OF_ONE
        if workload is None or (of_one and not workload.is_filled(pending.slot, pending.write.key)):
            return  # it ended, or another pod with a write of its own fills the slot
        workload.stopping = workload.stopping and pending.write_kind is not WriteKind.STOP
        if (
            pending.write_kind is WriteKind.START
            and outcome is WriteOutcome.FAILED
            and self._is_wanted(workload, pending)
        ):
            self._fail_to_start(workload, pending)
            return
        self._settle_write(workload, pending, outcome)

    def _settle_write(self, workload: WorkloadPods, pending: PendingWrite, outcome: WriteOutcome) -> None:
        """Report the outcome of a write; retry it if it is still wanted."""
        for decision in pending.decisions:
            if outcome is not WriteOutcome.UNKNOWN or not pending.again:  # an unknown outcome is reported once
                self._reconciler.facts.outcome(decision, outcome)
        if outcome is WriteOutcome.DONE:
            self._follow_done(workload, pending)
            return
        if pending.write_kind in _OF_ONE and outcome is WriteOutcome.FAILED:
            self._fail_one(workload, pending)
        if pending.write_kind is WriteKind.UNDO:
            self._reconciler.actuator.end_undoing(workload)
        elif pending.write_kind is WriteKind.NOTE_SIZE:
            self._note_size_again(workload, pending)
        elif (outcome is WriteOutcome.UNKNOWN or pending.write_kind in _NEEDED) and self._is_wanted(workload, pending):
            self._reconciler.actuator.writes.append(pending._replace(again=pending.again + 1))

    def _follow_done(self, workload: WorkloadPods, pending: PendingWrite) -> None:
        """Handle a write that succeeded."""
        if pending.write_kind is WriteKind.ALLOCATE:
            self._reconciler.actuator.count_allocated(workload, pending.slot)
        elif pending.write_kind is WriteKind.BIND:
            pod = self._reconciler.pods[pending.write.key]
            self._reconciler.lifecycle.bound(pod.ref, workload.slots[pending.slot].node)
        elif pending.write_kind is WriteKind.START and workload.job is not None:
            workload.note_start(pending.generation)
            self._reconciler.update_job(workload, workload.job)

    def _note_size_again(self, workload: WorkloadPods, pending: PendingWrite) -> None:
        """Write the current size of a job into its annotation again, if that is still needed."""
        writes = self._reconciler.actuator.writes
        before, workload.noted = len(writes), (0, 0)
        self._reconciler.release_reclaimable(workload)
        writes[before:] = [write._replace(again=pending.again + 1) for write in writes[before:]]

    def _fail_to_start(self, workload: WorkloadPods, pending: PendingWrite) -> None:
        """Retry a failed start, unless the job's requests changed since the decision."""
        assert workload.job is not None
        if workload.job.work == workload.work and pending.again < _MOST_STARTS:
            self._reconciler.actuator.start_again(workload, pending)
            return
        for decision in pending.decisions:
            self._reconciler.facts.outcome(decision, WriteOutcome.FAILED)
        self._reconciler.lifecycle.start_failed(workload)
        workload.clear_decisions()
        if workload.job.work is not None and workload.job.work != workload.work:
            self._reconciler.resize(workload, workload.job.work)
            self._reconciler.facts.changed_after_failure.append((workload.number, workload.job.work))

    def _fail_one(self, workload: WorkloadPods, pending: PendingWrite) -> None:
        """Handle a failed write about one pod, unless another node was decided for the pod since."""
        slot = workload.slots[pending.slot]
        if workload.stage is WorkloadStage.PLACED and not slot.waits_for(pending.decisions):
            return
        if pending.write_kind is WriteKind.ALLOCATE:
            self._reconciler.actuator.fail_to_allocate(workload, pending.slot)
        if slot.bound:
            return
        self._reconciler.lifecycle.start_failed(workload)
        if slot.decision == NOBODY:  # the previous leader decided it: there is no decision to report on
            self._reconciler.facts.about(FactKind.POD_GONE, workload.number, pending.slot)
        slot.clear_decision()
        if workload.stage is WorkloadStage.EVICTED:  # it holds nothing now
            self._reconciler.settle_eviction(workload)

    def _is_wanted(self, workload: WorkloadPods, pending: PendingWrite) -> bool:
        if pending.write_kind is WriteKind.STOP:
            return workload.stage is WorkloadStage.EVICTED
        if pending.write_kind is WriteKind.START:
            return workload.stage is WorkloadStage.PLACED and workload.suspended
        if pending.write_kind is WriteKind.TRIM:  # at another generation the size is compared again
            return workload.stage is WorkloadStage.PLACED and workload.trimmed == pending.generation
        return workload.stage is WorkloadStage.PLACED and not workload.slots[pending.slot].bound
