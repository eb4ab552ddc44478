"""Spots for pod sets: from what they ask, in labels and names, to the kernels' rows, and back.

Everything that can be settled once for a kind of pod or work is settled here; the search itself is `kernels/topology`.
Must not know: quota, who goes first, why somebody must be moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.search import find_gang
from tidegate.engine.topology.search_buffers import (
    A_FITS,
    A_LAYER,
    A_LEVEL,
    A_NEEDED,
    A_NODES,
    A_OUTSIDE,
    A_QUESTION,
    A_SIZE,
    A_TAINTED,
    A_UNMATCHED,
    ALONE,
    ANYWHERE_TOO,
    AS_IF_EMPTY,
    BALANCED,
    FRESH,
    GROW,
    KEEP,
    LIKES,
    MIXED,
    MOST_LAYERS,
    NOT_ALONE,
    Q_CODE,
    Q_COUNT,
    Q_FILTER,
    Q_FIRST_HELD,
    Q_HELD,
    Q_KIND,
    Q_LAYERS,
    Q_LEADER_HELD,
    Q_LEADER_KIND,
    Q_LEADER_SET,
    Q_LEVEL,
    Q_LOST,
    Q_MODE,
    Q_REQUIRED,
    Q_SET,
    Q_SIZE,
    Q_SLICE_LEVEL,
    Q_SLICES_ONLY,
    Q_SPREAD_LEVEL,
    Q_SPREAD_MOST,
    Q_SPREAD_MUST,
    Q_TREE,
    Q_UNCONSTRAINED,
    QUESTION_COLUMNS,
    REPLACE,
    SPOT_COLUMNS,
    Answer,
    Extent,
    Search,
    empty_answer,
    empty_search,
)
from tidegate.engine.topology.usage import add_spots, remove_spots
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.observed_status import DomainAssignment
from tidegate.model.queues import TopologyRule, footprint_of
from tidegate.model.struct import Resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import PodSet, SliceRule, SpreadRule, TopologyRequest
from tidegate.state.quota_tables import SPOT_COUNT, SPOT_KIND, SPOT_LEAF, SPOT_SET
from tidegate.state.topology import NOWHERE, Topology

#: Workers and leader.
_PAIR = 2


def options_of(rule: TopologyRule) -> int:
    """The rule in the form that kernels take."""
    return MIXED * rule.mixed | LIKES * rule.likes | BALANCED * rule.balanced


class Wanted(NamedTuple):
    """What one pod set asks of the topology of a flavor."""

    pod_set: PodSet
    flavor: str
    pods: int
    amounts: Resources | None = None  # what one pod takes of its node, in the units of quota; None: its footprint
    is_implied: bool = False  # it asks for nothing, but its queue places everything by topology
    held: tuple[DomainAssignment, ...] = ()  # spots it has, or had in the work that it replaces


class Shortfall(NamedTuple):
    """How much was missing, and which nodes were not taken why."""

    pod_sets: tuple[str, ...]  # that did not fit
    fits: int  # slices that would fit
    needed: int  # slices
    size: int  # pods in a slice
    level: str
    layers: tuple[tuple[str, int, int], ...]  # with several layers of slices: level, slices that fit, slices needed
    nodes: int  # looked at
    tainted: int  # not taken for a taint
    unmatched: int  # for labels
    outside: int  # for being in another domain than the rest
    lacking: Resources  # where not one pod fits, by the resource that is short


class Found(NamedTuple):
    """The spots of each pod set by its name, until one does not fit: then why."""

    misfit: TopologyFailure
    spots: dict[str, tuple[DomainAssignment, ...]]
    shortfall: Shortfall | None


class SpotSearch:
    """Searches in one topology. Room to work in is kept between them, and nothing else."""

    def __init__(self, topology: Topology, rule: TopologyRule | None = None) -> None:
        self.topology = topology
        self.rule = rule or TopologyRule()
        self._extent: Extent | None = None
        self._search: Search
        self._answer: Answer

    def find(self, wanted: Sequence[Wanted], *, as_if_empty: bool = False) -> Found:
        """Spots for the pod sets of one workload, flavor by flavor, each set seeing what those before took.

        `as_if_empty` looks as if nothing of ours were there: whether it could ever fit.
        """
        asked = [_question(self.topology, group, wanted, self.rule) for group in _groups(wanted)]
        return self._answer_to(asked, wanted, as_if_empty=as_if_empty)

    def replace(self, wanted: Sequence[Wanted], failed: str, *, stays: bool = False) -> Found:
        """Spots for pod sets of which a node failed: what is on other nodes stays. `stays`: all of it does."""
        hit = [place for place, one in enumerate(wanted) if not stays and _lost(one, failed)]
        asked = [_replacement(self.topology, wanted[place], place, failed) for place in hit]
        found = self._answer_to(asked, wanted, as_if_empty=False)
        kept = {one.pod_set.name: one.held for place, one in enumerate(wanted) if place not in hit}
        return found._replace(spots={**found.spots, **kept}) if found.misfit is TopologyFailure.NONE else found

    def add(self, flavor: str, spots: Sequence[DomainAssignment], amounts: Resources) -> None:
        """Pods have these spots now."""
        rows = spot_rows(self.topology, flavor, spots, amounts)
        active(add_spots)(self.topology.forest(), rows, 0, len(rows))

    def remove(self, flavor: str, spots: Sequence[DomainAssignment], amounts: Resources) -> None:
        """Pods have left these spots."""
        rows = spot_rows(self.topology, flavor, spots, amounts)
        active(remove_spots)(self.topology.forest(), rows, 0, len(rows))

    def _answer_to(self, asked: Sequence[Question], wanted: Sequence[Wanted], *, as_if_empty: bool) -> Found:
        questions, held = _stack(asked)
        search, answer = self._room_for(int(questions[:, Q_COUNT].sum()) + 2 * (len(questions) + len(held)))
        options = options_of(self.rule) | (AS_IF_EMPTY if as_if_empty else 0)
        code = TopologyFailure(active(find_gang)(self.topology.forest(), search, questions, held, options, answer))
        placed = questions if code is TopologyFailure.NONE else questions[: answer.numbers[A_QUESTION]]
        missing = None if code is TopologyFailure.NONE else self._shortfall(code, questions, wanted)
        return Found(code, self._spots(placed, wanted, answer), missing)

    def _room_for(self, spots: int) -> tuple[Search, Answer]:
        """Room to work in, made anew where it is too small."""
        topology, had = self.topology, self._extent
        resources, leaves = len(topology.resources), topology.leaves.top
        if had is None or had.spots < 2 * spots or had.resources < resources:
            extent = Extent(topology.domains.top, leaves, topology.trees.axes["level"], resources, 2 * spots + 64)
            self._extent, self._search, self._answer = extent, empty_search(extent), empty_answer(extent)
        return self._search, self._answer

    def _spots(self, placed: I64, wanted: Sequence[Wanted], answer: Answer) -> dict[str, tuple[DomainAssignment, ...]]:
        sets = placed[:, [Q_SET, Q_LEADER_SET]]
        made: dict[str, list[DomainAssignment]] = {wanted[place].pod_set.name: [] for place in sets[sets >= 0].tolist()}
        for row in answer.spots[: answer.written[0]].tolist():
            one = wanted[row[SPOT_SET]]
            tree = self.topology.flavors[one.flavor]
            made[one.pod_set.name].append(self.topology.spot(row[SPOT_LEAF], tree, row[SPOT_COUNT]))
        return {name: tuple(spots) for name, spots in made.items()}

    def _shortfall(self, code: TopologyFailure, questions: I64, wanted: Sequence[Wanted]) -> Shortfall:
        answer = self._answer
        numbers = answer.numbers.tolist()
        question = questions[numbers[A_QUESTION]].tolist()
        sets = [question[Q_SET]] + ([question[Q_LEADER_SET]] if question[Q_LEADER_SET] >= 0 else [])
        if code in (TopologyFailure.LACKS_ROOM, TopologyFailure.LACKS_LEADER):
            question = self._search.question.tolist()  # for the pods that have no spots yet
        levels = self.topology.levels[question[Q_TREE]] if question[Q_TREE] >= 0 else ("",)
        layers = [
            (levels[question[Q_SLICE_LEVEL + layer]], numbers[A_LAYER + layer], question[Q_COUNT] // size)
            for layer, size in enumerate(question[Q_SIZE : Q_SIZE + question[Q_LAYERS]])
        ]
        return Shortfall(
            pod_sets=tuple(wanted[place].pod_set.name for place in sorted(sets)),
            fits=numbers[A_FITS],
            needed=numbers[A_NEEDED],
            size=numbers[A_SIZE],
            level=levels[numbers[A_LEVEL]],
            layers=tuple(layers) if len(layers) > 1 else (),
            nodes=numbers[A_NODES],
            tainted=numbers[A_TAINTED],
            unmatched=numbers[A_UNMATCHED],
            outside=numbers[A_OUTSIDE],
            lacking=tuple(
                (name, int(answer.lacking[place]))
                for name, place in sorted(self.topology.resources.items())
                if answer.lacking[place]
            ),
        )


class Question(NamedTuple):
    """A question for the kernels, and the spots that belong to it."""

    row: I64
    held: I64  # (spots, SPOT_COLUMNS): those of the workers, then those of the leader


def spot_rows(
    topology: Topology, flavor: str, spots: Sequence[DomainAssignment], amounts: Resources, pod_set: int = 0
) -> I64:
    """Spots as kernels take them; NOWHERE for those in domains that are gone."""
    rows = np.zeros((len(spots), SPOT_COLUMNS), np.int64)
    kind, tree = topology.kind_of(amounts), topology.flavors[flavor]
    for row, spot in zip(rows, spots, strict=True):
        row[SPOT_LEAF], row[SPOT_COUNT] = topology.leaf_of(tree, spot.values), spot.count
        row[SPOT_SET], row[SPOT_KIND] = pod_set, kind
    return rows


def question_of(topology: Topology, workers: Wanted, leader: Wanted | None = None) -> I64:
    """What a pod set, or the workers and the leader of a group, ask: a row that holds as long as the trees stand."""
    row = np.zeros(QUESTION_COLUMNS, np.int64)
    tree = topology.flavors.get(workers.flavor, NOWHERE)
    row[[Q_TREE, Q_COUNT, Q_LEADER_KIND, Q_SIZE]] = tree, workers.pods, NOWHERE, 1
    if tree == NOWHERE:
        row[Q_CODE] = TopologyFailure.NO_DOMAINS
        return row
    row[Q_CODE] = _ask_levels(row, workers.pod_set.topology, topology.levels[tree], is_implied=workers.is_implied)
    row[Q_KIND], row[Q_FILTER] = topology.kind_of(_amounts(workers)), topology.filter_of(workers.pod_set, tree)
    if leader is not None:
        row[Q_LEADER_KIND] = topology.kind_of(_amounts(leader))
    return row


def _amounts(wanted: Wanted) -> Resources:
    return footprint_of(wanted.pod_set) if wanted.amounts is None else wanted.amounts


def _ask_levels(row: I64, request: TopologyRequest, levels: tuple[str, ...], *, is_implied: bool) -> TopologyFailure:
    """Write down which levels are asked for; the Misfit if the topology does not have them so."""
    slices_only = bool(request.slices) and not request.required and not request.preferred
    row[Q_REQUIRED], row[Q_SLICES_ONLY] = bool(request.required), NOT_ALONE
    if slices_only:
        row[Q_SLICES_ONLY] = ANYWHERE_TOO if request.unconstrained else ALONE
    label = request.required or request.preferred
    row[Q_UNCONSTRAINED] = request.unconstrained or is_implied or slices_only or (not label and bool(request.spread))
    if not label:
        if not row[Q_UNCONSTRAINED]:
            return TopologyFailure.NO_LEVEL
        label = levels[0] if slices_only else levels[-1]
    if label not in levels:
        return TopologyFailure.LEVEL_UNKNOWN
    row[Q_LEVEL], row[Q_SLICE_LEVEL] = levels.index(label), len(levels) - 1
    code = _ask_slices(row, request.slices, levels)
    if code is TopologyFailure.NONE and request.spread is not None:
        code = _ask_spread(row, request.spread, levels)
    return code


def _ask_spread(row: I64, rule: SpreadRule, levels: tuple[str, ...]) -> TopologyFailure:
    """Write down over which level pods are spread; pods that may go anywhere are dealt out from there."""
    if rule.level not in levels:
        return TopologyFailure.LEVEL_UNKNOWN
    level = levels.index(rule.level)
    row[Q_SPREAD_LEVEL], row[Q_SPREAD_MOST], row[Q_SPREAD_MUST] = level, max(rule.most, 1), rule.required
    if row[Q_UNCONSTRAINED] and not row[Q_LAYERS]:
        row[Q_LEVEL] = min(row[Q_LEVEL], level)
    return TopologyFailure.NONE


def _ask_slices(row: I64, slices: tuple[SliceRule, ...], levels: tuple[str, ...]) -> TopologyFailure:
    """Write down the layers of slices, the widest first: each inside the one before, and a part of it."""
    if len(slices) > MOST_LAYERS or any(rule.size < 1 for rule in slices):
        return TopologyFailure.SLICE_SIZE
    if any(rule.level not in levels for rule in slices):
        return TopologyFailure.SLICE_LEVEL_UNKNOWN
    row[Q_LAYERS] = len(slices)
    for layer, rule in enumerate(slices):
        row[Q_SIZE + layer], row[Q_SLICE_LEVEL + layer] = rule.size, levels.index(rule.level)
    if slices and row[Q_LEVEL] > row[Q_SLICE_LEVEL]:
        return TopologyFailure.SLICE_ABOVE
    for layer in range(1, len(slices)):
        if row[Q_SLICE_LEVEL + layer] <= row[Q_SLICE_LEVEL + layer - 1]:
            return TopologyFailure.SLICE_ABOVE
        if row[Q_SIZE + layer - 1] % row[Q_SIZE + layer]:
            return TopologyFailure.SLICE_SIZE
    return TopologyFailure.NONE


def _groups(wanted: Sequence[Wanted]) -> list[tuple[int, ...]]:
    """Places of the pod sets that are placed together: by flavor, then in the order they come."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(wanted):
        group = one.pod_set.topology.group
        groups.setdefault((one.flavor, f"={group}" if group else str(place)), []).append(place)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    # A group is a pair. Whoever else says to be in it, against the rules, is placed alone.
    return [pair for _, places in ordered for pair in (tuple(places[:_PAIR]), *((p,) for p in places[_PAIR:]))]


def _question(topology: Topology, group: tuple[int, ...], wanted: Sequence[Wanted], rule: TopologyRule) -> Question:
    """The question of a pod set or group; of two, the larger one are the workers."""
    first, second = group[0], group[1] if len(group) == _PAIR else None
    if second is not None and wanted[second].pods > wanted[first].pods:
        first, second = second, first
    workers, leader = wanted[first], wanted[second] if second is not None else None
    row = question_of(topology, workers, leader)
    row[Q_MODE], row[Q_SET], row[Q_LEADER_SET] = FRESH, first, second if second is not None else NOWHERE
    question = Question(row, np.zeros((0, SPOT_COLUMNS), np.int64))
    if rule.elastic and workers.held and row[Q_CODE] == TopologyFailure.NONE:
        question = _kept(topology, question, workers, leader)
    return question


def _kept(topology: Topology, question: Question, workers: Wanted, leader: Wanted | None) -> Question:
    """Keep the spots of the work that is replaced, as far as they are still needed; if one is gone, ask afresh."""
    row = question.row.copy()
    kept = cut_spots(workers.held, workers.pods)
    held = spot_rows(topology, workers.flavor, workers.held, _amounts(workers), int(row[Q_SET]))
    lead = np.zeros((0, SPOT_COLUMNS), np.int64)
    if leader is not None:
        lead = spot_rows(topology, leader.flavor, leader.held, _amounts(leader), int(row[Q_LEADER_SET]))
    if (held[:, SPOT_LEAF] == NOWHERE).any() or (lead[:, SPOT_LEAF] == NOWHERE).any():
        return question
    row[Q_MODE] = GROW if sum(spot.count for spot in workers.held) < workers.pods else KEEP
    if row[Q_MODE] == KEEP and leader is not None and not leader.held:
        return question  # a leader that was nowhere needs a search
    held = spot_rows(topology, workers.flavor, kept, _amounts(workers), int(row[Q_SET]))
    row[Q_HELD], row[Q_LEADER_HELD] = len(held), len(lead)
    return Question(row, np.concatenate([held, lead]))


def _lost(one: Wanted, failed: str) -> int:
    """Pods on a failed node."""
    return sum(spot.count for spot in one.held if spot.values[-1] == failed)


def _replacement(topology: Topology, one: Wanted, place: int, failed: str) -> Question:
    """The question of a pod set of which a node failed."""
    row = question_of(topology, one)
    kept = [spot for spot in one.held if spot.values[-1] != failed]
    row[Q_MODE], row[Q_SET], row[Q_LEADER_SET] = REPLACE, place, NOWHERE
    row[Q_HELD], row[Q_LOST] = len(kept), _lost(one, failed)
    return Question(row, spot_rows(topology, one.flavor, kept, _amounts(one), place))


def cut_spots(spots: Sequence[DomainAssignment], count: int) -> tuple[DomainAssignment, ...]:
    """The first spots, until they hold this many pods."""
    kept, left = [], count
    for spot in spots:
        if left > 0:
            kept.append(DomainAssignment(values=spot.values, count=min(spot.count, left)))
            left -= spot.count
    return tuple(kept)


def _stack(asked: Sequence[Question]) -> tuple[I64, I64]:
    """All questions, and the spots that belong to them, as kernels take them."""
    questions = np.array([question.row for question in asked], np.int64).reshape(-1, QUESTION_COLUMNS)
    held = np.concatenate([np.zeros((0, SPOT_COLUMNS), np.int64), *(question.held for question in asked)])
    questions[:, Q_FIRST_HELD] = np.cumsum([0, *(len(question.held) for question in asked)])[:-1]
    return questions, held
