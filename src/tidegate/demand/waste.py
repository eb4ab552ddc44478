"""Waste in GPU-hours: capacity for the peak, idle allocations, capacity for noise, unused capacity."""

from __future__ import annotations

from enum import StrEnum

from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.estimate import trim
from tidegate.demand.model import DemandGroup, DemandModel, Ground
from tidegate.model.struct import Spec

#: Two tables are of one time if their ends lie no further apart than this part of it.
_SAME_TIME = 0.05


class Leak(StrEnum):
    """Where GPU-hours go."""

    PEAK = "peak_provisioning"  # capacity for the highest minute, all the time, against capacity for the band
    IDLE = "idle_residency"  # held, with nothing to do
    NOISE = "noise_provisioned"  # the part of the peak that only noise reaches
    UNUSED = "unused_capacity"  # there, and not held


class Waste(Spec, frozen=True):
    """GPU-hours that one leak costs over the window."""

    leak: Leak
    gpu_hours: float
    share: float  # of what was provided
    provided: float  # GPUs
    needed: float  # GPUs, by shape


def find_waste(model: DemandModel) -> tuple[Waste, ...]:
    """The leaks, the largest first."""
    found = [*_peak(model), *_idle(model), *_unused(model)]
    return tuple(sorted(found, key=lambda one: (-one.gpu_hours, one.leak)))


def _ground(model: DemandModel, table: str) -> Ground | None:
    return next((one for one in model.grounds if one.table == table), None)


def _hours(model: DemandModel, table: str) -> float:
    """How long a table was seen: what was wasted in unseen time is not known."""
    ground = _ground(model, table)
    return ground.seen_hours if ground else 0.0


def _peak(model: DemandModel) -> list[Waste]:
    """Peak against shape: the band up to p95 all the time, and the bursts above it only while they last."""
    total = model.total()
    if total is None or total.wanted is None or total.bursts is None:
        return []
    wanted = total.wanted
    hours = _hours(model, wanted.mean.table)
    shaped = wanted.p95.value * hours + _above(wanted)
    found = [_waste(Leak.PEAK, wanted.peak.value, shaped / max(hours, 1e-9), hours)]
    return found + _noise(total, wanted, hours)


def _above(levels: Levels) -> float:
    return sum(band.demand for band in levels.bands if band.name in {"burst", "spike"})


def _noise(total: DemandGroup, wanted: Levels, hours: float) -> list[Waste]:
    """Only noise rises so far: without it the peak would be lower."""
    bursts = total.bursts
    if bursts is None or bursts.cold_start_ms is None or bursts.noise_height <= bursts.height:
        return []
    needed = wanted.peak.value - (bursts.noise_height - bursts.height)
    return [_waste(Leak.NOISE, wanted.peak.value, needed, hours)]


def _idle(model: DemandModel) -> list[Waste]:
    seen = model.residency
    if seen is None:
        return []
    held = sum(band.demand for band in seen.held.bands)
    return [
        Waste(
            leak=Leak.IDLE,
            gpu_hours=seen.idle_gpu_hours.value,
            share=trim(seen.idle_gpu_hours.value / max(held, 1e-9)),
            provided=seen.held.mean.value,
            needed=trim(seen.held.mean.value * (1 - seen.idle_gpu_hours.value / max(held, 1e-9))),
        )
    ]


def _unused(model: DemandModel) -> list[Waste]:
    """What was there and not held: of one time, for in another both may have been others."""
    fleet = model.fleet
    if fleet is None or fleet.total is None:
        return []
    there = fleet.total.mean.value
    used = _held_meanwhile(model) if fleet.free is None else there - fleet.free.value
    return [] if used is None or used >= there else [_waste(Leak.UNUSED, there, used, _hours(model, "capacity"))]


def _held_meanwhile(model: DemandModel) -> float | None:
    """GPUs held on average while those that were there were counted; None: what was held is known of another time."""
    total = model.total()
    if total is None or total.seen is None:
        return None
    counted, held = _ground(model, "capacity"), _ground(model, total.seen.mean.table)
    if counted is None or held is None:
        return None
    apart_ms = max(abs(counted.start_ms - held.start_ms), abs(counted.end_ms - held.end_ms))
    return total.seen.mean.value if apart_ms <= _SAME_TIME * (counted.end_ms - counted.start_ms) else None


def _waste(leak: Leak, provided: float, needed: float, hours: float) -> Waste:
    lost = max(provided - needed, 0.0)
    return Waste(
        leak=leak,
        gpu_hours=trim(lost * hours),
        share=trim(lost / max(provided, 1e-9)),
        provided=trim(provided),
        needed=trim(needed),
    )
