"""Assumptions of a plan: what was not measured must be signed, or there is no plan."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from tidegate.planning.plan_schema import SignaturePart


class Assumption(StrEnum):
    """What can be assumed."""

    TOLERANCE = "tolerance"
    INTERACTIVE = "interactive"
    COLD_START = "cold-start"
    RESIDENCY = "residency"
    PRICES = "prices"
    RUNTIMES = "runtimes"


class Unsigned(NamedTuple):
    """An assumption that a plan needs and nobody has signed."""

    name: Assumption
    value: str  # what would be assumed
    means: str  # what it says
    instead_of: str  # data that would make it unnecessary


class UnsignedAssumptionError(ValueError):
    """A plan that rests on assumptions that nobody signed."""

    def __init__(self, missing: tuple[Unsigned, ...]) -> None:
        super().__init__(", ".join(each.name for each in missing))
        self.missing = missing


def sign(needed: Iterable[Unsigned], signed: dict[Assumption, str], *, all_of_them: bool) -> tuple[SignaturePart, ...]:
    """Signatures for what is needed; UnsignedPlan lists those that are missing."""
    needed = tuple(needed)
    missing = tuple(each for each in needed if each.name not in signed and not all_of_them)
    if missing:
        raise UnsignedAssumptionError(missing)
    return tuple(
        SignaturePart(name=each.name, value=signed.get(each.name) or each.value, instead_of=each.instead_of)
        for each in needed
    )
