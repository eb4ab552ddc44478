"""Runs a policy on jobs in the twin."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tidegate.api.explanation import JobExplanation
from tidegate.api.journal import JournalReader, job_frame, read_journal
from tidegate.api.journal_state import write_journal
from tidegate.api.kernels import Kernels, kernels_for, read_kernels
from tidegate.api.progress import OpenProgress, silent
from tidegate.api.scenario_input import (
    PathOrSection,
    ScenarioInput,
    apply_policy,
    check_seed,
    is_tidegate_yaml,
    read_policy,
    read_scenario,
)
from tidegate.api.source_data import Source, SourceData, source_data
from tidegate.config.convert import Setup
from tidegate.demand.tables import Tables
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunMeasures
from tidegate.measure.findings import find
from tidegate.measure.summary import RunSummary
from tidegate.model.errors import UserError
from tidegate.model.policy import OrderKind, PlacementKind
from tidegate.model.units import WHOLE_MILLI, read_duration_ms
from tidegate.report.output_files import check_writable, console_text
from tidegate.report.text.queues import queue_fields, queue_rows
from tidegate.report.text.run import Run, as_json, headline_text, render, sample_columns
from tidegate.sim.scenario import ScenarioChanges
from tidegate.sim.simulate import simulate as run_twin
from tidegate.sim.submissions import TwinJobs, jobs_of
from tidegate.whatif.search import BUDGET

#: So much work is worth the compiler's start: below, plain kernels are done before numba is loaded.
_WORTH_COMPILING = 50_000


class Simulation:
    """A run of the twin, and its results. `simulate` makes it.

    `print(simulation)` prints the report of `tidegate simulate`.
    """

    def __init__(self, title: str, setup: Setup, measured: RunMeasures, journal: Path, notes: Sequence[str]) -> None:
        self._title, self._setup, self._measured = title, setup, measured
        self._journal, self._notes = journal, tuple(notes)

    def __repr__(self) -> str:
        return "\n".join((headline_text(Run(*self._parts())), *(f"note: {note}" for note in self._notes)))

    def __str__(self) -> str:
        summary, lives, samples, use = self._parts()
        return console_text(lambda console: render(summary, lives, samples, console, use))

    @property
    def summary(self) -> RunSummary:
        """How good the run was: waits, completion times, GPU use and fairness; in all, by queue, by kind of work."""
        return self._measured.summary

    @property
    def findings(self) -> tuple[str, ...]:
        """What stands out, the weightiest first."""
        found = find(self._measured.summary, self._measured.lives, self._measured.quota)
        return tuple(finding.text for finding in found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know next to the results: defaults of what a source does not say, and jobs that were left out."""
        return self._notes

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return self._setup.policy.name

    def jobs(self) -> pl.DataFrame:
        """One row a job: its queue, GPUs, times, waits, GPU time held and busy, evictions, and how it ended."""
        return job_frame(self._measured.lives)

    def queues(self) -> pl.DataFrame:
        """One row a queue: what became of its jobs, and what it had against its quota."""
        rows = queue_rows(self._measured.summary)
        columns = {field: [row[at] for row in rows.values()] for at, field in enumerate(queue_fields())}
        return _numbers({"queue": list(rows), **columns})

    def timeline(self) -> pl.DataFrame:
        """GPUs over time: there, allocated, busy, observed, free but scattered, and waited for."""
        samples = self._measured.samples
        waiting = samples.waiting_milli.sum(axis=1) / WHOLE_MILLI
        return _numbers({"at_ms": samples.at_ms, **sample_columns(samples), "waiting_gpus": waiting})

    def to_dict(self) -> dict[str, Any]:
        """All results as plain data, as `tidegate simulate --json` prints them."""
        return as_json(*self._parts())

    def plot(self, path: str | Path) -> None:
        """Draw GPU use and waits over time to an .svg or .png file."""
        from tidegate.report.plot.run import plot
        from tidegate.report.plot.style import check_picture

        check_picture(Path(path))
        check_writable("plot", Path(path))
        title = f"{self._title}, policy {self._setup.policy.name}"
        plot(Path(path), self._measured.samples, self._measured.lives, title)

    def journal(self) -> JournalReader:
        """The journal of the run: all facts and decisions."""
        return read_journal(self._journal)

    def explain(
        self,
        job: str,
        *,
        at: str | None = None,
        changes: Sequence[str] = (),
        node: str | None = None,
        trials: int = BUDGET,
        kernels: str = "auto",
    ) -> JobExplanation:
        """Explain why a job waited or what became of it; the arguments are those of `tidegate.explain`."""
        with self.journal() as journal:
            return journal.explain(job, at=at, changes=changes, node=node, trials=trials, kernels=kernels)

    def _parts(self) -> tuple[Any, Any, Any, Any]:
        measured = self._measured
        return measured.summary, measured.lives, measured.samples, measured.quota


def simulate(
    source: Source | SourceData | None = None,
    *,
    nodes: str = "",
    gpus: float | str = "",
    cluster: PathOrSection | None = None,
    policy: PathOrSection | None = None,
    order: str | None = None,
    placement: str | None = None,
    cycle: str | None = None,
    seed: int | None = None,
    journal: str | Path | None = None,
    kernels: str = "auto",
) -> Simulation:
    """Run a policy on jobs in the twin.

    What a source does not say, such as priorities or nodes, gets a default; `Simulation.notes` lists them.

    Args:
        source: Jobs to run: whatever `read_source` reads, or what it returned, or the path of a tidegate.yaml.
            Default: a bundled week of a mixed team cluster.
        nodes: Nodes to run on: "26x8", or "8x8:h100,16x4:l40s". Default: as many as the jobs need.
        gpus: Number of GPUs of a pool without nodes, instead of nodes.
        cluster: Nodes and queues, instead of `nodes`: the path of a tidegate.yaml, of a folder of Kubernetes
            manifests or of a dump of `kubectl get nodes -o json`; or the section `cluster` of a tidegate.yaml as a
            dict.
        policy: The path of a tidegate.yaml or of a folder of manifests, or the section `policy` of a tidegate.yaml as a
            dict: `{"placement": "bestfit", "cycle": "10s"}`.
        order: The queueing order: "fifo", "srtf", "srsf" or "las". Default: that of the policy.
        placement: The placement rule, such as "tide" or "bestfit". Default: that of the policy.
        cycle: The time between decisions, such as "10s". Default: that of the policy.
        seed: The seed of the twin: the same seed gives the same run.
        journal: A file for the journal; it must not exist. Default: a temporary file, removed with the simulation.
        kernels: "auto", "plain" or "compiled". The results are the same; compiled kernels pay off for large runs.

    Raises:
        UserError: Something that is named cannot be used; the text says why, with file and line.
    """
    changes = ScenarioChanges(read_order(order), read_placement(placement), read_cycle_ms("--cycle", cycle), seed)
    check_seed(seed)
    jobs = read_jobs(source)
    given = ScenarioInput(jobs.names, str(nodes), str(gpus), cluster, policy)
    ours = read_policy(policy) if policy else None
    scenario = read_scenario(given, seed, [ours] if ours else [], partial(jobs.tables, seed or 0))
    setup, notes = apply_policy(scenario, ours, changes, given.title())
    path, folder = (Path(journal), None) if journal else _temporary_journal()
    try:
        with write_journal(path) as record:
            measured = run_setup(setup, record, read_kernels(kernels))
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    simulation = Simulation(given.title(), setup, measured, path, [*jobs.findings, *notes])
    if folder is not None:
        weakref.finalize(simulation, shutil.rmtree, folder, ignore_errors=True)
    return simulation


def run_setup(
    setup: Setup,
    journal: Journal | None,
    kernels: Kernels,
    jobs: TwinJobs | None = None,
    open_progress: OpenProgress = silent,
) -> RunMeasures:
    """Run the twin and measure it."""
    jobs = jobs_of(setup.work) if jobs is None else jobs
    worth = int(jobs.pods().sum()) > _WORTH_COMPILING
    with open_progress("simulating", None) as bar, kernels_for(kernels, worth=worth, tell=bar.describe):
        return run_twin(setup, journal, jobs, bar.update)


# -- what is named ---------------------------------------------------------------------------------------------


class JobsInput(NamedTuple):
    """Jobs to run: a source that was read, the path of a tidegate.yaml, or neither, which means the bundled week."""

    data: SourceData | None = None
    path: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sources."""
        return self.data.names if self.data else (self.path,) if self.path else ()

    @property
    def findings(self) -> tuple[str, ...]:
        """What was dropped or corrected when the source was read."""
        return self.data.findings if self.data else ()

    def tables(self, seed: int) -> Tables:
        """The canonical tables of the source."""
        assert self.data is not None
        return self.data.tables(seed)


def read_jobs(source: Source | SourceData | None) -> JobsInput:
    """Read jobs to run."""
    if source is None:
        return JobsInput()
    if isinstance(source, str | Path) and is_tidegate_yaml(str(source)):
        return JobsInput(path=str(source))
    return JobsInput(source_data(source))


def read_order(name: str | None) -> OrderKind | None:
    """The order of a name."""
    if name is not None and name not in set(OrderKind):
        raise UserError(f"--order: expected one of {', '.join(OrderKind)}, found {name!r}")
    return None if name is None else OrderKind(name)


def read_placement(name: str | None) -> PlacementKind | None:
    """The placement rule of a name."""
    if name is not None and name not in set(PlacementKind):
        raise UserError(f"--placement: expected one of {', '.join(PlacementKind)}, found {name!r}")
    return None if name is None else PlacementKind(name)


def read_cycle_ms(option: str, text: str | None) -> int | None:
    """The time between decisions; None: as the policy has it."""
    if text is None:
        return None
    cycle_ms = read_duration_ms(option, text)
    if cycle_ms < 1:
        raise UserError(f"{option}: expected at least 1ms, found {text!r}")
    return cycle_ms


def _numbers(columns: dict[str, Any]) -> pl.DataFrame:
    """A frame whose columns without any value are numbers all the same."""
    return pl.DataFrame(columns).with_columns(pl.col(pl.Null).cast(pl.Float64))


def _temporary_journal() -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
    return folder / "run.db", folder
