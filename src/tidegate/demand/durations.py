"""How long work runs, by kind and size, and what that means for scheduling it. Input seven.

Must not know: when it ran, who it belonged to.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from tidegate.demand.distributions import Fitted, fit_family
from tidegate.demand.jobs import Jobs, Rows
from tidegate.demand.numbers import How, Number, Unit, multiply, rank_quantile, trim
from tidegate.demand.ordering import Grouping, Some, in_order_by_group
from tidegate.demand.sketches import Sketch, sketch_ordered
from tidegate.model.columns import F64, I64
from tidegate.model.spec import Spec
from tidegate.model.units import WHOLE_MILLI

#: Sizes by the most GPUs in them, and their names.
SIZES = ((999, "<1"), (1_000, "1"), (2_000, "2"), (4_000, "3-4"), (8_000, "5-8"), (16_000, "9-16"), (64_000, "17-64"))
LARGEST = "65+"
SIZE_NAMES = (*(name for _, name in SIZES), LARGEST)

#: GPUs of a usual node: a job with more needs several at once.
_NODE_MILLI = 8_000

_DRAWS = 200


class Meaning(StrEnum):
    """What a spread of durations asks of a scheduler."""

    EVEN = "even"  # CV below 1: order matters little
    HEAVY_TAIL = "heavy_tail"  # p99 is a hundred times p50: estimates from the mean are useless
    BLOCKS_SHORT_WORK = "blocks_short_work"  # CV above 2: short jobs behind long ones need backfill or preemption
    FRAGMENTS = "fragments"  # small and uneven: leaves holes that larger jobs cannot use
    NEEDS_GANG = "needs_gang"  # more than a node: starts whole or wastes what it holds
    FEW = "few"  # too few jobs to say


class Spread(Spec, frozen=True):
    """How long jobs of one kind and size run."""

    kind: str
    size: str  # GPUs of the whole job; "" for all sizes
    gpu_hours: float
    mean: Number
    p50: Number
    p90: Number
    p99: Number
    cv: Number  # deviation over mean
    meaning: tuple[Meaning, ...]
    fitted: Fitted | None
    sketch: Sketch


def size_of(gpus_milli: I64) -> I64:
    """The row of SIZE_NAMES of each job."""
    return np.searchsorted(np.array([most for most, _ in SIZES]), gpus_milli, side="left")


def measure_durations(jobs: Jobs, seed: int) -> tuple[Spread, ...]:
    """Spreads of each kind: of all sizes, and of each size that occurs."""
    kinds, cells = jobs.names["kind"], jobs.cells
    size = size_of(np.rint(cells.amount * (cells.unit * WHOLE_MILLI)).astype(np.int64))
    group = cells.labels["kind"].astype(np.int64) * len(SIZE_NAMES) + size
    grouping = Grouping(group, len(kinds) * len(SIZE_NAMES))
    parts, every = in_order_by_group(map(_known, jobs.parts()), grouping)
    hours = np.bincount(group, weights=jobs.cell_gpu_hours, minlength=len(parts))
    found = []
    for row, kind in enumerate(kinds):
        rows = range(row * len(SIZE_NAMES), (row + 1) * len(SIZE_NAMES))
        used = [at for at in rows if parts[at].size]
        if not used:
            continue
        everything = np.sort(np.concatenate([parts[at] for at in used])) if len(used) > 1 else parts[used[0]]
        named = [("", everything, hours[list(rows)].sum())]
        named += [(SIZE_NAMES[at - rows.start], parts[at], hours[at]) for at in used]
        found += [_spread((kind, name), values, every, float(spent), seed) for name, values, spent in named]
    return tuple(found)


def _known(jobs: Rows) -> Some:
    over = jobs if jobs.duration_ms.min(initial=0) >= 0 else jobs.take(jobs.duration_ms >= 0)
    return over.duration_ms, over.cell


def _spread(of: tuple[str, str], ordered: I64, every: int, gpu_hours: float, seed: int) -> Spread:
    kind, size = of
    samples = ordered.size * every
    middle, deviation = float(ordered.mean()), float(ordered.std())
    means, cvs = _redraw(ordered, every, seed)
    sketch = sketch_ordered(ordered, every)
    p50, p90, p99 = (rank_quantile(ordered, at, Unit.MS, "jobs", every) for at in (0.5, 0.9, 0.99))
    cv = deviation / middle if middle > 0 else 0.0
    return Spread(
        kind=kind,
        size=size,
        gpu_hours=trim(gpu_hours),
        mean=_drawn(middle, means, Unit.MS, samples),
        p50=p50,
        p90=p90,
        p99=p99,
        cv=_drawn(cv, cvs, Unit.RATIO, samples),
        meaning=_meaning(size, samples, cv, p99.value / max(p50.value, 1)),
        fitted=fit_family(sketch),
        sketch=sketch,
    )


def _redraw(ordered: I64, every: int, seed: int) -> tuple[F64, F64]:
    """Means and CVs of the jobs drawn again: each counts as often as independent draws would have it (Poisson)."""
    values = ordered.astype(np.float64)
    groups = min(values.size, 400)  # neighbours in order of duration are drawn together where there are very many
    edges = np.linspace(0, values.size, groups + 1).astype(np.int64)[:-1]
    ones = np.diff(np.append(edges, values.size)).astype(np.float64)
    firsts, squares = np.add.reduceat(values, edges), np.add.reduceat(values * values, edges)
    generator = np.random.default_rng(seed)
    picks = generator.normal(1.0, 1 / np.sqrt(every * ones), (_DRAWS, groups)).clip(0.0)
    count, first, square = multiply(picks, np.stack((ones, firsts, squares), axis=1)).T
    mean = first / np.maximum(count, 1e-9)
    deviation = np.sqrt(np.maximum(square / np.maximum(count, 1e-9) - mean * mean, 0.0))
    return mean, deviation / np.maximum(mean, 1e-9)


def _drawn(value: float, draws: F64, unit: Unit, samples: int) -> Number:
    low, high = np.quantile(draws, [0.05, 0.95]).tolist()
    return Number(
        value=trim(value),
        unit=unit,
        samples=samples,
        low=trim(min(low, value)),
        high=trim(max(high, value)),
        how=How.UNITS,
    )


def _meaning(size: str, samples: int, cv: float, tail: float) -> tuple[Meaning, ...]:
    if samples < 30:
        return (Meaning.FEW,)
    said = []
    if cv < 1:
        said.append(Meaning.EVEN)
    if tail >= 100:
        said.append(Meaning.HEAVY_TAIL)
    if cv > 2:
        said.append(Meaning.BLOCKS_SHORT_WORK)
    if cv > 1 and size in {"<1", "1", "2", "3-4"}:
        said.append(Meaning.FRAGMENTS)
    if size in {"9-16", "17-64", LARGEST}:
        said.append(Meaning.NEEDS_GANG)
    return tuple(said)
