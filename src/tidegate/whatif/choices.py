"""Fixes that choose one of several: a GPU model, flavor, queue or priority, or which workloads to stop."""

from __future__ import annotations

from itertools import combinations

from tidegate.model.queues import StopPolicy
from tidegate.whatif.budget import Fix, FixSearch
from tidegate.whatif.changes import AllowFlavor, AllowModel, Change, MoveToQueue, OpenQueue, SetPriority, StopWorkloads
from tidegate.whatif.options import (
    flavors_refused,
    local_queues_for,
    models_refused,
    priorities_above,
    stoppable,
)

#: Workloads that are tried to be stopped, one by one; in pairs; and one after the other until it is enough.
_MOST_SINGLES = 48
_MOST_PAIRED = 8
_MOST_STOPPED = 16


def _first_that_starts(search: FixSearch, changes: list[Change]) -> Fix | None:
    """The first of several changes that starts the workload at once; or else when those it preempts have left."""
    for change in changes:
        if search.trials.starts_alone([change]) and search.trials.starts([change]):
            return Fix((change,))
    for change in changes:
        if not search.goes_on():
            break
        if search.trials.starts_in_time_alone([change]) and search.trials.starts_in_time([change]):
            return Fix((change,), at_once=False)
    return None


def find_models(search: FixSearch) -> Fix | None:
    """A GPU model that it does not accept yet."""
    models = models_refused(search.state, search.number)
    return _first_that_starts(search, [AllowModel(search.number, model) for model in models])


def find_flavors(search: FixSearch) -> Fix | None:
    """A flavor of its queue that its pods are kept from."""
    flavors = flavors_refused(search.state, search.number)
    return _first_that_starts(search, [AllowFlavor(search.number, flavor) for flavor in flavors])


def find_moves(search: FixSearch) -> Fix | None:
    """Another queue, or another LocalQueue."""
    queues = local_queues_for(search.state, search.number)
    return _first_that_starts(search, [MoveToQueue(search.number, queue) for queue in queues])


def find_opening(search: FixSearch) -> Fix | None:
    """Opening its queue, where that is stopped."""
    shares = search.state.policy.shares
    stopped = {queue.name for queue in shares.queues if queue.stop is not StopPolicy.NONE}
    stopped |= {entrance.queue for entrance in shares.entrances if entrance.stop is not StopPolicy.NONE}
    return _first_that_starts(search, [OpenQueue(search.queue)]) if search.queue in stopped else None


def find_priority(search: FixSearch) -> Fix | None:
    """The lowest priority that starts it, by going first or by preempting."""
    priorities = priorities_above(search.state, search.number)
    if not priorities or not search.trials.starts_in_time_alone([SetPriority(search.number, priorities[-1])]):
        return None
    for priority in priorities:
        changes = (SetPriority(search.number, priority),)
        if search.trials.starts_in_time(changes):
            return Fix(changes, at_once=search.trials.starts(changes))
        if not search.goes_on():
            break
    return None


# -- who would have to go --------------------------------------------------------------------------------------


def find_stops(search: FixSearch) -> Fix | None:
    """The fewest workloads to stop, and among those who hold enough the cheapest."""
    holders = [StopWorkloads(number) for number in stoppable(search.state, search.number)]
    few: list[tuple[StopWorkloads, ...]] = [(holder,) for holder in holders[:_MOST_SINGLES]]
    few += combinations(holders[:_MOST_PAIRED], 2)
    for stopped in few:
        if search.trials.starts_alone(stopped) and search.trials.starts(stopped):
            return Fix(stopped)
        if not search.goes_on():
            return None
    return _stop_until_enough(search, holders[:_MOST_STOPPED])


def _stop_until_enough(search: FixSearch, holders: list[StopWorkloads]) -> Fix | None:
    for enough in range(3, len(holders) + 1):
        stopped = tuple(holders[:enough])
        if search.trials.starts_alone(stopped):
            return Fix(spare(search, stopped)) if search.trials.starts(stopped) else None
    return None


def spare(search: FixSearch, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same changes without those that are not needed, the last first; until none can be spared."""
    for change in reversed(changes):
        fewer = tuple(other for other in changes if other != change)
        if len(changes) > 1 and search.trials.starts(fewer):
            return spare(search, fewer)
    return changes
