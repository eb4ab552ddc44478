"""Shares, times, amounts and counts as text."""

from __future__ import annotations

from tidegate.model.units import SECOND_MS, duration_text

#: For what is not known.
UNKNOWN = "–"  # noqa: RUF001 - a dash in a table, not a minus


def percent_text(share: float | None) -> str:
    """Say a share: 0.714 is "71 %"; what is small but not nothing is never "0 %"."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.005:
        return "<1 %"
    return f"{100 * share:.0f} %"


def time_text(ms: float | None) -> str:
    """Say how long something took, to the second."""
    if ms is None:
        return UNKNOWN
    if 0 < ms < SECOND_MS:
        return "<1s"
    return duration_text(round(ms / SECOND_MS) * SECOND_MS) if ms else "0s"


def amount_text(amount: float) -> str:
    """Say GPUs or GPU-hours: small amounts with a decimal, large and whole ones without."""
    if amount >= 9.95 or amount == round(amount):
        return f"{amount:,.0f}"
    return f"{amount:.1f}" if amount >= 0.05 else "<0.1"


def count_text(count: int, what: str) -> str:
    """Say how many: "1 node", "12 nodes"."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
