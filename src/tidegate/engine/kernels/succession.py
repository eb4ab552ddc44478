"""Cycle after cycle without coming up for air, where a cycle needs nothing but the tree: no places, no topology.

Must not know: facts.
"""

from __future__ import annotations

from tidegate.engine.kernels.desk import Desk, Turn
from tidegate.engine.kernels.place import Output
from tidegate.engine.kernels.queues import DONE, cycle_queues
from tidegate.engine.kernels.registry import kernel
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.waiting import tell_heads
from tidegate.model.columns import I64
from tidegate.state.cluster import Hot
from tidegate.state.shares import B_STIRRED, Book


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
        now = Turn(
            turn.now_ms,
            turn.cycle + ran,
            turn.fair,
            turn.ignore_undeclared,
            turn.retargets,
            turn.pods,
            turn.places,
            turn.recomputes,
            turn.fails_fast,
        )
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
