"""What a Kubernetes quantity means, exactly: "500m", "1.5Gi", "2e3", "-1"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from tidegate.model.queues import UNLIMITED
from tidegate.model.struct import Resources, resources
from tidegate.model.units import LONGEST_TEXT, UnitError

EXPECTED = 'a quantity such as 8, "500m" or "64Gi"'

#: Exact amounts by resource name.
Amounts = Mapping[str, Fraction]

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE](?P<power>[+-]?[0-9]{1,3}))?",
    re.ASCII,
)
_SCALES = {
    **{f"{letter}i": Fraction(1 << 10 * power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Fraction(10) ** (3 * power) for power, letter in enumerate("kMGTPE", 1)},
    "m": Fraction(1, 10**3),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
}
_MIB = 1 << 20


def read_quantity(written: object) -> Fraction:
    """Read a quantity; a UnitError says what was expected."""
    if isinstance(written, int) and not isinstance(written, bool):
        return Fraction(written)
    if isinstance(written, bool) or not isinstance(written, str | float):
        raise UnitError(EXPECTED)
    text = str(written)
    if len(text) > LONGEST_TEXT:
        raise UnitError(EXPECTED)
    return _parsed(text)


@lru_cache(maxsize=4096)  # a folder repeats its amounts
def _parsed(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(EXPECTED)
    number = Fraction(match["number"])
    if match["power"]:
        return number * Fraction(10) ** int(match["power"])
    return number * _SCALES[match["suffix"]] if match["suffix"] else number


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
