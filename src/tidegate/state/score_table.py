"""The score table: how good each node is for each pod class, refreshed only where nodes changed.

A cache. It can be thrown away at any time, is no part of the digest, and must never change a decision. Positions are
ranks of nodes, so that the first best is the one with the lowest rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I32, I64
from tidegate.model.reasons.catalogue import CODES_END

#: Positions that share one maximum.
BLOCK = 64

#: Codes a tally can hold: every Reason there is, so that none is counted out of bounds.
TALLY_CODES = CODES_END

#: A cursor of a row in which nothing is valid yet.
STALE = -1


class Scores(NamedTuple):
    """Scores by pod class and rank of node, and what is derived from them."""

    score: I32  # (classes, positions): >= 0 the higher the better, < 0 minus the Reason it does not fit
    block: I32  # (classes, blocks): the highest score in each block
    tally: I64  # (classes, TALLY_CODES): nodes by Reason; 0 counts those that fit
    counted: I64  # (classes,): the cursor at which the tally was counted, if that is left until it is read
    copies: I32  # (classes, positions): pods of a gang class that would fit on the node alone
    headroom: I64  # (classes,): sum of the copies
    cursor: I64  # (classes,): changes of nodes that the row has seen
    seen: I64  # (1,): changes of nodes that some row has seen
    whole: I64  # (1,): 1 if blocks and tallies are kept up with the scores; the plain run does not
    at_rank: I64  # (positions,): node with that rank, -1 beyond the last
    used: I64  # (1,): how many nodes there are
    spread: I64  # (devices,): scratch for what a place leaves on the devices
    worth: F64  # (nodes,): what the placement rule keeps for each node
    device_worth: F64  # (nodes,): the part of it that is the devices'
    shared: I32  # (sizes, nodes): the score that all classes of one size share, where the rule reads devices
    shared_at: I64  # (sizes, nodes): one more than the node's `changed_at` when it was computed; STALE: never
    fractions: I64  # (nodes, sizes): copies of each priced fraction that its devices could take
    worth_at: I64  # (nodes,): one more than the node's `changed_at` when `worth` was computed; STALE: never

    def holds(self, pod_class: int, size: int) -> bool:
        """Whether there is room for a new pod class of this size."""
        return pod_class < len(self.cursor) and size < len(self.shared)


class ScoreTableSize(NamedTuple):
    """The size of a table, besides the nodes."""

    classes: int  # of pods
    sizes: int  # of pods
    devices: int  # of a node
    fractions: int  # that are priced


def empty_scores(ranks: I64, extent: ScoreTableSize) -> Scores:
    """A table in which nothing is valid yet. `ranks` has the rank of each node row, -1 for none."""
    used = np.flatnonzero(ranks >= 0)
    blocks = -(-max(len(used), 1) // BLOCK)
    positions = blocks * BLOCK
    at_rank = np.full(positions, -1, np.int64)
    at_rank[ranks[used]] = used
    return Scores(
        score=np.full((extent.classes, positions), -1, np.int32),
        block=np.full((extent.classes, blocks), -1, np.int32),
        tally=np.zeros((extent.classes, TALLY_CODES), np.int64),
        counted=np.full(extent.classes, STALE, np.int64),
        copies=np.zeros((extent.classes, positions), np.int32),
        headroom=np.zeros(extent.classes, np.int64),
        cursor=np.full(extent.classes, STALE, np.int64),
        seen=np.zeros(1, np.int64),
        whole=np.zeros(1, np.int64),
        at_rank=at_rank,
        used=np.array([len(used)], np.int64),
        spread=np.zeros(extent.devices, np.int64),
        worth=np.zeros(len(ranks), np.float64),
        device_worth=np.zeros(len(ranks), np.float64),
        shared=np.zeros((extent.sizes, len(ranks)), np.int32),
        shared_at=np.full((extent.sizes, len(ranks)), STALE, np.int64),
        fractions=np.zeros((len(ranks), extent.fractions), np.int64),
        worth_at=np.full(len(ranks), STALE, np.int64),
    )
