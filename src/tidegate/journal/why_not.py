"""Why a node does not take a workload's pods: each requirement that the node does not meet, with numbers."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.engine.kernels.node_fit import refusal
from tidegate.jit.registry import active
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState


class NodeMismatch(NamedTuple):
    """Why a node does not take a pod of a pod set now."""

    pod_set: str
    reason: Reason  # NONE: it would take one
    asked: int
    free: int


def why_not(state: ClusterState, workload: int, node: int) -> list[NodeMismatch]:
    """For each pod set of a workload, why a node does not take one of its pods. Both are numbers of the journal."""
    row, at = state.workload_numbers.row(workload), state.node_numbers.row(node)
    works = list(state.work_class_rows)
    w = int(state.workloads.work_class[row])
    first, hot = int(state.work_classes.first_set[w]), state.hot()
    lacks = []
    for offset, pod_set in enumerate(works[w].pod_sets):
        k = int(state.pod_sets.pod_class[first + offset])
        reason = Reason(int(active(refusal)(hot, k, at)))
        lacks.append(NodeMismatch(pod_set.name, reason, *_amounts(state, reason, k, at)))
    return lacks


def _amounts(state: ClusterState, reason: Reason, k: int, n: int) -> tuple[int, int]:
    """What a pod of class k asks for of what node n lacks, and what is free of it."""
    classes, nodes = state.pod_classes, state.nodes
    amounts = {
        Reason.LACKS_GPU: (classes.gpus[k], nodes.idle[n]),
        Reason.LACKS_FRACTION: (classes.milli[k], nodes.most_left[n]),
        Reason.LACKS_GPU_MEMORY: (classes.vram[k], nodes.vram_left[n].max(initial=0)),
        Reason.LACKS_CPU: (classes.cpu[k], nodes.cpu_free[n]),
        Reason.LACKS_MEMORY: (classes.memory[k], nodes.memory_free[n]),
        Reason.LACKS_SLOT: (1, nodes.slots_free[n]),
    }
    asked, free = amounts.get(reason, (0, 0))
    return int(asked), max(int(free), 0)  # below zero where more is in use than there is
