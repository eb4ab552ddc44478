"""What a capacity costs once it was replayed: what is owned, what windows add, and what is switched on."""

from __future__ import annotations

from tidegate.config.prices import MICROS, Prices
from tidegate.planning.capacity_replay import Outcome


def cost_of(outcome: Outcome, own_gpu_h: float, prices: Prices) -> float:
    """What a capacity costs: of what is there all the time so many GPU-hours are owned, the others are booked.

    Burst is paid as it comes: in its steps, from the launch until it is given back.
    """
    booked_gpu_h = max(outcome.owned_gpu_h - own_gpu_h, 0.0)
    micros = (
        own_gpu_h * prices.own_micros
        + booked_gpu_h * prices.window_micros
        + (outcome.burst_gpu_h + outcome.above_gpu_h) * prices.burst_micros
    )
    return micros / MICROS
