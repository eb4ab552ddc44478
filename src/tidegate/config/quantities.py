"""Amounts in files, as types: each reads its text, and says what it accepts."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

from tidegate.model.hardware import MOST_DEVICES
from tidegate.model.units import (
    DAY_MS,
    LONGEST_TEXT,
    WHOLE_MILLI,
    UnitError,
    cpu_text,
    duration_text,
    memory_text,
    parse_cpu_milli,
    parse_duration_ms,
    parse_memory_mib,
)

_NUMBER = r"[0-9]+(\.[0-9]+)?"
_MIB = 1 << 20


class Amount(int):
    """A whole number of its unit. Specs take plain integers: convert with `int` when one leaves the file format."""

    expected: ClassVar[str]
    pattern: ClassVar[str] = ""  # of texts that are accepted; empty: none are
    smallest: ClassVar[int] = 0
    largest: ClassVar[int]

    @classmethod
    def read(cls, written: object) -> Self:
        """Read a value; a UnitError says what was expected."""
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            raise UnitError(cls.expected)
        if isinstance(written, str) and not cls.accepts_text(written):
            raise UnitError(cls.expected)
        try:
            value = cls._value(written)
        except UnitError as error:  # a text of the right form can only be too large
            raise UnitError(cls._at_most() if isinstance(written, str) else cls.expected) from error
        if not cls.smallest <= value <= cls.largest:
            raise UnitError(cls._at_most() if value > cls.largest else cls.expected)
        return cls(value)

    @classmethod
    def accepts_text(cls, text: str) -> bool:
        """Say whether the text has the right form; it may still be too large."""
        return bool(cls.pattern) and len(text) <= LONGEST_TEXT and re.fullmatch(cls.pattern, text) is not None

    @classmethod
    def hint(cls, written: object) -> str:
        """Guess what was meant by a value that was refused; empty if there is no guess."""
        del written
        return ""

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """What is accepted, as JSON Schema. That a text is too large it cannot say."""
        text = {"type": "string", "pattern": f"^({cls.pattern})$", "maxLength": LONGEST_TEXT}
        return {"anyOf": [text, *cls._number_schemas()]}

    def text(self) -> str:
        """Say the amount as people write it."""
        raise NotImplementedError

    @classmethod
    def _value(cls, written: str | float) -> int:
        raise NotImplementedError

    @classmethod
    def _number_schemas(cls) -> list[dict[str, Any]]:
        return [{"type": "number", "minimum": 0, "maximum": cls.largest // 1000}]

    @classmethod
    def _at_most(cls) -> str:
        return f"at most {cls(cls.largest).text()}"


class Cpu(Amount):
    """CPU in milli-cores."""

    expected = 'an amount of CPU such as 8 or "500m"'
    pattern = _NUMBER + "m?"
    largest = 100_000 * 1000

    @classmethod
    def _value(cls, written: str | float) -> int:
        return parse_cpu_milli(written)

    def text(self) -> str:
        """Say it in cores."""
        return cpu_text(self)


class Memory(Amount):
    """Memory in MiB. A bare number counts bytes, as in Kubernetes, and few bytes are a forgotten unit."""

    expected = 'an amount of memory such as "64Gi"'
    pattern = _NUMBER + "([KMGTPE]i|[kMGTPE])"
    largest = 1 << 30
    _meant = re.compile(rf"({_NUMBER})([kmgtp])i?b?", re.IGNORECASE | re.ASCII)

    @classmethod
    def hint(cls, written: object) -> str:
        """Guess the unit that was meant."""
        if isinstance(written, int | float) and not isinstance(written, bool):
            return "a bare number counts bytes" if 0 < written < _MIB else ""
        if not isinstance(written, str) or cls.accepts_text(written):
            return ""
        meant = cls._meant.fullmatch(written.replace(" ", "")[:LONGEST_TEXT])
        return f"did you mean '{meant[1]}{meant[3].upper()}i'?" if meant else ""

    @classmethod
    def _value(cls, written: str | float) -> int:
        if isinstance(written, int | float) and 0 < written < _MIB:
            raise UnitError(cls.expected)
        return parse_memory_mib(written)

    @classmethod
    def _number_schemas(cls) -> list[dict[str, Any]]:
        return [{"const": 0}, {"type": "number", "minimum": _MIB, "maximum": cls.largest * _MIB}]

    def text(self) -> str:
        """Say it in the largest unit that keeps it short."""
        return memory_text(self)


class Duration(Amount):
    """Time in milliseconds. A bare number counts seconds."""

    expected = 'a duration such as "90s", "15m", "1h30m" or "2d"'
    pattern = rf"{_NUMBER}|({_NUMBER}(ms|min|s|m|h|d|w))+"
    largest = 36_500 * DAY_MS
    _words = re.compile(r"(?<=[0-9])(?:(ms)ecs?|(s)ec(?:ond)?s?|(m)in(?:ute)?s?|(h)(?:ou)?rs?|(d)ays?|(w)(?:ee)?ks?)")

    @classmethod
    def hint(cls, written: object) -> str:
        """Guess what was meant from words such as "10 minutes"."""
        if not isinstance(written, str) or len(written) > LONGEST_TEXT:
            return ""
        meant = cls._words.sub(lambda word: word[word.lastindex or 0], written.replace(" ", "").lower())
        return f"did you mean '{meant}'?" if meant != written and cls.accepts_text(meant) else ""

    @classmethod
    def _value(cls, written: str | float) -> int:
        return parse_duration_ms(written)

    def text(self) -> str:
        """Say it in its two largest units."""
        return duration_text(self)


class PositiveDuration(Duration):
    """Time that passes: a duration longer than zero."""

    expected = 'a duration longer than zero such as "90s", "15m", "1h30m" or "2d"'
    smallest = 1

    @classmethod
    def _number_schemas(cls) -> list[dict[str, Any]]:
        return [{"type": "number", "exclusiveMinimum": 0, "maximum": cls.largest // 1000}]


class Thousandths(Amount):
    """A number, counted in thousandths."""

    most_written: ClassVar[float] = 10**12  # beyond it the number makes no sense

    @classmethod
    def _value(cls, written: str | float) -> int:
        if isinstance(written, str) or not 0 <= written <= cls.most_written:
            raise UnitError(cls.expected)
        return round(Fraction(str(written)) * 1000)  # to the nearest: three thirds must fit

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Numbers only."""
        return {"type": "number", "minimum": 0, "maximum": cls.largest // 1000}

    def text(self) -> str:
        """The amount as a number."""
        return f"{self / 1000:g}"


class Portion(Thousandths):
    """A part of a whole."""

    expected = "a number from 0 to 1"
    largest = 1000
    most_written = 1


class GpuAmount(Thousandths):
    """GPUs of a pod: whole devices, or a part of one."""

    expected = f"a whole number of GPUs from 0 to {MOST_DEVICES}, or a fraction from 0.001 to 1"
    largest = MOST_DEVICES * WHOLE_MILLI
    most_written = MOST_DEVICES

    @classmethod
    def _value(cls, written: str | float) -> int:
        value = super()._value(written)
        if value % WHOLE_MILLI and not 0.001 <= float(written) < 1:
            raise UnitError(cls.expected)
        return value

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Numbers only."""
        return {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MOST_DEVICES},
                {"type": "number", "minimum": 0.001, "maximum": 1},
            ]
        }


class GpuQuota(Thousandths):
    """GPUs of a quota."""

    expected = "a number of GPUs such as 16 or 0.5"
    largest = 10_000_000 * WHOLE_MILLI

    def text(self) -> str:
        """The GPUs, to the last digit."""
        return f"{self / WHOLE_MILLI:,.3f}".rstrip("0").rstrip(".")


class Weight(Thousandths):
    """A weight of fair sharing."""

    expected = "a number of at least 0 such as 1, 2 or 0.5"
    largest = 1_000_000 * 1000


class CpuQuota(Cpu):
    """CPU that quota is given for: that of many nodes, in milli-cores."""

    largest = 10_000_000 * 1000


class MemoryQuota(Memory):
    """Memory that quota is given for: that of many nodes, in MiB."""

    largest = 1 << 39


def read_amount(kind: Any, written: object) -> Any:
    """The hook with which msgspec reads amounts, the only types of ours in the file format."""
    if isinstance(written, str) and len(written) > LONGEST_TEXT:
        raise UnitError(kind.expected)  # not worth remembering
    return _read_once(kind, written) if isinstance(written, str | int | float) else kind.read(written)


@lru_cache(maxsize=4096, typed=True)  # a file repeats its amounts; typed, as 1 and true are equal to Python
def _read_once(kind: Any, written: str | float) -> Any:
    return kind.read(written)
