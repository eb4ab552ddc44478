"""Fixes that need an amount: the least quota, borrowing or number of nodes that starts a workload.

What fails when nothing else waits also fails among others, so amounts are first tried alone, which is quick, and then
among all from the least that works alone. A larger amount can do less than a smaller one, when other workloads take
what is added; so amounts are tried one by one from below, in steps between which nothing can change, unless those are
too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidegate.journal.queue_position import QuotaShortage
from tidegate.whatif.budget import Fix, FixSearch
from tidegate.whatif.changes import Change, MoreBorrowing, MoreNodes, MoreQuota
from tidegate.whatif.options import node_patterns, quantum_of

#: Nodes that are worth proposing.
MOST_NODES = 16

#: Amounts that are tried one by one; where there are more, the least is sought by halving.
MOST_AMOUNTS = 64

#: Amounts that are tried among all who wait: beyond, so many go first that more of it is no answer.
_MOST_STEPS = 24

ChangeBy = Callable[[int], Change]


class _Least(NamedTuple):
    """The least amount that does, and whether every smaller one was tried."""

    amount: int
    every_smaller: bool


def halve(works: Callable[[int], bool], low: int, high: int) -> int:
    """An amount above `low` that works where one less does not; `high` works and `low` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def amounts_below(amount: int, quantum: int) -> range:
    """Smaller amounts that could make a difference, from below; none where they are too many to try."""
    return range(quantum, amount, quantum) if amount <= MOST_AMOUNTS * quantum else range(0)


def _least_alone(search: FixSearch, change: ChangeBy, most: int, quantum: int) -> _Least | None:
    """The least amount that starts the workload when nothing else waits; None: the most does not start it."""

    def works(amount: int) -> bool:
        return search.trials.starts_alone([change(amount)])

    if most < 1 or not works(most):
        return None
    if most > MOST_AMOUNTS * quantum:
        return _Least(halve(works, 0, most), every_smaller=False)
    return _Least(next((amount for amount in amounts_below(most, quantum) if works(amount)), most), every_smaller=True)


def _least_among_all(search: FixSearch, change: ChangeBy, amounts: Iterable[int]) -> int | None:
    """The first of these amounts that starts the workload among all who wait."""
    for amount in amounts:
        if search.trials.starts([change(amount)]):
            return amount
        if not search.goes_on():
            return None
    return None


def _find_amount(search: FixSearch, change: ChangeBy, want: QuotaShortage) -> _Least | None:
    """The least amount of a lot that starts the workload; None: no amount of this lot alone does."""
    quantum = quantum_of(search.state, want.lot)
    alone = _least_alone(search, change, want.asked + max(0, -want.free), quantum)
    if alone is None:
        return None
    first = (alone.amount // quantum + 1) * quantum
    amounts = (alone.amount, *range(first, first + _MOST_STEPS * quantum, quantum))
    amount = _least_among_all(search, change, amounts)
    return None if amount is None else alone._replace(amount=amount)


# -- kinds -----------------------------------------------------------------------------------------------------


def find_quota(search: FixSearch) -> Fix | None:
    """More quota of one lot for its queue: of the flavors that would do, the one that takes least."""
    found = [(least, want) for want, least in _leasts(search, search.wants, MoreQuota)]
    if not found:
        return None
    least, want = min(found, key=lambda pair: pair[0].amount * 1000 // max(pair[1].asked, 1))
    return Fix((MoreQuota(search.queue, want.lot, least.amount),), every_smaller=least.every_smaller)


def find_borrowing(search: FixSearch) -> Fix | None:
    """A higher limit on what its queue may borrow of one lot."""
    limited = tuple(want for want in search.wants if want.borrow_limit is not None)
    for want, least in _leasts(search, limited, MoreBorrowing):
        return Fix((MoreBorrowing(search.queue, want.lot, least.amount),), every_smaller=least.every_smaller)
    return None


def _leasts(
    search: FixSearch, wants: tuple[QuotaShortage, ...], kind: type[MoreQuota | MoreBorrowing]
) -> Iterator[tuple[QuotaShortage, _Least]]:
    """The least amount of each lot, where there is one."""
    for want in wants:

        def change(amount: int, want: QuotaShortage = want) -> Change:
            return kind(search.queue, want.lot, amount)

        least = _find_amount(search, change, want)
        if least is not None:
            yield want, least


def find_nodes(search: FixSearch) -> Fix | None:
    """Nodes like those that there are: of the kind that takes fewest, and then has the fewest GPUs."""
    found: list[tuple[int, int, Change]] = []
    for number, node in node_patterns(search.state):

        def change(count: int, like: int = number) -> Change:
            return MoreNodes(like, count)

        alone = _least_alone(search, change, MOST_NODES, 1)
        if alone is None:
            continue
        count = _least_among_all(search, change, range(alone.amount, min(2 * alone.amount, MOST_NODES) + 1))
        if count is not None:
            found.append((count, node.shape.gpu_count, change(count)))
    return Fix((min(found, key=lambda triple: triple[:2])[2],)) if found else None
