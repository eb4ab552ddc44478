"""Kernel warm-up: kernels are compiled before a replica seeks the Lease, so that a leader never stops to compile."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.engine.step import step
from tidegate.jit.cache_build import Build
from tidegate.jit.cache_files import open_store
from tidegate.jit.registry import use_compiled, use_plain
from tidegate.live.memory_tuning import give_back_library
from tidegate.model.facts import FactKind, Facts
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import Policy
from tidegate.model.struct import resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work, Workload
from tidegate.state.cluster import ClusterState

#: The compiler's library: a third of the memory of an idle process.
_COMPILER = "libllvmlite"

#: More work than the node of the trial has room for, so that some is pending and some may be preempted.
_WORKLOADS = 8


def compile_first(log: Callable[[int, int], None]) -> bool:
    """Compile all kernels, in one process for all replicas of a machine; whether they are compiled.

    If that process fails, the trial compiles what it needs.
    """
    build = Build(open_store())
    return build.is_ready() or (build.start() and build.wait(lambda progress: log(*progress)))


def warm_up(policy: Policy, *, compiled: bool) -> None:
    """Load the kernels that a policy needs, by a trial on a cluster of one node."""
    if not compiled:
        use_plain()
        return
    use_compiled()
    state = ClusterState()
    for now_ms, facts in enumerate(_trial(policy)):
        step(state, facts.batch(), now_ms)
    give_back_library(_COMPILER)


def _trial(policy: Policy) -> list[Facts]:
    opening, closing = Facts(), Facts()
    shape = NodeShape(name="trial", gpu_count=8, capacity=resources({"cpu": 10_000, "memory": 10_000, "pods": 10}))
    opening.policy(policy)
    opening.node(0, Node(name="trial", shape=shape))
    entrances = [entrance.id for entrance in policy.shares.entrances] + [queue.name for queue in policy.shares.queues]
    pods = PodSet(count=2, request=(("cpu", 10),), gpu=GpuRequest(share=Share.WHOLE, count=1))
    for number in range(_WORKLOADS):
        queue = entrances[number % len(entrances)] if entrances else "default"
        work = Work(queue=queue, priority=number, pod_sets=(pods,))
        (opening if number < _WORKLOADS - 1 else closing).submit(number, Workload(id=f"trial/{number}", work=work))
    closing.add(FactKind.POD_BOUND, 0, _WORKLOADS - 1, pod=0)  # as after a restart
    return [opening, closing]
