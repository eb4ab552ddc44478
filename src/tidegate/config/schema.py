"""The schema of `tidegate.yaml`: its keys, their types, defaults and descriptions.

Work and queues have modules of their own. Defaults are those of the specs, which `tidegate.config.convert` makes of it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from tidegate.config.quantities import Cpu, Duration, Memory, Portion, PositiveDuration
from tidegate.config.schema_base import END, ConfigEntry, Labels, NonEmpty, Others, Seed, TaintEntry, Text, amount
from tidegate.config.schema_queues import CohortEntry, FlavorEntry, QueueEntry, TopologyEntry, Undeclared, UsageEntry
from tidegate.config.schema_work import WorkEntry
from tidegate.model.policy import (
    AdmissionKind,
    OrderKind,
    OrderRule,
    PlacementKind,
    PlacementRule,
    Policy,
    WithoutEstimate,
)
from tidegate.model.queues import FairStrategy
from tidegate.model.simulation import TwinOptions

#: Nodes that one file may ask for: more would not fit in memory.
MOST_NODES = 200_000

_POLICY, _TWIN = Policy(), TwinOptions()


class ReservedEntry(ConfigEntry, frozen=True):
    """What each node keeps for the system."""

    cpu: Annotated[Cpu, Meta(description="CPU cores.")] = amount(Cpu)
    memory: Annotated[Memory, Meta(description="Memory.")] = amount(Memory)


#: What to do with versions, which Kubernetes knows as labels.
_AS_LABEL = "write it among the pool's labels, and in the selector of pods that need it"


class ShapeEntry(ConfigEntry, frozen=True):
    """What one machine of a pool has."""

    refused: ClassVar = {"driver": _AS_LABEL, "runtime": _AS_LABEL}

    gpu: Annotated[Text, Meta(description='The GPU model, such as "h100".')] = ""
    gpus: Annotated[int, Meta(ge=0, le=16, description="GPUs per node.")] = 0
    gpu_memory: Annotated[Memory, Meta(description="Memory of each GPU.")] = amount(Memory)
    nvlink_group: Annotated[
        int, Meta(ge=0, le=16, description="GPUs that reach each other over NVLink; 0: not known.")
    ] = 0
    cpu: Annotated[Cpu, Meta(description="CPU cores.")] = amount(Cpu)
    memory: Annotated[Memory, Meta(description="Memory.")] = amount(Memory)
    pods: Annotated[int, Meta(ge=1, le=100_000, description="Pods that a node may run.")] = 110
    other: Annotated[Others, Meta(description="Other resources by name, counted in units.")] = {}
    reserved: Annotated[ReservedEntry, Meta(description="Kept for the system, never given to work.")] = field(
        default_factory=ReservedEntry
    )


class PoolEntry(ConfigEntry, frozen=True):
    """Nodes of one kind, named after the pool."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?" + END,
            description="The pool's name. Nodes are called name-0000 and so on.",
            extra={"expected": "a name of up to 63 letters, digits, dots, dashes and underscores"},
        ),
    ]
    count: Annotated[int, Meta(ge=1, le=100_000, description="Nodes in the pool.")]
    shape: Annotated[ShapeEntry, Meta(description="What each node has.")] = field(default_factory=ShapeEntry)
    labels: Annotated[Labels, Meta(description="Labels of each node.")] = {}
    taints: Annotated[list[TaintEntry], Meta(description="Taints of each node.")] = []


class ClusterEntry(ConfigEntry, frozen=True):
    """The machines."""

    pools: Annotated[list[PoolEntry], Meta(description="The pools of nodes.")] = []


class OrderEntry(ConfigEntry, frozen=True):
    """Who goes first, with options."""

    kind: Annotated[OrderKind, Meta(description="The order.")] = OrderRule().kind
    without_estimate: Annotated[
        WithoutEstimate,
        Meta(description="srtf, srsf: work without an estimate goes last, or is held."),
    ] = OrderRule().without_estimate
    strict: Annotated[bool, Meta(description="fifo: no work passes a head that must wait.")] = OrderRule().strict
    reserve_after: Annotated[
        Duration,
        Meta(description="fifo, queues: places are reserved for a head that was passed over for so long; 0: never."),
    ] = amount(Duration, OrderRule().reserve_after_ms)
    limits: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=10**12)], ...],
        Meta(min_length=1, max_length=16, description="las: attained GPU-seconds at which work is demoted, rising."),
    ] = OrderRule().las_limits_gpu_s


class PlacementEntry(ConfigEntry, frozen=True):
    """Which of the nodes that fit is taken, with options."""

    kind: Annotated[PlacementKind, Meta(description="The choice.")] = PlacementRule().kind
    seed: Annotated[Seed, Meta(description="random: the seed.")] = PlacementRule().seed


class PolicyEntry(ConfigEntry, frozen=True):
    """What the engine decides by."""

    name: Annotated[NonEmpty, Meta(description="The policy's name in reports.")] = _POLICY.name
    order: Annotated[OrderKind | OrderEntry, Meta(description="Who goes first.")] = OrderRule().kind
    placement: Annotated[PlacementKind | PlacementEntry, Meta(description="Which of the nodes that fit is taken.")] = (
        PlacementRule().kind
    )
    cycle: Annotated[PositiveDuration, Meta(description="How often decisions are made.")] = amount(
        PositiveDuration, _POLICY.cycle_ms
    )
    waits: Annotated[
        bool, Meta(description="Whether work waits for room; false: what does not fit at once is rejected.")
    ] = _POLICY.waits
    admission: Annotated[
        AdmissionKind, Meta(description="With queues: quota and a place together, or quota alone as in Kueue.")
    ] = _POLICY.admission
    queues: Annotated[
        list[QueueEntry], Meta(description="The queues with their quota; without any, nothing is counted.")
    ] = []
    cohorts: Annotated[
        list[CohortEntry], Meta(description="Cohorts with a parent, a quota or a weight; others need only be named.")
    ] = []
    flavors: Annotated[
        list[FlavorEntry], Meta(description="Kinds of capacity; without any there is one, called default.")
    ] = []
    topologies: Annotated[list[TopologyEntry], Meta(description="How nodes are near each other.")] = []
    fair_sharing: Annotated[
        bool | list[FairStrategy],
        Meta(description="Between queues, the lower share goes first; or a list of when it may preempt for that."),
    ] = False
    usage_sharing: (
        Annotated[
            UsageEntry, Meta(description="Between the LocalQueues of a queue, the one that used less goes first.")
        ]
        | UnsetType
    ) = UNSET
    undeclared: Annotated[
        Undeclared, Meta(description="What happens to a request that the queue has no quota for.")
    ] = Undeclared.IGNORE


class TwinEntry(ConfigEntry, frozen=True):
    """How the twin's machines and control plane behave."""

    seed: Annotated[Seed, Meta(description="Seed of everything random in the twin.")] = _TWIN.seed
    api_latency: Annotated[Duration, Meta(description="From a decision to its effect.")] = amount(
        Duration, _TWIN.api_latency_ms
    )
    start: Annotated[Duration, Meta(description="From a pod being bound to its start.")] = amount(
        Duration, _TWIN.start_ms
    )
    grace: Annotated[Duration, Meta(description="From the eviction of a pod to its end.")] = amount(
        Duration, _TWIN.grace_ms
    )
    admission_fails: Annotated[Portion, Meta(description="Admissions that the API refuses, as a share.")] = amount(
        Portion, _TWIN.admission_fails_milli
    )
    answers_lost: Annotated[
        Portion, Meta(description="Admissions that succeed although their response is lost, as a share.")
    ] = amount(Portion, _TWIN.answers_lost_milli)
    observe_every: Annotated[PositiveDuration, Meta(description="How often use is observed.")] = amount(
        PositiveDuration, _TWIN.observe_every_ms
    )
    node_fails_every: Annotated[Duration, Meta(description="Mean time between failures of a node; 0: never.")] = amount(
        Duration, _TWIN.node_fails_every_ms
    )
    node_repair: Annotated[Duration, Meta(description="How long the repair of a node takes.")] = amount(
        Duration, _TWIN.node_repair_ms
    )


class ConfigDocument(ConfigEntry, frozen=True):
    """Tidegate's file: machines, policy, twin and work."""

    version: Annotated[Literal[1], Meta(description="The version of the format.")] = 1
    cluster: Annotated[ClusterEntry, Meta(description="The machines.")] = field(default_factory=ClusterEntry)
    policy: Annotated[PolicyEntry, Meta(description="What the engine decides by.")] = field(default_factory=PolicyEntry)
    twin: Annotated[TwinEntry, Meta(description="How the twin behaves.")] = field(default_factory=TwinEntry)
    work: Annotated[list[WorkEntry], Meta(description="What is submitted.")] = []
