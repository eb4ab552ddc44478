"""Runs the twin in batches where possible: many steps in one kernel, with the same decisions.

It is possible where quota is all that decides and the world is plain. The state, facts and decisions are, to the last
bit, those of single steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tidegate.engine.decision_rows import batch_of
from tidegate.engine.kernels.apply_work import FreeRows
from tidegate.engine.kernels.columns import decision_columns, pass_state
from tidegate.engine.kernels.cycle_scratch import Cycle
from tidegate.engine.kernels.fixpoint import AT_ONCE
from tidegate.engine.kernels.gang_placement import Output, empty_output
from tidegate.engine.placement_rule import ready_rule
from tidegate.engine.quota_cycle import is_quota_alone, make_room, most_rows, params_of, ready_room
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.engine.run import run_once
from tidegate.jit.registry import active, settle_form
from tidegate.model.arrays import I64
from tidegate.model.decisions import StepResult
from tidegate.model.facts import ALL_PODS, FactBatch, FactKind, Submissions
from tidegate.model.step_batch import NO_WAKE, StepBatch
from tidegate.sim.columns import log_lengths, run_state, step_log, twin_jobs
from tidegate.sim.fast_path import FOREVER, MORE_ROOM, BatchLog, FastPathEngine, FastPathState, run_batch
from tidegate.sim.submissions import TwinJobs
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.tables.work_classes import ALWAYS

#: Steps, and numbers about pending work, that one batch may log.
_MOST_STEPS, _MOST_WAITING = 1 << 13, 1 << 21

#: The most single steps after a batch that ran none.
_MOST_REST = 64

#: Rows that a batch may give to new work before tables grow, at least.
_ROWS_AHEAD = 1 << 10


#: Columns of times that a batch handles, or that are checked by themselves. Any other must be zero.
_CLOCKS = {
    "submitted_ms", "since_ms", "estimate_ms", "progress_ms", "passed_ms", "protected_ms", "tolerated_ms",
    "checkpoint_ms", "restart_ms", "granted_ms", "not_before_ms", "failed_ms",
}  # fmt: skip


class BatchRecorder(Protocol):
    """Where steps are recorded, one by one or many at once."""

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Record a step."""

    def append_batch(self, batch: StepBatch) -> None:
        """Record many steps; the state is as it was after the last."""


def run_twin(state: ClusterState, world: SimWorld, record: BatchRecorder, stop: Callable[[ClusterState], bool]) -> None:
    """Run until `stop` says so, in batches where that is possible, else step by step."""
    wake_ms: int | None = None
    steps, rest = 0, 1
    while not stop(state):
        if steps <= 0 and wake_ms is None and can_batch(state, world):
            batch = run_steps(state, world)
            if len(batch.now_ms):
                record.append_batch(batch)
                rest, last_ms = 1, int(batch.wake_ms[-1])
                wake_ms = None if last_ms == NO_WAKE else last_ms
                continue
            steps, rest = rest, min(2 * rest, _MOST_REST)  # where every job is of a new kind, trying is not free
        wake_ms = run_once(state, world, record, wake_ms)
        steps -= 1


def can_batch(state: ClusterState, world: SimWorld) -> bool:
    """Whether only quota decides here, and time alone changes nothing."""
    tables, works = state.quota, state.work_classes
    if not tables or not is_quota_alone(state) or not world.is_plain() or state.counters[Counter.PENDING_EVICTIONS]:
        return False
    protected, reservations = works.protected_ms[: works.top], tables.reservations
    if ((protected > 0) & (protected < ALWAYS)).any() or reservations.not_before_ms[: reservations.top].any():
        return False
    if (reservations.replaces[: reservations.top] != NONE).any() or tables.queue_requests.partial.any():
        return False
    timed = (table for table in (state.workloads, works, reservations, tables.quota_nodes, tables.queue_requests))
    return not any(
        getattr(table, name).any()
        for table in timed
        for name in table.columns
        if name.endswith("_ms") and name not in _CLOCKS
    )


def run_steps(state: ClusterState, world: SimWorld) -> StepBatch:
    """Run as many steps as can be done at once; none, if the next cannot."""
    settle_form()
    world.note_classes(state.classes_of(world.jobs.works))
    table = state.workloads
    table.reserve(table.top + max(table.top // 2, _ROWS_AHEAD))
    state.quota.reservations.reserve(table.capacity)
    engine = _engine(state)
    twin = world.open_fast_path(2 * int(engine.limits[3]))
    before, submitted = table.number[state.live_workloads()], int(twin.marks[run_state.SUBMITTED])
    twin.jobs[before, twin_jobs.ROW] = state.live_workloads()
    log = _log(state, twin)
    while active(run_batch)(engine, twin, log) == MORE_ROOM:
        engine = _with_more_room(state, engine)
    world.close_fast_path(twin)
    _catch_up(state, engine, int(twin.marks[run_state.NOW]))
    state.rename_workloads(before, world.jobs.ids)
    return _step_batch(
        state, log, engine.cycle.out, _submissions(world.jobs, submitted, int(twin.marks[run_state.SUBMITTED]))
    )


# -- before a batch --------------------------------------------------------------------------------------------


def _engine(state: ClusterState) -> FastPathEngine:
    """The inputs of the engine's kernels, with an output for the decisions of a batch."""
    table, tables = state.workloads, state.quota
    spare = np.empty(table.capacity, np.int64)
    spare[: len(table.spare)] = table.spare
    rows = FreeRows(
        spare,
        np.array([len(table.spare), table.top], np.int64),
        table.real,
        table.defaults,
        tables.reservations.defaults,
        np.empty(table.capacity, np.int64),
    )
    params, kept = params_of(state), np.zeros(pass_state.LEFT + 1, np.int64)
    kept[pass_state.CYCLE], kept[pass_state.ROOM_EPOCH] = tables.cycle, tables.room_epoch
    scratch = ready_room(state, params, 0).scratch
    most = 2 * most_rows(state, scratch)
    limits = np.array([AT_ONCE, most, state.work_classes.top, 2 * most], np.int64)
    cycle = Cycle(state.hot(), ready_rule(state).rule, quota_view_of(state), scratch, empty_output(4 * most))
    return FastPathEngine(cycle, params, rows, limits, kept)


def _with_more_room(state: ClusterState, engine: FastPathEngine) -> FastPathEngine:
    """Scratch for twice the targets, and an output twice as large; what was written stays."""
    scratch = make_room(state, 2 * len(engine.cycle.scratch.preemption.targets), 0).scratch
    out = engine.cycle.out
    larger, written = empty_output(2 * len(out.rows)), int(out.written[0])
    larger.rows[:written], larger.written[0] = out.rows[:written], written
    return engine._replace(cycle=engine.cycle._replace(scratch=scratch, out=larger))


def _log(state: ClusterState, twin: FastPathState) -> BatchLog:
    queues, jobs = max(len(state.queues), 1), len(twin.jobs)
    steps = min(max(_MOST_WAITING // (3 * queues), 16), _MOST_STEPS)
    facts = 4 * _MOST_STEPS + int(twin.marks[run_state.ENTRIES]) + jobs - int(twin.marks[run_state.SUBMITTED])
    return BatchLog(
        np.empty((steps, step_log.WAKE + 1), np.int64),
        np.empty((facts, 4), np.int64),
        np.empty((steps, 3, queues), np.int64),
        np.zeros(2, np.int64),
    )


# -- after a batch ---------------------------------------------------------------------------------------------


def _catch_up(state: ClusterState, engine: FastPathEngine, now_ms: int) -> None:
    """Bring the state up to the last step."""
    table, rows = state.workloads, engine.rows
    state.now_ms = now_ms
    table.spare, table.top = rows.spare[: rows.marks[0]].copy(), int(rows.marks[1])
    state.quota.cycle = int(engine.kept[pass_state.CYCLE])
    state.quota.room_epoch = int(engine.kept[pass_state.ROOM_EPOCH])
    quota_view_of(state)


def _submissions(jobs: TwinJobs, first: int, last: int) -> tuple[TwinJobs, Submissions]:
    due = slice(first, last)
    return jobs, Submissions(jobs.work[due], jobs.submit_ms[due], jobs.estimate_ms[due], jobs.ids[due])


def _step_batch(state: ClusterState, log: BatchLog, out: Output, submitted: tuple[TwinJobs, Submissions]) -> StepBatch:
    """The logged facts and decisions of a batch."""
    steps = log.steps[: log.written[log_lengths.STEPS]]
    decisions = batch_of(state, out.rows[: out.written[0]], out.rows[: out.written[0], decision_columns.WORKLOAD])
    wake = steps[:, step_log.WAKE]
    return StepBatch(
        now_ms=steps[:, step_log.NOW].copy(),
        facts_end=steps[:, step_log.FACTS].copy(),
        decisions_end=steps[:, step_log.DECISIONS].copy(),
        cycles=steps[:, step_log.CYCLES].copy(),
        wake_ms=np.where(wake == FOREVER, NO_WAKE, wake),
        events=_events(log.facts[: log.written[log_lengths.FACTS]], *submitted),
        decisions=decisions,
        waiting=log.waiting[: len(steps)].copy(),
    )


def _events(facts: I64, jobs: TwinJobs, told: Submissions) -> FactBatch:
    kind, arg = facts[:, 0].astype(np.uint8), facts[:, 3].copy()
    arg[kind == int(FactKind.WORKLOAD_SUBMITTED)] = np.arange(len(told.ids))
    everyone, nothing = np.full(len(facts), ALL_PODS, np.int32), np.zeros((len(facts), 4), np.float64)
    return FactBatch(kind, facts[:, 1].copy(), facts[:, 2].copy(), everyone, arg, nothing, (), jobs.works, told)
