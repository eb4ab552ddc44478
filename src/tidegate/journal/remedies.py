"""The smallest change that would start a waiting workload now, of each kind, found by trying on forks.

Nothing here is computed from what is believed about the engine: a change that is named was made on a fork and started
the workload, and the next smaller one of its kind was made and did not. What fails with nobody else waiting fails among
others too; so most of the search is done alone, which is quick, and only what is found is tried among all.
Must not know: how to say it in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidegate.journal.candidates import (
    entrances_for,
    flavors_refused,
    models_refused,
    node_patterns,
    priorities_above,
    quantum_of,
    stoppable,
)
from tidegate.journal.changes import (
    AllowFlavor,
    AllowModel,
    Change,
    MoreBorrowing,
    MoreNodes,
    MoreQuota,
    Move,
    Open,
    SetPriority,
    Stop,
    branch_of,
)
from tidegate.journal.line import Want, find_wants, queue_names, queue_row
from tidegate.journal.lots import Lot, names_of
from tidegate.journal.trials import Refusal, Trials, play_leaving, starts_unchanged
from tidegate.model.reasons import Reason
from tidegate.model.shares import StopPolicy
from tidegate.state.cluster import ClusterState
from tidegate.state.tables import END, Phase

#: What a search may cost, in heads of queues looked at: about a second with plain kernels.
BUDGET = 1_500

#: Remedies after which the search stops.
ENOUGH = 3

#: Nodes that are worth proposing, and trials of single workloads to stop.
_MOST_NODES = 16
_MOST_SINGLES = 12
_MOST_STOPPED = 12

#: Amounts that are tried among all who wait: beyond, so many go first that more quota is no answer.
_MOST_STEPS = 24

#: Reasons that are lifted one after the other before a combination is given up.
_MOST_REASONS = 12


class Remedy(NamedTuple):
    """Changes that start a workload together, none of them larger than it must be."""

    changes: tuple[Change, ...]
    at_once: bool = True  # False: when those it then preempts have left


class Findings(NamedTuple):
    """What would start a workload now."""

    remedies: tuple[Remedy, ...]
    tried: int
    leaving: bool = False  # nothing has to change: it starts when those told to go are gone
    due: bool = False  # nothing has to change: it starts at the next step
    blocked: Reason = Reason.NONE  # no change around it helps: it is itself held back


Finder = Callable[["_Search"], Iterator[Remedy]]


class _Search(NamedTuple):
    """What finders are given."""

    state: ClusterState
    number: int
    trials: Trials
    wants: tuple[Want, ...]
    queue: str  # its queue; empty: it waits in none that counts quota
    budget: int

    def goes_on(self) -> bool:
        """Whether there is time for more trials."""
        return self.trials.cost < self.budget


def find_remedies(state: ClusterState, number: int, enough: int = ENOUGH, budget: int = BUDGET) -> Findings:
    """Find changes that start a waiting workload now, the smallest of each kind, until there are enough."""
    row = state.workload_numbers.row(number)
    blocked = _blocked(state, row)
    if blocked is not Reason.NONE:
        return Findings((), 0, blocked=blocked)
    if starts_unchanged(state, number):
        return Findings((), 1, due=True)
    leaving = play_leaving(state, number)
    search = _open_search(state, number, budget)
    found: list[Remedy] = []
    for finder in _finders(state, row):
        found += finder(search)
        if len(found) >= enough or not search.goes_on():
            break
    if not found:
        found += _find_combination(search)
    return Findings(tuple(found), search.trials.tried + 2, leaving=leaving)


def _blocked(state: ClusterState, row: int) -> Reason:
    """Why a workload is not tried at all, whatever there is: its own matter, or a matter of time."""
    tickets = state.shares.tickets
    if not state.shares or row >= tickets.top:
        return Reason.NONE
    if tickets.blocked[row]:
        return Reason(int(tickets.blocked[row]))
    return Reason.BACKS_OFF if tickets.not_before_ms[row] > state.now_ms else Reason.NONE


def _open_search(state: ClusterState, number: int, budget: int) -> _Search:
    row = state.workload_numbers.row(number)
    branch = queue_row(state, row)
    queue = queue_names(state)[branch] if branch != END else ""
    return _Search(state, number, Trials(state, number), tuple(find_wants(state, number)), queue, budget)


def _finders(state: ClusterState, row: int) -> tuple[Finder, ...]:
    """The kinds of changes in the order they are looked for: what costs nobody anything first."""
    if state.workloads.phase[row] != Phase.PENDING:  # it holds quota and waits for a place
        return (_find_nodes, _find_stops)
    if state.workloads.held_code[row] < Reason.NO_QUEUE and state.workloads.held_code[row] not in _ORDER:
        return (_find_models, _find_flavors, _find_nodes, _find_moves, _find_priority, _find_stops, _find_quota)
    return (
        _find_opening,
        _find_borrowing,
        _find_quota,
        _find_flavors,
        _find_moves,
        _find_models,
        _find_priority,
        _find_stops,
        _find_nodes,
    )


#: Reasons that tell of the order alone.
_ORDER = (Reason.NONE, Reason.BEHIND_HEAD, Reason.BEHIND_EQUAL, Reason.OUTRANKED, Reason.AWAITS_VICTIMS)


# -- amounts ---------------------------------------------------------------------------------------------------


def _least(works: Callable[[int], bool], low: int, high: int) -> int:
    """The least amount above `low` that works, where `high` does and `low` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def _least_alone(search: _Search, change: Callable[[int], Change], guess: int, most: int) -> int | None:
    """The least amount at which the workload starts with nobody else waiting; None: no amount up to the most does."""

    def works(amount: int) -> bool:
        return search.trials.starts_alone([change(amount)])

    if 0 < guess <= most and works(guess):
        return guess if guess == 1 or not works(guess - 1) else _least(works, 0, guess - 1)
    if guess >= most or not works(most):
        return None
    return _least(works, max(guess, 0), most)


def _least_among_all(search: _Search, change: Callable[[int], Change], lot: Lot, alone: int) -> int | None:
    """The least amount that starts the workload among all who wait, from what it takes alone.

    Step by step: what is raised for one may be taken by another, and a larger amount can do less than a smaller one.
    """
    quantum = quantum_of(search.state, lot)  # between two multiples of it nothing can change
    first = (alone // quantum + 1) * quantum
    for amount in (alone, *range(first, first + _MOST_STEPS * quantum, quantum)):
        if search.trials.starts([change(amount)]):
            return int(amount)
        if not search.goes_on():
            return None
    return None


def _find_amount(search: _Search, change: Callable[[int], Change], want: Want) -> int | None:
    """The least amount of a lot that starts the workload; None: no amount of this lot alone does."""
    alone = _least_alone(search, change, want.missing, want.asked + max(0, -want.free))
    return None if alone is None else _least_among_all(search, change, want.lot, alone)


def _find_quota(search: _Search) -> Iterator[Remedy]:
    """More quota of one lot for its queue: of the flavors that would do, the one that takes least."""
    found: list[tuple[int, Change]] = []
    for want in search.wants:

        def change(amount: int, lot: Lot = want.lot) -> Change:
            return MoreQuota(search.queue, lot, amount)

        amount = _find_amount(search, change, want)
        if amount is not None:
            found.append((amount * 1000 // max(want.asked, 1), change(amount)))
    if found:
        yield Remedy((min(found, key=lambda pair: pair[0])[1],))


def _find_borrowing(search: _Search) -> Iterator[Remedy]:
    """A higher limit on what its queue may borrow of one lot."""
    for want in search.wants:
        if want.borrow_limit is None:
            continue

        def change(amount: int, lot: Lot = want.lot) -> Change:
            return MoreBorrowing(search.queue, lot, amount)

        amount = _find_amount(search, change, want)
        if amount is not None:
            yield Remedy((change(amount),))
            return


def _find_nodes(search: _Search) -> Iterator[Remedy]:
    """Nodes like those that there are: of the kind that takes fewest, and then has the fewest GPUs."""
    found: list[tuple[int, int, Change]] = []
    for number, node in node_patterns(search.state):

        def change(count: int, like: int = number) -> Change:
            return MoreNodes(like, count)

        alone = _least_alone(search, change, 1, _MOST_NODES)
        counts = range(alone, min(2 * alone, _MOST_NODES) + 1) if alone is not None else ()
        count = next((count for count in counts if search.trials.starts([change(count)])), None)
        if count is not None:
            found.append((count, node.shape.gpu_count, change(count)))
    if found:
        yield Remedy((min(found, key=lambda triple: triple[:2])[2],))


# -- one of several --------------------------------------------------------------------------------------------


def _first_that_starts(search: _Search, changes: list[Change]) -> Iterator[Remedy]:
    """The first of several changes that starts the workload at once; or else when those it preempts have left."""
    for change in changes:
        if search.trials.starts_alone([change]) and search.trials.starts([change]):
            yield Remedy((change,))
            return
    for change in changes:
        if search.trials.starts_in_time_alone([change]) and search.trials.starts_in_time([change]):
            yield Remedy((change,), at_once=False)
            return


def _find_models(search: _Search) -> Iterator[Remedy]:
    models = models_refused(search.state, search.number)
    return _first_that_starts(search, [AllowModel(search.number, model) for model in models])


def _find_flavors(search: _Search) -> Iterator[Remedy]:
    flavors = flavors_refused(search.state, search.number)
    return _first_that_starts(search, [AllowFlavor(search.number, flavor) for flavor in flavors])


def _find_moves(search: _Search) -> Iterator[Remedy]:
    queues = entrances_for(search.state, search.number)
    return _first_that_starts(search, [Move(search.number, queue) for queue in queues])


def _find_opening(search: _Search) -> Iterator[Remedy]:
    """Opening its queue, where that is stopped."""
    shares = search.state.policy.shares
    stopped = {queue.name for queue in shares.queues if queue.stop is not StopPolicy.NONE}
    stopped |= {entrance.queue for entrance in shares.entrances if entrance.stop is not StopPolicy.NONE}
    if search.queue in stopped and search.trials.starts([Open(search.queue)]):
        yield Remedy((Open(search.queue),))


def _find_priority(search: _Search) -> Iterator[Remedy]:
    """The lowest priority that starts it, by going first or by preempting."""
    priorities = priorities_above(search.state, search.number)
    if not priorities or not search.trials.starts_in_time_alone([SetPriority(search.number, priorities[-1])]):
        return
    for priority in priorities:
        changes = (SetPriority(search.number, priority),)
        if search.trials.starts_in_time(changes):
            yield Remedy(changes, at_once=search.trials.starts(changes))
            return


# -- who would have to go --------------------------------------------------------------------------------------


def _find_stops(search: _Search) -> Iterator[Remedy]:
    """The fewest workloads to stop, and among those who hold enough the cheapest."""
    holders = stoppable(search.state, search.number)
    for number in holders[:_MOST_SINGLES]:
        if search.trials.starts_alone([Stop(number)]) and search.trials.starts([Stop(number)]):
            yield Remedy((Stop(number),))
            return
    stopped: list[Change] = []
    for number in holders[:_MOST_STOPPED]:
        stopped.append(Stop(number))
        if len(stopped) > 1 and search.trials.starts_alone(stopped):
            break
    else:
        return
    if search.trials.starts(stopped):
        yield Remedy(_spare(search, tuple(stopped)))


def _spare(search: _Search, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same changes without those that are not needed, the last first."""
    for change in reversed(changes):
        fewer = tuple(other for other in changes if other != change)
        if len(changes) > 1 and search.trials.starts(fewer):
            changes = fewer
    return changes


# -- together --------------------------------------------------------------------------------------------------


def _find_combination(search: _Search) -> Iterator[Remedy]:
    """Where no single change will do: what it is refused for is lifted one by one, and it goes first if need be."""
    changes: dict[object, Change] = {}
    for _ in range(_MOST_REASONS):
        refusal = search.trials.refusal_alone(tuple(changes.values()))
        if refusal is None:
            break
        if not _lift(search, refusal, changes):
            return
    together = _shrink(search, tuple(changes.values()))
    if together and search.trials.starts(together):
        yield Remedy(_spare(search, together))
        return
    for more in range(_MOST_NODES // 2 if "nodes" in changes else 1):  # others may take the first ones
        enough = tuple(c._replace(nodes=c.nodes + more) if isinstance(c, MoreNodes) else c for c in together)
        for priority in _priorities_that_do(search, enough):
            yield Remedy(_spare(search, (*enough, SetPriority(search.number, priority))))
            return
        if not search.goes_on():
            return


def _shrink(search: _Search, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same changes with the least quota of each lot that starts the workload with nobody else waiting."""
    for at, change in enumerate(changes):
        if not isinstance(change, MoreQuota):
            continue

        def works(amount: int, at: int = at, change: MoreQuota = change) -> bool:
            less = (change._replace(amount=amount),) if amount else ()
            return search.trials.starts_alone((*changes[:at], *less, *changes[at + 1 :]))  # noqa: B023 - called at once

        if works(change.amount - 1):
            least = change._replace(amount=_least(works, -1, change.amount - 1))
            changes = (*changes[:at], least, *changes[at + 1 :])
    return tuple(change for change in changes if not isinstance(change, MoreQuota) or change.amount)


def _priorities_that_do(search: _Search, changes: tuple[Change, ...]) -> list[int]:
    """The lowest priority that starts the workload together with other changes; none if the highest does not."""
    priorities = priorities_above(search.state, search.number)
    if not priorities or not search.trials.starts((*changes, SetPriority(search.number, priorities[-1]))):
        return []

    def works(at: int) -> bool:
        return search.trials.starts((*changes, SetPriority(search.number, priorities[at])))

    return [next(priority for at, priority in enumerate(priorities) if works(at))]


def _lift(search: _Search, refusal: Refusal, changes: dict[object, Change]) -> bool:
    """Add, or enlarge, the change that lifts a reason; False: none is known."""
    reason, names = refusal.reason, names_of(search.state.policy.shares)
    if reason in (Reason.WAITS_FOR_QUOTA, Reason.ABOVE_QUOTA) and refusal.evidence:
        return _add_quota(search, names.lots[refusal.evidence[0]], refusal.evidence[1], changes)
    if reason is Reason.NO_FLAVOR and refusal.evidence:
        flavor = names.options[refusal.evidence[0]]
        known = "flavor" in changes
        changes["flavor"] = AllowFlavor(search.number, flavor)
        return not known and flavor in flavors_refused(search.state, search.number)
    if reason is Reason.GPU_MODEL:
        return _add_model(search, changes)
    return Reason.NODE_DOWN <= reason <= Reason.GANG_PARTIAL and _add_node(search, changes)


def _add_quota(search: _Search, lot: Lot, missing: int, changes: dict[object, Change]) -> bool:
    known = changes.get(lot)
    more = known.amount if isinstance(known, MoreQuota) else 0
    changes[lot] = MoreQuota(search.queue, lot, more + missing)
    branch = branch_of(search.state.policy.shares, search.queue)
    return any(Lot(quota.flavor, quota.resource) == lot for quota in branch.quotas)


def _add_model(search: _Search, changes: dict[object, Change]) -> bool:
    for model in models_refused(search.state, search.number) if "model" not in changes else ():
        changes["model"] = AllowModel(search.number, model)
        refusal = search.trials.refusal_alone(tuple(changes.values()))
        if refusal is None or refusal.reason not in (Reason.GPU_MODEL, Reason.NODE_TERMS):
            return True
    return False


def _add_node(search: _Search, changes: dict[object, Change]) -> bool:
    known = changes.get("nodes")
    if isinstance(known, MoreNodes):
        changes["nodes"] = MoreNodes(known.like, known.nodes + 1)
        return known.nodes < _MOST_NODES
    for number, _ in node_patterns(search.state):
        tried = {**changes, "nodes": MoreNodes(number, _MOST_NODES)}
        refusal = search.trials.refusal_alone(tuple(tried.values()))
        if refusal is None or refusal.reason in (Reason.WAITS_FOR_QUOTA, Reason.ABOVE_QUOTA):
            changes["nodes"] = MoreNodes(number, 1)
            return True
    return False
