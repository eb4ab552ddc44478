"""What a change of policy does to quota: amounts are written in place, and drained queues evict.

The result of a change in amounts is that of `lay_out`, without describing every kind of work again: a raised quota
takes effect at once, and all pending work is tried again.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tidegate.engine.quota_layout import set_amounts, sum_up
from tidegate.model.queues import QueueSetup, Quota, StopPolicy
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.workloads import Phase


def change_amounts(state: ClusterState, before: QueueSetup) -> bool:
    """Write the policy's amounts into the tree; False, and nothing done, if more than amounts differs."""
    after, tables = state.policy.shares, state.quota
    if not tables or _without_amounts(before) != _without_amounts(after):
        return False
    for kind, specs in (("queue", after.queues), ("cohort", after.cohorts)):
        for spec in specs:
            for quota in spec.quotas:
                fr = tables.flavor_resource(quota.flavor, quota.resource)
                set_amounts(tables, tables.quota_node_rows[f"{kind}/{spec.name}"], fr, quota)
    sum_up(tables)
    _try_again(state)
    return True


def _without_amounts(quota: QueueSetup) -> QueueSetup:
    """The queue policy with every amount and limit left out."""
    replace = msgspec.structs.replace
    queues = tuple(replace(queue, quotas=_named_only(queue.quotas)) for queue in quota.queues)
    cohorts = tuple(replace(cohort, quotas=_named_only(cohort.quotas)) for cohort in quota.cohorts)
    return replace(quota, queues=queues, cohorts=cohorts)


def _named_only(quotas: tuple[Quota, ...]) -> tuple[Quota, ...]:
    return tuple(Quota(flavor=quota.flavor, resource=quota.resource, nominal=0) for quota in quotas)


def _try_again(state: ClusterState) -> None:
    """Retry all refused workloads, from the first flavor on."""
    tables = state.quota
    roots = np.flatnonzero(tables.quota_nodes.parent[: tables.quota_nodes.top] == NONE)
    for column in (tables.quota_nodes.epoch, tables.quota_nodes.generation):
        column[roots] += 1
    tables.quota_nodes.dirty[roots] = 1
    tables.reservations.tried[:] = 0
    tables.reservations.unplaced_epoch[:] = -1


def drain_stopped(state: ClusterState) -> None:
    """Note a pending eviction for workloads whose queue or local queue is drained."""
    tables, quota = state.quota, state.policy.shares
    queues = [f"queue/{queue.name}" for queue in quota.queues if queue.stop is StopPolicy.DRAIN]
    local_queues = [local_queue.id for local_queue in quota.entrances if local_queue.stop is StopPolicy.DRAIN]
    if not tables or not (queues or local_queues):
        return  # without queues no workload holds quota
    reservations = tables.reservations
    rows = np.flatnonzero((reservations.queue != NONE) & (reservations.terminating == 0))
    told = np.isin(reservations.queue[rows], [tables.quota_node_rows[name] for name in queues])
    told |= np.isin(reservations.local_queue[rows], [tables.local_queue_rows[name] for name in local_queues])
    state.note_pending_eviction(rows[told & (state.workloads.phase[rows] != Phase.TERMINATING)], Reason.QUEUE_DRAINED)
