"""The cluster of the live benchmarks: its nodes, its queues with their quotas, and the pods that want to run there.

Eight teams share a cohort; the first has a third of all work, which is more than it owns, and borrows. A ninth queue
owns nothing: work of it must never start. A gang that lacks a pod must never start either.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kubebench import Plane, node, pod
from tidegate.kube.mirror.handover_annotation import HandoverNote, write_note
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.kubeconfig import config_access
from tidegate.manifests.label_names import HANDOVER_NOTE, QUEUE
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
GROUPS_API = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{GROUPS_API}/namespaces/default/podgroups"
GPUS_OF_NODE = 8

#: The teams in the order in which work is theirs, again and again.
_TURNS = (0, 1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 1)
_TEAMS = len(set(_TURNS))

#: The queue that owns nothing.
CLOSED = "closed"

#: Requests of ours in flight while the cluster is made.
_IN_FLIGHT = 48

_CPU = "1"


def ready(name: str) -> dict[str, Any]:
    """A node that is ready without anybody who says so."""
    made = node(name, GPUS_OF_NODE)
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


# -- queues --------------------------------------------------------------------------------------------------------


def team_of(workload: int) -> str:
    """Whose a workload is."""
    return f"team-{_TURNS[workload % len(_TURNS)]}"


def write_policy(folder: Path, nodes: int) -> Path:
    """The queues as a file of Kueue's objects: each team owns its part of the GPUs, and all lend to each other."""
    gpus = nodes * GPUS_OF_NODE // _TEAMS
    things = [_object("ResourceFlavor", "any", {})]
    things += [_queue(f"team-{number}", gpus, "everybody") for number in range(_TEAMS)]
    things += [_queue(CLOSED, 0, "")]
    named = [thing["metadata"]["name"] for thing in things if thing["kind"] == "ClusterQueue"]
    things += [_object("LocalQueue", name, {"clusterQueue": name}, namespace="default") for name in named]
    path = folder / "queues.yaml"
    path.write_text("\n---\n".join(msgspec.json.encode(thing).decode() for thing in things))
    return path


def _queue(name: str, gpus: int, cohort: str) -> dict[str, Any]:
    amounts = {"cpu": 128 * gpus, "nvidia.com/gpu": gpus}
    flavor = {"name": "any", "resources": [{"name": key, "nominalQuota": much} for key, much in amounts.items()]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": list(amounts), "flavors": [flavor]}]}
    return _object("ClusterQueue", name, {**spec, **({"cohort": cohort} if cohort else {})})


def _object(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name, **meta},
        **({"spec": spec} if spec else {}),
    }


# -- work to be raced for ------------------------------------------------------------------------------------------


class Contest(NamedTuple):
    """What is to be bound, and by whom."""

    scheduler: str
    pods: int
    gang: int  # pods that start together; 1: each by itself

    @property
    def is_ours(self) -> bool:
        """Whether Tidegate is to bind them."""
        return self.scheduler == "tidegate"


def make_work(plane: Plane, contest: Contest) -> int:
    """Create the pods, and some that must not start; how many those are."""
    pods = [_raced(number, contest) for number in range(contest.pods)]
    never = [_raced(contest.pods + number, contest) for number in range(contest.gang - 1)]  # a gang that lacks a pod
    if contest.is_ours:
        over = pod("over-quota", 1, scheduler="tidegate")
        over["metadata"]["labels"][QUEUE] = CLOSED
        never.append(over)
    elif contest.gang > 1:
        gangs = contest.pods // contest.gang + 1
        asyncio.run(ask_all(plane, [post(GROUPS, _group(number, contest.gang)) for number in range(gangs)]))
    asyncio.run(ask_all(plane, [post(PODS, one) for one in (*never, *pods)]))
    return len(never)


def _raced(number: int, contest: Contest) -> dict[str, Any]:
    gang = number // contest.gang
    if contest.is_ours:
        group = (f"g{gang}", contest.gang) if contest.gang > 1 else None
        made = pod(f"p{number:06d}", 1, scheduler="tidegate", group=group)
    else:
        made = pod(f"p{number:06d}", 1)
        if contest.gang > 1:
            made["spec"]["schedulingGroup"] = {"podGroupName": f"g{gang}"}
    made["metadata"]["labels"][QUEUE] = team_of(gang)
    return made


def _group(number: int, pods: int) -> dict[str, Any]:
    return {
        "apiVersion": GROUPS_API,
        "kind": "PodGroup",
        "metadata": {"name": f"g{number}"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": pods}}},
    }


def unmake_work(plane: Plane, contest: Contest) -> None:
    """Delete what was created, so that the next contest finds the cluster empty."""
    now = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    names = [one["metadata"]["name"] for one in plane.admin.get(PODS)["items"]]
    asyncio.run(ask_all(plane, [ApiRequest("DELETE", f"{PODS}/{name}", {}, now) for name in names]))
    if contest.gang > 1 and not contest.is_ours:
        groups = [one["metadata"]["name"] for one in plane.admin.get(GROUPS)["items"]]
        asyncio.run(ask_all(plane, [ApiRequest("DELETE", f"{GROUPS}/{name}") for name in groups]))


def unbound(plane: Plane) -> list[str]:
    """Pods that have no node."""
    return [one["metadata"]["name"] for one in plane.admin.get(PODS, fieldSelector="spec.nodeName=")["items"]]


def post(path: str, thing: dict[str, Any]) -> ApiRequest:
    """The request that creates an object."""
    return ApiRequest("POST", path, {}, msgspec.json.encode(thing))


async def ask_all(plane: Plane, requests: list[ApiRequest]) -> None:
    """Carry requests out, many at a time; raise if one is refused."""
    async with Client(config_access([plane.kubeconfig("admin")], clock=lambda: 0)) as client:
        waiting = iter(requests)

        async def work() -> None:
            for request in waiting:
                answer = await client.ask(request)
                if not answer.ok:
                    raise RuntimeError(answer.text())

        await asyncio.gather(*(work() for _ in range(_IN_FLIGHT)))


# -- a large cluster at work ---------------------------------------------------------------------------------------

#: GPUs of each node that are taken.
_TAKEN = 7


def fill(plane: Plane, nodes: int, pods: int, waiting: int) -> None:
    """Have so many nodes and pods, all but the waiting ones at their places, as Tidegate left them.

    One of each is created and brought to life as a user and a kubelet would; the others are its like, written into
    etcd.
    """
    first = plane.admin.post(NODES, ready("n00000"))
    plane.store.put_all((f"minions/{_named(number, 'n', 5)}", _node(first, number)) for number in range(1, nodes))
    bound = pods - waiting
    plane.store.put_all(_running(_shown_running(plane), nodes, bound))
    asyncio.run(ask_all(plane, [post(PODS, _written(number, pod_name(number))) for number in range(bound, pods)]))


def add_daemon_sets(plane: Plane, nodes: int, daemon_sets: int) -> None:
    """Have a pod of each DaemonSet run on each node, meant for that node and no other, as its controller makes it."""
    first = _shown_running(plane)
    plane.store.put_all(
        _daemon_pod(first, f"agent-{number}", at) for number in range(daemon_sets) for at in range(nodes)
    )


def add_waiting(plane: Plane, begin: int, count: int) -> None:
    """Have more pods wait."""
    asyncio.run(ask_all(plane, [post(PODS, _written(n, pod_name(n))) for n in range(begin, begin + count)]))


def _daemon_pod(first: dict[str, Any], owner: str, at: int) -> tuple[str, dict[str, Any]]:
    place, uid = _named(at, "n", 5), uuid.uuid5(uuid.NAMESPACE_OID, f"{owner}/{at}")
    name = f"{owner}-{uid.hex[:5]}{at:05d}"
    meta = {key: value for key, value in first["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "uid": owner, "controller": True}
    meta |= {"name": name, "namespace": "kube-system", "uid": str(uid), "ownerReferences": [reference]}
    meta |= {"labels": {"app": owner}, "annotations": {}}
    field = {"key": "metadata.name", "operator": "In", "values": [place]}
    chosen = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    container = {**first["spec"]["containers"][0], "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}}}
    spec = {**first["spec"], "nodeName": place, "schedulerName": "default-scheduler", "containers": [container]}
    spec |= {"affinity": {"nodeAffinity": chosen}, "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}
    return f"pods/kube-system/{name}", {**first, "metadata": meta, "spec": spec}


def pod_name(number: int) -> str:
    """What a pod of a training job is called."""
    return f"train-{number:06d}-worker-0"


def _named(number: int, letter: str, digits: int) -> str:
    return f"{letter}{number:0{digits}d}"


def _node(first: dict[str, Any], number: int) -> dict[str, Any]:
    name = _named(number, "n", 5)
    made = copy.deepcopy(first)
    made["metadata"] |= {"name": name, "uid": str(uuid.UUID(int=(1 << 100) | number))}
    made["metadata"]["labels"]["kubernetes.io/hostname"] = name
    del made["metadata"]["resourceVersion"]
    return made


def _written(number: int, name: str) -> dict[str, Any]:
    """A pod as its owner writes it: about what a worker of a training job has."""
    made = pod(name, 1, scheduler="tidegate", cpu=_CPU)
    made["metadata"]["labels"] |= {QUEUE: team_of(number), **{f"app.example.com/label-{n}": "value" for n in range(4)}}
    made["metadata"]["annotations"] |= {f"app.example.com/annotation-{n}": "a longer value" * 4 for n in range(2)}
    main = made["spec"]["containers"][0]
    main["env"] = [{"name": f"NCCL_SETTING_NUMBER_{n:02d}", "value": "something or other"} for n in range(8)]
    main["command"] = ["torchrun", "--nnodes=1", "--nproc-per-node=1", "train.py", "--config=/etc/config.yaml"]
    main["volumeMounts"] = [{"name": name, "mountPath": f"/mnt/{name}"} for name in ("shm", "config")]
    made["spec"]["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "config", "configMap": {"name": "config"}},
    ]
    return made


def _shown_running(plane: Plane) -> dict[str, Any]:
    """A pod that runs, as the API server shows it."""
    first = _written(0, "first")
    plane.admin.post(PODS, first)
    meta, target = (
        {"name": "first", "annotations": {HANDOVER_NOTE: _note(0, "n00000")}},
        {"kind": "Node", "name": "n00000"},
    )
    bind = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
    plane.admin.post(f"{PODS}/first/binding", bind)
    since = "2026-01-01T00:00:00Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    container = {
        "name": "main", "image": "work", "imageID": "example.com/work@sha256:" + 64 * "0", "ready": True,
        "started": True, "restartCount": 0, "containerID": "containerd://" + 64 * "0",
        "state": {"running": {"startedAt": since}},
    }  # fmt: skip
    status = {
        "phase": "Running", "startTime": since, "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in kinds],
        "containerStatuses": [container],
    }  # fmt: skip
    shown: dict[str, Any] = plane.admin.patch(f"{PODS}/first/status", {"status": status})
    plane.admin.delete(f"{PODS}/first", {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    return shown


def _running(first: dict[str, Any], nodes: int, pods: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pods like the first; those beyond what GPUs there are ask for none."""
    idle = copy.deepcopy(first)
    for kind in ("requests", "limits"):
        idle["spec"]["containers"][0]["resources"][kind].pop("nvidia.com/gpu")
    for number in range(pods):
        at, turn = number % nodes, number // nodes
        name, place, like = pod_name(number), _named(at, "n", 5), first if turn < _TAKEN else idle
        meta = dict(like["metadata"])
        del meta["resourceVersion"]
        meta |= {"name": name, "uid": str(uuid.UUID(int=(2 << 100) | number))}
        meta["labels"] = {**meta["labels"], QUEUE: team_of(number)}
        meta["annotations"] = {**meta["annotations"], HANDOVER_NOTE: _note(number, place, gpus=int(turn < _TAKEN))}
        yield f"pods/default/{name}", {**like, "metadata": meta, "spec": {**like["spec"], "nodeName": place}}


def _note(number: int, place: str, gpus: int = 1) -> str:
    """What Tidegate leaves with a pod that it binds."""
    charge = (("cpu", 1000), *((("nvidia.com/gpu", gpus),) if gpus else ()))
    flavors = tuple((name, "any") for name, _ in charge)
    grant = PodSetAssignment(pod_set="main", count=1, flavors=flavors, charge=charge)
    standing = ObservedStatus(
        queue=team_of(number), grants=(grant,), granted_ms=1_767_225_600_000 + number, admitted=True
    )
    return write_note(HandoverNote(standing=standing, nodes=((place, 1),)))
