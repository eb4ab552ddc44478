"""A policy that differs in amounts alone: quotas and limits are written in place, and everybody may be tried again.

What `lay_out` would come to, without describing every kind of work anew: a quota that is raised takes effect at once.
Must not know: cycles, decisions.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tidegate.engine.quota_layout import set_amounts, sum_up
from tidegate.model.queues import Quota, Shares
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE


def change_amounts(state: ClusterState, before: Shares) -> bool:
    """Write the policy's amounts into the tree; False, and nothing done, where more than amounts differs."""
    after, tables = state.policy.shares, state.shares
    if not tables or _without_amounts(before) != _without_amounts(after):
        return False
    for kind, specs in (("queue", after.queues), ("cohort", after.cohorts)):
        for spec in specs:
            for quota in spec.quotas:
                _write_quota(state, tables.branch_rows[f"{kind}/{spec.name}"], quota)
    sum_up(tables)
    _try_again(state)
    return True


def _without_amounts(shares: Shares) -> Shares:
    """Shares with every amount and limit left out."""
    replace = msgspec.structs.replace
    queues = tuple(replace(queue, quotas=_named_only(queue.quotas)) for queue in shares.queues)
    cohorts = tuple(replace(cohort, quotas=_named_only(cohort.quotas)) for cohort in shares.cohorts)
    return replace(shares, queues=queues, cohorts=cohorts)


def _named_only(quotas: tuple[Quota, ...]) -> tuple[Quota, ...]:
    return tuple(Quota(flavor=quota.flavor, resource=quota.resource, nominal=0) for quota in quotas)


def _write_quota(state: ClusterState, row: int, quota: Quota) -> None:
    set_amounts(state.shares, row, state.shares.lot(quota.flavor, quota.resource), quota)


def _try_again(state: ClusterState) -> None:
    """Whoever was refused may be tried again, from the first flavor on."""
    tables = state.shares
    roots = np.flatnonzero(tables.branches.parent[: tables.branches.top] == NONE)
    for column in (tables.branches.epoch, tables.branches.generation):
        column[roots] += 1
    tables.branches.stirred[roots] = 1
    tables.tickets.tried[:] = 0
    tables.tickets.unhoused[:] = -1
