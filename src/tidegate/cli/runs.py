"""Running the twin from the command line: what to run, with which kernels, where its journal goes, and how far it is.

Must not know: how results are shown.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
import platformdirs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tidegate.cli.errors import CannotRun
from tidegate.engine.kernels.registry import kernels_as
from tidegate.engine.run import Record, run
from tidegate.journal.record import Journal, Resumed
from tidegate.journal.store import JournalFile
from tidegate.measure.witness import Measured, Witness
from tidegate.model.build import Setup
from tidegate.model.decisions import StepResult
from tidegate.model.facts import EventBatch
from tidegate.model.policy import OrderKind, PlacementKind, Policy
from tidegate.model.twin import TwinOptions
from tidegate.model.units import MINUTE_MS, UnitError, parse_duration_ms
from tidegate.sim.jobs import jobs_of
from tidegate.sim.sample import sample_nodes, sample_options, sample_work
from tidegate.sim.world import SimWorld
from tidegate.sources.setupfile import load_setup
from tidegate.state.cluster import ClusterState

#: So much work is worth the compiler's start: below, plain kernels are done before numba is loaded.
_WORTH_COMPILING = 50_000

#: Samples of a run, at most.
_SAMPLES = 700


class Kernels(StrEnum):
    """How kernels run."""

    AUTO = "auto"
    PLAIN = "plain"
    COMPILED = "compiled"


class Changes(NamedTuple):
    """What the command line changes of a setup."""

    order: OrderKind | None = None
    placement: PlacementKind | None = None
    cycle_ms: int | None = None
    seed: int | None = None


def read_setup(file: Path | None, changes: Changes) -> Setup:
    """The setup of a file, or the bundled sample, as the command line changes it."""
    if file is None:
        seed = 1 if changes.seed is None else changes.seed
        setup = Setup(sample_nodes(), Policy(cycle_ms=10_000), sample_work(seed), sample_options(seed))
    else:
        setup = load_setup(file)
        if not setup.nodes or not setup.work:
            missing = "work" if setup.nodes else "cluster"
            raise CannotRun(f"{file}: nothing to simulate: `{missing}` is empty; docs/tidegate-yaml.md has an example")
    return setup._replace(policy=change_policy(setup.policy, changes), twin=_reseed(setup, changes))


def change_policy(policy: Policy, changes: Changes) -> Policy:
    """The policy, with what the command line says instead."""
    replace = msgspec.structs.replace
    if changes.order is not None:
        policy = replace(policy, order=replace(policy.order, kind=changes.order), name=changes.order.value)
    if changes.placement is not None:
        placement = replace(policy.placement, kind=changes.placement)
        policy = replace(policy, placement=placement, name=f"{policy.order.kind} {changes.placement}")
    if changes.cycle_ms is not None:
        policy = replace(policy, cycle_ms=changes.cycle_ms)
    return policy


def _reseed(setup: Setup, changes: Changes) -> TwinOptions:
    return setup.twin if changes.seed is None else msgspec.structs.replace(setup.twin, seed=changes.seed)


def read_duration_ms(option: str, text: str) -> int:
    """A duration given to an option."""
    try:
        return parse_duration_ms(text)
    except UnitError as error:
        raise CannotRun(f"{option}: expected {error}, found {text!r}") from None


def last_run_path() -> Path:
    """Where the journal of the latest run is kept, for `tidegate explain`."""
    return Path(platformdirs.user_state_dir("tidegate")) / "last-run.db"


def open_journal(path: Path | None, *, resume: bool) -> Journal:
    """A journal for a run: a new file, one to take up again, or the place of the latest run."""
    if path is None:
        if resume:
            raise CannotRun("--resume needs --journal FILE: the journal of the run to take up again")
        path = last_run_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f"{path.name}*"):
            leftover.unlink()
    if resume:
        return Resumed(JournalFile.open(path, append=True), remember=False)
    return Journal(JournalFile.create(path), remember=False)


class _Watched:
    """A record that also moves the progress bar."""

    def __init__(self, record: Record, world: SimWorld, bar: Progress) -> None:
        self._record, self._world, self._bar = record, world, bar
        self._task = bar.add_task("simulating", total=world.progress()[1])

    def append(self, now_ms: int, events: EventBatch, result: StepResult) -> None:
        """Write the step down and show how far the run is."""
        self._record.append(now_ms, events, result)
        self._bar.update(self._task, completed=self._world.progress()[0])


def simulate_setup(setup: Setup, journal: Journal | None, kernels: Kernels, console: Console) -> Measured:
    """Run the twin to its end and measure it."""
    jobs = jobs_of(setup.work)
    world = SimWorld(setup.nodes, jobs, setup.policy, setup.twin)
    state = ClusterState()
    span_ms = int((jobs.submit_ms + jobs.runtime_ms).max())
    witness = Witness(state, journal, every_ms=max(span_ms // _SAMPLES // MINUTE_MS, 1) * MINUTE_MS)
    with _progress(console) as bar, kernels_as(compiled=_compiles(kernels, int(jobs.pods().sum()))):
        run(state, world, _Watched(witness, world, bar), lambda _: world.is_over())
    return witness.measured()


def _compiles(kernels: Kernels, pods: int) -> bool:
    has_numba = importlib.util.find_spec("numba") is not None
    if kernels is Kernels.COMPILED and not has_numba:
        raise CannotRun("compiled kernels need numba, which is not installed: pip install 'tidegate[fast]'")
    return has_numba and (kernels is Kernels.COMPILED or (kernels is Kernels.AUTO and pods > _WORTH_COMPILING))


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar
