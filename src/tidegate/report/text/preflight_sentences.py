"""Sentences of the preflight: those of `demand.sentences`, with the floor of a replay and money."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.config.prices import MICROS, GpuPrices
from tidegate.demand.estimate import How, Number, Unit
from tidegate.demand.findings import DemandFinding
from tidegate.demand.four_questions import DemandQuestion, Grade, QuestionAnswer
from tidegate.demand.sentences import REMEDIES, number_text, value_text
from tidegate.demand.sentences import finding_text as told_finding
from tidegate.demand.sentences import waste_text as told_waste
from tidegate.demand.waste import Leak, Waste
from tidegate.measure.format import count_text, time_text
from tidegate.planning.floor import span_text
from tidegate.planning.preflight import Preflight, Replayed
from tidegate.planning.tolerance import late_weight


def bare(number: Number) -> str:
    """A number in its unit, without its interval."""
    least = "at least " if number.how is How.AT_LEAST else ""
    return least + value_text(number.value, number.unit)


def short_answer(one: QuestionAnswer, preflight: Preflight) -> str:
    """The answer in a few words."""
    numbers = dict(one.numbers)
    if one.question is DemandQuestion.FLOOR and preflight.replayed is not None:
        return f"{floor_words(preflight.replayed)} GPUs"
    if one.question is DemandQuestion.PATIENCE and one.numbers:
        return ", ".join(f"{name} {bare(number)}" for name, number in one.numbers[:2])
    for lead, after in _LEADS[one.question]:
        if lead in numbers:
            return f"{bare(numbers[lead])} {after}".strip()
    return "not known"


_LEADS = {
    DemandQuestion.FLOOR: (("busy_p95", "busy, p95"), ("p50", "at once, p50"), ("requests_mean", "on average")),
    DemandQuestion.BURST: (("noise_share", "noise"), ("episodes", "episodes above the band")),
    DemandQuestion.RESIDENCY: (("duty", "busy while held"),),
    DemandQuestion.PATIENCE: (),
}


def floor_words(found: Replayed) -> str:
    """The floor, or the least that it can be."""
    return f"{'at least ' if found.at_least else ''}{found.floor.gpus:,}"


def answer_sentence(one: QuestionAnswer, preflight: Preflight) -> str:
    """The answer in a sentence or two."""
    return _SENTENCES[one.question](one, preflight)


def _floor(one: QuestionAnswer, preflight: Preflight) -> str:
    shape = _shape(one)
    found = preflight.replayed
    if found is None:
        names = dict(one.numbers)
        what = (
            "Held at once" if "busy_p95" in names else "Asked for" if "requests_mean" in names else "Asked for at once"
        )
        return f"{what}: {shape}. There are no jobs to replay, so this is no floor yet." if shape else ""
    floor = found.floor
    if found.at_least:
        return (
            f"At least {floor.gpus:,} GPUs, by replay of {found.jobs:,} jobs as far as they were seen: of "
            f"{count_text(int(preflight.jobs.endless.sum()), 'job')} none of the kind has ended, so this is no floor "
            f"yet. If nothing waited: {shape}."
        )
    return (
        f"By replay of {found.jobs:,} jobs, {floor.gpus:,} GPUs ({span_text(floor.low_gpus, floor.high_gpus)}) keep "
        f"95 % of the waits{_whose(found)} within {_within(found)}; {_one_less(found)}. "
        f"If nothing waited: {shape}.{_drawn(preflight)}"
    )


def _whose(found: Replayed) -> str:
    """Of which sizes that is so: a share of a few jobs says nothing."""
    sizes = found.floor.outcome.waits(found.tolerance).by_size()
    few = [each for each in sizes if not each.counts]
    if not few:
        return " of every size"
    late = sum(round(each.late * each.jobs) for each in few)
    some = "none is" if not late else f"{late:,} {'is' if late == 1 else 'are'}"
    jobs, named = count_text(sum(each.jobs for each in few), "job"), ", ".join(each.size for each in few)
    return f" (but of {jobs} of {named} GPUs, too few to count, {some} late)"


def _within(found: Replayed) -> str:
    assumed = "" if found.tolerance_known else " (assumed)"
    parts = []
    if found.tolerance.interactive_ms is not None:
        how = "" if found.interactive_known else ", assumed"
        parts.append(f"interactive work {time_text(found.tolerance.interactive_ms)}{how}")
    parts += [f"{count_text(found.declared, 'job')} as declared"] if found.declared else []
    return f"{time_text(found.tolerance_ms)}{assumed}" + (f" ({'; '.join(parts)})" if parts else "")


def _one_less(found: Replayed) -> str:
    """What becomes of waits with one GPU less than the floor."""
    below = found.floor.below
    if below is None:
        return "with fewer, the largest job never starts"
    if below.holds(found.tolerance):
        return "with one less they hold, but not with each number nearby"
    waits = below.waits(found.tolerance)
    shares = [(late_weight(waits), "of the GPU-hours")]
    shares += [(each.late, f"of the jobs of {each.size} GPUs") for each in waits.by_size() if each.counts]
    shares += [(each.late, f"of those that may wait {each.size}") for each in waits.by_patience() if each.counts]
    late, whose = max([(below.late(found.tolerance), "of the jobs"), *shares], key=lambda share: share[0])
    return f"with one less, {100 * late:.1f} % {whose} are late"


def _drawn(preflight: Preflight) -> str:
    """How many jobs are replayed with a runtime that is drawn."""
    jobs = sum(count for _, count in preflight.jobs.drawn)
    return f" How long {count_text(jobs, 'job')} will run was not seen: drawn from like jobs." if jobs else ""


def _shape(one: QuestionAnswer) -> str:
    """Levels of one unit, which is named once, at the end."""
    units = {number.unit for _, number in one.numbers}
    names = [name.removeprefix("requests_").replace("_", " ") for name, _ in one.numbers]
    if len(units) != 1:
        return ", ".join(f"{name} {bare(number)}" for name, (_, number) in zip(names, one.numbers, strict=True))
    told = [bare(number).split(" ", 1) for _, number in one.numbers]
    unit = told[0][1] if len(told[0]) > 1 else ""
    return f"{', '.join(f'{name} {value[0]}' for name, value in zip(names, told, strict=True))} {unit}".strip()


def _burst(one: QuestionAnswer, preflight: Preflight) -> str:
    del preflight
    numbers = dict(one.numbers)
    if "episodes" not in numbers:
        return "Nothing tells when work comes."
    uneven = _unevenness(numbers)
    if not numbers["episodes"].value:
        return f"Nothing rose above the p95.{uneven}"
    text = f"{numbers['episodes'].value:,.0f} episodes above the p95, the longest {bare(numbers['longest'])}"
    if "noise_share" in numbers:
        window = f" of {bare(numbers['cold_start'])}" if "cold_start" in numbers else ""
        return f"{text}; {bare(numbers['noise_share'])} are noise, over within the cold start{window}.{uneven}"
    return f"{text}. What of it is noise is not known: how long capacity takes to start was not measured.{uneven}"


def _unevenness(numbers: dict[str, Number]) -> str:
    """How uneven arrivals are; independent ones have an IDC of 1."""
    windows = [(window, name) for window, name in (("1s", "1 s"), ("1m", "1 min")) if f"idc_{window}" in numbers]
    if not windows:
        return ""
    peaks = " and ".join(f"{bare(numbers[f'peak_to_mean_{window}'])} at {name}" for window, name in windows)
    idc = " and ".join(bare(numbers[f"idc_{window}"]) for window, _ in windows)
    return f" Arrivals: peak/mean {peaks}, IDC {idc}."


def _residency(one: QuestionAnswer, preflight: Preflight) -> str:
    del preflight
    numbers = dict(one.numbers)
    if "duty" not in numbers:
        runs = ", ".join(
            f"{name.removesuffix('_p50')} jobs hold theirs for longer than {bare(number)}"
            for name, number in one.numbers
        )
        half = f" Half of the {runs}." if runs else ""
        return f"Whether GPUs were busy while they were held is not known.{half}"
    vram = f", holding {bare(numbers['idle_vram'])} of memory meanwhile" if "idle_vram" in numbers else ""
    return (
        f"GPUs were busy {bare(numbers['duty'])} of the time they were held; {bare(numbers['idle'])} of the samples "
        f"were idle{vram}: {bare(numbers['idle_gpu_hours'])} for nothing."
    )


def _patience(one: QuestionAnswer, preflight: Preflight) -> str:
    del preflight
    if not one.numbers:
        return "Nobody declared a tolerance, and no waits are known that would reveal one."
    told = ", ".join(f"{name} {number_text(number)}" for name, number in one.numbers)
    bounds = any(number.how is How.AT_LEAST for _, number in one.numbers)
    accepted = "shown by waits that were accepted" if bounds else "at least: waits accepted"
    shown = "as declared, or shown by those who gave up" if one.grade is Grade.MEASURED else accepted
    return f"{told}, {shown}."


_SENTENCES: dict[DemandQuestion, Callable[[QuestionAnswer, Preflight], str]] = {
    DemandQuestion.FLOOR: _floor,
    DemandQuestion.BURST: _burst,
    DemandQuestion.RESIDENCY: _residency,
    DemandQuestion.PATIENCE: _patience,
}


def lift_text(one: QuestionAnswer) -> str:
    """Data that would make the answer measured; empty if it is."""
    return "; ".join(REMEDIES[lack] for lack in one.lacks)


def finding_text(found: DemandFinding) -> str:
    """A finding, with the GPU-hours at stake."""
    stake = f" {value_text(found.gpu_hours, Unit.GPU_HOURS)} are at stake." if found.gpu_hours else ""
    return f"{told_finding(found)}{stake}"


def waste_lines(preflight: Preflight, prices: GpuPrices | None) -> list[str]:
    """What is wasted, in GPU-hours and, where prices are known, in money; the peak against the floor of the replay."""
    found = preflight.replayed
    lines = [_peak_text(found, prices)] if found is not None and not found.at_least else []
    told = [one for one in preflight.waste if one.gpu_hours > 0 and not (found is not None and one.leak is Leak.PEAK)]
    return [*lines, *(_waste_text(one, prices) for one in told)]


def _waste_text(one: Waste, prices: GpuPrices | None) -> str:
    return f"{told_waste(one)}{money_text(one.gpu_hours, prices)}"


def _peak_text(found: Replayed, prices: GpuPrices | None) -> str:
    hours = found.peak_gpu_h - found.floor_gpu_h
    share = hours / found.peak_gpu_h if found.peak_gpu_h else 0.0
    return (
        f"Buying for the peak of {found.peak_gpus:,.0f} GPUs where {found.floor.gpus:,} hold the tolerance: "
        f"{hours:,.0f} GPU-hours, {100 * share:.0f} % of what is provided.{money_text(hours, prices)}"
    )


def money_text(gpu_hours: float, prices: GpuPrices | None) -> str:
    """The cost of GPU-hours if they are owned; nothing without a price."""
    return f" {gpu_hours * prices.own_micros / MICROS:,.0f} {prices.currency}." if prices else ""
