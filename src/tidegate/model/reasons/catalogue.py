"""The reason catalogue: why the engine made a decision, and what lifts the reason.

One entry makes the sentence, the condition, the metric label and the docs, and says whether someone must act.
"""

from __future__ import annotations

from functools import partial

from tidegate.model.reasons.codes import NODE_REFUSALS, FixedBy, Reason, ReasonKind, ReasonSpec
from tidegate.model.reasons.queue_reasons import QUEUE_REASONS

__all__ = [
    "CATALOGUE",
    "CODES_END",
    "NODE_REFUSALS",
    "ROOM_CODES",
    "FixedBy",
    "Reason",
    "ReasonKind",
    "ReasonSpec",
    "codes_of",
]


#: Evidence of a pod that does not fit: how many pods of the gang would fit now, and how many must.
_FIT = ("fits", "pods")

_mismatch = partial(ReasonSpec, fixed_by=FixedBy.CHANGE, kind=ReasonKind.NODE_MISMATCH)
_lacks = partial(ReasonSpec, kind=ReasonKind.NODE_LACKS)
_goes_later = partial(ReasonSpec, kind=ReasonKind.ORDER)
_needs_change = partial(ReasonSpec, fixed_by=FixedBy.CHANGE)
_done = partial(ReasonSpec, lift="Nothing to lift.", fixed_by=FixedBy.NONE)

_SPECS = (
    ReasonSpec(
        Reason.NODE_DOWN,
        "node not ready",
        "the nodes that match are not ready or closed for new work",
        "Bring the nodes back, or add one.",
        fixed_by=FixedBy.SCALE,
        kind=ReasonKind.NODE_CLOSED,
    ),
    _mismatch(
        Reason.NODE_TERMS,
        "node terms",
        "no node has the labels it asks for",
        "Relax its node selector or affinity, or label a node.",
    ),
    _mismatch(
        Reason.NODE_TAINT,
        "taint",
        "the nodes that match carry a taint it does not tolerate",
        "Add a toleration, or remove the taint.",
    ),
    _mismatch(
        Reason.GPU_MODEL,
        "GPU model",
        "no node has a GPU model it accepts",
        "Accept one more GPU model, or add a node that has one.",
    ),
    ReasonSpec(
        Reason.POD_TOO_LARGE,
        "pod too large",
        "one pod asks for more than any matching node has when empty",
        "Ask for less per pod, or add a larger node.",
        fixed_by=FixedBy.CHANGE,
        kind=ReasonKind.NODE_TOO_SMALL,
    ),
    _lacks(
        Reason.LACKS_GPU,
        "GPUs busy",
        "no node has {gpus} idle GPUs for its next pod; {fits} of {pods} pods would fit now",
        "It starts when enough GPUs on one node are free at once.",
        evidence=("gpus", *_FIT),
    ),
    _lacks(
        Reason.LACKS_FRACTION,
        "no GPU with enough left",
        "no device has {milli} of a GPU left; {fits} of {pods} pods would fit now",
        "It starts when a GPU has that much left.",
        evidence=("milli", *_FIT),
    ),
    _lacks(
        Reason.LACKS_GPU_MEMORY,
        "GPU memory",
        "no GPU with enough left has {memory_mib} of memory free; {fits} of {pods} pods would fit now",
        "It starts when a GPU has that much memory free.",
        evidence=("memory_mib", *_FIT),
    ),
    _lacks(
        Reason.LACKS_CPU,
        "CPU",
        "nodes with room for its GPUs lack its {cpu_milli} CPU cores; {fits} of {pods} pods would fit now",
        "Ask for less CPU per pod, or wait until CPU is free next to idle GPUs.",
        evidence=("cpu_milli", *_FIT),
    ),
    _lacks(
        Reason.LACKS_MEMORY,
        "memory",
        "nodes with room for its GPUs lack its {memory_mib} of memory; {fits} of {pods} pods would fit now",
        "Ask for less memory per pod, or wait until memory is free next to idle GPUs.",
        evidence=("memory_mib", *_FIT),
    ),
    _lacks(
        Reason.LACKS_SLOT,
        "pod slots",
        "nodes have no pod slot left; {fits} of {pods} pods would fit now",
        "It starts when a pod leaves.",
        evidence=("slots", *_FIT),
    ),
    _lacks(
        Reason.LACKS_RESOURCE,
        "other resource",
        "nodes lack another resource it asks for ({amount} a pod); {fits} of {pods} pods would fit now",
        "Ask for less of it, or wait until it is free.",
        evidence=("amount", *_FIT),
    ),
    ReasonSpec(
        Reason.NO_NODES,
        "no nodes",
        "the cluster has no nodes",
        "Add a node.",
        fixed_by=FixedBy.SCALE,
        kind=ReasonKind.ROOM,
    ),
    ReasonSpec(
        Reason.GANG_PARTIAL,
        "gang does not fit whole",
        "only {fits} of its {pods} pods fit at once, and a gang starts whole or not at all",
        "It starts when all its pods fit at once.",
        kind=ReasonKind.ROOM,
        evidence=_FIT,
    ),
    _goes_later(
        Reason.BEHIND_HEAD,
        "behind the head",
        "work that goes before it still waits, and it has not been tried yet",
        "It is tried when its turn comes.",
    ),
    _goes_later(
        Reason.OUTRANKED,
        "outranked",
        "{ahead} workloads go first by the order and leave it no room",
        "It starts when it ranks high enough.",
        evidence=("ahead", "pods"),
    ),
    _goes_later(
        Reason.AWAITS_VICTIMS,
        "waits for victims to leave",
        "its place is chosen; it waits until preempted work has left",
        "It starts when the last of them is gone.",
    ),
    ReasonSpec(
        Reason.PLACES_RESERVED,
        "places reserved",
        "it was passed over for longer than the limit, and places are reserved for it",
        "It starts when the work that runs there has ended.",
        kind=ReasonKind.ROOM,
    ),
    ReasonSpec(
        Reason.RESERVED_FOR_OTHERS,
        "reserved for others",
        "the room that it would fit in is reserved for work that goes before it",
        "It is tried again when that work has started.",
    ),
    _goes_later(
        Reason.BEHIND_EQUAL,
        "behind its equals",
        "{ahead} workloads that ask for the same go first",
        "It is tried when it is the first of them.",
        evidence=("ahead",),
    ),
    _needs_change(
        Reason.NO_ESTIMATE,
        "no estimate",
        "its runtime is not known, and the order depends on it",
        "Submit it with an `estimate` of its runtime, or let such work go last (policy `without_estimate: last`).",
    ),
    _done(Reason.PLACED, "placed", "placed"),
    _done(Reason.PLACED_AGAIN, "placed again", "placed again after {evictions} evictions", evidence=("evictions",)),
    ReasonSpec(
        Reason.PREEMPTED_BY_ORDER,
        "preempted by order",
        "preempted: work that ranks higher needs its GPUs",
        "It is placed again when it ranks high enough.",
    ),
    ReasonSpec(
        Reason.PREEMPTED_TO_MOVE,
        "moved",
        "stopped to be placed on other nodes",
        "It is placed again when its new room is free.",
    ),
    ReasonSpec(Reason.NODE_LOST, "node lost", "a node it ran on was lost", "It is placed again when it fits."),
    ReasonSpec(Reason.DEVICE_LOST, "GPU lost", "a GPU it ran on failed", "It is placed again when it fits."),
    ReasonSpec(
        Reason.GANG_BROKEN,
        "pod failed",
        "one of its pods failed, and a gang runs whole or not at all",
        "It is placed again when it fits.",
    ),
    ReasonSpec(
        Reason.BIND_FAILED, "could not be carried out", "the cluster refused the decision", "It is tried again."
    ),
    ReasonSpec(
        Reason.CANCELLED,
        "cancelled",
        "it was cancelled",
        "Submit it again if it is still wanted.",
        fixed_by=FixedBy.NONE,
    ),
    _needs_change(
        Reason.REFUSED_AT_FIRST_TRY,
        "does not wait",
        "it did not fit at its first try, and the policy lets nothing wait",
        "Let work wait (policy `waits: true`), and submit it again.",
        evidence=("first_reason",),
    ),
    _needs_change(
        Reason.MALFORMED, "malformed", "it asks for something impossible", "Correct the request and submit it again."
    ),
    _needs_change(
        Reason.SHARE_UNSUPPORTED,
        "GPU share not supported",
        "it asks for a MIG slice, which is not placed yet",
        "Ask for whole GPUs or a fraction.",
    ),
)

CATALOGUE: dict[Reason, ReasonSpec] = {spec.reason: spec for spec in (*_SPECS, *QUEUE_REASONS)}


def codes_of(*kinds: ReasonKind) -> tuple[int, ...]:
    """The codes of the reasons of these kinds, the lowest first."""
    return tuple(sorted(int(reason) for reason, spec in CATALOGUE.items() if spec.kind in kinds))


#: Every code of the catalogue is below this number: what is counted by code has so many places.
CODES_END = max(map(int, Reason)) + 1

#: Codes that say that there is no room.
ROOM_CODES = codes_of(*NODE_REFUSALS, ReasonKind.ROOM)
