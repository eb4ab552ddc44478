"""A run of the twin from its setup to its measures."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.config.convert import Setup
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector, RunMeasures
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.step_batch import StepBatch
from tidegate.model.units import MINUTE_MS
from tidegate.sim.batched_run import run_twin
from tidegate.sim.loops import UntilOver
from tidegate.sim.submissions import TwinJobs, jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState

#: Samples of a run, at most.
_SAMPLES = 700

#: Called with how much of a run is done, and how much there is.
OnProgress = Callable[[int, int], None]


class _WithProgress:
    """A record that also reports how far the run is."""

    def __init__(self, record: RunCollector, world: SimWorld, on_progress: OnProgress) -> None:
        self._record, self._world, self._on_progress = record, world, on_progress

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Record a step."""
        self._record.append(now_ms, events, result)
        self._on_progress(*self._world.progress())

    def append_batch(self, stretch: StepBatch) -> None:
        """Record many steps."""
        self._record.append_batch(stretch)
        self._on_progress(*self._world.progress())


def simulate(
    setup: Setup, journal: Journal | None = None, jobs: TwinJobs | None = None, on_progress: OnProgress | None = None
) -> RunMeasures:
    """Run the twin to its end and measure it; `jobs` is the setup's work as columns, where a caller has them."""
    jobs = jobs_of(setup.work) if jobs is None else jobs
    world = SimWorld(setup.nodes, jobs, setup.policy, setup.twin, setup.snapshot)
    state = ClusterState()
    if journal is not None:
        journal.follow(state)
    span_ms = int((jobs.submit_ms + jobs.runtime_ms).max()) - setup.snapshot.at_ms
    witness = RunCollector(state, journal, every_ms=max(span_ms // _SAMPLES // MINUTE_MS, 1) * MINUTE_MS)
    record = _WithProgress(witness, world, on_progress) if on_progress else witness
    run_twin(state, world, record, UntilOver(world))
    if journal is not None:
        journal.keep()
    return witness.measured()
