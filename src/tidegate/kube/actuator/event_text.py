"""Why work waits or is refused, for people to read with the object, and for node autoscalers.

Unschedulable is the word that makes autoscalers buy nodes: it is said of demand that more nodes would help and that has
lasted as long as nodes take to come. Anything shorter is noise, and is told why it waits in the reason's own word.
Must not know: when it is written.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from tidegate.journal.lots import Names
from tidegate.journal.words import reason_text
from tidegate.kube.transport.writes import EventMessage, Ref, Write, event_write, merge_by_key
from tidegate.model.codes import Remedy
from tidegate.model.reasons import CATALOGUE, Reason, ReasonKind, codes_of

_NO_NAMES = Names()

#: The longest message that Kubernetes keeps in full where people look.
_LONGEST = 1024

#: What autoscalers listen to.
UNSCHEDULABLE = "Unschedulable"

#: Reasons that lift themselves when others finish, and that more nodes would lift sooner.
_NODES_HELP = frozenset((*codes_of(ReasonKind.NODE_LACKS), int(Reason.GANG_PARTIAL)))


class EventText(NamedTuple):
    """Something to be said of work that does not run."""

    reason: str
    message: str
    warning: bool = False


def held(code: int, evidence: tuple[int, ...], names: Names = _NO_NAMES, *, deserves: bool = False) -> EventText:
    """Why it waits, and what would lift that; `deserves`: nodes should come for it."""
    reason = Reason(code)
    spec = CATALOGUE[reason]
    message = f"{reason_text(reason, evidence, names)}. {spec.lift}"[:_LONGEST]
    return EventText(UNSCHEDULABLE if deserves or spec.remedy is Remedy.SCALE else word_of(code), message)


def deserves_nodes(code: int) -> bool:
    """Whether demand that is held for this reason deserves nodes once it lasts."""
    return code in _NODES_HELP


def word_of(code: int) -> str:
    """A reason as Kubernetes writes such words."""
    return Reason(code).name.title().replace("_", "")


def unsupported(refusals: tuple[str, ...]) -> EventText:
    """What cannot be done for it, by name."""
    return EventText("NotSupported", "; ".join(refusals)[:_LONGEST], warning=True)


PAST = EventText(
    "PastTheDoor",
    "It names a queue and was not held until it was admitted: it runs without quota, and is left alone. "
    "Suspend it to have it queued.",
    warning=True,
)


def grown(have: int, want: int, *, trimmed: bool) -> EventText:
    """What happens to a running job that asks for more pods than it was admitted with."""
    asked = f"It was admitted with {have} pods and asks for {want} while it runs."
    if trimmed:
        return EventText("Trimmed", f"{asked} It is set back to {have}: suspend it to change its size.", warning=True)
    return EventText("Grown", f"{asked} The new pods wait: suspend it to admit all of them.", warning=True)


def condition(pod: Ref, saying: EventText) -> Write:
    """Say it in the condition that every scheduler sets."""
    told = {"type": "PodScheduled", "status": "False", "reason": saying.reason, "message": saying.message}
    return merge_by_key(pod, {"status": {"conditions": [told]}}, part="status")


def event(thing: Ref, saying: EventText, now_ms: int) -> Write:
    """Say it as an event about an object."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
    name = f"{thing.name[:200]}.{saying.reason.lower()}.{now_ms:x}"
    return event_write(thing, EventMessage(saying.reason, saying.message, "Admitting", saying.warning), name, at)
