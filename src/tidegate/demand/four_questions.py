"""Answers to the four questions: numbers, a grade, and the data that would improve the grade.

The floor here is provisional: the level that demand rarely falls below. `planning` finds the real one by replay.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec.structs import replace

from tidegate.demand.estimate import Number
from tidegate.demand.model import DemandGroup, DemandModel, GroupScope
from tidegate.demand.tolerance import ToleranceBasis
from tidegate.model.struct import Spec
from tidegate.model.units import DAY_MS, MINUTE_MS, SECOND_MS, WEEK_MS


class DemandQuestion(StrEnum):
    """What has to be known before capacity is talked about."""

    FLOOR = "floor"  # what is the real concurrency floor?
    BURST = "burst"  # what is burst, and what is noise?
    RESIDENCY = "residency"  # how long does work stay resident: memory held against compute used?
    PATIENCE = "patience"  # what can wait, and for how long?


class Grade(StrEnum):
    """What an answer is worth."""

    MEASURED = "measured"
    PARTIAL = "partial"
    ASSUMED = "assumed"


class MissingData(StrEnum):
    """What keeps an answer from being measured; each is lifted by data."""

    NO_GPU_DEMAND = "no_gpu_demand"  # nothing tells how many GPUs are asked for
    COUNTERS_ONLY = "counters_only"  # counters tell what ran and waited, not what people did not even ask for
    HELD_ONLY = "held_only"  # what is held is known, not what is asked for
    SHORT_WINDOW = "short_window"  # less than a week: hours of the week were not all seen
    NO_COLD_START = "no_cold_start"  # how long capacity takes to start is not known
    NO_USE = "no_use"  # whether GPUs were busy is not known
    NO_VRAM = "no_vram"  # what memory was held is not known
    NO_STARTS = "no_starts"  # when jobs started is not known, hence not how long they waited
    NO_SUBMISSIONS = "no_submissions"  # when jobs were submitted is not known, hence not how long they waited
    WAITS_IN_RUNTIMES = "waits_in_runtimes"  # how long jobs ran is known with their waits alone: an upper bound
    NOTHING_DECLARED = "nothing_declared"  # no tolerance was declared, and no job was cancelled while it waited
    NO_LATENCY = "no_latency"  # how long requests took is not known
    NO_ARRIVALS = "no_arrivals"  # nothing tells when work or requests come
    ROWS_DROPPED = "rows_dropped"  # a notable part of the rows could not be used
    GAPS = "gaps"  # for days nothing was recorded
    LEFT_EDGE = "left_edge"  # work that ran when the table begins is not in it, and jobs run long


class QuestionAnswer(Spec, frozen=True):
    """One answer."""

    question: DemandQuestion
    grade: Grade
    numbers: tuple[tuple[str, Number], ...]  # by name, the most telling first
    lacks: tuple[MissingData, ...]


class Verdict(StrEnum):
    """Whether there is enough to plan with."""

    READY = "ready"  # all four are measured
    USABLE = "usable"  # none, or one, is an assumption
    PREMATURE = "premature"  # two or more are assumptions


def answer(model: DemandModel) -> tuple[QuestionAnswer, ...]:
    """The four answers, in the order they are asked."""
    return tuple(_lowered(one, model) for one in (_floor(model), _burst(model), _residency(model), _patience(model)))


#: Rows that may be dropped before answers are no longer measured.
_MOST_DROPPED = 0.02


def _lowered(one: QuestionAnswer, model: DemandModel) -> QuestionAnswer:
    """The answer, at most partial where rows were dropped, or time was not seen."""
    lacks = []
    dropped = max((ground.dropped for ground in model.grounds), default=0)
    if dropped > _MOST_DROPPED * (dropped + sum(ground.rows for ground in model.grounds)):
        lacks.append(MissingData.ROWS_DROPPED)
    if one.question in {DemandQuestion.FLOOR, DemandQuestion.BURST} and any(ground.unseen for ground in model.grounds):
        lacks.append(MissingData.GAPS)
    if not lacks:
        return one
    grade = Grade.PARTIAL if one.grade is Grade.MEASURED else one.grade
    return replace(one, grade=grade, lacks=(*one.lacks, *lacks))


def judge(answers: tuple[QuestionAnswer, ...]) -> Verdict:
    """Whether to go on to a plan."""
    assumed = sum(one.grade is Grade.ASSUMED for one in answers)
    if assumed >= 2:
        return Verdict.PREMATURE
    return Verdict.READY if all(one.grade is Grade.MEASURED for one in answers) else Verdict.USABLE


def _floor(model: DemandModel) -> QuestionAnswer:
    total = model.total()
    if total is None or (total.wanted is None and total.seen is None):
        rates = tuple(
            (f"requests_{name}", getattr(one.rate, name))
            for one in model.services[:1]
            for name in ("mean", "p50", "p95", "p99", "peak")
        )
        return _graded(DemandQuestion.FLOOR, rates, (MissingData.NO_GPU_DEMAND,), Grade.ASSUMED)
    levels = total.wanted or total.seen
    assert levels is not None
    lacks = []
    if total.wanted is None:
        lacks.append(MissingData.HELD_ONLY)
    elif total.jobs == 0:
        lacks.append(MissingData.COUNTERS_ONLY)
    if not all(ground.runtimes for ground in model.grounds):
        lacks.append(MissingData.WAITS_IN_RUNTIMES)
    if _length_ms(model) < WEEK_MS - DAY_MS:
        lacks.append(MissingData.SHORT_WINDOW)
    if _missing_share(model) > _MOST_MISSING:
        lacks.append(MissingData.LEFT_EDGE)
    numbers = [(name, getattr(levels, name)) for name in ("mean", "p05", "p50", "p95", "p99", "peak")]
    if model.residency and total.wanted is None:
        numbers += [("busy_p05", model.residency.busy.p05), ("busy_p95", model.residency.busy.p95)]
    return _graded(DemandQuestion.FLOOR, tuple(numbers), tuple(lacks))


#: What may be missing of the mean before the floor is no longer measured.
_MOST_MISSING = 0.05


def _missing_share(model: DemandModel) -> float:
    """How much of the mean is missing because jobs that ran when the table begins are not in it.

    A job that is met at any time runs on for mean x (1 + CV^2) / 2 on average: for so long levels rise from 0.
    """
    jobs = next((ground for ground in model.grounds if ground.table == "jobs" and ground.from_empty), None)
    if jobs is None:
        return 0.0
    rest_ms = [one.mean.value * (1 + one.cv.value**2) / 2 for one in model.durations if not one.size]
    return max(rest_ms, default=0.0) / max(jobs.end_ms - jobs.start_ms, 1)


def _burst(model: DemandModel) -> QuestionAnswer:
    total = model.total()
    bursts = total.bursts if total and total.bursts else next((one.bursts for one in model.services), None)
    if bursts is None:
        return _graded(DemandQuestion.BURST, (), (MissingData.NO_ARRIVALS,), Grade.ASSUMED)
    numbers = [("episodes", bursts.episodes), ("area", bursts.area), ("longest", bursts.longest_ms)]
    numbers += _unevenness(model)
    lacks = []
    if model.cold_start is not None:
        numbers += [("cold_start", model.cold_start.window)]
    else:
        lacks.append(MissingData.NO_COLD_START)
    if bursts.noise is not None and bursts.noise_area is not None:
        numbers += [("noise_share", bursts.noise), ("noise_area", bursts.noise_area)]
    return _graded(DemandQuestion.BURST, tuple(numbers), tuple(lacks))


def _unevenness(model: DemandModel) -> list[tuple[str, Number]]:
    """How uneven arrivals are, by the second and by the minute; of jobs, or of requests."""
    total = model.total()
    arrivals = [one for one in (total.arrivals if total else None, *(one.arrivals for one in model.services)) if one]
    told = {SECOND_MS: "1s", MINUTE_MS: "1m"}
    found: list[tuple[str, Number]] = []
    for one in arrivals[0].dispersion if arrivals else ():
        if one.window_ms in told:
            name = told[one.window_ms]
            found += [(f"peak_to_mean_{name}", one.peak_to_mean), (f"idc_{name}", one.idc)]
    return found


def _residency(model: DemandModel) -> QuestionAnswer:
    seen = model.residency
    if seen is None:
        known = tuple((f"{one.kind}_p50", one.p50) for one in model.durations if not one.size)
        return _graded(DemandQuestion.RESIDENCY, known, (MissingData.NO_USE,), Grade.ASSUMED)
    numbers = [("duty", seen.duty), ("idle", seen.idle), ("idle_gpu_hours", seen.idle_gpu_hours)]
    if seen.idle_vram_gib is None:
        return _graded(DemandQuestion.RESIDENCY, tuple(numbers), (MissingData.NO_VRAM,))
    return _graded(DemandQuestion.RESIDENCY, (*numbers, ("idle_vram", seen.idle_vram_gib)), ())


def _patience(model: DemandModel) -> QuestionAnswer:
    groups = [one for one in model.groups if one.scope is GroupScope.KIND] or list(model.groups[:1])
    known = [(one, one.tolerance) for one in groups if one.tolerance and one.tolerance.tolerated]
    numbers = tuple((one.name or "all", found.tolerated) for one, found in known if found.tolerated)
    if not known:
        return _graded(DemandQuestion.PATIENCE, (), _why_impatient(model, groups), Grade.ASSUMED)
    if any(found.basis is ToleranceBasis.ACCEPTED for _, found in known):
        return _graded(DemandQuestion.PATIENCE, numbers, (MissingData.NOTHING_DECLARED,))
    return _graded(
        DemandQuestion.PATIENCE, numbers, () if len(known) == len(groups) else (MissingData.NOTHING_DECLARED,)
    )


def _why_impatient(model: DemandModel, groups: list[DemandGroup]) -> tuple[MissingData, ...]:
    lacks = []
    if any(one.waiting is None for one in groups) or not groups:
        ran = groups and all(one.seen is not None for one in groups)
        lacks.append(MissingData.NO_SUBMISSIONS if ran else MissingData.NO_STARTS)
    if model.services and all(one.latency is None for one in model.services):
        lacks.append(MissingData.NO_LATENCY)
    return (*lacks, MissingData.NOTHING_DECLARED)


def _length_ms(model: DemandModel) -> int:
    return max((one.end_ms - one.start_ms for one in model.grounds if one.table != "starts"), default=0)


def _graded(
    question: DemandQuestion,
    numbers: tuple[tuple[str, Number], ...],
    lacks: tuple[MissingData, ...],
    grade: Grade | None = None,
) -> QuestionAnswer:
    reached = grade or (Grade.PARTIAL if lacks else Grade.MEASURED)
    return QuestionAnswer(question=question, grade=reached, numbers=numbers, lacks=lacks)
