"""Kubernetes' amounts and times, against other ways to compute them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.manifests.quantity import added, charged, counted, largest, offered, requested, rounded_up
from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.queues import UNLIMITED
from tidegate.model.units import UnitError, parse_quantity

SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{f"e{power}": Decimal(10) ** power for power in range(-9, 10)},
    "E+3": Decimal(1000),
}


@given(
    st.decimals(min_value=0, max_value=10**9, places=9, allow_nan=False),
    st.sampled_from(sorted(SUFFIXES)),
    st.sampled_from(["", "+", "-"]),
)
def test_a_quantity_is_read_exactly(number, suffix, sign):
    text = f"{sign}{number:f}{suffix}"
    with localcontext(prec=100):
        value = number * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
        ceiling = int(value.to_integral_value(rounding="ROUND_CEILING"))
    assert parse_quantity(text) == Fraction(value)
    assert rounded_up(parse_quantity(text)) == min(ceiling, UNLIMITED)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (8, 8),
        ("8", 8),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        (0.1, Fraction(1, 10)),
        (1e-05, Fraction(1, 100_000)),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e3", 1000),
        ("1Ei", 1 << 60),
        ("-1", -1),
        ("+2k", 2000),
    ],
)
def test_every_way_to_write_one(written, value):
    assert parse_quantity(written) == value


@pytest.mark.parametrize(
    "written",
    ["", "x", "1x", "1KI", "1Mib", "1 Gi", "--1", "1e", "1e1234", "1.2.3", "9" * 65, True, None, [1], {}, "٣"],
)
def test_what_is_none(written):
    with pytest.raises(UnitError):
        parse_quantity(written)


@pytest.mark.parametrize(
    ("resource", "written", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "0.1m", 1),
        ("cpu", "1E", UNLIMITED),
        ("memory", "1Gi", 1 << 30),
        ("memory", "100m", 1),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", "1e99", UNLIMITED),
        ("pods", "2e3", 2000),
    ],
)
def test_quota_counts_cpu_in_thousandths_and_everything_else_as_it_is(resource, written, amount):
    assert counted(resource, parse_quantity(written)) == amount


def test_requests_round_up_and_nodes_round_down():
    amounts = {"cpu": Fraction(15, 10_000), "memory": Fraction((1 << 20) + 1), "x.com/y": Fraction(3, 2)}
    assert charged(amounts) == (("cpu", 2), ("memory", (1 << 20) + 1), ("x.com/y", 2))
    assert requested(amounts) == (("cpu", 2), ("memory", 2), ("x.com/y", 2))
    assert offered(amounts) == (("cpu", 1), ("memory", 1), ("x.com/y", 1))


def test_sums_and_maxima_go_resource_by_resource():
    first, second = {"a": Fraction(1), "b": Fraction(5)}, {"b": Fraction(2), "c": Fraction(3)}
    assert added(first, second) == {"a": 1, "b": 7, "c": 3}
    assert largest(first, second) == {"a": 1, "b": 5, "c": 3}


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001  the zone comes next
    st.integers(-23 * 60, 23 * 60),
)
def test_a_time_is_read_as_python_reads_it(moment, minutes):
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert read_time_ms(moment.isoformat()) == since // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "written",
    ["", "2026-11-16", "2026-11-16T08:00:00", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-11-16T24:00:00Z",
     "2026-11-16 08:00:00Z", "now"],
)  # fmt: skip
def test_what_is_no_time(written):
    with pytest.raises(UnitError):
        read_time_ms(written)


def test_a_leap_day_and_a_leap_second():
    assert read_time_ms("2028-02-29T00:00:00Z") - read_time_ms("2028-02-28T00:00:00Z") == 86_400_000
    assert read_time_ms("2016-12-31T23:59:60Z") == read_time_ms("2017-01-01T00:00:00Z")
    assert read_time_ms("1970-01-01t00:00:00.25z") == 250
