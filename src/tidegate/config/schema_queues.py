"""The queues of `tidegate.yaml`: queues, cohorts, flavors, topologies.

Amounts are written as people write them: `gpus: 16`, `cpu: 384`, `memory: 4Ti`. What is left out is not counted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field

from tidegate.config.quantities import CpuQuota, Duration, GpuQuota, MemoryQuota, PositiveDuration, Weight
from tidegate.config.schema_base import (
    ConfigEntry,
    LabelKey,
    Labels,
    Name,
    Others,
    TaintEntry,
    Text,
    TolerationEntry,
    amount,
)
from tidegate.model.queues import WHOLE_WEIGHT, FlavorMove, FlavorPreference, StopPolicy
from tidegate.model.units import MINUTE_MS

#: The flavor of quota that names none, where none is declared.
DEFAULT_FLAVOR = "default"


class AmountsEntry(ConfigEntry, frozen=True, kw_only=True):
    """Amounts by resource."""

    gpus: Annotated[GpuQuota, Meta(description="GPUs.")] | UnsetType = UNSET
    cpu: Annotated[CpuQuota, Meta(description="CPU cores.")] | UnsetType = UNSET
    memory: Annotated[MemoryQuota, Meta(description="Memory.")] | UnsetType = UNSET
    pods: Annotated[int, Meta(ge=0, le=1_000_000_000, description="Pods.")] | UnsetType = UNSET
    other: Annotated[Others, Meta(description="Other resources by name, counted in units.")] = {}


class QuotaEntry(AmountsEntry, frozen=True, kw_only=True):
    """Quota, and how much of it may be borrowed and lent in the cohort."""

    borrow: Annotated[AmountsEntry, Meta(description="The most that may be borrowed; left out: no limit.")] = field(
        default_factory=AmountsEntry
    )
    lend: Annotated[AmountsEntry, Meta(description="The most that is lent to others; left out: all.")] = field(
        default_factory=AmountsEntry
    )


class FlavorQuotaEntry(QuotaEntry, frozen=True, kw_only=True):
    """Quota of one flavor."""

    name: Annotated[Name, Meta(description="The flavor.")]


class QuotaNodeEntry(QuotaEntry, frozen=True, kw_only=True):
    """What queues and cohorts have in common: quota, of one flavor or of several, and a weight."""

    flavors: Annotated[
        list[FlavorQuotaEntry], Meta(description="Quota by flavor, in the order they are tried; instead of amounts.")
    ] = []
    weight: Annotated[Weight, Meta(description="With fair sharing: how much of a share it gets.")] = amount(
        Weight, WHOLE_WEIGHT
    )


class CohortEntry(QuotaNodeEntry, frozen=True, kw_only=True):
    """Queues that lend to each other. Its own quota belongs to all of them."""

    name: Annotated[Name, Meta(description="The cohort's name.")]
    parent: Annotated[Text, Meta(description="The cohort that it belongs to.")] = ""


class PreemptionEntry(ConfigEntry, frozen=True):
    """Whom the queue's work may preempt."""

    within: Annotated[
        Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"], Meta(description="In the queue itself.")
    ] = "Never"
    reclaim: Annotated[
        Literal["Never", "LowerPriority", "Any"],
        Meta(description="In the cohort, to get back what others borrowed of its quota."),
    ] = "Never"
    borrow: Annotated[Literal["Never", "LowerPriority"], Meta(description="In the cohort, even to borrow itself.")] = (
        "Never"
    )
    borrow_threshold: (
        Annotated[
            int,
            Meta(ge=-(2**31), le=2**31 - 1, description="The highest priority that is preempted by one who borrows."),
        ]
        | UnsetType
    ) = UNSET


class FungibilityEntry(ConfigEntry, frozen=True):
    """How the queue goes through its flavors."""

    when_can_borrow: Annotated[FlavorMove, Meta(description="A flavor that would do by borrowing.")] = FlavorMove.STOP
    when_can_preempt: Annotated[FlavorMove, Meta(description="A flavor that would do by preempting.")] = FlavorMove.NEXT
    preference: Annotated[FlavorPreference, Meta(description="What is better where both would do.")] = (
        FlavorPreference.BORROW
    )


class LocalQueueEntry(ConfigEntry, frozen=True):
    """Where a team submits to a queue: a LocalQueue."""

    name: Annotated[Name, Meta(description="What its work names as its queue.")]
    weight: Annotated[Weight, Meta(description="With usage sharing: how much it may use.")] = amount(
        Weight, WHOLE_WEIGHT
    )
    stop: Annotated[StopPolicy, Meta(description="Whether it admits.")] = StopPolicy.NONE


class QueueEntry(QuotaNodeEntry, frozen=True, kw_only=True):
    """Where work waits, and what it may use."""

    refused: ClassVar = {"entrances": "renamed to local_queues"}

    name: Annotated[Name, Meta(description="The queue's name; work that names none goes to `default`.")]
    cohort: Annotated[Text, Meta(description="The cohort that it lends to and borrows from.")] = ""
    strict: Annotated[bool, Meta(description="No work passes a head that must wait.")] = False
    preemption: Annotated[PreemptionEntry, Meta(description="Whom its work may preempt.")] = field(
        default_factory=PreemptionEntry
    )
    fungibility: Annotated[FungibilityEntry, Meta(description="How it goes through its flavors.")] = field(
        default_factory=FungibilityEntry
    )
    stop: Annotated[StopPolicy, Meta(description="Whether it admits.")] = StopPolicy.NONE
    local_queues: Annotated[
        list[Name | LocalQueueEntry],
        Meta(description="LocalQueues: further names that work may submit to, one for each team."),
    ] = []


class FlavorEntry(ConfigEntry, frozen=True):
    """A kind of capacity that quota is counted in."""

    name: Annotated[Name, Meta(description="The flavor's name.")]
    labels: Annotated[Labels, Meta(description="Labels of its nodes; its pods go to no others.")] = {}
    taints: Annotated[list[TaintEntry], Meta(description="Taints of its nodes that pods must tolerate.")] = []
    tolerations: Annotated[list[TolerationEntry], Meta(description="Tolerations that its pods get.")] = []
    topology: Annotated[Text, Meta(description="The topology of its nodes.")] = ""


class TopologyEntry(ConfigEntry, frozen=True):
    """Levels of nodes that are close to each other."""

    name: Annotated[Name, Meta(description="The topology's name.")]
    levels: Annotated[
        list[LabelKey],
        Meta(min_length=1, max_length=16, description="Node labels from the widest domain to the narrowest."),
    ]


class WeightsEntry(ConfigEntry, frozen=True):
    """How much the use of each resource counts."""

    gpus: Annotated[Weight, Meta(description="GPUs.")] | UnsetType = UNSET
    cpu: Annotated[Weight, Meta(description="CPU cores.")] | UnsetType = UNSET
    memory: Annotated[Weight, Meta(description="Memory.")] | UnsetType = UNSET


class UsageEntry(ConfigEntry, frozen=True):
    """Between the LocalQueues of a queue, the one with less decayed usage goes first."""

    half_life: Annotated[PositiveDuration, Meta(description="After which use counts half.")]
    sampling: Annotated[Duration, Meta(description="How often use is counted.")] = amount(Duration, 5 * MINUTE_MS)
    weights: Annotated[WeightsEntry, Meta(description="What counts how much; others count 1.")] = field(
        default_factory=WeightsEntry
    )


class Undeclared(StrEnum):
    """What happens to a request that the queue has no quota for."""

    IGNORE = "ignore"  # it is not counted
    REFUSE = "refuse"  # the work is not admitted, as in Kueue
