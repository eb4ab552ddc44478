"""A run of `tidegate plan`: read the sources, check the signed assumptions, search, write and print the plan."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import typer
from msgspec.structs import replace

import tidegate
from tidegate.cli.assumptions_option import Signed, refusal
from tidegate.cli.errors import CommandError
from tidegate.cli.progress import progress_bar
from tidegate.cli.shared_options import read_duration_ms
from tidegate.cli.source_io import gather_sources, is_model, load_model
from tidegate.demand.fit import fit
from tidegate.demand.four_questions import QuestionAnswer, answer
from tidegate.demand.model import DemandModel
from tidegate.demand.sentences import QUESTIONS, REMEDIES, number_text
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import Tables
from tidegate.planning.capacity_plan import Launch, PlanRecipe
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.planning.concurrency import average, curve_of
from tidegate.planning.holdout import held_out
from tidegate.planning.plan import Holdout, PlanRequest, Redrawn, make_plan
from tidegate.planning.plan_inputs import (
    Assumption,
    Given,
    PlanInputs,
    Unsigned,
    UnsignedAssumptionError,
    inputs_at,
    settle_inputs,
    sign,
    unsigned_runtimes,
)
from tidegate.planning.plan_schema import AnswerPart, FindingPart, PlanDocument, encode_plan
from tidegate.planning.replay_jobs import PlanJobs, known_at, plan_jobs_of
from tidegate.planning.threads import side_by_side
from tidegate.report.html.page import write_page
from tidegate.report.html.plan import plan_page
from tidegate.report.output_files import open_console, written_whole
from tidegate.report.plot.plan import plot_plan
from tidegate.report.text.plan import AverageDemand, render_plan
from tidegate.sources.config_file import load_prices
from tidegate.sources.findings import SourceFinding
from tidegate.sources.options import SourceOptions

#: Jobs, and time between the first and the last, that a plan can be made from.
_LEAST_JOBS, _LEAST_MS = 20, 2 * 86_400_000

#: More is a wrong unit, and a trial of its many weeks would not end.
_MOST_MS = 10 * 365 * 86_400_000


#: More draws from a demand model than the one that is planned for: the floor's interval covers theirs.
_MORE_DRAWS = 4


class PlanArguments(NamedTuple):
    """What a plan is asked to be."""

    sources: list[str]
    options: SourceOptions
    signed: Signed
    prices: Path | None
    holdout: float
    order: QueueOrder
    burst: bool
    seed: int


class OutputFiles(NamedTuple):
    """Files to write."""

    out: Path | None
    plot: Path | None
    html: Path | None


class PlanResult(NamedTuple):
    """A plan, and the demand it was made for."""

    plan: PlanDocument
    seen: AverageDemand


def run_plan(call: PlanArguments, outputs: OutputFiles) -> PlanResult:
    """Make the plan and write it where it was asked for."""
    found = _read(call)
    given = _given(call.signed, call.prices)
    terms = settle_inputs(found.model, given)
    terms = terms._replace(unsigned=(*terms.unsigned, *unsigned_runtimes(found.jobs)))
    request = _request(found, terms, _trial_terms(found, given, call), call)
    with progress_bar("replaying"):
        plan = make_plan(request)
    made = PlanResult(plan, AverageDemand(*average(curve_of(found.jobs), *found.jobs.span_ms)))
    _write(made, outputs)
    return made


def show_plan(made: PlanResult, *, as_json: bool) -> None:
    """Print the plan."""
    if as_json:
        typer.echo(encode_plan(made.plan).decode(), nl=False)
    else:
        render_plan(made.plan, made.seen, open_console())


class _Found(NamedTuple):
    """What the sources gave."""

    tables: Tables
    model: DemandModel
    jobs: PlanJobs
    findings: tuple[SourceFinding, ...]
    redrawn: Redrawn | None  # where jobs are drawn from a demand model


def _read(call: PlanArguments) -> _Found:
    """Tables of sources and the demand model of them; a demand model is sampled."""
    sources, seed = call.sources, call.seed
    findings: tuple[SourceFinding, ...] = ()
    redrawn = None
    if len(sources) == 1 and is_model(sources[0]):
        model = load_model(Path(sources[0]), call.options.timezone)
        tables = sample(model, seed)
        others = tuple(plan_jobs_of(sample(model, seed + more), seed) for more in range(1, _MORE_DRAWS + 1))
        redrawn = Redrawn(others, max((stream.batch_gpus for stream in model.streams), default=0.0))
        tables = tables._replace(origins=tuple(replace(origin, name=sources[0]) for origin in tables.origins))
    else:
        gathered = gather_sources(sources, call.options)
        tables, findings = gathered.tables, gathered.findings
        with progress_bar("measuring"):
            model = fit(tables, seed=seed, run_all=side_by_side)
    jobs = plan_jobs_of(tables, seed)
    _refuse_too_little(sources, jobs)
    return _Found(tables, model, jobs, findings, redrawn)


def _refuse_too_little(sources: list[str], jobs: PlanJobs) -> None:
    name = ", ".join(sources)
    left = "; ".join(f"{count:,} left out because {why}" for why, count in jobs.left_out)
    if jobs.total < _LEAST_JOBS:
        why = f" ({left})" if left else ""
        raise CommandError(
            f"{name}: a batch plan is made from jobs with submission, runtime and GPUs; expected {_LEAST_JOBS}, "
            f"found {jobs.total:,}{why}; plans for services come later, `tidegate preflight` measures them"
        )
    if jobs.span_ms[1] - jobs.span_ms[0] > _MOST_MS:
        years = (jobs.span_ms[1] - jobs.span_ms[0]) / (365 * 86_400_000)
        raise CommandError(
            f"{name}: expected jobs of at most ten years, found {years:,.0f}; say the unit of times: "
            "--map submitted=COLUMN:ms"
        )
    if jobs.span_ms[1] - jobs.span_ms[0] < _LEAST_MS:
        raise CommandError(f"{name}: expected jobs of at least two days, to see day and night")


def _given(signed: Signed, prices: Path | None) -> Given:
    """What the command line says instead of what was measured."""

    def duration(name: Assumption) -> int | None:
        text = signed.value(name)
        return read_duration_ms(f"--assume {name}", text) if text else None

    return Given(
        tolerance_ms=duration(Assumption.TOLERANCE),
        interactive_ms=duration(Assumption.INTERACTIVE),
        cold_start_ms=duration(Assumption.COLD_START),
        prices=load_prices(prices) if prices else None,
        prices_from=str(prices) if prices else "",
    )


def _trial_terms(found: _Found, given: Given, call: PlanArguments) -> PlanInputs | None:
    """What a plan would have started from when the time began that is held out; None: none is."""
    if not call.holdout:
        return None
    now_ms = held_out(found.jobs, call.holdout).from_ms
    with progress_bar("measuring what was known before the trial"):
        terms = inputs_at(found.tables, now_ms, given, call.seed)
    more = unsigned_runtimes(known_at(found.jobs, now_ms, call.seed))
    return terms._replace(unsigned=(*terms.unsigned, *more))


def _needed(terms: PlanInputs, trial: PlanInputs | None) -> list[Unsigned]:
    """What must be signed: for the plan, and for its trial where less was known."""
    names = {one.name for one in terms.unsigned}
    more = [one for one in (trial.unsigned if trial else ()) if one.name not in names]
    return [*terms.unsigned, *(one._replace(means=f"before the trial began, {one.means}") for one in more)]


def _recipe(terms: PlanInputs, jobs: PlanJobs, call: PlanArguments) -> PlanRecipe:
    return PlanRecipe(
        terms.tolerance.for_jobs(jobs),
        terms.prices,
        order=call.order,
        launch=Launch(terms.cold_start_ms),
        bursts=call.burst,
    )


def _request(found: _Found, terms: PlanInputs, trial: PlanInputs | None, call: PlanArguments) -> PlanRequest:
    try:
        signatures = sign(_needed(terms, trial), call.signed.values, all_of_them=call.signed.all_of_them)
    except UnsignedAssumptionError as error:
        raise refusal(error, f"tidegate plan {' '.join(call.sources)}") from None
    return PlanRequest(
        jobs=found.jobs,
        recipe=_recipe(terms, found.jobs, call),
        made_by=f"tidegate {tidegate.__version__}",
        prices_from=terms.prices_from,
        origins=found.tables.origins,
        findings=tuple(_finding_part(one) for one in found.findings),
        dropped=found.tables.dropped,
        redrawn=found.redrawn,
        answers=tuple(_answer_part(one) for one in answer(found.model)),
        signatures=signatures,
        seed=call.seed,
        holdout=_holdout(found, trial, call) if trial else None,
    )


def _holdout(found: _Found, trial: PlanInputs, call: PlanArguments) -> Holdout:
    known = known_at(found.jobs, held_out(found.jobs, call.holdout).from_ms, call.seed)
    return Holdout(call.holdout, _recipe(trial, known, call))


#: What a plan does not depend on; the preflight tells it.
_UNTOLD = ("peak_to_mean", "idc", "p05", "p99")


def _answer_part(one: QuestionAnswer) -> AnswerPart:
    told = [(name, number) for name, number in one.numbers if not name.startswith(_UNTOLD)]
    numbers = ", ".join(f"{name.replace('_', ' ')} {number_text(number)}" for name, number in told)
    lift = "; ".join(REMEDIES[lack] for lack in one.lacks)
    return AnswerPart(question=QUESTIONS[one.question], grade=one.grade, says=numbers or "nothing says", lifted_by=lift)


def _finding_part(one: SourceFinding) -> FindingPart:
    return FindingPart(code=one.code, source=one.source, effect=one.spec.effect, rows=one.times, says=one.text())


def _write(made: PlanResult, outputs: OutputFiles) -> None:
    if outputs.out is not None:
        with written_whole(outputs.out) as part:
            part.write_bytes(encode_plan(made.plan))
    if outputs.html is not None:
        write_page(outputs.html, plan_page(made.plan, made.seen))
    if outputs.plot is not None:
        plot_plan(outputs.plot, made.plan, made.seen)
