"""How amounts are written by people, and what integer each means.

Integers inside, units in names: CPU in milli-cores, memory in MiB, time in milliseconds, money in micros.
Must not know: files, specs.
"""

from __future__ import annotations

import re
from fractions import Fraction

TimeMs = int

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS

#: A whole GPU in milli-GPUs.
WHOLE_MILLI = 1_000

#: A GPU-hour in milli-GPUs times milliseconds.
GPU_HOUR_MILLI_MS = WHOLE_MILLI * HOUR_MS

#: The largest amount any field may carry; sums of a million of them still fit 63 bits.
LARGEST_AMOUNT = 1 << 42

#: The largest number that the engine counts with; whatever is told beyond it is no more than that.
LARGEST_NUMBER = 1 << 60

_DURATION_UNITS_MS = {
    "ms": 1,
    "s": SECOND_MS,
    "m": MINUTE_MS,
    "min": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
    "w": WEEK_MS,
}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_MIB = 1 << 20

#: The longest text that can be an amount; longer ones are refused before anything costly is done with them.
LONGEST_TEXT = 64

_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)(?P<suffix>m|[KMGTPE]i|[kMGTPE])?")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|min|s|m|h|d|w)")
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?")


class UnitError(ValueError):
    """An amount that cannot be read; the text says what was expected."""


def bounded(number: int, least: int = 0) -> int:
    """A number that can be counted with, whatever was told."""
    return max(least, min(number, LARGEST_NUMBER))


def parse_quantity(text: str | float) -> Fraction:
    """Read a Kubernetes quantity ("500m", "80Gi", "1.5") exactly."""
    if isinstance(text, int):
        return Fraction(text)
    stripped = str(text).strip()
    match = _QUANTITY.fullmatch(stripped)
    if match is None or len(stripped) > LONGEST_TEXT:
        raise UnitError('a quantity such as 8, "500m" or "64Gi"')
    number = Fraction(match["number"])
    suffix = match["suffix"]
    if suffix is None:
        return number
    if suffix == "m":
        return number / 1000
    return number * (_BINARY.get(suffix) or _DECIMAL[suffix])


def parse_cpu_milli(text: str | float) -> int:
    """Read CPU cores as milli-cores, rounding up as Kubernetes does."""
    return _whole(parse_quantity(text) * 1000)


def parse_memory_mib(text: str | float) -> int:
    """Read bytes ("64Gi", "1T", 1073741824) as MiB, rounding up."""
    return _whole(parse_quantity(text) / _MIB)


def parse_duration_ms(text: str | float) -> int:
    """Read a duration ("90s", "1h30m", "2d"); a bare number counts seconds."""
    if isinstance(text, int):
        return _whole(Fraction(text) * SECOND_MS)
    stripped = str(text).strip()  # a float by its digits: 0.1 means a tenth, not the nearest binary fraction
    if len(stripped) <= LONGEST_TEXT and _PLAIN_NUMBER.fullmatch(stripped):
        return _whole(Fraction(stripped) * SECOND_MS)
    parts = _DURATION_PART.findall(stripped) if len(stripped) <= LONGEST_TEXT else []
    if not parts or "".join(number + unit for number, unit in parts) != stripped:
        raise UnitError('a duration such as "90s", "15m", "1h30m" or "2d"')
    return _whole(sum((Fraction(number) * _DURATION_UNITS_MS[unit] for number, unit in parts), Fraction(0)))


def _whole(amount: Fraction) -> int:
    value = -((-amount.numerator) // amount.denominator)
    if amount < 0:
        raise UnitError("an amount of zero or more")
    if value > LARGEST_AMOUNT:
        raise UnitError(f"an amount of at most {LARGEST_AMOUNT:,}")
    return value


def duration_text(ms: int) -> str:
    """Say a duration in its two largest units: 5400000 is "1h30m"."""
    if ms < 0:
        return "-" + duration_text(-ms)
    if ms < SECOND_MS:
        return f"{ms}ms"
    if ms < MINUTE_MS:
        return f"{ms / SECOND_MS:.3g}s"
    pairs = ((DAY_MS, "d", HOUR_MS, "h"), (HOUR_MS, "h", MINUTE_MS, "m"), (MINUTE_MS, "m", SECOND_MS, "s"))
    for large, large_unit, small, small_unit in pairs:
        if ms >= large:
            rest = ms % large // small
            return f"{ms // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")
    raise AssertionError(ms)


def cpu_text(milli: int) -> str:
    """Say CPU cores: 1500 is "1.5"."""
    return f"{milli / 1000:g}"


def memory_text(mib: int) -> str:
    """Say memory in the largest unit that keeps it short: 1572864 MiB is "1.5Ti"."""
    for size, suffix in ((1 << 20, "Ti"), (1 << 10, "Gi")):
        if mib >= size:
            return f"{mib / size:.4g}{suffix}"
    return f"{mib}Mi"


def gpus_text(milli: int) -> str:
    """Say GPUs: 8000 is "8", 250 is "0.25"."""
    return f"{milli / WHOLE_MILLI:g}"
