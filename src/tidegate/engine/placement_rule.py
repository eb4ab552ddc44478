"""Prepares the placement rule for kernels: typical pods, scales and look-up tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.gang_placement import Output, empty_output
from tidegate.engine.kernels.node_score import gain_steps
from tidegate.engine.kernels.placement_rule import KIND_CODES, Rule, Typical, no_typical
from tidegate.engine.kernels.victim_scratch import VictimSearch, empty_victim_search
from tidegate.engine.tide_pricing import find_prices, tide_rule
from tidegate.jit.registry import is_compiled
from tidegate.model.arrays import F64, I64
from tidegate.model.policy import PlacementKind, TypicalPod
from tidegate.state.classes import PodClassKey
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.score_table import STALE

#: Typical pods are cut where they make up this part of all pods, as published.
_FGD_CUT = 0.95

#: Updates of typical pods and prices in the time in which as many pods are requested as there are GPUs; and pods at
#: least between two updates.
_LOOKS_A_FLEET = 13
_LEAST_PODS = 50

#: Decisions that a kernel can write before it must pause.
_OUTPUT_ROWS = 1 << 13

_LEARNS = (PlacementKind.FGD, PlacementKind.TIDE)

_steps: F64 | None = None


def set_typical(state: ClusterState, pods: Iterable[TypicalPod]) -> None:
    """Set the typical pods."""
    state.pod_classes.typical[:] = 0
    for typical in pods:
        row = state.intern_pod_class(PodClassKey.of(typical.pod))  # first: it may replace the columns
        state.pod_classes.typical[row] += typical.count


def look_again(state: ClusterState) -> None:
    """From time to time, learn the typical pods if the policy has none, and set the prices of `tide`."""
    placement = state.policy.placement
    if placement.kind not in _LEARNS:
        return
    top = state.pod_classes.top
    seen, last = state.pods_seen(), int(state.counters[Counter.LEARNT_FROM])
    if last >= 0 and seen < last + min(max(last, _LEAST_PODS), _look_every(state)):
        return
    state.counters[Counter.LEARNT_FROM] = seen
    if not placement.typical:
        state.pod_classes.typical[:top] = state.pod_classes.seen[:top]
    elif placement.kind is not PlacementKind.TIDE and last >= 0:
        return
    if placement.kind is PlacementKind.TIDE:
        known = state.prices.device if placement.typical and last >= 0 else None
        state.prices = find_prices(state, known)
    state.forget_scores()
    if state.ready is not None:
        state.ready = state.ready._replace(rule=_make_rule(state))


def _look_every(state: ClusterState) -> int:
    """Pods between two updates: as many as take a good part of the GPUs, so that updates cost little at any size."""
    return max(_LEAST_PODS, int(state.nodes.devices[: state.nodes.top].sum()) // _LOOKS_A_FLEET)


class Ready(NamedTuple):
    """What kernels read next to the state."""

    rule: Rule
    output: Output  # an output that is used again and again
    victims: VictimSearch  # search buffers, likewise


def ready_rule(state: ClusterState) -> Ready:
    """The rule for kernels, made again when the policy, the classes or the fleet changed."""
    scores = state.scores()
    if is_compiled() and not scores.whole[0]:
        scores.cursor[:] = STALE
    scores.whole[0] = is_compiled()
    if state.ready is None:
        state.ready = Ready(_make_rule(state), empty_output(_OUTPUT_ROWS), empty_victim_search(0, 0, 0, 0))
    ready: Ready = state.ready
    return ready


def _make_rule(state: ClusterState) -> Rule:
    kind = state.policy.placement.kind
    top = state.nodes.top
    return Rule(
        kind=KIND_CODES[kind],
        seed=state.policy.placement.seed,
        cpu_scale=float(max(state.nodes.cpu[:top].max(initial=0), 1)),
        gpu_scale=float(max(state.nodes.devices[:top].max(initial=0), 1) * 1000),
        tide=tide_rule(state.prices),
        typical=typical_pods(state) if kind is PlacementKind.FGD else no_typical(),
        steps=_gain_steps() if kind is PlacementKind.FGD else np.zeros(0, np.float64),
    )


def _gain_steps() -> F64:
    global _steps  # noqa: PLW0603 - a constant, computed on first use
    if _steps is None:
        _steps = gain_steps()
    return _steps


def typical_pods(state: ClusterState) -> Typical:
    """The most frequent kinds of pods, memory aside, until they make up the cut."""
    counts: dict[tuple[int, int, int, tuple[str, ...]], int] = {}
    classes = state.pod_classes
    for key, row in state.pod_class_rows.items():
        count = int(classes.typical[row])
        if count:
            kind = (int(classes.cpu[row]), int(classes.milli[row]), int(classes.gpus[row]), key.gpu.models)
            counts[kind] = counts.get(kind, 0) + count
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    total = sum(counts.values())
    chosen, reached = [], 0
    for kind, count in ordered:
        chosen.append((kind, count))
        reached += count
        if reached >= _FGD_CUT * total:
            break
    return Typical(
        cpu=np.array([kind[0] for kind, _ in chosen], np.int64),
        gpus=np.array([kind[2] for kind, _ in chosen], np.int64),
        milli=np.array([kind[1] for kind, _ in chosen], np.int64),
        # For equality to the last bit: a quotient of shares, not of counts.
        share=np.array([(count / total) / (reached / total) for _, count in chosen], np.float64),
        allowed=_allowed(state, [kind[3] for kind, _ in chosen]),
    )


def _allowed(state: ClusterState, models: list[tuple[str, ...]]) -> I64:
    allowed = np.zeros((len(models), max(len(state.node_classes), 1)), np.int64)
    for t, wanted in enumerate(models):
        for key, row in state.node_classes.items():
            allowed[t, row] = not wanted or key.gpu_model in wanted
    return allowed
