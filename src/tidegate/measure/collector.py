"""Collects all measures of a run in one pass, next to the journal."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tidegate.engine.step import most_cycles
from tidegate.journal.writer import Journal
from tidegate.measure.capacity import Capacity, capacity_of
from tidegate.measure.job_records import JobRecords, read_run
from tidegate.measure.loops import find_loops
from tidegate.measure.preemptions import preemptions_of
from tidegate.measure.queues import queue_shares
from tidegate.measure.quota import QuotaUse, quota_use_of, with_quota
from tidegate.measure.summary import RunSummary, summarise
from tidegate.measure.time_series import ClusterSamples, Sampler, with_busy
from tidegate.measure.timeline import Timeline
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.step_batch import StepBatch
from tidegate.model.units import MINUTE_MS
from tidegate.state.cluster import ClusterState

#: The default bin of time series.
SAMPLE_EVERY_MS = 15 * MINUTE_MS


class RunMeasures(NamedTuple):
    """What a run came to."""

    lives: JobRecords
    samples: ClusterSamples
    capacity: Capacity
    summary: RunSummary
    quota: QuotaUse | None  # None: no quota of GPUs was given


class RunCollector:
    """A record that passes each step on to a journal and takes note of what measures need."""

    def __init__(self, state: ClusterState, journal: Journal | None = None, every_ms: int = SAMPLE_EVERY_MS) -> None:
        self._state, self._journal = state, journal
        self._timeline, self._sampler, self._every_ms = Timeline(), Sampler(every_ms), every_ms
        self._unsettled = 0

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Take the next step; the state is as it was after it."""
        if self._journal is not None:
            self._journal.append(now_ms, events, result)
        self._timeline.append(now_ms, events, result)
        self._unsettled += result.cycles >= most_cycles(self._state)
        self._sampler.sample(self._state, now_ms)

    def append_batch(self, stretch: StepBatch) -> None:
        """Take many steps, of a run without nodes; the state is as it was after the last."""
        if self._journal is not None:
            self._journal.append_batch(stretch)
        self._timeline.append_batch(stretch)
        self._unsettled += int(np.count_nonzero(stretch.cycles >= most_cycles(self._state)))
        self._sampler.sample_batch(self._state, stretch)

    def measured(self) -> RunMeasures:
        """What the run came to so far."""
        flat = self._timeline.flat()
        (lives, held), capacity = read_run(flat), capacity_of(flat)
        use = quota_use_of(flat, lives, held, self._every_ms)
        preemptions = preemptions_of(flat, lives, held)
        shares = queue_shares(use, lives, preemptions) if use else ()
        samples = with_busy(self._sampler.samples(), flat)
        if use is not None and not flat.nodes:
            samples = with_quota(samples, use)
        summary = summarise(lives, capacity.milli_ms, samples.fragmented_share(), shares)
        loops = find_loops(flat, lives, preemptions)
        summary = msgspec.structs.replace(
            summary,
            loops=loops,
            unsettled_steps=self._unsettled,
            other_model_share=samples.other_model_share(),
            idle_wanted_gpu_h=samples.idle_wanted_gpu_h(),
        )
        return RunMeasures(lives, samples, capacity, summary, use)
