"""The file format `tidegate.yaml`: what may be written, field by field, as people write it.

Defaults are those of the specs, which `tidegate.model.build` makes of it.
Must not know: files, or whether the parts fit each other.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from tidegate.model.amounts import Cpu, Duration, GpuAmount, Memory, Portion, Span
from tidegate.model.hardware import TaintEffect
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.twin import TwinOptions
from tidegate.model.work import Work, WorkKind

#: Nodes, and workloads with all their copies, that one file may ask for: more would not fit in memory.
MOST_NODES = 200_000
MOST_WORKLOADS = 1_000_000

#: Pods a workload may have; the engine rejects more.
MOST_PODS = 100_000

#: The longest id, with the number of a copy.
LONGEST_ID = 253

#: The longest text in a free field.
LONGEST_FIELD = 253

# In Python, `$` alone would also match before a newline at the end.
_END = r"$(?!\n)"

_POLICY, _TWIN, _WORK = Policy(), TwinOptions(), Work()

Text = Annotated[str, Meta(max_length=LONGEST_FIELD)]
NonEmpty = Annotated[str, Meta(min_length=1, max_length=LONGEST_FIELD, extra={"expected": "text"})]
Seed = Annotated[int, Meta(ge=0, le=2**53)]
LabelKey = Annotated[str, Meta(pattern=r"^[A-Za-z0-9./_-]{1,253}" + _END, extra={"expected": "a label's name"})]
ResourceName = Annotated[
    str,
    Meta(
        pattern=r"^(?!(cpu|memory|pods|nvidia\.com/gpu)$)[A-Za-z0-9./_-]{1,253}" + _END,
        extra={"expected": "a resource other than cpu, memory, pods and GPUs, which have keys of their own"},
    ),
]
Labels = dict[LabelKey, Text]
Others = dict[ResourceName, Annotated[int, Meta(ge=0, le=1_000_000_000)]]


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping in the file."""


class TaintEntry(Entry, frozen=True):
    """A mark that keeps pods away unless they tolerate it."""

    key: Annotated[NonEmpty, Meta(description="The taint's key.")]
    value: Annotated[Text, Meta(description="Its value.")] = ""
    effect: Annotated[TaintEffect, Meta(description="What it does to a pod that does not tolerate it.")] = (
        TaintEffect.NO_SCHEDULE
    )


class ReservedEntry(Entry, frozen=True):
    """What each node keeps for the system."""

    cpu: Annotated[Cpu, Meta(description="CPU cores.")] = field(default_factory=Cpu)
    memory: Annotated[Memory, Meta(description="Memory.")] = field(default_factory=Memory)


class ShapeEntry(Entry, frozen=True):
    """What one machine of a pool has."""

    gpu: Annotated[Text, Meta(description='The GPU model, such as "h100".')] = ""
    gpus: Annotated[int, Meta(ge=0, le=16, description="GPUs per node.")] = 0
    gpu_memory: Annotated[Memory, Meta(description="Memory of each GPU.")] = field(default_factory=Memory)
    nvlink_group: Annotated[
        int, Meta(ge=0, le=16, description="GPUs that reach each other over NVLink; 0: not known.")
    ] = 0
    cpu: Annotated[Cpu, Meta(description="CPU cores.")] = field(default_factory=Cpu)
    memory: Annotated[Memory, Meta(description="Memory.")] = field(default_factory=Memory)
    pods: Annotated[int, Meta(ge=1, le=100_000, description="Pods that a node may run.")] = 110
    other: Annotated[Others, Meta(description="Other resources by name, counted in units.")] = field(
        default_factory=dict
    )
    reserved: Annotated[ReservedEntry, Meta(description="Kept for the system, never given to work.")] = field(
        default_factory=ReservedEntry
    )
    driver: Annotated[Text, Meta(description="The GPU driver's version.")] = ""
    runtime: Annotated[Text, Meta(description="The container runtime's version.")] = ""


class PoolEntry(Entry, frozen=True):
    """Nodes of one kind, named after the pool."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?" + _END,
            description="The pool's name. Nodes are called name-0000 and so on.",
            extra={"expected": "a name of up to 63 letters, digits, dots, dashes and underscores"},
        ),
    ]
    count: Annotated[int, Meta(ge=1, le=100_000, description="Nodes in the pool.")]
    shape: Annotated[ShapeEntry, Meta(description="What each node has.")] = field(default_factory=ShapeEntry)
    labels: Annotated[Labels, Meta(description="Labels of each node.")] = field(default_factory=dict)
    taints: Annotated[list[TaintEntry], Meta(description="Taints of each node.")] = field(default_factory=list)


class ClusterEntry(Entry, frozen=True):
    """The machines."""

    pools: Annotated[list[PoolEntry], Meta(description="The pools of nodes.")] = field(default_factory=list)


class OrderEntry(Entry, frozen=True):
    """Who goes first, with options."""

    kind: Annotated[OrderKind, Meta(description="The order.")] = OrderRule().kind
    strict: Annotated[bool, Meta(description="fifo: nobody passes a head that must wait.")] = OrderRule().strict
    limits: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=10**12)], ...],
        Meta(min_length=1, max_length=16, description="las: attained GPU-seconds at which work is demoted, rising."),
    ] = OrderRule().las_limits_gpu_s


class PlacementEntry(Entry, frozen=True):
    """Which of the nodes that fit is taken, with options."""

    kind: Annotated[PlacementKind, Meta(description="The choice.")] = PlacementRule().kind
    seed: Annotated[Seed, Meta(description="random: the seed.")] = PlacementRule().seed


class PolicyEntry(Entry, frozen=True):
    """What the engine is told to want."""

    name: Annotated[NonEmpty, Meta(description="The policy's name in reports.")] = _POLICY.name
    order: Annotated[OrderKind | OrderEntry, Meta(description="Who goes first.")] = OrderRule().kind
    placement: Annotated[PlacementKind | PlacementEntry, Meta(description="Which of the nodes that fit is taken.")] = (
        PlacementRule().kind
    )
    cycle: Annotated[Span, Meta(description="How often decisions are made.")] = field(
        default_factory=partial(Span, _POLICY.cycle_ms)
    )
    waits: Annotated[
        bool, Meta(description="Whether work waits for room; false: what does not fit at once is rejected.")
    ] = _POLICY.waits


class TwinEntry(Entry, frozen=True):
    """How the twin's machines and control plane behave."""

    seed: Annotated[Seed, Meta(description="Seed of everything random in the twin.")] = _TWIN.seed
    api_latency: Annotated[Duration, Meta(description="From a decision to its effect.")] = field(
        default_factory=partial(Duration, _TWIN.api_latency_ms)
    )
    start: Annotated[Duration, Meta(description="From a pod being bound to its start.")] = field(
        default_factory=partial(Duration, _TWIN.start_ms)
    )
    grace: Annotated[Duration, Meta(description="From a pod being told to go to its being gone.")] = field(
        default_factory=partial(Duration, _TWIN.grace_ms)
    )
    observe_every: Annotated[Span, Meta(description="How often use is observed.")] = field(
        default_factory=partial(Span, _TWIN.observe_every_ms)
    )
    node_fails_every: Annotated[Duration, Meta(description="Mean time between failures of a node; 0: never.")] = field(
        default_factory=partial(Duration, _TWIN.node_fails_every_ms)
    )
    node_repair: Annotated[Duration, Meta(description="How long the repair of a node takes.")] = field(
        default_factory=partial(Duration, _TWIN.node_repair_ms)
    )


class Comparison(StrEnum):
    """How a toleration compares, in Kubernetes' words."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TolerationEntry(Entry, frozen=True):
    """What taint a pod puts up with."""

    key: Annotated[Text, Meta(description="The taint's key; empty with Exists: any.")] = ""
    operator: Annotated[Comparison, Meta(description="Equal: the value must be equal; Exists: any value.")] = (
        Comparison.EQUAL
    )
    value: Annotated[Text, Meta(description="The taint's value.")] = ""
    effect: Annotated[
        Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
        Meta(description="The taint's effect; empty: any."),
    ] = ""


class PodsEntry(Entry, frozen=True):
    """Pods of one kind; all pods of a workload start together."""

    name: Annotated[NonEmpty, Meta(description="Its name, where there are several kinds.")] = "main"
    count: Annotated[int, Meta(ge=1, le=MOST_PODS, description="Pods of this kind.")] = 1
    gpus: Annotated[GpuAmount, Meta(description="GPUs of each pod; below 1: a part of one device.")] = field(
        default_factory=GpuAmount
    )
    gpu_memory: Annotated[Memory, Meta(description="Memory of each GPU that the pod takes.")] = field(
        default_factory=Memory
    )
    models: Annotated[list[NonEmpty], Meta(description="GPU models that will do; empty: any.")] = field(
        default_factory=list
    )
    cpu: Annotated[Cpu, Meta(description="CPU cores of each pod.")] = field(default_factory=Cpu)
    memory: Annotated[Memory, Meta(description="Memory of each pod.")] = field(default_factory=Memory)
    other: Annotated[Others, Meta(description="Other resources of each pod by name, counted in units.")] = field(
        default_factory=dict
    )
    selector: Annotated[Labels, Meta(description="Labels that a node must have.")] = field(default_factory=dict)
    tolerations: Annotated[list[TolerationEntry], Meta(description="Taints that the pods put up with.")] = field(
        default_factory=list
    )


class UseEntry(Entry, frozen=True):
    """What a workload does with its GPUs once it has them."""

    load: Annotated[Duration, Meta(description="Loading before the work, again after each restart.")] = field(
        default_factory=Duration
    )
    busy: Annotated[Portion, Meta(description="GPU busy time during the work, as a share.")] = field(
        default_factory=partial(Portion, 1000)
    )
    idle_tail: Annotated[Duration, Meta(description="Time after the work in which the GPUs are held idle.")] = field(
        default_factory=Duration
    )
    swing: Annotated[Portion, Meta(description="How far the busy share swings over a day, as a share.")] = field(
        default_factory=Portion
    )
    gpu_memory: Annotated[Memory, Meta(description="GPU memory held on each GPU.")] = field(default_factory=Memory)


class WorkEntry(Entry, frozen=True):
    """A workload, or several copies of one, that the twin submits."""

    id: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9._/-]{{1,{LONGEST_ID}}}" + _END,
            description="Its id; of copies the first part of their ids.",
            extra={"expected": f"an id of up to {LONGEST_ID} letters, digits, dots, dashes, slashes and underscores"},
        ),
    ]
    runtime: Annotated[Span, Meta(description="How long the work takes if never interrupted.")]
    queue: Annotated[NonEmpty, Meta(description="The queue it waits in.")] = _WORK.queue
    kind: Annotated[WorkKind, Meta(description="What it is for.")] = _WORK.kind
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, description="Higher goes first.")] = _WORK.priority
    submit: Annotated[Duration, Meta(description="When it is submitted, from the start.")] = field(
        default_factory=Duration
    )
    copies: Annotated[
        int, Meta(ge=1, le=MOST_WORKLOADS, description="How many of it; with more than one the ids are id-0, id-1, ….")
    ] = 1
    every: Annotated[Duration, Meta(description="Time from one copy to the next.")] = field(default_factory=Duration)
    pods: Annotated[
        PodsEntry | Annotated[list[PodsEntry], Meta(min_length=1, max_length=100)],
        Meta(description="Its pods: one kind, or a list of kinds with names."),
    ] = field(default_factory=PodsEntry)
    use: Annotated[UseEntry, Meta(description="What it does with its GPUs.")] = field(default_factory=UseEntry)
    checkpoint: Annotated[Duration, Meta(description="Time from checkpoint to checkpoint; 0: none.")] = field(
        default_factory=Duration
    )
    restart: Annotated[Duration, Meta(description="What a restart costs, beyond the work that is lost.")] = field(
        default_factory=Duration
    )
    fails_every: Annotated[Duration, Meta(description="Mean time between failures of a pod; 0: never.")] = field(
        default_factory=Duration
    )
    estimate: Annotated[Duration, Meta(description="The runtime its owner tells; 0: none.")] = field(
        default_factory=Duration
    )
    deadline: Annotated[Duration, Meta(description="When it must be done, from its submission; 0: never.")] = field(
        default_factory=Duration
    )
    tolerates_wait: Annotated[Duration, Meta(description="How long it can wait; 0: not told.")] = field(
        default_factory=Duration
    )
    preemptible: Annotated[bool, Meta(description="Whether it may be preempted.")] = _WORK.preemptible
    protected: Annotated[Duration, Meta(description="Runtime before which it may not be preempted.")] = field(
        default_factory=Duration
    )

    def pod_entries(self) -> list[PodsEntry]:
        """Its kinds of pods as a list."""
        return self.pods if isinstance(self.pods, list) else [self.pods]


class Document(Entry, frozen=True):
    """Tidegate's file: machines, policy, twin and work."""

    version: Annotated[Literal[1], Meta(description="The version of the format.")] = 1
    cluster: Annotated[ClusterEntry, Meta(description="The machines.")] = field(default_factory=ClusterEntry)
    policy: Annotated[PolicyEntry, Meta(description="What the engine is told to want.")] = field(
        default_factory=PolicyEntry
    )
    twin: Annotated[TwinEntry, Meta(description="How the twin behaves.")] = field(default_factory=TwinEntry)
    work: Annotated[list[WorkEntry], Meta(description="What is submitted.")] = field(default_factory=list)
