"""Texts of Events and pod conditions, made from reason codes: why work waits, starts, stops or is refused.

Event reasons are Kueue's (Pending, QuotaReserved, Admitted, Preempted, Evicted, Requeued) for admission, and
kube-scheduler's (FailedScheduling, Scheduled) for pods that Tidegate binds. An Event is a Warning where a person must
act. A condition has the reason Unschedulable, which makes autoscalers add nodes, for pods that more nodes would help
and that have waited for the scale-up delay; before that, it has the reason's own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from tidegate.journal.decision_text import listed, reason_text, reason_text_for
from tidegate.journal.quota_names import QuotaNames, queue_text, share_text
from tidegate.kube.actuator.workload_decisions import WorkloadDecision
from tidegate.kube.transport.writes import EventMessage, Ref, Write, event_write, merge_by_key
from tidegate.manifests.label_names import GROUP_TOTAL
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import CATALOGUE, Reason, ReasonKind, codes_of
from tidegate.model.reasons.codes import FixedBy
from tidegate.model.units import HOUR_MS, WHOLE_MILLI, duration_text
from tidegate.model.work import Share, Work

_NO_NAMES = QuotaNames()

#: The longest message of an Event.
_LONGEST = 1024

#: Nodes that a message names, at most.
_MOST_NODES = 6

#: The condition reason that autoscalers act on, and that of the API server for pods with scheduling gates.
UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"

QUEUED, PENDING, FAILED_SCHEDULING = "Queued", "Pending", "FailedScheduling"
QUOTA_RESERVED, ADMITTED, PARTIAL, RESUMED = "QuotaReserved", "Admitted", "PartiallyAdmitted", "Resumed"
SCHEDULED, RESCHEDULED, TRIMMED, GROWN = "Scheduled", "Rescheduled", "Trimmed", "Grown"
PREEMPTED, EVICTED, REQUEUED, REFUSED = "Preempted", "Evicted", "Requeued", "Refused"
NOT_SUPPORTED, BYPASSED, GROUP_INCOMPLETE = "NotSupported", "AdmissionBypassed", "PodGroupIncomplete"

#: Reasons that end when other work finishes, and sooner with more nodes.
_NODES_HELP = frozenset((*codes_of(ReasonKind.NODE_LACKS), int(Reason.GANG_PARTIAL)))

#: Reasons after which work starts again, and whose cause a person should examine.
_FAULTS = (Reason.NODE_LOST, Reason.DEVICE_LOST, Reason.GANG_BROKEN, Reason.BIND_FAILED, Reason.RESERVATION_LOST)

#: Reasons that refuse work until it is changed.
_REJECTS = (Reason.MALFORMED, Reason.SHARE_UNSUPPORTED, Reason.REFUSED_AT_FIRST_TRY)


class EventText(NamedTuple):
    """The text of an Event and of a pod condition."""

    reason: str
    message: str
    warning: bool = False
    condition: str = ""  # the condition's reason, if it differs

    @property
    def condition_reason(self) -> str:
        """The reason in a pod's condition."""
        return self.condition or self.reason


def pending_text(
    work: Work, code: int, evidence: tuple[int, ...], names: QuotaNames, *, deserves: bool = False
) -> EventText:
    """Why work is pending, and what would admit it; `deserves`: it needs nodes."""
    reason = Reason(code)
    spec = CATALOGUE[reason]
    word = word_of(code)
    waits = "" if reason in _REJECTS else _in_queue(work, names)
    text = f"{waits}{_sentence(reason_text_for(work, reason, evidence, names))} {spec.lift} ({word})"
    condition = UNSCHEDULABLE if deserves or spec.fixed_by is FixedBy.SCALE else word
    return EventText(REFUSED if reason in _REJECTS else PENDING, text[:_LONGEST], needs_action(reason), condition)


def needs_action(reason: Reason) -> bool:
    """Whether a person must act: the reason does not end by itself, or something failed."""
    return CATALOGUE[reason].fixed_by in (FixedBy.CHANGE, FixedBy.SCALE) or reason in _FAULTS


def deserves_nodes(code: int) -> bool:
    """Whether more nodes would admit work that is pending for this reason."""
    return code in _NODES_HELP


def word_of(code: int) -> str:
    """A reason in CamelCase."""
    return Reason(code).name.title().replace("_", "")


# -- lifecycle ---------------------------------------------------------------------------------------------------


def queued_text(work: Work, names: QuotaNames) -> EventText:
    """Work was queued."""
    return EventText(QUEUED, f"Queued in {queue_text(work.queue, names)}, priority {work.priority}.")


def started_text(work: Work, decision: WorkloadDecision, names: QuotaNames, nodes: Mapping[str, int]) -> EventText:
    """Work starts: with which quota, and where."""
    granted = grants_text(decision, names)
    quota = f" with {granted}" if granted else ""
    borrowed = ", borrowed in part" if decision.reason is Reason.ADMITTED_BORROWING else ""
    place = f", on {_nodes_text(nodes)}" if nodes else ""
    if decision.kind is DecisionKind.ADMIT:
        return EventText(
            QUOTA_RESERVED, f"Quota reserved by {queue_text(work.queue, names)}{quota}{borrowed}."[:_LONGEST]
        )
    whose = f" by {queue_text(work.queue, names)}" if work.queue in names.queues or decision.grants else ""
    word, verb = (RESUMED, "Resumed after an eviction: admitted again") if decision.again else (ADMITTED, "Admitted")
    return EventText(word, f"{verb}{whose}{quota}{borrowed}{place}."[:_LONGEST])


def partial_text(work: Work, decision: WorkloadDecision) -> EventText:
    """Work starts with fewer pods than it requests, as it allows."""
    pods = {pod_set: count for pod_set, _, _, count in decision.grants}
    sets = [
        f"{pods[at]} of {asked.count} pods of set {asked.name}"
        for at, asked in enumerate(work.pod_sets)
        if pods.get(at, asked.count) < asked.count
    ]
    return EventText(
        PARTIAL, f"Starts with {listed(sets)}: there is no quota for more, and it allows fewer."[:_LONGEST]
    )


def grants_text(decision: WorkloadDecision, names: QuotaNames) -> str:
    """The quota that a decision reserves: "8 nvidia.com/gpu of flavor spot"; empty: none."""
    totals: dict[int, int] = {}
    for _, lot, amount, _ in decision.grants:
        totals[lot] = totals.get(lot, 0) + amount
    parts = [share_text(names.lots[lot], amount) for lot, amount in totals.items() if 0 <= lot < len(names.lots)]
    return listed(parts, 6) if parts else ""


class Stopped(NamedTuple):
    """Stopped work: what it held, for how long, and which work preempted it."""

    work: Work
    granted: str
    nodes: Mapping[str, int]
    ran_ms: int  # -1: unknown
    cause: str = ""


def stopped_text(stopped: Stopped, reason: Reason, names: QuotaNames, *, preempted: bool) -> EventText:
    """Work is stopped: why, for which work, what that costs, and how it comes back."""
    whose = f" for {stopped.cause}" if stopped.cause else ""
    why = reason_text(reason, (), names).removeprefix("preempted: ")
    word = PREEMPTED if preempted else EVICTED
    parts = [
        f"{word}{whose}: {why}.",
        _lost(stopped),
        f"It gives back {stopped.granted} of {queue_text(stopped.work.queue, names)}." if stopped.granted else "",
        CATALOGUE[reason].lift,
    ]
    return EventText(word, " ".join(filter(None, parts))[:_LONGEST], needs_action(reason))


def _lost(stopped: Stopped) -> str:
    """The work lost: the time since admission without a checkpoint."""
    where = f" on {_nodes_text(stopped.nodes)}" if stopped.nodes else ""
    if stopped.ran_ms < 0:
        return f"It ran{where}; work since its last checkpoint is lost." if where else ""
    gpus = gpu_milli(stopped.work) / WHOLE_MILLI
    much = f" ({gpus * stopped.ran_ms / HOUR_MS:.2f} GPU-hours)" if gpus else ""
    return (
        f"It held its place for {duration_text(stopped.ran_ms)}{where}; work since its last checkpoint is lost{much}."
    )


def gpu_milli(work: Work) -> int:
    """GPUs that work requests, in thousandths."""
    each = (
        pods.count * pods.gpu.count * (pods.gpu.milli if pods.gpu.share is Share.FRACTION else WHOLE_MILLI)
        for pods in work.pod_sets
    )
    return sum(each)


def moved_text(nodes: Mapping[str, int]) -> EventText:
    """Pods of running work get other nodes."""
    return EventText(RESCHEDULED, f"Pods that lost their node go to {_nodes_text(nodes)}."[:_LONGEST])


def requeued_text(work: Work, names: QuotaNames) -> EventText:
    """Evicted work is pending again."""
    return EventText(REQUEUED, f"Its pods have left their nodes; it waits in {queue_text(work.queue, names)} again.")


def start_failed_text(work: Work, names: QuotaNames) -> EventText:
    """The start of work could not be written."""
    why = f"{reason_text(Reason.BIND_FAILED)}. {CATALOGUE[Reason.BIND_FAILED].lift}"
    return EventText(
        REQUEUED, f"It could not be started and waits in {queue_text(work.queue, names)}: {why}", warning=True
    )


def scheduled_text(pod: Ref, node: str) -> EventText:
    """A pod is bound."""
    return EventText(SCHEDULED, f"Successfully assigned {pod.namespace}/{pod.name} to {node}")


# -- faults ------------------------------------------------------------------------------------------------------


def unsupported(refusals: tuple[str, ...]) -> EventText:
    """What an object requests that is not supported."""
    return EventText(NOT_SUPPORTED, "; ".join(refusals)[:_LONGEST], warning=True)


def incomplete_text(group: str, there: int, total: int) -> EventText:
    """A pod waits for other pods of its group."""
    if not total:
        why = f"Pod group {group} does not say how many pods it has. Set the annotation {GROUP_TOTAL}."
        return EventText(GROUP_INCOMPLETE, why, warning=True)
    missing = total - there
    text = f"Pod group {group} has {there} of its {total} pods: {missing} {'is' if missing == 1 else 'are'} missing."
    return EventText(GROUP_INCOMPLETE, f"{text} It is queued when all of them are created.", warning=True)


def unreadable(error: str) -> EventText:
    """An object cannot be handled."""
    message = f"Tidegate cannot handle this object and keeps its last valid state: {error}"
    return EventText("Unreadable", message[:_LONGEST], warning=True)


def blocked(answer: str) -> EventText:
    """A pod cannot be evicted yet."""
    message = f"Tidegate evicts this pod as soon as its PodDisruptionBudget allows it, and keeps trying: {answer}"
    return EventText("EvictionBlocked", message[:_LONGEST], warning=True)


PAST = EventText(
    BYPASSED,
    "It names a queue and was not held until it was admitted: it runs without quota, and is left alone. "
    "Suspend it to have it queued.",
    warning=True,
)


def grown(have: int, want: int, *, trimmed: bool, suspends: bool) -> EventText:
    """A running job requests more pods than it was admitted with."""
    asked = f"It was admitted with {have} pods and asks for {want} while it runs."
    if trimmed:
        return EventText(TRIMMED, f"{asked} It is set back to {have}: suspend it to change its size.", warning=True)
    how = "suspend it" if suspends else "scale it to none and up again"
    return EventText(GROWN, f"{asked} The new pods wait: {how} to admit all of them.", warning=True)


# -- parts -------------------------------------------------------------------------------------------------------


def _in_queue(work: Work, names: QuotaNames) -> str:
    return f"Waits in {queue_text(work.queue, names)}: " if work.queue in names.queues else "Waits: "


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}."


def _nodes_text(nodes: Mapping[str, int]) -> str:
    return listed([f"{name} ({pods} pod{'s' if pods != 1 else ''})" for name, pods in nodes.items()], _MOST_NODES)


# -- as writes ---------------------------------------------------------------------------------------------------


def condition(pod: Ref, reporting: EventText) -> Write:
    """The write of the PodScheduled condition."""
    told = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reporting.condition_reason,
        "message": reporting.message,
    }
    return merge_by_key(pod, {"status": {"conditions": [told]}}, part="status")


def event(thing: Ref, reporting: EventText, now_ms: int) -> Write:
    """The write of an Event."""
    told_apart = blake2b(
        f"{thing.text} {thing.uid}".encode(), digest_size=4
    ).hexdigest()  # other kinds may share the name
    name = f"{thing.name[:200]}.{told_apart}.{reporting.reason.lower()}.{now_ms:x}"
    action = _ACTIONS.get(reporting.reason, "Admitting")
    return event_write(
        thing, EventMessage(reporting.reason, reporting.message, action, reporting.warning), name, now_ms
    )


_ACTIONS = {
    FAILED_SCHEDULING: "Scheduling",
    SCHEDULED: "Binding",
    PREEMPTED: "Preempting",
    EVICTED: "Evicting",
    REQUEUED: "Requeuing",
}
