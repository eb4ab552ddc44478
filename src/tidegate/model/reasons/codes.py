"""The codes and kinds of reasons, and the entry of the catalogue."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Reason(IntEnum):
    """Codes are stable: a number is never used again for something else."""

    NONE = 0
    # Why a node does not take a pod, and why a workload waits.
    NODE_DOWN = 1
    NODE_TERMS = 2
    NODE_TAINT = 3
    GPU_MODEL = 4
    POD_TOO_LARGE = 5
    LACKS_GPU = 6
    LACKS_FRACTION = 7
    LACKS_GPU_MEMORY = 8
    LACKS_CPU = 9
    LACKS_MEMORY = 10
    LACKS_SLOT = 11
    LACKS_RESOURCE = 12
    # Why a workload waits.
    NO_NODES = 20
    GANG_PARTIAL = 21
    BEHIND_HEAD = 22
    OUTRANKED = 23
    AWAITS_VICTIMS = 24
    BEHIND_EQUAL = 25
    PLACES_RESERVED = 26
    NO_ESTIMATE = 27
    RESERVED_FOR_OTHERS = 28
    # Why a workload waits in a queue with quota.
    NO_QUEUE = 100
    QUEUE_CLOSED = 101
    NAMESPACE_REFUSED = 102
    RESOURCE_UNDECLARED = 103
    NO_FLAVOR = 104
    ABOVE_QUOTA = 105
    WAITS_FOR_QUOTA = 106
    OUTPACED = 107
    SHARED_VICTIMS = 108
    PREEMPTION_GATED = 109
    CHECK_FAILED = 110
    BACKS_OFF = 111
    PARKED = 112
    DEACTIVATED = 113
    TOPOLOGY_UNFIT = 114
    TOPOLOGIES_MIXED = 115
    OUTSIDE_LIMITS = 116
    TOPOLOGY_TOO_SMALL = 117
    TOPOLOGY_MISASKED = 118
    TOPOLOGY_OUTPACED = 119
    # Why a flavor will not do.
    FLAVOR_MISSING = 120
    FLAVOR_TAINT = 121
    FLAVOR_TERMS = 122
    FLAVOR_TOPOLOGY = 123
    FLAVOR_REPLACED = 124
    # Why a workload is placed, preempted, evicted, released or rejected.
    PLACED = 40
    PLACED_AGAIN = 41
    ADMITTED = 42
    ADMITTED_BORROWING = 43
    ADMITTED_PARTLY = 44
    DOMAIN_ASSIGNED = 46
    DOMAIN_REPLACED = 47
    PREEMPTED_BY_ORDER = 50
    PREEMPTED_TO_MOVE = 51
    PREEMPTED_IN_QUEUE = 52
    RECLAIMED_IN_COHORT = 53
    RECLAIMED_WHILE_BORROWING = 54
    PREEMPTED_FOR_SHARE = 55
    QUEUE_DRAINED = 56
    REPLACED = 57
    NO_REPLACEMENT_DOMAIN = 58
    RESERVATION_LOST = 59
    NODE_LOST = 60
    DEVICE_LOST = 61
    GANG_BROKEN = 62
    BIND_FAILED = 63
    CANCELLED = 64
    REFUSED_AT_FIRST_TRY = 80
    MALFORMED = 81
    SHARE_UNSUPPORTED = 82


class FixedBy(IntEnum):
    """What lifts a reason; Events and conditions ask for action, or for nodes, by it."""

    NONE = 0
    WAIT = 1  # time: it lifts itself when other work finishes
    SCALE = 3  # more nodes would lift it
    CHANGE = 4  # only a change of the work or the policy lifts it


class ReasonKind(IntEnum):
    """What a reason is about.

    Where nodes refuse a pod for several reasons, the one of the highest kind is reported. A refusal is about new pods:
    a pod that is observed on a node stays there, whatever the node refuses.
    """

    OTHER = 0
    NODE_MISMATCH = 1  # a node whose labels, taints or GPUs do not go with the pod
    NODE_TOO_SMALL = 2  # a node that would not take the pod even if it were empty
    NODE_CLOSED = 3  # a node that takes no new pods
    NODE_LACKS = 4  # a node that lacks what others hold
    ROOM = 5  # no single node: there is none, or the pods do not fit all at once
    ORDER = 6  # others go first


#: Kinds of reasons why a node does not take a pod.
NODE_REFUSALS = (
    ReasonKind.NODE_MISMATCH,
    ReasonKind.NODE_TOO_SMALL,
    ReasonKind.NODE_CLOSED,
    ReasonKind.NODE_LACKS,
)


class ReasonSpec(NamedTuple):
    """Everything that is known about a reason."""

    reason: Reason
    title: str  # a few words, for labels and conditions
    template: str  # a sentence; names in braces are evidence
    lift: str  # what would lift it, for the reader
    fixed_by: FixedBy = FixedBy.WAIT
    kind: ReasonKind = ReasonKind.OTHER
    evidence: tuple[str, ...] = ()  # names, with units: the four integers of the row in order
