"""Preemption loops: work that is preempted and returns again and again while nothing changes from outside.

A preemption is part of a loop if its victim was preempted before and nothing from outside has happened since; or if it
was preempted before for the same workload, which has not started since: the victim got its place back.
A loop is proven if the twin met the same state again; then it leaves out the repetitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.journal.store import JournalStep
from tidegate.measure.event_joins import first_after
from tidegate.measure.format import amount_text, count_text, time_text
from tidegate.measure.job_records import JobRecords, read_run
from tidegate.measure.preemptions import Preemptions, preemptions_of
from tidegate.measure.timeline import Flat, FlatFacts, lay_flat
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import Spec
from tidegate.model.units import GPU_HOUR_MILLI_MS

#: Facts that tell no more than what came of decisions, or how it goes.
_ANSWERS = (FactKind.POD_STARTED, FactKind.POD_GONE, FactKind.USE_OBSERVED, FactKind.LOOP_FOUND)

#: Orders preempt by what work has done so far, which is no fact that is kept here: to come back is no loop.
_BY_ORDER = (Reason.PREEMPTED_BY_ORDER, Reason.PREEMPTED_TO_MOVE)

_SAID = {
    FactKind.WORKLOAD_SUBMITTED: "{} was submitted",
    FactKind.WORKLOAD_CANCELLED: "{} was cancelled",
    FactKind.WORKLOAD_FINISHED: "{} finished",
    FactKind.WORKLOAD_CHANGED: "{} was changed",
    FactKind.POD_FAILED: "a pod of {} failed",
    FactKind.POLICY_CHANGED: "the policy changed",
}

#: Pairs that are named in one sentence.
_MOST_NAMED = 3


class Pair(Spec, frozen=True):
    """A workload, the one that it preempted, and how often."""

    cause: str
    cause_queue: str
    victim: str
    victim_queue: str
    times: int


class Loop(Spec, frozen=True):
    """Workloads that preempt each other, or one that is preempted and returns."""

    pairs: tuple[Pair, ...]  # in the order in which they follow each other
    preemptions: int
    start_ms: int
    end_ms: int
    outside_facts: int  # between the first and the last of them
    begins: str  # the outside fact before it; empty: none
    ends: str  # the outside fact after it; empty: it went on when the run ended
    lost_gpu_h: float
    proven: bool  # the same state came again with nothing from outside in between
    left_out_ms: int  # how much of it the twin left out; -1: all that would follow
    at_least: bool = False  # something was left out that is not counted here: how often is not known, or without end


class _Outside(NamedTuple):
    """What happened from outside, in order."""

    order: I64
    kind: I64
    subject: I64


def loops_in(steps: Iterable[JournalStep]) -> tuple[Loop, ...]:
    """All loops of a recorded run, the longest first."""
    flat = lay_flat(steps)
    lives, held = read_run(flat)
    return find_loops(flat, lives, preemptions_of(flat, lives, held))


def find_loops(flat: Flat, lives: JobRecords, preemptions: Preemptions) -> tuple[Loop, ...]:
    """All loops of a run, the longest first."""
    told = preemptions.where(preemptions.cause >= 0)
    outside = _outside(flat)
    rows = _repeated(flat, lives, told, outside)
    groups = _groups(told, rows)
    found = flat.facts.of(FactKind.LOOP_FOUND)
    loops = [_loop(lives, told, group, outside, found) for group in groups]
    return tuple(sorted(loops, key=lambda loop: (-loop.preemptions, loop.start_ms)))


def _outside(flat: Flat) -> _Outside:
    facts = flat.facts
    wanted = ~np.isin(facts.kind, np.array(_ANSWERS, np.uint8))
    wanted &= (facts.kind != FactKind.OUTCOME) | (facts.arg == WriteOutcome.FAILED)
    parts = [(facts.order[wanted], facts.kind[wanted].astype(np.int64), facts.subject[wanted])]
    for told, kind in ((flat.nodes, FactKind.NODE_CHANGED), (flat.changes, FactKind.WORKLOAD_CHANGED)):
        orders = np.array([one.order for one in told], np.int64)
        parts.append((orders, np.full(len(orders), int(kind)), np.array([one.number for one in told], np.int64)))
    orders = np.array([one.order for one in flat.policies], np.int64)
    parts.append((orders, np.full(len(orders), int(FactKind.POLICY_CHANGED)), np.zeros(len(orders), np.int64)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    by_order = np.argsort(columns[0], kind="stable")
    return _Outside(*(column[by_order] for column in columns))


def _repeated(flat: Flat, lives: JobRecords, told: Preemptions, outside: _Outside) -> I64:
    """Rows of the preemptions that repeat one before, and of those before."""
    by_victim = np.lexsort((told.order, told.victim))
    before, after = by_victim[:-1], by_victim[1:]
    stretch = np.searchsorted(outside.order, told.order)
    by_order = np.isin(told.code, np.array(_BY_ORDER, np.int64))
    again = (stretch[before] == stretch[after]) & ~by_order[after]
    same_cause = told.cause[before] == told.cause[after]
    again |= same_cause & ~_started_between(
        flat, lives.number[told.cause[after]], told.order[before], told.order[after]
    )
    again &= told.victim[before] == told.victim[after]
    found: I64 = np.union1d(before[again], after[again])
    return found


def _started_between(flat: Flat, number: I64, first: I64, last: I64) -> npt.NDArray[np.bool_]:
    """Whether a workload was admitted or placed after one order and before another."""
    starts = flat.decisions.of(DecisionKind.ADMIT, DecisionKind.PLACE)
    order, _ = first_after(starts.marks(), number, first)
    started: npt.NDArray[np.bool_] = order < last
    return started


def _groups(told: Preemptions, rows: I64) -> list[I64]:
    """Rows that have a workload in common, directly or through others, together."""
    leader: dict[int, int] = {}

    def lead(one: int) -> int:
        while leader.setdefault(one, one) != one:
            one = leader[one]
        return one

    for row in rows.tolist():
        leader[lead(int(told.victim[row]))] = lead(int(told.cause[row]))
    groups: dict[int, list[int]] = {}
    for row in rows[np.argsort(told.order[rows])].tolist():
        groups.setdefault(lead(int(told.victim[row])), []).append(row)
    return [np.array(group, np.int64) for group in groups.values()]


def _loop(lives: JobRecords, told: Preemptions, rows: I64, outside: _Outside, found: FlatFacts) -> Loop:
    proofs = np.flatnonzero(np.isin(found.subject, lives.number[told.victim[rows]]))
    _, once = np.unique(found.at_ms[proofs], return_index=True)
    first, last = (int(np.searchsorted(outside.order, told.order[rows[at]])) for at in (0, -1))
    counts = Counter[tuple[int, int]]()
    for cause, victim, times in zip(
        *(column[rows].tolist() for column in (told.cause, told.victim, told.times)), strict=True
    ):
        counts[cause, victim] += times
    return Loop(
        pairs=tuple(_pair(lives, cause, victim, times) for (cause, victim), times in _in_turn(counts)),
        preemptions=int(told.times[rows].sum()),
        start_ms=int(told.at_ms[rows[0]]),
        end_ms=int(told.last_ms[rows].max()),
        outside_facts=last - first,
        begins=_fact_text(lives, outside, first - 1),
        ends=_fact_text(lives, outside, last),
        lost_gpu_h=float(told.lost_milli_ms[rows].sum()) / GPU_HOUR_MILLI_MS,
        proven=len(proofs) > 0,
        left_out_ms=-1 if (found.arg[proofs] < 0).any() else int(found.arg[proofs[once]].sum()),
        at_least=bool(((found.arg[proofs] < 0) | (found.value[proofs] <= 0)).any()),
    )


def _in_turn(counts: Counter[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
    """The pairs, each followed by one whose victim is its cause, where there is one: the circle as it turns."""
    left, turned = dict(counts), list[tuple[tuple[int, int], int]]()
    while left:
        follows = (pair for pair in left if turned and pair[1] == turned[-1][0][0])
        pair = next(follows, max(left, key=lambda pair: left[pair]))
        turned.append((pair, left.pop(pair)))
    return turned


def _pair(lives: JobRecords, cause: int, victim: int, times: int) -> Pair:
    queues = lives.queues
    return Pair(
        cause=lives.ids[cause],
        cause_queue=queues[lives.queue[cause]],
        victim=lives.ids[victim],
        victim_queue=queues[lives.queue[victim]],
        times=times,
    )


def _fact_text(lives: JobRecords, outside: _Outside, at: int) -> str:
    if not 0 <= at < len(outside.order):
        return ""
    kind, subject = FactKind(int(outside.kind[at])), int(outside.subject[at])
    row = np.flatnonzero(lives.number == subject)
    name = lives.ids[int(row[0])] if len(row) else str(subject)
    return _SAID.get(kind, "the fleet changed").format(name)


def loop_text(loop: Loop) -> str:
    """A loop in words."""
    said = [
        f"{pair.cause} ({pair.cause_queue}) preempted {pair.victim} ({pair.victim_queue}) "
        + ("once" if pair.times == 1 else f"{pair.times:,} times")
        for pair in loop.pairs[:_MOST_NAMED]
    ]
    more = len(loop.pairs) - _MOST_NAMED
    said += [count_text(more, "more pair")] if more > 0 else []
    began = f" after {loop.begins}" if loop.begins else ""
    ended = f"until {loop.ends}" if loop.ends else "and it went on when the run ended"
    between = count_text(loop.outside_facts, "fact") + " from outside" if loop.outside_facts else "nothing from outside"
    lost = ("at least " if loop.at_least else "") + amount_text(loop.lost_gpu_h)
    remedy = "" if loop.outside_facts else "; admission: tidegate does not loop"
    return (
        f"Preemption loop{began}: {'; '.join(said)}, in {time_text(loop.end_ms - loop.start_ms)} with {between} in "
        f"between, {ended}. {_proof_text(loop)}It threw away {lost} GPU-hours{remedy}."
    )


def _proof_text(loop: Loop) -> str:
    if not loop.proven:
        return ""
    left_out = f"{time_text(loop.left_out_ms)} of it" if loop.left_out_ms >= 0 else "the rest of it"
    return f"The same state came again and again; the twin left out {left_out}. "
