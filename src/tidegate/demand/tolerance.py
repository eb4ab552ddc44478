"""What can wait, and for how long: as declared, or as people showed it by waiting and by giving up. Input four.

Patience is estimated as survival is (Kaplan and Meier): who started after a wait would have waited longer, nobody
knows how long; who cancelled while waiting had enough.
Must not know: why work waited.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tidegate.demand.cells import dense
from tidegate.demand.curves import Curve, level_at
from tidegate.demand.events import Mask
from tidegate.demand.jobs import Jobs, Rows
from tidegate.demand.numbers import Number, Unit, exact, rank_quantile, share, trim
from tidegate.demand.ordering import Grouping, Some, in_order_by_group
from tidegate.demand.sketches import Sketch, sketch_ordered
from tidegate.model.columns import F64, I64
from tidegate.model.spec import Spec

#: A depth breaks tolerance when more than this share of those who meet it, or more, wait longer than tolerated.
BROKEN = 0.1

#: The share of people whose patience may be spent.
_IMPATIENT = 0.1


class Basis(StrEnum):
    """What a tolerance rests on, the best first."""

    DECLARED = "declared"
    GIVEN_UP = "given_up"  # the wait by which a tenth would have cancelled
    ACCEPTED = "accepted"  # nobody gave up: at least the wait that nine of ten went through
    NONE = "none"


class Tolerance(Spec, frozen=True):
    """How long work of one group may wait."""

    basis: Basis
    tolerated: Number | None  # None: nothing says
    declared: Number | None  # the median of what was declared
    declared_share: Number | None  # of the jobs that declare any
    waited_p50: Number | None
    waited_p90: Number | None
    waited_p95: Number | None
    waited_p99: Number | None
    cancelled: Number | None  # the share of jobs that were cancelled while they waited
    waits: Sketch | None  # of all that started


class Broken(Spec, frozen=True):
    """The depth of the queue from which on waits break tolerance."""

    tolerated_ms: float
    depth: Number | None  # GPUs waiting; None: it never was that deep
    late: Number  # the share of jobs that waited longer than tolerated


class Waits(NamedTuple):
    """Waits of some jobs, in order: until the start, until a cancellation, and as declared."""

    started_ms: I64
    given_up_ms: I64
    declared_ms: I64
    member: dict[str, int]  # the row of these jobs in each dimension
    every: tuple[int, int, int]  # each stands for so many: of very many, only every so-manieth in order is kept

    def belongs(self, scope: str, row: int) -> bool:
        """Whether these jobs belong to a group; all belong to what is no dimension."""
        return self.member.get(scope, row) == row


def sort_waits(jobs: Jobs) -> list[Waits]:
    """Waits by cell: each combination of kind, queue and GPU model that occurs."""
    combination = np.zeros(jobs.cells.amount.size, np.int64)
    for name, label in jobs.cells.labels.items():
        combination = combination * max(len(jobs.names[name]), 1) + label
    used, group_of = dense(combination)
    grouping = Grouping(group_of.astype(np.int64), used.size)
    started = in_order_by_group(map(_until_start, jobs.parts()), grouping)
    given_up = in_order_by_group(map(_until_given_up, jobs.parts()), grouping)
    declared = in_order_by_group(map(_declared, jobs.parts()), grouping)
    every = (started.every, given_up.every, declared.every)
    first = [int(np.flatnonzero(group_of == row)[0]) for row in range(used.size)]
    members = [{name: int(label[at]) for name, label in jobs.cells.labels.items()} for at in first]
    columns = zip(started.parts, given_up.parts, declared.parts, members, strict=True)
    return [Waits(one, two, three, member, every) for one, two, three, member in columns]


def _until_start(jobs: Rows) -> Some:
    began = jobs if jobs.started_ms.min(initial=0) >= 0 else jobs.take(jobs.started_ms >= 0)
    return began.started_ms - began.submitted_ms, began.cell


def _until_given_up(jobs: Rows) -> Some:
    gone = np.flatnonzero(jobs.cancelled)
    gone = gone[(jobs.started_ms[gone] < 0) & (jobs.ended_ms[gone] >= jobs.submitted_ms[gone])]
    return jobs.ended_ms[gone] - jobs.submitted_ms[gone], jobs.cell[gone]


def _declared(jobs: Rows) -> Some:
    said = np.flatnonzero(jobs.tolerated_ms >= 0)
    return jobs.tolerated_ms[said], jobs.cell[said]


def measure_tolerance(waits: Waits, jobs: int) -> Tolerance:
    """What the waits of a group say."""
    started, given_up, declared = waits[:3]
    each, gone, said = waits.every
    quantile = {
        f"waited_p{at}": rank_quantile(started, at / 100, Unit.MS, "jobs", each) if started.size else None
        for at in (50, 90, 95, 99)
    }
    basis, tolerated = _tolerated(waits)
    asked = started.size * each + given_up.size * gone
    return Tolerance(
        basis=basis,
        tolerated=tolerated,
        declared=rank_quantile(declared, 0.5, Unit.MS, "jobs", said) if declared.size else None,
        declared_share=share(min(declared.size * said, jobs), jobs, "jobs") if declared.size else None,
        cancelled=share(given_up.size * gone, asked, "jobs") if asked else None,
        waits=sketch_ordered(started) if started.size else None,
        **quantile,
    )


def _tolerated(waits: Waits) -> tuple[Basis, Number | None]:
    if waits.declared_ms.size:
        return Basis.DECLARED, rank_quantile(waits.declared_ms, 0.5, Unit.MS, "jobs", waits.every[2])
    if waits.given_up_ms.size >= 10:
        patience = spent_by(waits, _IMPATIENT)
        if patience is not None:
            return Basis.GIVEN_UP, exact(patience, Unit.MS, waits.given_up_ms.size, "jobs")
    if waits.started_ms.size:
        accepted = rank_quantile(waits.started_ms, 0.9, Unit.MS, "jobs", waits.every[0])
        if accepted.value > 0:  # where nine of ten started at once, nobody was asked for patience
            return Basis.ACCEPTED, accepted
    return Basis.NONE, None


def spent_by(waits: Waits, part: float) -> float | None:
    """The wait by which this part would have given up; None where so many never did."""
    at = np.unique(waits.given_up_ms)
    gave_up = np.searchsorted(waits.given_up_ms, at, side="right") - np.searchsorted(waits.given_up_ms, at, side="left")
    started_before = np.searchsorted(waits.started_ms, at, side="left")
    gone_before = np.searchsorted(waits.given_up_ms, at, side="left")
    each, gone, _ = waits.every
    left = each * (waits.started_ms.size - started_before) + gone * (waits.given_up_ms.size - gone_before)
    survival = np.cumprod(1 - gone * gave_up / np.maximum(left, 1))
    spent = np.flatnonzero(survival <= 1 - part)
    return float(at[spent[0]]) if spent.size else None


def find_breaking_depth(submitted_ms: I64, waited_ms: I64, queue: Curve, tolerated_ms: float) -> Broken:
    """The least depth such that of all jobs that met it, or a deeper one, more than BROKEN waited too long."""
    late = waited_ms > tolerated_ms
    depth = level_at(queue, submitted_ms - queue.window.start_ms)
    return Broken(
        tolerated_ms=trim(tolerated_ms),
        depth=_least_breaking(depth, late),
        late=share(int(late.sum()), int(late.size), "jobs"),
    )


def _least_breaking(depth: F64, late: Mask) -> Number | None:
    """Walk from the deepest queue down, as long as too many of those met so far waited too long."""
    if depth.size == 0:
        return None
    order = np.argsort(-depth, kind="stable")
    steps = np.append(np.flatnonzero(np.diff(depth[order])), order.size - 1)  # the last of each depth
    met = steps + 1
    share_late = np.cumsum(late[order])[steps] / met
    broken = np.flatnonzero((share_late > BROKEN) & (met >= min(20, order.size)))
    if broken.size == 0:
        return None
    at = steps[broken[-1]]
    return exact(float(depth[order[at]]), Unit.GPUS, int(met[broken[-1]]), "jobs")
