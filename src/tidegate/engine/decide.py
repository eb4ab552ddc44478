"""One cycle: carry out pending evictions, then give places in the order of the policy.

It changes the state as if its decisions were carried out.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.decision_rows import drain, single
from tidegate.engine.kernels.fifo_cycle import DONE, CycleOptions, try_heads, write_holds
from tidegate.engine.kernels.gang_placement import empty_output
from tidegate.engine.place_admitted import place_admitted
from tidegate.engine.place_reservations import close_reservations, drop_outdated, notice_passed_over, victim_search_for
from tidegate.engine.placement_rule import look_again, ready_rule
from tidegate.engine.preempt import decide_preemptive
from tidegate.engine.preemption_guard import notice_ends, retry_spared
from tidegate.engine.quota_cycle import decide_queues
from tidegate.engine.release import evict, forget
from tidegate.engine.replace_pods import replace_missing
from tidegate.jit.registry import active
from tidegate.model.decisions import (
    NO_DECISIONS,
    NO_REFUSALS,
    DecisionBatch,
    DecisionKind,
    RefusalCounts,
    join_decisions,
    join_tallies,
)
from tidegate.model.policy import OrderKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables.workloads import Phase

_ROWS = 1 << 12

_EVICTS = {Reason.MALFORMED: DecisionKind.REJECT, Reason.SHARE_UNSUPPORTED: DecisionKind.REJECT}


def decide(state: ClusterState, most: int = 1) -> tuple[DecisionBatch, RefusalCounts]:
    """Run one cycle and assume its decisions; up to `most` cycles where queues need nothing else in between."""
    evicted = _evict_pending(state)
    notice_ends(state)
    drop_outdated(state)
    notice_passed_over(state)
    retry_spared(state)
    if state.node_specs:
        look_again(state)
    replaced = replace_missing(state)
    if state.quota:
        decisions, tally = decide_queues(state, most)
        decisions = join_decisions([decisions, place_admitted(state)])
    elif state.policy.order.kind is OrderKind.FIFO:
        decisions, tally = _place_in_order(state)
    else:
        decisions, tally = decide_preemptive(state)
    return join_decisions([evicted, replaced, decisions]), tally


def _evict_pending(state: ClusterState) -> DecisionBatch:
    """Reject malformed workloads; evict, as a whole, gangs that lost a pod."""
    if not state.counters[Counter.PENDING_EVICTIONS]:
        return NO_DECISIONS
    state.counters[Counter.PENDING_EVICTIONS] = 0
    table = state.workloads
    pending = np.flatnonzero(table.pending_eviction[: table.top])
    batches = []
    for row in pending[np.argsort(table.number[pending], kind="stable")].tolist():
        code = Reason(int(table.pending_eviction[row]))
        table.pending_eviction[row] = 0
        if code not in _EVICTS and table.phase[row] not in (Phase.ASSUMED, Phase.RUNNING):
            continue  # later facts of the same batch evicted it
        batches.append(single(state, _EVICTS.get(code, DecisionKind.EVICT), row, code))
        if code in _EVICTS:
            forget(state, np.array([row], np.int64))
        else:
            evict(state, row, code)
    return join_decisions(batches)


def _place_in_order(state: ClusterState) -> tuple[DecisionBatch, RefusalCounts]:
    """The non-preemptive order: priority, then time."""
    works = state.work_classes
    waits = works.waiting[: works.top] > 0
    awake = waits & (works.held_epoch[: works.top] != state.counters[Counter.ROOM_EPOCH])
    if not np.count_nonzero(waits) or not (np.count_nonzero(awake) or state.counters[Counter.UNREPORTED]):
        return NO_DECISIONS, NO_REFUSALS  # nothing is pending, or nothing was freed since the refusals
    most_pods = int(works.pods[: works.top][waits].max())
    ready = ready_rule(state)
    options = CycleOptions(
        now_ms=state.now_ms,
        strict=int(state.policy.order.strict),
        waits=int(state.policy.waits),
        heap=np.zeros(works.top, np.int64),
        limit_ms=state.policy.order.reserve_after_ms,
        victims=ready.victims,
    )
    batches, tallies = [], []
    done = False
    while not done:
        state.reserve_pods(max(most_pods, _ROWS))
        if state.counters[Counter.PASSED_OVER]:
            state.reserved.reserve(int(state.counters[Counter.RESERVED]) + most_pods)
            options = options._replace(victims=victim_search_for(state, options.victims))
            state.ready = ready._replace(victims=options.victims)
        out = ready.output
        if len(out.rows) <= most_pods:
            out = empty_output(2 * most_pods)
        out.written[0] = 0
        hot = state.hot()
        done = active(try_heads)(hot, ready.rule, options, out) == DONE
        done = done and active(write_holds)(hot, ready.rule, options, out) == DONE
        batch, tally = drain(state, out)
        batches.append(batch)
        tallies.append(tally)
    state.counters[Counter.UNREPORTED] = 0
    close_reservations(state)
    return join_decisions(batches), join_tallies(tallies)
