"""A search for the smallest change of each kind that would start a waiting workload now.

Every result was tried: the change that is named started the workload on a fork, and smaller ones of its kind did not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase
from tidegate.whatif.budget import Finder, Fix, FixKind, FixSearch, open_search
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

    kind: FixKind
    fix: Fix | None
    tried: int  # trials
    finished: bool = True  # False: the search ended before everything of this kind was tried


class FixSearchResult(NamedTuple):
    """What would start a workload now."""

    attempts: tuple[Attempt, ...] = ()
    leaving: bool = False  # nothing has to change: it starts when terminating workloads are gone
    due: bool = False  # nothing has to change: it starts at the next step
    again: bool = False  # nothing has to change: it starts when it is tried again from its first flavor on
    blocked: Reason = Reason.NONE  # no change around it helps: it is itself held back

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The changes that were found, the best first."""
        return tuple(attempt.fix for attempt in self.attempts if attempt.fix is not None)

    @property
    def tried(self) -> int:
        """Trials in all."""
        return sum(attempt.tried for attempt in self.attempts)


def find_fixes(
    state: ClusterState, number: int, budget: int = BUDGET, watch: Callable[[int], None] | None = None
) -> FixSearchResult:
    """Find the smallest change of each kind that starts a waiting workload now; `watch` gets the cost so far."""
    blocked = _blocked(state, state.workload_numbers.row(number))
    if blocked is not Reason.NONE:
        return FixSearchResult(blocked=blocked)
    if starts_unchanged(state, number):
        return FixSearchResult(due=True)
    if starts_again(state, number):
        return FixSearchResult(again=True)
    trials = Trials(state, number, watch)
    attempts: list[Attempt] = []
    for kind, finder in _finders(state, number):
        share = trials.cost + (budget - trials.cost) // _OF_ONE_KIND
        attempts.append(_attempt(open_search(state, number, trials, share), kind, finder))
    if not any(attempt.fix for attempt in attempts if attempt.kind is not FixKind.STOP):
        attempts.append(_attempt(open_search(state, number, trials, budget), FixKind.TOGETHER, find_combination))
    return FixSearchResult(tuple(attempts), leaving=play_leaving(state, number))


def _attempt(search: FixSearch, kind: FixKind, finder: Finder) -> Attempt:
    before = search.trials.tried
    fix = finder(search)
    return Attempt(kind, fix, search.trials.tried - before, finished=fix is not None or search.goes_on())


def _blocked(state: ClusterState, row: int) -> Reason:
    """Why a workload is not tried at all, whatever there is: its own matter, or a matter of time."""
    tickets = state.quota.reservations
    if not state.quota or row >= tickets.top:
        return Reason.NONE
    if tickets.blocked[row]:
        return Reason(int(tickets.blocked[row]))
    return Reason.BACKS_OFF if tickets.not_before_ms[row] > state.now_ms else Reason.NONE


#: Kinds in the order of the search and of reports: those that cost no one anything first.
_FOR_QUOTA = (
    (FixKind.OPEN, find_opening),
    (FixKind.BORROW, find_borrowing),
    (FixKind.QUOTA, find_quota),
    (FixKind.FLAVOR, find_flavors),
    (FixKind.QUEUE, find_moves),
    (FixKind.MODEL, find_models),
    (FixKind.PRIORITY, find_priority),
    (FixKind.STOP, find_stops),
    (FixKind.NODES, find_nodes),
)
_FOR_ROOM = (
    (FixKind.MODEL, find_models),
    (FixKind.FLAVOR, find_flavors),
    (FixKind.NODES, find_nodes),
    (FixKind.QUEUE, find_moves),
    (FixKind.PRIORITY, find_priority),
    (FixKind.STOP, find_stops),
    (FixKind.QUOTA, find_quota),
)

#: What a workload that holds quota and waits for a place can be given.
_FOR_PLACE = ((FixKind.NODES, find_nodes), (FixKind.STOP, find_stops))


def _finders(state: ClusterState, number: int) -> tuple[tuple[FixKind, Finder], ...]:
    row = state.workload_numbers.row(number)
    if state.workloads.phase[row] != Phase.PENDING:
        return _FOR_PLACE
    told = int(state.workloads.held_code[row])
    finders = _FOR_ROOM if told in ROOM_CODES else _FOR_QUOTA
    return tuple(pair for pair in finders if pair[0] in _kinds_of(state))


def _kinds_of(state: ClusterState) -> frozenset[FixKind]:
    """Kinds that a state has the parts for."""
    kinds = (
        {FixKind.MODEL, FixKind.PRIORITY, FixKind.STOP, FixKind.NODES}
        if state.node_specs
        else {FixKind.PRIORITY, FixKind.STOP}
    )
    if state.quota:
        kinds |= {FixKind.OPEN, FixKind.BORROW, FixKind.QUOTA, FixKind.FLAVOR, FixKind.QUEUE}
    return frozenset(kinds)
