"""The reason catalogue: why a decision was made, what would lift it, and what wakes the work it holds.

One entry drives the text, the condition, the label, the docs, and the wake-up. Text is made elsewhere, from templates.
Must not know: states, or how text is shown.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from tidegate.model.spec import Spec


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
    # Why a workload is placed, preempted, evicted, released or rejected.
    PLACED = 40
    PLACED_AGAIN = 41
    PREEMPTED_BY_ORDER = 50
    PREEMPTED_TO_MOVE = 51
    NODE_LOST = 60
    DEVICE_LOST = 61
    GANG_BROKEN = 62
    BIND_FAILED = 63
    CANCELLED = 64
    REFUSED_AT_FIRST_TRY = 80
    MALFORMED = 81
    SHARE_UNSUPPORTED = 82


class Wake(IntFlag):
    """What kind of fact can lift a reason."""

    NEVER = 0
    FREED = 1  # something was released
    NODES = 2  # a node came or changed
    ORDER = 4  # the order between workloads changed
    POLICY = 8
    WORK = 16  # the workload itself changed


class Remedy(IntEnum):
    """Which part of the engine could lift a reason."""

    NONE = 0
    WAIT = 1  # it lifts itself when others finish
    PREEMPT = 2  # taking from others would lift it
    SCALE = 3  # more nodes would lift it
    CHANGE = 4  # only a change of the work or the policy lifts it


class ReasonSpec(Spec, frozen=True):
    """Everything that is known about a reason."""

    reason: Reason
    remedy: Remedy
    wakes_on: Wake
    title: str  # a few words, for labels and conditions
    template: str  # a sentence; names in braces are evidence
    lift: str  # what would lift it, for the reader
    evidence: tuple[str, ...] = ()  # names, with units: the four integers of the row in order


_ROOM = Wake.FREED | Wake.NODES | Wake.WORK
_FLEET = Wake.NODES | Wake.WORK


def _spec(
    reason: Reason, remedy: Remedy, wakes_on: Wake, title: str, template: str, lift: str, *evidence: str
) -> ReasonSpec:
    return ReasonSpec(
        reason=reason, remedy=remedy, wakes_on=wakes_on, title=title, template=template, lift=lift, evidence=evidence
    )


_SPECS = (
    _spec(
        Reason.NODE_DOWN,
        Remedy.SCALE,
        _FLEET,
        "node not ready",
        "the nodes that match are not ready or closed for new work",
        "Bring the nodes back, or add one.",
    ),
    _spec(
        Reason.NODE_TERMS,
        Remedy.CHANGE,
        _FLEET,
        "node terms",
        "no node has the labels it asks for",
        "Relax its node selector or affinity, or label a node.",
    ),
    _spec(
        Reason.NODE_TAINT,
        Remedy.CHANGE,
        _FLEET,
        "taint",
        "the nodes that match carry a taint it does not tolerate",
        "Add a toleration, or remove the taint.",
    ),
    _spec(
        Reason.GPU_MODEL,
        Remedy.CHANGE,
        _FLEET,
        "GPU model",
        "no node has a GPU model it accepts",
        "Accept one more GPU model, or add a node that has one.",
    ),
    _spec(
        Reason.POD_TOO_LARGE,
        Remedy.CHANGE,
        _FLEET,
        "pod too large",
        "one pod asks for more than any matching node has when empty",
        "Ask for less per pod, or add a larger node.",
    ),
    _spec(
        Reason.LACKS_GPU,
        Remedy.WAIT,
        _ROOM,
        "GPUs busy",
        "no node has {gpus} idle GPUs for its next pod; {fits} of {pods} pods would fit now",
        "It starts when enough GPUs on one node are free at once.",
        "gpus",
        "fits",
        "pods",
    ),
    _spec(
        Reason.LACKS_FRACTION,
        Remedy.WAIT,
        _ROOM,
        "no GPU with enough left",
        "no GPU has {milli} milli left; {fits} of {pods} pods would fit now",
        "It starts when a GPU has that much left.",
        "milli",
        "fits",
        "pods",
    ),
    _spec(
        Reason.LACKS_GPU_MEMORY,
        Remedy.WAIT,
        _ROOM,
        "GPU memory",
        "no GPU with enough left has {memory_mib} MiB of memory free; {fits} of {pods} pods would fit now",
        "It starts when a GPU has that much memory free.",
        "memory_mib",
        "fits",
        "pods",
    ),
    _spec(
        Reason.LACKS_CPU,
        Remedy.WAIT,
        _ROOM,
        "CPU",
        "nodes with room for its GPUs lack its {cpu_milli} milli-cores; {fits} of {pods} pods would fit now",
        "Ask for less CPU per pod, or wait until CPU is free beside idle GPUs.",
        "cpu_milli",
        "fits",
        "pods",
    ),
    _spec(
        Reason.LACKS_MEMORY,
        Remedy.WAIT,
        _ROOM,
        "memory",
        "nodes with room for its GPUs lack its {memory_mib} MiB of memory; {fits} of {pods} pods would fit now",
        "Ask for less memory per pod, or wait until memory is free beside idle GPUs.",
        "memory_mib",
        "fits",
        "pods",
    ),
    _spec(
        Reason.LACKS_SLOT,
        Remedy.WAIT,
        _ROOM,
        "pod slots",
        "nodes have no pod slot left; {fits} of {pods} pods would fit now",
        "It starts when a pod leaves.",
        "slots",
        "fits",
        "pods",
    ),
    _spec(
        Reason.LACKS_RESOURCE,
        Remedy.WAIT,
        _ROOM,
        "other resource",
        "nodes lack another resource it asks for ({amount} a pod); {fits} of {pods} pods would fit now",
        "Ask for less of it, or wait until it is free.",
        "amount",
        "fits",
        "pods",
    ),
    _spec(
        Reason.NO_NODES,
        Remedy.SCALE,
        _FLEET,
        "no nodes",
        "the cluster has no nodes",
        "Add a node.",
    ),
    _spec(
        Reason.GANG_PARTIAL,
        Remedy.WAIT,
        _ROOM,
        "gang does not fit whole",
        "only {fits} of its {pods} pods fit at once, and a gang starts whole or not at all",
        "It starts when all its pods fit at once.",
        "fits",
        "pods",
    ),
    _spec(
        Reason.BEHIND_HEAD,
        Remedy.WAIT,
        _ROOM | Wake.ORDER,
        "behind the head",
        "the order is strict and the head of the queue waits",
        "It is tried when the head has started.",
    ),
    _spec(
        Reason.OUTRANKED,
        Remedy.WAIT,
        _ROOM | Wake.ORDER,
        "outranked",
        "{ahead} workloads go first by the order and leave it no room",
        "It starts when it ranks high enough.",
        "ahead",
        "pods",
    ),
    _spec(
        Reason.AWAITS_VICTIMS,
        Remedy.WAIT,
        _ROOM | Wake.ORDER,
        "waits for victims to leave",
        "its place is chosen; it waits until preempted work has left",
        "It starts when the last of them is gone.",
    ),
    _spec(
        Reason.BEHIND_EQUAL,
        Remedy.WAIT,
        _ROOM | Wake.ORDER,
        "behind its equals",
        "{ahead} workloads that ask for the same go first",
        "It is tried when it is the first of them.",
        "ahead",
    ),
    _spec(Reason.PLACED, Remedy.NONE, Wake.NEVER, "placed", "placed", "Nothing to lift."),
    _spec(
        Reason.PLACED_AGAIN,
        Remedy.NONE,
        Wake.NEVER,
        "placed again",
        "placed again after {evictions} evictions",
        "Nothing to lift.",
        "evictions",
    ),
    _spec(
        Reason.PREEMPTED_BY_ORDER,
        Remedy.WAIT,
        _ROOM | Wake.ORDER,
        "preempted by order",
        "preempted: work that ranks higher needs its GPUs",
        "It is placed again when it ranks high enough.",
    ),
    _spec(
        Reason.PREEMPTED_TO_MOVE,
        Remedy.WAIT,
        _ROOM | Wake.ORDER,
        "moved",
        "stopped to be placed on other nodes",
        "It is placed again when its new room is free.",
    ),
    _spec(
        Reason.NODE_LOST,
        Remedy.WAIT,
        _ROOM,
        "node lost",
        "a node it ran on was lost",
        "It is placed again when it fits.",
    ),
    _spec(
        Reason.DEVICE_LOST,
        Remedy.WAIT,
        _ROOM,
        "GPU lost",
        "a GPU it ran on failed",
        "It is placed again when it fits.",
    ),
    _spec(
        Reason.GANG_BROKEN,
        Remedy.WAIT,
        _ROOM,
        "pod failed",
        "one of its pods failed, and a gang runs whole or not at all",
        "It is placed again when it fits.",
    ),
    _spec(
        Reason.BIND_FAILED,
        Remedy.WAIT,
        _ROOM,
        "could not be carried out",
        "the cluster refused the decision",
        "It is tried again.",
    ),
    _spec(
        Reason.CANCELLED,
        Remedy.NONE,
        Wake.NEVER,
        "cancelled",
        "it was cancelled",
        "Submit it again if it is still wanted.",
    ),
    _spec(
        Reason.REFUSED_AT_FIRST_TRY,
        Remedy.CHANGE,
        Wake.NEVER,
        "does not wait",
        "it did not fit at its first try, and the policy lets nothing wait",
        "Let work wait (policy `waits: true`), and submit it again.",
        "first_reason",
    ),
    _spec(
        Reason.MALFORMED,
        Remedy.CHANGE,
        Wake.WORK,
        "malformed",
        "it asks for something impossible",
        "Correct the request and submit it again.",
    ),
    _spec(
        Reason.SHARE_UNSUPPORTED,
        Remedy.CHANGE,
        Wake.WORK | Wake.POLICY,
        "GPU share not supported",
        "it asks for a MIG slice, which is not placed yet",
        "Ask for whole GPUs or a fraction.",
    ),
)

CATALOGUE: dict[Reason, ReasonSpec] = {spec.reason: spec for spec in _SPECS}
