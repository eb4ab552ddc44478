"""Writes docs/reasons.md from the reason catalogue: run it after changing a reason."""

from __future__ import annotations

from pathlib import Path

from tidegate.model.reasons.catalogue import CATALOGUE, FixedBy, ReasonKind, ReasonSpec

REASONS = Path(__file__).parent.parent / "docs" / "reasons.md"

_HEAD = """\
# Reasons

Every decision carries a reason: a code, up to four numbers of evidence, and for a hold a tally of why nodes were not
taken. `tidegate explain JOB` says them in words, as below; numbers and names in these sentences are examples. Codes are
stable: a number is never used again for something else.

A refusal is about new pods. A pod that is observed on a node stays there, whatever the node refuses: a taint, a cordon,
other labels, too few GPUs or too little memory never move it. Where nodes refuse a pod for several reasons, the reason
reported is of the first of these kinds that occurs: nodes that lack something now, nodes that are closed, nodes that
are too small, nodes that do not match the pod. Within one kind it is the reason of most nodes.

<!-- Made from src/tidegate/model/reasons/catalogue.py by tests/reasons_file.py: change that, then run this. -->
"""

_FIXED_BY = {
    FixedBy.NONE: "nothing",
    FixedBy.WAIT: "time: it lifts itself when others finish or leave",
    FixedBy.SCALE: "more nodes",
    FixedBy.CHANGE: "a change of the work, the nodes or the policy",
}

_KINDS = {
    ReasonKind.NODE_MISMATCH: "a node that does not go with the pod",
    ReasonKind.NODE_TOO_SMALL: "a node that is too small for the pod, even when empty",
    ReasonKind.NODE_CLOSED: "a node that takes no new pods",
    ReasonKind.NODE_LACKS: "a node that lacks what others hold",
    ReasonKind.ROOM: "room in the cluster as a whole",
    ReasonKind.ORDER: "the order: others go first",
}

#: What a number of evidence is, by its name or the end of it, and an example of how it is said.
_COUNTS = {
    "ahead": ("workloads that go first", "3"),
    "amount": ("units of the resource", "4"),
    "count": ("pods that are admitted", "2"),
    "cpu_milli": ("thousandths of a CPU core that a pod asks for", "8"),
    "evictions": ("times it was evicted", "2"),
    "first_reason": ("code of the reason why it did not fit", "6"),
    "fits": ("pods that would fit now", "1"),
    "gpus": ("GPUs that a pod asks for", "8"),
    "level": ("cohorts that it goes up to borrow; 0: none", "1"),
    "flavor_resource": ("row of the flavor-resource: one resource in one flavor", "gpu in h100-reserved"),
    "memory_mib": ("MiB that a pod asks for", "64Gi"),
    "milli": ("thousandths of a GPU that a pod asks for", "0.5"),
    "topology_failure": ("code of the reason why its topology request fails", "the topology has no such level"),
    "missing": ("units of the resource that are missing", "4"),
    "option": ("row of the flavor that was looked at last", "1"),
    "pods": ("pods that must fit", "4"),
    "queue": ("row of the queue", "research"),
    "slots": ("pod slots that a pod takes", "1"),
    "why": ("code of the reason why that flavor will not do", "flavor tainted"),
    "_milli": ("thousandths", "0.5"),
    "_mib": ("MiB", "64Gi"),
    "_ms": ("milliseconds", "1m30s"),
}


def reasons_text() -> str:
    """The whole page."""
    specs = sorted(CATALOGUE.values(), key=lambda spec: spec.reason)
    rows = [f"| {spec.reason.value} | [`{_name(spec)}`](#{_name(spec).lower()}) | {spec.title} |" for spec in specs]
    table = "\n".join(["| code | reason | in a few words |", "|---|---|---|", *rows])
    return "\n".join([_HEAD, table, "", *map(_section, specs)])


def _name(spec: ReasonSpec) -> str:
    return spec.reason.name


def _section(spec: ReasonSpec) -> str:
    sentence = spec.template.format(**{name: counts(name)[1] for name in spec.evidence})
    lines = [
        f"## {_name(spec)}",
        f"{spec.reason.value}: {sentence}.",
        "",
        *_about(spec),
        f"- **What lifts it**: {_FIXED_BY[spec.fixed_by]}. {spec.lift}",
        f"- **Evidence**: {_evidence(spec)}.",
        "",
    ]
    return "\n".join(lines)


def _about(spec: ReasonSpec) -> list[str]:
    return [f"- **What it is about**: {_KINDS[spec.kind]}."] if spec.kind is not ReasonKind.OTHER else []


def _evidence(spec: ReasonSpec) -> str:
    return "; ".join(f"`{name}` ({counts(name)[0]})" for name in spec.evidence) or "none"


def counts(name: str) -> tuple[str, str]:
    """What a number of evidence is, with its unit, and an example."""
    found = _COUNTS.get(name) or next((said for end, said in _COUNTS.items() if name.endswith(end)), None)
    if found is None:
        raise LookupError(f"evidence {name!r} has no unit: say what it counts in tests/reasons_file.py")
    return found


if __name__ == "__main__":
    REASONS.write_text(reasons_text())
    print(f"wrote {REASONS}")
