"""A cluster on paper: objects that tests change, a ledger that sees them, an engine that decides; no server."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from kubebench.objects import node, pod
from tidegate.engine.step import step
from tidegate.journal.quota_names import quota_names_of
from tidegate.kube.actuator.pending_writes import PendingWrite, WriteKind
from tidegate.kube.mirror.job_adapters import KINDS
from tidegate.kube.mirror.jobs import JobObject, see_job
from tidegate.kube.mirror.nodes import NodeObject, read_node_object
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.pod_spec_cache import PodSpecCache
from tidegate.kube.mirror.pods import PodObject, see_pod
from tidegate.kube.reconciler import Reconciler
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.manifests.cluster_defaults import NO_DEFAULTS as AROUND
from tidegate.model.facts import WriteOutcome
from tidegate.model.hardware import Taint, TaintEffect
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.queues import (
    Flavor,
    FlavorGroup,
    LocalQueue,
    Namespace,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
)
from tidegate.model.work import Toleration
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

_POLICY = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT))
_BY_KIND = {adapter.resource.kind.lower(): adapter for adapter in KINDS}


#: One queue with eight GPUs, in which work goes for work of higher priority.
QUEUES = msgspec.structs.replace(
    _POLICY,
    shares=QueueSetup(
        flavors=(Flavor(name="any"),),
        queues=(
            Queue(
                name="q",
                groups=(FlavorGroup(resources=("cpu", "nvidia.com/gpu"), flavors=("any",)),),
                quotas=(
                    Quota(flavor="any", resource="cpu", nominal=1_000_000),
                    Quota(flavor="any", resource="nvidia.com/gpu", nominal=8),
                ),
                preemption=PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY),
            ),
        ),
        entrances=(LocalQueue(id="default/team", queue="q"),),
        namespaces=(Namespace(name="default"),),
    ),
)


#: The label and the taint of nodes of a flavor, and what its pods get for it.
POOL, SPOT_TAINT = {"pool": "spot"}, {"key": "spot", "value": "true", "effect": "NoSchedule"}
SPOT_TOLERATION = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}


def on_spot(policy: Policy, gpus: int = 8) -> Policy:
    """The same with a flavor of tainted nodes."""
    flavor = Flavor(
        name="any",
        node_labels=tuple(POOL.items()),
        node_taints=(Taint(key="spot", value="true"),),
        tolerations=(Toleration(key="spot", value="true", effect=TaintEffect.NO_SCHEDULE),),
    )
    queue = policy.shares.queues[0]
    quotas = tuple(
        msgspec.structs.replace(quota, nominal=gpus) if quota.resource == "nvidia.com/gpu" else quota
        for quota in queue.quotas
    )
    queues = (msgspec.structs.replace(queue, quotas=quotas),)
    return msgspec.structs.replace(
        policy, shares=msgspec.structs.replace(policy.shares, flavors=(flavor,), queues=queues)
    )


def spot_node(name: str, gpus: int = 8) -> dict[str, Any]:
    """A node of that flavor."""
    return {**node(name, gpus, labels=POOL), "spec": {"taints": [SPOT_TAINT]}}


def queued(thing: dict[str, Any]) -> dict[str, Any]:
    """An object that names the queue of its team."""
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return thing


class Paper:
    """A cluster on paper."""

    def __init__(self, policy: Policy = _POLICY, **ownership: Any) -> None:
        self.pod_specs, self.now_ms = PodSpecCache(), 1_800_000_000_000
        self.objects: dict[str, dict[str, Any]] = {}
        self.policy = policy
        self.orders: list[PendingWrite] = []
        self.begin_anew(**ownership)

    def begin_anew(self, **ownership: Any) -> None:
        """Start the scheduler, or start it again: it knows nothing but what it sees."""
        self.reconciler, self.state, self._opened = Reconciler(Ownership(**ownership)), ClusterState(), False
        self.reconciler.name_quota(quota_names_of(self.policy.shares), self.policy.shares.flavors)
        for name in sorted(self.objects, key=lambda name: (name.startswith("pod/"), not name.startswith("node/"))):
            self._see(name)

    def put(self, thing: dict[str, Any], **changes: Any) -> str:
        """Write an object, or change it: `spec__nodeName="n1"`."""
        kind = thing["kind"].lower()
        name = thing["metadata"].get("uid", f"{kind}/{thing['metadata']['name']}")
        meta = {"namespace": "default", "uid": name, "creationTimestamp": "2026-11-16T08:00:00Z"}
        thing["metadata"] = {**meta, **thing["metadata"]}
        for path, value in changes.items():
            first, _, key = path.partition("__")
            thing.setdefault(first, {})[key] = value
        before = self.objects.get(name, {})
        count = before.get("metadata", {}).get("generation", 0) + (before.get("spec") != thing.get("spec"))
        version = int(before.get("metadata", {}).get("resourceVersion", "0")) + 1
        thing["metadata"] |= {"generation": count, "resourceVersion": str(version)}
        self.objects[name] = json.loads(json.dumps(thing))
        self._see(name)
        return name

    def change(self, name: str, **changes: Any) -> None:
        """Change an object."""
        self.put(json.loads(json.dumps(self.objects[name])), **changes)

    def remove(self, name: str) -> None:
        """Delete an object."""
        del self.objects[name]
        self._see(name)

    def _see(self, name: str) -> None:
        thing, kind = self.objects.get(name), name.split("/", maxsplit=1)[0]
        encoded = json.dumps(thing)
        if kind == "node":
            seen = None if thing is None else read_node_object(msgspec.json.decode(encoded, type=NodeObject))
            self.reconciler.see_node(name, seen)
        elif kind == "pod":
            pod_seen = None if thing is None else see_pod(msgspec.json.decode(encoded, type=PodObject), self.pod_specs)
            self.reconciler.see_pod(name, pod_seen)
        else:
            job = None if thing is None else msgspec.json.decode(encoded, type=JobObject)
            self.reconciler.see_job(name, None if job is None else see_job(job, _BY_KIND[kind], AROUND))

    def step(self) -> list[tuple[str, str]]:
        """Decide on what was seen; the orders that follow, in short."""
        self.now_ms += 1000
        tidings = self.reconciler.take_facts()
        if not self._opened:
            self._opened = True
            tidings.policies.append(self.policy)
        check(self.state)
        self.events = tidings.batch(self.now_ms)
        self.result = step(self.state, self.events, self.now_ms)
        check(self.state)
        self.reconciler.decide(self.result.decisions)
        self.orders = self.reconciler.take_writes()
        return [(order.write_kind.name.lower(), order.write.key) for order in self.orders]

    def carry_out(self, order: PendingWrite) -> bool:
        """Do what an order says, as an API server would; False if it refuses."""
        body, key = json.loads(order.write.request.body or b"{}"), order.write.key
        if key not in self.objects:
            return order.write_kind is WriteKind.STOP
        if order.write_kind is WriteKind.BIND:
            at, wanted = self.objects[key]["spec"].get("nodeName"), body["target"]["name"]
            if at is None:
                self.change(key, spec__nodeName=wanted)
            return at in (None, wanted)
        if order.write_kind is WriteKind.STOP and key.startswith("pod/"):
            self.remove(key)
            return True
        changed = patched(self.objects[key], body)
        if changed is not None:
            self.put(changed)
        return changed is not None

    def obey(self) -> Paper:
        """Carry the latest orders out until there are no more."""
        while self.orders:
            for order in self.orders:
                WriteOutcomes(self.reconciler).settle(
                    order, WriteOutcome.DONE if self.carry_out(order) else WriteOutcome.FAILED
                )
            self.step()
        return self

    def nodes_of(self, *names: str) -> list[str | None]:
        """The nodes of pods."""
        return [self.objects[f"pod/{name}"]["spec"].get("nodeName") for name in names]


def patched(thing: dict[str, Any], body: Any) -> dict[str, Any] | None:
    """An object after a JSON patch or a merge patch; None if a test of the patch does not hold."""
    thing = json.loads(json.dumps(thing))
    if isinstance(body, dict):
        return _merged(thing, body)
    for change in body:
        *way, last = [key.replace("~1", "/").replace("~0", "~") for key in change["path"].split("/")[1:]]
        inner: Any = thing
        for key in way:
            inner = inner[int(key)] if isinstance(inner, list) else inner[key]
        if change["op"] == "test" and inner.get(last) != change["value"]:
            return None
        if change["op"] in ("add", "replace"):
            inner[last] = change["value"]
        elif change["op"] == "remove":
            del inner[last]
    return thing


def _merged(thing: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    merged = dict(thing) if isinstance(thing, dict) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def paper(nodes: int = 2, gpus: int = 8, **more: Any) -> Paper:
    """A cluster with nodes that are ready."""
    made = Paper(**more)
    for number in range(nodes):
        made.put(node(f"n{number}", gpus), status__conditions=[{"type": "Ready", "status": "True"}])
    return made


def ours(name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A pod that names us as its scheduler."""
    return pod(name, gpus, scheduler="tidegate", **more)


def job_pods(cluster: Paper, name: str, count: int, first: int = 0, **spec: Any) -> None:
    """What a job's controller does: make its pods."""
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job/{name}", "controller": True}]
    for number in range(first, first + count):
        cluster.put(ours(f"{name}-{number}", **spec), metadata__ownerReferences=owner)


class Said(NamedTuple):
    """Something that is written for people: an Event, or the condition of a pod."""

    object: str
    reason: str
    text: str
    is_event: bool
    warning: bool


def said(cluster: Paper, most: int = 100) -> list[Said]:
    """What is written for people now."""
    told = []
    for order in cluster.reconciler.take_events(most, cluster.now_ms):
        body = json.loads(order.write.request.body or b"")
        if body.get("kind") == "Event":
            warns = body["type"] == "Warning"
            told.append(Said(body["regarding"]["name"], body["reason"], body["note"], is_event=True, warning=warns))
        else:
            (one,) = body["status"]["conditions"]
            assert (one["type"], one["status"]) == ("PodScheduled", "False")
            told.append(Said(order.write.key, one["reason"], one["message"], is_event=False, warning=False))
    return told
