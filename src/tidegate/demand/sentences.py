"""Sentences about answers, findings and waste."""

from __future__ import annotations

from tidegate.demand.estimate import How, Number, Unit
from tidegate.demand.findings import DemandFinding, FindingCode
from tidegate.demand.four_questions import DemandQuestion, Grade, MissingData, QuestionAnswer, Verdict
from tidegate.demand.time_zone import Calendar, ZoneOrigin
from tidegate.demand.waste import Leak, Waste
from tidegate.model.units import SECOND_MS, duration_text

QUESTIONS = {
    DemandQuestion.FLOOR: "What is the real concurrency floor?",
    DemandQuestion.BURST: "What is burst, and what is noise?",
    DemandQuestion.RESIDENCY: "How long does work stay resident?",
    DemandQuestion.PATIENCE: "What can wait, and for how long?",
}

#: What would lift each lack.
REMEDIES = {
    MissingData.NO_GPU_DEMAND: "jobs with GPUs and durations, or the GPU use of the pods that serve",
    MissingData.COUNTERS_ONLY: "the jobs themselves: counters show only what people dared to submit",
    MissingData.HELD_ONLY: "jobs or requests: what is held says little about what is asked for",
    MissingData.SHORT_WINDOW: "a week or more: not every hour of the week was seen",
    MissingData.NO_COLD_START: "how long nodes, images and weights take to start (or --cold-start)",
    MissingData.NO_USE: "busy samples per pod (DCGM_FI_DEV_GPU_UTIL or PROF_GR_ENGINE_ACTIVE)",
    MissingData.NO_VRAM: "memory samples per pod (DCGM_FI_DEV_FB_USED)",
    MissingData.NO_STARTS: "start times of jobs: without them waits are not known",
    MissingData.NO_SUBMISSIONS: "submission times of jobs: without them waits are not known",
    MissingData.WAITS_IN_RUNTIMES: "start times of jobs: without them waits count as runtime",
    MissingData.NOTHING_DECLARED: "tolerated waits as declared by their owners, or cancellations",
    MissingData.NO_LATENCY: "latencies of requests",
    MissingData.NO_ARRIVALS: "when jobs or requests come",
    MissingData.ROWS_DROPPED: "rows that can be used: too many were dropped (`tidegate sources` lists them)",
    MissingData.LEFT_EDGE: "jobs that ran when the table begins, or a longer time: levels rise from an empty cluster",
    MissingData.GAPS: "rows of the days of which none were recorded: they are left out, and not taken as quiet",
}

#: Why a number has no interval, in a word or two; docs/demand.md has more.
WHY_NONE = {
    How.FEW: "too few",
    How.TREND: "trend",
    How.UNEVEN: "one block",
    How.TAIL: "heavy tail",
    How.WIDE: "too wide",
}

_VERDICTS = {
    Verdict.READY: "Ready: all four answers are measured.",
    Verdict.USABLE: "Usable: no more than one answer is an assumption.",
    Verdict.PREMATURE: "Premature: {count} of four answers are assumptions.",
}

_LEAKS = {
    Leak.PEAK: "Buying for the peak of {provided} GPUs instead of the shape ({needed} on average)",
    Leak.IDLE: "GPUs that were held with nothing to do ({provided} held, {needed} with work)",
    Leak.NOISE: "The part of the peak that only noise reaches ({provided} GPUs instead of {needed})",
    Leak.UNUSED: "Capacity that nobody held ({provided} GPUs there, {needed} held)",
}

_FINDINGS = {
    FindingCode.ALL_URGENT: "{share} of the jobs have the highest priority, {priority:g}: none is urgent then.",
    FindingCode.IDLE_HOLDER: "{about} held a GPU for {idle_ms} without work{memory}.",
    FindingCode.GANG_TOO_LARGE: "The largest job asks for {gang:g} GPUs; more than {free:g} are hardly ever free.",
    FindingCode.HELD_ABOVE_USE: "{held:.0f} GPUs are held on average; {busy_p99:.0f} would do 99 % of the time.",
    FindingCode.SPIKE: "{about} peaks at {peak:,.0f} GPUs, {ratio:.1f} times its p95 of {p95:,.0f}.",
    FindingCode.SHORT_BEHIND_LONG: "Durations of {about} work are uneven (CV {cv:.1f}, p50 {p50_ms}, p99 {p99_ms}).",
    FindingCode.GAVE_UP: "{share} of {about} jobs were cancelled while they waited.",
    FindingCode.MOSTLY_NOISE: "{share} of {episodes:.0f} episodes above the band end before capacity could start.",
}


#: What findings about everything call it.
_ALL = {FindingCode.SPIKE: "Demand"}

_NAMES = {
    Unit.RATIO: "",
    Unit.GPUS: "GPUs",
    Unit.GPU_HOURS: "GPU-hours",
    Unit.REQUESTS_PER_S: "requests/s",
    Unit.MIB: "MiB",
    Unit.GIB: "GiB",
}


def number_text(number: Number) -> str:
    """Say a number with its unit and, where it is an estimate, its interval."""
    said = value_text(number.value, number.unit)
    if number.how is How.AT_LEAST:
        return f"at least {said}"
    if number.how is How.AT_MOST:
        return f"at most {said}"
    if not number.how.has_interval():
        return f"{said} (no interval: {WHY_NONE[number.how]})"
    if number.low == number.high:
        return said
    low, high = value_text(number.low, number.unit), value_text(number.high, number.unit)
    if number.unit in {Unit.MS, Unit.SHARE}:
        return f"{said} ({low} to {high})"
    unit = f" {_NAMES.get(number.unit, number.unit.value)}"
    value, low, high = (text.removesuffix(unit) for text in (said, low, high))
    return f"{value} ({low} to {high}){unit}".strip()


def value_text(value: float, unit: Unit) -> str:
    """Say a value with its unit."""
    if unit is Unit.MS:
        return _time(value)
    if unit is Unit.SHARE:
        return f"{100 * value:.1f} %"
    digits = f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:#.3g}".rstrip(".")
    return f"{digits} {_NAMES.get(unit, unit.value)}".strip()


def _time(ms: float) -> str:
    return duration_text(round(ms / SECOND_MS) * SECOND_MS) if ms >= SECOND_MS else f"{ms:.0f}ms"


def axis_text(calendar: Calendar) -> str:
    """Say whose clocks an axis of dates goes by, where hours of the week go by others."""
    return " Dates are UTC." if calendar.dates and calendar.timezone != "UTC" else ""


def clock_text(calendar: Calendar) -> str:
    """Say whose clocks the hours of the week are."""
    if not calendar.dates:
        return "Hours of the week count from the start: the times have no dates."
    if calendar.timezone_from is ZoneOrigin.DEFAULT:
        return "Hours of the week are UTC: no source names a time zone; --timezone says one."
    return f"Hours of the week are those of {calendar.timezone}."


def verdict_text(verdict: Verdict, answers: tuple[QuestionAnswer, ...]) -> str:
    """Say whether to go on."""
    count = sum(one.grade is Grade.ASSUMED for one in answers)
    return _VERDICTS[verdict].format(count={2: "two", 3: "three", 4: "all"}.get(count, count))


def finding_text(finding: DemandFinding) -> str:
    """Say a finding."""
    told: dict[str, float | str] = dict(finding.numbers)
    for name, value in finding.numbers:
        if name.endswith("_ms"):
            told[name] = _time(value)
        elif name == "share":
            told[name] = value_text(value, Unit.SHARE)
    vram_gib = told.get("vram_gib")
    told["memory"] = "" if vram_gib is None else f", {vram_gib:.1f} GiB of memory with it"
    return _FINDINGS[finding.code].format(about=finding.about or _ALL.get(finding.code, "all"), **told)


def waste_text(waste: Waste) -> str:
    """Say what a leak costs."""
    said = _LEAKS[waste.leak].format(provided=f"{waste.provided:,.0f}", needed=f"{waste.needed:,.0f}")
    return f"{said}: {value_text(waste.gpu_hours, Unit.GPU_HOURS)}, {100 * waste.share:.0f} % of what is provided."
