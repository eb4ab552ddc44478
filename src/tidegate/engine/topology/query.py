"""Topology requests of pod sets as questions for the search kernels: computed once for a kind of pod or work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.columns import questions
from tidegate.engine.topology.search_buffers import ALONE, ANYWHERE_TOO, BALANCED, LIKES, MIXED, MOST_LAYERS, NOT_ALONE
from tidegate.model.arrays import I64
from tidegate.model.observed_status import DomainAssignment
from tidegate.model.queues import TopologyRule, footprint_of
from tidegate.model.struct import Resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import PodSet, SliceRule, SpreadRule, TopologyRequest
from tidegate.state.column_table import NONE
from tidegate.state.topology import Topology


def options_of(rule: TopologyRule) -> int:
    """The topology policy as options of the kernels."""
    return MIXED * rule.mixed | LIKES * rule.likes | BALANCED * rule.balanced


class PodSetQuery(NamedTuple):
    """What one pod set requests of the topology of a flavor."""

    pod_set: PodSet
    flavor: str
    pods: int
    amounts: Resources | None = None  # what one pod takes of its node, in the units of quota; None: its footprint
    is_implied: bool = False  # it requests no topology, but its queue places everything by topology
    held: tuple[DomainAssignment, ...] = ()  # assignments it has, or had in the work that it replaces


def question_of(topology: Topology, workers: PodSetQuery, leader: PodSetQuery | None = None) -> I64:
    """The question of a pod set, or of the workers and the leader of a group; it holds as long as the trees stand."""
    row = np.zeros(questions.COLUMNS, np.int64)
    tree = topology.flavors.get(workers.flavor, NONE)
    row[[questions.TREE, questions.COUNT, questions.LEADER_KIND, questions.SIZE]] = tree, workers.pods, NONE, 1
    if tree == NONE:
        row[questions.CODE] = TopologyFailure.NO_DOMAINS
        return row
    row[questions.CODE] = _ask_levels(
        row, workers.pod_set.topology, topology.levels[tree], is_implied=workers.is_implied
    )
    row[questions.KIND] = topology.kind_of(amounts_of(workers))
    row[questions.FILTER] = topology.filter_of(workers.pod_set, tree)
    if leader is not None:
        row[questions.LEADER_KIND] = topology.kind_of(amounts_of(leader))
    return row


def amounts_of(wanted: PodSetQuery) -> Resources:
    """What one pod of a set takes of its node."""
    return footprint_of(wanted.pod_set) if wanted.amounts is None else wanted.amounts


def _ask_levels(row: I64, request: TopologyRequest, levels: tuple[str, ...], *, is_implied: bool) -> TopologyFailure:
    """Write the requested levels; a TopologyFailure if the topology does not have them so."""
    slices_only = bool(request.slices) and not request.required and not request.preferred
    row[questions.REQUIRED], row[questions.SLICES_ONLY] = bool(request.required), NOT_ALONE
    if slices_only:
        row[questions.SLICES_ONLY] = ANYWHERE_TOO if request.unconstrained else ALONE
    label = request.required or request.preferred
    row[questions.UNCONSTRAINED] = (
        request.unconstrained or is_implied or slices_only or (not label and bool(request.spread))
    )
    if not label:
        if not row[questions.UNCONSTRAINED]:
            return TopologyFailure.NO_LEVEL
        label = levels[0] if slices_only else levels[-1]
    if label not in levels:
        return TopologyFailure.LEVEL_UNKNOWN
    row[questions.LEVEL], row[questions.SLICE_LEVEL] = levels.index(label), len(levels) - 1
    code = _ask_slices(row, request.slices, levels)
    if code is TopologyFailure.NONE and request.spread is not None:
        code = _ask_spread(row, request.spread, levels)
    return code


def _ask_spread(row: I64, rule: SpreadRule, levels: tuple[str, ...]) -> TopologyFailure:
    """Write the level over which pods are spread; pods that may go anywhere are dealt out from there."""
    if rule.level not in levels:
        return TopologyFailure.LEVEL_UNKNOWN
    level = levels.index(rule.level)
    row[questions.SPREAD_LEVEL] = level
    row[questions.SPREAD_MOST] = max(rule.most, 1)
    row[questions.SPREAD_MUST] = rule.required
    if row[questions.UNCONSTRAINED] and not row[questions.LAYERS]:
        row[questions.LEVEL] = min(row[questions.LEVEL], level)
    return TopologyFailure.NONE


def _ask_slices(row: I64, slices: tuple[SliceRule, ...], levels: tuple[str, ...]) -> TopologyFailure:
    """Write the layers of slices, the widest first: each inside the one before, and a part of it."""
    if len(slices) > MOST_LAYERS or any(rule.size < 1 for rule in slices):
        return TopologyFailure.SLICE_SIZE
    if any(rule.level not in levels for rule in slices):
        return TopologyFailure.SLICE_LEVEL_UNKNOWN
    row[questions.LAYERS] = len(slices)
    for layer, rule in enumerate(slices):
        row[questions.SIZE + layer], row[questions.SLICE_LEVEL + layer] = rule.size, levels.index(rule.level)
    if slices and row[questions.LEVEL] > row[questions.SLICE_LEVEL]:
        return TopologyFailure.SLICE_ABOVE
    for layer in range(1, len(slices)):
        if row[questions.SLICE_LEVEL + layer] <= row[questions.SLICE_LEVEL + layer - 1]:
            return TopologyFailure.SLICE_ABOVE
        if row[questions.SIZE + layer - 1] % row[questions.SIZE + layer]:
            return TopologyFailure.SLICE_SIZE
    return TopologyFailure.NONE
