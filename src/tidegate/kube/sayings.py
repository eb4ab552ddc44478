"""Why work waits or is refused, for people to read with the pod, and for node autoscalers.

Only demand that more nodes would help is called Unschedulable: that word makes autoscalers buy nodes.
Must not know: when it is written.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.journal.lots import Names
from tidegate.journal.words import reason_text
from tidegate.kube.writes import Ref, Write, merge_by_key
from tidegate.model.codes import Remedy
from tidegate.model.reasons import CATALOGUE, Reason

_NO_NAMES = Names()

#: The longest message that Kubernetes keeps in full where people look.
_LONGEST = 1024


class Saying(NamedTuple):
    """Something to be said of a pod that is not bound."""

    reason: str
    message: str


def held(code: int, evidence: tuple[int, ...], names: Names = _NO_NAMES) -> Saying:
    """Why it waits, and what would lift that."""
    reason = Reason(code)
    spec = CATALOGUE[reason]
    word = "Unschedulable" if spec.remedy is Remedy.SCALE else reason.name.title().replace("_", "")
    return Saying(word, f"{reason_text(reason, evidence, names)}. {spec.lift}"[:_LONGEST])


def unsupported(refusals: tuple[str, ...]) -> Saying:
    """What cannot be done for it, by name."""
    return Saying("NotSupported", "; ".join(refusals)[:_LONGEST])


def condition(pod: Ref, saying: Saying) -> Write:
    """Say it in the condition that every scheduler sets."""
    told = {"type": "PodScheduled", "status": "False", "reason": saying.reason, "message": saying.message}
    return merge_by_key(pod, {"status": {"conditions": [told]}}, part="status")
