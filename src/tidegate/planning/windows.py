"""Windows of the week: the split into day, night and weekend that saves most, if it saves enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.config.prices import GpuPrices
from tidegate.demand.time_zone import Calendar
from tidegate.planning.capacity import ALWAYS, HOURS, WeekWindows
from tidegate.planning.newsvendor import Demand, cost_of, split

#: What each further window must save, as a share of the cost: a rule that people must remember costs something too.
_WORTH = 0.01

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STARTS, _LENGTHS = range(0, 24, 2), (8, 10, 12, 14)


class Habit(NamedTuple):
    """The demand of all of the past; and, time and again, that of some weeks and of all others."""

    whole: Demand
    folds: tuple[tuple[Demand, Demand], ...]  # (the others, these weeks); none: too little to confirm a habit by


def choose_windows(habit: Habit, prices: GpuPrices, calendar: Calendar, most: int = 3) -> WeekWindows:
    """The windows that cost least; more of them only where each further one is worth it.

    It must be worth it in weeks, too, that its levels were not chosen on: any few weeks have good hours and bad ones.
    """

    def cost(windows: WeekWindows) -> float:
        return split(habit.whole, windows, prices).cost

    best = ALWAYS
    for count in range(2, most + 1) if habit.folds else ():
        cheapest = min(_candidates(count, calendar), key=cost, default=best)
        least = 1 - _WORTH * (count - len(best.names))
        unseen, usual = (_unseen_cost(windows, habit, prices) for windows in (cheapest, best))
        if cost(cheapest) < cost(best) * least and unseen < usual * least:
            best = cheapest
    return best


def _unseen_cost(windows: WeekWindows, habit: Habit, prices: GpuPrices) -> float:
    """What levels chosen on other weeks cost."""
    return sum(cost_of(split(others, windows, prices), weeks, windows, prices) for others, weeks in habit.folds)


def _candidates(count: int, calendar: Calendar) -> Iterator[WeekWindows]:
    if count == 2:
        for start in _STARTS:
            for length in _LENGTHS:
                yield day_and_night(start, length, calendar)
        for first in _weekends(calendar):
            yield weekend(first, calendar)
    elif count == 3:
        for first in _weekends(calendar):
            for start in _STARTS:
                for length in _LENGTHS:
                    yield day_night_weekend(start, length, first, calendar)


def _weekends(calendar: Calendar) -> tuple[int, ...]:
    """Days with which a weekend may begin; any, for a trace without dates."""
    return (4, 5) if calendar.dates else tuple(range(7))


def day_and_night(start: int, length: int, calendar: Calendar) -> WeekWindows:
    """The same hours of every day, and the others."""
    is_day = [(hour - start) % 24 < length for hour in range(HOURS)]
    return WeekWindows(_day_names(start, length, calendar), tuple(0 if day else 1 for day in is_day))


def weekend(first: int, calendar: Calendar) -> WeekWindows:
    """Two days, and the other five."""
    days = {first, (first + 1) % 7}
    of_hour = tuple(1 if hour // 24 in days else 0 for hour in range(HOURS))
    return WeekWindows(("weekdays", _weekend_name(first, calendar)), of_hour)


def day_night_weekend(start: int, length: int, first: int, calendar: Calendar) -> WeekWindows:
    """Two days, and the day and night of the other five."""
    days = day_and_night(start, length, calendar)
    ends = weekend(first, calendar)
    of_hour = tuple(2 if end else day for day, end in zip(days.of_hour, ends.of_hour, strict=True))
    return WeekWindows((*days.names, ends.names[1]), of_hour)


def _day_names(start: int, length: int, calendar: Calendar) -> tuple[str, str]:
    """Without a calendar, hours are counted from the start of the trace."""
    end, unit = (start + length) % 24, "" if calendar.dates else "+"
    return f"day {unit}{start:02d}-{end:02d}", f"night {unit}{end:02d}-{start:02d}"


def _weekend_name(first: int, calendar: Calendar) -> str:
    second = (first + 1) % 7
    if calendar.dates:
        return f"{_DAYS[first]}-{_DAYS[second]}"
    return f"days {first + 1}-{second + 1}"
