"""Where a workload stands in the world: what it was granted, what it was told, what it still waits for.

A fact about state, not about change: told again, it means the same.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.model.struct import Resources, Spec


class DomainAssignment(Spec, frozen=True):
    """Pods of a set in one domain, named by its labels from the widest level down."""

    values: tuple[str, ...]
    count: int


class PodSetAssignment(Spec, frozen=True):
    """What one pod set was granted."""

    pod_set: str
    count: int
    flavors: tuple[tuple[str, str], ...] = ()  # resource and flavor
    charge: Resources = ()  # of all its pods
    spots: tuple[DomainAssignment, ...] = ()  # where topology put them; empty: nowhere yet
    awaits_topology: bool = False  # granted before its nodes exist; placed in a second pass


class CheckState(StrEnum):
    """What a check says."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class Check(Spec, frozen=True):
    """A check of one workload."""

    name: str
    state: CheckState = CheckState.PENDING


class ObservedStatus(Spec, frozen=True):
    """Where a workload stands."""

    queue: str = ""  # that granted; empty: nothing is granted
    grants: tuple[PodSetAssignment, ...] = ()
    granted_ms: int = 0
    evicted: str = ""  # why it was told to go; it holds its grants until they are gone
    preempted: bool = False  # told to go by a scheduler, for somebody else
    active: bool = True  # False: its owner does not want it to run
    finished: bool = False
    requeue_at_ms: int = 0  # not before; 0: at once
    parked: bool = False  # waits for its owner to queue it again
    outside_limits: bool = False  # asks for what its own limits or those of its namespace forbid
    order_ms: int = 0  # its time in the queue where that is not its submission; 0: it is
    checks: tuple[Check, ...] = ()
    reclaimable: tuple[tuple[str, int], ...] = ()  # pod set and pods that are done and need no quota any more
    unhealthy: tuple[str, ...] = ()  # nodes it has pods on that have failed
    pinned: bool = False  # it is one pod, which cannot move: it keeps its spot whatever fails
    replaces: str = ""  # id of the workload that it grows or shrinks
    gated: bool = False  # may not preempt yet
    admitted: bool = False  # quota is granted and every check is ready: its pods may start
    ready: bool = False  # all its pods are
    evictions: int = 0  # times that it was told to go
    nominated: bool = False  # others were evicted for it: it is the next of its queue
    reserved: tuple[tuple[str, int], ...] = ()  # nodes that are kept for its pods, in order, each with how many
    passed_over_ms: int = 0  # since when work behind it was admitted before it; 0: not yet, or nobody knows


class DecayedUsage(Spec, frozen=True):
    """What an entrance has used of late, decayed until a moment."""

    entrance: str
    milli: Resources = ()  # thousandths of the unit that quota is counted in
    at_ms: int = 0


class UnmanagedPods(Spec, frozen=True):
    """What pods that are not ours hold on a node."""

    node: str
    request: Resources = ()
    charge: Resources = ()
    pods: int = 0
