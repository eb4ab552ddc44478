"""Named distributions fitted to a sketch: which one is closest, and whether it is close enough.

Fitted by quantiles, so that a few huge values have no weight; judged by the Kolmogorov-Smirnov distance. Where none is
close enough, values are drawn from the sketch.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from tidegate.demand.estimate import trim
from tidegate.demand.sketches import Sketch, quantiles, share_below, weight_of
from tidegate.model.arrays import F64
from tidegate.model.struct import Spec

#: A distance up to which a fitted distribution stands for the values.
CLOSE = 0.05

_AT = np.linspace(0.02, 0.98, 49)


class Family(StrEnum):
    """Distributions that are tried."""

    LOGNORMAL = "lognormal"  # scale: median; shape: deviation of the logarithm
    WEIBULL = "weibull"  # scale, shape
    EXPONENTIAL = "exponential"  # scale: mean


class Fitted(Spec, frozen=True):
    """The family that comes closest."""

    family: Family
    scale: float
    shape: float
    distance: float  # 0 to 1
    close: bool  # else values are drawn from the sketch


def fit_family(sketch: Sketch) -> Fitted | None:
    """The family that is closest to the sketch; None where there is nothing to fit to."""
    if weight_of(sketch) - sketch.zeros <= 0 or sketch.most <= sketch.least:
        return None
    values = np.maximum(quantiles(sketch, _AT), 1e-9)
    if values[-1] <= values[0]:
        return None
    tried = [_judge(family, *_parameters(family, np.log(values)), sketch, values) for family in Family]
    return min(tried, key=lambda one: one.distance)


def _parameters(family: Family, logs: F64) -> tuple[float, float]:
    """Scale and shape by a straight line through the quantiles."""
    if family is Family.LOGNORMAL:
        slope, middle = _line(normal_quantile(_AT), logs)
        return math.exp(middle), slope
    if family is Family.WEIBULL:
        slope, middle = _line(np.log(-np.log1p(-_AT)), logs)
        return math.exp(middle), 1 / max(slope, 1e-9)
    return math.exp(float(logs.mean()) - float(np.log(-np.log1p(-_AT)).mean())), 1.0


def _line(x: F64, y: F64) -> tuple[float, float]:
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return slope, float(y.mean() - slope * x.mean())


def _judge(family: Family, scale: float, shape: float, sketch: Sketch, values: F64) -> Fitted:
    distance = float(np.abs(share_below(sketch, values) - share_of(family, scale, shape, values)).max())
    return Fitted(family=family, scale=trim(scale), shape=trim(shape), distance=trim(distance), close=distance <= CLOSE)


def share_of(family: Family, scale: float, shape: float, values: F64) -> F64:
    """The share of the distribution at or below each value."""
    relative = np.maximum(values, 1e-12) / scale
    if family is Family.LOGNORMAL:
        z = np.log(relative) / max(shape, 1e-9)
        return 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in z.tolist()]))
    return -np.expm1(-(relative**shape))


def normal_quantile(at: F64) -> F64:
    """Quantiles of the normal distribution (Acklam's approximation, within 1e-8)."""
    a = (
        -39.69683028665376,
        220.9460984245205,
        -275.9285104469687,
        138.3577518672690,
        -30.66479806614716,
        2.506628277459239,
    )
    b = (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572)
    c = (
        -0.007784894002430293,
        -0.3223964580411365,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    )
    d = (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416)
    p = np.clip(at, 1e-12, 1 - 1e-12)
    edge = np.sqrt(-2 * np.log(np.minimum(p, 1 - p)))
    tail = np.polyval(c, edge) / np.polyval((*d, 1.0), edge)
    q = p - 0.5
    inner = q * np.polyval(a, q * q) / np.polyval((*b, 1.0), q * q)
    return np.where(np.minimum(p, 1 - p) < 0.02425, np.where(q < 0, tail, -tail), inner)
