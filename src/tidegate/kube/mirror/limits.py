"""Size limits of one workload: more is a mistake or an attack, and would cost time and memory."""

from __future__ import annotations

from tidegate.model.queues import charge_of
from tidegate.model.work import Work
from tidegate.state.classes import MOST_PODS

#: Arrays are as wide as the workload with the most pod sets and resources.
MOST_POD_SETS = 64
MOST_RESOURCES = 64

#: Selectors, tolerations and affinity terms of one pod are compared with every kind of node.
MOST_TERMS = 256


def excess(work: Work | None) -> tuple[str, ...]:
    """Which limits a workload exceeds, each with the field; empty if none."""
    if work is None:
        return ()
    found = []
    pods = sum(pod_set.count for pod_set in work.pod_sets)
    if pods > MOST_PODS:
        found.append(f"spec: asks for {pods:,} pods, at most {MOST_PODS:,}")
    if len(work.pod_sets) > MOST_POD_SETS:
        found.append(f"spec: has {len(work.pod_sets):,} pod sets, at most {MOST_POD_SETS}")
    most = max((len(charge_of(pod_set)) for pod_set in work.pod_sets[:MOST_POD_SETS]), default=0)
    if most > MOST_RESOURCES:
        found.append(f"containers: ask for {most:,} resources, at most {MOST_RESOURCES}")
    terms = max((_terms(work, at) for at in range(min(len(work.pod_sets), MOST_POD_SETS))), default=0)
    if terms > MOST_TERMS:
        found.append(f"spec: has {terms:,} node selectors, affinity terms and tolerations, at most {MOST_TERMS}")
    return tuple(found)


def _terms(work: Work, at: int) -> int:
    pod_set = work.pod_sets[at]
    required = sum(max(len(term.requirements), 1) for term in pod_set.terms)
    return len(pod_set.selector) + len(pod_set.tolerations) + required + len(pod_set.preferred)
