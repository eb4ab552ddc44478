"""Topology queries: from the requests of pod sets, in labels and names, to the kernels' rows, and back.

What can be settled once for a kind of pod or work is settled here; the search itself is `engine/topology/search`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.columns import answers, questions
from tidegate.engine.topology.search import find_gang
from tidegate.engine.topology.search_buffers import (
    ALONE,
    ANYWHERE_TOO,
    AS_IF_EMPTY,
    ASSIGNMENT_COLUMNS,
    BALANCED,
    FRESH,
    GROW,
    KEEP,
    LIKES,
    MIXED,
    MOST_LAYERS,
    NOT_ALONE,
    REPLACE,
    Answer,
    Extent,
    Search,
    empty_answer,
    empty_search,
)
from tidegate.engine.topology.usage import add_assignments, remove_assignments
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.observed_status import Spot
from tidegate.model.queues import TopologyRule, footprint_of
from tidegate.model.struct import Resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import PodSet, SliceRule, SpreadRule, TopologyRequest
from tidegate.state.column_table import NONE
from tidegate.state.tables import domain_assignments
from tidegate.state.topology import Topology

#: Workers and leader.
_PAIR = 2


def options_of(rule: TopologyRule) -> int:
    """The topology policy as options of the kernels."""
    return MIXED * rule.mixed | LIKES * rule.likes | BALANCED * rule.balanced


class Wanted(NamedTuple):
    """What one pod set requests of the topology of a flavor."""

    pod_set: PodSet
    flavor: str
    pods: int
    amounts: Resources | None = None  # what one pod takes of its node, in the units of quota; None: its footprint
    is_implied: bool = False  # it requests no topology, but its queue places everything by topology
    held: tuple[Spot, ...] = ()  # assignments it has, or had in the work that it replaces


class Shortfall(NamedTuple):
    """How much was missing, and why nodes were not taken."""

    pod_sets: tuple[str, ...]  # the set that did not fit
    fits: int  # slices that would fit
    needed: int  # slices
    size: int  # pods in a slice
    level: str
    layers: tuple[tuple[str, int, int], ...]  # with several layers of slices: level, slices that fit, slices needed
    nodes: int  # looked at
    tainted: int  # not taken for a taint
    unmatched: int  # for labels
    external: int  # for being in another domain than the rest
    lacking: Resources  # where not one pod fits, by the resource that is short


class Found(NamedTuple):
    """The assignments of each pod set by its name, until one does not fit: then why."""

    failure: TopologyFailure
    assignments: dict[str, tuple[Spot, ...]]
    shortfall: Shortfall | None


class TopologySearch:
    """Searches in one topology. Buffers are kept between them, and nothing else."""

    def __init__(self, topology: Topology, rule: TopologyRule | None = None) -> None:
        self.topology = topology
        self.rule = rule or TopologyRule()
        self._extent: Extent | None = None
        self._search: Search
        self._answer: Answer

    def find(self, wanted: Sequence[Wanted], *, as_if_empty: bool = False) -> Found:
        """Find assignments for the pod sets of one workload, each seeing what those before took.

        Pod sets go flavor by flavor. `as_if_empty` looks as if nothing of ours were there: whether it could ever fit.
        """
        asked = [_question(self.topology, group, wanted, self.rule) for group in _groups(wanted)]
        return self._answer_to(asked, wanted, as_if_empty=as_if_empty)

    def replace(self, wanted: Sequence[Wanted], failed: str, *, stays: bool = False) -> Found:
        """Find assignments for pod sets of which a node failed; those on other nodes stay. `stays`: all do."""
        hit = [place for place, one in enumerate(wanted) if not stays and _lost(one, failed)]
        asked = [_replacement(self.topology, wanted[place], place, failed) for place in hit]
        found = self._answer_to(asked, wanted, as_if_empty=False)
        kept = {one.pod_set.name: one.held for place, one in enumerate(wanted) if place not in hit}
        return (
            found._replace(assignments={**found.assignments, **kept})
            if found.failure is TopologyFailure.NONE
            else found
        )

    def add(self, flavor: str, assignments: Sequence[Spot], amounts: Resources) -> None:
        """Take these assignments."""
        rows = assignment_rows(self.topology, flavor, assignments, amounts)
        active(add_assignments)(self.topology.arrays(), rows, 0, len(rows))

    def remove(self, flavor: str, assignments: Sequence[Spot], amounts: Resources) -> None:
        """Release these assignments."""
        rows = assignment_rows(self.topology, flavor, assignments, amounts)
        active(remove_assignments)(self.topology.arrays(), rows, 0, len(rows))

    def _answer_to(self, asked: Sequence[Question], wanted: Sequence[Wanted], *, as_if_empty: bool) -> Found:
        question_rows, held = _stack(asked)
        search, answer = self._room_for(
            int(question_rows[:, questions.COUNT].sum()) + 2 * (len(question_rows) + len(held))
        )
        options = options_of(self.rule) | (AS_IF_EMPTY if as_if_empty else 0)
        code = TopologyFailure(active(find_gang)(self.topology.arrays(), search, question_rows, held, options, answer))
        placed = question_rows if code is TopologyFailure.NONE else question_rows[: answer.numbers[answers.QUESTION]]
        missing = None if code is TopologyFailure.NONE else self._shortfall(code, question_rows, wanted)
        return Found(code, self._assignments(placed, wanted, answer), missing)

    def _room_for(self, assignments: int) -> tuple[Search, Answer]:
        """Buffers for a search, made again if they are too small."""
        topology, had = self.topology, self._extent
        resources, leaves = len(topology.resources), topology.leaves.top
        if had is None or had.assignments < 2 * assignments or had.resources < resources:
            extent = Extent(topology.domains.top, leaves, topology.trees.axes["level"], resources, 2 * assignments + 64)
            self._extent, self._search, self._answer = extent, empty_search(extent), empty_answer(extent)
        return self._search, self._answer

    def _assignments(self, placed: I64, wanted: Sequence[Wanted], answer: Answer) -> dict[str, tuple[Spot, ...]]:
        sets = placed[:, [questions.SET, questions.LEADER_SET]]
        made: dict[str, list[Spot]] = {wanted[place].pod_set.name: [] for place in sets[sets >= 0].tolist()}
        for row in answer.assignments[: answer.written[0]].tolist():
            one = wanted[row[domain_assignments.POD_SET]]
            tree = self.topology.flavors[one.flavor]
            made[one.pod_set.name].append(
                self.topology.assignment(row[domain_assignments.LEAF], tree, row[domain_assignments.COUNT])
            )
        return {name: tuple(assignments) for name, assignments in made.items()}

    def _shortfall(self, code: TopologyFailure, question_rows: I64, wanted: Sequence[Wanted]) -> Shortfall:
        answer = self._answer
        numbers = answer.numbers.tolist()
        question = question_rows[numbers[answers.QUESTION]].tolist()
        sets = [question[questions.SET]] + (
            [question[questions.LEADER_SET]] if question[questions.LEADER_SET] >= 0 else []
        )
        if code in (TopologyFailure.LACKS_ROOM, TopologyFailure.LACKS_LEADER):
            question = self._search.question.tolist()  # for the unassigned pods
        levels = self.topology.levels[question[questions.TREE]] if question[questions.TREE] >= 0 else ("",)
        layers = [
            (
                levels[question[questions.SLICE_LEVEL + layer]],
                numbers[answers.LAYER + layer],
                question[questions.COUNT] // size,
            )
            for layer, size in enumerate(question[questions.SIZE : questions.SIZE + question[questions.LAYERS]])
        ]
        return Shortfall(
            pod_sets=tuple(wanted[place].pod_set.name for place in sorted(sets)),
            fits=numbers[answers.FITS],
            needed=numbers[answers.NEEDED],
            size=numbers[answers.SIZE],
            level=levels[numbers[answers.LEVEL]],
            layers=tuple(layers) if len(layers) > 1 else (),
            nodes=numbers[answers.NODES],
            tainted=numbers[answers.TAINTED],
            unmatched=numbers[answers.UNMATCHED],
            external=numbers[answers.EXTERNAL],
            lacking=tuple(
                (name, int(answer.lacking[place]))
                for name, place in sorted(self.topology.resources.items())
                if answer.lacking[place]
            ),
        )


class Question(NamedTuple):
    """A question for the kernels, and the assignments that belong to it."""

    row: I64
    held: I64  # (assignments, ASSIGNMENT_COLUMNS): those of the workers, then those of the leader


def assignment_rows(
    topology: Topology, flavor: str, assignments: Sequence[Spot], amounts: Resources, pod_set: int = 0
) -> I64:
    """Assignments as kernels read them; NONE for those in domains that are gone."""
    rows = np.zeros((len(assignments), ASSIGNMENT_COLUMNS), np.int64)
    kind, tree = topology.kind_of(amounts), topology.flavors[flavor]
    for row, assignment in zip(rows, assignments, strict=True):
        row[domain_assignments.LEAF], row[domain_assignments.COUNT] = (
            topology.leaf_of(tree, assignment.values),
            assignment.count,
        )
        row[domain_assignments.POD_SET], row[domain_assignments.KIND] = pod_set, kind
    return rows


def question_of(topology: Topology, workers: Wanted, leader: Wanted | None = None) -> I64:
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
    row[questions.KIND], row[questions.FILTER] = (
        topology.kind_of(_amounts(workers)),
        topology.filter_of(workers.pod_set, tree),
    )
    if leader is not None:
        row[questions.LEADER_KIND] = topology.kind_of(_amounts(leader))
    return row


def _amounts(wanted: Wanted) -> Resources:
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
    row[questions.SPREAD_LEVEL], row[questions.SPREAD_MOST], row[questions.SPREAD_MUST] = (
        level,
        max(rule.most, 1),
        rule.required,
    )
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


def _groups(wanted: Sequence[Wanted]) -> list[tuple[int, ...]]:
    """Indices of the pod sets that are placed together: by flavor, then in the order they come."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(wanted):
        group = one.pod_set.topology.group
        groups.setdefault((one.flavor, f"={group}" if group else str(place)), []).append(place)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    # A group is a pair. Any further set that names it, against the rules, is placed alone.
    return [pair for _, places in ordered for pair in (tuple(places[:_PAIR]), *((p,) for p in places[_PAIR:]))]


def _question(topology: Topology, group: tuple[int, ...], wanted: Sequence[Wanted], rule: TopologyRule) -> Question:
    """The question of a pod set or group; of two, the larger one are the workers."""
    first, second = group[0], group[1] if len(group) == _PAIR else None
    if second is not None and wanted[second].pods > wanted[first].pods:
        first, second = second, first
    workers, leader = wanted[first], wanted[second] if second is not None else None
    row = question_of(topology, workers, leader)
    row[questions.MODE], row[questions.SET], row[questions.LEADER_SET] = (
        FRESH,
        first,
        second if second is not None else NONE,
    )
    question = Question(row, np.zeros((0, ASSIGNMENT_COLUMNS), np.int64))
    if rule.elastic and workers.held and row[questions.CODE] == TopologyFailure.NONE:
        question = _kept(topology, question, workers, leader)
    return question


def _kept(topology: Topology, question: Question, workers: Wanted, leader: Wanted | None) -> Question:
    """Keep the assignments of the replaced work, as far as they are still needed; if one is gone, ask without them."""
    row = question.row.copy()
    kept = cut_assignments(workers.held, workers.pods)
    held = assignment_rows(topology, workers.flavor, workers.held, _amounts(workers), int(row[questions.SET]))
    lead = np.zeros((0, ASSIGNMENT_COLUMNS), np.int64)
    if leader is not None:
        lead = assignment_rows(topology, leader.flavor, leader.held, _amounts(leader), int(row[questions.LEADER_SET]))
    if (held[:, domain_assignments.LEAF] == NONE).any() or (lead[:, domain_assignments.LEAF] == NONE).any():
        return question
    row[questions.MODE] = GROW if sum(assignment.count for assignment in workers.held) < workers.pods else KEEP
    if row[questions.MODE] == KEEP and leader is not None and not leader.held:
        return question  # a leader without an assignment needs a search
    held = assignment_rows(topology, workers.flavor, kept, _amounts(workers), int(row[questions.SET]))
    row[questions.HELD], row[questions.LEADER_HELD] = len(held), len(lead)
    return Question(row, np.concatenate([held, lead]))


def _lost(one: Wanted, failed: str) -> int:
    """Pods on a failed node."""
    return sum(assignment.count for assignment in one.held if assignment.values[-1] == failed)


def _replacement(topology: Topology, one: Wanted, place: int, failed: str) -> Question:
    """The question of a pod set of which a node failed."""
    row = question_of(topology, one)
    kept = [assignment for assignment in one.held if assignment.values[-1] != failed]
    row[questions.MODE], row[questions.SET], row[questions.LEADER_SET] = REPLACE, place, NONE
    row[questions.HELD], row[questions.LOST] = len(kept), _lost(one, failed)
    return Question(row, assignment_rows(topology, one.flavor, kept, _amounts(one), place))


def cut_assignments(assignments: Sequence[Spot], count: int) -> tuple[Spot, ...]:
    """The first assignments, until they hold this many pods."""
    kept, left = [], count
    for assignment in assignments:
        if left > 0:
            kept.append(Spot(values=assignment.values, count=min(assignment.count, left)))
            left -= assignment.count
    return tuple(kept)


def _stack(asked: Sequence[Question]) -> tuple[I64, I64]:
    """All questions, and the assignments that belong to them, as kernels read them."""
    question_rows = np.array([question.row for question in asked], np.int64).reshape(-1, questions.COLUMNS)
    held = np.concatenate([np.zeros((0, ASSIGNMENT_COLUMNS), np.int64), *(question.held for question in asked)])
    question_rows[:, questions.FIRST_HELD] = np.cumsum([0, *(len(question.held) for question in asked)])[:-1]
    return question_rows, held
