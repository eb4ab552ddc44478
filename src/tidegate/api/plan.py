"""Plans capacity for a demand: the inputs that were measured, those that are signed for, and the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

import tidegate
from tidegate.api.demand import MeasuredDemand, average_demand, read_order, read_price_list
from tidegate.api.progress import OpenProgress, silent
from tidegate.api.scenario_input import check_seed
from tidegate.api.source_data import Source, SourceData, source_data
from tidegate.config.prices import GpuPrices
from tidegate.demand.fit import fit
from tidegate.demand.four_questions import QuestionAnswer, answer
from tidegate.demand.model import DemandModel
from tidegate.demand.sentences import QUESTIONS, REMEDIES, number_text
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import Tables
from tidegate.model.errors import UserError
from tidegate.model.units import read_duration_ms
from tidegate.planning.capacity_plan import Launch, PlanRecipe
from tidegate.planning.capacity_replay import QueueOrder
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
from tidegate.report.output_files import console_text, written_whole
from tidegate.report.text.plan import AverageDemand, headline, render_plan
from tidegate.sources.findings import SourceFinding
from tidegate.sources.read_sources import SourceTables

_ALL = "all"

#: The largest share of the time that a plan can be tested on.
_MOST_HELD_OUT = 0.8

#: Jobs, and time between the first and the last, that a plan can be made from.
_LEAST_JOBS, _LEAST_MS = 20, 2 * 86_400_000

#: More is a wrong unit, and a trial of its many weeks would not end.
_MOST_MS = 10 * 365 * 86_400_000

#: More draws from a demand model than the one that is planned for: the floor's interval covers theirs.
_MORE_DRAWS = 4


class CapacityPlan:
    """What to own, what to book by the hour and what to leave to burst. `plan` makes it.

    `print(plan)` prints the report of `tidegate plan`.
    """

    def __init__(self, made: PlanResult) -> None:
        self._made = made

    def __repr__(self) -> str:
        return headline(self._made.plan).plain

    def __str__(self) -> str:
        return console_text(partial(render_plan, self._made.plan, self._made.seen))

    @property
    def document(self) -> PlanDocument:
        """The plan: levels, windows, burst, prices, signatures, alternatives and the trial."""
        return self._made.plan

    @property
    def own_gpus(self) -> int:
        """GPUs to own."""
        return self._made.plan.classes[0].own_gpus

    @property
    def windows(self) -> dict[str, int]:
        """GPUs that are there in each window of the week, those that are owned included."""
        return {window.name: window.gpus for window in self._made.plan.classes[0].windows}

    @property
    def burst_gpus(self) -> int:
        """The most GPUs that are added for a burst."""
        burst = self._made.plan.classes[0].burst
        return burst.ceiling_gpus if burst else 0

    @property
    def floor_gpus(self) -> int:
        """The smallest constant capacity within the tolerance."""
        return self._made.plan.classes[0].floor.gpus

    @property
    def holds(self) -> bool:
        """Whether waits stay within the tolerance when the jobs are replayed on the plan."""
        return all(part.holds for part in self._made.plan.classes)

    @property
    def signatures(self) -> dict[str, str]:
        """The assumptions that were signed for, and their values."""
        return {str(one.name): one.value for one in self._made.plan.signatures}

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, as `tidegate plan --json` prints it."""
        plain: dict[str, Any] = msgspec.json.decode(encode_plan(self._made.plan))
        return plain

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, as JSON."""
        write_plan(self._made.plan, Path(path))


def plan(
    source: Source | SourceData | MeasuredDemand,
    *,
    prices: str | Path | Mapping[str, Any] | None = None,
    assume: str | Iterable[str] | Mapping[str, str] = (),
    holdout: float = 0.0,
    order: str = "overtake",
    burst: bool = True,
    seed: int = 0,
) -> CapacityPlan:
    """Plan capacity: what to own, what to book by the hour, and what to leave to burst.

    The plan is the smallest capacity at which waits stay within the tolerance when the jobs are replayed. What was not
    measured must be signed with `assume`.

    Args:
        source: Whatever `read_source` reads, or what it or `measure_demand` returned.
        prices: A file with prices per GPU-hour, or its content: `{"gpu_hour": {"own": 1.8, "window": 2.4}}`.
        assume: Assumptions to accept instead of measurements: "all", names such as "prices" or "tolerance=1h", or a
            dict: `{"tolerance": "1h", "prices": ""}`.
        holdout: Test the plan on this last share of the time, planning from the rest.
        order: "overtake" if jobs that fit may overtake jobs that do not; "strict" if not.
        burst: Whether capacity may be added for a burst.
        seed: The seed of random draws.

    Raises:
        UserError: The data is not enough for a plan, or it rests on assumptions that are not signed.
    """
    check_seed(seed)
    if not 0 <= holdout <= _MOST_HELD_OUT:
        raise UserError(f"--holdout: expected a share from 0 to {_MOST_HELD_OUT}, found {holdout}")
    amount = read_price_list(prices)
    came_from = "" if prices is None else "given" if isinstance(prices, Mapping) else str(prices)
    options = PlanOptions(read_signed(_texts(assume)), amount, came_from, holdout, read_order(order), burst, seed)
    return CapacityPlan(run_plan(_demand(source, seed), options, _sign_in_python))


def _texts(assume: str | Iterable[str] | Mapping[str, str]) -> list[str]:
    if isinstance(assume, Mapping):
        return [f"{name}={value}" if value else name for name, value in assume.items()]
    return [assume] if isinstance(assume, str) else list(assume)


def _sign_in_python(options: list[str]) -> str:
    return f"assume={options}"


def _demand(source: Source | SourceData | MeasuredDemand, seed: int) -> PlanDemand:
    data = source.source if isinstance(source, MeasuredDemand) else source_data(source)
    if data.model is not None:
        return demand_of_model(data.name, data.model, seed)
    assert data.source_tables is not None
    model = source.model_for(seed) if isinstance(source, MeasuredDemand) else None
    return demand_of_tables(data.name, data.source_tables, seed, model)


# -- the demand ------------------------------------------------------------------------------------------------


class PlanDemand(NamedTuple):
    """The demand that a plan is made for."""

    name: str  # of its sources
    tables: Tables
    model: DemandModel
    jobs: PlanJobs
    findings: tuple[SourceFinding, ...] = ()
    redrawn: Redrawn | None = None  # where jobs are drawn from a demand model


def demand_of_tables(name: str, found: SourceTables, seed: int, model: DemandModel | None = None) -> PlanDemand:
    """The demand of sources; the model is fitted if it was not yet."""
    model = model or fit(found.tables, seed=seed, run_all=side_by_side)
    return PlanDemand(name, found.tables, model, plan_jobs_of(found.tables, seed), found.findings)


def demand_of_model(name: str, model: DemandModel, seed: int) -> PlanDemand:
    """The demand of a demand model: a draw from it, and some more to see how far the plan depends on the draw."""
    tables = sample(model, seed)
    others = tuple(plan_jobs_of(sample(model, seed + more), seed) for more in range(1, _MORE_DRAWS + 1))
    redrawn = Redrawn(others, max((stream.batch_gpus for stream in model.streams), default=0.0))
    tables = tables._replace(origins=tuple(replace(origin, name=name) for origin in tables.origins))
    return PlanDemand(name, tables, model, plan_jobs_of(tables, seed), redrawn=redrawn)


# -- the plan --------------------------------------------------------------------------------------------------


class Signed(NamedTuple):
    """What was signed."""

    values: dict[Assumption, str]
    all_of_them: bool

    def value(self, name: Assumption) -> str:
        """The value that was signed for; empty if none was."""
        return self.values.get(name, "")


def read_signed(texts: Iterable[str]) -> Signed:
    """What the options say."""
    values: dict[Assumption, str] = {}
    everything = False
    for text in [part.strip() for each in texts for part in each.split(",") if part.strip()]:
        name, _, value = text.partition("=")
        if name == _ALL and not value:
            everything = True
        elif name in set(Assumption):
            values[Assumption(name)] = value
        else:
            known = ", ".join([*Assumption, _ALL])
            raise UserError(f"--assume {text}: expected one of {known}, found {name!r}")
    return Signed(values, everything)


class PlanOptions(NamedTuple):
    """What a plan is asked to be."""

    signed: Signed
    prices: GpuPrices | None
    prices_from: str  # the file
    holdout: float
    order: QueueOrder
    burst: bool
    seed: int


class PlanResult(NamedTuple):
    """A plan, and the demand it was made for."""

    plan: PlanDocument
    seen: AverageDemand


def run_plan(
    found: PlanDemand,
    options: PlanOptions,
    sign_with: Callable[[list[str]], str],
    open_progress: OpenProgress = silent,
) -> PlanResult:
    """Make the plan; an error says which assumptions it needs, and, by `sign_with`, how they are signed."""
    _refuse_too_little(found.name, found.jobs)
    given = _given(options)
    terms = settle_inputs(found.model, given)
    terms = terms._replace(unsigned=(*terms.unsigned, *unsigned_runtimes(found.jobs)))
    try:
        request = _request(found, terms, _trial_terms(found, given, options, open_progress), options)
    except UnsignedAssumptionError as error:
        raise _refusal(error, sign_with) from None
    with open_progress("replaying", None):
        made = make_plan(request)
    return PlanResult(made, average_demand(found.jobs))


def write_plan(made: PlanDocument, path: Path) -> None:
    """Write a plan to a file, as JSON."""
    with written_whole(path) as part:
        part.write_bytes(encode_plan(made))


def _refusal(error: UnsignedAssumptionError, sign_with: Callable[[list[str]], str]) -> UserError:
    """Say what must be signed, and how."""
    lines = [f"no plan: {len(error.missing)} of its answers are assumptions that are not signed"]
    lines += [f"  {each.name}: {each.means}; measured instead by {each.instead_of}" for each in error.missing]
    options = [str(each.name) + (f"={each.value}" if each.value else "") for each in error.missing]
    return UserError("\n".join([*lines, f"sign them with: {sign_with(options)}"]))


def _refuse_too_little(name: str, jobs: PlanJobs) -> None:
    left = "; ".join(f"{count:,} left out because {why}" for why, count in jobs.left_out)
    if jobs.total < _LEAST_JOBS:
        why = f" ({left})" if left else ""
        raise UserError(
            f"{name}: a batch plan is made from jobs with submission, runtime and GPUs; expected {_LEAST_JOBS}, "
            f"found {jobs.total:,}{why}; plans for services come later, `tidegate preflight` measures them"
        )
    if jobs.span_ms[1] - jobs.span_ms[0] > _MOST_MS:
        years = (jobs.span_ms[1] - jobs.span_ms[0]) / (365 * 86_400_000)
        raise UserError(
            f"{name}: expected jobs of at most ten years, found {years:,.0f}; say the unit of times: "
            "--map submitted=COLUMN:ms"
        )
    if jobs.span_ms[1] - jobs.span_ms[0] < _LEAST_MS:
        raise UserError(f"{name}: expected jobs of at least two days, to see day and night")


def _given(options: PlanOptions) -> Given:
    """What the user says instead of what was measured."""

    def duration(name: Assumption) -> int | None:
        text = options.signed.value(name)
        return read_duration_ms(f"--assume {name}", text) if text else None

    return Given(
        tolerance_ms=duration(Assumption.TOLERANCE),
        interactive_ms=duration(Assumption.INTERACTIVE),
        cold_start_ms=duration(Assumption.COLD_START),
        prices=options.prices,
        prices_from=options.prices_from,
    )


def _trial_terms(found: PlanDemand, given: Given, call: PlanOptions, open_progress: OpenProgress) -> PlanInputs | None:
    """What a plan would have started from when the time began that is held out; None: none is."""
    if not call.holdout:
        return None
    now_ms = held_out(found.jobs, call.holdout).from_ms
    with open_progress("measuring what was known before the trial", None):
        terms = inputs_at(found.tables, now_ms, given, call.seed)
    more = unsigned_runtimes(known_at(found.jobs, now_ms, call.seed))
    return terms._replace(unsigned=(*terms.unsigned, *more))


def _needed(terms: PlanInputs, trial: PlanInputs | None) -> list[Unsigned]:
    """What must be signed: for the plan, and for its trial where less was known."""
    names = {one.name for one in terms.unsigned}
    more = [one for one in (trial.unsigned if trial else ()) if one.name not in names]
    return [*terms.unsigned, *(one._replace(means=f"before the trial began, {one.means}") for one in more)]


def _recipe(terms: PlanInputs, jobs: PlanJobs, call: PlanOptions) -> PlanRecipe:
    return PlanRecipe(
        terms.tolerance.for_jobs(jobs),
        terms.prices,
        order=call.order,
        launch=Launch(terms.cold_start_ms),
        bursts=call.burst,
    )


def _request(found: PlanDemand, terms: PlanInputs, trial: PlanInputs | None, call: PlanOptions) -> PlanRequest:
    signatures = sign(_needed(terms, trial), call.signed.values, all_of_them=call.signed.all_of_them)
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


def _holdout(found: PlanDemand, trial: PlanInputs, call: PlanOptions) -> Holdout:
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
