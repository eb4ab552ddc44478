"""Runs several policies on the same jobs and compares them with the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import polars as pl

from tidegate.api.kernels import Kernels, read_kernels
from tidegate.api.progress import OpenProgress, silent
from tidegate.api.scenario_input import (
    PathOrSection,
    ScenarioInput,
    ScenarioPolicy,
    apply_policy,
    check_seed,
    is_policy_path,
    named_policy,
    read_policy,
    read_scenario,
)
from tidegate.api.simulation import read_jobs, run_setup
from tidegate.api.source_data import Source, SourceData
from tidegate.config.convert import Setup
from tidegate.measure.collector import RunMeasures
from tidegate.measure.findings import find
from tidegate.model.errors import UserError
from tidegate.model.policy import Policy
from tidegate.report.compare import PolicyComparison, render_comparison
from tidegate.report.compare import compare as compare_runs
from tidegate.report.compare_queues import PolicyRuns
from tidegate.report.output_files import console_text
from tidegate.sim.scenario import Scenario, ScenarioChanges

#: Policies by name, or in a list: orders and placements, paths, and sections `policy` of a tidegate.yaml.
Policies: TypeAlias = "Sequence[PathOrSection] | Mapping[str, Any]"

#: Columns for the text.
_WIDTH = 120

_COLUMNS = {
    "measure": pl.String,
    "unit": pl.String,
    "policy": pl.String,
    "value": pl.Float64,
    "value_is": pl.String,
    "ratio": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
}


class Comparison:
    """Policies side by side. `compare` makes it; `print(comparison)` prints the table of `tidegate compare`."""

    def __init__(self, compared: PolicyComparison, notes: Sequence[str]) -> None:
        self._compared, self._notes = compared, tuple(notes)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.policies)} on {self._compared.workloads:,} jobs>\n{self}"

    def __str__(self) -> str:
        return console_text(partial(render_comparison, self._compared), _WIDTH)

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies; ratios are to the first."""
        return self._compared.policies

    @property
    def findings(self) -> dict[str, tuple[str, ...]]:
        """What stands out under each policy, the weightiest first."""
        return dict(zip(self._compared.policies, self._compared.findings, strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know next to the results: defaults of what a source does not say, and jobs that were left out."""
        return self._notes

    def measures(self, queue: str | None = None) -> pl.DataFrame:
        """One row a measure and policy: the value, its ratio to the first policy and the interval of the ratio.

        Args:
            queue: The measures of this queue instead of the whole; where policies have queues with quota.
        """
        rows = {one.name: one.measures for one in self._compared.queues}
        if queue is not None and queue not in rows:
            raise UserError(f"queue: expected one of {', '.join(rows) or 'none'}, found {queue!r}")
        measures = self._compared.measures if queue is None else rows[queue]
        return pl.DataFrame(
            [
                (
                    *(measure.name, measure.unit, policy, outcome.value, outcome.value_is.value, outcome.ratio),
                    *((outcome.interval.low, outcome.interval.high) if outcome.interval else (None, None)),
                )
                for measure in measures
                for policy, outcome in zip(self._compared.policies, measure.outcomes, strict=True)
            ],
            schema=_COLUMNS,
            orient="row",
        )

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data, as `tidegate compare --json` prints it."""
        return self._compared.as_json()


def compare(
    source: Source | SourceData | None = None,
    policies: Policies = ("tide", "bestfit", "spread"),
    *,
    nodes: str = "",
    gpus: float | str = "",
    cluster: PathOrSection | None = None,
    seed: int | None = None,
    seeds: int = 1,
    kernels: str = "auto",
) -> Comparison:
    """Run several policies on the same jobs in the twin and compare them with the first.

    Args:
        source: Jobs to run, as for `simulate`.
        policies: Orders and placements ("tide", "srtf+firstfit"), paths of a tidegate.yaml or of a folder of manifests,
            and sections `policy` of a tidegate.yaml as dicts; in a list, or in a dict by the name to show.
        nodes: Nodes to run on, as for `simulate`.
        gpus: Number of GPUs of a pool without nodes, instead of nodes.
        cluster: Nodes and queues, instead of `nodes`, as for `simulate`.
        seed: The first seed of the twin and of random placements.
        seeds: How many seeds each policy runs with, for twins and placements that are random.
        kernels: "auto", "plain" or "compiled". The results are the same.

    Raises:
        UserError: Something that is named cannot be used; the text says why, with file and line.
    """
    check_seed(seed)
    if seeds < 1:
        raise UserError(f"--seeds: expected one or more, found {seeds}")
    jobs, chosen = read_jobs(source), read_kernels(kernels)
    given = ScenarioInput(jobs.names, str(nodes), str(gpus), cluster)
    notes = list(jobs.findings)
    read = partial(_scenario, given, seed, lambda: jobs.tables(seed or 0))
    contenders = read_contenders(_named(policies), given.title(), seed, read, notes.extend)
    runs = run_contenders(contenders, seeds, chosen)
    return Comparison(compare_contenders(runs), list(dict.fromkeys(notes)))


def _scenario(
    given: ScenarioInput, seed: int | None, read_tables: Callable[[], Any], policies: Sequence[ScenarioPolicy]
) -> Scenario:
    return read_scenario(given, seed, policies, read_tables)


def _named(policies: Policies) -> list[tuple[str, PathOrSection]]:
    if isinstance(policies, str):
        policies = policies.split(",")
    if isinstance(policies, Mapping):
        named = list(policies.items())
    else:
        named = [("" if isinstance(one, Mapping) else str(one).strip(), one) for one in policies]
    for _, one in named:
        if not isinstance(one, str | Path | Mapping):
            raise UserError(f"--policies: expected names, paths and dicts, found {type(one).__name__}")
    if not named:
        raise UserError("--policies: expected one or more, found none")
    return named


# -- what is compared ------------------------------------------------------------------------------------------


class ContenderRuns(NamedTuple):
    """The runs of one policy, one for each seed."""

    name: str
    runs: tuple[RunMeasures, ...]


def read_contenders(
    policies: Sequence[tuple[str, PathOrSection]],
    title: str,
    seed: int | None,
    read: Callable[[Sequence[ScenarioPolicy]], Scenario],
    note: Callable[[Iterable[str]], None],
) -> list[tuple[str, Setup]]:
    """The setups to compare, by name; a file without a name of its own policy is listed under the policy's name."""
    chosen = [_chosen(policy, seed) for _, policy in policies]
    scenario = read([policy for policy, _ in chosen if policy is not None])
    found: list[tuple[str, Setup]] = []
    for (name, given), (policy, changes) in zip(policies, chosen, strict=True):
        setup, notes = apply_policy(scenario, policy, changes, title)
        note(notes)
        found.append((_shown_name(name, given, setup), setup))
    names = [name for name, _ in found]
    return [(name if names.count(name) == 1 else f"{name} {at}", setup) for at, (name, setup) in enumerate(found, 1)]


def _chosen(given: PathOrSection, seed: int | None) -> tuple[ScenarioPolicy | None, ScenarioChanges]:
    if isinstance(given, Mapping | Path) or is_policy_path(given.strip()):
        return read_policy(given if isinstance(given, Mapping) else str(given).strip()), ScenarioChanges(seed=seed)
    return None, named_policy(given.strip(), seed)


def _shown_name(name: str, given: PathOrSection, setup: Setup) -> str:
    """The name that was given to a policy; else its own, or that of its file."""
    if isinstance(given, Mapping):
        return name or setup.policy.name
    if name != str(given).strip() or not (isinstance(given, Path) or is_policy_path(name)):
        return name
    return Path(name).stem if setup.policy.name == Policy().name else setup.policy.name


def run_contenders(
    contenders: Sequence[tuple[str, Setup]], seeds: int, kernels: Kernels, open_progress: OpenProgress = silent
) -> list[ContenderRuns]:
    """Run each setup with each seed."""
    return [
        ContenderRuns(name, tuple(_run(setup, more, kernels, open_progress) for more in range(seeds)))
        for name, setup in contenders
    ]


def _run(setup: Setup, more: int, kernels: Kernels, open_progress: OpenProgress) -> RunMeasures:
    """Run a policy with the seeds of the twin and of its placement so much higher."""
    placement = setup.policy.placement
    placement = msgspec.structs.replace(placement, seed=placement.seed + more)
    policy = msgspec.structs.replace(setup.policy, placement=placement)
    twin = msgspec.structs.replace(setup.twin, seed=setup.twin.seed + more)
    return run_setup(setup._replace(policy=policy, twin=twin), None, kernels, open_progress=open_progress)


def compare_contenders(contenders: Sequence[ContenderRuns]) -> PolicyComparison:
    """Compare runs with those of the first policy."""
    firsts = [each.runs[0] for each in contenders]
    found = [tuple(finding.text for finding in find(run.summary, run.lives, run.quota)) for run in firsts]
    runs = [
        PolicyRuns(name, tuple(run.lives for run in each), tuple(run.summary for run in each))
        for name, each in contenders
    ]
    return compare_runs(runs, found)
