"""Time zones as data: when the clocks of a zone change, for the calendar of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

from tidegate.demand.time_zone import Calendar, ZoneOrigin
from tidegate.model.units import DAY_MS, SECOND_MS

#: How long after the last time changes of the clocks are listed: plans and samples reach beyond what was seen.
_AHEAD_MS = 2 * 366 * DAY_MS

#: Names that say no more than that times are absolute.
_PLAIN = frozenset({"", "UTC", "Etc/UTC", "GMT", "Z", "+00:00"})

_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")


def read_zone(name: str) -> tzinfo:
    """A zone by its IANA name, or an offset such as +05:30; a ValueError says that there is none."""
    offset = _OFFSET.fullmatch(name)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(name) from None


def tells_zone(name: str) -> bool:
    """Whether a name in a source is the time zone of its users."""
    return name not in _PLAIN


def calendar_of(name: str, origin: ZoneOrigin, first_ms: int, last_ms: int) -> Calendar:
    """The calendar of a zone for times from the first to some time after the last."""
    zone = read_zone(name)
    changes = list(_changes(zone, first_ms - DAY_MS, last_ms + _AHEAD_MS))
    offsets = [_offset_ms(zone, at) for at in (first_ms - DAY_MS, *changes)]
    return Calendar(timezone=name, timezone_from=origin, changes_ms=tuple(changes), offsets_ms=tuple(offsets))


def _changes(zone: tzinfo, first_ms: int, last_ms: int) -> Iterator[int]:
    """When the offset changes, to the second: clocks are changed at most once a day."""
    days = range(first_ms - first_ms % SECOND_MS, last_ms + DAY_MS, DAY_MS)
    for first, last in pairwise(days):
        before = _offset_ms(zone, first)
        if _offset_ms(zone, last) == before:
            continue
        low, high = first, last
        while high - low > SECOND_MS:
            middle = (low + high) // 2 // SECOND_MS * SECOND_MS
            low, high = (middle, high) if _offset_ms(zone, middle) == before else (low, middle)
        yield high


def _offset_ms(zone: tzinfo, at_ms: int) -> int:
    offset = datetime.fromtimestamp(at_ms // SECOND_MS, UTC).astimezone(zone).utcoffset()
    return round((offset or timedelta()).total_seconds()) * SECOND_MS
