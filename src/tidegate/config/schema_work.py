"""The work of `tidegate.yaml`: what is submitted, what its pods request, how it uses its GPUs.

Defaults are those of the specs, which `tidegate.config.convert` makes of it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType, field

from tidegate.config.quantities import Cpu, Duration, GpuAmount, Memory, Portion, PositiveDuration
from tidegate.config.schema_base import (
    END,
    ConfigEntry,
    LabelKey,
    Labels,
    NonEmpty,
    Others,
    Text,
    TolerationEntry,
    amount,
)
from tidegate.model.work import Work, WorkKind

#: Workloads with all their copies that one file may ask for: more would not fit in memory.
MOST_WORKLOADS = 1_000_000

#: Pods a workload may have; the engine rejects more.
MOST_PODS = 100_000

#: The longest id, with the number of a copy.
LONGEST_ID = 253

_WORK = Work()


class SliceEntry(ConfigEntry, frozen=True):
    """Pods that stay together."""

    level: Annotated[LabelKey, Meta(description="The level, a node label, that a slice stays within.")]
    size: Annotated[int, Meta(ge=1, le=MOST_PODS, description="Pods in a slice.")]


class SpreadEntry(ConfigEntry, frozen=True):
    """Pods that must not all be in one domain, so that what fails there does not take all of them."""

    level: Annotated[LabelKey, Meta(description="The level, a node label, that they are spread over.")]
    most: Annotated[int, Meta(ge=1, le=MOST_PODS, description="The most pods in one domain.")]
    required: Annotated[bool, Meta(description="false: only where all pods fit so.")] = True


class TopologyRequestEntry(ConfigEntry, frozen=True):
    """Where pods are to be, in a flavor with a topology."""

    refused: ClassVar = {"anywhere": "renamed to unconstrained"}

    required: Annotated[Text, Meta(description="The level, a node label, that all pods must be within.")] = ""
    preferred: Annotated[Text, Meta(description="The level that they should be within; wider where need be.")] = ""
    unconstrained: Annotated[bool, Meta(description="Anywhere, but placed by the topology.")] = False
    slices: Annotated[
        list[SliceEntry], Meta(max_length=3, description="Pods that stay together, the widest level first.")
    ] = []
    group: Annotated[Text, Meta(description="Kinds of pods of one group are placed together.")] = ""
    spread: Annotated[SpreadEntry, Meta(description="The most pods in one domain.")] | UnsetType = UNSET


class PodsEntry(ConfigEntry, frozen=True):
    """Pods of one kind; all pods of a workload start together."""

    name: Annotated[NonEmpty, Meta(description="Its name, where there are several kinds.")] = "main"
    count: Annotated[int, Meta(ge=1, le=MOST_PODS, description="Pods of this kind.")] = 1
    min_count: Annotated[
        int, Meta(ge=0, le=MOST_PODS, description="With queues: pods it may start with; 0: all or nothing.")
    ] = 0
    gpus: Annotated[GpuAmount, Meta(description="GPUs of each pod; below 1: a part of one device.")] = amount(GpuAmount)
    gpu_memory: Annotated[Memory, Meta(description="Memory of each GPU that the pod takes.")] = amount(Memory)
    models: Annotated[list[NonEmpty], Meta(description="GPU models that will do; empty: any.")] = []
    cpu: Annotated[Cpu, Meta(description="CPU cores of each pod.")] = amount(Cpu)
    memory: Annotated[Memory, Meta(description="Memory of each pod.")] = amount(Memory)
    other: Annotated[Others, Meta(description="Other resources of each pod by name, counted in units.")] = {}
    selector: Annotated[Labels, Meta(description="Labels that a node must have.")] = {}
    tolerations: Annotated[list[TolerationEntry], Meta(description="Taints that the pods tolerate.")] = []
    topology: Annotated[TopologyRequestEntry, Meta(description="With topologies: where they are to be.")] = field(
        default_factory=TopologyRequestEntry
    )


class UseEntry(ConfigEntry, frozen=True):
    """What a workload does with its GPUs once it has them."""

    load: Annotated[Duration, Meta(description="Loading before the work, again after each restart.")] = amount(Duration)
    busy: Annotated[Portion, Meta(description="GPU busy time during the work, as a share.")] = amount(Portion, 1000)
    idle_tail: Annotated[Duration, Meta(description="Time after the work in which the GPUs are held idle.")] = amount(
        Duration
    )
    swing: Annotated[Portion, Meta(description="How far the busy share swings over a day, as a share.")] = amount(
        Portion
    )
    gpu_memory: Annotated[Memory, Meta(description="GPU memory held on each GPU.")] = amount(Memory)


class WorkEntry(ConfigEntry, frozen=True):
    """A workload, or several copies of one, that the twin submits."""

    refused: ClassVar = {"deadline": "leave it out; priority says what goes first"}

    id: Annotated[
        str,
        Meta(
            pattern=rf"^[A-Za-z0-9._/-]{{1,{LONGEST_ID}}}" + END,
            description="Its id; of copies the first part of their ids.",
            extra={"expected": f"an id of up to {LONGEST_ID} letters, digits, dots, dashes, slashes and underscores"},
        ),
    ]
    runtime: Annotated[PositiveDuration, Meta(description="How long the work takes if never interrupted.")]
    queue: Annotated[NonEmpty, Meta(description="The queue it waits in.")] = _WORK.queue
    kind: Annotated[WorkKind, Meta(description="What it is for.")] = _WORK.kind
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, description="Higher goes first.")] = _WORK.priority
    submit: Annotated[Duration, Meta(description="When it is submitted, from the start.")] = amount(Duration)
    copies: Annotated[
        int, Meta(ge=1, le=MOST_WORKLOADS, description="How many of it; with more than one the ids are id-0, id-1, ….")
    ] = 1
    every: Annotated[Duration, Meta(description="Time from one copy to the next.")] = amount(Duration)
    pods: Annotated[
        PodsEntry | Annotated[list[PodsEntry], Meta(min_length=1, max_length=100)],
        Meta(description="Its pods: one kind, or a list of kinds with names."),
    ] = field(default_factory=PodsEntry)
    use: Annotated[UseEntry, Meta(description="What it does with its GPUs.")] = field(default_factory=UseEntry)
    checkpoint: Annotated[Duration, Meta(description="Time from checkpoint to checkpoint; 0: none.")] = amount(Duration)
    restart: Annotated[Duration, Meta(description="What a restart costs, beyond the work that is lost.")] = amount(
        Duration
    )
    fails_every: Annotated[Duration, Meta(description="Mean time between failures of a pod; 0: never.")] = amount(
        Duration
    )
    estimate: (
        Annotated[PositiveDuration, Meta(description="The runtime by its owner; without it the runtime is not known.")]
        | UnsetType
    ) = UNSET
    tolerates_wait: Annotated[Duration, Meta(description="How long it can wait; 0: not known.")] = amount(Duration)
    preemptible: Annotated[bool, Meta(description="Whether it may be preempted.")] = _WORK.preemptible
    protected: Annotated[Duration, Meta(description="Runtime before which it may not be preempted.")] = amount(Duration)

    def pod_entries(self) -> list[PodsEntry]:
        """Its kinds of pods as a list."""
        return self.pods if isinstance(self.pods, list) else [self.pods]
