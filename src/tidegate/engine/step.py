"""The step: apply the facts, decide until nothing more changes, and return the decisions."""

from __future__ import annotations

from tidegate.engine.apply import apply
from tidegate.engine.decide import decide
from tidegate.engine.kernels.fixpoint import AT_ONCE, MOST_CYCLES, MOST_QUOTA_CYCLES
from tidegate.engine.preemption_guard import is_retry_due, next_end_ms
from tidegate.engine.preemptive_order import next_demotion_ms
from tidegate.engine.quota_cycle import has_new_room, is_quota_alone, next_try_ms
from tidegate.jit.registry import settle_form
from tidegate.model.decisions import StepResult, join_decisions, join_tallies
from tidegate.model.facts import FactBatch
from tidegate.model.policy import OrderKind
from tidegate.state.cluster import ClusterState, Counter


def step(state: ClusterState, events: FactBatch, now_ms: int) -> StepResult:
    """Apply the facts to the state, decide until nothing more changes, assume the decisions, and return them."""
    settle_form()
    apply(state, events, now_ms)
    batches, tallies, cycles, most = [], [], 0, most_cycles(state)
    while cycles < most:
        before = state.quota.cycle
        decisions, tally = decide(state, min(AT_ONCE, most - cycles))
        cycles += max(state.quota.cycle - before, 1)  # one that found nothing to do counts too
        if not len(decisions.id) and not _goes_on(state):
            break
        batches.append(decisions)
        tallies.append(tally)
        if _is_settled(state):
            break
    # A step that was cut off continues at once.
    wake_ms = state.now_ms if cycles == most else _next_wake_ms(state)
    return StepResult(join_decisions(batches), join_tallies(tallies), wake_ms, cycles)


def most_cycles(state: ClusterState) -> int:
    """How many cycles a step may take."""
    return MOST_QUOTA_CYCLES if state.quota and is_quota_alone(state) else MOST_CYCLES


def _is_settled(state: ClusterState) -> bool:
    """Whether one more cycle is known to find nothing: quota is all that decides, and nothing is left to look at."""
    if not state.quota or not is_quota_alone(state) or _goes_on(state):
        return False
    return not state.counters[Counter.UNREPORTED] and not state.counters[Counter.PENDING_EVICTIONS]


def _goes_on(state: ClusterState) -> bool:
    """Whether a cycle without decisions left a dirty tree, or a retry, to the next one."""
    quota_nodes = state.quota.quota_nodes
    return bool(
        quota_nodes.dirty[: quota_nodes.top].any() or (state.quota and (has_new_room(state) or is_retry_due(state)))
    )


def _next_wake_ms(state: ClusterState) -> int | None:
    """When time alone may change something: back-off, protection, demotion or a limit that ends; None: never."""
    times = [int(at_ms) or None for at_ms in state.counters[[Counter.SPARED, Counter.PASSED_DUE]]]
    if state.quota:
        times += [next_try_ms(state), next_end_ms(state)]
    elif state.policy.order.kind is not OrderKind.FIFO:
        times += [next_end_ms(state), next_demotion_ms(state) if state.policy.order.kind is OrderKind.LAS else None]
    return min((at_ms for at_ms in times if at_ms is not None), default=None)
