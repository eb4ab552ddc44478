"""Searches in one topology, outside of a cycle: the names and labels of pod sets in, domain assignments by name out.

Tests and benchmarks compare its answers with Kueue's published cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.columns import answers, questions
from tidegate.engine.topology.query import PodSetQuery, amounts_of, options_of, question_of
from tidegate.engine.topology.search import find_gang
from tidegate.engine.topology.search_buffers import (
    AS_IF_EMPTY,
    ASSIGNMENT_COLUMNS,
    FRESH,
    GROW,
    KEEP,
    REPLACE,
    DomainSearch,
    TopologyAnswer,
    TopologyExtent,
    empty_answer,
    empty_search,
)
from tidegate.engine.topology.usage import move_assignments
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.observed_status import DomainAssignment
from tidegate.model.queues import TopologyRule
from tidegate.model.struct import Resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.state.column_table import NONE
from tidegate.state.tables import domain_assignments
from tidegate.state.topology import Topology

#: Workers and leader.
_PAIR = 2


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
    assignments: dict[str, tuple[DomainAssignment, ...]]
    shortfall: Shortfall | None


class TopologySearch:
    """Searches in one topology. Buffers are kept between them, and nothing else."""

    def __init__(self, topology: Topology, rule: TopologyRule | None = None) -> None:
        self.topology = topology
        self.rule = rule or TopologyRule()
        self._extent: TopologyExtent | None = None
        self._search: DomainSearch
        self._answer: TopologyAnswer

    def find(self, wanted: Sequence[PodSetQuery], *, as_if_empty: bool = False) -> Found:
        """Find assignments for the pod sets of one workload, each seeing what those before took.

        Pod sets go flavor by flavor. `as_if_empty` looks as if nothing of ours were there: whether it could ever fit.
        """
        asked = [_question(self.topology, group, wanted, self.rule) for group in _groups(wanted)]
        return self._answer_to(asked, wanted, as_if_empty=as_if_empty)

    def replace(self, wanted: Sequence[PodSetQuery], failed: str, *, stays: bool = False) -> Found:
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

    def add(self, flavor: str, assignments: Sequence[DomainAssignment], amounts: Resources) -> None:
        """Take these assignments."""
        rows = assignment_rows(self.topology, flavor, assignments, amounts)
        active(move_assignments)(self.topology.arrays(), rows, 0, len(rows), -1)

    def remove(self, flavor: str, assignments: Sequence[DomainAssignment], amounts: Resources) -> None:
        """Release these assignments."""
        rows = assignment_rows(self.topology, flavor, assignments, amounts)
        active(move_assignments)(self.topology.arrays(), rows, 0, len(rows), 1)

    def _answer_to(self, asked: Sequence[Question], wanted: Sequence[PodSetQuery], *, as_if_empty: bool) -> Found:
        question_rows, held = _stack(asked)
        search, answer = self._room_for(
            int(question_rows[:, questions.COUNT].sum()) + 2 * (len(question_rows) + len(held))
        )
        options = options_of(self.rule) | (AS_IF_EMPTY if as_if_empty else 0)
        code = TopologyFailure(active(find_gang)(self.topology.arrays(), search, question_rows, held, options, answer))
        placed = question_rows if code is TopologyFailure.NONE else question_rows[: answer.numbers[answers.QUESTION]]
        missing = None if code is TopologyFailure.NONE else self._shortfall(code, question_rows, wanted)
        return Found(code, self._assignments(placed, wanted, answer), missing)

    def _room_for(self, assignments: int) -> tuple[DomainSearch, TopologyAnswer]:
        """Buffers for a search, made again if they are too small."""
        topology, had = self.topology, self._extent
        resources, leaves = len(topology.resources), topology.leaves.top
        if had is None or had.assignments < 2 * assignments or had.resources < resources:
            extent = TopologyExtent(
                topology.domains.top, leaves, topology.trees.axes["level"], resources, 2 * assignments + 64
            )
            self._extent, self._search, self._answer = extent, empty_search(extent), empty_answer(extent)
        return self._search, self._answer

    def _assignments(
        self, placed: I64, wanted: Sequence[PodSetQuery], answer: TopologyAnswer
    ) -> dict[str, tuple[DomainAssignment, ...]]:
        sets = placed[:, [questions.SET, questions.LEADER_SET]]
        made: dict[str, list[DomainAssignment]] = {wanted[place].pod_set.name: [] for place in sets[sets >= 0].tolist()}
        for row in answer.assignments[: answer.written[0]].tolist():
            one = wanted[row[domain_assignments.POD_SET]]
            tree = self.topology.flavors[one.flavor]
            made[one.pod_set.name].append(
                self.topology.assignment(row[domain_assignments.LEAF], tree, row[domain_assignments.COUNT])
            )
        return {name: tuple(assignments) for name, assignments in made.items()}

    def _shortfall(self, code: TopologyFailure, question_rows: I64, wanted: Sequence[PodSetQuery]) -> Shortfall:
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
    topology: Topology, flavor: str, assignments: Sequence[DomainAssignment], amounts: Resources, pod_set: int = 0
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


def _groups(wanted: Sequence[PodSetQuery]) -> list[tuple[int, ...]]:
    """Indices of the pod sets that are placed together: by flavor, then in the order they come."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(wanted):
        group = one.pod_set.topology.group
        groups.setdefault((one.flavor, f"={group}" if group else str(place)), []).append(place)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    # A group is a pair. Any further set that names it, against the rules, is placed alone.
    return [pair for _, places in ordered for pair in (tuple(places[:_PAIR]), *((p,) for p in places[_PAIR:]))]


def _question(
    topology: Topology, group: tuple[int, ...], wanted: Sequence[PodSetQuery], rule: TopologyRule
) -> Question:
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


def _kept(topology: Topology, question: Question, workers: PodSetQuery, leader: PodSetQuery | None) -> Question:
    """Keep the assignments of the replaced work, as far as they are still needed; if one is gone, ask without them."""
    row = question.row.copy()
    kept = cut_assignments(workers.held, workers.pods)
    held = assignment_rows(topology, workers.flavor, workers.held, amounts_of(workers), int(row[questions.SET]))
    lead = np.zeros((0, ASSIGNMENT_COLUMNS), np.int64)
    if leader is not None:
        lead = assignment_rows(topology, leader.flavor, leader.held, amounts_of(leader), int(row[questions.LEADER_SET]))
    if (held[:, domain_assignments.LEAF] == NONE).any() or (lead[:, domain_assignments.LEAF] == NONE).any():
        return question
    row[questions.MODE] = GROW if sum(assignment.count for assignment in workers.held) < workers.pods else KEEP
    if row[questions.MODE] == KEEP and leader is not None and not leader.held:
        return question  # a leader without an assignment needs a search
    held = assignment_rows(topology, workers.flavor, kept, amounts_of(workers), int(row[questions.SET]))
    row[questions.HELD], row[questions.LEADER_HELD] = len(held), len(lead)
    return Question(row, np.concatenate([held, lead]))


def _lost(one: PodSetQuery, failed: str) -> int:
    """Pods on a failed node."""
    return sum(assignment.count for assignment in one.held if assignment.values[-1] == failed)


def _replacement(topology: Topology, one: PodSetQuery, place: int, failed: str) -> Question:
    """The question of a pod set of which a node failed."""
    row = question_of(topology, one)
    kept = [assignment for assignment in one.held if assignment.values[-1] != failed]
    row[questions.MODE], row[questions.SET], row[questions.LEADER_SET] = REPLACE, place, NONE
    row[questions.HELD], row[questions.LOST] = len(kept), _lost(one, failed)
    return Question(row, assignment_rows(topology, one.flavor, kept, amounts_of(one), place))


def cut_assignments(assignments: Sequence[DomainAssignment], count: int) -> tuple[DomainAssignment, ...]:
    """The first assignments, until they hold this many pods."""
    kept, left = [], count
    for assignment in assignments:
        if left > 0:
            kept.append(DomainAssignment(values=assignment.values, count=min(assignment.count, left)))
            left -= assignment.count
    return tuple(kept)


def _stack(asked: Sequence[Question]) -> tuple[I64, I64]:
    """All questions, and the assignments that belong to them, as kernels read them."""
    question_rows = np.array([question.row for question in asked], np.int64).reshape(-1, questions.COLUMNS)
    held = np.concatenate([np.zeros((0, ASSIGNMENT_COLUMNS), np.int64), *(question.held for question in asked)])
    question_rows[:, questions.FIRST_HELD] = np.cumsum([0, *(len(question.held) for question in asked)])[:-1]
    return question_rows, held
