"""Reads the fields of an object, and reports what is wrong with each under its path.

A field that cannot be used is reported and its default returned, so that one pass finds everything.
As in Kubernetes, a null field is a missing field.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

from tidegate.config.messages import did_you_mean
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.quantity import Amounts
from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.problem import Path, Problem, Severity, found_text
from tidegate.model.units import UnitError, parse_quantity

E = TypeVar("E", bound=StrEnum)

LARGEST_COUNT = 2**31 - 1


class Item:
    """A value of an object."""

    __slots__ = ("findings", "origin", "path", "value")

    def __init__(self, value: Any, findings: ManifestFindings, origin: ObjectOrigin, path: Path = ()) -> None:
        self.value = value
        self.findings = findings
        self.origin = origin
        self.path = path

    def get(self, key: str) -> Any:
        """The value of a field; None if there is none."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def field(self, key: str | int, value: Any) -> Item:
        """A part of this value."""
        return Item(value, self.findings, self.origin, (*self.path, key))

    def quiet(self) -> Item:
        """The same, to be read again without reporting its problems twice."""
        return Item(self.value, ManifestFindings(0), self.origin, self.path)

    def part(self, *keys: str) -> Item:
        """An inner mapping that was read before; an empty one if it is missing."""
        found = self.quiet()
        for key in keys:
            found = found.mapping(key)
        return Item(found.value, self.findings, self.origin, found.path)

    def parts(self, key: str) -> list[Item]:
        """The items of a list of mappings that was read before."""
        return [Item(found.value, self.findings, self.origin, found.path) for found in self.quiet().items(key)]

    # --- parts

    def mapping(self, key: str) -> Item:
        """A field that is a mapping; an empty one if it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, "a mapping", value)
            value = None
        return self.field(key, value or {})

    def items(self, key: str) -> list[Item]:
        """The items of a field that is a list of mappings."""
        return [item for item in self._listed(key) if item.is_mapping()]

    def is_mapping(self) -> bool:
        """Whether the value is a mapping; reported if not."""
        if not isinstance(self.value, dict):
            self.report("", expected="a mapping", found=found_text(self.value))
        return isinstance(self.value, dict)

    def _listed(self, key: str) -> list[Item]:
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            self.refuse(key, "a list", value, "begin each item with '- '" if isinstance(value, dict) else "")
            return []
        whole = self.field(key, value)
        return [whole.field(number, item) for number, item in enumerate(value or ())]

    # --- values

    def text(self, key: str, default: str = "") -> str:
        """A field that is text."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(key, "text", value, "" if isinstance(value, dict | list) else "write it in quotes")
            return default
        return value

    def needed_text(self, key: str) -> str:
        """A required field that is text."""
        if key not in self:
            self.report(key, found="required field is missing")
        return self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """The items of a field that is a list of texts."""
        found = []
        for item in self._listed(key):
            if isinstance(item.value, str):
                found.append(item.value)
            else:
                item.report("", expected="text", found=found_text(item.value))
        return tuple(found)

    def pairs(self, key: str) -> dict[str, str]:
        """A field that maps text to text, such as labels."""
        inner = self.mapping(key)
        return {name: inner.text(name) for name in inner.value}

    def whole(self, key: str, default: int = 0, *, least: int = 0, most: int = LARGEST_COUNT) -> int:
        """A field that is a whole number."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            quoted = isinstance(value, str) and value.lstrip("-").isdecimal()
            self.refuse(key, "a whole number", value, "write it without quotes" if quoted else "")
            return default
        if not least <= value <= most:
            self.refuse(key, f"a whole number from {least:,} to {most:,}", value)
            return default
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A field that is true or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, "true or false", value)
            return default
        return value

    def choice(self, key: str, kind: type[E], default: E, also: dict[str, E] | None = None) -> E:
        """A field that is one of a few words; `also` has words that mean the same."""
        written = self.text(key)
        if not written:
            return default
        known = {**{member.value: member for member in kind}, **(also or {})}
        if written not in known:
            self.refuse(key, f"one of {', '.join(known)}", written, did_you_mean(written, known))
        return known.get(written, default)

    def time_ms(self, key: str) -> int:
        """A field that is a timestamp; 0 if it is missing."""
        written = self.text(key)
        if not written:
            return 0
        try:
            return read_time_ms(written)
        except UnitError as error:
            self.refuse(key, str(error), written)
            return 0

    def quantity(self, key: str) -> Fraction | None:
        """A field that is an amount of zero or more; None if it is missing or not usable."""
        value = self.get(key)
        if value is None:
            return None
        try:
            amount = parse_quantity(value)
        except UnitError as error:
            self.refuse(key, str(error), value)
            return None
        if amount < 0:
            self.refuse(key, "an amount of zero or more", value)
            return None
        return amount

    def amounts(self, key: str) -> Amounts:
        """A field that maps resources to amounts."""
        inner = self.mapping(key)
        found = {name: inner.quantity(name) for name in inner.value}
        return {name: amount for name, amount in found.items() if amount is not None}

    # --- findings

    def refuse(self, key: str, expected: str, value: object, hint: str = "") -> None:
        """Say that a field has a value that cannot be used."""
        self.report(key, expected=expected, found=found_text(value), hint=hint)

    def report(
        self, key: str, *, found: str, expected: str = "", hint: str = "", severity: Severity = Severity.ERROR
    ) -> None:
        """Report a finding about a field; without a key, about the whole."""
        path = (*self.path, key) if key else self.path
        self.findings.add(self.origin, Problem(path=path, found=found, expected=expected, hint=hint, severity=severity))

    def warn(self, key: str, found: str, hint: str = "") -> None:
        """Say that a field does not do what its author may expect."""
        self.report(key, found=found, hint=hint, severity=Severity.WARNING)

    def note(self, key: str, found: str, hint: str = "") -> None:
        """Say something that is worth knowing about a field."""
        self.report(key, found=found, hint=hint, severity=Severity.NOTE)
