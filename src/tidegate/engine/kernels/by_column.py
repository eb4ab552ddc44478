"""What `fit` and `score` say of one node, said of many at once: the plain run is slow by the row, quick by the column.

Never compiled. Must agree with the kernels to the last bit, and is tested to.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.fit import (
    FRACTION,
    LACKS_CPU,
    LACKS_FRACTION,
    LACKS_GPU,
    LACKS_MEMORY,
    LACKS_RESOURCE,
    LACKS_SLOT,
    NODE_DOWN,
    WHOLE,
    fractions_on,
)
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.score import MOST_SCORE, sums_part
from tidegate.model.columns import I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import (
    C_CPU,
    C_GPUS,
    C_MEMORY,
    C_MILLI,
    C_SHARE,
    N_CPU_FREE,
    N_IDLE,
    N_LEFT_TOTAL,
    N_MEMORY_FREE,
    N_MOST_LEFT,
    N_NODE_CLASS,
    N_SLOTS_FREE,
    N_UP,
)


def refusals(hot: Hot, k: int, nodes: I64) -> I64:
    """`fit.refusal` of many nodes; GPU memory aside."""
    rows, pod = hot.nodes[nodes], hot.pod_classes[k]
    code = hot.match[k][rows[:, N_NODE_CLASS]]
    checks = [(rows[:, N_UP] == 0, NODE_DOWN)]
    if pod[C_SHARE] == WHOLE:
        checks.append((rows[:, N_IDLE] < pod[C_GPUS], LACKS_GPU))
    elif pod[C_SHARE] == FRACTION:
        checks.append((rows[:, N_MOST_LEFT] < pod[C_MILLI], LACKS_FRACTION))
    checks.append((rows[:, N_CPU_FREE] < pod[C_CPU], LACKS_CPU))
    checks.append((rows[:, N_MEMORY_FREE] < pod[C_MEMORY], LACKS_MEMORY))
    checks.append((rows[:, N_SLOTS_FREE] < 1, LACKS_SLOT))
    extras = np.flatnonzero(hot.extra[k]).tolist()
    checks.extend((hot.extra_free[nodes, e] < hot.extra[k, e], LACKS_RESOURCE) for e in extras)
    lacks = np.zeros(len(nodes), np.int64)
    for fails, reason in reversed(checks):  # the first that holds is told: it is written last
        lacks[fails] = reason
    return np.where(code != 0, code, lacks)


def sums_scores(hot: Hot, rule: Rule, k: int, nodes: I64) -> I64:
    """`score.sums_score` of many nodes."""
    rows = hot.nodes[nodes]
    part = sums_part(hot, rule, k, rows[:, N_CPU_FREE], rows[:, N_LEFT_TOTAL])
    scores: I64 = np.floor(MOST_SCORE * np.maximum(part, 0.0)).astype(np.int64)
    return scores


def copies(hot: Hot, k: int, nodes: I64) -> I64:
    """`fit.copies_on` of many nodes."""
    rows, pod = hot.nodes[nodes], hot.pod_classes[k]
    most = rows[:, N_SLOTS_FREE]
    if pod[C_CPU] > 0:
        most = np.minimum(most, rows[:, N_CPU_FREE] // pod[C_CPU])
    if pod[C_MEMORY] > 0:
        most = np.minimum(most, rows[:, N_MEMORY_FREE] // pod[C_MEMORY])
    for e in np.flatnonzero(hot.extra[k]).tolist():
        most = np.minimum(most, hot.extra_free[nodes, e] // hot.extra[k, e])
    if pod[C_SHARE] == WHOLE:
        most = np.minimum(most, rows[:, N_IDLE] // pod[C_GPUS])
    elif pod[C_SHARE] == FRACTION:
        most = np.minimum(most, [fractions_on(hot, k, n) for n in nodes.tolist()])
    return most
