"""Measures a demand: the four questions and the seven inputs, from data or marked as assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidegate.api.progress import OpenProgress, silent
from tidegate.api.scenario_input import check_seed
from tidegate.api.source_data import Source, SourceData, source_data
from tidegate.config.prices import GpuPrices, read_prices
from tidegate.demand.four_questions import QuestionAnswer
from tidegate.demand.model import DemandModel, encode
from tidegate.demand.sentences import verdict_text
from tidegate.model.errors import UserError
from tidegate.model.units import read_duration_ms
from tidegate.planning.capacity_replay import QueueOrder
from tidegate.planning.concurrency import average, curve_of
from tidegate.planning.preflight import Preflight, PreflightOptions, check_flight
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.report.output_files import console_text, written_whole
from tidegate.report.text.plan import AverageDemand
from tidegate.report.text.preflight import as_json, render_preflight
from tidegate.report.text.preflight_sentences import finding_text
from tidegate.sources.config_file import load_prices
from tidegate.sources.read_sources import SourceTables

#: Jobs from which on there is a curve to draw.
_LEAST_DRAWN = 2


class PreflightResult(NamedTuple):
    """A preflight, and what it was made from."""

    found: Preflight
    gathered: SourceTables
    seen: AverageDemand | None
    prices: GpuPrices | None


class MeasuredDemand:
    """What data says about a demand, before any scheduler is chosen. `measure_demand` makes it.

    `print(demand)` prints the report of `tidegate preflight`.
    """

    def __init__(self, source: SourceData, flown: PreflightResult, options: PreflightOptions) -> None:
        self._source, self._flown, self._options = source, flown, options

    def __repr__(self) -> str:
        return f"<MeasuredDemand {self._source.name}>\n{self.verdict}"

    def __str__(self) -> str:
        found, seen, prices = self._flown.found, self._flown.seen, self._flown.prices
        return console_text(lambda console: render_preflight(found, seen, prices, console))

    @property
    def verdict(self) -> str:
        """Whether the data is enough to plan by, in one sentence."""
        return verdict_text(self._flown.found.verdict, self._flown.found.answers)

    @property
    def answers(self) -> dict[str, QuestionAnswer]:
        """The answer to each of the four questions: its grade, its numbers, and what data it lacks."""
        return {str(one.question): one for one in self._flown.found.answers}

    @property
    def floor_gpus(self) -> int | None:
        """The smallest constant capacity within the tolerance; None: there are too few jobs to replay."""
        replayed = self._flown.found.replayed
        return replayed.floor.gpus if replayed else None

    @property
    def findings(self) -> tuple[str, ...]:
        """What stands out."""
        return tuple(finding_text(one) for one in self._flown.found.findings)

    @property
    def model(self) -> DemandModel:
        """The demand model: the seven inputs by group, and what is needed to sample and forecast."""
        return self._flown.found.model

    @property
    def source(self) -> SourceData:
        """The source that was measured."""
        return self._source

    def model_for(self, seed: int) -> DemandModel | None:
        """The demand model if it was fitted with this seed, and from data alone."""
        plain = self._options.seed == seed and self._options.cold_start_ms is None
        return self._flown.found.model if plain else None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, as `tidegate preflight --json` prints it."""
        flown = self._flown
        found: dict[str, Any] = msgspec.to_builtins(as_json(flown.found, flown.gathered, flown.prices))
        return found

    def save(self, path: str | Path) -> None:
        """Write the demand model to a file that ends in .json; `plan` and `simulate` read it."""
        write_model(self.model, Path(path))


def measure_demand(
    source: Source | SourceData,
    *,
    tolerance: str | None = None,
    cold_start: str | None = None,
    order: str = "overtake",
    prices: str | Path | Mapping[str, Any] | None = None,
    seed: int = 0,
) -> MeasuredDemand:
    """Measure the demand: four questions and seven inputs, each answered from data or marked as an assumption.

    Args:
        source: Whatever `read_source` reads, or what it returned.
        tolerance: How long work may wait, such as "1h". Default: as measured.
        cold_start: How long capacity takes to start, such as "5m". Default: as measured.
        order: "overtake" if jobs that fit may overtake jobs that do not; "strict" if not.
        prices: A file with prices per GPU-hour, or its content: `{"gpu_hour": {"own": 1.8, "burst": 4.1}}`.
        seed: The seed of random draws.

    Raises:
        UserError: The source cannot be read; the text says why, with file and line.
    """
    check_seed(seed)
    options = PreflightOptions(
        read_order(order),
        read_duration_ms("--tolerance", tolerance) if tolerance else None,
        read_duration_ms("--cold-start", cold_start) if cold_start else None,
        seed,
    )
    amount, data = read_price_list(prices), source_data(source)
    if data.source_tables is None:
        raise UserError(f"{data.name}: is a demand model already; name the sources that it was made from")
    return MeasuredDemand(data, run_preflight(data.source_tables, options, amount), options)


# -- shared with the commands ----------------------------------------------------------------------------------


def run_preflight(
    gathered: SourceTables, options: PreflightOptions, prices: GpuPrices | None, open_progress: OpenProgress = silent
) -> PreflightResult:
    """Make the preflight."""
    with open_progress("measuring and replaying", None):
        found = check_flight(gathered.tables, options)
    seen = average_demand(found.jobs) if found.jobs.total >= _LEAST_DRAWN else None
    return PreflightResult(found, gathered, seen if seen and len(seen.at_ms) else None, prices)


def average_demand(jobs: PlanJobs) -> AverageDemand:
    """The demand of jobs in even steps."""
    return AverageDemand(*average(curve_of(jobs), *jobs.span_ms))


def write_model(model: DemandModel, path: Path) -> None:
    """Write a demand model to a file."""
    with written_whole(path) as part:
        part.write_bytes(encode(model))


def read_price_list(prices: str | Path | Mapping[str, Any] | None) -> GpuPrices | None:
    """Prices of a file or of plain data."""
    if prices is None or not isinstance(prices, Mapping):
        return load_prices(Path(prices)) if prices else None
    found, report = read_prices(dict(prices))
    if found is None:
        raise UserError("\n".join(f"prices: {problem.text()}" for problem in report.problems))
    return found


def read_order(name: str) -> QueueOrder:
    """Whether jobs may overtake, by name."""
    if name not in set(QueueOrder):
        raise UserError(f"--order: expected one of {', '.join(QueueOrder)}, found {name!r}")
    return QueueOrder(name)
