"""Facts into the state: mirrors what the world reports and never decides.

What a fact makes necessary, such as the eviction of a gang that lost a pod, is noted as `pending_eviction` and decided
later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tidegate.engine.kernels.apply_work import TAIL
from tidegate.engine.kernels.node_fit import confirm, log_change, release_places, sum_devices
from tidegate.engine.kernels.pending_queue import link, unlink
from tidegate.engine.observe_admission import observe_status, observe_usage, withdraw_admission
from tidegate.engine.observe_end import settle_holders
from tidegate.engine.observe_pods import (
    drop_devices,
    note_overuse,
    observe_absent,
    observe_bound,
    observe_done,
    observe_unmanaged,
    release_unmanaged,
    settle_overuse,
    take_unmanaged,
)
from tidegate.engine.place_reservations import drop_all_reservations, drop_reservations, forget_node
from tidegate.engine.placement_rule import set_typical
from tidegate.engine.policy_change import change_amounts, drain_stopped
from tidegate.engine.progress import first_remaining_s, note_progress
from tidegate.engine.quota_layout import describe_work, lay_out, sum_up
from tidegate.engine.quota_reservations import holding_of, leave_queue, mark_dirty, release_quota, write_holdings
from tidegate.engine.release import forget, pods_of, remove_pods, requeue_all, requeue_if_gone
from tidegate.engine.start_backoff import forget_failed_starts, note_failed_start
from tidegate.engine.topology.build import invalidate
from tidegate.engine.unusable_nodes import leave_unusable
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.facts import ALL_PODS, FactBatch, FactKind, WriteOutcome
from tidegate.model.hardware import MOST_DEVICES, MOST_POD_SLOTS, Node
from tidegate.model.policy import Policy
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.units import WHOLE_MILLI, bounded
from tidegate.model.work import Work
from tidegate.state.classes import CORE_RESOURCES
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.nodes import BROKEN_MILLI
from tidegate.state.tables.workloads import Phase
from tidegate.state.unused_classes import give_back_unused


def apply(state: ClusterState, events: FactBatch, now_ms: int) -> None:
    """Apply the facts to the state."""
    state.now_ms = max(state.now_ms, now_ms)
    for kind, run in events.runs():
        handler = _HANDLERS.get(kind)
        if handler is not None:
            if _is_external(state, kind, events, run):
                state.counters[Counter.EXTERNAL] += 1
                state.counters[Counter.REPEATS] = 0
            handler(state, events, run)
    settle_holders(state, events)
    leave_unusable(state, events)
    give_back_unused(state)
    settle_overuse(state)


def _is_external(state: ClusterState, kind: FactKind, events: FactBatch, run: slice) -> bool:
    """Whether facts report more than the outcome of decisions: a start, or the end of a terminating workload."""
    if kind == FactKind.POD_STARTED:
        return False
    if kind == FactKind.OUTCOME:
        return bool((events.arg[run] == WriteOutcome.FAILED).any())
    if kind == FactKind.POD_GONE:
        rows = _rows(state, events.subject[run])
        return bool((state.workloads.phase[rows] != Phase.TERMINATING).any())
    return True


# -- policy ----------------------------------------------------------------------------------------------------


def _policy_changed(state: ClusterState, events: FactBatch, run: slice) -> None:
    before = state.policy.shares
    for arg in events.arg[run].tolist():
        policy = events.payloads[arg]
        assert isinstance(policy, Policy)
        state.policy = policy
    set_typical(state, state.policy.placement.typical)
    state.counters[Counter.LEARNT_FROM] = -1
    state.counters[Counter.ROOM_EPOCH] += 1
    state.counters[Counter.ORDER_EPOCH] += 1
    state.work_classes.held_epoch[:] = -1  # every order uses its own epoch here
    state.drop_scores()
    drop_all_reservations(state)
    if not change_amounts(state, before):
        lay_out(state)
        drain_stopped(state)


# -- workloads -------------------------------------------------------------------------------------------------


def _submitted(state: ClusterState, events: FactBatch, run: slice) -> None:
    numbers, at = events.subject[run], events.arg[run]
    unknown = state.workload_numbers.rows(numbers) == UNKNOWN
    if np.count_nonzero(unknown) < len(numbers):
        numbers, at = numbers[unknown], at[unknown]
    if np.count_nonzero(numbers[1:] <= numbers[:-1]) or np.count_nonzero(numbers < 0):
        numbers, at = _each_once(numbers, at)
    told, table = events.submissions, state.workloads
    classes = state.intern_works(events.works, told.work[at])
    rows = table.take(len(numbers))
    ids = told.ids
    state.name_workloads(rows, numbers, [ids[i] for i in at.tolist()])
    submitted, estimate = told.submitted_ms[at], told.estimate_ms[at]
    table.work_class[rows] = classes
    table.submitted_ms[rows] = submitted
    table.estimate_ms[rows] = estimate
    table.remaining_s[rows] = first_remaining_s(estimate)
    table.place_in_level[rows] = TAIL
    table.since_ms[rows] = state.now_ms
    _count_seen(state, classes)
    _break_ties(state, rows, submitted)
    if np.count_nonzero(submitted[1:] <= submitted[:-1]):
        order = np.lexsort((table.tie[rows], submitted))
        rows, classes = rows[order], classes[order]
    malformed = state.work_classes.malformed[classes]
    if np.count_nonzero(malformed):
        state.note_pending_eviction(rows[malformed > 0], malformed[malformed > 0])
        rows = rows[malformed == 0]
    active(link)(state.hot(), rows)
    state.counters[Counter.ORDER_EPOCH] += 1
    if state.quota:
        describe_work(state)
        mark_dirty(state, rows)


def _each_once(numbers: I64, at: I64) -> tuple[I64, I64]:
    """The first of submissions that are reported twice, without those that have no number."""
    first = np.sort(np.unique(numbers, return_index=True)[1])
    first = first[numbers[first] >= 0]
    return numbers[first], at[first]


def _count_seen(state: ClusterState, classes: I64) -> None:
    """Count the requested pods of each class."""
    sets, top = state.pod_sets, state.pod_sets.top
    times = np.bincount(classes, minlength=state.work_classes.top)
    np.add.at(state.pod_classes.seen, sets.pod_class[:top], sets.count[:top] * times[sets.work_class[:top]])


def _break_ties(state: ClusterState, rows: I64, submitted: I64) -> None:
    """Rank workloads that were submitted in the same millisecond by id."""
    table, latest = state.workloads, int(state.counters[Counter.LATEST_SUBMITTED])
    if not len(rows):
        return
    state.counters[Counter.LATEST_SUBMITTED] = max(latest, int(submitted.max()))
    if submitted.min() <= latest:  # some may tie with workloads that were reported before
        live = state.live_workloads()
        rows = live[np.isin(table.submitted_ms[live], submitted)]
        submitted = table.submitted_ms[rows]
    order = np.argsort(submitted, kind="stable")
    times = submitted[order]
    same = times[1:] == times[:-1]
    if not np.count_nonzero(same):
        return
    tied = np.append(same, False) | np.append(False, same)
    next_of: dict[int, int] = {}
    for row in sorted(rows[order[tied]].tolist(), key=state.workload_ids.__getitem__):
        time = int(table.submitted_ms[row])
        table.tie[row] = next_of[time] = next_of.get(time, -1) + 1


def _changed(state: ClusterState, events: FactBatch, run: slice) -> None:
    table = state.workloads
    for number, arg in zip(events.subject[run].tolist(), events.arg[run].tolist(), strict=True):
        row = state.workload_numbers.row(number)
        work = events.payloads[arg]
        assert isinstance(work, Work)
        if row == UNKNOWN:
            continue
        w = state.intern_work(work)
        if table.phase[row] in (Phase.PENDING, Phase.NONE):
            _change_pending(state, row, w)
        elif _same_pods(state, int(table.work_class[row]), w):
            _change_holder(state, row, w)
    if state.quota:
        describe_work(state)
    state.counters[Counter.ORDER_EPOCH] += 1


def _change_pending(state: ClusterState, row: int, w: int) -> None:
    """Change the request of a workload that is pending, or about to be rejected.

    If it requests other pods, the pods that it gave back before no longer count: it may have been made smaller.
    """
    table, rows, reservations = state.workloads, np.array([row], np.int64), state.quota.reservations
    if row < reservations.top and not _same_pods(state, int(table.work_class[row]), w):
        reservations.reclaimed[row] = 0
    _stop_waiting(state, row)
    drop_reservations(state, rows)
    forget_failed_starts(state, row)
    table.work_class[row] = w
    table.held_code[row] = table.pending_eviction[row] = 0
    if state.work_classes.malformed[w]:
        table.phase[row] = Phase.NONE
        state.note_pending_eviction(rows, int(state.work_classes.malformed[w]))
        return
    active(link)(state.hot(), rows)
    if state.quota:
        describe_work(state)
        mark_dirty(state, rows)


def _change_holder(state: ClusterState, row: int, w: int) -> None:
    """Change the class of a workload that holds quota or places and keeps the same pods: it holds what it held."""
    rows, held = np.array([row], np.int64), None
    if state.quota.holds_quota(row):
        held = holding_of(state, row)
        decision = int(state.quota.reservations.decision[row])
        release_quota(state, rows)
    state.workloads.work_class[row] = w
    if held is not None:  # another class may request its queue's resources in another order
        describe_work(state)
        write_holdings(state, [held])
        state.quota.reservations.decision[row] = decision
        sum_up(state.quota)


def _stop_waiting(state: ClusterState, row: int) -> None:
    """Remove a workload from the pending ones; those behind it are looked at, and their reasons reported again."""
    if state.workloads.phase[row] != Phase.PENDING:
        return
    rows = np.array([row], np.int64)
    mark_dirty(state, rows)
    leave_queue(state, rows)
    active(unlink)(state.hot(), row)
    state.counters[Counter.UNREPORTED] += 1


def _same_pods(state: ClusterState, v: int, w: int) -> bool:
    return state.works[v].pod_sets == state.works[w].pod_sets


def _cancelled(state: ClusterState, events: FactBatch, run: slice) -> None:
    table = state.workloads
    for row in _rows(state, events.subject[run]).tolist():
        if table.phase[row] in (Phase.PENDING, Phase.NONE):
            _stop_waiting(state, row)
            forget(state, np.array([row], np.int64))
        else:
            table.ending[row] = 1
            if table.phase[row] != Phase.TERMINATING:
                state.note_pending_eviction(np.array([row]), Reason.CANCELLED)
    state.counters[Counter.ORDER_EPOCH] += 1


def _finished(state: ClusterState, events: FactBatch, run: slice) -> None:
    rows = _rows(state, events.subject[run])
    for row in rows[state.workloads.phase[rows] == Phase.PENDING].tolist():
        _stop_waiting(state, row)
    active(release_places)(state.hot(), rows)
    state.counters[Counter.PODS_FINISHED] += state.work_classes.pods[state.workloads.work_class[rows]].sum()
    state.counters[Counter.ORDER_EPOCH] += 1
    forget(state, rows)


def _progress(state: ClusterState, events: FactBatch, run: slice) -> None:
    rows, values = state.workload_numbers.rows(events.subject[run]), events.values[run]
    known = rows != UNKNOWN
    left, done = values[known, 0], values[known, 1]
    note_progress(state, rows[known], np.where(np.isnan(left), np.inf, left), np.nan_to_num(done, posinf=0.0))
    state.counters[Counter.ORDER_EPOCH] += 1


# -- pods ------------------------------------------------------------------------------------------------------


def _started(state: ClusterState, events: FactBatch, run: slice) -> None:
    subject, pod = events.subject[run], events.pod[run]
    single = np.flatnonzero(pod != ALL_PODS)
    whole = subject if not len(single) else subject[pod == ALL_PODS]
    active(confirm)(state.hot(), _rows(state, whole), state.now_ms)
    for number, ordinal in zip(subject[single].tolist(), pod[single].tolist(), strict=True):
        _pod_started(state, number, ordinal)


def _pod_started(state: ClusterState, number: int, ordinal: int) -> None:
    table, row = state.workloads, state.workload_numbers.row(number)
    pods = pods_of(state, row) if row != UNKNOWN else np.zeros(0, np.int64)
    state.pods.phase[pods[state.pods.ordinal[pods] == ordinal]] = Phase.RUNNING
    if len(pods) and table.phase[row] == Phase.ASSUMED and (state.pods.phase[pods] == Phase.RUNNING).all():
        table.phase[row] = Phase.RUNNING
        table.since_ms[row] = state.now_ms


def _pods_gone(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Free what removed pods held; a gang that did not expect to lose them gets a pending eviction."""
    table = state.workloads
    rows = _rows(state, events.subject[run][events.pod[run] == ALL_PODS])
    requeue_all(state, rows[(table.phase[rows] == Phase.TERMINATING) & (table.first_pod[rows] < 0)])  # held quota only
    for number, ordinal in zip(events.subject[run].tolist(), events.pod[run].tolist(), strict=True):
        row = state.workload_numbers.row(number)
        if row == UNKNOWN or table.phase[row] == Phase.PENDING:
            continue
        pods = pods_of(state, row)
        lost = pods if ordinal == ALL_PODS else pods[state.pods.ordinal[pods] == ordinal]
        if len(lost):
            remove_pods(state, row, lost, Reason.GANG_BROKEN)


def _outcome(state: ClusterState, events: FactBatch, run: slice) -> None:
    for decision, outcome in zip(events.subject[run].tolist(), events.arg[run].tolist(), strict=True):
        if outcome != WriteOutcome.FAILED:
            continue
        if state.quota:
            withdraw_admission(state, decision)
        assumed = (state.pods.decision == decision) & (state.pods.phase == Phase.ASSUMED)
        for pod in np.flatnonzero(assumed[: state.pods.top]).tolist():
            row = int(state.pods.workload[pod])
            note_failed_start(state, row)
            remove_pods(state, row, np.array([pod], np.int64), Reason.BIND_FAILED)
            if state.workloads.pending_eviction[row] == Reason.BIND_FAILED and state.workloads.first_pod[row] == NONE:
                requeue_if_gone(state, row)  # nothing of it was carried out: there is nothing to evict


# -- nodes -----------------------------------------------------------------------------------------------------


def _node_added(state: ClusterState, events: FactBatch, run: slice) -> None:
    told = [number for number in events.subject[run].tolist() if number >= 0]
    new = [number for number in dict.fromkeys(told) if state.node_numbers.row(number) == UNKNOWN]
    rows, numbers = state.nodes.take(len(new)), np.array(new, np.int64)
    state.node_numbers.put(numbers, rows)
    state.nodes.number[rows] = numbers
    for number, arg in zip(events.subject[run].tolist(), events.arg[run].tolist(), strict=True):
        if number < 0:
            continue
        node = events.payloads[arg]
        assert isinstance(node, Node)
        row = state.node_numbers.row(number)
        _write_node(state, row, node)
        note_overuse(state, np.array([row], np.int64))
    _rank_nodes(state)
    invalidate(state)


def _write_node(state: ClusterState, row: int, node: Node) -> None:
    """Update a node's row from its spec; what is in use stays in use."""
    nodes = state.nodes
    capacity = dict(node.shape.capacity)
    reserved = dict(node.shape.reserved)
    for name in sorted(capacity.keys() - set(CORE_RESOURCES)):
        state.intern_extra(name)
    state.node_specs[row] = node
    nodes.node_class[row] = state.intern_node_class(node)
    nodes.up[row] = node.ready and not node.unschedulable
    for name, free, total in (
        ("cpu", nodes.cpu_free, nodes.cpu),
        ("memory", nodes.memory_free, nodes.memory),
        ("pods", nodes.slots_free, nodes.slots),
    ):
        amount = bounded(capacity.get(name, 0) - reserved.get(name, 0))
        amount = min(amount, MOST_POD_SLOTS) if name == "pods" else amount
        free[row] += amount - total[row]
        total[row] = amount
    for e, name in enumerate(state.extras):
        amount = bounded(capacity.get(name, 0) - reserved.get(name, 0))
        nodes.extra_free[row, e] += amount - nodes.extra[row, e]
        nodes.extra[row, e] = amount
    size = node.shape.nvlink_group_size
    nodes.linked[row] = size if 0 < size < node.shape.gpu_count else 0
    _write_devices(state, row, min(max(node.shape.gpu_count, 0), MOST_DEVICES), bounded(node.shape.gpu_memory_mib))


def _write_devices(state: ClusterState, row: int, count: int, vram: int) -> None:
    """Update a node's devices; nothing stays on those that are gone, and pods that had them are short of GPUs."""
    nodes = state.nodes
    nodes.widen("device", count)
    state.reserved.widen("device", count)
    nodes.widen("gpu_kind", count + 1)
    had, unmanaged = int(nodes.devices[row]), release_unmanaged(state, row)
    if count < had:
        drop_devices(state, row, count)
    nodes.vram_left[row, : min(had, count)] += vram - nodes.vram[row]
    nodes.left[row, had:count], nodes.vram_left[row, had:count] = WHOLE_MILLI, vram
    nodes.left[row, count:had] = nodes.vram_left[row, count:had] = 0
    nodes.devices[row], nodes.vram[row] = count, vram
    take_unmanaged(state, row, unmanaged)


def _rank_nodes(state: ClusterState) -> None:
    """Rank nodes by name; a change of the fleet makes all scores stale."""
    state.nodes.rank[:] = -1
    by_name = sorted(state.node_specs, key=lambda row: (state.node_specs[row].name, int(state.nodes.number[row])))
    state.nodes.rank[by_name] = np.arange(len(by_name))
    state.drop_scores()
    active(sum_devices)(state.hot(), np.array(by_name, np.int64))
    state.counters[Counter.LEARNT_FROM] = -1
    state.counters[Counter.ROOM_EPOCH] += 1
    state.counters[Counter.FLEET] += 1


def _node_removed(state: ClusterState, events: FactBatch, run: slice) -> None:
    for number in events.subject[run].tolist():
        row = state.node_numbers.row(number)
        if row == UNKNOWN:
            continue
        _lose_pods(state, row, -1, Reason.NODE_LOST)
        del state.node_specs[row]
        state.unmanaged.pop(row, None)
        forget_node(state, row)
        state.node_numbers.drop(np.array([number]))
        state.nodes.give(np.array([row], np.int64))
    _rank_nodes(state)
    invalidate(state)


def _lose_pods(state: ClusterState, node: int, device: int, pending_eviction: Reason) -> None:
    """Remove pods on a lost node, or on one lost device of it."""
    pods = state.pods
    lost = np.flatnonzero(pods.node[: pods.top] == node)
    if device >= 0:
        lost = lost[(pods.devices[lost] >> device) & 1 == 1]
    for row in np.unique(pods.workload[lost]).tolist():
        remove_pods(state, row, lost[pods.workload[lost] == row], pending_eviction)


def _device_changed(state: ClusterState, events: FactBatch, run: slice, *, broken: bool) -> None:
    for number, device in zip(events.subject[run].tolist(), events.arg[run].tolist(), strict=True):
        row = state.node_numbers.row(number)
        if row == UNKNOWN or not 0 <= device < state.nodes.devices[row]:
            continue
        is_broken = state.nodes.left[row, device] < -BROKEN_MILLI // 2
        if is_broken == broken:
            continue
        if broken:
            _lose_pods(state, row, device, Reason.DEVICE_LOST)
        state.nodes.left[row, device] += -BROKEN_MILLI if broken else BROKEN_MILLI
        hot = state.hot()
        active(sum_devices)(hot, np.array([row], np.int64))
        active(log_change)(hot, row)
        state.counters[Counter.ROOM_EPOCH] += 1
        state.counters[Counter.FLEET] += 1


def _rows(state: ClusterState, numbers: I64) -> I64:
    """Rows of the known workloads, each once."""
    rows = state.workload_numbers.rows(numbers)
    rows = rows[rows != UNKNOWN]
    # The last mention of a row keeps its mark: cheaper than sorting.
    marks, at = np.empty(state.workloads.capacity, np.int64), np.arange(len(rows))
    marks[rows] = at
    each_once: I64 = rows[marks[rows] == at]
    return each_once


_HANDLERS: dict[FactKind, Callable[[ClusterState, FactBatch, slice], None]] = {
    FactKind.POLICY_CHANGED: _policy_changed,
    FactKind.WORKLOAD_SUBMITTED: _submitted,
    FactKind.WORKLOAD_CHANGED: _changed,
    FactKind.WORKLOAD_CANCELLED: _cancelled,
    FactKind.WORKLOAD_FINISHED: _finished,
    FactKind.PROGRESS_OBSERVED: _progress,
    FactKind.POD_BOUND: observe_bound,
    FactKind.POD_STARTED: _started,
    FactKind.POD_GONE: _pods_gone,
    FactKind.POD_FAILED: _pods_gone,
    FactKind.POD_ABSENT: observe_absent,
    FactKind.POD_DONE: observe_done,
    FactKind.OUTCOME: _outcome,
    FactKind.WORKLOAD_OBSERVED: observe_status,
    FactKind.DECAYED_USAGE_OBSERVED: observe_usage,
    FactKind.UNMANAGED_OBSERVED: observe_unmanaged,
    FactKind.NODE_ADDED: _node_added,
    FactKind.NODE_CHANGED: _node_added,
    FactKind.NODE_REMOVED: _node_removed,
    FactKind.DEVICE_FAILED: partial(_device_changed, broken=True),
    FactKind.DEVICE_RECOVERED: partial(_device_changed, broken=False),
}
