"""Reads and writes amounts: quantities, durations, GPUs.

Integers inside, units in names: CPU in milli-cores, memory in MiB, time in milliseconds, money in micros.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from tidegate.model.errors import UserError

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

#: The largest number that the engine counts with; larger ones are cut to it.
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
_MIB = 1 << 20

#: The longest text that can be an amount; longer ones are refused before anything costly is done with them.
LONGEST_TEXT = 64

EXPECTED_QUANTITY = 'a quantity such as 8, "500m" or "64Gi"'
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
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|min|s|m|h|d|w)")
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?")


class UnitError(UserError):
    """An amount that cannot be read; the text says what was expected."""


def bounded(number: int, least: int = 0) -> int:
    """The number, cut to what the engine can count with."""
    return max(least, min(number, LARGEST_NUMBER))


def parse_quantity(written: object) -> Fraction:
    """Read a Kubernetes quantity ("500m", "80Gi", "1.5", "2e3", "-1") exactly."""
    if isinstance(written, int) and not isinstance(written, bool):
        return Fraction(written)
    if isinstance(written, bool) or not isinstance(written, str | float) or len(str(written)) > LONGEST_TEXT:
        raise UnitError(EXPECTED_QUANTITY)
    return _parsed(str(written))


@lru_cache(maxsize=4096)  # a folder repeats its amounts
def _parsed(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(EXPECTED_QUANTITY)
    number = Fraction(match["number"])
    if match["power"]:
        return number * Fraction(10) ** int(match["power"])
    return number * _SCALES[match["suffix"]] if match["suffix"] else number


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


def read_duration_ms(option: str, text: str) -> int:
    """A duration given to an option."""
    try:
        return parse_duration_ms(text)
    except UnitError as error:
        raise UserError(f"{option}: expected {error}, found {text!r}") from None


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
