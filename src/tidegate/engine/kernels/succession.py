"""Cycle after cycle without coming up for air, where a cycle needs nothing but the tree: no places, no topology.

Must not know: facts.
"""

from __future__ import annotations

from tidegate.engine.kernels.desk import AGAIN, NOW_MS, OUTSIDE, Desk, Turn
from tidegate.engine.kernels.place import Output
from tidegate.engine.kernels.queues import DONE, MORE_ROOM, cycle_queues
from tidegate.engine.kernels.registry import inlined, kernel
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.waiting import tell_heads, tell_waiting
from tidegate.model.columns import I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.shares import B_EPOCH, B_ROOT, B_STIRRED, Book

UNTOLD, ROOM_EPOCH, LOOKED_MS = int(Counter.UNTOLD), int(Counter.ROOM_EPOCH), int(Counter.LOOKED_MS)
OUTSIDE_EPOCH = int(Counter.OUTSIDE)

#: Cycles a step may take; a step that needs more has not settled and goes on when it is called again.
MOST_CYCLES = 1_000

#: What is kept of cycles from step to step: the latest cycle, the room epoch it knew; times that this step decided so
#: far, and whether it was telling those who wait when it ran out of room.
Z_CYCLE, Z_ROOM_EPOCH, Z_DECIDED, Z_TELLING = range(4)


@kernel
def run_cycles(hot: Hot, rule: Rule, book: Book, d: Desk, turn: Turn, limits: I64, out: Output) -> int:
    """Run cycles, each with what its heads are told, until nothing is stirred; return how many were run.

    Of the limits the first is how many cycles at most, the second how many rows one may write: it ends early where out
    has fewer left, or the desk needs more room for targets.
    """
    ran = 0
    while ran < limits[0] and len(out.rows) - out.written[0] >= limits[1]:
        if ran > 0 and not is_stirred(book.tree.branches):
            break
        now = turn_at(turn, turn.now_ms, turn.cycle + ran)
        if cycle_queues(hot, rule, book, d, None, now, out) != DONE:
            break
        tell_heads(book.tree.branches, book.held, d.heads.entries, d.wish.marks, out)
        ran += 1
    return ran


@kernel
def is_stirred(branches: I64) -> bool:
    """Whether there is a tree to look at."""
    for b in range(len(branches)):
        if branches[b, B_STIRRED] != 0:
            return True
    return False


@inlined
def turn_at(turn: Turn, now_ms: int, cycle: int) -> Turn:
    """What a cycle is told, at another time."""
    return Turn(
        now_ms,
        cycle,
        turn.fair,
        turn.ignore_undeclared,
        turn.retargets,
        turn.pods,
        turn.places,
        turn.recomputes,
        turn.fails_fast,
        turn.limit_ms,
    )


@kernel
def decide_all(hot: Hot, rule: Rule, book: Book, d: Desk, turn: Turn, limits: I64, kept: I64, out: Output) -> int:
    """Decide until nothing more changes, as `step` does where quota is all there is.

    Of the limits the first two are those of `run_cycles`, the third is how many kinds of work there are.
    MORE_ROOM: it needs a larger desk or output, and goes on where it was when it is called again.
    """
    branches, counters = book.tree.branches, hot.counters
    d.wish.marks[NOW_MS] = turn.now_ms
    d.wish.marks[OUTSIDE] = counters[OUTSIDE_EPOCH] if turn.places == 1 else AGAIN
    while kept[Z_DECIDED] < MOST_CYCLES:
        written = out.written[0]
        counters[LOOKED_MS] = turn.now_ms
        notice_room(branches, turn, counters, kept)
        if kept[Z_TELLING] == 0 and (is_stirred(branches) or counters[UNTOLD] != 0):
            ran = run_cycles(hot, rule, book, d, turn_at(turn, turn.now_ms, kept[Z_CYCLE] + 1), limits, out)
            if ran == 0:
                return MORE_ROOM
            kept[Z_CYCLE] += ran
            kept[Z_TELLING] = 1
        if kept[Z_TELLING] == 1 and not is_stirred(branches):
            if tell_waiting(book.held, book.asked.demands, limits[2], out) != DONE:
                return MORE_ROOM
            counters[UNTOLD] = 0
        kept[Z_TELLING] = 0
        kept[Z_DECIDED] += 1
        if not is_stirred(branches) and (counters[UNTOLD] == 0 or out.written[0] == written):
            break
    return DONE


@inlined
def notice_room(branches: I64, turn: Turn, counters: I64, kept: I64) -> None:
    """Where admission takes a place, room is a reason to look again at everything."""
    if turn.places == 1 and kept[Z_ROOM_EPOCH] != counters[ROOM_EPOCH]:
        for b in range(len(branches)):
            if branches[b, B_ROOT] == b:
                branches[b, B_EPOCH] += 1
                branches[b, B_STIRRED] = 1
    kept[Z_ROOM_EPOCH] = counters[ROOM_EPOCH]
