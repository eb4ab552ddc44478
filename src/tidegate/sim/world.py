"""The twin: a cluster in virtual time that carries decisions out, with latency, failures and its own runtimes.

It reports facts and carries decisions out; it never decides. It skips cycles in which nothing happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.columns import submissions
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.facts import ALL_PODS, FactBatch, FactKind, Facts, Submissions, WriteOutcome
from tidegate.model.hardware import Node
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import Policy
from tidegate.model.simulation import InitialState, TwinOptions
from tidegate.sim.columns import run_state, twin_jobs
from tidegate.sim.event_queue import EventQueue, Events
from tidegate.sim.fast_path import FOREVER, FastPathState, job_rows, make_fast_path
from tidegate.sim.partial_admission import PartialAdmissions
from tidegate.sim.placements import Places, each_once, started_and_stopped
from tidegate.sim.submissions import TwinJobs
from tidegate.sim.utilization import UsePeriods, observed_use

#: Kinds of events that are the world's own; below are kinds of facts.
_NODE_FAILS, _NODE_BACK, _REFUSAL, _RETRY, _POLICY_COMES, _LOST_ANSWER = 100, 101, 102, 103, 104, 105

_ADMIT, _PLACE, _REJECT = int(DecisionKind.ADMIT), int(DecisionKind.PLACE), int(DecisionKind.REJECT)
_PREEMPT, _EVICT, _RELEASE = int(DecisionKind.PREEMPT), int(DecisionKind.EVICT), int(DecisionKind.RELEASE)

#: Failures and repairs of nodes that change nothing before pending work, or a loop, is taken to stay so; or as many as
#: there are nodes.
_FEW_TURNS = 100

#: Events that are outcomes of decisions.
_ANSWERS = (int(FactKind.POD_STARTED), int(FactKind.POD_GONE))

#: Options of the twin, and columns of its jobs, that the fast path handles. Any other must be zero.
_PLAIN_OPTIONS = {"seed", "api_latency_ms", "start_ms", "grace_ms", "node_repair_ms"}
_PLAIN_COLUMNS = {
    "ids", "works", "work", "submit_ms", "runtime_ms", "estimate_ms", "load_ms", "idle_tail_ms", "busy_milli",
    "daily_swing_milli", "vram_mib",
}  # fmt: skip

_NOBODY = np.zeros(0, np.int64)
_BLANK = InitialState()


class PolicyChange(NamedTuple):
    """A policy that takes effect at a time."""

    at_ms: int
    policy: Policy


class SimWorld:
    """A simulated cluster. Its policy may change at times that are known from the start."""

    def __init__(
        self,
        nodes: Sequence[Node],
        jobs: TwinJobs,
        policy: Policy,
        options: TwinOptions,
        snapshot: InitialState = _BLANK,
        changes: Sequence[PolicyChange] = (),
    ) -> None:
        self.nodes, self.jobs, self.policy, self.options = list(nodes), jobs, policy, options
        self._changes = list(changes)
        self._changed = 0
        self.rng = np.random.default_rng(options.seed)
        self._snapshot, self._now_ms = snapshot, snapshot.at_ms
        self._opened = False
        self._submitted = 0
        self._over = 0
        self._events = EventQueue()
        self._pods = jobs.pods()
        self._admissions = PartialAdmissions(jobs)
        self._checkpoint_ms, self._restart_ms = jobs.checkpoint_every_ms(), jobs.restart_cost_ms()
        job_table = self._job_table = job_rows(jobs)  # one block: a batch continues from it
        self._generation = job_table[
            :, twin_jobs.GENERATION
        ]  # starts and stops so far: events of an older one are void
        self._left_ms = job_table[:, twin_jobs.LEFT]  # work still to do
        self._restarts = job_table[:, twin_jobs.RESTARTS]
        self._work_from_ms = job_table[:, twin_jobs.WORK_FROM]  # when its work began, or will begin
        self._busy_from_ms, self._busy_until_ms = (
            job_table[:, twin_jobs.BUSY_FROM],
            job_table[:, twin_jobs.BUSY_UNTIL],
        )  # whether it works since its latest start
        self._observed_ms = job_table[:, twin_jobs.OBSERVED]  # until when its use was observed; -1: it holds nothing
        self._kept_ms = job_table[:, twin_jobs.KEPT]  # of its time, what it need not work again; until that is reported
        self._holders = 0
        self._known_classes: I64 = np.full(len(jobs.works), -1, np.int64)
        self._pods_held, self._milli_held = self._pods.copy(), self._admissions.milli.copy()
        self._terminating: set[int] = set()  # evicted, not yet gone
        self._refused: set[int] = set()  # whose admission the API refused; the engine does not know yet
        self._retries = 0  # workloads whose back-off from before the run is not over
        self._next_observation_ms = snapshot.at_ms + options.observe_every_ms if options.observe_every_ms else FOREVER
        self._places = Places()
        self._loop = _NOBODY  # work that was found to be in a loop, to be reported
        self._rests_ms = 0  # how much of it is skipped; negative: all that would follow
        self._turn = (0, 0)  # how long one turn of it takes, and its first decision
        self._fail_ms = np.full(len(jobs.ids), FOREVER, np.int64)  # when a pod of it will fail by itself
        self._node_fails_ms = np.full(len(self.nodes), FOREVER, np.int64)
        self._turns = self._turns_at_start = self._turns_at_gain = (
            0  # nodes that failed or came back: how many, and when the latest
        )
        self._gained = (0, 0, 0, 0)  # how far all work was when a loop was found last

    # -- the protocol ------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The virtual time."""
        return self._now_ms

    def is_over(self) -> bool:
        """Whether nothing more happens."""
        return self._opened and self._next_ms() is None

    def has_submitted_all(self) -> bool:
        """Whether all workloads have been submitted."""
        return self._submitted == len(self.jobs.ids)

    def progress(self) -> tuple[int, int]:
        """Workloads that are over, and all of them."""
        return self._over, len(self.jobs.ids)

    def poll(self, until_ms: int | None) -> FactBatch:
        """Everything up to the end of the next cycle in which something happens."""
        facts = Facts()
        if not self._opened:
            self._open(facts)
            return facts.batch()
        next_ms = self._next_ms()
        if next_ms is None and until_ms is None:
            return facts.batch()
        first = min(t for t in (next_ms, until_ms) if t is not None)
        cycle = max(self.policy.cycle_ms, 1)
        # What a decision causes at once is reported with the next cycle: one cycle, one step. At 1 ms every event
        # counts.
        earliest = self._now_ms if cycle == 1 else (self._now_ms // cycle + 1) * cycle
        self._now_ms = max(-(-first // cycle) * cycle, earliest)
        facts.add_many(
            FactKind.LOOP_FOUND, self._now_ms, self._loop, arg=self._rests_ms,
            values=np.tile([float(value) for value in (*self._turn, 0, 0)], (len(self._loop), 1)),
        )  # fmt: skip
        self._loop = _NOBODY
        while self._next_observation_ms <= self._now_ms:
            self._report(facts, self._events.take_until(self._next_observation_ms))
            self._observe(facts)
        self._report(facts, self._events.take_until(self._now_ms))
        self._submit_due(facts)
        return facts.batch()

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Start what was placed, stop what was evicted, forget what was rejected."""
        kind = decisions.kind
        counts = np.bincount(kind, minlength=max(DecisionKind) + 1).tolist()
        # Where there are no nodes, quota is all that decides: work starts when it is admitted.
        starts = _PLACE if self.nodes else _ADMIT
        gone, undone = _NOBODY, _NOBODY
        if counts[_PREEMPT] or counts[_EVICT]:
            gone = decisions.workload[(kind == _PREEMPT) | (kind == _EVICT)]
            undone = started_and_stopped(decisions, starts) if counts[starts] else _NOBODY
            for number in gone[~np.isin(gone, undone)].tolist():
                self._stop(number)
        self._over += counts[_REJECT]
        if counts[_ADMIT]:
            self._admissions.note(decisions)
        if counts[_ADMIT] or counts[starts]:
            self._fail_writes(decisions, _ADMIT if counts[_ADMIT] else starts)
        for row in np.flatnonzero(kind == _RELEASE).tolist() if counts[_RELEASE] else ():
            self._hand_over(int(decisions.workload[row]), int(decisions.cause[row]))
        if counts[starts]:
            placed = kind == starts
            if self._refused:
                placed &= ~np.isin(decisions.workload, list(self._refused))
            if self.options.node_fails_every_ms:
                self._places.note(decisions, placed)
            bound_ms = self._now_ms + self.options.api_latency_ms
            self._start(each_once(decisions.workload[placed]), bound_ms, bound_ms + self.options.start_ms)
        for number in undone.tolist():
            self._stop(number)

    # -- loops -------------------------------------------------------------------------------------------------

    def loop_key(self, numbers: I64) -> bytes:
        """The outcomes of decisions to come, how soon they come, and the progress of these workloads, as bytes."""
        entries = self._events.peek()
        wanted = np.isin(entries.kind, _ANSWERS) | ((entries.kind < _NODE_FAILS) & np.isin(entries.subject, numbers))
        found = entries.take(np.flatnonzero(self._is_valid(entries) & wanted))
        key = np.stack([found.at_ms - self._now_ms, found.kind, found.subject]).tobytes()
        return key + np.sort(numbers).tobytes() + self._left_ms[np.sort(numbers)].tobytes()

    def skip_loop(self, numbers: I64, period_ms: int, first_decision: int) -> None:
        """Skip what some workloads would repeat until something else happens; all of it, if nothing does.

        They continue at the point of the period that they would be at. What they use meanwhile is not observed.
        """
        entries = self._events.empty()
        valid = self._is_valid(entries)
        mine = valid & (entries.kind < _NODE_FAILS) & np.isin(entries.subject, numbers)
        others_ms = [] if self._changes_in_vain(entries.kind[valid & ~mine]) else entries.at_ms[valid & ~mine].tolist()
        if self._submitted < len(self.jobs.ids):
            others_ms.append(int(self.jobs.submit_ms[self._submitted]))
        if others_ms:
            delay_ms = max(min(others_ms) - int(entries.at_ms[mine].min(initial=FOREVER)), 0)
            delay_ms -= delay_ms % period_ms if period_ms else 0
            entries.at_ms[mine] += delay_ms
            for column in (self._work_from_ms, self._busy_from_ms, self._busy_until_ms, self._observed_ms):
                column[numbers] += np.where((column[numbers] >= 0) & (column[numbers] < FOREVER), delay_ms, 0)
        else:
            delay_ms, entries = -1, entries.take(np.flatnonzero(valid & ~mine))
        self._events.fill(entries, self._events.count())
        self._loop, self._rests_ms = np.sort(numbers) if delay_ms else _NOBODY, delay_ms
        self._turn = (period_ms, first_decision)

    def _changes_in_vain(self, kinds: I64) -> bool:
        """Whether only nodes will change, and many have since any work came, progressed or ended: that ends no loop."""
        gained = (self._submitted, self._over, self._changed, int(self._left_ms.sum()))
        if gained != self._gained or not np.isin(kinds, (_NODE_FAILS, _NODE_BACK)).all():
            self._gained, self._turns_at_gain = gained, self._turns
        return self._turns - self._turns_at_gain > max(_FEW_TURNS, len(self.nodes))

    def _is_valid(self, entries: Events) -> npt.NDArray[np.bool_]:
        """Which events take effect; those of an older start or stop are void."""
        valid: npt.NDArray[np.bool_] = entries.kind >= _NODE_FAILS
        others = np.flatnonzero(~valid)
        valid[others] = entries.arg[others] == self._generation[entries.subject[others]]
        return valid

    # -- batches ---------------------------------------------------------------------------------------------------

    def is_plain(self) -> bool:
        """Whether work is only submitted, started, ended and evicted here."""
        others = self.nodes or len(self._loop) or self._refused or self._retries or self._changed < len(self._changes)
        options = (getattr(self.options, name) for name in self.options.__struct_fields__ if name not in _PLAIN_OPTIONS)
        columns = (getattr(self.jobs, name) for name in self.jobs._fields if name not in _PLAIN_COLUMNS)
        plain = not others and not any(options) and not any(np.any(column) for column in columns)
        return self._opened and plain and not self._admissions.are_partial()

    def note_classes(self, classes: I64) -> None:
        """Note the engine's work class of each of the works; negative: none yet."""
        if not np.array_equal(classes, self._known_classes):
            self._known_classes = classes
            self._job_table[:, submissions.WORK_CLASS] = classes[self.jobs.work]

    def open_fast_path(self, room: int) -> FastPathState:
        """The world's state for a batch, with room for so many events."""
        entries = self._events.empty()
        pace = [max(self.policy.cycle_ms, 1), self.options.api_latency_ms, self.options.start_ms, self.options.grace_ms]
        twin = make_fast_path(self._job_table, entries.block, room, np.array(pace, np.int64))
        marks = twin.marks
        marks[run_state.NOW] = self._now_ms
        marks[run_state.SUBMITTED] = self._submitted
        marks[run_state.OVER] = self._over
        marks[run_state.HOLDERS], marks[run_state.TERMINATING] = self._holders, len(self._terminating)
        marks[run_state.PUT], marks[run_state.WAKE] = self._events.count(), FOREVER
        self._job_table[list(self._terminating), twin_jobs.TERMINATING] = 1
        return twin

    def close_fast_path(self, twin: FastPathState) -> None:
        """Continue from where a batch ended."""
        marks = twin.marks
        self._now_ms, self._submitted, self._over = (
            int(marks[at]) for at in (run_state.NOW, run_state.SUBMITTED, run_state.OVER)
        )
        self._holders = int(marks[run_state.HOLDERS])
        self._terminating = set(np.flatnonzero(self._job_table[:, twin_jobs.TERMINATING]).tolist())
        self._job_table[:, twin_jobs.TERMINATING] = 0
        at_ms, order, kind, number, generation = twin.events[: marks[run_state.ENTRIES]].T
        block = np.stack([at_ms, kind, number, np.full(len(number), ALL_PODS), generation, order])
        self._events.fill(Events(block), int(marks[run_state.PUT]))

    # -- facts -------------------------------------------------------------------------------------------------

    def _open(self, facts: Facts) -> None:
        self._opened = True
        facts.policy(self.policy)
        for number, node in enumerate(self.nodes):
            facts.node(number, node)
        if self.options.node_fails_every_ms:
            self._plan_failures(np.arange(len(self.nodes)))
        if self._changes:
            at_ms = np.array([change.at_ms for change in self._changes], np.int64)
            self._events.put(at_ms, _POLICY_COMES, np.arange(len(self._changes)))
        self._submit_due(facts)
        numbers = {name: number for number, name in enumerate(self.jobs.ids)} if self._snapshot.standings else {}
        for name, standing in self._snapshot.standings:
            facts.observed_status(numbers[name], standing, self._now_ms)
            self._resume(numbers[name], standing)

    def _next_ms(self) -> int | None:
        if len(self._loop):
            return self._now_ms
        if self._rests_ms < 0:
            return None
        times = [self._events.next_ms()]
        if self._submitted < len(self.jobs.ids):
            times.append(int(self.jobs.submit_ms[self._submitted]))
        elif self._is_settled():
            return None
        if self._holders:
            times.append(self._next_observation_ms)
        return min((t for t in times if t is not None and t < FOREVER), default=None)

    def _is_settled(self) -> bool:
        """Whether nothing goes on that may make room, and what is still pending stays so for ever."""
        if self._holders or self._terminating or self._refused or self._retries:
            return False
        if self._over == len(self.jobs.ids):
            return True
        if self._changed < len(self._changes):
            return False
        turns = self._turns - self._turns_at_start
        return turns > max(_FEW_TURNS, len(self.nodes)) or all(node.ready for node in self.nodes)

    def _submit_due(self, facts: Facts) -> None:
        first = self._submitted
        last = int(np.searchsorted(self.jobs.submit_ms, self._now_ms, side="right"))
        if last <= first:
            return
        self._submitted = last
        jobs, due = self.jobs, slice(first, last)
        submitted = Submissions(jobs.work[due], jobs.submit_ms[due], jobs.estimate_ms[due], jobs.ids[due])
        facts.submit_many(np.arange(first, last, dtype=np.int64), jobs.works, submitted, jobs.submit_ms[due])

    def _report(self, facts: Facts, due: Events) -> None:
        """Turn due events into facts, in runs of one kind."""
        kinds = due.kind
        edges = np.flatnonzero(kinds[1:] != kinds[:-1]) + 1
        for start, end in pairwise([0, *edges.tolist(), len(due)]):
            run = self._without_void(due.part(start, end))
            if len(run):
                self._report_run(facts, run)

    def _without_void(self, run: Events) -> Events:
        """Leave out events of an older start or stop. Facts just reported may have made them void."""
        valid = self._is_valid(run)
        return run if np.count_nonzero(valid) == len(run) else run.take(np.flatnonzero(valid))

    def _report_run(self, facts: Facts, run: Events) -> None:
        kind = int(run.kind[0])
        if kind == FactKind.WORKLOAD_FINISHED:
            self._finish(facts, run)
        elif kind == FactKind.POD_GONE:
            self._close_use(facts, run.subject, run.at_ms)
            self._terminating.difference_update(run.subject.tolist())
            facts.add_many(FactKind.POD_GONE, run.at_ms, run.subject, arg=1 + self._kept_ms[run.subject])
            self._kept_ms[run.subject] = 0
        elif kind == FactKind.POD_FAILED:
            self._fail(facts, run)
        elif kind == FactKind.POD_STARTED:
            facts.add_many(FactKind.POD_STARTED, run.at_ms, run.subject)
        elif kind == _POLICY_COMES:
            self._change_policy(facts, int(run.subject[-1]), int(run.at_ms[-1]))
        elif kind == _REFUSAL:
            self._refused.difference_update(run.subject.tolist())
            facts.add_many(FactKind.OUTCOME, run.at_ms, run.arg, arg=int(WriteOutcome.FAILED))
        elif kind == _LOST_ANSWER:
            facts.add_many(FactKind.OUTCOME, run.at_ms, run.arg, arg=int(WriteOutcome.UNKNOWN))
        elif kind == _RETRY:
            self._retries -= len(run)
            facts.add_many(FactKind.TIMER, run.at_ms, run.subject)
        else:
            for node, at_ms in zip(run.subject.tolist(), run.at_ms.tolist(), strict=True):
                self._turn_node(facts, node, at_ms, up=kind == _NODE_BACK)

    def _change_policy(self, facts: Facts, row: int, at_ms: int) -> None:
        """The policy of a row takes effect; of several at once the last stands."""
        self.policy, self._changed = self._changes[row].policy, row + 1
        facts.policy(self.policy, at_ms)

    def _finish(self, facts: Facts, run: Events) -> None:
        self._close_use(facts, run.subject, run.at_ms)
        self._over += len(run.subject)
        self._generation[run.subject] += 1
        self._places.forget(run.subject)
        facts.add_many(FactKind.WORKLOAD_FINISHED, run.at_ms, run.subject)

    def _fail(self, facts: Facts, run: Events) -> None:
        """A pod fails: what the workload did since its last checkpoint is lost.

        On nodes its place is lost as well; where quota is all that decides, it keeps that and starts again at once.
        """
        for number, pod, at_ms in zip(run.subject.tolist(), run.pod.tolist(), run.at_ms.tolist(), strict=True):
            self._lose_pods(facts, number, np.array([pod]), at_ms)
            if not self.nodes:
                self._start(np.array([number]), at_ms, at_ms + self.options.start_ms)

    # -- use ---------------------------------------------------------------------------------------------------

    def _observe(self, facts: Facts) -> None:
        at_ms = self._next_observation_ms
        numbers = np.flatnonzero(self._observed_ms >= 0)
        self._report_use(facts, numbers, np.full(len(numbers), at_ms))
        self._next_observation_ms += self.options.observe_every_ms

    def _close_use(self, facts: Facts, numbers: I64, at_ms: I64) -> None:
        holds = self._observed_ms[numbers] >= 0
        numbers, at_ms = numbers[holds], at_ms[holds]
        if self.options.observe_every_ms:
            self._report_use(facts, numbers, at_ms)
        self._observed_ms[numbers] = -1
        self._holders -= len(numbers)

    def _report_use(self, facts: Facts, numbers: I64, at_ms: I64) -> None:
        begun = self._observed_ms[numbers] < at_ms  # what was placed a moment ago is not held yet
        numbers, at_ms = numbers[begun], at_ms[begun]
        windows = UsePeriods(
            numbers, self._observed_ms[numbers], at_ms, self._busy_from_ms[numbers], self._busy_until_ms[numbers]
        )
        values = observed_use(self.jobs, self._milli_held[numbers], windows)
        length = at_ms - self._observed_ms[numbers]
        facts.add_many(FactKind.USE_OBSERVED, at_ms, numbers, arg=length, values=values)
        self._observed_ms[numbers] = at_ms

    def _lose_pods(self, facts: Facts, number: int, lost: I64, at_ms: int) -> None:
        """Pods fail: the workload works no more, does not end by itself, and holds what its other pods hold."""
        alone, when = np.array([number]), np.array([at_ms])
        self._keep_progress(number, at_ms)
        self._generation[number] += 1
        self._places.lose(number, lost)
        if self.options.observe_every_ms:
            self._report_use(facts, alone[self._observed_ms[alone] >= 0], when[self._observed_ms[alone] >= 0])
        self._pods_held[number] -= len(lost)
        self._milli_held[number] -= self._admissions.milli_of(number, lost)
        if self._pods_held[number] <= 0:
            self._close_use(facts, alone, when)
        for pod in lost.tolist():
            facts.add(FactKind.POD_FAILED, at_ms, number, pod=pod, arg=1 + int(self._kept_ms[number]))
            self._kept_ms[number] = 0

    # -- starts and stops --------------------------------------------------------------------------------------

    def _start(self, numbers: I64, held_ms: int, started: int) -> None:
        """Start workloads: from when on they hold what they were given, and when all their pods run."""
        jobs = self.jobs
        self._generation[numbers] += 1
        self._turns_at_start = self._turns
        again = np.where(self._restarts[numbers] > 0, self._restart_ms[numbers], 0)
        work_from = started + jobs.load_ms[numbers] + again
        work_until = work_from + self._admissions.time_ms(numbers, self._left_ms[numbers])
        self._work_from_ms[numbers] = self._busy_from_ms[numbers] = work_from
        self._busy_until_ms[numbers] = work_until
        self._pods_held[numbers] = self._admissions.pods[numbers]
        self._milli_held[numbers] = self._admissions.milli[numbers]
        self._holders += int((self._observed_ms[numbers] < 0).sum())
        self._observed_ms[numbers] = held_ms
        if self._terminating:
            self._terminating.difference_update(numbers.tolist())
        finish = work_until + jobs.idle_tail_ms[numbers]
        generation = self._generation[numbers]
        self._events.put(started, FactKind.POD_STARTED, numbers, arg=generation)
        fails = jobs.fails_every_ms[numbers] > 0
        if fails.any():
            finish = self._plan_pod_failures(numbers, work_from, finish)
        ends = finish < FOREVER
        self._events.put(finish[ends], FactKind.WORKLOAD_FINISHED, numbers[ends], arg=generation[ends])

    def _plan_pod_failures(self, numbers: I64, work_from: I64, finish: I64) -> I64:
        """Let some workloads lose a pod before they finish; return when the others do."""
        granted = self._admissions.pods[numbers]  # the first ones: the engine counts pods as it grants them
        mean_ms = self.jobs.fails_every_ms[numbers] / granted
        draws = self.rng.exponential(1.0, len(numbers))
        pods = self.rng.integers(0, granted)
        fails_at = np.where(mean_ms > 0, work_from + draws * mean_ms, FOREVER).astype(np.int64)
        fails = fails_at < finish
        self._fail_ms[numbers[fails]] = fails_at[fails]
        self._events.put(
            fails_at[fails], FactKind.POD_FAILED, numbers[fails], pods[fails], self._generation[numbers][fails]
        )
        return np.where(fails, FOREVER, finish)

    def _stop(self, number: int) -> None:
        """Evict a workload; it is gone after the latency and its grace, unless it ends before that."""
        reached_ms = self._now_ms + self.options.api_latency_ms
        finish_ms, breaks_ms = self._finish_ms(number), self._breaks_ms(number)
        if finish_ms <= reached_ms and finish_ms < breaks_ms:
            return
        self._keep_progress(number, min(reached_ms, breaks_ms))
        self._generation[number] += 1
        self._places.forget(np.array([number]))
        self._terminating.add(number)
        gone_ms = reached_ms + self.options.grace_ms
        self._events.put(gone_ms, FactKind.POD_GONE, number, ALL_PODS, int(self._generation[number]))

    def _finish_ms(self, number: int) -> int:
        """When a workload is over without interruption; FOREVER: it does not work."""
        if self._work_from_ms[number] == FOREVER:
            return FOREVER
        return int(self._busy_until_ms[number] + self.jobs.idle_tail_ms[number])

    def _breaks_ms(self, number: int) -> int:
        """When a running workload loses a pod, by itself or with a node; FOREVER: it is not known to."""
        nodes = self._places.nodes_of(number)
        return min(int(self._fail_ms[number]), int(self._node_fails_ms[nodes].min(initial=FOREVER)))

    def _fail_writes(self, decisions: DecisionBatch, kind: int) -> None:
        """Let the API refuse some admissions, which are not carried out then, and lose the answers to others.

        The engine hears of it later. Where there are no queues, to be admitted is to be placed.
        """
        for share, entry in (
            (self.options.admission_fails_milli, _REFUSAL),
            (self.options.answers_lost_milli, _LOST_ANSWER),
        ):
            if not share:
                continue
            rows = np.flatnonzero((decisions.kind == kind) & ~np.isin(decisions.workload, list(self._refused)))
            numbers, first = np.unique(decisions.workload[rows], return_index=True)
            met = numbers[self.rng.integers(0, 1000, len(numbers)) < share]
            told = rows[first] if kind == _ADMIT else rows  # an admission stands for its workload, a place for a pod
            told = told[np.isin(decisions.workload[told], met)]
            reached_ms = self._now_ms + self.options.api_latency_ms
            self._events.put(reached_ms, entry, decisions.workload[told], arg=decisions.id[told])
            if entry == _REFUSAL:
                self._refused.update(met.tolist())

    def _hand_over(self, number: int, heir: int) -> None:
        """End a slice of a job because a larger one was admitted, which continues where it was; unless that failed."""
        if heir in self._refused:
            return
        reached_ms = self._now_ms + self.options.api_latency_ms
        self._keep_progress(number, reached_ms, saves=True)
        left = int(self._left_ms[number]) * int(self.jobs.runtime_ms[heir]) // max(int(self.jobs.runtime_ms[number]), 1)
        self._left_ms[heir] = max(left, 1)
        self._generation[number] += 1
        self._places.forget(np.array([number]))
        self._terminating.discard(number)
        gone_ms, generation = reached_ms + self.options.grace_ms, int(self._generation[number])
        self._events.put(gone_ms, FactKind.WORKLOAD_FINISHED, number, ALL_PODS, generation)

    def _resume(self, number: int, standing: ObservedStatus) -> None:
        """Continue what ran before the run began: it has worked since its quota was granted."""
        if standing.requeue_at_ms > self._now_ms and not standing.queue:
            self._retries += 1
            self._events.put(standing.requeue_at_ms, _RETRY, number)
        if not standing.queue or not standing.grants:
            return
        self._admissions.note_granted(number, standing)
        if standing.evicted:
            self._stop(number)
        else:
            self._start(np.array([number]), self._now_ms, min(standing.granted_ms, self._now_ms))

    def _keep_progress(self, number: int, at_ms: int, *, saves: bool = False) -> None:
        """Stop its work. What was checkpointed stays done, the rest is lost; all is kept if it is saved now."""
        worked_until_ms = min(at_ms, int(self._busy_until_ms[number]))  # the idle tail is no work
        worked = max(worked_until_ms - int(self._work_from_ms[number]), 0)
        every = 1 if saves else int(self._checkpoint_ms[number])
        kept_ms = worked // every * every if every else 0
        done = self._admissions.work_ms(number, kept_ms)
        self._left_ms[number] -= min(done, int(self._left_ms[number]))
        self._kept_ms[number] += kept_ms
        self._work_from_ms[number] = self._fail_ms[number] = FOREVER
        self._busy_until_ms[number] = min(int(self._busy_until_ms[number]), at_ms)
        self._restarts[number] += (
            self._observed_ms[number] >= 0
        )  # a workload that never had a place has nothing to restart

    # -- nodes -------------------------------------------------------------------------------------------------

    def _plan_failures(self, nodes: I64) -> None:
        waits = self.rng.exponential(self.options.node_fails_every_ms, len(nodes)).astype(np.int64) + 1
        self._node_fails_ms[nodes] = self._now_ms + waits
        self._events.put(self._now_ms + waits, _NODE_FAILS, nodes)

    def _turn_node(self, facts: Facts, node: int, at_ms: int, *, up: bool) -> None:
        """A node fails, and with it every pod on it; or it comes back."""
        self._turns += 1
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], ready=up)
        facts.node(node, self.nodes[node], at_ms, changed=True)
        if up:
            self._plan_failures(np.array([node]))
            return
        self._events.put(at_ms + self.options.node_repair_ms, _NODE_BACK, node)
        for number, lost in self._places.on(node):
            self._lose_pods(facts, number, lost, at_ms)
