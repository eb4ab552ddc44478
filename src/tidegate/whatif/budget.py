"""A search for fixes: its workload, its budget of trials, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from tidegate.journal.queue_position import QuotaShortage, find_shortages, queue_names, queue_row
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.whatif.changes import Change
from tidegate.whatif.fork_trials import Trials


class FixKind(StrEnum):
    """Kinds of changes; the words that `--if` knows them by."""

    OPEN = "open"
    MODEL = "model"
    FLAVOR = "flavor"
    QUEUE = "queue"
    BORROW = "borrow"
    QUOTA = "quota"
    PRIORITY = "priority"
    NODES = "nodes"
    STOP = "stop"
    TOGETHER = "together"  # several kinds, where no single one will do


class Fix(NamedTuple):
    """Changes that start a workload together, none of them larger than it must be."""

    changes: tuple[Change, ...]
    at_once: bool = True  # False: when those it then preempts have left
    every_smaller: bool = True  # was tried and does not start it; False: of many smaller amounts, the next one only


class FixSearch(NamedTuple):
    """A search for changes that start a workload."""

    state: ClusterState
    number: int
    trials: Trials
    wants: tuple[QuotaShortage, ...]
    queue: str  # its queue; empty: it waits in none that counts quota
    budget: int

    def goes_on(self) -> bool:
        """Whether there is time for more trials."""
        return self.trials.cost < self.budget


Finder = Callable[[FixSearch], Fix | None]


def open_search(state: ClusterState, number: int, trials: Trials, budget: int) -> FixSearch:
    """A search for a waiting workload."""
    branch = queue_row(state, state.workload_numbers.row(number))
    queue = queue_names(state)[branch] if branch != NONE else ""
    return FixSearch(state, number, trials, tuple(find_shortages(state, number)), queue, budget)
