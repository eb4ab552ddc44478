"""Exact amounts of Kubernetes, and their integers in the units of quota, requests and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from tidegate.model.queues import UNLIMITED
from tidegate.model.struct import Resources, resources

#: Exact amounts by resource name.
Amounts = Mapping[str, Fraction]

_MIB = 1 << 20


def rounded_up(amount: Fraction) -> int:
    """The next whole number, as Kubernetes rounds; what is too large to count has no limit."""
    return min(-(-amount.numerator // amount.denominator), UNLIMITED)


def counted(resource: str, amount: Fraction) -> int:
    """An amount in the unit that quota counts it in: CPU in milli-cores, everything else as it is."""
    return rounded_up(amount * 1000 if resource == "cpu" else amount)


def charged(amounts: Amounts) -> Resources:
    """Amounts in the units that quota counts in."""
    return resources({name: counted(name, amount) for name, amount in amounts.items()})


def asked(amounts: Amounts) -> Resources:
    """Amounts in the units that quota counts in, with the zeros: who asks for none of it still gets a flavor for it."""
    return tuple(sorted((name, counted(name, amount)) for name, amount in amounts.items()))


def requested(amounts: Amounts) -> Resources:
    """Amounts in the units of a pod's request, rounded up: CPU in milli-cores, memory in MiB."""
    return resources({name: rounded_up(amount * _unit(name)) for name, amount in amounts.items()})


def offered(amounts: Amounts) -> Resources:
    """Amounts in the units of a node's capacity, rounded down: CPU in milli-cores, memory in MiB."""
    return resources({name: min(int(amount * _unit(name)), UNLIMITED) for name, amount in amounts.items()})


def _unit(resource: str) -> Fraction:
    if resource == "cpu":
        return Fraction(1000)
    return Fraction(1, _MIB) if resource == "memory" else Fraction(1)


def added(first: Amounts, second: Amounts) -> Amounts:
    """The sum, resource by resource."""
    return {name: first.get(name, Fraction()) + second.get(name, Fraction()) for name in {**first, **second}}


def largest(first: Amounts, second: Amounts) -> Amounts:
    """The larger of the two, resource by resource."""
    return {name: max(first.get(name, Fraction()), second.get(name, Fraction())) for name in {**first, **second}}
