"""Input and output of a topology search: the question as a row of numbers, buffers, and the answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.columns import answers, balanced_steps, choice, domain_capacity, questions
from tidegate.model.arrays import I64

#: Layers of slices, one inside the other, that can be placed.
MOST_LAYERS = 3


#: Whether slices are all that is requested: no; yes; or yes, and pods may go anywhere.
NOT_ALONE, ALONE, ANYWHERE_TOO = range(3)

#: Modes of a question: place all pods; keep what is held; place more next to it; replace what was lost.
FRESH, KEEP, GROW, REPLACE = range(4)

#: Options of a search, bits. Kueue's gates: TASProfileMixed, TASRespectNodeAffinityPreferred, TASBalancedPlacement;
#: whether to look as if nothing of ours were there; and whether a leaf takes no more pods of a set than `Search.most`.
MIXED, LIKES, BALANCED, AS_IF_EMPTY, LIMITED = 1, 2, 4, 8, 16

#: Columns of what is held, and of what was found or is assumed during a search: the first of an assignment's.
ASSIGNMENT_COLUMNS = 4


class DomainSearch(NamedTuple):
    """Buffers of a search. Nothing of it is kept between two searches."""

    room: I64  # (domains, domain_capacity.COLUMNS)
    spare: I64  # the same, as it was before the balanced search tried things
    order: I64  # (domains,): domains to choose from, mostly a heap
    chosen: I64  # (domains,): domains chosen at a level
    after: I64  # (domains,): and at the next level
    mark: I64  # (domains,): zeros between uses
    there: (
        I64  # (domains,): pods of the same set that stay in a domain, where they are to be spread; zeros between uses
    )
    pods_at: I64  # (leaves,): zeros between uses
    inner: I64  # (levels + 1,): pods of the inner slice that holds at each level; 0: none
    span: I64  # (levels + 1, 2): consecutive domains below one domain, by level
    question: I64  # (questions.COLUMNS,): a question, changed
    assumed: I64  # (assignments, ASSIGNMENT_COLUMNS): what the pod sets before took
    steps: I64  # (steps, balanced_steps.COLUMNS)
    heads: I64  # (2 * domains + 2,): first step of each kind
    buckets: I64  # (a power of two,): first step of each hash
    said: I64  # (choice.COLUMNS,): what a part of the search returns next to its value
    most: I64  # (sets, leaves): the most pods of each set that a leaf takes, where the search is limited


class TopologyAnswer(NamedTuple):
    """The assignments of the pods, or how much was missing."""

    assignments: I64  # (assignments, ASSIGNMENT_COLUMNS): set by set, by leaf
    written: I64  # (1,): rows written
    numbers: I64  # (answers.COLUMNS,)
    lacking: I64  # (resources,): nodes where not one pod fits, by the resource that is short


class TopologyExtent(NamedTuple):
    """How much a search must be able to hold."""

    domains: int
    leaves: int
    levels: int
    resources: int
    assignments: int  # pods of one workload, those it holds included: none has more assignments than pods
    sets: int = 0  # of one workload, where searches are limited


def empty_search(extent: TopologyExtent) -> DomainSearch:
    """Buffers for searches."""
    domains, steps = max(extent.domains, 1), max(1 << 14, 64 * extent.domains)
    return DomainSearch(
        room=np.zeros((domains, domain_capacity.COLUMNS), np.int64),
        spare=np.zeros((domains, domain_capacity.COLUMNS), np.int64),
        order=np.zeros(domains, np.int64),
        chosen=np.zeros(domains, np.int64),
        after=np.zeros(domains, np.int64),
        mark=np.zeros(domains, np.int64),
        there=np.zeros(domains, np.int64),
        pods_at=np.zeros(max(extent.leaves, 1), np.int64),
        inner=np.zeros(extent.levels + 1, np.int64),
        span=np.zeros((extent.levels + 1, 2), np.int64),
        question=np.zeros(questions.COLUMNS, np.int64),
        assumed=np.zeros((extent.assignments, ASSIGNMENT_COLUMNS), np.int64),
        steps=np.zeros((steps, balanced_steps.COLUMNS), np.int64),
        heads=np.zeros(2 * domains + 2, np.int64),
        buckets=np.zeros(1 << (steps - 1).bit_length(), np.int64),
        said=np.zeros(choice.COLUMNS, np.int64),
        most=np.zeros((extent.sets, max(extent.leaves, 1)), np.int64),
    )


def empty_answer(extent: TopologyExtent) -> TopologyAnswer:
    """An empty answer of a search."""
    return TopologyAnswer(
        assignments=np.zeros((extent.assignments, ASSIGNMENT_COLUMNS), np.int64),
        written=np.zeros(1, np.int64),
        numbers=np.zeros(answers.COLUMNS, np.int64),
        lacking=np.zeros(max(extent.resources, 1), np.int64),
    )
