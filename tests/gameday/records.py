"""What is known of the day's nodes, pods and work, as watches show them; and what operators did.

Must not know: what must hold.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gameday.load import KINDS, QUEUE, WORK, Kind
from gameday.policies import GPU, Limits, read_limits
from gameday.watching import Change

Thing = dict[str, Any]
_MANAGER = "tidegate"


class Deed(NamedTuple):
    """Something that an operator did."""

    at_s: float
    action: str
    targets: frozenset[str]  # "node/n01", "pod/UID", "work/NAME"


class Told(NamedTuple):
    """An Event."""

    at_s: float
    reason: str
    note: str


@dataclass
class NodeRecord:
    """A node: since when it takes pods, or takes none."""

    name: str
    usable: bool = False
    since_s: float = 0.0
    there: bool = True


@dataclass
class PodRecord:
    """A pod."""

    uid: str
    name: str
    work: str
    gpus: int
    node: str = ""
    host: str = ""  # the node that it is sent to by its selector
    gated: bool = False
    phase: str = "Pending"
    bound_s: float = 0.0
    freed_s: float = 0.0  # when its gate was lifted
    leaving_s: float = 0.0
    gone: bool = False

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self.gone or self.phase in ("Succeeded", "Failed")

    @property
    def holds(self) -> bool:
        """Whether it holds GPUs of a node."""
        return bool(self.node) and not self.over


@dataclass
class WorkRecord:
    """A work: its object if it has one, and its pods."""

    name: str
    kind: Kind
    queue: str
    made_s: float
    uid: str = ""  # of its object; of single pods and groups: none
    size: int = 0  # pods at a time, as its object has it now
    admitted: int = 0  # pods at a time when it was last let go; 0: nobody knows
    suspended: bool = False
    admitted_s: float = 0.0  # when it was last let go
    first_s: float = 0.0  # when it was let go for the first time
    moved: bool = False  # its queue was changed after it was let go
    bypassed: bool = False  # its owner let it go
    released: bool = False  # its owner suspended or deleted it: its quota is given back while its pods leave
    over: bool = False
    gone: bool = False
    pods: dict[str, PodRecord] = field(default_factory=dict)

    def held(self) -> int:
        """GPUs that it holds; one pod that leaves and the one that follows it count once, as their quota is one."""
        holding = [pod for pod in self.pods.values() if pod.holds]
        staying = sum(not pod.leaving_s for pod in holding)
        most = max(staying, min(len(holding), self.admitted or self.size or len(holding)))
        return most * (holding[0].gpus if holding else 0)


class Records:
    """Follows changes."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.nodes: dict[str, NodeRecord] = {}
        self.works: dict[str, WorkRecord] = {}
        self.pods: dict[str, PodRecord] = {}  # by uid
        self.told: dict[str, list[Told]] = defaultdict(list)  # by uid of the object
        self.reasons: Counter[str] = Counter()
        self.deeds: list[Deed] = []
        self.kills: list[float] = []  # when a leader was killed: Events that it had not written yet are lost
        self.limits: list[tuple[float, Limits]] = []  # since when
        self.usable: list[tuple[float, bool]] = []  # since when the policy can be used, or cannot

    def note(self, action: str, *targets: str) -> Deed:
        """Note what is about to be done."""
        deed = Deed(time.monotonic(), action, frozenset(targets))
        self.deeds.append(deed)
        return deed

    def withdraw(self, deed: Deed) -> None:
        """What was noted was not done."""
        self.deeds.remove(deed)

    # -- changes -----------------------------------------------------------------------------------------------

    def see_node(self, change: Change) -> None:
        """A node has changed."""
        name = change.thing["metadata"]["name"]
        known = self.nodes.setdefault(name, NodeRecord(name))
        usable = not change.gone and _is_usable(change.thing)
        if known.usable != usable or not known.since_s:
            known.usable, known.since_s = usable, change.at_s
        known.there = not change.gone

    def see_policy(self, change: Change) -> None:
        """The policy has changed; one that cannot be used leaves the one before in force."""
        text = "\n---\n".join(change.thing.get("data", {}).values())
        limits = None if change.gone else read_limits(text)
        self.usable.append((change.at_s, limits is not None))
        if limits is not None:
            self.limits.append((change.at_s, limits))

    def see_event(self, change: Change) -> None:
        """An Event was written."""
        thing = change.thing
        if change.gone or thing.get("reportingController") != "tidegate.io/tidegate":
            return
        self.reasons[thing["reason"]] += 1
        self.told[thing["regarding"].get("uid", "")].append(Told(change.at_s, thing["reason"], thing.get("note", "")))

    def see_work(self, change: Change) -> WorkRecord | None:
        """The object of a work has changed; the record as it was is the caller's to compare with."""
        meta = change.thing["metadata"]
        name = meta.get("labels", {}).get(WORK)
        if name is None:
            return None
        work = self._work(name, meta["labels"].get(QUEUE, ""), change.at_s)
        work.uid, work.gone = meta["uid"], change.gone
        work.size = _size(work.kind, change.thing["spec"])
        return work

    def see_pod(self, change: Change) -> PodRecord | None:
        """A pod has changed."""
        meta, spec, status = (change.thing.get(part, {}) for part in ("metadata", "spec", "status"))
        name = meta.get("labels", {}).get(WORK)
        if name is None:
            return None
        work = self._work(name, meta["labels"].get(QUEUE, ""), change.at_s)
        pod = self.pods.get(meta["uid"])
        if pod is None:
            gpus = int(spec["containers"][0]["resources"].get("limits", {}).get(GPU, 0))
            pod = self.pods[meta["uid"]] = PodRecord(meta["uid"], meta["name"], name, gpus)
            work.pods[pod.uid] = pod
            if work.kind.name == "group":
                work.size = int(meta["annotations"]["kueue.x-k8s.io/pod-group-total-count"])
        gated, node = bool(spec.get("schedulingGates")), spec.get("nodeName", "")
        if pod.gated and not gated:
            pod.freed_s = change.at_s
        if node and not pod.node:
            pod.bound_s = change.at_s
        if meta.get("deletionTimestamp") and not pod.leaving_s:
            pod.leaving_s = change.at_s
        pod.gated, pod.node, pod.host = gated, node, spec.get("nodeSelector", {}).get("kubernetes.io/hostname", "")
        pod.phase, pod.gone = status.get("phase", "Pending"), change.gone
        if pod.gone and not pod.node:
            del work.pods[pod.uid]
        return pod

    def _work(self, name: str, queue: str, at_s: float) -> WorkRecord:
        work = self.works.get(name)
        if work is None:
            work = self.works[name] = WorkRecord(name, KINDS[name.rpartition("-")[0]], queue, at_s)
        return work

    # -- questions ---------------------------------------------------------------------------------------------

    def used(self) -> dict[str, int]:
        """GPUs by queue; of work whose queue was changed while it ran, by no queue in particular."""
        found: Counter[str] = Counter()
        for work in self.works.values():
            if not (work.bypassed or work.released or work.gone) and (held := work.held()):
                found["" if work.moved else work.queue] += held
        return dict(found)

    def limits_since(self, since_s: float) -> list[Limits]:
        """The limits that were in force at some time since then."""
        before = [limits for at_s, limits in self.limits if at_s <= since_s][-1:]
        return before + [limits for at_s, limits in self.limits if at_s > since_s]

    def had_no_policy(self, since_s: float, until_s: float) -> bool:
        """Whether the policy could not be used at some time between."""
        before = [usable for at_s, usable in self.usable if at_s <= since_s][-1:]
        return not all([*before, *(usable for at_s, usable in self.usable if since_s < at_s <= until_s)])

    def gone_since(self, queue: str) -> float:
        """Since when the policy has no such queue; -1: it has one."""
        gone_s = self.began_s
        for at_s, limits in self.limits:
            gone_s = -1 if queue in limits else at_s if gone_s < 0 else gone_s
        return gone_s

    def deeds_about(self, targets: frozenset[str], since_s: float, until_s: float) -> Iterator[Deed]:
        """What was done about any of these, in a time."""
        for deed in reversed(self.deeds):
            if deed.at_s < since_s - 600:
                return
            if since_s <= deed.at_s <= until_s and deed.targets & targets:
                yield deed

    def told_about(self, uids: tuple[str, ...], reasons: frozenset[str], since_s: float) -> Told | None:
        """The first Event of these reasons about any of these objects since then."""
        for uid in uids:
            for told in self.told.get(uid, ()):
                if told.reason in reasons and told.at_s >= since_s:
                    return told
        return None


def written_by_tidegate(thing: Thing, *path: str) -> bool:
    """Whether Tidegate was the last to write a field."""
    for entry in thing["metadata"].get("managedFields", ()):
        fields: Any = entry.get("fieldsV1", {})
        for key in path:
            fields = fields.get(f"f:{key}") if isinstance(fields, dict) else None
        if fields is not None:
            return str(entry.get("manager")) == _MANAGER
    return False


def _is_usable(thing: Thing) -> bool:
    spec = thing.get("spec", {})
    taints = any(one.get("effect") in ("NoSchedule", "NoExecute") for one in spec.get("taints") or ())
    ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in thing.get("status", {}).get("conditions") or ()
    )
    return ready and not taints and not spec.get("unschedulable") and "deletionTimestamp" not in thing["metadata"]


def _size(kind: Kind, spec: Thing) -> int:
    if kind.name == "deployment":
        return 0
    if kind.name == "jobset":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    return int(min(spec.get("parallelism", 1), spec.get("completions", spec.get("parallelism", 1))))
