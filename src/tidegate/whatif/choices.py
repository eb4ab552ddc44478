"""Which of several changes would start a workload: a model, flavor, queue or priority, and whom to stop.

Must not know: how to say it in words.
"""

from __future__ import annotations

from itertools import combinations

from tidegate.model.queues import StopPolicy
from tidegate.whatif.budget import Remedy, Search
from tidegate.whatif.changes import AllowFlavor, AllowModel, Change, Move, Open, SetPriority, Stop
from tidegate.whatif.options import (
    entrances_for,
    flavors_refused,
    models_refused,
    priorities_above,
    stoppable,
)

#: Workloads that are tried to be stopped, one by one; in pairs; and one after the other until it is enough.
_MOST_SINGLES = 48
_MOST_PAIRED = 8
_MOST_STOPPED = 16


def _first_that_starts(search: Search, changes: list[Change]) -> Remedy | None:
    """The first of several changes that starts the workload at once; or else when those it preempts have left."""
    for change in changes:
        if search.trials.starts_alone([change]) and search.trials.starts([change]):
            return Remedy((change,))
    for change in changes:
        if not search.goes_on():
            break
        if search.trials.starts_in_time_alone([change]) and search.trials.starts_in_time([change]):
            return Remedy((change,), at_once=False)
    return None


def find_models(search: Search) -> Remedy | None:
    """A GPU model that it does not accept yet."""
    models = models_refused(search.state, search.number)
    return _first_that_starts(search, [AllowModel(search.number, model) for model in models])


def find_flavors(search: Search) -> Remedy | None:
    """A flavor of its queue that its pods are kept from."""
    flavors = flavors_refused(search.state, search.number)
    return _first_that_starts(search, [AllowFlavor(search.number, flavor) for flavor in flavors])


def find_moves(search: Search) -> Remedy | None:
    """Another queue, or another entrance."""
    queues = entrances_for(search.state, search.number)
    return _first_that_starts(search, [Move(search.number, queue) for queue in queues])


def find_opening(search: Search) -> Remedy | None:
    """Opening its queue, where that is stopped."""
    shares = search.state.policy.shares
    stopped = {queue.name for queue in shares.queues if queue.stop is not StopPolicy.NONE}
    stopped |= {entrance.queue for entrance in shares.entrances if entrance.stop is not StopPolicy.NONE}
    return _first_that_starts(search, [Open(search.queue)]) if search.queue in stopped else None


def find_priority(search: Search) -> Remedy | None:
    """The lowest priority that starts it, by going first or by preempting."""
    priorities = priorities_above(search.state, search.number)
    if not priorities or not search.trials.starts_in_time_alone([SetPriority(search.number, priorities[-1])]):
        return None
    for priority in priorities:
        changes = (SetPriority(search.number, priority),)
        if search.trials.starts_in_time(changes):
            return Remedy(changes, at_once=search.trials.starts(changes))
        if not search.goes_on():
            break
    return None


# -- who would have to go --------------------------------------------------------------------------------------


def find_stops(search: Search) -> Remedy | None:
    """The fewest workloads to stop, and among those who hold enough the cheapest."""
    holders = [Stop(number) for number in stoppable(search.state, search.number)]
    few: list[tuple[Stop, ...]] = [(holder,) for holder in holders[:_MOST_SINGLES]]
    few += combinations(holders[:_MOST_PAIRED], 2)
    for stopped in few:
        if search.trials.starts_alone(stopped) and search.trials.starts(stopped):
            return Remedy(stopped)
        if not search.goes_on():
            return None
    return _stop_until_enough(search, holders[:_MOST_STOPPED])


def _stop_until_enough(search: Search, holders: list[Stop]) -> Remedy | None:
    for enough in range(3, len(holders) + 1):
        stopped = tuple(holders[:enough])
        if search.trials.starts_alone(stopped):
            return Remedy(spare(search, stopped)) if search.trials.starts(stopped) else None
    return None


def spare(search: Search, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same changes without those that are not needed, the last first; until none can be spared."""
    for change in reversed(changes):
        fewer = tuple(other for other in changes if other != change)
        if len(changes) > 1 and search.trials.starts(fewer):
            return spare(search, fewer)
    return changes
