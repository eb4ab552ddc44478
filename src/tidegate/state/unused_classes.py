"""Gives back unused classes, so that the size of a state depends on what is in it, not on all that ever was.

The rows of used classes move together and keep their order. What was learnt from pods of an unused class is kept by
another of the same kind, or by one of them that stays for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidegate.model.arrays import I64
from tidegate.state.classes import CORE_RESOURCES, NodeClassKey, PodClassKey
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE, ColumnTable
from tidegate.state.quota_tables import QuotaTables

#: With fewer classes of work, of pods and of nodes than these, unused ones are not searched.
LEAST_WORK, LEAST_PODS, LEAST_NODES = 2048, 512, 64

#: Unused kinds of pods that are remembered for what was learnt from them: the most frequent.
MOST_REMEMBERED = 128


def give_back_unused(state: ClusterState) -> None:
    """Give back unused classes, once there are twice as many as were in use the last time."""
    if not _are_many(state):
        return
    works = np.unique(state.workloads.work_class[state.live_workloads()])
    sets = np.flatnonzero(np.isin(state.pod_sets.work_class[: state.pod_sets.top], works))
    pods = _used_pod_classes(state, sets)
    pods = np.union1d(pods, _remembered(state, pods))
    _keep_work(state, works, sets)
    _keep_pods(state, pods)
    _keep_nodes(state)
    _keep_extras(state)
    state.drop_scores()
    state.counters[[Counter.KEPT_WORK, Counter.KEPT_PODS, Counter.KEPT_NODES]] = _sizes(state)


def _are_many(state: ClusterState) -> bool:
    kept = state.counters[[Counter.KEPT_WORK, Counter.KEPT_PODS, Counter.KEPT_NODES]].tolist()
    least = (LEAST_WORK, LEAST_PODS, LEAST_NODES)
    return any(size >= max(few, 2 * had) for size, few, had in zip(_sizes(state), least, kept, strict=True))


def _sizes(state: ClusterState) -> tuple[int, int, int]:
    return state.work_classes.top, state.pod_classes.top, len(state.node_classes) + len(state.extras)


# -- what is used ----------------------------------------------------------------------------------------------


def _used_pod_classes(state: ClusterState, sets: I64) -> I64:
    """Classes of the pods that workloads request, have, or have places reserved for; and those the policy names."""
    classes, quota = state.pod_classes, state.quota
    used = [
        state.pod_sets.pod_class[sets],
        state.pods.pod_class[: state.pods.top],
        state.reserved.pod_class[: state.counters[Counter.RESERVED]],
    ]
    if quota:
        used.append(quota.pod_set_needs.flavored[sets].ravel())
    if state.policy.placement.typical:
        used.append(np.flatnonzero(classes.typical[: classes.top]))
    found = np.unique(np.concatenate(used))
    return found[found >= 0]


def _remembered(state: ClusterState, used: I64) -> I64:
    """Hand on what was learnt from unused classes; return those that must stay to remember it."""
    classes = state.pod_classes
    keys, is_used = list(state.pod_class_rows), np.zeros(classes.top, bool)
    is_used[used] = True
    heirs = {_kind(keys[row]): row for row in reversed(used.tolist())}
    for row in np.flatnonzero(~is_used & (classes.seen[: classes.top] + classes.typical[: classes.top] > 0)).tolist():
        heir = heirs.setdefault(_kind(keys[row]), row)
        if heir != row:
            for column in (classes.seen, classes.typical):
                column[heir] += column[row]
                column[row] = 0
    stay = sorted((row for row in heirs.values() if not is_used[row]), key=lambda row: (-int(classes.seen[row]), row))
    forgotten = stay[MOST_REMEMBERED:]
    state.counters[Counter.SEEN_BEFORE] += classes.seen[forgotten].sum()
    return np.array(sorted(stay[:MOST_REMEMBERED]), np.int64)


def _kind(key: PodClassKey) -> PodClassKey:
    """What makes two pod classes the same for learning: all but resources besides CPU and GPUs."""
    return key._replace(request=tuple(pair for pair in key.request if pair[0] == "cpu"))


# -- rows that move --------------------------------------------------------------------------------------------


def _moves(table: ColumnTable, rows: I64) -> I64:
    """The new row of each old one; NONE for those that go. Ends of chains stay ends."""
    moved = np.full(table.top + 1, NONE, np.int64)
    moved[rows] = np.arange(len(rows))
    return moved


def _keep_work(state: ClusterState, works: I64, sets: I64) -> None:
    """Keep these work classes, with their pod sets."""
    to_work, to_set = _moves(state.work_classes, works), _moves(state.pod_sets, sets)
    live = state.live_workloads()
    state.workloads.work_class[live] = to_work[state.workloads.work_class[live]]
    state.renumber_reported(to_work)
    state.works = [state.works[row] for row in works.tolist()]
    state.work_class_rows = {work: row for row, work in enumerate(state.works)}
    table = state.work_classes
    table.first_set[works] = np.where(table.sets[works] > 0, to_set[table.first_set[works]], 0)
    table.held_set[works] = to_set[table.held_set[works]]
    table.keep_rows(works)
    state.pod_sets.work_class[sets] = to_work[state.pod_sets.work_class[sets]]
    state.pod_sets.keep_rows(sets)
    if state.quota:
        _keep_demands(state.quota, works, sets, to_set)
        for row in np.flatnonzero(table.malformed[: table.top] == 0).tolist():
            state.quota.chain_class(row)


def _keep_demands(tables: QuotaTables, works: I64, sets: I64, to_set: I64) -> None:
    """Keep what these work classes request of their queues; nothing is pending in a queue yet."""
    demands, needs, asks = tables.queue_requests, tables.pod_set_needs, tables.resource_requests
    rows = np.flatnonzero(np.isin(asks.pod_set[: asks.top], sets))
    to_ask = _moves(asks, rows)
    asks.pod_set[rows] = to_set[asks.pod_set[rows]]
    asks.keep_rows(rows)
    needs.leader[sets] = to_set[needs.leader[sets]]
    needs.keep_rows(sets)
    demands.first_ask[works] = np.where(demands.asks[works] > 0, to_ask[demands.first_ask[works]], 0)
    demands.keep_rows(works)
    tables.quota_nodes.first_class[: tables.quota_nodes.top] = demands.next_class[: demands.top] = NONE
    _keep_resources(tables)
    tables.topology = tables.room = None  # made again, from what is left


def _keep_resources(tables: QuotaTables) -> None:
    """Keep resources that are requested, have quota, or have remembered usage."""
    frs = tables.flavor_resources
    asks = tables.resource_requests
    groups = tables.resource_groups
    local_queues = tables.local_queues
    covered, used = groups.covered[: groups.top].any(axis=0), local_queues.decayed_usage[: local_queues.top].any(axis=0)
    known = (frs.resource[: frs.top], asks.resource[: asks.top], np.flatnonzero(covered), np.flatnonzero(used))
    kept = np.unique(np.concatenate(known))
    to_row = np.full(len(tables.resources), NONE, np.int64)
    to_row[kept] = np.arange(len(kept))
    for table in (frs, asks):
        table.resource[: table.top] = to_row[table.resource[: table.top]]
    tables.resources = [tables.resources[row] for row in kept.tolist()]
    for wide in (tables.flavors, groups, local_queues):
        wide.keep_places("resource", kept.tolist())


def _keep_pods(state: ClusterState, rows: I64) -> None:
    """Keep these pod classes."""
    classes, to_row = state.pod_classes, _moves(state.pod_classes, rows)
    tables: Iterable[I64] = (
        state.pod_sets.pod_class[: state.pod_sets.top],
        state.pods.pod_class[: state.pods.top],
        state.reserved.pod_class[: state.counters[Counter.RESERVED]],
        *([state.quota.pod_set_needs.flavored[: state.quota.pod_set_needs.top]] if state.quota else []),
    )
    for column in tables:
        column[:] = to_row[column]
    keys = list(state.pod_class_rows)
    state.pod_class_rows = {keys[row]: at for at, row in enumerate(rows.tolist())}
    classes.keep_rows(rows)
    sizes = list(state.sizes)
    state.sizes = {}
    for row in range(classes.top):
        size = sizes[int(classes.size[row])]
        classes.size[row] = state.sizes.setdefault(size, len(state.sizes))


def _keep_nodes(state: ClusterState) -> None:
    """Keep the classes of the existing nodes, by those labels alone that pods still read."""
    state.label_keys = frozenset(label for key in state.pod_class_rows for label in key.label_keys())
    live, old = state.live_nodes(), list(state.node_classes)
    moved, kept = (
        np.full(len(old), NONE, np.int64),
        list[int](),
    )  # the new row of each, and of each new row the first old
    state.node_classes = {}
    for row in np.unique(state.nodes.node_class[live]).tolist():
        key = _with_labels(old[row], state.label_keys)
        moved[row] = state.node_classes.setdefault(key, len(state.node_classes))
        if moved[row] == len(kept):
            kept.append(row)
    state.nodes.node_class[live] = moved[state.nodes.node_class[live]]
    state.pod_classes.keep_places("node_class", kept)
    if kept:
        _keep_prices(state, np.array(kept, np.int64))


def _keep_prices(state: ClusterState, kept: I64) -> None:
    """Keep the prices of these node classes; new ones are priced before they are read."""
    prices = state.prices
    known, at = kept < len(prices.model), np.minimum(kept, len(prices.model) - 1)
    state.prices = prices._replace(model=prices.model[at] * known, allowed=prices.allowed[:, at] * known)


def _with_labels(key: NodeClassKey, label_keys: frozenset[str]) -> NodeClassKey:
    return key._replace(labels=tuple(pair for pair in key.labels if pair[0] in label_keys))


def _keep_extras(state: ClusterState) -> None:
    """Keep resources that nodes have or pods request."""
    asked = {name for key in state.pod_class_rows for name, _ in key.request}
    asked |= {name for node in state.node_specs.values() for name, _ in node.shape.capacity}
    kept = [place for place, name in enumerate(state.extras) if name in asked - set(CORE_RESOURCES)]
    state.extras = [state.extras[place] for place in kept]
    for table in (state.nodes, state.pod_classes, state.reserved):
        table.keep_places("extra", kept)
