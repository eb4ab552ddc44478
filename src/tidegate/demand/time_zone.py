"""Calendar: how times become hours of the week, by a time zone or from the start of a trace.

It is a module of its own so that importing it does not load polars.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from tidegate.model.struct import Spec


class ZoneOrigin(StrEnum):
    """Who named the time zone."""

    OPTION = "option"  # the user
    SOURCE = "source"
    DEFAULT = "default"  # UTC


class Calendar(Spec, frozen=True, omit_defaults=False):
    """How times become hours of the week: by the clocks of a time zone, or from the start of a trace without dates.

    The rules of the zone are data: the times at which its clocks change, and the offsets from UTC before and after.
    """

    EPOCH: ClassVar[Calendar]  # dates, and UTC
    NONE: ClassVar[Calendar]  # time 0 is the start of the trace

    dates: bool = True  # else hours of the week are counted from time 0
    timezone: str = "UTC"  # an IANA name, or an offset such as +05:30
    timezone_from: ZoneOrigin = ZoneOrigin.DEFAULT
    changes_ms: tuple[int, ...] = ()
    offsets_ms: tuple[int, ...] = (0,)  # before the first change, and from each change on


Calendar.EPOCH, Calendar.NONE = Calendar(), Calendar(dates=False)
