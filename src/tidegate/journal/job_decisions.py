"""Decisions with names and text: one for each workload and kind in a step, with its reason in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tidegate.journal.decision_text import reason_text_for
from tidegate.journal.history import HistoryEntry, decision_entries, names_after
from tidegate.journal.quota_names import QuotaNames
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.hardware import Node
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Work


class PodPlace(NamedTuple):
    """Where a pod goes: a node, and devices of it by index."""

    pod: int  # ordinal in its job
    node: str
    gpus: tuple[int, ...]


class JobDecision(NamedTuple):
    """A decision about a job, with its reason."""

    id: int  # counts all decisions of an engine
    at_ms: int  # the time of the step
    kind: str  # ADMIT, ASSIGN, PLACE, HOLD, PREEMPT, EVICT, RELEASE or REJECT
    job: str  # its id
    reason: str  # the code, as docs/reasons.md lists it
    text: str  # the reason in words
    places: tuple[PodPlace, ...] = ()  # of a PLACE: one for each pod
    cause: str = ""  # the job that it was preempted for

    def __repr__(self) -> str:
        nodes = list(dict.fromkeys(place.node for place in self.places))
        where = f" on {', '.join(nodes)}" if nodes else ""
        cause = f" for {self.cause}" if self.cause else ""
        said = "" if self.text.lower() == self.reason.lower() else f": {self.text}"
        return f"{self.kind} {self.job}{where}{cause} ({self.reason}){said}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "places": [place._asdict() for place in self.places]}


class DecisionReader:
    """Puts the decisions of one step after the other into words; it keeps the names that facts bring."""

    def __init__(self) -> None:
        self._nodes: dict[int, str] = {}
        self._ids: dict[int, str] = {}
        self._works: dict[int, Work] = {}
        self._names = QuotaNames()

    def read(self, now_ms: int, events: FactBatch, result: StepResult) -> list[JobDecision]:
        """The decisions of the next step, in the order they were made."""
        self._take_in(events)
        numbers = np.unique(result.decisions.workload).tolist()
        found = [(number, entry) for number in numbers for entry in decision_entries(result, number, now_ms)]
        return [self._decision(number, entry) for number, entry in sorted(found, key=lambda pair: pair[1].decision_id)]

    def _take_in(self, events: FactBatch) -> None:
        self._names = names_after(events, self._names)
        for kind, rows in events.runs():
            subjects, arguments = events.subject[rows].tolist(), events.arg[rows].tolist()
            if kind in (FactKind.NODE_ADDED, FactKind.NODE_CHANGED):
                for number, at in zip(subjects, arguments, strict=True):
                    node = events.payloads[at]
                    assert isinstance(node, Node)
                    self._nodes[number] = node.name
            elif kind is FactKind.WORKLOAD_SUBMITTED:
                for number, at in zip(subjects, arguments, strict=True):
                    self._ids[number] = events.submissions.ids[at]
                    self._works[number] = events.works[int(events.submissions.work[at])]
            elif kind is FactKind.WORKLOAD_CHANGED:
                for number, at in zip(subjects, arguments, strict=True):
                    work = events.payloads[at]
                    assert isinstance(work, Work)
                    self._works[number] = work

    def _decision(self, number: int, entry: HistoryEntry) -> JobDecision:
        assert entry.decision is not None
        work = self._works.get(number, Work())
        return JobDecision(
            id=entry.decision_id,
            at_ms=entry.at_ms,
            kind=entry.decision.name,
            job=self._ids.get(number, str(number)),
            reason=entry.reason.name,
            text=reason_text_for(work, Reason(entry.reason), entry.evidence, self._names) if entry.reason else "",
            places=tuple(self._places(entry)),
            cause=self._ids.get(entry.cause, "") if entry.decision is DecisionKind.PREEMPT else "",
        )

    def _places(self, entry: HistoryEntry) -> Iterator[PodPlace]:
        for pod, node, devices in entry.pods:
            gpus = tuple(bit for bit in range(devices.bit_length()) if devices >> bit & 1)
            yield PodPlace(pod, self._nodes.get(node, str(node)), gpus)
