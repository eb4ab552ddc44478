"""How many GPUs were busy over time, from what was observed of their use."""

from __future__ import annotations

import numpy as np

from tidegate.measure.time_series import Samples
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import F64, I64
from tidegate.model.facts import EventKind


def with_busy(samples: Samples, flat: Flat) -> Samples:
    """The samples, with what was observed of the use of GPUs: each observation spread evenly over its time."""
    use = flat.facts.of(EventKind.USE_OBSERVED)
    if not len(use.order) or not len(samples.at_ms):
        return samples
    edges = np.append(samples.at_ms, samples.at_ms[-1] + samples.every_ms)
    from_ms, covered_ms = use.at_ms - use.arg, np.maximum(samples.covered_ms, 1)
    observed = spread(from_ms, use.at_ms, use.second_value, edges) / covered_ms
    busy = spread(from_ms, use.at_ms, use.value, edges) / covered_ms
    blind = (observed <= 0) & (samples.allocated_milli > 0)
    return samples._replace(busy_gpus=np.where(blind, np.nan, busy), observed_gpus=observed)


def spread(from_ms: I64, until_ms: I64, amount: F64, edges_ms: I64) -> F64:
    """How much of each amount falls between two edges, when it is spread evenly over its time."""
    lasts = until_ms > from_ms
    from_ms, until_ms, amount = from_ms[lasts], until_ms[lasts], amount[lasts]
    rate = amount / (until_ms - from_ms)
    so_far = _ramps(from_ms, rate, edges_ms) - _ramps(until_ms, rate, edges_ms)
    parts: F64 = np.maximum(np.diff(so_far), 0)  # less than nothing only by rounding
    return parts


def _ramps(from_ms: I64, rate: F64, at_ms: I64) -> F64:
    """What has come together at each time, if from certain times on it grows at certain rates for ever."""
    order = np.argsort(from_ms, kind="stable")
    rates = np.concatenate([[0.0], np.cumsum(rate[order])])
    offsets = np.concatenate([[0.0], np.cumsum(rate[order] * from_ms[order])])
    begun = np.searchsorted(from_ms[order], at_ms)
    grown: F64 = rates[begun] * at_ms - offsets[begun]
    return grown
