"""Places that the world reports: bound pods of ours, and what unmanaged pods hold of a node."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine.kernels.columns import bound_pods
from tidegate.engine.kernels.node_fit import log_change, move_pod, sum_devices
from tidegate.engine.kernels.observe_bound import more_devices, place_reported
from tidegate.engine.quota_reservations import counts_of, mark_dirty, reclaim
from tidegate.engine.release import free_pods, note_found, pods_of
from tidegate.engine.topology.build import invalidate
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.hardware import is_device
from tidegate.model.observed_status import ObservedStatus, UnmanagedPods
from tidegate.model.units import WHOLE_MILLI, bounded
from tidegate.state.classes import MOST_PODS
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import asked_pods, set_of_pod
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.nodes import Taken
from tidegate.state.tables.workloads import Phase

# As plain numbers: an enum's members are slow to read, and this is done for every pod after a restart.
_PENDING, _ASSUMED, _RUNNING = (int(phase) for phase in (Phase.PENDING, Phase.ASSUMED, Phase.RUNNING))
_HOLDS = (_ASSUMED, _RUNNING)


# -- pods ------------------------------------------------------------------------------------------------------


def observe_bound(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Give pods the places that the world reports, whatever their nodes refuse; gangs are checked later."""
    rows, nodes = state.workload_numbers.rows(events.subject[run]), state.node_numbers.rows(events.arg[run])
    ordinals = events.pod[run]
    known = (rows != UNKNOWN) & (nodes != UNKNOWN) & (ordinals >= 0) & (ordinals < MOST_PODS)
    _note_grants(state, events, run)
    shown = np.zeros((int(known.sum()), bound_pods.CLASS + 1), np.int64)
    shown[:, bound_pods.WORKLOAD] = rows[known]
    shown[:, bound_pods.ORDINAL] = ordinals[known]
    shown[:, bound_pods.NODE] = nodes[known]
    _find_classes(state, shown)
    state.reserve_pods(len(shown))
    there = np.unique(shown[:, bound_pods.WORKLOAD])
    if _are_new(state, shown, there):
        active(place_reported)(state.hot(), shown, state.now_ms)
    else:
        _bind_each(state, shown)
    note_overuse(state, np.unique(shown[:, bound_pods.NODE]))


def _are_new(state: ClusterState, shown: I64, there: I64) -> bool:
    """Whether nothing was known of these pods: as after a restart, and mostly otherwise."""
    if (state.workloads.first_pod[there] >= 0).any():
        return False
    pods = shown[:, bound_pods.WORKLOAD] * MOST_PODS + shown[:, bound_pods.ORDINAL]
    return len(np.unique(pods)) == len(pods)


def _find_classes(state: ClusterState, shown: I64) -> None:
    """Write the class of each reported pod: once for all that request the same and were granted all of it."""
    works = state.workloads.work_class[shown[:, bound_pods.WORKLOAD]]
    partly = _are_partial(state, shown[:, bound_pods.WORKLOAD])
    kinds = np.where(partly, state.work_classes.top + shown[:, bound_pods.WORKLOAD], works)
    asked = kinds * MOST_PODS + shown[:, bound_pods.ORDINAL]
    _, first, which = np.unique(asked, return_index=True, return_inverse=True)
    classes = [
        _pod_class(state, int(shown[at, bound_pods.WORKLOAD]), int(shown[at, bound_pods.ORDINAL]))
        for at in first.tolist()
    ]
    shown[:, bound_pods.CLASS] = np.array(classes, np.int64)[which]


def _are_partial(state: ClusterState, rows: I64) -> Any:
    """Whether workloads may have been granted fewer pods than they request: pods are numbered over the granted ones."""
    partial = np.isin(rows, list(state.granted))
    reservations = state.quota.reservations
    at = np.flatnonzero(rows < reservations.top)
    if state.quota and len(at):
        asked = state.work_classes.pods[state.workloads.work_class[rows[at]]]
        partial[at] |= (reservations.queue[rows[at]] != NONE) & (reservations.pods[rows[at]].sum(axis=1) != asked)
    return partial


def _bind_each(state: ClusterState, shown: I64) -> None:
    """Give pods their places one by one, because some are there already, or elsewhere, as far as is known."""
    pods, there = state.pods, dict[int, dict[int, int]]()  # by row of the workload: its pods by ordinal
    for at, (row, ordinal, node, _) in enumerate(shown.tolist()):
        if row not in there:
            there[row] = {int(pods.ordinal[pod]): pod for pod in pods_of(state, row).tolist()}
        pod = there[row].get(ordinal, NOBODY)
        if pod != NOBODY and pods.node[pod] == node:
            pods.decision[pod] = NOBODY  # it is there, whatever becomes of our decision
            if pods.phase[pod] == _PENDING:
                pods.phase[pod] = _ASSUMED
            continue
        if pod != NOBODY:
            free_pods(state, row, np.array([pod], np.int64))  # it is elsewhere, by no decision of ours
        active(place_reported)(state.hot(), shown[at : at + 1], state.now_ms)
        there[row][ordinal] = int(state.workloads.first_pod[row])


def _note_grants(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Note the granted counts that later facts of the batch report, where fewer than requested."""
    later = slice(run.stop, None)
    amounts = np.flatnonzero(events.kind[later] == FactKind.WORKLOAD_OBSERVED) + run.stop
    amounts = amounts[np.isin(events.subject[amounts], events.subject[run])] if len(amounts) else amounts
    rows = state.workload_numbers.rows(events.subject[amounts])
    for row, arg in zip(rows.tolist(), events.arg[amounts].tolist(), strict=True):
        standing = events.payloads[arg]
        if row == UNKNOWN or not isinstance(standing, ObservedStatus) or not (standing.queue and standing.grants):
            continue
        counts = tuple(counts_of(state.works[int(state.workloads.work_class[row])], standing))
        if counts != tuple(asked_pods(state, row)):
            state.granted[row] = counts


def observe_absent(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Let pods that are not on their nodes keep their places: the pods that replace them are expected there."""
    pods = state.pods
    for number, ordinal in zip(events.subject[run].tolist(), events.pod[run].tolist(), strict=True):
        row = state.workload_numbers.row(number)
        if row != UNKNOWN and state.workloads.phase[row] in _HOLDS:
            held = pods_of(state, row)
            pods.phase[held[pods.ordinal[held] == ordinal]] = Phase.PENDING


def observe_done(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Release what pods hold that are done; the rest of the gang runs on.

    Of pending work it counts only if the same facts report the rest at its places: after a restart.
    """
    _note_grants(state, events, run)
    for number, ordinal in zip(events.subject[run].tolist(), events.pod[run].tolist(), strict=True):
        row = state.workload_numbers.row(number)
        pod_set = set_of_pod(state, row, ordinal) if row != UNKNOWN else -1
        if pod_set < 0 or state.workloads.phase[row] not in (*_HOLDS, _PENDING):
            continue
        pods = pods_of(state, row)
        there = pods[state.pods.ordinal[pods] == ordinal]
        before = state.done.get(row, ())
        is_missing = (pod_set, ordinal) in state.missing.get(row, ())
        if (pod_set, ordinal) in before or (len(pods) and not len(there) and not is_missing):
            continue  # it was reported before
        free_pods(state, row, there)
        note_found(state, row, ordinal)
        state.done[row] = tuple(sorted((*before, (pod_set, ordinal))))
        reclaim(state, row, pod_set)
        mark_dirty(state, np.array([row], np.int64))


def _pod_class(state: ClusterState, row: int, ordinal: int) -> int:
    """The class of a workload's pod; -1 if it has no such pod."""
    pod_set = set_of_pod(state, row, ordinal)
    first = int(state.work_classes.first_set[state.workloads.work_class[row]])
    return int(state.pod_sets.pod_class[first + pod_set]) if pod_set >= 0 else -1


# -- unmanaged pods --------------------------------------------------------------------------------------------


def observe_unmanaged(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Give nodes the room that unmanaged pods leave."""
    seen = []
    for number, arg in zip(events.subject[run].tolist(), events.arg[run].tolist(), strict=True):
        row, unmanaged = state.node_numbers.row(number), events.payloads[arg]
        assert isinstance(unmanaged, UnmanagedPods)
        if row != UNKNOWN:
            _give_back(state, row)
            _take(state, row, _countable(unmanaged))
            seen.append(row)
    rows = np.array(seen, np.int64)
    _follow_devices(state, rows)
    note_overuse(state, rows)
    if seen:
        invalidate(state)
    state.counters[Counter.ROOM_EPOCH] += 1


def _countable(unmanaged: UnmanagedPods) -> UnmanagedPods:
    """What unmanaged pods hold, in amounts that can be counted."""
    request, charge = (
        [(name, bounded(amount)) for name, amount in amounts] for amounts in (unmanaged.request, unmanaged.charge)
    )
    return UnmanagedPods(
        node=unmanaged.node, request=tuple(request), charge=tuple(charge), pods=bounded(unmanaged.pods)
    )


def take_unmanaged(state: ClusterState, row: int, unmanaged: UnmanagedPods) -> None:
    """Take what unmanaged pods hold on a node: of its devices those that are idle."""
    _take(state, row, unmanaged)
    if row in state.unmanaged:
        _follow_devices(state, np.array([row], np.int64))


def release_unmanaged(state: ClusterState, row: int) -> UnmanagedPods:
    """Give back what unmanaged pods held on a node; return it."""
    if row not in state.unmanaged:
        return UnmanagedPods(node="")
    unmanaged = _give_back(state, row)
    _follow_devices(state, np.array([row], np.int64))
    return unmanaged


def _take(state: ClusterState, row: int, unmanaged: UnmanagedPods) -> None:
    gpus = sum(amount for name, amount in unmanaged.request if is_device(name))
    devices, short = 0, gpus
    left = state.nodes.left[row]
    for d in reversed(range(int(state.nodes.devices[row]) if gpus else 0)):  # ours are given from the other end
        if short and left[d] == WHOLE_MILLI:
            devices |= 1 << d
            short -= 1
    if unmanaged.request or unmanaged.charge or unmanaged.pods:
        state.unmanaged[row] = Taken(unmanaged=unmanaged, devices=devices, short=short)
        _move(state, row, state.unmanaged[row], -1)


def _give_back(state: ClusterState, row: int) -> UnmanagedPods:
    taken = state.unmanaged.pop(row, None)
    if taken is None:
        return UnmanagedPods(node="")
    _move(state, row, taken, 1)
    return taken.unmanaged


def _move(state: ClusterState, row: int, taken: Taken, sign: int) -> None:
    nodes, unmanaged = state.nodes, dict(taken.unmanaged.request)
    nodes.cpu_free[row] += sign * unmanaged.get("cpu", 0)
    nodes.memory_free[row] += sign * unmanaged.get("memory", 0)
    nodes.slots_free[row] += sign * taken.unmanaged.pods
    nodes.short[row] -= sign * taken.short
    for e, name in enumerate(state.extras):
        nodes.extra_free[row, e] += sign * unmanaged.get(name, 0)
    for d in range(int(taken.devices).bit_length()):
        nodes.left[row, d] += sign * WHOLE_MILLI * (taken.devices >> d & 1)


def _follow_devices(state: ClusterState, rows: I64) -> None:
    """Note that what is free of these nodes has changed."""
    hot = state.hot()
    active(sum_devices)(hot, rows)
    for row in rows.tolist():
        active(log_change)(hot, row)


# -- nodes that are reported with more in use than they have ---------------------------------------------------


def settle_overuse(state: ClusterState) -> None:
    """Give pods that are short of GPUs those that are free by now, and note where more is in use than there is."""
    nodes, top = state.nodes, state.nodes.top
    over = np.flatnonzero(nodes.short[:top] | nodes.overdrawn[:top])
    for row in over[nodes.short[over] > 0].tolist():
        for pod in np.flatnonzero(state.pods.node[: state.pods.top] == row).tolist():
            devices, k = int(state.pods.devices[pod]), int(state.pods.pod_class[pod])
            _assign_devices(state, pod, devices | int(active(more_devices)(state.hot(), k, row, devices)))
        if row in state.unmanaged and state.unmanaged[row].short:
            take_unmanaged(state, row, release_unmanaged(state, row))
    note_overuse(state, over)


def note_overuse(state: ClusterState, rows: I64) -> None:
    """Note whether the world reports more in use on nodes than they have."""
    nodes = state.nodes
    least = np.minimum(np.minimum(nodes.cpu_free[rows], nodes.memory_free[rows]), nodes.slots_free[rows])
    nodes.overdrawn[rows] = np.minimum(least, nodes.extra_free[rows].min(axis=1, initial=0)) < 0


def drop_devices(state: ClusterState, row: int, count: int) -> None:
    """Limit a node to so many devices: pods that had others are short of them."""
    for pod in np.flatnonzero(state.pods.node[: state.pods.top] == row).tolist():
        _assign_devices(state, pod, int(state.pods.devices[pod]) & ((1 << count) - 1))


def _assign_devices(state: ClusterState, pod: int, devices: int) -> None:
    """Give a pod these devices of its node in place of those it has."""
    pods, hot = state.pods, state.hot()
    k, n, had = int(pods.pod_class[pod]), int(pods.node[pod]), int(pods.devices[pod])
    if devices != had:
        active(move_pod)(hot, k, n, had, 1)
        pods.devices[pod] = devices
        active(move_pod)(hot, k, n, devices, -1)
