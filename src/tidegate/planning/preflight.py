"""The preflight: the four questions answered from data, the floor by replay, findings and waste."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.demand.findings import DemandFinding, find
from tidegate.demand.fit import fit
from tidegate.demand.four_questions import QuestionAnswer, Verdict, answer, judge
from tidegate.demand.model import DemandModel
from tidegate.demand.tables import Tables
from tidegate.demand.waste import Waste, find_waste
from tidegate.model.units import HOUR_MS, WHOLE_MILLI
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.planning.concurrency import curve_of, peak_milli, used_gpu_h
from tidegate.planning.floor import Floor, floor_of
from tidegate.planning.plan_inputs import Assumption, Given, settle_inputs
from tidegate.planning.replay_jobs import PlanJobs, plan_jobs_of
from tidegate.planning.threads import side_by_side
from tidegate.planning.tolerance import WaitTolerance, held_as_declared

#: Jobs that are replayed at most: the latest. More of them take minutes and move the floor little.
MOST_REPLAYED = 200_000

#: Jobs below which a replay says nothing.
_LEAST_REPLAYED = 20


class Replayed(NamedTuple):
    """The floor by replay, and what buying for the peak wastes against it."""

    floor: Floor
    tolerance: WaitTolerance
    tolerance_known: bool
    interactive_known: bool
    jobs: int  # that were replayed
    of_jobs: int
    peak_gpus: float
    used_gpu_h: float
    hours: float
    at_least: bool  # the floor is a lower bound: it rests on kinds of which no job has ended

    @property
    def tolerance_ms(self) -> int:
        """How long work may wait that says nothing of its own."""
        return self.tolerance.wait_ms

    @property
    def declared(self) -> int:
        """Jobs that are held to what they declare."""
        return int(held_as_declared(self.floor.outcome.jobs, self.tolerance).sum())

    @property
    def peak_gpu_h(self) -> float:
        """GPU-hours of capacity for the peak, all the time."""
        return self.peak_gpus * self.hours

    @property
    def floor_gpu_h(self) -> float:
        """GPU-hours of capacity for the floor, all the time."""
        return self.floor.gpus * self.hours


class Preflight(NamedTuple):
    """What data says about a demand, before any scheduler is chosen."""

    model: DemandModel
    answers: tuple[QuestionAnswer, ...]
    verdict: Verdict
    findings: tuple[DemandFinding, ...]
    waste: tuple[Waste, ...]
    replayed: Replayed | None  # None: there are no jobs to replay
    jobs: PlanJobs


class PreflightOptions(NamedTuple):
    """How the preflight is made."""

    order: QueueOrder = QueueOrder.OVERTAKE
    tolerance_ms: int | None = None  # None: as measured, or an hour
    cold_start_ms: int | None = None
    seed: int = 0


def check_flight(tables: Tables, asked: PreflightOptions) -> Preflight:
    """Everything the preflight says about gathered tables."""
    model = fit(tables, seed=asked.seed, cold_start_ms=asked.cold_start_ms, run_all=side_by_side)
    answers = answer(model)
    jobs = plan_jobs_of(tables, asked.seed)
    return Preflight(
        model=model,
        answers=answers,
        verdict=judge(answers),
        findings=find(model),
        waste=find_waste(model),
        replayed=_replay(model, jobs, asked) if jobs.total >= _LEAST_REPLAYED else None,
        jobs=jobs,
    )


def _replay(model: DemandModel, jobs: PlanJobs, asked: PreflightOptions) -> Replayed:
    terms = settle_inputs(model, Given(asked.tolerance_ms, cold_start_ms=asked.cold_start_ms))
    assumed = {one.name for one in terms.unsigned}
    latest = jobs.latest(MOST_REPLAYED)
    at_least = latest.only_bounded
    latest = latest.as_far_as_seen() if at_least else latest
    floor = floor_of(latest, terms.tolerance, asked.order, asked.seed)
    curve, span = curve_of(latest), latest.span_ms
    return Replayed(
        floor=floor._replace(low_gpus=None, high_gpus=None) if at_least else floor,
        tolerance=terms.tolerance,
        tolerance_known=Assumption.TOLERANCE not in assumed,
        interactive_known=Assumption.INTERACTIVE not in assumed,
        jobs=latest.total,
        of_jobs=jobs.total,
        peak_gpus=peak_milli(curve, *span) / WHOLE_MILLI,
        used_gpu_h=used_gpu_h(curve, *span),
        hours=(span[1] - span[0]) / HOUR_MS,
        at_least=at_least,
    )
