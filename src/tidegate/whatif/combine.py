"""Fixes that need changes of several kinds together: each refusal is lifted in turn."""

from __future__ import annotations

from tidegate.journal.quota_names import FlavorResourceName, quota_names_of
from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.whatif.budget import Fix, FixSearch
from tidegate.whatif.changes import (
    AllowFlavor,
    AllowModel,
    Change,
    MoreNodes,
    MoreQuota,
    OpenQueue,
    SetPriority,
    branch_of,
)
from tidegate.whatif.choices import spare
from tidegate.whatif.fork_trials import Refusal
from tidegate.whatif.least_amount import MOST_AMOUNTS, MOST_NODES, amounts_below, halve
from tidegate.whatif.options import (
    flavors_refused,
    models_refused,
    node_patterns,
    priorities_above,
    quantum_of,
)

#: Reasons that are lifted one after the other before a combination is given up.
_MOST_REASONS = 12


def find_combination(search: FixSearch) -> Fix | None:
    """What it is refused for is lifted one by one, and it goes first if need be."""
    changes: dict[object, Change] = {}
    for _ in range(_MOST_REASONS):
        refusal = search.trials.refusal_alone(tuple(changes.values()))
        if refusal is None:
            break
        if not _lift(search, refusal, changes):
            return None
    together = _shrink(search, tuple(changes.values()))
    if together and search.trials.starts(together):
        return _tightened(search, together)
    return _go_first(search, together)


def _go_first(search: FixSearch, changes: tuple[Change, ...]) -> Fix | None:
    """The same changes with a higher priority; and with more nodes, where others take the first ones."""
    has_nodes = any(isinstance(change, MoreNodes) for change in changes)
    for more in range(MOST_NODES // 2 if has_nodes else 1):
        enough = tuple(c._replace(nodes=c.nodes + more) if isinstance(c, MoreNodes) else c for c in changes)
        priority = _priority_that_does(search, enough)
        if priority is not None:
            return _tightened(search, (*enough, SetPriority(search.number, priority)))
        if not search.goes_on():
            break
    return None


def _priority_that_does(search: FixSearch, changes: tuple[Change, ...]) -> int | None:
    """The lowest priority that starts the workload together with other changes; None if the highest does not."""

    def works(priority: int) -> bool:
        return search.trials.starts((*changes, SetPriority(search.number, priority)))

    priorities = priorities_above(search.state, search.number)
    if not priorities or not works(priorities[-1]):
        return None
    return next((priority for priority in priorities[:-1] if works(priority)), priorities[-1])


def _shrink(search: FixSearch, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same changes with the least quota of each flavor-resource that still starts the workload."""
    for at, change in enumerate(changes):
        if isinstance(change, MoreQuota):
            changes = _shrink_quota(search, changes, at, change)
    return tuple(change for change in changes if not isinstance(change, MoreQuota) or change.amount)


def _shrink_quota(search: FixSearch, changes: tuple[Change, ...], at: int, change: MoreQuota) -> tuple[Change, ...]:
    def works(amount: int) -> bool:
        return search.trials.starts_alone(_with(changes, at, change._replace(amount=amount)))

    if not works(change.amount - 1):
        return changes
    return _with(changes, at, change._replace(amount=halve(works, -1, change.amount - 1)))


def _with(changes: tuple[Change, ...], at: int, change: Change) -> tuple[Change, ...]:
    """Changes with one of them in another size."""
    return (*changes[:at], change, *changes[at + 1 :])


def _tightened(search: FixSearch, changes: tuple[Change, ...]) -> Fix:
    """Changes that start the workload, until none can be spared and none can be smaller while the others stay."""
    changes = spare(search, changes)
    for at, change in enumerate(changes):
        for less in _smaller(search, change):
            fewer = _with(changes, at, less)
            if search.trials.starts_alone(fewer) and search.trials.starts(fewer):
                return _tightened(search, fewer)
    return Fix(changes, every_smaller=all(_is_countable(search, change) for change in changes))


def _is_countable(search: FixSearch, change: Change) -> bool:
    """Whether every smaller size of a change can be tried."""
    return not isinstance(change, MoreQuota) or change.amount <= MOST_AMOUNTS * quantum_of(search.state, change.lot)


def _smaller(search: FixSearch, change: Change) -> list[Change]:
    """Smaller sizes of a change, the smallest first."""
    if isinstance(change, MoreNodes):
        return [change._replace(nodes=nodes) for nodes in range(1, change.nodes)]
    if isinstance(change, SetPriority):
        lower = [p for p in priorities_above(search.state, search.number) if p < change.priority]
        return [change._replace(priority=priority) for priority in lower]
    if isinstance(change, MoreQuota):
        amounts = amounts_below(change.amount, quantum_of(search.state, change.lot))
        return [change._replace(amount=amount) for amount in amounts]
    return []


# -- what lifts a reason ---------------------------------------------------------------------------------------


def _lift(search: FixSearch, refusal: Refusal, changes: dict[object, Change]) -> bool:
    """Add, or enlarge, the change that lifts a reason; False: none is known."""
    reason, names = refusal.reason, quota_names_of(search.state.policy.shares)
    if reason in (Reason.WAITS_FOR_QUOTA, Reason.ABOVE_QUOTA) and refusal.evidence:
        return _add_quota(search, names.lots[refusal.evidence[0]], refusal.evidence[1], changes)
    if reason is Reason.NO_FLAVOR and refusal.evidence:
        return _add_flavor(search, names.options[refusal.evidence[0]], changes)
    if reason is Reason.QUEUE_CLOSED and "open" not in changes:
        changes["open"] = OpenQueue(search.queue)
        return True
    if reason is Reason.GPU_MODEL:
        return _add_model(search, changes)
    return reason in ROOM_CODES and _add_node(search, changes)


def _add_flavor(search: FixSearch, flavor: str, changes: dict[object, Change]) -> bool:
    if "flavor" in changes or flavor not in flavors_refused(search.state, search.number):
        return False
    changes["flavor"] = AllowFlavor(search.number, flavor)
    return True


def _add_quota(search: FixSearch, lot: FlavorResourceName, missing: int, changes: dict[object, Change]) -> bool:
    known = changes.get(lot)
    more = known.amount if isinstance(known, MoreQuota) else 0
    changes[lot] = MoreQuota(search.queue, lot, more + missing)
    branch = branch_of(search.state.policy.shares, search.queue)
    return any(FlavorResourceName(quota.flavor, quota.resource) == lot for quota in branch.quotas)


def _add_model(search: FixSearch, changes: dict[object, Change]) -> bool:
    for model in models_refused(search.state, search.number) if "model" not in changes else ():
        changes["model"] = AllowModel(search.number, model)
        refusal = search.trials.refusal_alone(tuple(changes.values()))
        if refusal is None or refusal.reason not in (Reason.GPU_MODEL, Reason.NODE_TERMS):
            return True
    return False


def _add_node(search: FixSearch, changes: dict[object, Change]) -> bool:
    known = changes.get("nodes")
    if isinstance(known, MoreNodes):
        changes["nodes"] = MoreNodes(known.like, known.nodes + 1)
        return known.nodes < MOST_NODES
    for number, _ in node_patterns(search.state):
        tried = {**changes, "nodes": MoreNodes(number, MOST_NODES)}
        refusal = search.trials.refusal_alone(tuple(tried.values()))
        if refusal is None or refusal.reason in (Reason.WAITS_FOR_QUOTA, Reason.ABOVE_QUOTA):
            changes["nodes"] = MoreNodes(number, 1)
            return True
    return False
