"""What operators and owners do at random moments: actions, each with how often it comes and how it is undone.

Each action is noted with what it is about before it is done, so that what follows from it is known to.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from gameday.ground import NODES, POLICY, URGENT, Ground
from gameday.load import KINDS, PODS, PRIORITY, QUEUE, WORK, Load, has_condition
from gameday.policies import GPU, LATE, limits_of, policy_text
from gameday.records import Deed, Records
from gameday.rules import BACK, BUDGET_S
from kubebench import ApiError
from kubereplica import Replica
from tidegate.manifests.label_names import HANDOVER_NOTE

Thing = dict[str, Any]
_NOW = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}

#: Nodes that may be out at a time, as a part of all.
_MOST_OUT = 5

#: Annotation of a node that keeps kwok from making it ready.
STAYS_DOWN = "tidegate.io/stays-down"

_EVERY = (
    ("cordon", 6), ("drain", 8), ("delete node", 5), ("taint", 4), ("evicting taint", 3), ("not ready", 4),
    ("scale", 5), ("grow", 4), ("shrink", 3), ("suspend", 5), ("resume", 4), ("move to a queue", 4),
    ("raise priority", 4), ("delete work", 5), ("delete pod", 6), ("kill leader", 1.2), ("kill standby", 0.6),
    ("upgrade", 1.2), ("quota down", 3), ("quota up", 2), ("add a queue", 2), ("invalid policy", 2),
    ("empty policy", 2), ("restart server", 0.8), ("log level", 1), ("dump", 1), ("reload", 1),
    ("replace another version", 0.8), ("add a budget", 2),
)  # fmt: skip

ACTIONS = tuple(name for name, _ in _EVERY)


#: How often an action fails before it is no accident: the API server may just be away.
_OFTEN = 3

#: How often something is undone that could not be undone, a second apart: the API server may just be away.
_MOST_TRIES = 90
#: How long a drain waits before it evicts a pod again whose disruption budget allowed it not.
_AGAIN_S = 3.0
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Later(NamedTuple):
    """Something to be undone."""

    at_s: float
    number: int
    undo: Callable[[], None]
    tries: int = 0


class NothingToDoError(Exception):
    """An action finds nothing that it could be about."""


class HandOver(NamedTuple):
    """A leader that was killed or stopped."""

    at_s: float
    identity: str
    killed: bool
    followed: bool  # another replica was ready to lead


class Ended(NamedTuple):
    """A replica that ended."""

    at_s: float
    name: str
    code: int


class Operators:
    """Acts in a thread. Use it in a with statement."""

    def __init__(self, ground: Ground, load: Load, seed: int, every_s: float, records: Records) -> None:
        self._ground, self._load, self._records, self._every_s = ground, load, records, every_s
        self._noted: Deed | None = None  # what was noted last, as long as it may have been done
        self._api, self._rng = ground.plane.api("admin"), random.Random(seed)
        self._later: list[Later] = []
        self._out: set[str] = set()
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done: Counter[str] = Counter()
        self.nothing: Counter[str] = Counter()
        self.failed: list[str] = []
        self.hand_overs: list[HandOver] = []
        self.outages: list[tuple[float, float]] = []
        self.ended: list[Ended] = []  # replicas that ended by themselves, or not as they should
        self._down: set[str] = set()  # replicas that are started again by what took them down

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Act no more, and undo what is still to be undone."""
        self._stopping.set()
        self._thread.join(120)

    def _run(self) -> None:
        names, weights = zip(*_EVERY, strict=True)
        first = list(names)
        self._rng.shuffle(first)  # each once, then by weight
        next_s = time.monotonic() + self._rng.expovariate(1 / self._every_s)
        while not self._stopping.wait(0.2):
            now_s = time.monotonic()
            self._undo_due(now_s)
            if now_s >= next_s:
                name = first.pop() if first else self._rng.choices(names, weights)[0]
                self._attempt(name, getattr(self, f"_{name.replace(' ', '_')}"))
                next_s = time.monotonic() + self._rng.expovariate(1 / self._every_s)
            self.revive()
        while self._later:
            self._undo_due(math.inf)
            time.sleep(0.2)

    def _undo_due(self, now_s: float) -> None:
        """Undo what is due; what cannot be undone now is tried again, as the day goes on from what it finds."""
        due = []
        while self._later and self._later[0].at_s <= now_s:
            due.append(heapq.heappop(self._later))
        for later in due:
            if not self._attempt("undo", later.undo) and later.tries < _MOST_TRIES:
                self._number += 1
                again = later._replace(at_s=time.monotonic() + 1, number=self._number, tries=later.tries + 1)
                heapq.heappush(self._later, again)

    def _attempt(self, name: str, act: Callable[[], None]) -> bool:
        """Do something; what fails is no action, and the day goes on.

        What the API server refused was not done, so it explains nothing. Whether a request was carried out that was cut
        off nobody knows.
        """
        self._noted = None
        try:
            act()
        except NothingToDoError:
            self.nothing[name] += 1
        except ApiError as error:
            self.failed.append(f"{name}: {error}")
            self._withdraw()
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the day goes on without it
            self.failed.append(f"{name}: {type(error).__name__}: {error}")
            return False
        else:
            self.done[name] += name != "undo"
        return True

    def never_done(self) -> list[str]:
        """Actions that failed again and again and were never done: something is wrong with the day."""
        failed = Counter(one.partition(":")[0] for one in self.failed)
        return [name for name in ACTIONS if failed[name] >= _OFTEN and not (self.done[name] or self.nothing[name])]

    def _note(self, action: str, *targets: str) -> None:
        self._noted = self._records.note(action, *targets)

    def _withdraw(self) -> None:
        if self._noted is not None:
            self._records.withdraw(self._noted)
            self._noted = None

    def _undo(self, after_s: float, undo: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._later, Later(time.monotonic() + after_s, self._number, undo))

    # -- nodes -------------------------------------------------------------------------------------------------

    def _node(self, action: str, among: Iterable[str] = ()) -> str:
        names = sorted(among) or [f"n{at:02d}" for at in range(self._ground.setting.nodes)]
        names = [name for name in names if name not in self._out]
        if len(self._out) * _MOST_OUT >= self._ground.setting.nodes or not names:
            raise NothingToDoError
        name = self._rng.choice(names)
        self._out.add(name)
        self._note(action, f"node/{name}")
        return name

    def _back(self, name: str, after_s: float, change: Callable[[], object]) -> None:
        def undo() -> None:
            try:
                change()
            except ApiError as error:
                if error.status not in (404, 409):  # it is as it was: what was to be undone was never done
                    raise
            self._out.discard(name)
            self._note(BACK, f"node/{name}")

        self._undo(after_s, undo)

    def _change_node(self, name: str, change: Thing) -> None:
        self._api.patch(f"{NODES}/{name}", change)

    def _cordon(self) -> None:
        name = self._node("cordon")
        self._back(name, self._rng.uniform(5, 40), lambda: self._change_node(name, {"spec": {"unschedulable": None}}))
        self._change_node(name, {"spec": {"unschedulable": True}})

    def _drain(self) -> None:
        """As `kubectl drain` does: cordon, then evict all pods by the Eviction API, until their budgets allow it."""
        self._drain_node(self._node("drain"))

    def _drain_node(self, name: str) -> None:
        open_s = self._rng.uniform(15, 60)
        self._back(name, open_s, lambda: self._change_node(name, {"spec": {"unschedulable": None}}))
        self._change_node(name, {"spec": {"unschedulable": True}})
        for pod in self._api.get(PODS, fieldSelector=f"spec.nodeName={name}")["items"]:
            if pod["status"].get("phase") in ("Pending", "Running"):
                self._evict(pod, name)

    def _evict(self, pod: Thing, node: str) -> None:
        meta = pod["metadata"]
        about = {"name": meta["name"], "namespace": "default"}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        self._note("drain", f"pod/{meta['uid']}", f"work/{meta['labels'].get(WORK)}")
        try:
            self._api.post(f"{PODS}/{meta['name']}/eviction", eviction)
        except ApiError as error:
            self._withdraw()
            if error.status == 429 and node in self._out:
                self.nothing["evict a pod that its budget keeps"] += 1
                self._undo(_AGAIN_S, lambda: self._evict(pod, node))
            elif error.status not in (404, 429):  # 404: it has gone by itself
                raise

    def _delete_node(self) -> None:
        name = self._node("delete node")
        self._back(name, self._rng.choice((3, 10, 70)), lambda: self._ground.add_node(name))
        self._api.delete(f"{NODES}/{name}", _NOW)

    def _taint(self) -> None:
        self._taint_with("taint", "NoSchedule")

    def _evicting_taint(self) -> None:
        self._taint_with("evicting taint", "NoExecute")

    def _taint_with(self, action: str, effect: str) -> None:
        name = self._node(action)
        self._back(name, self._rng.uniform(10, 40), lambda: self._change_node(name, {"spec": {"taints": None}}))
        self._change_node(name, {"spec": {"taints": [{"key": "game", "value": "day", "effect": effect}]}})

    def _not_ready(self) -> None:
        """A kubelet reports nothing any more, and the node's controller, which the bench does not run, taints it."""
        name = self._node("not ready")
        up = {"metadata": {"annotations": {STAYS_DOWN: None}}, "spec": {"taints": None}}
        self._back(name, self._rng.uniform(5, 40), lambda: self._change_node(name, up))
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        self._change_node(name, {"metadata": {"annotations": {STAYS_DOWN: "yes"}}, "spec": {"taints": [taint]}})
        down = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        self._api.request(
            "PATCH",
            f"{NODES}/{name}/status",
            {"status": {"conditions": [down]}},
            "application/strategic-merge-patch+json",
        )

    # -- work --------------------------------------------------------------------------------------------------

    def _one(self, kinds: tuple[str, ...], holds: Callable[[Thing], bool]) -> tuple[str, Thing]:
        """The path of some object of these kinds of work for which something holds, and the object."""
        found = []
        for path in self._paths(kinds):
            for thing in self._api.get(path)["items"]:
                meta = thing["metadata"]
                kind = meta.get("labels", {}).get(WORK, "").rpartition("-")[0]
                if kind in kinds and "deletionTimestamp" not in meta and holds(thing):
                    found.append((f"{path}/{meta['name']}", thing))
        if not found:
            raise NothingToDoError
        return self._rng.choice(found)

    def _paths(self, kinds: Iterable[str]) -> list[str]:
        """The paths of kinds of work, without those that the API server does not serve."""
        served = (kind for kind in kinds if kind != "jobset" or self._ground.has_job_sets)
        return sorted({KINDS[kind].path for kind in served})

    def _change_work(self, action: str, kinds: tuple[str, ...], holds: Callable[[Thing], bool], change: Thing) -> None:
        path, thing = self._one(kinds, holds)
        self._note(action, f"work/{thing['metadata']['labels'][WORK]}")
        self._api.patch(path, change)

    def _scale(self) -> None:
        count = self._rng.randint(0, 5)
        self._change_work("scale", ("deployment",), lambda thing: True, {"spec": {"replicas": count}})

    def _grow(self) -> None:
        self._resize("grow", self._rng.randint(1, 3))

    def _shrink(self) -> None:
        self._resize("shrink", -1)

    def _resize(self, action: str, by: int) -> None:
        path, thing = self._one(("job",), lambda thing: _lives(thing) and thing["spec"]["parallelism"] + by > 0)
        self._note(action, f"work/{thing['metadata']['labels'][WORK]}")
        self._api.patch(path, {"spec": {"parallelism": thing["spec"]["parallelism"] + by}})

    def _suspend(self) -> None:
        change = {"spec": {"suspend": True}}
        self._change_work("suspend", _JOBS, lambda thing: _lives(thing) and not thing["spec"]["suspend"], change)

    def _resume(self) -> None:
        change = {"spec": {"suspend": False}}
        self._change_work("resume", _JOBS, lambda thing: _lives(thing) and thing["spec"]["suspend"], change)

    def _move_to_a_queue(self) -> None:
        change = {"metadata": {"labels": {QUEUE: self._rng.choice(self._load.queues)}}}
        self._change_work("move to a queue", _JOBS, _lives, change)

    def _raise_priority(self) -> None:
        if not self._ground.has_job_sets:  # then there are no WorkloadPriorityClasses either
            raise NothingToDoError
        self._change_work("raise priority", _JOBS, _lives, {"metadata": {"labels": {PRIORITY: URGENT}}})

    def _delete_work(self) -> None:
        path, thing = self._one((*_JOBS, "deployment", "pod"), _lives)
        name = thing["metadata"]["labels"][WORK]
        self._note("delete work", f"work/{name}")
        self._load.deleted.add(name)
        self._api.delete(path, _NOW)

    def _delete_pod(self) -> None:
        pods = [one for one in self._api.get(PODS)["items"] if one["status"].get("phase") == "Running"]
        pods = [one for one in pods if WORK in one["metadata"].get("labels", {})]
        if not pods:
            raise NothingToDoError
        meta = self._rng.choice(pods)["metadata"]
        self._note("delete pod", f"pod/{meta['uid']}", f"work/{meta['labels'][WORK]}")
        self._api.delete(f"{PODS}/{meta['name']}", _NOW)

    def _add_a_budget(self) -> None:
        """For a while no pod of some work may be evicted, or one at a time; a node that it runs on is drained."""
        pods = [one for one in self._api.get(PODS)["items"] if one["status"].get("phase") == "Running"]
        by_work: dict[str, set[str]] = {}
        for pod in pods:
            by_work.setdefault(pod["metadata"].get("labels", {}).get(WORK, ""), set()).add(pod["spec"]["nodeName"])
        names = sorted(name for name in by_work if name.rpartition("-")[0] in _KEPT)
        if not names:
            raise NothingToDoError
        name = self._rng.choice(names)
        spec = {"maxUnavailable": self._rng.choice((0, 0, 1)), "selector": {"matchLabels": {WORK: name}}}
        meta = {"name": f"keep-{name}"}
        self._undo(self._rng.uniform(15, BUDGET_S), lambda: self._remove_budget(meta["name"]))
        self._note("add a budget", f"budget/{name}")
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        self._api.post(_BUDGETS, budget)
        self._drain_node(self._node("drain", by_work[name]))

    def _remove_budget(self, name: str) -> None:
        try:
            self._api.delete(f"{_BUDGETS}/{name}", _NOW)
        except ApiError as error:
            if error.status != 404:
                raise

    # -- policy ------------------------------------------------------------------------------------------------

    def _set_policy(self, action: str, text: str, back_s: float, *targets: str) -> None:
        self._note(action, "policy", *targets)
        data = dict.fromkeys(self._api.get(POLICY)["data"], text)
        self._api.patch(POLICY, {"data": data})
        if back_s:
            whole = policy_text(limits_of(self._ground.setting.quota))
            self._undo(back_s, lambda: self._set_policy("policy is back", whole, 0.0, *targets))

    def _quota_down(self) -> None:
        less = self._ground.setting.quota * self._rng.choice((5, 7)) // 10
        self._set_policy("quota down", policy_text(limits_of(less)), self._rng.uniform(15, 40))

    def _quota_up(self) -> None:
        more = self._ground.setting.quota * 11 // 10
        self._set_policy("quota up", policy_text(limits_of(more)), self._rng.uniform(15, 40))

    def _add_a_queue(self) -> None:
        """Work of another queue comes before there is one, and stays when it goes."""
        text = policy_text(limits_of(self._ground.setting.quota * 9 // 10, late=16))
        self._set_policy("add a queue", text, self._rng.uniform(30, 60), f"queue/{LATE}")
        if LATE not in self._load.queues:
            self._load.queues.append(LATE)
            self._undo(20, lambda: self._load.queues.remove(LATE))

    def _invalid_policy(self) -> None:
        text = "nominalQuota: much-".join(
            policy_text(limits_of(self._ground.setting.quota)).rsplit("nominalQuota: ", 1)
        )
        self._set_policy("invalid policy", text, self._rng.uniform(5, 20))

    def _empty_policy(self) -> None:
        self._set_policy("empty policy", "", self._rng.uniform(5, 20))

    # -- Tidegate and the API server ---------------------------------------------------------------------------

    def _replica(self, *, leads: bool) -> Replica:
        leader = self._ground.leader()
        found = [one for one in self._ground.replicas if (one is leader) == leads and one.process.poll() is None]
        if leader is None or not found:
            raise NothingToDoError
        return found[0]

    def _count_hand_over(self, replica: Replica, *, killed: bool) -> None:
        followed = any(_is_ready(one) for one in self._ground.replicas if one is not replica)
        self.hand_overs.append(HandOver(time.monotonic(), replica.name, killed, followed))
        if killed:
            self._records.kills.append(time.monotonic())

    def revive(self) -> None:
        """Start replicas that ended by themselves, a while later, as a kubelet does."""
        for replica in self._ground.replicas:
            code = replica.process.poll()
            if code is not None and replica.name not in self._down:
                self.ended.append(Ended(time.monotonic(), replica.name, code))
                self._start_again(replica, _BACK_OFF_S)
        if self._stopping.is_set():
            self._undo_due(time.monotonic())

    def _kill_leader(self) -> None:
        replica = self._replica(leads=True)
        self._note("kill leader")
        self._count_hand_over(replica, killed=True)
        self._down.add(replica.name)
        replica.kill()
        self._start_again(replica, self._rng.uniform(0.5, 5))

    def _kill_standby(self) -> None:
        replica = self._replica(leads=False)
        self._note("kill standby")
        self._down.add(replica.name)
        replica.kill()
        self._start_again(replica, self._rng.uniform(0.5, 5))

    def _start_again(self, replica: Replica, after_s: float) -> None:
        self._down.add(replica.name)

        self._undo(after_s, partial(self._start, replica))

    def _upgrade(self) -> None:
        """Replace both replicas, one after the other, as a Deployment does."""
        if any(one.process.poll() is not None or not _is_ready(one) for one in self._ground.replicas):
            raise NothingToDoError  # one that begins does not answer SIGTERM yet
        self._note("upgrade")
        for replica in self._ground.replicas:
            if replica.leads():
                self._count_hand_over(replica, killed=False)
            self._down.add(replica.name)
            try:
                if code := replica.stop():
                    self.ended.append(Ended(time.monotonic(), replica.name, code))
            finally:
                self._start(replica)
            replica.wait(partial(_is_ready, replica), "a replica that is ready", 60)

    def _replace_another_version(self) -> None:
        """Replace both replicas at once, which were of another version: their annotations have other fields."""
        if any(one.process.poll() is not None or not _is_ready(one) for one in self._ground.replicas):
            raise NothingToDoError
        self._note("replace another version")
        try:
            for replica in sorted(self._ground.replicas, key=Replica.leads):  # or the other one would lead meanwhile
                self._down.add(replica.name)
                if code := replica.stop():
                    self.ended.append(Ended(time.monotonic(), replica.name, code))
            self._rewrite_annotations(self._rng.choice((as_before, as_later)))
        finally:
            for replica in self._ground.replicas:
                self._start(replica)

    def _rewrite_annotations(self, change: Callable[[Thing], Thing]) -> None:
        for path in self._paths(KINDS):
            for thing in self._api.get(path)["items"]:
                meta = thing["metadata"]
                text = (meta.get("annotations") or {}).get(HANDOVER_NOTE)
                if text:
                    said = {"metadata": {"annotations": {HANDOVER_NOTE: json.dumps(change(json.loads(text)))}}}
                    with suppress(ApiError):  # it has gone meanwhile
                        self._api.patch(f"{path}/{meta['name']}", said)

    def _start(self, replica: Replica) -> None:
        if replica.process.poll() is not None:
            replica.__enter__()
        self._down.discard(replica.name)

    def _restart_server(self) -> None:
        self._note("restart server")
        began_s = time.monotonic()
        self._ground.restart_server(self._rng.uniform(0, 3), kill=self._rng.random() < 0.5)
        self.outages.append((began_s, time.monotonic()))

    def _log_level(self) -> None:
        self._signal("log level", signal.SIGUSR2)
        self._undo(10, lambda: self._signal("log level", signal.SIGUSR2))

    def _dump(self) -> None:
        self._signal("dump", signal.SIGUSR1)

    def _reload(self) -> None:
        self._signal("reload", signal.SIGHUP)

    def _signal(self, action: str, number: int) -> None:
        self._note(action)
        for replica in self._ground.replicas:
            if replica.process.poll() is None and replica.get("/healthz")[0] == 200:  # it handles signals by then
                replica.process.send_signal(number)


_JOBS = ("job", "indexed", "gang", "jobset")
#: Work that may have a disruption budget.
_KEPT = ("deployment", "job", "indexed", "group", "pod")

#: How long a kubelet waits before it starts a container again that has ended.
_BACK_OFF_S = 10.0


def _is_ready(replica: Replica) -> bool:
    return replica.process.poll() is None and replica.get("/readyz")[0] == 200


def _lives(thing: Thing) -> bool:
    """Whether a job, Deployment or pod is not over."""
    if thing.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    return not has_condition(thing, "Complete", "Completed", "Failed")


def as_before(note: Thing) -> Thing:
    """An annotation as versions before fields were numbered wrote it: with charges, which are not believed."""
    grants = [{**grant, "charge": [[GPU, 1]]} for grant in note.get("standing", {}).get("grants", ())]
    return {"standing": {**note.get("standing", {}), "grants": grants}, "nodes": note.get("nodes", [])}


def as_later(note: Any) -> Any:
    """An annotation as a later version may write it: with a field more wherever there are fields."""
    if isinstance(note, dict):
        return {**{name: as_later(inner) for name, inner in note.items()}, "since_later": {"deep": [1, None]}}
    return [as_later(inner) for inner in note] if isinstance(note, list) else note


def rss_mib(replica: Replica) -> int:
    """The memory of a replica; 0 if it does not run."""
    try:
        text = Path(f"/proc/{replica.process.pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in text.splitlines() if line.startswith("VmRSS:")), 0)
