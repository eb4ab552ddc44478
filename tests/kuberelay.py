"""A cluster on paper whose leader is followed by another, and what the controller of its Jobs does."""

from __future__ import annotations

import json
from typing import Any

from kubebench.objects import node
from kubepaper import QUEUES, Paper, job_pods
from tidegate.kube.actuator.pending_writes import PendingWrite
from tidegate.kube.mirror.handover_annotation import HandoverNote, annotated, read_note
from tidegate.kube.mirror.handover_check import HandoverCheck
from tidegate.kube.takeover import Takeover
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.live.handover import decode_shared_handover, notes_after, shared_handover_of
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.model.policy import Policy


class Relay(Paper):
    """A cluster on paper whose leader leaves word, and may be followed by another."""

    def step(self) -> list[tuple[str, str]]:
        told = super().step()
        notes = dict(notes_after(self.state, self.result.decisions))
        self.orders = [
            order._replace(write=annotated(order.write, notes[order.workload], self._meta(order.write.key)))
            if order.workload in notes
            else order
            for order in self.orders
        ]
        return told

    def _meta(self, key: str) -> KubeObjectMeta:
        found = self.objects[key]["metadata"]
        return KubeObjectMeta(annotations=found.get("annotations"), resource_version=found.get("resourceVersion", ""))

    def carry_out(self, order: PendingWrite) -> bool:
        done = super().carry_out(order)
        text = _note_in(json.loads(order.write.request.body or b"{}"))
        if done and text and order.write.key in self.objects:
            self.objects[order.write.key]["metadata"].setdefault("annotations", {})[HANDOVER_NOTE] = text
        return done

    def take_over(self) -> None:
        """Another replica leads: it knows nothing but what it sees."""
        before = decode_shared_handover(shared_handover_of(self.state, self.reconciler.workloads))
        self.begin_anew()
        labels_of = self.reconciler.node_registry.labels_of
        check = HandoverCheck(self._found, self.policy.shares, labels_of, self.now_ms)
        Takeover(self.reconciler).resume(check, before)

    def _found(self, uid: str) -> HandoverNote | None:
        text = self.objects.get(uid, {}).get("metadata", {}).get("annotations", {}).get(HANDOVER_NOTE)
        return read_note(text) if text else None

    def usage(self) -> dict[str, Any]:
        """What each queue uses."""
        rows = self.state.quota.quota_node_rows
        return {name: self.state.quota.quota_nodes.usage[row].tolist() for name, row in rows.items()}


_ADDS = ("add", "/metadata/annotations")


def _note_in(body: Any) -> str:
    if isinstance(body, list):
        body = [step for step in body if step["op"] != "test"]
        whole = next((step["value"] for step in body if (step["op"], step["path"]) == _ADDS), {})
        single = next((step["value"] for step in body if step["path"].endswith("tidegate.io~1standing")), "")
        return single or whole.get(HANDOVER_NOTE, "")
    return (body.get("metadata", {}).get("annotations") or {}).get(HANDOVER_NOTE, "")


def relay(nodes: int = 2, policy: Policy = QUEUES) -> Relay:
    made = Relay(policy)
    for number in range(nodes):
        made.put(node(f"n{number}", 8), status__conditions=[{"type": "Ready", "status": "True"}])
    return made


def active(cluster: Relay, name: str) -> list[str]:
    pods = sorted(one for one in cluster.objects if one.startswith(f"pod/{name[4:]}-"))
    return [one for one in pods if cluster.objects[one].get("status", {}).get("phase") != "Succeeded"]


def make_up(cluster: Relay, name: str) -> None:
    """What a controller does: have as many pods as a job is to have; first those go that run nowhere."""
    spec, done = cluster.objects[name]["spec"], cluster.objects[name].get("status", {}).get("succeeded", 0)
    there, wanted = active(cluster, name), min(spec["parallelism"], spec["completions"] - done)
    there.sort(key=lambda one: cluster.objects[one]["spec"].get("nodeName") is None)
    for one in there[wanted:]:
        cluster.remove(one)
    gpus = int(spec["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    first = max(
        (int(one.rpartition("-")[2]) + 1 for one in cluster.objects if one.startswith(f"pod/{name[4:]}-")), default=0
    )
    job_pods(cluster, name[4:], wanted - len(there), first=first, gpus=gpus)


def make_pods(cluster: Relay) -> None:
    """What controllers do: pods of jobs that were let go, which are bound at once."""
    for name in sorted(name for name in cluster.objects if name.startswith("job/")):
        if not cluster.objects[name]["spec"]["suspend"]:
            make_up(cluster, name)
    cluster.step()
    cluster.obey()
