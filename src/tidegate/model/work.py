"""Work: what a pod requests, what starts together, what is submitted.

`Work` is the request, shared by all workloads that request the same; a `Workload` is one submission of it.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.model.hardware import Taint, TaintEffect
from tidegate.model.struct import Labels, Resources, Spec


class Share(StrEnum):
    """How much of a GPU a pod takes."""

    NONE = "none"
    WHOLE = "whole"
    MIG = "mig"
    FRACTION = "fraction"


class GpuRequest(Spec, frozen=True):
    """The GPUs one pod asks for."""

    share: Share = Share.NONE
    count: int = 0  # devices
    milli: int = 0  # of each device, with FRACTION
    memory_mib: int = 0  # of each device: taken with FRACTION, the least it must have with WHOLE; 0: any
    profile: str = ""  # with MIG
    models: tuple[str, ...] = ()  # allowed models, sorted; empty: any


class Operator(StrEnum):
    """How a node requirement compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class NodeRequirement(Spec, frozen=True):
    """One condition on a node label."""

    key: str
    operator: Operator = Operator.IN
    values: tuple[str, ...] = ()

    def holds(self, labels: dict[str, str]) -> bool:
        """Say whether a node with these labels meets the condition, as Kubernetes means it."""
        found = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return found is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return found is None
        if self.operator is Operator.NOT_IN:
            return found is None or found not in self.values
        if found is None:
            return False
        if self.operator is Operator.IN:
            return found in self.values
        return _compares(found, self.values, greater=self.operator is Operator.GREATER)


def _compares(found: str, bounds: tuple[str, ...], *, greater: bool) -> bool:
    try:
        value, bound = int(found), int(bounds[0])
    except (ValueError, IndexError):
        return False
    return value > bound if greater else value < bound


class NodeTerm(Spec, frozen=True):
    """Conditions that must all hold. A pod set with several terms needs one of them."""

    requirements: tuple[NodeRequirement, ...]

    def holds(self, labels: dict[str, str]) -> bool:
        """Say whether every condition holds; a term without conditions matches nothing, as in Kubernetes."""
        return bool(self.requirements) and all(r.holds(labels) for r in self.requirements)


class Toleration(Spec, frozen=True):
    """A taint that a pod tolerates. An empty key with `Exists` tolerates all."""

    key: str = ""
    operator: Operator = Operator.IN  # In: equal value; Exists: any value
    value: str = ""
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Say whether this toleration covers the taint."""
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.operator is Operator.EXISTS:
            return self.key in ("", taint.key)
        return self.key == taint.key and self.value == taint.value


class SliceRule(Spec, frozen=True):
    """Pods of a set that stay together, this many within one domain of the level."""

    level: str
    size: int


class SpreadRule(Spec, frozen=True):
    """At most so many pods of a set in one domain of the level, so that a failure there takes no more."""

    level: str
    most: int
    required: bool = True  # False: only where they all fit so


class TopologyRequest(Spec, frozen=True):
    """The level, a node label, that a pod set must or should stay within."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False  # anywhere, but placed by topology
    slices: tuple[SliceRule, ...] = ()  # widest first
    group: str = ""  # pod sets of one group are placed together, the leader with its workers
    spread: SpreadRule | None = None

    def __bool__(self) -> bool:
        """Say whether anything is asked for."""
        return bool(self.required or self.preferred or self.unconstrained or self.slices or self.spread)


class PreferredTerm(Spec, frozen=True):
    """Nodes that are better, and by how much."""

    weight: int
    term: NodeTerm


class PodSet(Spec, frozen=True):
    """Pods of one kind in a gang."""

    name: str = "main"
    count: int = 1
    min_count: int = 0  # partial admission; 0: all or nothing
    request: Resources = ()
    gpu: GpuRequest = GpuRequest()
    selector: Labels = ()
    terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[PreferredTerm, ...] = ()
    topology: TopologyRequest = TopologyRequest()
    charge: Resources | None = None  # what quota counts for one pod; None: what it requests
    footprint: Resources | None = None  # what one pod takes of its node, in quota's units; None: what quota counts


class WorkKind(StrEnum):
    """What the work is for: the classes of the demand model."""

    BATCH = "batch"
    TRAINING = "training"
    INTERACTIVE = "interactive"
    INFERENCE = "inference"


class Recovery(StrEnum):
    """What happens to running work that loses a pod, or the node of a pod."""

    GANG = "gang"  # all of it stops and is placed again whole
    PODS = "pods"  # the other pods go on, and the lost pod alone is placed again


class Work(Spec, frozen=True):
    """What is requested, shared by every workload that requests the same."""

    queue: str = "default"
    kind: WorkKind = WorkKind.BATCH
    priority: int = 0
    pod_sets: tuple[PodSet, ...] = (PodSet(),)
    preemptible: bool = True
    protected_ms: int = 0  # runtime before which it may not be preempted
    checkpoint_every_ms: int = 0  # 0: never
    restart_cost_ms: int = 0
    tolerated_wait_ms: int = 0  # 0: not known
    recovery: Recovery = Recovery.GANG


class Workload(Spec, frozen=True):
    """One submission of work."""

    id: str
    work: Work
    submitted_ms: int = 0
    estimate_ms: int = 0  # 0: unknown
