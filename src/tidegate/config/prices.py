"""Prices of a GPU-hour, by how it is bought: owned, booked, on demand."""

from __future__ import annotations

from tidegate.config.codec import decode
from tidegate.model.problem import Problem, Report
from tidegate.model.struct import Spec

#: Prices are counted in millionths.
MICROS = 1_000_000


class GpuPrices(Spec, frozen=True):
    """Money for a GPU-hour, in millionths. Burst costs the most, what is owned the least."""

    own_micros: int  # there all the time
    window_micros: int  # booked for the hours of a window
    burst_micros: int  # switched on and off
    currency: str = "USD"

    def problem(self) -> str:
        """Say what is wrong; empty if nothing is."""
        if self.own_micros <= 0:
            return "expected a price above 0 for what is owned"
        if not self.own_micros <= self.window_micros <= self.burst_micros:
            return "expected own <= window <= burst: dearer by the hour, the shorter it is bound"
        return ""


class HourEntry(Spec, frozen=True):
    """Prices of a GPU-hour as they are written."""

    own: float
    burst: float
    window: float | None = None  # left out: the price of burst, so that nothing is booked


class PriceDocument(Spec, frozen=True):
    """A price file."""

    gpu_hour: HourEntry
    currency: str = "USD"


def read_prices(data: object) -> tuple[GpuPrices | None, Report]:
    """Prices of plain data; None if the report has errors."""
    report = Report()
    document = decode(data, PriceDocument, report)
    if document is None:
        return None, report
    hour = document.gpu_hour
    window = hour.burst if hour.window is None else hour.window
    own_micros, window_micros, burst_micros = (round(each * MICROS) for each in (hour.own, window, hour.burst))
    prices = GpuPrices(
        own_micros=own_micros, window_micros=window_micros, burst_micros=burst_micros, currency=document.currency
    )
    problem = prices.problem()
    if problem:
        report.add(Problem(path=("gpu_hour",), found=problem))
    return (None, report) if problem else (prices, report)


#: Prices where none are known: owned for years 1 unit, booked 1.5, on demand 2.5. A plan needs a signature for them.
ASSUMED_PRICES = GpuPrices(
    own_micros=MICROS, window_micros=3 * MICROS // 2, burst_micros=5 * MICROS // 2, currency="units"
)
