"""The smallest change of each kind that would start a waiting workload now, found by trying on forks.

Nothing here is computed from what is believed about the engine: a change that is named was made on a fork and started
the workload, and smaller ones of its kind were made and did not.
Must not know: how to say it in words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase
from tidegate.whatif.budget import Finder, Kind, Remedy, Search, open_search
from tidegate.whatif.choices import (
    find_flavors,
    find_models,
    find_moves,
    find_opening,
    find_priority,
    find_stops,
)
from tidegate.whatif.combine import find_combination
from tidegate.whatif.fork_trials import Trials, play_leaving, starts_again, starts_unchanged
from tidegate.whatif.least_amount import find_borrowing, find_nodes, find_quota

#: What a search may cost, in heads of queues looked at: a few seconds with plain kernels.
BUDGET = 4_000

#: What one kind may take of it: a kind that finds nothing leaves time for the others.
_OF_ONE_KIND = 3


class Attempt(NamedTuple):
    """What came of one kind of changes."""

    kind: Kind
    remedy: Remedy | None
    tried: int  # trials
    finished: bool = True  # False: the search ended before everything of this kind was tried


class Findings(NamedTuple):
    """What would start a workload now."""

    attempts: tuple[Attempt, ...] = ()
    leaving: bool = False  # nothing has to change: it starts when those told to go are gone
    due: bool = False  # nothing has to change: it starts at the next step
    again: bool = False  # nothing has to change: it starts when it is tried again from its first flavor on
    blocked: Reason = Reason.NONE  # no change around it helps: it is itself held back

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The changes that were found, the best first."""
        return tuple(attempt.remedy for attempt in self.attempts if attempt.remedy is not None)

    @property
    def tried(self) -> int:
        """Trials in all."""
        return sum(attempt.tried for attempt in self.attempts)


def find_remedies(
    state: ClusterState, number: int, budget: int = BUDGET, watch: Callable[[int], None] | None = None
) -> Findings:
    """Find the smallest change of each kind that starts a waiting workload now; `watch` is told what was spent."""
    blocked = _blocked(state, state.workload_numbers.row(number))
    if blocked is not Reason.NONE:
        return Findings(blocked=blocked)
    if starts_unchanged(state, number):
        return Findings(due=True)
    if starts_again(state, number):
        return Findings(again=True)
    trials = Trials(state, number, watch)
    attempts: list[Attempt] = []
    for kind, finder in _finders(state, number):
        share = trials.cost + (budget - trials.cost) // _OF_ONE_KIND
        attempts.append(_attempt(open_search(state, number, trials, share), kind, finder))
    if not any(attempt.remedy for attempt in attempts if attempt.kind is not Kind.STOP):
        attempts.append(_attempt(open_search(state, number, trials, budget), Kind.TOGETHER, find_combination))
    return Findings(tuple(attempts), leaving=play_leaving(state, number))


def _attempt(search: Search, kind: Kind, finder: Finder) -> Attempt:
    before = search.trials.tried
    remedy = finder(search)
    return Attempt(kind, remedy, search.trials.tried - before, finished=remedy is not None or search.goes_on())


def _blocked(state: ClusterState, row: int) -> Reason:
    """Why a workload is not tried at all, whatever there is: its own matter, or a matter of time."""
    tickets = state.quota.reservations
    if not state.quota or row >= tickets.top:
        return Reason.NONE
    if tickets.blocked[row]:
        return Reason(int(tickets.blocked[row]))
    return Reason.BACKS_OFF if tickets.not_before_ms[row] > state.now_ms else Reason.NONE


#: Kinds in the order they are looked for, and told: what costs nobody anything first.
_FOR_QUOTA = (
    (Kind.OPEN, find_opening),
    (Kind.BORROW, find_borrowing),
    (Kind.QUOTA, find_quota),
    (Kind.FLAVOR, find_flavors),
    (Kind.QUEUE, find_moves),
    (Kind.MODEL, find_models),
    (Kind.PRIORITY, find_priority),
    (Kind.STOP, find_stops),
    (Kind.NODES, find_nodes),
)
_FOR_ROOM = (
    (Kind.MODEL, find_models),
    (Kind.FLAVOR, find_flavors),
    (Kind.NODES, find_nodes),
    (Kind.QUEUE, find_moves),
    (Kind.PRIORITY, find_priority),
    (Kind.STOP, find_stops),
    (Kind.QUOTA, find_quota),
)

#: What a workload that holds quota and waits for a place can be given.
_FOR_PLACE = ((Kind.NODES, find_nodes), (Kind.STOP, find_stops))


def _finders(state: ClusterState, number: int) -> tuple[tuple[Kind, Finder], ...]:
    row = state.workload_numbers.row(number)
    if state.workloads.phase[row] != Phase.PENDING:
        return _FOR_PLACE
    told = int(state.workloads.held_code[row])
    finders = _FOR_ROOM if told in ROOM_CODES else _FOR_QUOTA
    return tuple(pair for pair in finders if pair[0] in _kinds_of(state))


def _kinds_of(state: ClusterState) -> frozenset[Kind]:
    """Kinds that a state has the parts for."""
    kinds = {Kind.MODEL, Kind.PRIORITY, Kind.STOP, Kind.NODES} if state.node_specs else {Kind.PRIORITY, Kind.STOP}
    if state.quota:
        kinds |= {Kind.OPEN, Kind.BORROW, Kind.QUOTA, Kind.FLAVOR, Kind.QUEUE}
    return frozenset(kinds)
