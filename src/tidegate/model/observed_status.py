"""The observed status of a workload: its quota reservation, its conditions, its admission checks.

A fact about state, not about change: reported again, it means the same.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.model.struct import Resources, Spec


class DomainAssignment(Spec, frozen=True):
    """Pods of a set in one domain, named by its labels from the widest level down."""

    values: tuple[str, ...]
    count: int


class PodSetAssignment(Spec, frozen=True):
    """The quota reserved for one pod set, and its domains: Kueue's podSetAssignment."""

    pod_set: str
    count: int
    flavors: tuple[tuple[str, str], ...] = ()  # resource and flavor
    charge: Resources = ()  # of all its pods
    spots: tuple[DomainAssignment, ...] = ()  # where topology placed them; empty: nowhere yet
    awaits_topology: bool = False  # reserved before its nodes exist; placed in a second pass


class CheckState(StrEnum):
    """The state of an admission check."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class Check(Spec, frozen=True):
    """An admission check of one workload."""

    name: str
    state: CheckState = CheckState.PENDING


class ObservedStatus(Spec, frozen=True):
    """What the cluster shows of a workload."""

    queue: str = ""  # that reserves the quota; empty: none is reserved
    grants: tuple[PodSetAssignment, ...] = ()
    granted_ms: int = 0
    evicted: str = ""  # the reason of its eviction; it holds its quota until its pods are gone
    preempted: bool = False  # evicted by a scheduler, for other work
    active: bool = True  # False: its owner does not want it to run
    finished: bool = False
    requeue_at_ms: int = 0  # not before; 0: at once
    parked: bool = False  # waits for its owner to queue it again
    outside_limits: bool = False  # asks for what its own limits or those of its namespace forbid
    order_ms: int = 0  # its time in the queue where that is not its submission; 0: it is
    checks: tuple[Check, ...] = ()
    reclaimable: tuple[tuple[str, int], ...] = ()  # pod set and pods that are done and need no quota any more
    unhealthy: tuple[str, ...] = ()  # nodes it has pods on that have failed
    pinned: bool = False  # it is one pod, which cannot move: it keeps its domain whatever fails
    replaces: str = ""  # id of the workload that it grows or shrinks
    gated: bool = False  # may not preempt yet
    admitted: bool = False  # quota is reserved and every check is ready: its pods may start
    ready: bool = False  # all its pods are
    evictions: int = 0  # times that it was evicted
    nominated: bool = False  # others were evicted for it: it is the next of its queue
    reserved: tuple[tuple[str, int], ...] = ()  # nodes that are kept for its pods, in order, each with how many
    passed_over_ms: int = 0  # since when work behind it was admitted before it; 0: not yet, or not known


class DecayedUsage(Spec, frozen=True):
    """The decayed usage of a LocalQueue at a time."""

    entrance: str
    milli: Resources = ()  # thousandths of the unit that quota is counted in
    at_ms: int = 0


class UnmanagedPods(Spec, frozen=True):
    """What unmanaged pods hold on a node."""

    node: str
    request: Resources = ()
    charge: Resources = ()
    pods: int = 0
