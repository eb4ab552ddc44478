"""The reasons that queues with quota give."""

from __future__ import annotations

from functools import partial

from tidegate.model.reasons.codes import FixedBy, Reason, ReasonSpec

#: Evidence by name, as several reasons have it.
_QUOTA = ("flavor_resource", "missing", "queue")
_ADMITTED = ("flavor_resource", "amount", "count", "level")
_DOMAIN_FIT = ("fits", "pods", "queue")


_needs_change = partial(ReasonSpec, fixed_by=FixedBy.CHANGE)
_done = partial(ReasonSpec, lift="Nothing to lift.", fixed_by=FixedBy.NONE)

QUEUE_REASONS = (
    _needs_change(
        Reason.NO_QUEUE,
        "no such queue",
        "the queue it was submitted to does not exist",
        "Create the queue, or submit it to one that exists.",
    ),
    _needs_change(
        Reason.QUEUE_CLOSED,
        "queue closed",
        "its queue is stopped and admits nothing",
        "Open the queue (stopPolicy None), or submit it to another.",
    ),
    _needs_change(
        Reason.NAMESPACE_REFUSED,
        "namespace not accepted",
        "its queue does not accept work from its namespace",
        "Label the namespace as the queue's namespaceSelector asks, or submit it elsewhere.",
    ),
    _needs_change(
        Reason.RESOURCE_UNDECLARED,
        "resource not in the queue",
        "it asks for a resource that its queue has no quota for",
        "Give the queue quota for the resource, or take it out of the request.",
    ),
    _needs_change(
        Reason.NO_FLAVOR,
        "no flavor matches",
        "no flavor of its queue takes its pods: {why}",
        "Tolerate the flavor's taints, relax the node selector, or add a flavor that matches.",
        evidence=("option", "why"),
    ),
    _needs_change(
        Reason.ABOVE_QUOTA,
        "above what the queue can ever have",
        "it asks for {missing} more of {flavor_resource} than its queue could ever use, borrowing included",
        "Raise the quota or the borrowing limit, or ask for less.",
        evidence=_QUOTA,
    ),
    ReasonSpec(
        Reason.WAITS_FOR_QUOTA,
        "waits for quota",
        "its queue lacks {missing} of {flavor_resource}",
        "It starts when others in the queue or the cohort give back that much, or the quota is raised.",
        evidence=_QUOTA,
    ),
    ReasonSpec(
        Reason.OUTPACED,
        "quota taken by others",
        "others took the quota in the same cycle; it lacks {missing} of {flavor_resource}",
        "It is tried again in the next cycle.",
        evidence=_QUOTA,
    ),
    ReasonSpec(
        Reason.SHARED_VICTIMS,
        "victims taken by others",
        "those it would preempt are being preempted for another workload",
        "It is tried again when they are gone.",
        evidence=_QUOTA,
    ),
    _needs_change(
        Reason.PREEMPTION_GATED,
        "preemption gated",
        "it would have to preempt and is not allowed to yet",
        "Open its preemption gate, or wait until quota is free.",
    ),
    _needs_change(
        Reason.CHECK_FAILED,
        "admission check failed",
        "one of its admission checks rejected it",
        "See what the check's controller reports.",
    ),
    ReasonSpec(
        Reason.BACKS_OFF,
        "backs off",
        "it was evicted, or its start failed, and it is queued again after its back-off",
        "It is tried again when its back-off is over.",
    ),
    _needs_change(
        Reason.PARKED,
        "not queued again",
        "it was evicted and its owner has not queued it again",
        "Its owner queues it again.",
    ),
    _needs_change(Reason.DEACTIVATED, "deactivated", "it is set to inactive", "Set it active."),
    ReasonSpec(
        Reason.TOPOLOGY_UNFIT,
        "no domain has room",
        "quota would do, but its pods do not fit the topology it asks for: {fits} of {pods}",
        "It starts when a domain of that level has room, or it asks for a wider level.",
        evidence=_DOMAIN_FIT,
    ),
    ReasonSpec(
        Reason.TOPOLOGY_TOO_SMALL,
        "no domain is large enough",
        "its pods would not fit the topology it asks for even if nothing else ran: {fits} of {pods}",
        "It starts when nodes are added to a domain of that level, or it asks for a wider level, or for less.",
        fixed_by=FixedBy.SCALE,
        evidence=_DOMAIN_FIT,
    ),
    _needs_change(
        Reason.TOPOLOGY_MISASKED,
        "cannot be placed as asked",
        "its topology request cannot be met: {topology_failure}",
        "Name levels that the topology has, slices inside of them, and a size that divides the pods.",
        evidence=("topology_failure", "pods", "queue"),
    ),
    ReasonSpec(
        Reason.TOPOLOGY_OUTPACED,
        "domain taken by others",
        "others took the room in its domain in the same cycle",
        "It is tried again in the next cycle.",
    ),
    _needs_change(
        Reason.TOPOLOGIES_MIXED,
        "flavors of two topologies",
        "what it asks for comes from flavors of different topologies, and its pods cannot be placed in both",
        "Give the queue a flavor that has all of it, or do not ask for a topology.",
    ),
    _needs_change(
        Reason.OUTSIDE_LIMITS,
        "outside its limits",
        "it asks for more than its own limits, or for what the LimitRange of its namespace forbids",
        "Change what its containers ask for, or the LimitRange.",
    ),
    _needs_change(Reason.FLAVOR_MISSING, "flavor missing", "the flavor does not exist", "Create the flavor."),
    _needs_change(
        Reason.FLAVOR_TAINT,
        "flavor tainted",
        "the flavor's nodes carry a taint that it does not tolerate",
        "Add a toleration.",
    ),
    _needs_change(
        Reason.FLAVOR_TERMS,
        "flavor's labels do not match",
        "the flavor's nodes do not have the labels it asks for",
        "Relax its node selector or affinity.",
    ),
    _needs_change(
        Reason.FLAVOR_TOPOLOGY,
        "flavor's topology does not match",
        "the flavor does not have the topology that it asks for",
        "Ask for a level that the flavor's topology has.",
    ),
    _needs_change(
        Reason.FLAVOR_REPLACED,
        "not the flavor it is on",
        "it takes over from a workload on another flavor, and a job does not move when it grows",
        "Raise the quota of the flavor that the job is on.",
    ),
    ReasonSpec(
        Reason.PREEMPTED_IN_QUEUE,
        "preempted in its queue",
        "preempted: work of its own queue that goes first needs its quota",
        "It is admitted again when there is quota for it.",
    ),
    ReasonSpec(
        Reason.RECLAIMED_IN_COHORT,
        "quota reclaimed",
        "preempted: the owner of the quota it borrowed reclaims it",
        "It is admitted again when there is quota for it.",
    ),
    ReasonSpec(
        Reason.RECLAIMED_WHILE_BORROWING,
        "quota reclaimed while borrowing",
        "preempted: work of higher priority in the cohort needs the quota, borrowing itself",
        "It is admitted again when there is quota for it.",
    ),
    ReasonSpec(
        Reason.PREEMPTED_FOR_SHARE,
        "preempted for a fair share",
        "preempted: its queue uses more than its share, another less",
        "It is admitted again when its queue's share allows it.",
    ),
    _needs_change(Reason.QUEUE_DRAINED, "queue drained", "its queue was drained", "Open the queue again."),
    ReasonSpec(
        Reason.RESERVATION_LOST,
        "reservation lost",
        "its quota reservation no longer counts: its queue is gone, or admission now needs a place too",
        "It is admitted again when there is a queue, quota and a place for it.",
    ),
    _done(Reason.REPLACED, "replaced", "a larger slice of the same job was admitted and takes over from it"),
    _done(
        Reason.ADMITTED,
        "admitted",
        "admitted within the quota of its queue: {amount} of {flavor_resource} for {count} pods",
        evidence=_ADMITTED,
    ),
    _done(
        Reason.ADMITTED_BORROWING,
        "admitted, borrowing",
        "admitted on borrowed quota: {amount} of {flavor_resource} for {count} pods",
        evidence=_ADMITTED,
    ),
    _done(
        Reason.ADMITTED_PARTLY,
        "admitted with fewer pods",
        "admitted with {count} pods, which it allows: {amount} of {flavor_resource}",
        evidence=_ADMITTED,
    ),
    _done(
        Reason.DOMAIN_ASSIGNED,
        "domain assigned",
        "{pods} of its pods go to this domain of the topology",
        evidence=("pods",),
    ),
    _done(
        Reason.DOMAIN_REPLACED,
        "domain replaced",
        "a node of it failed: {pods} of its pods are in this domain of the topology now",
        evidence=("pods",),
    ),
    ReasonSpec(
        Reason.NO_REPLACEMENT_DOMAIN,
        "no replacement for a failed node",
        "a node of it failed, and its topology has no other place for the pods that were there",
        "It is admitted again when its domain has room for all of its pods.",
    ),
)
