"""What must hold of a live run whatever goes wrong: looked at ten times a second, and in the audit log at the end.

No queue holds more than its quota, no gang is bound in part for long, no pod is bound twice or to a node that takes no
pods, and whoever is evicted has an Event.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from kubebench import Plane
from kubebench.api import ApiError
from kubetenant import PODS, Tenant, job_of

#: GPUs that the queue of the team owns, of the 16 that there are.
QUOTA = 12

#: How long a gang may be bound in part, beyond the time that nobody could do anything about it.
WINDOW_S = 12.0

#: How long before or after an eviction its Event may be written.
EVENT_S = 30.0

#: Requests that evictions and Events are read from have their bodies in the audit log; looks of our own are left out.
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [admin], verbs: [get, list]}
- level: Request
  users: [tidegate]
  verbs: [create, patch]
  resources:
  - {group: batch, resources: [jobs]}
  - {group: "", resources: [pods/eviction]}
  - {group: events.k8s.io, resources: [events]}
- level: Request
  users: [tidegate]
  verbs: [create, update]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- {level: Metadata}
"""

#: Events that say that work was stopped.
_STOPPED = ("Preempted", "Evicted", "Requeued")


def patience(seconds: float) -> float:
    """So many seconds of a machine that has nothing else to do, on this one: a slow machine violates nothing."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Watcher:
    """Looks at the pods ten times a second: what queues hold, whether gangs are whole, which nodes have new pods."""

    def __init__(self, plane: Plane, complain: Callable[[str], None]) -> None:
        self._plane, self._complain = plane, complain
        self._halves: dict[str, float] = {}  # gang: since when it is bound in part
        self._told: set[str] = set()
        self._excused_s = 0.0  # before: nobody could do anything about it
        self._heals_s = 0.0  # how long Tidegate itself may take to see that all is well
        self._closed: dict[str, set[str]] = {}  # node that takes no pods: uids of those that it had before
        self._lost = ""  # the node that is not there: what was bound to it runs nowhere
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.tenant: Tenant | None = None
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def excuse(self, heals_s: float = 0.0) -> None:
        """Something was broken, and is mended now."""
        self._excused_s, self._heals_s = time.monotonic(), heals_s

    def close(self, node: str) -> None:
        """From now on nothing may be bound to a node: the leader knows, and has no write in flight."""
        here = {one["metadata"]["uid"] for one in self._pods() if one["spec"].get("nodeName") == node}
        with self._lock:
            self._closed[node] = here

    def open(self, node: str) -> None:
        """A node takes pods again."""
        with self._lock:
            self._closed.pop(node, None)
        self._lost = ""

    def lose(self, node: str) -> None:
        """A node is gone, with what runs there."""
        self._lost = node

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._plane.admin.get(PODS)["items"]
        return found

    def _watch(self) -> None:
        while not self._stopping.wait(0.1):
            with self._lock:
                closed = dict(self._closed)
            try:
                pods = self._pods()
            except (ApiError, OSError):
                continue
            self.looks += 1
            self._check_quota(pods)
            self._check_gangs(pods)
            self._check_closed(pods, closed)

    def _check_quota(self, pods: list[dict[str, Any]]) -> None:
        held = self.held(pods)
        if held > QUOTA:
            self._say(f"the queue holds {held} GPUs of {QUOTA}: {_listed(pods)}")

    def held(self, pods: list[dict[str, Any]] | None = None) -> int:
        """The GPUs that the queue holds: what its owner deleted takes up room, and no quota."""
        deleted = self.tenant.deleted if self.tenant is not None else set()
        counted = (one for one in (self._pods() if pods is None else pods) if _holds(one) and not _is_foreign(one))
        there = (one for one in counted if one["spec"]["nodeName"] != self._lost)
        return sum(_gpus(one) for one in there if job_of(one) not in deleted)

    def _check_closed(self, pods: list[dict[str, Any]], closed: dict[str, set[str]]) -> None:
        for one in pods:
            meta, node = one["metadata"], one["spec"].get("nodeName", "")
            with self._lock:
                is_new = node in closed and node in self._closed and meta["uid"] not in closed[node]
            if is_new and not _is_foreign(one):
                self._say(f"pod {meta['name']} was bound to {node}, which the leader knew to take no pods")

    def _check_gangs(self, pods: list[dict[str, Any]]) -> None:
        gangs: dict[str, list[dict[str, Any]]] = {}
        deleted = self.tenant.deleted if self.tenant is not None else set()
        for one in pods:
            if job_of(one) not in deleted:
                gangs.setdefault(_gang_of(one), []).append(one)
        now_s = time.monotonic()
        halves = {}
        for gang, members in gangs.items():
            bound = sum("nodeName" in one["spec"] for one in members)
            if 0 < bound < len(members):
                halves[gang] = self._halves.get(gang, now_s)
                if now_s - max(halves[gang], self._excused_s) > patience(WINDOW_S + self._heals_s):
                    self._say(f"gang {gang} is bound in part, {bound} of {len(members)}, for too long")
        self._halves = halves

    def _say(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._complain(what)


def _holds(one: dict[str, Any]) -> bool:
    return "nodeName" in one["spec"] and one["status"].get("phase") not in ("Succeeded", "Failed")


def _is_foreign(one: dict[str, Any]) -> bool:
    return bool(one["metadata"]["name"].startswith("foreign"))


def _gpus(one: dict[str, Any]) -> int:
    return sum(int(each["resources"].get("limits", {}).get("nvidia.com/gpu", 0)) for each in one["spec"]["containers"])


def _listed(pods: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['metadata']['name']} {_gpus(one)}" for one in pods if _holds(one))


def _gang_of(one: dict[str, Any]) -> str:
    """A group of pods is a gang; pods of a Job recover alone, and so are none once they were made again."""
    group = one["metadata"].get("labels", {}).get("kueue.x-k8s.io/pod-group-name")
    return str(group or job_of(one) or one["metadata"]["name"])


# -- the audit log ---------------------------------------------------------------------------------------------------


class _Stopped(NamedTuple):
    """Work was stopped: when, and which object shows it."""

    at_s: float
    object: str


def bound_twice(log: list[dict[str, Any]]) -> list[str]:
    """Pods that were bound more than once, as the API server has it."""
    bound = Counter(one["objectRef"]["name"] for one in log if _is(one, "create", "pods", "binding"))
    return [f"pod {name} was bound {count} times" for name, count in sorted(bound.items()) if count > 1]


def evicted_in_silence(log: list[dict[str, Any]]) -> list[str]:
    """Work that Tidegate stopped or evicted, and nothing with its object says so.

    A leader that loses its term right after an eviction may not write the Event any more, and the next cannot know.
    """
    log = [one for one in log if one["user"]["username"] == "tidegate"]
    events: dict[str, list[float]] = {}
    for one in log:
        if _is(one, "create", "events") and one["requestObject"]["reason"] in _STOPPED:
            events.setdefault(one["requestObject"]["regarding"]["name"], []).append(_time_s(one))
    terms = _terms(log)
    return [
        f"{stopped.object} was stopped at {datetime.fromtimestamp(stopped.at_s, UTC):%H:%M:%S.%f}, and no Event says so"
        for stopped in map(_stopped, log)
        if stopped is not None
        and not any(0 <= began_s - stopped.at_s < EVENT_S for began_s in terms)
        and not any(
            abs(at_s - stopped.at_s) < EVENT_S
            for name, times in events.items()
            for at_s in times
            if name == stopped.object or stopped.object.startswith(f"{name}-")
        )
    ]


def _terms(log: list[dict[str, Any]]) -> list[float]:
    """When somebody else began to lead."""
    holder, began = "", []
    for one in log:
        is_written = _is(one, "create", "leases") or _is(one, "update", "leases")
        if is_written and one["objectRef"].get("name") == "tidegate":
            now_holds = one["requestObject"]["spec"].get("holderIdentity", "")
            if now_holds and now_holds != holder:
                holder = now_holds
                began.append(_time_s(one))
    return began


def _stopped(one: dict[str, Any]) -> _Stopped | None:
    """A request that stops work: an eviction, or a Job that is suspended."""
    name = one["objectRef"].get("name", "")
    evicts = _is(one, "create", "pods", "eviction")
    if evicts or (_is(one, "patch", "jobs") and _suspends(one["requestObject"])):
        return _Stopped(_time_s(one), name)
    return None


def _suspends(patch: Any) -> bool:
    if isinstance(patch, list):
        return any(step["path"] == "/spec/suspend" and step.get("value") is True for step in patch)
    return patch.get("spec", {}).get("suspend") is True


def _is(one: dict[str, Any], verb: str, resource: str, part: str = "") -> bool:
    about = one.get("objectRef", {})
    done = one["stage"] == "ResponseComplete" and one["responseStatus"]["code"] < 300
    return done and (one["verb"], about.get("resource"), about.get("subresource", "")) == (verb, resource, part)


def _time_s(one: dict[str, Any]) -> float:
    return datetime.fromisoformat(one["requestReceivedTimestamp"]).timestamp()
