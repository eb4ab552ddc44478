"""Places that the world shows: pods bound by whomever, and what pods of others hold of a node.

Must not know: why anything was put where it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine.holding import Holding, book_of, reclaim, stir, write_holdings
from tidegate.engine.kernels.chain import unlink
from tidegate.engine.kernels.fit import log_change, lowest_idle, refusal, sum_devices, take_place
from tidegate.engine.kernels.registry import active
from tidegate.engine.kernels.shown import X_CLASS, X_NODE, X_ORDINAL, X_WHOLE, X_WORKLOAD, show_places
from tidegate.engine.layout import sum_up
from tidegate.engine.leaving import free_pods, pods_of, remove_pods
from tidegate.engine.planting import uproot
from tidegate.model.columns import I64
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import EventBatch, EventKind
from tidegate.model.hardware import is_device
from tidegate.model.reasons import Reason
from tidegate.model.shares import Queue, charge_of
from tidegate.model.standing import Foreign, Standing
from tidegate.model.units import WHOLE_MILLI
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.interning import MOST_PODS
from tidegate.state.numbers import UNKNOWN
from tidegate.state.tables import END, Phase, ShareCode, Taken

# As plain numbers: an enum's members are slow to come by, and this is done for every pod after a restart.
_PENDING, _ASSUMED, _RUNNING, _LEAVING = (
    int(phase) for phase in (Phase.PENDING, Phase.ASSUMED, Phase.RUNNING, Phase.LEAVING)
)
_HOLDS = (_ASSUMED, _RUNNING)

#: Refusals of a node that a pod which is there already need not heed.
_MAY_STAY = (0, int(Reason.NODE_DOWN))


# -- pods ------------------------------------------------------------------------------------------------------


def observe_bound(state: ClusterState, events: EventBatch, run: slice) -> None:
    """Let pods have the places that the world shows. A gang that has no room there, or is in part, is in trouble."""
    rows, nodes = state.workload_numbers.rows(events.subject[run]), state.node_numbers.rows(events.arg[run])
    known = (rows != UNKNOWN) & (nodes != UNKNOWN)
    known[known] = state.workloads.phase[rows[known]] != _LEAVING
    shown = np.zeros((int(known.sum()), 6), np.int64)
    shown[:, X_WORKLOAD], shown[:, X_ORDINAL], shown[:, X_NODE] = rows[known], events.pod[run][known], nodes[known]
    state.reserve_pods(len(shown))
    there = np.unique(shown[:, X_WORKLOAD])
    if _are_new(state, shown, there):
        _bind_all(state, shown)
    else:
        _bind_each(state, shown)
    there = there[np.isin(state.workloads.phase[there], _HOLDS)]
    for row in there[~_are_whole(state, there)].tolist():
        _mind_size(state, row)
    if state.shares:
        _charge_unasked(state, np.setdiff1d(there, _granted(state, events, run)).tolist())


def _are_new(state: ClusterState, shown: I64, there: I64) -> bool:
    """Whether nothing was known of these pods: as after a restart, and mostly otherwise."""
    if (state.workloads.first_pod[there] >= 0).any():
        return False
    pods = shown[:, X_WORKLOAD] * MOST_PODS + shown[:, X_ORDINAL]
    return len(np.unique(pods)) == len(pods)


def _bind_all(state: ClusterState, shown: I64) -> None:
    """Let pods that nothing was known of have their places."""
    asked = state.workloads.work_class[shown[:, X_WORKLOAD]] * MOST_PODS + shown[:, X_ORDINAL]
    kinds, first, which = np.unique(asked, return_index=True, return_inverse=True)
    classes = _PodClasses(state)
    of_kinds = [classes.of(int(shown[at, X_WORKLOAD]), int(shown[at, X_ORDINAL])) for at in first.tolist()]
    shown[:, [X_CLASS, X_WHOLE]] = np.array(of_kinds, np.int64).reshape(len(kinds), 2)[which]
    active(show_places)(state.hot(), shown, state.now_ms)


def _bind_each(state: ClusterState, shown: I64) -> None:
    """Let pods have their places one by one, as some are elsewhere by what we know."""
    there: dict[int, dict[int, int]] = {}  # by row of the workload: the nodes of its pods
    classes = _PodClasses(state)
    for row, ordinal, node, *_ in shown.tolist():
        if row not in there:
            there[row] = _nodes_of(state, row)
        if there[row].get(ordinal, NOBODY) != node:
            _bind(state, row, ordinal, node, classes)
            there[row][ordinal] = node


def _are_whole(state: ClusterState, rows: I64) -> Any:
    """Whether workloads are one pod, which is there: most are, and of those nothing is to be minded."""
    if state.done:
        return np.zeros(len(rows), bool)
    first, pods = state.workloads.first_pod[rows], state.work_classes.pods[state.workloads.work_class[rows]]
    return (pods == 1) & (first >= 0) & (state.pods.next[np.maximum(first, 0)] < 0)


def _granted(state: ClusterState, events: EventBatch, run: slice) -> I64:
    """Rows of workloads of which later facts tell what they were granted."""
    later = slice(run.stop, None)
    told = events.kind[later] == EventKind.WORKLOAD_OBSERVED
    standings = [events.payloads[arg] for arg in events.arg[later][told].tolist()]
    grants = [isinstance(one, Standing) and bool(one.queue and one.grants) for one in standings]
    return state.workload_numbers.rows(events.subject[later][told][np.array(grants, bool)])


def _mind_size(state: ClusterState, row: int) -> None:
    """A gang that is there in part is in trouble; pods that had done their part and are there again have not."""
    more = _count_pods(state, row) - _pods_to_be(state, row)
    if more > 0 and state.done.get(row, 0) >= more and not state.shares.holds_quota(row):
        state.done[row] -= more
    elif more != 0:
        state.note_trouble(np.array([row]), Reason.GANG_BROKEN)


def _charge_unasked(state: ClusterState, rows: list[int]) -> None:
    """Work that others started holds quota of its queue all the same, of the flavors that its nodes belong to."""
    tables = state.shares
    book_of(state)  # makes room for its tickets
    queues: dict[int, Queue | None] = {}  # by work class
    held = []
    for row in rows:
        w = int(state.workloads.work_class[row])
        if w not in queues:
            queues[w] = _queue_of(state, row)
        queue = queues[w]
        if queue is not None and tables.tickets.branch[row] == END:
            held.append(_holding_of_pods(state, row, queue))
    if held:
        write_holdings(state, held)
        sum_up(tables)


def _queue_of(state: ClusterState, row: int) -> Queue | None:
    branch = int(state.shares.demands.branch[state.workloads.work_class[row]])
    names = (name for name, at in state.shares.branch_rows.items() if at == branch and name.startswith("queue/"))
    name = next(names, "queue/")[6:]
    return next((queue for queue in state.policy.shares.queues if queue.name == name), None)


def _holding_of_pods(state: ClusterState, row: int, queue: Queue) -> Holding:
    """What the pods of a workload take of its queue, where they are."""
    pods = pods_of(state, row)
    ordinals, nodes = state.pods.ordinal[pods], state.pods.node[pods]
    claims, counts, first = [], [], 0
    for at, pod_set in enumerate(state.works[int(state.workloads.work_class[row])].pod_sets):
        here = np.flatnonzero((ordinals >= first) & (ordinals < first + pod_set.count))
        first += pod_set.count
        counts.append(len(here))
        if len(here):
            labels = dict(state.node_specs[int(nodes[here[0]])].labels)
            for resource, amount in charge_of(pod_set):
                claims += [
                    (at, resource, flavor, amount * len(here)) for flavor in _flavor(state, queue, resource, labels)
                ]
    return Holding(row, queue.name, state.now_ms, leaving=False, claims=tuple(claims), pods=tuple(counts))


def _flavor(state: ClusterState, queue: Queue, resource: str, labels: dict[str, str]) -> list[str]:
    """The flavor of a resource that a node belongs to: the first whose labels it has, or else the first; if any."""
    tried = next((group.flavors for group in queue.groups if resource in group.resources), ())
    known = {flavor.name: flavor.node_labels for flavor in state.policy.shares.flavors}
    there = [name for name in tried if name in known]
    fitting = [name for name in there if all(labels.get(key) == value for key, value in known[name])]
    return (fitting or there)[:1]


def _nodes_of(state: ClusterState, row: int) -> dict[int, int]:
    if state.workloads.first_pod[row] < 0:
        return {}
    pods = pods_of(state, row)
    return dict(zip(state.pods.ordinal[pods].tolist(), state.pods.node[pods].tolist(), strict=True))


def _count_pods(state: ClusterState, row: int) -> int:
    pod = int(state.workloads.first_pod[row])
    if pod < 0 or state.pods.next[pod] < 0:
        return int(pod >= 0)
    return len(pods_of(state, row))


def _pods_to_be(state: ClusterState, row: int) -> int:
    """The pods of a workload: those it was granted, where they are fewer than it asks for."""
    if state.shares.holds_quota(row):
        return int(state.shares.tickets.pods[row].sum())
    return int(state.work_classes.pods[state.workloads.work_class[row]]) - state.done.get(row, 0)


def _bind(state: ClusterState, row: int, ordinal: int, node: int, classes: _PodClasses) -> None:
    table = state.workloads
    if table.first_pod[row] >= 0:
        pods = pods_of(state, row)
        known = pods[state.pods.ordinal[pods] == ordinal]
        if len(known):
            trouble = int(table.trouble[row])
            remove_pods(state, row, known, Reason.GANG_BROKEN)  # it is elsewhere, by no decision of ours
            table.trouble[row] = trouble
    k, whole = classes.of(row, ordinal)
    hot = state.hot()
    if k < 0 or active(refusal)(hot, k, node) not in _MAY_STAY:
        return
    if table.phase[row] == _PENDING:
        active(unlink)(hot, row)
        table.phase[row] = _ASSUMED
        table.since_ms[row] = state.now_ms
    devices = int(active(lowest_idle)(hot, k, node)) if whole else 0
    active(take_place)(hot, k, node, devices, row, ordinal, NOBODY)


class _PodClasses:
    """The classes of workloads' pods, each found once for all that ask the same."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[tuple[int, int], tuple[int, bool]] = {}

    def of(self, row: int, ordinal: int) -> tuple[int, bool]:
        """The class of a pod, and whether it takes whole devices; -1 if it has none that can be known."""
        key = (int(self._state.workloads.work_class[row]), ordinal)
        if key not in self._known:
            k = _pod_class(self._state, row, ordinal)
            self._known[key] = (k, bool(k >= 0 and self._state.pod_classes.share[k] == ShareCode.WHOLE))
        return self._known[key]


def observe_done(state: ClusterState, events: EventBatch, run: slice) -> None:
    """Let pods that have done their part give back what they hold; the rest of the gang goes on.

    Of work that waits it counts only if the same facts show the rest at its places: after a restart.
    """
    for number, ordinal in zip(events.subject[run].tolist(), events.pod[run].tolist(), strict=True):
        row = state.workload_numbers.row(number)
        pod_set = _pod_set(state, row, ordinal) if row != UNKNOWN else -1
        if pod_set < 0 or state.workloads.phase[row] not in (*_HOLDS, _PENDING):
            continue
        pods = pods_of(state, row)
        done = pods[state.pods.ordinal[pods] == ordinal]
        all_done = state.done.get(row, 0) >= state.work_classes.pods[state.workloads.work_class[row]]
        if all_done or (len(pods) and not len(done)):
            continue  # it was told before
        free_pods(state, row, done)
        state.done[row] = state.done.get(row, 0) + 1
        reclaim(state, row, pod_set - int(state.work_classes.first_set[state.workloads.work_class[row]]))
        stir(state, np.array([row], np.int64))


def settle_done(state: ClusterState) -> None:
    """What was told of work that turned out to wait means nothing."""
    for row in [row for row in state.done if state.workloads.phase[row] not in _HOLDS]:
        del state.done[row]


def _pod_class(state: ClusterState, row: int, ordinal: int) -> int:
    """The class of a workload's pod; -1 if it has no such pod, or one whose device cannot be known."""
    s = _pod_set(state, row, ordinal)
    k = int(state.pod_sets.pod_class[s]) if s >= 0 else -1
    return -1 if k < 0 or state.pod_classes.share[k] == ShareCode.FRACTION else k


def _pod_set(state: ClusterState, row: int, ordinal: int) -> int:
    """The row of the pod set that a workload's pod is of; -1 if it has no such pod."""
    works, w = state.work_classes, int(state.workloads.work_class[row])
    first = int(works.first_set[w])
    for s in range(first, first + int(works.sets[w])):
        if ordinal < state.pod_sets.count[s]:
            return s
        ordinal -= int(state.pod_sets.count[s])
    return -1


# -- what others hold ------------------------------------------------------------------------------------------


def observe_foreign(state: ClusterState, events: EventBatch, run: slice) -> None:
    """Let nodes have the room that pods of others leave."""
    for number, arg in zip(events.subject[run].tolist(), events.arg[run].tolist(), strict=True):
        row, foreign = state.node_numbers.row(number), events.payloads[arg]
        assert isinstance(foreign, Foreign)
        if row != UNKNOWN:
            _give_back(state, row)
            _take(state, row, foreign)
            uproot(state)
    state.counters[Counter.ROOM_EPOCH] += 1


def retake(state: ClusterState) -> None:
    """Give others the devices that they have, and that were ours when they were told of."""
    for row in sorted(state.contested):
        if state.nodes.idle[row]:
            foreign = state.foreign[row].foreign
            _give_back(state, row)
            _take(state, row, foreign)


def forget_foreign(state: ClusterState, row: int) -> None:
    """The node is gone, and what others held of it."""
    state.foreign.pop(row, None)
    state.contested.discard(row)


def _take(state: ClusterState, row: int, foreign: Foreign) -> None:
    gpus = sum(amount for name, amount in foreign.request if is_device(name))
    devices, short = 0, gpus
    left = state.nodes.left[row]
    for d in reversed(range(int(state.nodes.devices[row]))):  # ours are given from the other end
        if short and left[d] == WHOLE_MILLI:
            devices |= 1 << d
            short -= 1
    if foreign.request or foreign.charge or foreign.pods:
        state.foreign[row] = Taken(foreign=foreign, devices=devices, short=short)
        _move(state, row, state.foreign[row], -1)
        if short:
            state.contested.add(row)


def _give_back(state: ClusterState, row: int) -> None:
    taken = state.foreign.pop(row, None)
    state.contested.discard(row)
    if taken is not None:
        _move(state, row, taken, 1)


def _move(state: ClusterState, row: int, taken: Taken, sign: int) -> None:
    nodes, foreign = state.nodes, dict(taken.foreign.request)
    nodes.cpu_free[row] += sign * foreign.get("cpu", 0)
    nodes.memory_free[row] += sign * foreign.get("memory", 0)
    nodes.slots_free[row] += sign * taken.foreign.pods
    for e, name in enumerate(state.extras):
        nodes.extra_free[row, e] += sign * foreign.get(name, 0)
    for d in range(int(taken.devices).bit_length()):
        nodes.left[row, d] += sign * WHOLE_MILLI * (taken.devices >> d & 1)
    hot = state.hot()
    active(sum_devices)(hot, np.array([row], np.int64))
    active(log_change)(hot, row)
