"""The fast path of the twin: the kernel of a batch of steps, with the twin's world and the engine's cycles.

It does what `SimWorld` does with poll and carry_out, where there are no nodes, nothing fails and nothing is observed;
between the two the engine's own kernels mirror the facts and decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.apply_work import (
    FreeRows,
    add_pending,
    are_terminating,
    finish_workloads,
    requeue_gone,
)
from tidegate.engine.kernels.columns import decision_columns, pass_state, submissions
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleParams
from tidegate.engine.kernels.fixpoint import MOST_QUOTA_CYCLES, decide_all, params_at
from tidegate.engine.kernels.gang_placement import NEXT_DECISION, Output
from tidegate.engine.kernels.node_fit import confirm
from tidegate.engine.kernels.quota_cycle import DONE
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.sim.columns import log_lengths, periods, run_state, step_log, timed_events, twin_jobs
from tidegate.sim.submissions import TwinJobs
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import work_classes, workloads

FOREVER = 1 << 62

ADMIT, PREEMPT = int(DecisionKind.ADMIT), int(DecisionKind.PREEMPT)
SUBMITTED, FINISHED = int(FactKind.WORKLOAD_SUBMITTED), int(FactKind.WORKLOAD_FINISHED)
STARTED, GONE = int(FactKind.POD_STARTED), int(FactKind.POD_GONE)
EXTERNAL, REPEATS, PASSED_DUE = int(Counter.EXTERNAL), int(Counter.REPEATS), int(Counter.PASSED_DUE)

#: Repeated preemptions, without an external event in between, that do not start the search for a loop yet: the search
#: takes longer than running them, and most end by themselves.
FEW_REPEATS = 3


#: Why a batch ends: nothing more happens; the log is full; there are no rows left; work of a new class comes; the
#: engine needs more rows; work was preempted again, which may be a loop.
OVER, FULL, NO_ROWS, UNKNOWN, MORE_ROOM, LOOPS = range(6)


class FastPathState(NamedTuple):
    """The state of the twin's world in a batch."""

    jobs: I64  # (jobs, columns), by number
    events: I64  # (events, 5): a heap
    due: I64  # (events,): scratch: numbers of a run of facts, and for sorting
    marks: I64
    pace: I64  # (4,): cycle, latency, start, grace, all in ms


def make_fast_path(job_table: I64, entries: I64, room: int, pace: I64) -> FastPathState:
    """The state of a batch that continues from events in order.

    Columns of the events: time, kind, subject, part, generation, order.
    """
    events = np.zeros((entries.shape[1] + room, timed_events.GENERATION + 1), np.int64)
    events[: entries.shape[1]] = entries[[0, 5, 1, 2, 4]].T  # sorted, and so a heap
    marks = np.zeros(run_state.INSIDE + 1, np.int64)
    marks[run_state.ENTRIES] = entries.shape[1]
    return FastPathState(job_table, events, np.zeros(len(events), np.int64), marks, pace)


class BatchLog(NamedTuple):
    """The log of a batch."""

    steps: I64  # (steps, 5)
    facts: I64  # (facts, 4): kind, time, number, and an argument
    waiting: I64  # (steps, 3, queues): pending workloads, pods and GPU milli after the step
    written: I64  # (2,)


def job_rows(jobs: TwinJobs) -> I64:
    """The submission, behaviour and progress of each job, before it is submitted."""
    job_table = np.zeros((len(jobs.ids), twin_jobs.COLUMNS), np.int64)
    job_table[:, submissions.SUBMITTED] = jobs.submit_ms
    job_table[:, submissions.WORK_CLASS] = -1
    job_table[:, submissions.TIE] = jobs.ties()
    job_table[:, submissions.ESTIMATE] = jobs.estimate_ms
    job_table[:, twin_jobs.LOAD], job_table[:, twin_jobs.IDLE_TAIL] = jobs.load_ms, jobs.idle_tail_ms
    job_table[:, twin_jobs.RESTART_COST] = jobs.restart_cost_ms()
    job_table[:, twin_jobs.CHECKPOINT] = jobs.checkpoint_every_ms()
    job_table[:, twin_jobs.LEFT] = jobs.runtime_ms
    job_table[:, [twin_jobs.WORK_FROM, twin_jobs.BUSY_FROM, twin_jobs.BUSY_UNTIL]] = FOREVER
    job_table[:, [twin_jobs.ROW, twin_jobs.OBSERVED, twin_jobs.ADMITTED]] = -1
    return job_table


class FastPathEngine(NamedTuple):
    """The inputs of the engine's kernels."""

    cycle: Cycle
    params: CycleParams
    rows: FreeRows
    limits: I64  # (4,): of `decide_all`; output rows that a step may need
    kept: I64  # of `decide_all`


@entry
def run_batch(engine: FastPathEngine, twin: FastPathState, log: BatchLog) -> int:
    """Run from tick to tick until only Python can continue; return why."""
    marks, out = twin.marks, engine.cycle.out
    while True:
        if marks[run_state.INSIDE] == 0:
            now_ms = next_tick(twin)
            why = stop_reason(engine, twin, log, out, now_ms)
            if why >= 0:
                return why
            marks[run_state.NOW], marks[run_state.INSIDE], engine.kept[pass_state.RAN] = now_ms, 1, 0
            report_due(engine, twin, log)
            report_submitted(engine, twin, log)
        params = params_at(engine.params, marks[run_state.NOW], 0)
        if decide_all(engine.cycle, params, engine.limits, engine.kept) != DONE:
            return MORE_ROOM
        marks[run_state.INSIDE] = 0
        carry_out(engine.cycle.hot, twin, log, out)
        note_step(engine, twin, log, out)
        if engine.cycle.hot.counters[REPEATS] > FEW_REPEATS:
            return LOOPS


@kernel
def next_tick(twin: FastPathState) -> int:
    """When the next cycle begins in which something happens; FOREVER: nothing does."""
    marks, jobs = twin.marks, twin.jobs
    first = marks[run_state.WAKE]
    if marks[run_state.SUBMITTED] < len(jobs):
        first = min(first, jobs[marks[run_state.SUBMITTED], submissions.SUBMITTED])
    elif marks[run_state.HOLDERS] == 0 and marks[run_state.TERMINATING] == 0:
        return FOREVER  # what is still pending stays so for ever
    if marks[run_state.ENTRIES] > 0:
        first = min(first, twin.events[0, timed_events.AT])
    if first >= FOREVER:
        return FOREVER
    cycle = twin.pace[periods.CYCLE]
    earliest = marks[run_state.NOW] if cycle == 1 else (marks[run_state.NOW] // cycle + 1) * cycle
    return int(max(-(-first // cycle) * cycle, earliest))


@kernel
def stop_reason(engine: FastPathEngine, twin: FastPathState, log: BatchLog, out: Output, now_ms: int) -> int:
    """Why the batch must end before the next tick; -1: it need not."""
    if now_ms >= FOREVER or 0 < engine.cycle.hot.counters[PASSED_DUE] <= now_ms:
        return OVER if now_ms >= FOREVER else UNKNOWN
    jobs, last = twin.jobs, twin.marks[run_state.SUBMITTED]
    while last < len(jobs) and jobs[last, submissions.SUBMITTED] <= now_ms:
        if jobs[last, submissions.WORK_CLASS] < 0:
            return UNKNOWN
        last += 1
    submitted, rows = last - twin.marks[run_state.SUBMITTED], engine.rows
    facts = submitted + twin.marks[run_state.ENTRIES]
    if len(log.steps) - log.written[log_lengths.STEPS] < 1 or len(log.facts) - log.written[log_lengths.FACTS] < facts:
        return FULL
    if min(len(out.rows) - out.written[0], len(twin.events) - twin.marks[run_state.ENTRIES]) < engine.limits[3]:
        return FULL
    if rows.marks[0] + len(rows.real) - rows.marks[1] < submitted:
        return NO_ROWS
    return -1


# -- facts -----------------------------------------------------------------------------------------------------


@kernel
def report_due(engine: FastPathEngine, twin: FastPathState, log: BatchLog) -> None:
    """Report due events, in runs of one kind; events of an older start or stop are void."""
    marks, jobs, kind, first = twin.marks, twin.jobs, -1, log.written[log_lengths.FACTS]
    while marks[run_state.ENTRIES] > 0 and twin.events[0, timed_events.AT] <= marks[run_state.NOW]:
        entry = twin.events[0]
        if entry[timed_events.GENERATION] == jobs[entry[timed_events.NUMBER], twin_jobs.GENERATION]:
            if entry[timed_events.KIND] != kind:
                mirror_run(engine, twin, log, first)
                first = log.written[log_lengths.FACTS]
            kind = entry[timed_events.KIND]
            kept = take_kept(jobs[entry[timed_events.NUMBER]]) if kind == GONE else 0
            note_fact(log, kind, entry[timed_events.AT], entry[timed_events.NUMBER], kept)
        drop_event(twin)
    mirror_run(engine, twin, log, first)


@kernel
def mirror_run(engine: FastPathEngine, twin: FastPathState, log: BatchLog, first: int) -> None:
    """Apply the noted facts from the first on, which are of one kind, to world and engine."""
    count, jobs, now_ms = log.written[log_lengths.FACTS] - first, twin.jobs, twin.marks[run_state.NOW]
    if count == 0:
        return
    kind, numbers = log.facts[first, 0], twin.due
    for i in range(count):
        number = log.facts[first + i, 2]
        if kind != STARTED:
            close_job(twin, number, kind)
        numbers[i] = jobs[number, twin_jobs.ROW]
        if kind == FINISHED:
            jobs[number, twin_jobs.ROW] = -1
    rows, counters = numbers[:count], engine.cycle.hot.counters
    if kind == FINISHED or (kind == GONE and not are_terminating(engine.cycle.hot, rows)):
        counters[EXTERNAL] += 1
        counters[REPEATS] = 0
    if kind == STARTED:
        confirm(engine.cycle.hot, rows, now_ms)
    elif kind == FINISHED:
        finish_workloads(engine.cycle.hot, engine.cycle.quota, engine.rows, rows)
    else:
        requeue_gone(engine.cycle.hot, engine.cycle.quota, rows, now_ms)


@inlined
def close_job(twin: FastPathState, number: int, kind: int) -> None:
    """Close a workload that holds nothing any more: it is over, or gone as decided."""
    job, marks = twin.jobs[number], twin.marks
    if job[twin_jobs.OBSERVED] >= 0:
        job[twin_jobs.OBSERVED] = -1
        marks[run_state.HOLDERS] -= 1
    if kind == FINISHED:
        marks[run_state.OVER] += 1
        job[twin_jobs.GENERATION] += 1
    elif job[twin_jobs.TERMINATING] == 1:
        job[twin_jobs.TERMINATING] = 0
        marks[run_state.TERMINATING] -= 1


@kernel
def report_submitted(engine: FastPathEngine, twin: FastPathState, log: BatchLog) -> None:
    """Report the jobs that are submitted by now."""
    marks, jobs = twin.marks, twin.jobs
    first = last = marks[run_state.SUBMITTED]
    while last < len(jobs) and jobs[last, submissions.SUBMITTED] <= marks[run_state.NOW]:
        note_fact(log, SUBMITTED, jobs[last, submissions.SUBMITTED], last, 0)
        last += 1
    if last == first:
        return
    marks[run_state.SUBMITTED] = last
    engine.cycle.hot.counters[EXTERNAL] += 1
    engine.cycle.hot.counters[REPEATS] = 0
    add_pending(engine.cycle.hot, engine.cycle.quota, engine.rows, jobs[first:last], first, marks[run_state.NOW])
    for i in range(last - first):
        jobs[first + i, twin_jobs.ROW] = engine.rows.chosen[i]


@inlined
def note_fact(log: BatchLog, kind: int, at_ms: int, number: int, arg: int) -> None:
    """Log a fact."""
    fact = log.facts[log.written[log_lengths.FACTS]]
    fact[0], fact[1], fact[2], fact[3] = kind, at_ms, number, arg
    log.written[log_lengths.FACTS] += 1


@inlined
def take_kept(job: I64) -> int:
    """The part of a job's time that it keeps, reported once."""
    kept = 1 + job[twin_jobs.KEPT]
    job[twin_jobs.KEPT] = 0
    return int(kept)


# -- decisions -------------------------------------------------------------------------------------------------


@kernel
def carry_out(hot: Hot, twin: FastPathState, log: BatchLog, out: Output) -> None:
    """Stop evicted workloads and start admitted ones; those that are both, in this order, the other way round."""
    first = (
        0 if log.written[log_lengths.STEPS] == 0 else log.steps[log.written[log_lengths.STEPS] - 1, step_log.DECISIONS]
    )
    jobs, admitted, evicted = twin.jobs, 0, 0
    for at in range(first, out.written[0]):
        decision = out.rows[at]
        decision[decision_columns.WORKLOAD] = hot.workloads[decision[decision_columns.WORKLOAD], workloads.NUMBER]
        if decision[decision_columns.KIND] == ADMIT:
            job = jobs[decision[decision_columns.WORKLOAD]]
            if job[twin_jobs.ADMITTED] < hot.counters[NEXT_DECISION] + first:
                twin.due[admitted] = decision[decision_columns.WORKLOAD]
                admitted += 1
            job[twin_jobs.ADMITTED] = hot.counters[NEXT_DECISION] + at
        evicted += decision[decision_columns.KIND] == PREEMPT
    if evicted > 0:
        stop_those(hot, twin, out, first, 0)
    sort_numbers(twin.due, admitted)
    start_all(twin, admitted)
    if evicted > 0:
        stop_those(hot, twin, out, first, 1)


@kernel
def stop_those(hot: Hot, twin: FastPathState, out: Output, first: int, undone: int) -> None:
    """Stop the evicted workloads that this step did not admit before, or those that it did."""
    for at in range(first, out.written[0]):
        number, here = out.rows[at, decision_columns.WORKLOAD], hot.counters[NEXT_DECISION]
        if out.rows[at, decision_columns.KIND] == PREEMPT:
            admitted = twin.jobs[number, twin_jobs.ADMITTED]
            if (here + first <= admitted < here + at) == (undone == 1):
                stop_job(twin, number)


@kernel
def start_all(twin: FastPathState, count: int) -> None:
    """Start the workloads that are due: they run once latency and start are over, and end when their work is done."""
    marks, pace = twin.marks, twin.pace
    held_ms = marks[run_state.NOW] + pace[periods.LATENCY]
    started_ms = held_ms + pace[periods.START]
    for i in range(count):
        start_job(twin, twin.due[i], held_ms, started_ms)
    for i in range(count):
        job = twin.jobs[twin.due[i]]
        finish_ms = job[twin_jobs.BUSY_UNTIL] + job[twin_jobs.IDLE_TAIL]
        if finish_ms < FOREVER:
            push_event(twin, finish_ms, FINISHED, twin.due[i])


@inlined
def start_job(twin: FastPathState, number: int, held_ms: int, started_ms: int) -> None:
    """Start a workload."""
    job, marks = twin.jobs[number], twin.marks
    job[twin_jobs.GENERATION] += 1
    work_from = started_ms + job[twin_jobs.LOAD] + (job[twin_jobs.RESTART_COST] if job[twin_jobs.RESTARTS] > 0 else 0)
    job[twin_jobs.WORK_FROM] = work_from
    job[twin_jobs.BUSY_FROM] = work_from
    job[twin_jobs.BUSY_UNTIL] = work_from + job[twin_jobs.LEFT]
    marks[run_state.HOLDERS] += job[twin_jobs.OBSERVED] < 0
    job[twin_jobs.OBSERVED] = held_ms
    if job[twin_jobs.TERMINATING] == 1:
        job[twin_jobs.TERMINATING] = 0
        marks[run_state.TERMINATING] -= 1
    push_event(twin, started_ms, STARTED, number)


@kernel
def stop_job(twin: FastPathState, number: int) -> None:
    """Stop a workload, unless it is over by then: what was checkpointed stays done, the rest is lost."""
    job, marks = twin.jobs[number], twin.marks
    reached_ms, every = marks[run_state.NOW] + twin.pace[periods.LATENCY], job[twin_jobs.CHECKPOINT]
    if job[twin_jobs.WORK_FROM] < FOREVER and job[twin_jobs.BUSY_UNTIL] + job[twin_jobs.IDLE_TAIL] <= reached_ms:
        return
    worked = max(min(reached_ms, job[twin_jobs.BUSY_UNTIL]) - job[twin_jobs.WORK_FROM], 0)  # the idle tail is no work
    done = worked // every * every if every > 0 else 0
    job[twin_jobs.LEFT] -= min(done, job[twin_jobs.LEFT])
    job[twin_jobs.KEPT] += done
    job[twin_jobs.WORK_FROM], job[twin_jobs.BUSY_UNTIL] = FOREVER, min(job[twin_jobs.BUSY_UNTIL], reached_ms)
    job[twin_jobs.RESTARTS] += job[twin_jobs.OBSERVED] >= 0  # a workload that never had a place has nothing to restart
    job[twin_jobs.GENERATION] += 1
    marks[run_state.TERMINATING] += job[twin_jobs.TERMINATING] == 0
    job[twin_jobs.TERMINATING] = 1
    push_event(twin, reached_ms + twin.pace[periods.GRACE], GONE, number)


@kernel
def note_step(engine: FastPathEngine, twin: FastPathState, log: BatchLog, out: Output) -> None:
    """Log the outcome of a step, and what is pending after it."""
    at, works, marks = log.written[log_lengths.STEPS], engine.cycle.hot.work_classes, twin.marks
    marks[run_state.WAKE] = (
        engine.cycle.hot.counters[PASSED_DUE] if engine.cycle.hot.counters[PASSED_DUE] > 0 else FOREVER
    )
    if engine.kept[pass_state.RAN] >= MOST_QUOTA_CYCLES:
        marks[run_state.WAKE] = marks[run_state.NOW]
    step = log.steps[at]
    step[step_log.NOW] = marks[run_state.NOW]
    step[step_log.FACTS] = log.written[log_lengths.FACTS]
    step[step_log.DECISIONS] = out.written[0]
    step[step_log.CYCLES], step[step_log.WAKE] = engine.kept[pass_state.RAN], marks[run_state.WAKE]
    waiting = log.waiting[at]
    waiting[:, :] = 0
    for w in range(engine.limits[2]):
        queue, count = works[w, work_classes.QUEUE], works[w, work_classes.WAITING]
        if count > 0:
            waiting[0, queue] += count
            waiting[1, queue] += count * works[w, work_classes.PODS]
            waiting[2, queue] += count * works[w, work_classes.GPU_MILLI]
    log.written[log_lengths.STEPS] += 1


# -- events ----------------------------------------------------------------------------------------------------


@kernel
def push_event(twin: FastPathState, at_ms: int, kind: int, number: int) -> None:
    """Push an event."""
    events, marks = twin.events, twin.marks
    at = marks[run_state.ENTRIES]
    entry = events[at]
    entry[timed_events.AT], entry[timed_events.ORDER], entry[timed_events.KIND] = at_ms, marks[run_state.PUT], kind
    entry[timed_events.NUMBER], entry[timed_events.GENERATION] = number, twin.jobs[number, twin_jobs.GENERATION]
    marks[run_state.ENTRIES] += 1
    marks[run_state.PUT] += 1
    while at > 0 and is_sooner(events, at, (at - 1) // 2):
        swap_events(events, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def drop_event(twin: FastPathState) -> None:
    """Drop the first event."""
    events, marks, at = twin.events, twin.marks, 0
    marks[run_state.ENTRIES] -= 1
    swap_events(events, 0, marks[run_state.ENTRIES])
    while True:
        best = at
        for child in range(2 * at + 1, min(2 * at + 3, marks[run_state.ENTRIES])):
            if is_sooner(events, child, best):
                best = child
        if best == at:
            return
        swap_events(events, at, best)
        at = best


@inlined
def is_sooner(events: I64, a: int, b: int) -> bool:
    """Whether event a comes before event b."""
    if events[a, timed_events.AT] != events[b, timed_events.AT]:
        return bool(events[a, timed_events.AT] < events[b, timed_events.AT])
    return bool(events[a, timed_events.ORDER] < events[b, timed_events.ORDER])


@inlined
def swap_events(events: I64, a: int, b: int) -> None:
    """Swap two events."""
    for column in range(timed_events.GENERATION + 1):
        events[a, column], events[b, column] = events[b, column], events[a, column]


@kernel
def sort_numbers(numbers: I64, count: int) -> None:
    """Sort the first `n` numbers in place."""
    gap = 1
    while gap < count:
        gap = 3 * gap + 1
    while gap > 1:
        gap = gap // 3
        for i in range(gap, count):
            number, at = numbers[i], i
            while at >= gap and numbers[at - gap] > number:
                numbers[at] = numbers[at - gap]
                at -= gap
            numbers[at] = number
