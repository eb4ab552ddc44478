"""Pods at the places that the world shows, many at a time: after a restart there are a hundred thousand.

Must not know: who put them there.
"""

from __future__ import annotations

from tidegate.engine.kernels.chain import unlink
from tidegate.engine.kernels.fit import lowest_idle, refusal, take_place
from tidegate.engine.kernels.registry import kernel
from tidegate.model.columns import I64
from tidegate.model.reasons import Reason
from tidegate.state.cluster import Hot
from tidegate.state.tables import J_PHASE, J_SINCE, Phase

#: Columns of what is shown: the workload's row, the pod's ordinal, the node's row, the pod's class, whether it takes
#: whole devices; and whether it has its place now.
X_WORKLOAD, X_ORDINAL, X_NODE, X_CLASS, X_WHOLE, X_THERE = range(6)

NODE_IS_DOWN = int(Reason.NODE_DOWN)
PENDING, ASSUMED = int(Phase.PENDING), int(Phase.ASSUMED)


@kernel
def show_places(hot: Hot, shown: I64, now_ms: int) -> None:
    """Let pods that have no place yet have the one that the world shows, where their node has the room."""
    for i in range(len(shown)):
        j, n, k = shown[i, X_WORKLOAD], shown[i, X_NODE], shown[i, X_CLASS]
        shown[i, X_THERE] = 0
        if k < 0:
            continue
        code = refusal(hot, k, n)
        if code != 0 and code != NODE_IS_DOWN:  # noqa: PLR1714 - a tuple would be made for each
            continue
        if hot.workloads[j, J_PHASE] == PENDING:
            unlink(hot, j)
            hot.workloads[j, J_PHASE], hot.workloads[j, J_SINCE] = ASSUMED, now_ms
        devices = lowest_idle(hot, k, n) if shown[i, X_WHOLE] > 0 else 0
        take_place(hot, k, n, devices, j, shown[i, X_ORDINAL], -1)
        shown[i, X_THERE] = 1
