"""The kernel of a stretch: the twin's world and the engine's cycles, tick after tick, without coming up for air.

It does what `SimWorld` does with poll and carry_out, where there are no nodes, nothing fails and nothing is observed;
between the two it lets the engine's own kernels mirror the facts and decide.
Must not know: how anything is decided.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.apply_work import (
    U_ESTIMATE,
    U_SUBMITTED,
    U_TIE,
    U_WORK_CLASS,
    Rows,
    are_leaving,
    come_back,
    enter_line,
    leave_for_good,
)
from tidegate.engine.kernels.cycle_scratch import Desk, Turn
from tidegate.engine.kernels.fixpoint import MOST_QUOTA_CYCLES, Z_RAN, decide_all, turn_at
from tidegate.engine.kernels.gang_placement import NEXT_DECISION, O_KIND, O_WORKLOAD, Output
from tidegate.engine.kernels.node_fit import confirm
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.quota_cycle import DONE
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.sim.submissions import Jobs
from tidegate.state.cluster import Counter, Hot
from tidegate.state.quota_tables import Book
from tidegate.state.tables import J_NUMBER, W_GPU_MILLI, W_PODS, W_QUEUE, W_WAITING

FOREVER = 1 << 62

ADMIT, PREEMPT = int(DecisionKind.ADMIT), int(DecisionKind.PREEMPT)
SUBMITTED, FINISHED = int(FactKind.WORKLOAD_SUBMITTED), int(FactKind.WORKLOAD_FINISHED)
STARTED, GONE = int(FactKind.POD_STARTED), int(FactKind.POD_GONE)
OUTSIDE, REPEATS, PASSED_DUE = int(Counter.OUTSIDE), int(Counter.REPEATS), int(Counter.PASSED_DUE)

#: Repeated preemptions, with nothing from outside in between, that are no reason yet to look for a loop: looking takes
#: longer than acting them out, and most end by themselves.
FEW_REPEATS = 3

#: Columns of a job, after those that are told when it is submitted: how it behaves, then how far it is.
(
    Q_LOAD, Q_RESTART_COST, Q_IDLE_TAIL, Q_CHECKPOINT,
    Q_ROW, Q_GENERATION, Q_LEFT, Q_RESTARTS, Q_WORK_FROM, Q_BUSY_FROM, Q_BUSY_UNTIL, Q_OBSERVED, Q_LEAVING, Q_ADMITTED,
    Q_KEPT,
) = range(U_ESTIMATE + 1, U_ESTIMATE + 16)  # fmt: skip
JOB_COLUMNS = Q_KEPT + 1

#: Columns of an entry of the agenda; those of one time are told in the order they were put in.
E_AT, E_ORDER, E_KIND, E_NUMBER, E_GENERATION = range(5)

#: Where the world is: the time, entries of the agenda, entries ever put in; jobs that are submitted, over, holding
#: something, told to go; when the engine wants to be called; whether facts were told that nothing was decided on yet.
(
    M_NOW, M_ENTRIES, M_PUT, M_SUBMITTED, M_OVER, M_HOLDERS, M_LEAVING, M_WAKE, M_INSIDE,
) = range(9)  # fmt: skip

#: Columns of a step, and how many rows of the log are written.
L_NOW, L_FACTS, L_DECISIONS, L_CYCLES, L_WAKE = range(5)
N_STEPS, N_FACTS = range(2)

#: Why a stretch ends: nothing more happens; the log is full; there are no rows left; work comes of a kind that was
#: never seen; the engine needs more room; work was preempted again, which may be a loop.
OVER, FULL, NO_ROWS, STRANGE, CRAMPED, LOOPS = range(6)


class Script(NamedTuple):
    """What the world is made of."""

    jobs: I64  # (jobs, JOB_COLUMNS), by number
    agenda: I64  # (entries, 5): a heap
    due: I64  # (entries,): numbers of those that a run of facts is about, and room to sort in
    marks: I64
    pace: I64  # (4,): cycle, latency, start, grace, all in ms


def make_script(lives: I64, entries: I64, room: int, pace: I64) -> Script:
    """A script that goes on from entries in order; columns of them are time, kind, subject, part, generation, order."""
    agenda = np.zeros((entries.shape[1] + room, E_GENERATION + 1), np.int64)
    agenda[: entries.shape[1]] = entries[[0, 5, 1, 2, 4]].T  # sorted, and so a heap
    marks = np.zeros(M_INSIDE + 1, np.int64)
    marks[M_ENTRIES] = entries.shape[1]
    return Script(lives, agenda, np.zeros(len(agenda), np.int64), marks, pace)


class Log(NamedTuple):
    """What happened."""

    steps: I64  # (steps, 5)
    facts: I64  # (facts, 4): kind, time, number, and what else there is to say
    waiting: I64  # (steps, 3, queues): workloads, pods and GPU milli that wait after the step
    written: I64  # (2,)


P_CYCLE, P_LATENCY, P_START, P_GRACE = range(4)


def lives_of(jobs: Jobs) -> I64:
    """What is told of each job, how it behaves, and how far it is before it was submitted."""
    lives = np.zeros((len(jobs.ids), JOB_COLUMNS), np.int64)
    lives[:, U_SUBMITTED], lives[:, U_WORK_CLASS], lives[:, U_TIE] = jobs.submit_ms, -1, jobs.ties()
    lives[:, U_ESTIMATE] = jobs.estimate_ms
    lives[:, Q_LOAD], lives[:, Q_IDLE_TAIL] = jobs.load_ms, jobs.idle_tail_ms
    lives[:, Q_RESTART_COST], lives[:, Q_CHECKPOINT] = jobs.restart_cost_ms(), jobs.checkpoint_every_ms()
    lives[:, Q_LEFT] = jobs.runtime_ms
    lives[:, [Q_WORK_FROM, Q_BUSY_FROM, Q_BUSY_UNTIL]] = FOREVER
    lives[:, [Q_ROW, Q_OBSERVED, Q_ADMITTED]] = -1
    return lives


class Engine(NamedTuple):
    """What the engine's kernels take."""

    hot: Hot
    rule: Rule
    book: Book
    desk: Desk
    turn: Turn
    rows: Rows
    limits: I64  # (4,): of `decide_all`; rows of output that a step may need
    kept: I64  # of `decide_all`


@entry
def live_through(engine: Engine, script: Script, log: Log, out: Output) -> int:
    """Go on from tick to tick until something comes that only Python can do; return what."""
    marks = script.marks
    while True:
        if marks[M_INSIDE] == 0:
            now_ms = next_tick(script)
            why = hindrance(engine, script, log, out, now_ms)
            if why >= 0:
                return why
            marks[M_NOW], marks[M_INSIDE], engine.kept[Z_RAN] = now_ms, 1, 0
            tell_due(engine, script, log)
            tell_submitted(engine, script, log)
        turn = turn_at(engine.turn, marks[M_NOW], 0)
        if decide_all(engine.hot, engine.rule, engine.book, engine.desk, turn, engine.limits, engine.kept, out) != DONE:
            return CRAMPED
        marks[M_INSIDE] = 0
        carry_out(engine.hot, script, log, out)
        note_step(engine, script, log, out)
        if engine.hot.counters[REPEATS] > FEW_REPEATS:
            return LOOPS


@kernel
def next_tick(script: Script) -> int:
    """When the next cycle begins in which something happens; FOREVER: nothing will."""
    marks, jobs = script.marks, script.jobs
    first = marks[M_WAKE]
    if marks[M_SUBMITTED] < len(jobs):
        first = min(first, jobs[marks[M_SUBMITTED], U_SUBMITTED])
    elif marks[M_HOLDERS] == 0 and marks[M_LEAVING] == 0:
        return FOREVER  # whoever still waits will wait for ever
    if marks[M_ENTRIES] > 0:
        first = min(first, script.agenda[0, E_AT])
    if first >= FOREVER:
        return FOREVER
    cycle = script.pace[P_CYCLE]
    earliest = marks[M_NOW] if cycle == 1 else (marks[M_NOW] // cycle + 1) * cycle
    return int(max(-(-first // cycle) * cycle, earliest))


@kernel
def hindrance(engine: Engine, script: Script, log: Log, out: Output, now_ms: int) -> int:
    """Why the next tick cannot be lived through; -1: it can."""
    if now_ms >= FOREVER or 0 < engine.hot.counters[PASSED_DUE] <= now_ms:
        return OVER if now_ms >= FOREVER else STRANGE
    jobs, last = script.jobs, script.marks[M_SUBMITTED]
    while last < len(jobs) and jobs[last, U_SUBMITTED] <= now_ms:
        if jobs[last, U_WORK_CLASS] < 0:
            return STRANGE
        last += 1
    submitted, rows = last - script.marks[M_SUBMITTED], engine.rows
    facts = submitted + script.marks[M_ENTRIES]
    if len(log.steps) - log.written[N_STEPS] < 1 or len(log.facts) - log.written[N_FACTS] < facts:
        return FULL
    if min(len(out.rows) - out.written[0], len(script.agenda) - script.marks[M_ENTRIES]) < engine.limits[3]:
        return FULL
    if rows.marks[0] + len(rows.real) - rows.marks[1] < submitted:
        return NO_ROWS
    return -1


# -- facts -----------------------------------------------------------------------------------------------------


@kernel
def tell_due(engine: Engine, script: Script, log: Log) -> None:
    """Tell what is due, in runs of one kind; entries of an older start or stop are void."""
    marks, jobs, kind, first = script.marks, script.jobs, -1, log.written[N_FACTS]
    while marks[M_ENTRIES] > 0 and script.agenda[0, E_AT] <= marks[M_NOW]:
        entry = script.agenda[0]
        if entry[E_GENERATION] == jobs[entry[E_NUMBER], Q_GENERATION]:
            if entry[E_KIND] != kind:
                mirror_run(engine, script, log, first)
                first = log.written[N_FACTS]
            kind = entry[E_KIND]
            kept = take_kept(jobs[entry[E_NUMBER]]) if kind == GONE else 0
            note_fact(log, kind, entry[E_AT], entry[E_NUMBER], kept)
        drop_entry(script)
    mirror_run(engine, script, log, first)


@kernel
def mirror_run(engine: Engine, script: Script, log: Log, first: int) -> None:
    """Let world and engine take in the facts that were noted from the first on, which are of one kind."""
    count, jobs, now_ms = log.written[N_FACTS] - first, script.jobs, script.marks[M_NOW]
    if count == 0:
        return
    kind, numbers = log.facts[first, 0], script.due
    for i in range(count):
        number = log.facts[first + i, 2]
        if kind != STARTED:
            close_job(script, number, kind)
        numbers[i] = jobs[number, Q_ROW]
        if kind == FINISHED:
            jobs[number, Q_ROW] = -1
    rows, counters = numbers[:count], engine.hot.counters
    if kind == FINISHED or (kind == GONE and not are_leaving(engine.hot, rows)):
        counters[OUTSIDE] += 1
        counters[REPEATS] = 0
    if kind == STARTED:
        confirm(engine.hot, rows, now_ms)
    elif kind == FINISHED:
        leave_for_good(engine.hot, engine.book, engine.rows, rows)
    else:
        come_back(engine.hot, engine.book, rows, now_ms)


@inlined
def close_job(script: Script, number: int, kind: int) -> None:
    """A workload holds nothing any more: it is over, or gone as it was told."""
    job, marks = script.jobs[number], script.marks
    if job[Q_OBSERVED] >= 0:
        job[Q_OBSERVED] = -1
        marks[M_HOLDERS] -= 1
    if kind == FINISHED:
        marks[M_OVER] += 1
        job[Q_GENERATION] += 1
    elif job[Q_LEAVING] == 1:
        job[Q_LEAVING] = 0
        marks[M_LEAVING] -= 1


@kernel
def tell_submitted(engine: Engine, script: Script, log: Log) -> None:
    """Tell of the jobs whose time has come."""
    marks, jobs = script.marks, script.jobs
    first = last = marks[M_SUBMITTED]
    while last < len(jobs) and jobs[last, U_SUBMITTED] <= marks[M_NOW]:
        note_fact(log, SUBMITTED, jobs[last, U_SUBMITTED], last, 0)
        last += 1
    if last == first:
        return
    marks[M_SUBMITTED] = last
    engine.hot.counters[OUTSIDE] += 1
    engine.hot.counters[REPEATS] = 0
    enter_line(engine.hot, engine.book, engine.rows, jobs[first:last], first, marks[M_NOW])
    for i in range(last - first):
        jobs[first + i, Q_ROW] = engine.rows.chosen[i]


@inlined
def note_fact(log: Log, kind: int, at_ms: int, number: int, arg: int) -> None:
    """Write a fact down."""
    fact = log.facts[log.written[N_FACTS]]
    fact[0], fact[1], fact[2], fact[3] = kind, at_ms, number, arg
    log.written[N_FACTS] += 1


@inlined
def take_kept(job: I64) -> int:
    """How much of its time a job need not work again, as it is told; it is told once."""
    kept = 1 + job[Q_KEPT]
    job[Q_KEPT] = 0
    return int(kept)


# -- decisions -------------------------------------------------------------------------------------------------


@kernel
def carry_out(hot: Hot, script: Script, log: Log, out: Output) -> None:
    """Stop what was sent away and start what was admitted; what was both, in this order, the other way round."""
    first = 0 if log.written[N_STEPS] == 0 else log.steps[log.written[N_STEPS] - 1, L_DECISIONS]
    jobs, admitted, away = script.jobs, 0, 0
    for at in range(first, out.written[0]):
        decision = out.rows[at]
        decision[O_WORKLOAD] = hot.workloads[decision[O_WORKLOAD], J_NUMBER]
        if decision[O_KIND] == ADMIT:
            job = jobs[decision[O_WORKLOAD]]
            if job[Q_ADMITTED] < hot.counters[NEXT_DECISION] + first:
                script.due[admitted] = decision[O_WORKLOAD]
                admitted += 1
            job[Q_ADMITTED] = hot.counters[NEXT_DECISION] + at
        away += decision[O_KIND] == PREEMPT
    if away > 0:
        stop_those(hot, script, out, first, 0)
    sort_numbers(script.due, admitted)
    start_all(script, admitted)
    if away > 0:
        stop_those(hot, script, out, first, 1)


@kernel
def stop_those(hot: Hot, script: Script, out: Output, first: int, undone: int) -> None:
    """Stop those who were sent away and, by this step, were not admitted before that, or were."""
    for at in range(first, out.written[0]):
        number, here = out.rows[at, O_WORKLOAD], hot.counters[NEXT_DECISION]
        if out.rows[at, O_KIND] == PREEMPT:
            admitted = script.jobs[number, Q_ADMITTED]
            if (here + first <= admitted < here + at) == (undone == 1):
                stop_job(script, number)


@kernel
def start_all(script: Script, count: int) -> None:
    """Start the workloads that are due: they run once latency and start are over, and end when their work is done."""
    marks, pace = script.marks, script.pace
    held_ms = marks[M_NOW] + pace[P_LATENCY]
    started_ms = held_ms + pace[P_START]
    for i in range(count):
        start_job(script, script.due[i], held_ms, started_ms)
    for i in range(count):
        job = script.jobs[script.due[i]]
        finish_ms = job[Q_BUSY_UNTIL] + job[Q_IDLE_TAIL]
        if finish_ms < FOREVER:
            put_entry(script, finish_ms, FINISHED, script.due[i])


@inlined
def start_job(script: Script, number: int, held_ms: int, started_ms: int) -> None:
    """Start a workload."""
    job, marks = script.jobs[number], script.marks
    job[Q_GENERATION] += 1
    work_from = started_ms + job[Q_LOAD] + (job[Q_RESTART_COST] if job[Q_RESTARTS] > 0 else 0)
    job[Q_WORK_FROM], job[Q_BUSY_FROM], job[Q_BUSY_UNTIL] = work_from, work_from, work_from + job[Q_LEFT]
    marks[M_HOLDERS] += job[Q_OBSERVED] < 0
    job[Q_OBSERVED] = held_ms
    if job[Q_LEAVING] == 1:
        job[Q_LEAVING] = 0
        marks[M_LEAVING] -= 1
    put_entry(script, started_ms, STARTED, number)


@kernel
def stop_job(script: Script, number: int) -> None:
    """Tell a workload to go, unless it is over by then: what was checkpointed stays done, the rest is done again."""
    job, marks = script.jobs[number], script.marks
    told_ms, every = marks[M_NOW] + script.pace[P_LATENCY], job[Q_CHECKPOINT]
    if job[Q_WORK_FROM] < FOREVER and job[Q_BUSY_UNTIL] + job[Q_IDLE_TAIL] <= told_ms:
        return
    worked = max(min(told_ms, job[Q_BUSY_UNTIL]) - job[Q_WORK_FROM], 0)  # the idle tail is no work
    done = worked // every * every if every > 0 else 0
    job[Q_LEFT] -= min(done, job[Q_LEFT])
    job[Q_KEPT] += done
    job[Q_WORK_FROM], job[Q_BUSY_UNTIL] = FOREVER, min(job[Q_BUSY_UNTIL], told_ms)
    job[Q_RESTARTS] += job[Q_OBSERVED] >= 0  # whoever never had a place has nothing to restart
    job[Q_GENERATION] += 1
    marks[M_LEAVING] += job[Q_LEAVING] == 0
    job[Q_LEAVING] = 1
    put_entry(script, told_ms + script.pace[P_GRACE], GONE, number)


@kernel
def note_step(engine: Engine, script: Script, log: Log, out: Output) -> None:
    """Write down what the step came to, and who waits after it."""
    at, works, marks = log.written[N_STEPS], engine.hot.work_classes, script.marks
    marks[M_WAKE] = engine.hot.counters[PASSED_DUE] if engine.hot.counters[PASSED_DUE] > 0 else FOREVER
    if engine.kept[Z_RAN] >= MOST_QUOTA_CYCLES:
        marks[M_WAKE] = marks[M_NOW]
    step = log.steps[at]
    step[L_NOW], step[L_FACTS], step[L_DECISIONS] = marks[M_NOW], log.written[N_FACTS], out.written[0]
    step[L_CYCLES], step[L_WAKE] = engine.kept[Z_RAN], marks[M_WAKE]
    waiting = log.waiting[at]
    waiting[:, :] = 0
    for w in range(engine.limits[2]):
        queue, count = works[w, W_QUEUE], works[w, W_WAITING]
        if count > 0:
            waiting[0, queue] += count
            waiting[1, queue] += count * works[w, W_PODS]
            waiting[2, queue] += count * works[w, W_GPU_MILLI]
    log.written[N_STEPS] += 1


# -- the agenda ------------------------------------------------------------------------------------------------


@kernel
def put_entry(script: Script, at_ms: int, kind: int, number: int) -> None:
    """Put an entry in."""
    agenda, marks = script.agenda, script.marks
    at = marks[M_ENTRIES]
    entry = agenda[at]
    entry[E_AT], entry[E_ORDER], entry[E_KIND] = at_ms, marks[M_PUT], kind
    entry[E_NUMBER], entry[E_GENERATION] = number, script.jobs[number, Q_GENERATION]
    marks[M_ENTRIES] += 1
    marks[M_PUT] += 1
    while at > 0 and is_sooner(agenda, at, (at - 1) // 2):
        swap_entries(agenda, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def drop_entry(script: Script) -> None:
    """Take the first entry out."""
    agenda, marks, at = script.agenda, script.marks, 0
    marks[M_ENTRIES] -= 1
    swap_entries(agenda, 0, marks[M_ENTRIES])
    while True:
        best = at
        for child in range(2 * at + 1, min(2 * at + 3, marks[M_ENTRIES])):
            if is_sooner(agenda, child, best):
                best = child
        if best == at:
            return
        swap_entries(agenda, at, best)
        at = best


@inlined
def is_sooner(agenda: I64, a: int, b: int) -> bool:
    """Whether entry a comes before entry b."""
    if agenda[a, E_AT] != agenda[b, E_AT]:
        return bool(agenda[a, E_AT] < agenda[b, E_AT])
    return bool(agenda[a, E_ORDER] < agenda[b, E_ORDER])


@inlined
def swap_entries(agenda: I64, a: int, b: int) -> None:
    """Let two entries change places."""
    for column in range(E_GENERATION + 1):
        agenda[a, column], agenda[b, column] = agenda[b, column], agenda[a, column]


@kernel
def sort_numbers(numbers: I64, count: int) -> None:
    """Sort the first few, in place."""
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
