"""What the engine decides by: order, placement, queues. One value; every journal has its digest."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec.structs import replace

from tidegate.model.queues import QueueSetup
from tidegate.model.struct import Spec, encode
from tidegate.model.work import PodSet


class OrderKind(StrEnum):
    """Who goes first."""

    FIFO = "fifo"  # priority, then time of submission
    SRTF = "srtf"  # shortest remaining time first, preemptive
    SRSF = "srsf"  # shortest remaining service (time x GPUs) first, preemptive
    LAS = "las"  # least attained service in discrete queues (Tiresias-L), preemptive


#: Orders by remaining time, which need an estimate.
BY_ESTIMATE = (OrderKind.SRTF, OrderKind.SRSF)


class WithoutEstimate(StrEnum):
    """What happens to work without an estimate under an order that needs one."""

    LAST = "last"  # it goes behind all work that has one, and takes nothing from work that has none either
    REFUSE = "refuse"  # it is held until it has one


class OrderRule(Spec, frozen=True):
    """The order of work."""

    kind: OrderKind = OrderKind.FIFO
    without_estimate: WithoutEstimate = WithoutEstimate.LAST  # srtf, srsf
    strict: bool = False  # fifo: no work passes a head that must wait
    reserve_after_ms: int = 3_600_000  # fifo: places are reserved for a head that was passed over for so long; 0: never
    las_limits_gpu_s: tuple[int, ...] = (3250, 7200)  # attained GPU-seconds at which work is demoted


class PlacementKind(StrEnum):
    """Which of the nodes that fit is taken."""

    RANDOM = "random"
    FIRST_FIT = "firstfit"
    SPREAD = "spread"
    DOT_PRODUCT = "dotprod"
    CLUSTERING = "clustering"
    PACKING = "packing"
    BEST_FIT = "bestfit"
    FGD = "fgd"
    TIDE = "tide"


class TypicalPod(Spec, frozen=True):
    """A kind of pod and how often it is asked for."""

    pod: PodSet
    count: int


class PlacementRule(Spec, frozen=True):
    """The choice among nodes and devices that fit."""

    kind: PlacementKind = PlacementKind.TIDE
    seed: int = 0  # random
    typical: tuple[TypicalPod, ...] = ()  # fgd, tide: what is usually asked; empty: learnt from the pods so far


class AdmissionKind(StrEnum):
    """What it takes to be admitted by a queue with quota."""

    TIDEGATE = "tidegate"  # quota and a place, or nothing
    KUEUE = "kueue"  # quota, as Kueue has it; the cluster's scheduler chooses the place, which may be missing


class Policy(Spec, frozen=True):
    """Everything the engine decides by, as one value."""

    name: str = "default"
    order: OrderRule = OrderRule()
    placement: PlacementRule = PlacementRule()
    admission: AdmissionKind = AdmissionKind.TIDEGATE
    shares: QueueSetup = QueueSetup()  # without queues nothing is counted
    cycle_ms: int = 1_000
    waits: bool = True  # False: what does not fit at its first try is rejected for good

    def digest(self) -> str:
        """The fingerprint of what the policy says: where it comes from, and so its name, makes no difference."""
        return hashlib.blake2b(encode(replace(self, name="")), digest_size=8).hexdigest()
