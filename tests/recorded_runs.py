"""Recorded runs, measured: what a journal tells is what was measured while the run went on."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.engine.step import step
from tidegate.journal.store import JournalStep
from tidegate.measure.collector import SAMPLE_EVERY_MS, RunCollector, RunMeasures
from tidegate.state.cluster import ClusterState


def measure_journal(steps: Iterable[JournalStep], every_ms: int = SAMPLE_EVERY_MS) -> RunMeasures:
    """Run the facts of a journal again, because samples are of states, which no journal keeps."""
    state = ClusterState()
    witness = RunCollector(state, every_ms=every_ms)
    for recorded in steps:
        step(state, recorded.events, recorded.now_ms)
        witness.append(recorded.now_ms, recorded.events, recorded.result)
    return witness.measured()
