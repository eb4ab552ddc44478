"""`node_fit` and `node_score` of one pod class and one node, for many at once.

The plain run is slow by the row and quick by the column: a table of classes by nodes costs it little more than a cell.
Never compiled. Must agree with the kernels to the last bit, and is tested to.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.node_fit import (
    FRACTION,
    LACKS_CPU,
    LACKS_FRACTION,
    LACKS_GPU,
    LACKS_MEMORY,
    LACKS_RESOURCE,
    LACKS_SLOT,
    NODE_DOWN,
    POD_TOO_LARGE,
    WHOLE,
)
from tidegate.engine.kernels.node_score import MOST_SCORE, sums_part
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.score_table import TALLY_CODES
from tidegate.state.tables import nodes, pod_classes


def rescore(hot: Hot, rule: Rule, classes: I64, node_rows: I64) -> None:
    """`score_cache.rescore` by the rules that read only sums; GPU memory aside. A node may occur twice."""
    table = hot.scores
    # One column an attribute: those of nodes along the rows, those of classes across.
    node, pod = hot.nodes.take(node_rows, axis=0).T, hot.pod_classes.take(classes, axis=0).T[:, :, None]
    at = node[nodes.RANK]
    fresh = _scores(hot, rule, (classes, pod), (node_rows, node))
    table.score[classes[:, None], at] = fresh
    gangs = np.flatnonzero(pod[pod_classes.GANG])
    if len(gangs):
        fitting = _copies(hot, (classes[gangs], pod[:, gangs]), (node_rows, node))
        fitting[fresh[gangs] < 0] = 0
        table.copies[classes[gangs, None], at] = fitting
        table.headroom[classes[gangs]] = np.add.reduce(table.copies[classes[gangs]], axis=1)


def _scores(hot: Hot, rule: Rule, classes: tuple[I64, I64], node_rows: tuple[I64, I64]) -> I64:
    """`node_fit.refusal`, or `node_score.sums_score` if there is none."""
    (rows, pod), (at, node) = classes, node_rows
    gpus, share = pod[pod_classes.GPUS], pod[pod_classes.SHARE]
    cpu_free = np.maximum(node[nodes.CPU_FREE], 0)
    part = sums_part(rule, pod[pod_classes.CPU], gpus * pod[pod_classes.MILLI], cpu_free, node[nodes.LEFT_TOTAL])
    fresh: I64 = (MOST_SCORE * np.maximum(part, 0.0)).astype(np.int64)
    # The first Reason that holds is reported: it is written last.
    for e in range(hot.extra.shape[1]):
        np.putmask(fresh, np.maximum(hot.extra_free[at, e], 0) < hot.extra[rows, e, None], -LACKS_RESOURCE)
    _refuse(fresh, node[nodes.SLOTS_FREE] < 1, LACKS_SLOT)
    np.putmask(fresh, np.maximum(node[nodes.MEMORY_FREE], 0) < pod[pod_classes.MEMORY], -LACKS_MEMORY)
    np.putmask(fresh, cpu_free < pod[pod_classes.CPU], -LACKS_CPU)
    np.putmask(fresh, node[nodes.MOST_LEFT] < pod[pod_classes.MILLI] * (share == FRACTION), -LACKS_FRACTION)
    np.putmask(fresh, node[nodes.IDLE] < gpus * (share == WHOLE), -LACKS_GPU)
    _refuse(fresh, node[nodes.UP] == 0, NODE_DOWN)
    small = (
        (node[nodes.DEVICES] < gpus)
        | (node[nodes.CPU] < pod[pod_classes.CPU])
        | (node[nodes.MEMORY] < pod[pod_classes.MEMORY])
    )
    for e in range(hot.extra.shape[1]):
        small |= hot.extra_total[at, e] < hot.extra[rows, e, None]
    np.putmask(fresh, small, -POD_TOO_LARGE)
    _refuse(fresh, node[nodes.SLOTS] < 1, POD_TOO_LARGE)
    code = hot.match[rows].take(node[nodes.NODE_CLASS], axis=1)
    np.putmask(fresh, code != 0, -code)
    return fresh


def _refuse(fresh: I64, node_rows: npt.NDArray[np.bool_], reason: int) -> None:
    """Note that these nodes refuse every class."""
    if np.count_nonzero(node_rows):
        fresh[:, node_rows] = -reason


def _copies(hot: Hot, classes: tuple[I64, I64], node_rows: tuple[I64, I64]) -> I64:
    """`node_fit.copies_on`."""
    (rows, pod), (at, node) = classes, node_rows
    most: I64 = node[nodes.SLOTS_FREE]
    for free, amount in (
        (node[nodes.CPU_FREE], pod[pod_classes.CPU]),
        (node[nodes.MEMORY_FREE], pod[pod_classes.MEMORY]),
        (node[nodes.IDLE], pod[pod_classes.GPUS] * (pod[pod_classes.SHARE] == WHOLE)),
        *((hot.extra_free[at, e], hot.extra[rows, e, None]) for e in range(hot.extra.shape[1])),
    ):
        if np.count_nonzero(amount) == len(rows):
            most = np.minimum(most, free // amount)
        else:
            most = np.where(amount > 0, np.minimum(most, free // np.maximum(amount, 1)), most)
    for row in np.flatnonzero(pod[pod_classes.SHARE] == FRACTION).tolist():
        most[row] = np.minimum(most[row], np.maximum(hot.left[at] // pod[pod_classes.MILLI, row], 0).sum(axis=1))
    return most


def tally(hot: Hot, k: int) -> I64:
    """Nodes by Reason, from the scores of class k."""
    scored = hot.scores.score[k, : hot.scores.used[0]]
    return np.bincount(-np.minimum(scored, 0), minlength=TALLY_CODES)
