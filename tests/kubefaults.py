"""Faults at random points of a live run, and what must hold whatever happens: for tests and `bench/faults.py`.

Two replicas bind gangs under a quota. At each point work is submitted, something goes wrong, and everything must come
to its end: no pod bound twice, no gang in halves for long, no quota exceeded, nothing decided and forgotten.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from kubebench import Options, Plane, job, node, pod
from kubebench.api import ApiError
from kubebench.plane import SERVER
from kubeproxy import Proxy
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import EventKind

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_NOW = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}

#: GPUs that the queue owns, of the 16 that there are.
QUOTA = 12

#: How long a gang may be bound in part, beyond the time that nobody could do anything about it.
WINDOW_S = 12.0

#: How long everything may take to come to its end after a fault.
SETTLE_S = 60.0

_POLICY = one_queue(QUOTA)


class Point(NamedTuple):
    """One fault: what, and how long after work was submitted."""

    fault: str
    after_s: float
    lasts_s: float


class Violation(NamedTuple):
    """Something that must not be."""

    point: int
    fault: str
    what: str


FAULTS = (
    "kill", "stop", "freeze", "server", "cut", "slow", "conflicts", "busy", "lost before", "lost after", "set clock",
    "foreign",
)  # fmt: skip


def draw_points(seed: int, count: int) -> list[Point]:
    """The faults of a seed: each kind as often as any other, in random order."""
    rng = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += rng.sample(FAULTS, len(FAULTS))
    return [Point(kind, rng.uniform(0, 1.2), rng.uniform(0.3, 2.0)) for kind in kinds[:count]]


def _answers(replica: Replica) -> bool:
    return replica.get("/healthz")[0] == 200


class Ordeal:
    """A control plane, a proxy, two replicas, and somebody who watches. Use it in a with statement."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed + 1)
        self._serial = 0
        self._members: dict[str, dict[str, Any]] = {}  # pods that no controller makes again
        self.violations: list[Violation] = []
        self._point, self._fault = -1, ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.plane = stack.enter_context(Plane(Options(build=False, scheduler=False, audit=True)))
            self.proxy = stack.enter_context(Proxy(self.plane))
            for number in range(2):
                self.plane.admin.post(_NODES, node(f"n{number}"))
            (self._folder / "policy.yaml").write_text(_POLICY)
            self._clock = self._folder / "clock"
            self._clock.write_text("0")
            self._config = self.proxy.kubeconfig()
            self.replicas = [stack.enter_context(self._replica(name)) for name in "ab"]
            self._watcher = stack.enter_context(Watcher(self.plane, self._complain))
            self._wait(lambda: self._leader() is not None, "a first leader", 30)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def endure(self, number: int, point: Point) -> None:
        """One point: submit, break something, mend it, and see everything come to its end."""
        self._point, self._fault = number, point.fault
        self._submit(self._rng.randint(2, 4))
        time.sleep(point.after_s)
        getattr(self, "_" + point.fault.replace(" ", "_"))(point.lasts_s)
        self._watcher.excuse()
        self._submit(1)
        try:
            self._wait(self._is_settled, "the end of all work", SETTLE_S)
        except TimeoutError as error:
            self._complain(str(error))
        self._clean_up()

    def finish(self) -> None:
        """Stop the replicas, and look at what is written down."""
        self._point, self._fault = -1, "the end"
        leader = self._leader()
        for replica in self.replicas:
            if replica.process.poll() is None:  # one that was just started may not have come to handle signals yet
                replica.wait(partial(_answers, replica), "an answer")
            if replica.process.poll() is None and replica.stop() != 0:
                self._complain(f"{replica.name} ended with {replica.process.returncode}")
        self._check_bindings()
        for path in sorted(self._folder.glob("*.db")):
            self._check_journal(path, ended=leader is not None and path == leader.journal)

    # -- work --------------------------------------------------------------------------------------------------

    def _submit(self, count: int) -> None:
        for _ in range(count):
            self._serial += 1
            name, pods, gpus = f"w{self._serial:04}", self._rng.randint(1, 3), self._rng.randint(1, 4)
            if self._rng.random() < 0.5:
                self._post(_JOBS, job(name, pods, gpus, runs="1s", suspend=True, scheduler="tidegate"))
            else:
                for member in range(pods):
                    group = (name, pods) if pods > 1 else None
                    made = pod(f"{name}-{member}", gpus, runs="1s", group=group, scheduler="tidegate")
                    self._members[f"{name}-{member}"] = made
                    self._post(_PODS, made)

    def _post(self, path: str, thing: dict[str, Any]) -> None:
        thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
        self._surely(lambda: self.plane.admin.post(path, thing))

    def _surely(self, ask: Callable[[], Any]) -> Any:
        """Ask the API server, which may just be restarting."""
        for _ in range(100):
            try:
                return ask()
            except ApiError as error:
                if error.status == 409:
                    return None
            except OSError:
                pass
            time.sleep(0.1)
        return ask()

    def _is_settled(self) -> bool:
        self._revive()
        try:
            jobs, pods = self.plane.admin.get(_JOBS)["items"], self.plane.admin.get(_PODS)["items"]
            self._make_again(pods)
        except (ApiError, OSError):
            return False
        over = all(any(one["type"] == "Complete" for one in thing["status"].get("conditions", ())) for thing in jobs)
        return over and all(thing["status"].get("phase") == "Succeeded" for thing in pods)

    def _make_again(self, pods: list[dict[str, Any]]) -> None:
        """As their owner would: make pods of a group again that were given back with it."""
        there = {one["metadata"]["name"] for one in pods}
        for name in sorted(self._members.keys() - there):
            made = self._members.pop(name)
            again = {**made, "metadata": {**made["metadata"], "name": f"{name}-again"}}  # a pod of its own
            self._members[f"{name}-again"] = again
            self._post(_PODS, again)

    def _clean_up(self) -> None:
        self._members = {}
        for path in (_JOBS, _PODS):
            self._surely(partial(self.plane.admin.delete, path, _NOW))
        self._wait(lambda: not self.plane.admin.get(_PODS)["items"], "an empty cluster", 30)

    # -- faults ------------------------------------------------------------------------------------------------

    def _kill(self, lasts_s: float) -> None:
        leader = self._leader() or self.replicas[0]
        leader.kill()
        time.sleep(lasts_s)
        self._revive()

    def _stop(self, lasts_s: float) -> None:
        leader = self._leader() or self.replicas[0]
        if leader.stop() != 0:
            self._complain(f"{leader.name} did not stop gracefully")
        time.sleep(lasts_s)
        self._revive()

    def _freeze(self, lasts_s: float) -> None:
        """The leader stands still for longer than its Lease, and wakes up not knowing it."""
        leader = self._leader() or self.replicas[0]
        leader.process.send_signal(signal.SIGSTOP)
        time.sleep(4.5 + lasts_s)
        leader.process.send_signal(signal.SIGCONT)

    def _server(self, lasts_s: float) -> None:
        self.plane.restart(SERVER, kill=True, down_s=lasts_s)

    def _cut(self, lasts_s: float) -> None:
        del lasts_s
        self.proxy.cut()

    def _slow(self, lasts_s: float) -> None:
        self._storm(lasts_s, bytes_per_s=2_000)

    def _conflicts(self, lasts_s: float) -> None:
        self._storm(lasts_s, refuses=409)

    def _busy(self, lasts_s: float) -> None:
        self._storm(lasts_s, refuses=429)

    def _lost_before(self, lasts_s: float) -> None:
        self._storm(lasts_s, loses="before")

    def _lost_after(self, lasts_s: float) -> None:
        self._storm(lasts_s, loses="after")

    def _storm(self, lasts_s: float, **how: Any) -> None:
        for name, value in how.items():
            setattr(self.proxy, name, value)
        self._submit(1)
        time.sleep(lasts_s)
        self.proxy.calm()

    def _set_clock(self, lasts_s: float) -> None:
        """Clocks are set two hours ahead or back, and then right."""
        self._clock.write_text(self._rng.choice(("7200000", "-7200000")))
        self._submit(1)
        time.sleep(lasts_s)
        self._clock.write_text("0")

    def _foreign(self, lasts_s: float) -> None:
        """Somebody takes eight GPUs without asking."""
        name = f"foreign-{self._serial}"
        thing = pod(name, 8, nodeName=f"n{self._rng.randint(0, 1)}")
        self._surely(lambda: self.plane.admin.post(_PODS, thing))
        time.sleep(lasts_s)
        self._surely(lambda: self.plane.admin.delete(f"{_PODS}/{name}", _NOW))

    # -- replicas ----------------------------------------------------------------------------------------------

    def _replica(self, name: str) -> Replica:
        policy = str(self._folder / "policy.yaml")
        replica = Replica(self.plane, self._folder, name, "--mode", "bind", "--policy", policy)
        replica.command[replica.command.index("--kubeconfig") + 1] = str(self._config)
        runner = str(Path(__file__).parent / "kubeclock.py")
        replica.command = [sys.executable, runner, str(self._clock), *replica.command[3:]]
        return replica

    def _leader(self) -> Replica | None:
        return next((replica for replica in self.replicas if replica.leads()), None)

    def _revive(self) -> None:
        for replica in self.replicas:
            code = replica.process.poll()
            if code is not None:
                if code not in (0, -signal.SIGKILL):
                    self._complain(f"{replica.name} ended with {code}: {replica.events()[-1:]}")
                replica.__enter__()

    def _wait(self, holds: Callable[[], object], what: str, most_s: float) -> None:
        until_s = time.monotonic() + most_s
        while not holds():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what} did not come about in {most_s:.0f} s: {self._said()}")
            time.sleep(0.1)

    def _said(self) -> str:
        pods = Counter(one["status"].get("phase") for one in self.plane.admin.get(_PODS)["items"])
        lines = [replica.events()[-1:] for replica in self.replicas]
        return f"pods {dict(pods)}; {lines}"

    # -- what must hold ----------------------------------------------------------------------------------------

    def _complain(self, what: str) -> None:
        self.violations.append(Violation(self._point, self._fault, what))

    def _check_bindings(self) -> None:
        """As the API server has it: no pod was bound twice."""
        bound = Counter(
            line["objectRef"]["name"]
            for line in self.plane.audited()
            if line["verb"] == "create"
            and line["objectRef"].get("subresource") == "binding"
            and line["stage"] == "ResponseComplete"
            and line["responseStatus"]["code"] < 300
        )
        for name, count in bound.items():
            if count > 1:
                self._complain(f"pod {name} was bound {count} times")

    def _check_journal(self, path: Path, *, ended: bool) -> None:
        """Every journal replays; and what was decided in a term that came to its end was carried out or withdrawn."""
        file = JournalFile.open(path)
        again = replay(file.steps())
        if again.difference is not None:
            self._complain(f"{path.name} does not replay: {again.difference}")
        left = undecided(file)
        if left and ended:  # all work is over, and its term was not cut short
            self._complain(f"{path.name}: decided, and neither carried out nor withdrawn: {left}")
        file.close()


def undecided(file: JournalFile) -> list[int]:
    """Workloads that were placed, and of which it was never told that they are over, or have to go."""
    placed: set[int] = set()
    for step in file.steps():
        for kind, number in zip(step.events.kind.tolist(), step.events.subject.tolist(), strict=True):
            if kind in (EventKind.WORKLOAD_FINISHED, EventKind.WORKLOAD_CANCELLED):
                placed.discard(number)
        decisions = step.result.decisions
        for kind, number in zip(decisions.kind.tolist(), decisions.workload.tolist(), strict=True):
            if kind == DecisionKind.PLACE:
                placed.add(number)
            elif kind in (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE):
                placed.discard(number)
    return sorted(placed)


class Watcher:
    """Looks at the pods ten times a second: what queues hold, and whether gangs are whole."""

    def __init__(self, plane: Plane, complain: Callable[[str], None]) -> None:
        self._plane, self._complain = plane, complain
        self._halves: dict[str, float] = {}  # gang: since when it is bound in part
        self._told: set[str] = set()
        self._excused_s = 0.0  # before: nobody could do anything about it
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def excuse(self) -> None:
        """Something was broken, and is mended now."""
        self._excused_s = time.monotonic()

    def _watch(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                pods = self._plane.admin.get(_PODS)["items"]
            except (ApiError, OSError):
                continue
            self.looks += 1
            self._check_quota(pods)
            self._check_gangs(pods)

    def _check_quota(self, pods: list[dict[str, Any]]) -> None:
        held = sum(_gpus(one) for one in pods if _holds(one) and not one["metadata"]["name"].startswith("foreign"))
        if held > QUOTA:
            self._say(f"the queue holds {held} GPUs of {QUOTA}")

    def _check_gangs(self, pods: list[dict[str, Any]]) -> None:
        gangs: dict[str, list[dict[str, Any]]] = {}
        for one in pods:
            gangs.setdefault(_gang_of(one), []).append(one)
        now_s = time.monotonic()
        halves = {}
        for gang, members in gangs.items():
            bound = sum("nodeName" in one["spec"] for one in members)
            if 0 < bound < len(members):
                halves[gang] = self._halves.get(gang, now_s)
                if now_s - max(halves[gang], self._excused_s) > WINDOW_S:
                    self._say(f"gang {gang} is bound in part, {bound} of {len(members)}, for too long")
        self._halves = halves

    def _say(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._complain(what)


def _holds(one: dict[str, Any]) -> bool:
    return "nodeName" in one["spec"] and one["status"].get("phase") not in ("Succeeded", "Failed")


def _gpus(one: dict[str, Any]) -> int:
    return sum(int(each["resources"].get("limits", {}).get("nvidia.com/gpu", 0)) for each in one["spec"]["containers"])


def _gang_of(one: dict[str, Any]) -> str:
    owners = one["metadata"].get("ownerReferences") or [{"name": ""}]
    group = one["metadata"].get("labels", {}).get("kueue.x-k8s.io/pod-group-name")
    return str(group or owners[0]["name"] or one["metadata"]["name"])
