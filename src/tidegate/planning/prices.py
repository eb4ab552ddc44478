"""What a GPU costs for an hour, by how it is bought, and what follows: when is it better to own, to book, to burst?

Must not know: files, jobs.
"""

from __future__ import annotations

from tidegate.model.spec import Spec

#: Prices are counted in millionths.
MICROS = 1_000_000


class Prices(Spec, frozen=True):
    """Money for a GPU-hour. Burst costs the most, what is owned the least: or it would not be bought so."""

    own_micros: int  # there all the time
    window_micros: int  # booked for the hours of a window
    burst_micros: int  # switched on and off
    currency: str = "USD"
    wait_micros: int = 0  # for each hour that each GPU of a waiting job is waited for; 0: within tolerance it is free

    def trouble(self) -> str:
        """Say what is wrong; empty if nothing is."""
        if self.own_micros <= 0:
            return "own: expected a price above 0"
        if not self.own_micros <= self.window_micros <= self.burst_micros:
            return "expected own <= window <= burst: dearer by the hour, the shorter it is bound"
        return ""


#: Prices for whoever has none: what is owned for years costs 1, booked 1.5, on demand 2.5. Only a signature lets it in.
ASSUMED_PRICES = Prices(
    own_micros=MICROS, window_micros=3 * MICROS // 2, burst_micros=5 * MICROS // 2, currency="owned GPU-hours"
)
