"""Faults at random points of a live run, and what must hold whatever happens: for tests and `bench/faults.py`.

Two replicas bind work under a quota. At each point work is submitted, something goes wrong, and everything must end:
nothing is lost, nothing decided and forgotten, and the queue then has its whole quota, to the last GPU.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from commands import ran
from kubebench import Options, Plane, node
from kubebench.api import ApiError
from kubefaulttable import FAULTS, LABELS, LeftOutError, mount, unmount
from kubeinvariants import AUDIT, QUOTA, Watcher, bound_twice, evicted_in_silence, patience
from kubeproxy import Proxy
from kubequeues import one_queue
from kubereplica import Replica
from kubetenant import JOBS, NODES, PODS, Tenant, surely
from kubetraces import left, traces
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind

#: How long everything may take to end after a fault.
SETTLE_S = 60.0

#: How long quota must be exact without a break.
_EXACT_S = 0.5

#: GPUs of each pod that together use all of the quota.
_PROBE_GPUS = 2

#: How long a leader may take to know what was just done; longer than that, it need not.
_KNOWN_S = 5.0

#: Workloads that still run when the replicas are stopped in the end.
_STILL_RUN = 2

#: A second queue, for work whose owner changes its mind.
_OTHER = """\
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: other}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: any
      resources: [{name: cpu, nominalQuota: 0}, {name: nvidia.com/gpu, nominalQuota: 0}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: other, namespace: default}
spec: {clusterQueue: other}
"""

_POLICY = one_queue(QUOTA, "preemption: {withinClusterQueue: LowerPriority}") + _OTHER

_USAGE = 'kueue_cluster_queue_resource_usage{cluster_queue="q",cohort="",flavor="any",resource="nvidia.com/gpu"}'


class Point(NamedTuple):
    """One fault: what, and how long after work was submitted; its number and seed repeat it alone."""

    seed: int
    number: int
    fault: str
    after_s: float
    lasts_s: float

    @property
    def rng(self) -> random.Random:
        """What else is drawn at this point."""
        return random.Random(f"{self.seed}/{self.number}")


class StuckError(Exception):
    """Something does not happen that must."""


class Violation(NamedTuple):
    """Something that must not be, with the seed and the point that repeat it."""

    seed: int
    point: int
    fault: str
    what: str


def draw_points(seed: int, count: int, faults: Sequence[str] = ()) -> list[Point]:
    """The points of a seed: each fault as often as any other, in random order."""
    names, rng = list(faults or FAULTS), random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += rng.sample(names, len(names))
    return [_draw_point(seed, number, kind) for number, kind in enumerate(kinds[:count])]


def _draw_point(seed: int, number: int, kind: str) -> Point:
    rng = random.Random(f"{seed}/{number}/when")
    return Point(seed, number, kind, rng.uniform(0, 1.2), rng.uniform(0.3, 2.0))


class Ordeal:
    """A control plane, a proxy, two replicas, and a watcher. Use it in a with statement."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.left_out: dict[str, str] = {}  # faults that this machine cannot do, and why
        self.rng = random.Random(0)
        self._point = Point(0, -1, "start", 0, 0)
        self._serial = 0  # of replicas, and of tokens

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.disk = self._folder / "disk"
            self.disk.mkdir()
            self.has_disk = mount(self.disk)
            if self.has_disk:
                stack.callback(unmount, self.disk)
            options = Options(build=False, scheduler=False, audit=True, audit_policy=AUDIT)
            self.plane = stack.enter_context(Plane(options))
            self.proxy = stack.enter_context(Proxy(self.plane))
            self._furnish()
            self.tenant = Tenant(self.plane, "none", self.rng)
            self.replicas = [stack.enter_context(self.replica(name)) for name in "ab"]
            stack.callback(self._end_replicas)
            self.watcher = stack.enter_context(Watcher(self.plane, self.complain))
            self._wait(lambda: self.leader() is not None, "a first leader", 60)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _furnish(self) -> None:
        """Nodes, a priority, an installation, and what replicas read."""
        for number in range(2):
            self.plane.admin.post(NODES, node(f"n{number}", labels=LABELS))
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        high = {**kind, "metadata": {"name": "high"}, "value": 100}
        self.plane.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", high)
        self._policy, self._clock = self._folder / "policy.yaml", self._folder / "clock"
        self._policy.write_text(_POLICY)
        self.set_clock(0)
        config = str(self.plane.kubeconfig("admin"))
        ran("install", "--mode", "bind", "--policy", str(self._policy), "--kubeconfig", config, "--yes")
        self._token = self._folder / "token"
        self._configs = self.proxy.expiring(self._token)
        self.rotate_token()()

    # -- one point ---------------------------------------------------------------------------------------------

    def endure(self, point: Point) -> None:
        """One point: submit, break something, mend it, and see everything end."""
        fault, self._point, self.rng = FAULTS[point.fault], point, point.rng
        self.tenant = self.watcher.tenant = Tenant(self.plane, f"p{point.number:03}", self.rng)
        try:
            self.tenant.submit(self.rng.randint(2, 4))
            time.sleep(point.after_s)
            fault.strike(self, point.lasts_s)
            self.watcher.excuse(fault.heals_s)
            self.tenant.submit(1)
            self._settle(self.tenant.is_over, "the end of all work", SETTLE_S + fault.heals_s)
            self._check_quota()
        except LeftOutError as error:
            self.left_out[point.fault] = str(error)
        except (StuckError, TimeoutError) as error:
            self.complain(str(error))
        self._clean_up()

    def _settle(self, holds: Callable[[], object], what: str, most_s: float) -> None:
        """Wait until something holds. A slow machine has more time, but only while anything happens at all."""
        seen, changed_s = "", time.monotonic()

        def is_settled() -> object:
            nonlocal seen, changed_s
            self.revive()
            now = self.tenant.versions()
            if now != seen:
                seen, changed_s = now, time.monotonic()
            if time.monotonic() - changed_s > most_s:
                raise StuckError(f"{what}: nothing has happened for {most_s:.0f} s: {self._said()}")
            return holds()

        self._wait(is_settled, what, most_s)

    def _check_quota(self) -> None:
        """All of the quota can be used, and not one GPU more; the leader's own figure says the same."""
        self.tenant.clear()
        probe = Tenant(self.plane, f"p{self._point.number:03}-probe", self.rng)
        for _ in range(QUOTA // _PROBE_GPUS + 1):
            probe.submit_group(1, _PROBE_GPUS, runs="")
        self._settle(lambda: self._charged() == self.watcher.held() == QUOTA, "all of the quota in use", SETTLE_S)
        until_s = time.monotonic() + _EXACT_S
        while time.monotonic() < until_s:
            if (held := self.watcher.held()) != QUOTA:
                self.complain(f"of a quota of {QUOTA} GPUs {held} are held while nothing happens")
            self._settle(lambda: self._charged() == QUOTA, "an exact charge", SETTLE_S)  # by a new leader, perhaps
            time.sleep(0.1)
        probe.clear()
        self._settle(lambda: self._charged() == 0 and not self.watcher.held(), "all of the quota free", SETTLE_S)

    def _charged(self) -> float | None:
        """The GPUs that the leader has charged; None if nobody leads."""
        leader = self.leader()
        return leader.metric(_USAGE) if leader is not None else None

    def _clean_up(self) -> None:
        self.tenant.clear()
        self._wait(lambda: not self.plane.admin.get(PODS)["items"], "an empty cluster", 30)

    # -- what faults use ---------------------------------------------------------------------------------------

    def replica(self, name: str, *options: str) -> Replica:
        """A replica that is not started yet; every second one has its token from a plugin."""
        options = ("--mode", "bind", "--lease", "tidegate/tidegate", *options, "--policy", str(self._policy))
        made = Replica(self.plane, self._folder, name, *options)
        config = self._configs[self._serial % len(self._configs)]
        made.command[made.command.index("--kubeconfig") + 1] = str(config)
        made.command[made.command.index(str(made.journal))] = str(self.disk / made.journal.name)
        made.journal = self.disk / made.journal.name
        runner = str(Path(__file__).parent / "kubeclock.py")
        made.command = [sys.executable, runner, str(self._clock), *made.command[3:]]
        self._serial += 1
        return made

    def leader(self) -> Replica | None:
        """The replica that leads, if one does."""
        return next((replica for replica in self.replicas if replica.leads()), None)

    def leading(self) -> Replica:
        """The replica that leads, or the first."""
        return self.leader() or self.replicas[0]

    def replace(self, at: int) -> None:
        """Replace a replica: the new one is ready before the old one ends."""
        old, new = self.replicas[at], self.replica(f"{self.replicas[at].name[0]}{self._serial}")
        new.__enter__()
        self.replicas.append(new)  # from now on it is looked after
        self._wait(lambda: new.get("/readyz")[0] == 200, f"{new.name} ready", 60)
        self.replicas.remove(new)
        self.replicas[at] = new
        if old.process.poll() is None and old.stop() != 0:
            self.complain(f"{old.name} ended with {old.process.returncode}")

    def revive(self) -> None:
        """Start replicas again that ended."""
        for replica in self.replicas:
            code = replica.process.poll()
            if code is not None:
                if code not in (0, -signal.SIGKILL):
                    self.complain(f"{replica.name} ended with {code}: {replica.events()[-1:]}")
                replica.__enter__()

    def _end_replicas(self) -> None:
        for replica in self.replicas:
            replica.__exit__()

    def set_clock(self, ahead_ms: int) -> None:
        """Set the clock of all replicas."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(str(ahead_ms))
        fresh.replace(self._clock)

    def rotate_token(self) -> Callable[[], None]:
        """Have the server accept another token; what is returned gives it to the replicas."""
        self._serial += 2  # an even number: replicas take turns
        self.proxy.token = f"token-{self._serial}"

        def hand_out() -> None:
            fresh = self._token.with_suffix(".new")
            fresh.write_text(self.proxy.token)
            fresh.replace(self._token)

        return hand_out

    def knowledge(self, kind: str) -> Callable[[], bool]:
        """Asked before something is done to the cluster: what is returned waits until the leader knows of it.

        It then has no write in flight that it decided on before. False: it does not become known in time.
        """
        name, leader = f'tidegate_facts_total{{kind="{kind}"}}', self.leading()
        before = leader.metric(name)

        def is_known() -> bool:
            return leader.metric(name) > before and leader.leads() and not leader.metric("tidegate_writes_waiting")

        def wait() -> bool:
            try:
                self._wait(is_known, "it known", _KNOWN_S)
            except StuckError:
                return False
            return True

        return wait

    def complain(self, what: str) -> None:
        """Note a violation at this point."""
        self.violations.append(Violation(self._point.seed, self._point.number, self._point.fault, what))

    def _wait(self, holds: Callable[[], object], what: str, most_s: float) -> None:
        """Wait until something holds; what takes longer on a machine that is slow is given more time."""
        began_s = time.monotonic()
        while not self._holds(holds):
            if time.monotonic() - began_s > patience(most_s):
                raise StuckError(f"{what} did not come about in {time.monotonic() - began_s:.0f} s: {self._said()}")
            time.sleep(0.1)

    def _holds(self, holds: Callable[[], object]) -> object:
        try:
            return holds()
        except (ApiError, OSError):  # the API server may just be restarting
            return False

    def _said(self) -> str:
        pods = Counter(one["status"].get("phase") for one in surely(lambda: self.plane.admin.get(PODS))["items"])
        jobs = surely(self.tenant.unfinished)
        return f"pods {dict(pods)}, charged {self._charged()}, unfinished jobs {jobs}"

    # -- the end -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Stop the replicas, look at what is written down, and uninstall."""
        self._point = self._point._replace(number=-1, fault="the end")
        leader = self.leader()
        last = Tenant(self.plane, "last", self.rng)
        last.submit_job(1, 8, runs="")
        last.submit_group(2, 2, runs="")
        last.submit_job(1, 8, runs="")
        self._wait(lambda: self._charged() == QUOTA, "work that runs until the end", SETTLE_S)
        for replica in self.replicas:
            self._stop(replica)
        log = self.plane.audited()
        for what in (*bound_twice(log), *evicted_in_silence(log)):
            self.complain(what)
        for path in sorted(self.disk.glob("*.db")):
            self._check_journal(path, ended=leader is not None and path == leader.journal)
        self._check_uninstall()

    def _stop(self, replica: Replica) -> None:
        if replica.process.poll() is None:  # one that was just started may not have come to handle signals yet
            replica.wait(lambda: replica.get("/healthz")[0] == 200, "an answer", patience(30))
        if replica.process.poll() is None and replica.stop() != 0:
            self.complain(f"{replica.name} ended with {replica.process.returncode}")

    def _check_uninstall(self) -> None:
        """Nothing of Tidegate is left, and what runs goes on."""
        running = self._running()
        ran("uninstall", "--kubeconfig", str(self.plane.kubeconfig("admin")), "--yes")
        found = list(left(self.plane))
        for path in (JOBS, PODS):
            for thing in self.plane.admin.get(path)["items"]:
                found += [f"{trace} in {thing['metadata']['name']}" for trace in traces(thing)]
        if found:
            self.complain(f"uninstall leaves behind: {', '.join(found)}")
        if self._running() != running:
            self.complain(f"uninstall stops work: {sorted(running - self._running())}")

    def _running(self) -> set[str]:
        pods = self.plane.admin.get(PODS)["items"]
        return {one["metadata"]["uid"] for one in pods if one["status"].get("phase") == "Running"}

    def _check_journal(self, path: Path, *, ended: bool) -> None:
        """Every journal replays; and what was decided in a term that came to its end was carried out or withdrawn."""
        file = JournalFile.open(path)
        again = replay(file.steps())
        if again.difference is not None:
            self.complain(f"{path.name} does not replay: {again.difference}")
        left_over = undecided(file)
        if ended and len(left_over) > _STILL_RUN:  # its term was not cut short
            self.complain(f"{path.name}: decided, and neither carried out nor withdrawn: {left_over}")
        file.close()


def undecided(file: JournalFile) -> list[int]:
    """Workloads that were placed, and that have neither ended nor been evicted since."""
    placed: set[int] = set()
    for step in file.steps():
        for kind, number in zip(step.events.kind.tolist(), step.events.subject.tolist(), strict=True):
            if kind in (FactKind.WORKLOAD_FINISHED, FactKind.WORKLOAD_CANCELLED):
                placed.discard(number)
        decisions = step.result.decisions
        for kind, number in zip(decisions.kind.tolist(), decisions.workload.tolist(), strict=True):
            if kind == DecisionKind.PLACE:
                placed.add(number)
            elif kind in (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE):
                placed.discard(number)
    return sorted(placed)
