"""The faults that a live run must endure, one function each, in a table by name.

Each breaks something for a while, and mends it before it returns. It must not know what is checked then.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kubebench import node, pod
from kubebench.api import ApiError
from kubebench.plane import SERVER
from kubetenant import JOBS, NODES, NOW, PODS, QUEUE, surely

if TYPE_CHECKING:
    from kubefaults import Ordeal

#: How long requests that nobody answers, and watches that say nothing, keep a connection that is dead (kubeclock.py).
_ANSWER_S = 40.0

#: Labels of nodes that selectors of edited templates ask for.
LABELS = {"pool": "gpu"}

#: The longest pause between two lists.
_PAUSE_S = 10.0

_STANDING = "tidegate.io/standing"
_STRATEGIC = "application/strategic-merge-patch+json"


class Fault(NamedTuple):
    """Something that goes wrong for a number of seconds."""

    strike: Callable[[Ordeal, float], None]
    heals_s: float = 0.0  # how long Tidegate may take by its own time limits to see that it is mended


class LeftOutError(Exception):
    """This machine cannot do it."""


# -- replicas --------------------------------------------------------------------------------------------------------


def kill(ordeal: Ordeal, lasts_s: float) -> None:
    """SIGKILL."""
    ordeal.leading().kill()
    time.sleep(lasts_s)
    ordeal.revive()


def stop(ordeal: Ordeal, lasts_s: float) -> None:
    """SIGTERM: it must end well."""
    leader = ordeal.leading()
    if leader.process.poll() is None:
        leader.wait(lambda: leader.get("/healthz")[0] == 200, "an answer")  # it heeds signals by then
    if leader.stop() != 0:
        ordeal.complain(f"{leader.name} did not stop gracefully")
    time.sleep(lasts_s)
    ordeal.revive()


def freeze(ordeal: Ordeal, lasts_s: float) -> None:
    """The leader stands still for longer than its Lease, and wakes up not knowing it."""
    leader = ordeal.leading()
    leader.process.send_signal(signal.SIGSTOP)
    time.sleep(4.5 + lasts_s)
    leader.process.send_signal(signal.SIGCONT)


def rolling_update(ordeal: Ordeal, lasts_s: float) -> None:
    """Each replica is replaced by a new one, which is ready before the old one is told to end."""
    for at in range(len(ordeal.replicas)):
        ordeal.replace(at)
        ordeal.tenant.submit(1)
        time.sleep(lasts_s / 4)


def second_instance(ordeal: Ordeal, lasts_s: float) -> None:
    """Another instance of Tidegate is started by hand, with a Lease of its own."""
    mode = ordeal.rng.choice(("bind", "gate"))
    with ordeal.replica("mistake", "--lease", "default/mistake", "--mode", mode) as second:
        second.wait(lambda: second.events("refusing to lead") or not ordeal.leader(), "a refusal", 60)
        ordeal.tenant.submit(1)
        end_s = time.monotonic() + lasts_s
        while time.monotonic() < end_s:
            if second.leads() and ordeal.leader() and second.leads():
                ordeal.complain("a second instance leads while the first does")
                break
            time.sleep(0.2)


def full_disk(ordeal: Ordeal, lasts_s: float) -> None:
    """The disk of the journals is full."""
    if not ordeal.has_disk:
        raise LeftOutError("a disk of its own for the journals needs root")
    filler = ordeal.disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)
    ordeal.tenant.submit(3)
    time.sleep(lasts_s)
    filler.unlink()


# -- clocks and credentials ------------------------------------------------------------------------------------------


def set_clock(ordeal: Ordeal, lasts_s: float) -> None:
    """Clocks are set two hours ahead or back, and then right."""
    ordeal.set_clock(ordeal.rng.choice((7_200_000, -7_200_000)))
    ordeal.tenant.submit(1)
    time.sleep(lasts_s)
    ordeal.set_clock(0)


def clock_jumps(ordeal: Ordeal, lasts_s: float) -> None:
    """Clocks jump to and fro, by seconds and by days."""
    end_s = time.monotonic() + lasts_s
    while time.monotonic() < end_s:
        ordeal.set_clock(ordeal.rng.choice((-1, 1)) * ordeal.rng.choice((3_000, 90_000, 3_600_000, 86_400_000)))
        time.sleep(ordeal.rng.uniform(0.05, 0.3))
    ordeal.tenant.submit(1)
    ordeal.set_clock(0)


def expired_credentials(ordeal: Ordeal, lasts_s: float) -> None:
    """Tokens expire, new ones come late, and connections are made again meanwhile."""
    for _ in range(2):
        late = ordeal.rotate_token()
        ordeal.proxy.cut()
        time.sleep(lasts_s / 2)
        late()
        ordeal.tenant.submit(1)


# -- the API server and the network ----------------------------------------------------------------------------------


def server(ordeal: Ordeal, lasts_s: float) -> None:
    """The API server is killed, and comes again."""
    ordeal.plane.restart(SERVER, kill=True, down_s=lasts_s)


def cut(ordeal: Ordeal, lasts_s: float) -> None:
    """Every connection is cut."""
    del lasts_s
    ordeal.proxy.cut()


def half_open(ordeal: Ordeal, lasts_s: float) -> None:
    """Every connection stays open, and nothing comes through it any more."""
    ordeal.proxy.go_silent()
    ordeal.tenant.submit(1)
    time.sleep(lasts_s)


def torn_lists(ordeal: Ordeal, lasts_s: float) -> None:
    """Watches are forgotten (410), and lists fail after their first page."""
    ordeal.proxy.forgets = True
    ordeal.proxy.cut()
    ordeal.tenant.submit(2)
    time.sleep(lasts_s)
    ordeal.proxy.calm()


def _storm(**how: Any) -> Callable[[Ordeal, float], None]:
    def strike(ordeal: Ordeal, lasts_s: float) -> None:
        for name, value in how.items():
            setattr(ordeal.proxy, name, value)
        ordeal.tenant.submit(1)
        time.sleep(lasts_s)
        ordeal.proxy.calm()

    return strike


# -- nodes -----------------------------------------------------------------------------------------------------------


def foreign(ordeal: Ordeal, lasts_s: float) -> None:
    """Somebody takes eight GPUs without asking."""
    name = f"foreign-{ordeal.rng.randrange(1 << 30):x}"
    thing = pod(name, 8, nodeName=_some_node(ordeal))
    surely(lambda: ordeal.plane.admin.post(PODS, thing))
    time.sleep(lasts_s)
    surely(lambda: ordeal.plane.admin.delete(f"{PODS}/{name}", NOW))


def drain(ordeal: Ordeal, lasts_s: float) -> None:
    """`kubectl drain`: a node is cordoned and its pods are evicted; then it comes back."""
    name = _some_node(ordeal)
    with _closed(ordeal, name, {"unschedulable": True}, {"unschedulable": None}):
        end_s = time.monotonic() + lasts_s
        while time.monotonic() < end_s:
            for one in _pods_on(ordeal, name):
                with suppress(ApiError):
                    _evict(ordeal, one)
            time.sleep(0.1)
        ordeal.tenant.submit(1)


def taint(ordeal: Ordeal, lasts_s: float) -> None:
    """A node has a taint that nobody tolerates; what runs there stays."""
    taints = [{"key": "example.com/maintenance", "effect": "NoSchedule"}]
    with _closed(ordeal, _some_node(ordeal), {"taints": taints}, {"taints": None}):
        ordeal.tenant.submit(1)
        time.sleep(lasts_s)


def delete_node(ordeal: Ordeal, lasts_s: float) -> None:
    """A node is gone with its pods, and comes back."""
    name, is_known = _some_node(ordeal), ordeal.knowledge("NODE_REMOVED")
    ordeal.watcher.lose(name)
    surely(lambda: ordeal.plane.admin.delete(f"{NODES}/{name}"))
    time.sleep(ordeal.rng.uniform(0, 0.5))
    for one in _pods_on(ordeal, name):
        _collect(ordeal, one)
    if is_known():
        ordeal.watcher.close(name)
    ordeal.tenant.submit(1)
    time.sleep(lasts_s)
    for one in _pods_on(ordeal, name):  # bound before it was known that the node is gone
        _collect(ordeal, one)
    ordeal.watcher.open(name)
    surely(lambda: ordeal.plane.admin.post(NODES, node(name, labels=LABELS)))


def _some_node(ordeal: Ordeal) -> str:
    return f"n{ordeal.rng.randint(0, 1)}"


@contextmanager
def _closed(ordeal: Ordeal, name: str, shut: dict[str, Any], undo: dict[str, Any]) -> Iterator[None]:
    """Shut a node, and open it again; once the leader knows, nothing may be bound to it."""
    is_known = ordeal.knowledge("NODE_CHANGED")
    surely(lambda: ordeal.plane.admin.patch(f"{NODES}/{name}", {"spec": shut}))
    if is_known():
        ordeal.watcher.close(name)
    yield
    ordeal.watcher.open(name)
    surely(lambda: ordeal.plane.admin.patch(f"{NODES}/{name}", {"spec": undo}))


def _pods_on(ordeal: Ordeal, name: str) -> list[str]:
    pods = ordeal.plane.admin.get(PODS)["items"]
    return [one["metadata"]["name"] for one in pods if one["spec"].get("nodeName") == name and not _is_over(one)]


def _is_over(one: dict[str, Any]) -> bool:
    return one["status"].get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in one["metadata"]


def _evict(ordeal: Ordeal, name: str) -> None:
    about = {"name": name, "namespace": "default"}
    ordeal.plane.admin.post(
        f"{PODS}/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    )


def _collect(ordeal: Ordeal, name: str) -> None:
    """What the pod garbage collector does with a pod of a node that is gone."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    path = f"{PODS}/{name}"
    surely(lambda: ordeal.plane.admin.patch(f"{path}/status", {"status": {"phase": "Failed", "conditions": [target]}}))
    surely(lambda: ordeal.plane.admin.delete(path, {**NOW, "propagationPolicy": "Background"}))


# -- owners ----------------------------------------------------------------------------------------------------------


def urgent(ordeal: Ordeal, lasts_s: float) -> None:
    """Work of higher priority comes while the queue is full."""
    ordeal.tenant.submit(3, runs="3s")
    time.sleep(lasts_s)
    ordeal.tenant.submit(2, priorityClassName="high")


def _edits(change: Callable[[Ordeal, str], None]) -> Callable[[Ordeal, float], None]:
    """An owner who changes Jobs again and again, at moments of every kind: they wait, start, run, are over."""

    def strike(ordeal: Ordeal, lasts_s: float) -> None:
        end_s = time.monotonic() + lasts_s
        while time.monotonic() < end_s:
            pods = ordeal.rng.randint(1, 2)
            ordeal.tenant.submit_job(pods, ordeal.rng.randint(1, 3), completions=pods + ordeal.rng.randint(0, 2))
            for _ in range(3):
                time.sleep(ordeal.rng.expovariate(20))
                name = ordeal.rng.choice(ordeal.tenant.jobs)
                with suppress(ApiError, OSError):
                    change(ordeal, name)

    return strike


def _suspend(ordeal: Ordeal, name: str) -> None:
    _patch(ordeal, name, {"spec": {"suspend": ordeal.rng.random() < 0.5}})


def _parallelism(ordeal: Ordeal, name: str) -> None:
    _patch(ordeal, name, {"spec": {"parallelism": ordeal.rng.randint(1, 4)}})


def _template(ordeal: Ordeal, name: str) -> None:
    """The server lets it be changed while the Job is suspended and has not run, and refuses it otherwise."""
    gpus = str(ordeal.rng.randint(1, 4))
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}}
    changes: list[dict[str, Any]] = [
        {"metadata": {"labels": {"edited": "yes"}}},
        {"spec": {"tolerations": [{"key": "example.com/other", "operator": "Exists"}]}},
        {"spec": {"containers": [{"name": "main", "resources": resources}]}},
        {"spec": {"nodeSelector": {"pool": "gpu"}}},
    ]
    patch = {"spec": {"template": ordeal.rng.choice(changes)}}
    ordeal.plane.admin.patch(f"{JOBS}/{name}", patch, _STRATEGIC)


def _label(ordeal: Ordeal, name: str) -> None:
    """A Job is moved to another queue, to one that is not there, to none, and back."""
    try:
        _patch(ordeal, name, {"metadata": {"labels": {QUEUE: ordeal.rng.choice((None, "other", "nowhere", "team"))}}})
        time.sleep(ordeal.rng.expovariate(10))
    finally:
        _patch(ordeal, name, {"metadata": {"labels": {QUEUE: "team"}}})


def _delete(ordeal: Ordeal, name: str) -> None:
    if ordeal.rng.random() < 0.5 or not ordeal.tenant.pods:
        ordeal.tenant.delete_job(name, ordeal.rng.choice(("Background", "Foreground", "Orphan")))
    else:
        ordeal.tenant.delete_pod(ordeal.rng.choice(ordeal.tenant.pods))


def _patch(ordeal: Ordeal, name: str, change: dict[str, Any]) -> None:
    ordeal.plane.admin.patch(f"{JOBS}/{name}", change)


def forge(ordeal: Ordeal, lasts_s: float) -> None:
    """Somebody who may do anything forges hand-over annotations, and another replica takes over."""
    ordeal.tenant.submit(2, runs="2s")
    end_s = time.monotonic() + lasts_s
    while time.monotonic() < end_s:
        for path in (JOBS, PODS):
            for one in surely(lambda path=path: ordeal.plane.admin.get(path)["items"]):  # type: ignore[misc]
                if ordeal.rng.random() < 0.5:
                    change = {"metadata": {"annotations": {_STANDING: _forged(ordeal)}}}
                    with suppress(ApiError, OSError):
                        ordeal.plane.admin.patch(f"{path}/{one['metadata']['name']}", change)
        time.sleep(0.1)
    kill(ordeal, 0.1)


def _forged(ordeal: Ordeal) -> str:
    draw = ordeal.rng
    grant = {
        "pod_set": draw.choice(("main", "", "zzz")),
        "count": draw.choice((0, 1, 2, 3, 100_000)),
        "flavors": draw.choice(([], [["nvidia.com/gpu", "any"]], [["nvidia.com/gpu", "nope"]])),
    }
    standing = {"queue": draw.choice(("q", "", "nope")), "grants": [grant], "evicted": draw.choice(("", "x"))}
    note = {"standing": standing, "nodes": draw.choice(([], [["n0", 1]], [["n1", 3]], [["nope", 2]]))}
    return draw.choice((json.dumps(note), json.dumps(note), "{}", "[" * 10_000, "", json.dumps({"version": 99})))


# -- the table -------------------------------------------------------------------------------------------------------

FAULTS: dict[str, Fault] = {
    "kill": Fault(kill),
    "stop": Fault(stop),
    "freeze": Fault(freeze),
    "rolling-update": Fault(rolling_update),
    "second-instance": Fault(second_instance),
    "full-disk": Fault(full_disk),
    "set-clock": Fault(set_clock),
    "clock-jumps": Fault(clock_jumps),
    "expired-credentials": Fault(expired_credentials, _PAUSE_S),
    "server": Fault(server),
    "cut": Fault(cut),
    "slow": Fault(_storm(bytes_per_s=2_000)),
    "half-open": Fault(half_open, _ANSWER_S),
    "torn-lists": Fault(torn_lists, _PAUSE_S),
    "conflicts": Fault(_storm(refuses=409)),
    "busy": Fault(_storm(refuses=429)),
    "lost-before": Fault(_storm(loses="before")),
    "lost-after": Fault(_storm(loses="after")),
    "foreign": Fault(foreign),
    "drain": Fault(drain),
    "taint": Fault(taint),
    "delete-node": Fault(delete_node),
    "urgent": Fault(urgent),
    "edit-suspend": Fault(_edits(_suspend)),
    "edit-parallelism": Fault(_edits(_parallelism)),
    "edit-template": Fault(_edits(_template)),
    "edit-label": Fault(_edits(_label)),
    "delete-work": Fault(_edits(_delete)),
    "forged-annotations": Fault(forge),
}


def mount(folder: Any) -> bool:
    """Give a folder a disk of its own; only root can."""
    command = ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Any) -> None:
    """Take the disk away."""
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
