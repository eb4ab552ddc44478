"""Time series of a run: means over even bins of what was true after each step.

Nothing changes between two steps, so the mean of a bin is exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.measure.fragmentation import gpu_pods_seen, lost_by_node
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import F64, I64
from tidegate.model.facts import FactKind
from tidegate.model.step_batch import StepBatch
from tidegate.model.units import HOUR_MS, WHOLE_MILLI
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.nodes import BROKEN_MILLI

F32 = npt.NDArray[np.float32]

#: What is counted of waiting work, in this order.
_WORKLOADS, _PODS, _MILLI = range(3)


class ClusterSamples(NamedTuple):
    """One row a bin of time. All values are averages over the part of the bin that the run covers."""

    every_ms: int
    at_ms: I64  # where the bin begins
    covered_ms: I64
    up_milli: F64  # GPUs that work, on nodes that are ready
    allocated_milli: F64
    fragmented_milli: F64  # free and too scattered, at the first step in the bin; NaN: there was none
    other_model_milli: F64  # free, of models that are not asked for; likewise
    busy_gpus: F64  # NaN: GPUs were held, and nothing was observed
    observed_gpus: F64  # GPUs of which it is known whether they were busy
    nodes: tuple[str, ...]  # every node there ever was, in the order of their names
    node_up_milli: F32  # (bins, nodes)
    node_allocated_milli: F32  # (bins, nodes)
    queues: tuple[str, ...]
    waiting_workloads: F64  # (bins, queues)
    waiting_pods: F64  # (bins, queues)
    waiting_milli: F64  # (bins, queues): GPUs that waiting work asks for

    def fragmented_share(self) -> float | None:
        """The share of all GPUs that was free and too scattered to be of use, where it was looked at."""
        return self._share(self.fragmented_milli)

    def other_model_share(self) -> float | None:
        """The share of all GPUs that was free and of models that are not asked for, where it was looked at."""
        return self._share(self.other_model_milli)

    def idle_wanted_gpu_h(self) -> float:
        """GPU-hours that were held, seen idle, and waited for at the same time."""
        idle = np.nan_to_num(self.observed_gpus - self.busy_gpus)
        wanted = self.waiting_milli.sum(axis=1) / WHOLE_MILLI
        return float((np.clip(idle, 0, wanted) * self.covered_ms).sum()) / HOUR_MS

    def _share(self, milli: F64) -> float | None:
        looked = ~np.isnan(milli) & (self.up_milli > 0)
        if not looked.any():
            return None
        weight = self.covered_ms[looked]
        return float((milli[looked] * weight).sum() / (self.up_milli[looked] * weight).sum())


class _Glance(NamedTuple):
    """What is true from one step to the next."""

    up_milli: F64  # by slot
    allocated_milli: F64  # by slot
    waiting: F64  # (3, queues)


class _Bin(NamedTuple):
    """Sums over time, of a bin that is not over."""

    at_ms: int
    covered_ms: int
    up: F64
    allocated: F64
    waiting: F64
    fragmented: float
    other_model: float


class Sampler:
    """Looks at the state after each step and keeps averages, one row for every `every_ms`."""

    def __init__(self, every_ms: int) -> None:
        self.every_ms = max(every_ms, 1)
        self._now_ms = 0
        self._last: _Glance | None = None
        self._open: _Bin | None = None
        self._bins: list[_Bin] = []  # those that are over, as averages
        self._names: list[tuple[str, int]] = []  # name and number of the node in each slot
        self._slots: dict[int, int] = {}  # of each node by its number: nodes keep their slots when rows change hands
        self._numbers: I64 = np.zeros(0, np.int64)
        self._rows: I64 = np.zeros(0, np.int64)
        self._slot_of_row: I64 = np.zeros(0, np.int64)
        self._queues: list[str] = []

    def sample(self, state: ClusterState, now_ms: int) -> None:
        """Take in what is true after a step."""
        if self._last is None:
            self._now_ms = now_ms
        self._pass_time(now_ms)
        self._find_slots(state)
        self._last = self._glance(state)
        begins = now_ms - now_ms % self.every_ms
        if self._open is None or self._open.at_ms != begins:
            self._open_bin(begins)
        assert self._open is not None
        if np.isnan(self._open.fragmented):
            fragmented, other_model = self._lost(state)
            self._open = self._open._replace(fragmented=fragmented, other_model=other_model)

    def sample_batch(self, state: ClusterState, stretch: StepBatch) -> None:
        """Take in what was true after each of many steps of a run without nodes."""
        times, waiting = stretch.now_ms, stretch.waiting.astype(np.float64)
        if self._last is None:
            self._now_ms = int(times[0])
        self._pass_time(int(times[0]))
        self._find_slots(state)
        self._queues = list(state.queues)
        first_bin, last_bin = int(times[0]) // self.every_ms, int(times[-1]) // self.every_ms
        cuts = np.unique(np.append(times, np.arange(first_bin + 1, last_bin + 1) * self.every_ms))
        lasted, true_then = np.diff(cuts), np.searchsorted(times, cuts[:-1], side="right") - 1
        bins, stepped = cuts // self.every_ms, set((times // self.every_ms).tolist())
        edges = np.flatnonzero(np.append(True, bins[1:] != bins[:-1]))
        nothing = np.zeros(len(self._names), np.float64)
        for start, end in pairwise([*edges.tolist(), len(cuts)]):
            at = int(bins[start])
            self._enter_bin(at * self.every_ms, looked=at in stepped)
            parts = slice(start, min(end, len(lasted)))
            amount = np.tensordot(lasted[parts].astype(np.float64), waiting[true_then[parts]], axes=1)
            assert self._open is not None
            self._open = _add(self._open, _Glance(nothing, nothing, amount), int(lasted[parts].sum()), summed=True)
        self._now_ms, self._last = int(times[-1]), _Glance(nothing, nothing, waiting[-1])

    def _enter_bin(self, at_ms: int, *, looked: bool) -> None:
        """Enter a bin; without nodes nothing is fragmented."""
        if self._open is None or self._open.at_ms != at_ms:
            self._open_bin(at_ms)
        assert self._open is not None
        if looked and np.isnan(self._open.fragmented):
            self._open = self._open._replace(fragmented=0.0, other_model=0.0)

    def samples(self) -> ClusterSamples:
        """What was kept so far."""
        bins = [*self._bins, *([_averages(self._open)] if self._open is not None and self._open.covered_ms else [])]
        by_name = sorted(range(len(self._names)), key=self._names.__getitem__)
        waiting = _stacked([each.waiting for each in bins], (3, len(self._queues)))
        up = _stacked([each.up for each in bins], (len(self._names),))
        allocated = _stacked([each.allocated for each in bins], (len(self._names),))
        none = np.zeros(len(bins), np.float64)
        return ClusterSamples(
            every_ms=self.every_ms,
            at_ms=np.array([each.at_ms for each in bins], np.int64),
            covered_ms=np.array([each.covered_ms for each in bins], np.int64),
            up_milli=up.sum(axis=1),
            allocated_milli=allocated.sum(axis=1),
            fragmented_milli=np.array([each.fragmented for each in bins], np.float64),
            other_model_milli=np.array([each.other_model for each in bins], np.float64),
            busy_gpus=np.where(allocated.sum(axis=1) > 0, np.nan, none),
            observed_gpus=none,
            nodes=tuple(self._names[slot][0] for slot in by_name),
            node_up_milli=up[:, by_name].astype(np.float32),
            node_allocated_milli=allocated[:, by_name].astype(np.float32),
            queues=tuple(self._queues),
            waiting_workloads=waiting[:, _WORKLOADS],
            waiting_pods=waiting[:, _PODS],
            waiting_milli=waiting[:, _MILLI],
        )

    # -- time --------------------------------------------------------------------------------------------------

    def _pass_time(self, now_ms: int) -> None:
        """Count what was true last for the time since, bin by bin."""
        while self._now_ms < now_ms and self._last is not None:
            if self._open is None or self._now_ms >= self._open.at_ms + self.every_ms:
                self._open_bin(self._now_ms - self._now_ms % self.every_ms)
            assert self._open is not None
            until_ms = min(now_ms, self._open.at_ms + self.every_ms)
            self._open = _add(self._open, self._last, until_ms - self._now_ms)
            self._now_ms = until_ms

    def _open_bin(self, at_ms: int) -> None:
        if self._open is not None and self._open.covered_ms:
            self._bins.append(_averages(self._open))
        nobody = np.zeros((3, len(self._queues)), np.float64)
        slots = np.zeros(len(self._names), np.float64)
        self._open = _Bin(at_ms, 0, slots, slots, nobody, np.nan, np.nan)

    # -- looking -----------------------------------------------------------------------------------------------

    def _find_slots(self, state: ClusterState) -> None:
        """Give each node a slot of its own when the fleet has changed."""
        numbers = state.nodes.number[: state.nodes.top]
        if np.array_equal(numbers, self._numbers):
            return
        self._numbers, self._rows = numbers.copy(), state.live_nodes()
        for row in self._rows.tolist():
            number = int(numbers[row])
            if number not in self._slots:
                self._slots[number] = len(self._slots)
                self._names.append((state.node_specs[row].name, number))
        self._slot_of_row = np.array([self._slots[number] for number in numbers[self._rows].tolist()], np.int64)

    def _glance(self, state: ClusterState) -> _Glance:
        nodes, rows = state.nodes, self._rows
        whole = WHOLE_MILLI * nodes.devices[rows]
        taken = whole - nodes.left_total[rows]
        if nodes.left[: nodes.top].min(initial=0) < 0:  # a GPU is broken, or gone while in use
            works = np.arange(nodes.left.shape[1]) < nodes.devices[rows, np.newaxis]
            works &= nodes.left[rows] > -BROKEN_MILLI // 2
            whole = WHOLE_MILLI * works.sum(axis=1)
            taken = np.where(works, WHOLE_MILLI - nodes.left[rows], 0).sum(axis=1)
        up, allocated = np.zeros((2, len(self._names)), np.float64)
        up[self._slot_of_row] = whole * self._ready(state)
        allocated[self._slot_of_row] = taken
        return _Glance(up, allocated, self._waiting(state))

    def _ready(self, state: ClusterState) -> I64:
        """Which nodes are ready: those that are up, and those that are merely closed for new work."""
        ready = state.nodes.up[self._rows]
        if not ready.all():
            for at in np.flatnonzero(ready == 0).tolist():
                ready[at] = state.node_specs[int(self._rows[at])].ready
        return ready

    def _waiting(self, state: ClusterState) -> F64:
        if len(self._queues) != len(state.queues):
            self._queues = list(state.queues)
        works, top, queues = state.work_classes, state.work_classes.top, len(self._queues)
        queue, count = works.queue[:top], works.waiting[:top]
        return np.stack(
            [
                np.bincount(queue, count * each, queues).astype(np.float64)
                for each in (1, works.pods[:top], works.gpu_milli[:top])
            ]
        )

    def _lost(self, state: ClusterState) -> tuple[float, float]:
        lost = lost_by_node(state, self._rows[state.nodes.up[self._rows] == 1], gpu_pods_seen(state))
        return float(lost.scattered.sum()), float(lost.other_model.sum())


def _add(current: _Bin, last: _Glance, length_ms: int, *, summed: bool = False) -> _Bin:
    """Count what was true for so long; or sums over that time."""
    times = 1 if summed else length_ms
    return current._replace(
        covered_ms=current.covered_ms + length_ms,
        up=_widened(current.up, last.up_milli.shape) + last.up_milli * times,
        allocated=_widened(current.allocated, last.allocated_milli.shape) + last.allocated_milli * times,
        waiting=_widened(current.waiting, last.waiting.shape) + last.waiting * times,
    )


def _averages(current: _Bin) -> _Bin:
    covered = current.covered_ms
    return current._replace(
        up=current.up / covered, allocated=current.allocated / covered, waiting=current.waiting / covered
    )


def _stacked(parts: list[F64], shape: tuple[int, ...]) -> F64:
    """Rows of one shape, where nodes and queues may have come later."""
    stacked = np.zeros((len(parts), *shape), np.float64)
    for row, part in zip(stacked, parts, strict=True):
        row[tuple(slice(0, length) for length in part.shape)] = part
    return stacked


def _widened(part: F64, shape: tuple[int, ...]) -> F64:
    return part if part.shape == shape else _stacked([part], shape)[0]


def resample(samples: ClusterSamples, values: F64, count: int) -> F64:
    """Averages of one column of the samples over equally long stretches; NaN where nothing is known."""
    last = samples.at_ms[-1] + samples.covered_ms[-1]
    edges = np.append(samples.at_ms, last)
    edges[0] = edges[1] - samples.covered_ms[0]
    known = ~np.isnan(values)
    amounts = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0) * samples.covered_ms)])
    weights = np.concatenate([[0.0], np.cumsum(known * samples.covered_ms)])
    cuts = np.linspace(edges[0], edges[-1], count + 1)
    amount, weight = (np.diff(np.interp(cuts, edges, sums)) for sums in (amounts, weights))
    averages: F64 = np.divide(amount, weight, out=np.full(count, np.nan), where=weight > 0)
    return averages


def with_busy(samples: ClusterSamples, flat: Flat) -> ClusterSamples:
    """The samples, with what was observed of the use of GPUs: each observation spread evenly over its time."""
    use = flat.facts.of(FactKind.USE_OBSERVED)
    if not len(use.order) or not len(samples.at_ms):
        return samples
    edges = np.append(samples.at_ms, samples.at_ms[-1] + samples.every_ms)
    from_ms, covered_ms = use.at_ms - use.arg, np.maximum(samples.covered_ms, 1)
    observed = spread(from_ms, use.at_ms, use.second_value, edges) / covered_ms
    busy = spread(from_ms, use.at_ms, use.value, edges) / covered_ms
    blind = (observed <= 0) & (samples.allocated_milli > 0)
    return samples._replace(busy_gpus=np.where(blind, np.nan, busy), observed_gpus=observed)


def spread(from_ms: I64, until_ms: I64, amount: F64, edges_ms: I64) -> F64:
    """How much of each amount falls between two edges, when it is spread evenly over its time."""
    lasts = until_ms > from_ms
    from_ms, until_ms, amount = from_ms[lasts], until_ms[lasts], amount[lasts]
    rate = amount / (until_ms - from_ms)
    so_far = _ramps(from_ms, rate, edges_ms) - _ramps(until_ms, rate, edges_ms)
    parts: F64 = np.maximum(np.diff(so_far), 0)  # less than nothing only by rounding
    return parts


def _ramps(from_ms: I64, rate: F64, at_ms: I64) -> F64:
    """What has come together at each time, if from certain times on it grows at certain rates for ever."""
    order = np.argsort(from_ms, kind="stable")
    rates = np.concatenate([[0.0], np.cumsum(rate[order])])
    offsets = np.concatenate([[0.0], np.cumsum(rate[order] * from_ms[order])])
    begun = np.searchsorted(from_ms[order], at_ms)
    grown: F64 = rates[begun] * at_ms - offsets[begun]
    return grown
