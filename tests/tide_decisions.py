"""Decisions as lines of text, for scenarios: what a line expects, and what the engine decided, said alike.

    place gang on h100-0-00[0-7], h100-0-01[0-7]          # devices in brackets; 8x NODE for eight pods there
    place gang PLACED_AGAIN
    admit gang ADMITTED_BORROWING amount=8000 count=2      # GPUs in thousandths
    hold gang LACKS_GPU gpus=8 fits=0 pods=1 (3 LACKS_GPU, 2 GPU_MODEL)
    preempt long PREEMPTED_BY_ORDER for short
    evict gang NODE_LOST
    reject gang MALFORMED

Must not know: facts, files.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import NamedTuple

from builders import Cluster
from tidegate.model.decisions import NOBODY, DecisionKind
from tidegate.model.reasons.catalogue import CATALOGUE, Reason

_PLAIN = {"place": Reason.PLACED.name, "admit": Reason.ADMITTED.name}  # what need not be said
_KINDS = tuple(kind.name.lower() for kind in DecisionKind)
_REASONS = {reason.name for reason in CATALOGUE}
_LINE = re.compile(
    r"(?P<kind>[a-z]+) (?P<job>\S+)(?: (?P<reason>[A-Z_]+))?(?P<evidence>(?: [a-z_]+=-?\d+)*)"
    r"(?: for (?P<cause>\S+))?(?: on (?P<places>[^()]+?))?(?: \((?P<tally>[^()]+)\))?"
)
_PLACE = re.compile(r"(?:(?P<times>\d+)x )?(?P<node>[^\s,\[\]]+)(?P<devices>\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])?")
_TALLIED = re.compile(r"(?P<nodes>\d+) (?P<reason>[A-Z_]+)")


class Decision(NamedTuple):
    """One decision; what is None is not told."""

    kind: str
    job: str
    reason: str
    evidence: dict[str, int] | None = None
    cause: str | None = None
    places: tuple[str, ...] | None = None  # one a pod, sorted
    tally: dict[str, int] | None = None  # nodes by reason

    def text(self) -> str:
        """The line that says it."""
        parts = [self.kind, self.job]
        parts += [self.reason] if self.reason != _PLAIN.get(self.kind) else []
        parts += [f"{name}={value}" for name, value in (self.evidence or {}).items()]
        parts += [f"for {self.cause}"] if self.cause else []
        if self.places:
            times = [(place, len(list(same))) for place, same in groupby(self.places)]
            parts.append("on " + ", ".join(f"{count}x {place}" if count > 1 else place for place, count in times))
        if self.tally:
            parts.append("(" + ", ".join(f"{nodes} {reason}" for reason, nodes in sorted(self.tally.items())) + ")")
        return " ".join(parts)

    def told_like(self, other: Decision) -> Decision:
        """This decision, with no more said of it than the other says."""
        evidence, places = None, None
        if other.evidence is not None and self.evidence is not None:
            evidence = {name: value for name, value in self.evidence.items() if name in other.evidence}
        if other.places is not None and self.places is not None:
            exact = any("[" in place for place in other.places)
            places = tuple(place if exact else place.partition("[")[0] for place in self.places)
        return self._replace(
            evidence=evidence,
            places=places,
            cause=None if other.cause is None else self.cause,
            tally=None if other.tally is None else self.tally,
        )


# -- expected --------------------------------------------------------------------------------------------------


def expect(text: str) -> Decision:
    """The decision that a line expects; a ValueError says what is wrong with it."""
    match = _LINE.fullmatch(text)
    if match is None or match["kind"] not in _KINDS:
        raise ValueError(f"expected `nothing` or a decision ({', '.join(_KINDS)}), a job, a REASON and details")
    reason = match["reason"] or _PLAIN.get(match["kind"], "")
    if reason not in _REASONS:
        raise ValueError(f"expected a reason of the catalogue, such as LACKS_GPU, and found {reason or 'none'}")
    return Decision(
        match["kind"],
        match["job"],
        reason,
        _evidence(reason, match["evidence"].split()),
        match["cause"],
        _places(match["places"]) if match["places"] else None,
        _tally(match["tally"]) if match["tally"] else None,
    )


def _evidence(reason: str, pairs: list[str]) -> dict[str, int] | None:
    known = CATALOGUE[Reason[reason]].evidence
    told = {name: int(value) for name, _, value in (pair.partition("=") for pair in pairs)}
    for name in told:
        if name not in known:
            raise ValueError(f"{reason} has no evidence {name!r}; it has {', '.join(known) or 'none'}")
    return {name: told[name] for name in known if name in told} or None


def _places(text: str) -> tuple[str, ...]:
    places: list[str] = []
    for part in re.split(r", ", text):
        match = _PLACE.fullmatch(part)
        if match is None:
            raise ValueError(f"expected a place such as h100-0-00, h100-0-00[0-3] or 8x h100-0-00, found {part!r}")
        places += [match["node"] + (match["devices"] or "")] * int(match["times"] or 1)
    return tuple(sorted(places))


def _tally(text: str) -> dict[str, int]:
    tally = {}
    for part in text.split(", "):
        match = _TALLIED.fullmatch(part)
        if match is None or match["reason"] not in _REASONS:
            raise ValueError(f"expected nodes and a reason such as `3 LACKS_GPU`, found {part!r}")
        tally[match["reason"]] = int(match["nodes"])
    return tally


# -- found -----------------------------------------------------------------------------------------------------


def decided(cluster: Cluster) -> list[Decision]:
    """What the latest step decided, the pods of one workload together."""
    batch, names = cluster.result.decisions, {number: name for name, number in cluster.nodes.items()}
    found: list[Decision] = []
    placed: dict[str, int] = {}
    for row in range(len(batch.id)):
        kind, name = DecisionKind(batch.kind[row]), cluster.ids[int(batch.workload[row])]
        if kind is DecisionKind.PLACE:
            place = names[int(batch.node[row])] + devices_text(int(batch.devices[row]))
            if name in placed:
                first = found[placed[name]]
                found[placed[name]] = first._replace(places=tuple(sorted((*first.places, place))))
                continue
            placed[name] = len(found)
        reason = Reason(batch.code[row])
        evidence = dict(zip(CATALOGUE[reason].evidence, cluster.evidence(row), strict=False))
        found.append(
            Decision(
                kind.name.lower(),
                name,
                reason.name,
                evidence or None,
                cluster.ids[int(batch.cause[row])] if batch.cause[row] != NOBODY else None,
                (place,) if kind is DecisionKind.PLACE else None,
                _tally_of(cluster, int(batch.id[row])),
            )
        )
    return found


def _tally_of(cluster: Cluster, decision: int) -> dict[str, int] | None:
    tally = cluster.result.tally
    at = tally.decision == decision
    pairs = zip(tally.code[at].tolist(), tally.nodes[at].tolist(), strict=True)
    return {Reason(code).name: nodes for code, nodes in pairs} or None


def devices_text(mask: int) -> str:
    """A device mask in brackets: 0b10111 is [0-2,4]; without devices, nothing."""
    devices = [device for device in range(mask.bit_length()) if mask >> device & 1]
    runs = [[device for _, device in run] for _, run in groupby(enumerate(devices), lambda pair: pair[1] - pair[0])]
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"[{','.join(parts)}]" if parts else ""


def lines_of(expected: list[Decision], found: list[Decision]) -> tuple[list[str], list[str]]:
    """Both as lines; what was found is told in no more detail than the expectation of the same kind and job."""
    waiting = {key: list(same) for key, same in _by_key(expected).items()}
    told = []
    for decision in found:
        alike = waiting.get(decision[:2])
        told.append((decision.told_like(alike.pop(0)) if alike else decision).text())
    return [decision.text() for decision in expected], told


def _by_key(decisions: list[Decision]) -> dict[tuple[str, ...], list[Decision]]:
    keys = Counter(decision[:2] for decision in decisions)
    return {key: [decision for decision in decisions if decision[:2] == key] for key in keys}
