"""Cycles in a row inside one kernel, where a cycle needs nothing but the quota tree: no places, no topology."""

from __future__ import annotations

from tidegate.engine.kernels.columns import counters, pass_state
from tidegate.engine.kernels.cycle_scratch import AGAIN, Cycle, CycleParams
from tidegate.engine.kernels.quota_cycle import DONE, MORE_ROOM, cycle_queues
from tidegate.engine.kernels.write_holds import report_heads, report_pending
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Counter
from tidegate.state.tables import quota_nodes

UNREPORTED, ROOM_EPOCH, LOOKED_MS = int(Counter.UNREPORTED), int(Counter.ROOM_EPOCH), int(Counter.LOOKED_MS)
EXTERNAL_EPOCH = int(Counter.EXTERNAL)

#: Cycles of a step at the most; a step that needs more has not settled and continues when it is called again. Where
#: quota is all that decides, cycles are cheap, and one step may have to admit tens of thousands.
MOST_CYCLES, MOST_QUOTA_CYCLES = 1_000, 64_000

#: Cycles that run in one pass where nothing needs to be done between them.
AT_ONCE = 64


#: Stages of a pass: it begins; its first cycle is next; more may follow; reasons to wait are to be reported.
BEGINS, FIRST, GOES_ON, TELLS = range(4)


@entry
def run_cycles(c: Cycle, params: CycleParams, most: int, rows: int) -> int:
    """Run up to `most` cycles until no tree is dirty, reporting reasons to the heads of each; return how many ran.

    It ends early if `out` has fewer rows left than one cycle may write, or the scratch has too few for targets.
    """
    view, d, out = c.quota, c.scratch, c.out
    ran = 0
    while ran < most and len(out.rows) - out.written[0] >= rows:
        if ran > 0 and not is_dirty(view.tree.quota_nodes):
            break
        now = params_at(params, params.now_ms, params.cycle + ran)
        if cycle_queues(c, None, now) != DONE:
            break
        report_heads(view.tree.quota_nodes, view.held, d.heads.entries, d.requests.marks, out)
        ran += 1
    return ran


@kernel
def is_dirty(node_rows: I64) -> bool:
    """Whether a tree is dirty."""
    for b in range(len(node_rows)):
        if node_rows[b, quota_nodes.DIRTY] != 0:
            return True
    return False


@inlined
def params_at(params: CycleParams, now_ms: int, cycle: int) -> CycleParams:
    """The inputs of a cycle at another time."""
    return CycleParams(
        now_ms,
        cycle,
        params.fair,
        params.ignore_undeclared,
        params.retargets,
        params.pods,
        params.places,
        params.recomputes,
        params.fails_fast,
        params.limit_ms,
    )


@kernel
def decide_all(c: Cycle, params: CycleParams, limits: I64, kept: I64) -> int:
    """Decide until nothing more changes, as `step` does where quota is all that decides.

    The limits are how many cycles a pass runs, those of `run_cycles`, and how many work classes there are. MORE_ROOM:
    it needs a larger scratch or output, and continues when it is called again. How often that happens changes neither
    the decisions nor how many cycles are counted.
    """
    view, d = c.quota, c.scratch
    quota_nodes, state_counters = view.tree.quota_nodes, c.hot.counters
    d.requests.marks[counters.NOW_MS] = params.now_ms
    d.requests.marks[counters.EXTERNAL] = state_counters[EXTERNAL_EPOCH] if params.places == 1 else AGAIN
    while kept[pass_state.STAGE] != BEGINS or kept[pass_state.RAN] < MOST_QUOTA_CYCLES:
        if kept[pass_state.STAGE] == BEGINS:
            state_counters[LOOKED_MS] = params.now_ms
            note_room(quota_nodes, params, state_counters, kept)
            if not is_dirty(quota_nodes) and state_counters[UNREPORTED] == 0:
                kept[pass_state.RAN] += 1  # it found nothing to do, and counts as a cycle all the same
                break
            kept[pass_state.STAGE], kept[pass_state.LEFT] = (
                FIRST,
                min(limits[0], MOST_QUOTA_CYCLES - kept[pass_state.RAN]),
            )
        if run_pass(c, params, limits, kept) != DONE:
            return MORE_ROOM
        if not is_dirty(quota_nodes):
            if report_pending(view.held, view.asked.queue_requests, limits[2], c.out) != DONE:
                return MORE_ROOM
            state_counters[UNREPORTED] = 0
        kept[pass_state.STAGE] = BEGINS
        if not is_dirty(quota_nodes):
            break
    return DONE


@kernel
def run_pass(c: Cycle, params: CycleParams, limits: I64, kept: I64) -> int:
    """Run the cycles of a pass that are left; MORE_ROOM: call again with a larger scratch or output."""
    while kept[pass_state.STAGE] == FIRST or (
        kept[pass_state.STAGE] == GOES_ON and kept[pass_state.LEFT] > 0 and is_dirty(c.quota.tree.quota_nodes)
    ):
        now = params_at(params, params.now_ms, kept[pass_state.CYCLE] + 1)
        ran = run_cycles(c, now, kept[pass_state.LEFT], limits[1])
        if ran == 0:
            return MORE_ROOM
        kept[pass_state.CYCLE] += ran
        kept[pass_state.RAN] += ran
        kept[pass_state.LEFT] -= ran
        kept[pass_state.STAGE] = GOES_ON
    kept[pass_state.STAGE] = TELLS
    return DONE


@inlined
def note_room(node_rows: I64, params: CycleParams, state_counters: I64, kept: I64) -> None:
    """Where admission takes a place, room on nodes is a reason to try everything again."""
    if params.places == 1 and kept[pass_state.ROOM_EPOCH] != state_counters[ROOM_EPOCH]:
        for b in range(len(node_rows)):
            if node_rows[b, quota_nodes.ROOT] == b:
                node_rows[b, quota_nodes.EPOCH] += 1
                node_rows[b, quota_nodes.DIRTY] = 1
    kept[pass_state.ROOM_EPOCH] = state_counters[ROOM_EPOCH]
