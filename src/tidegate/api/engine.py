"""An engine that is stepped by hand: facts by name, decisions with their reasons."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.api.explanation import JobExplanation
from tidegate.api.journal import JournalReader, read_journal
from tidegate.api.kernels import Kernels, read_kernels
from tidegate.api.scenario_input import PathOrSection, read_cluster, read_nodes, read_policy
from tidegate.config.convert import Setup
from tidegate.engine.step import step
from tidegate.jit.registry import kernels_as
from tidegate.journal.decision_text import DATES_MS, time_text
from tidegate.journal.job_decisions import DecisionReader, JobDecision
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.measure.format import count_text
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.errors import UserError
from tidegate.model.facts import FactKind, Facts
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy
from tidegate.model.simulation import TwinOptions
from tidegate.model.struct import resources
from tidegate.model.units import WHOLE_MILLI, duration_text, parse_cpu_milli, parse_memory_mib, read_duration_ms
from tidegate.model.work import GpuRequest, PodSet, Work, WorkKind, Workload
from tidegate.sim.scenario import Scenario, ScenarioChanges, finish_setup, with_cluster, with_nodes, with_policy
from tidegate.sim.trace_jobs import gpu_request
from tidegate.state.cluster import ClusterState
from tidegate.whatif.search import BUDGET

#: A fact that is reported with the next step, whose time it gets.
_Report = Callable[[Facts, int], None]


class EngineStep(NamedTuple):
    """The decisions of one step of an engine."""

    now_ms: int  # the time of the step
    decisions: tuple[JobDecision, ...]  # in the order they were made
    next_ms: int | None  # when the next step may decide something; None: not before something happens

    def __repr__(self) -> str:
        at = _time(self.now_ms)
        return "\n".join(f"{at}  {decision!r}" for decision in self.decisions) or f"{at}  nothing to decide"

    def of(self, job: str) -> tuple[JobDecision, ...]:
        """The decisions about a job."""
        return tuple(decision for decision in self.decisions if decision.job == job)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = [decision.to_dict() for decision in self.decisions]
        return {"now_ms": self.now_ms, "decisions": plain, "next_ms": self.next_ms}


class Engine:
    """The scheduling engine, stepped by hand: report what happens, step, read the decisions.

    It is the engine of the twin and of a live run. A step takes in what was reported since the one before and decides
    until nothing more changes. What it decides takes effect by itself: with the next step the pods of a job that was
    placed have started, and those of a job that was evicted are gone.

    Args:
        policy: The path of a tidegate.yaml or of a folder of manifests, or the section `policy` of a tidegate.yaml as a
            dict. Default: first in, first out, placed by "tide".
        nodes: Nodes: "4x8", or "8x8:h100,16x4:l40s".
        cluster: Nodes and queues, instead of `nodes`, as for `simulate`.
        journal: A file for the journal; it must not exist. Default: a temporary file, removed with the engine.
        kernels: "plain" or "compiled". The decisions are the same; compiled kernels pay off for large clusters.

    Raises:
        UserError: Something that is named cannot be used; the text says why, with file and line.
    """

    def __init__(
        self,
        policy: PathOrSection | None = None,
        nodes: str = "",
        *,
        cluster: PathOrSection | None = None,
        journal: str | Path | None = None,
        kernels: str = "plain",
    ) -> None:
        setup = _setup(policy, nodes, cluster)
        self._compiled = read_kernels(kernels) is Kernels.COMPILED
        self._state, self._reader = ClusterState(), DecisionReader()
        self._now_ms: int | None = None
        self._reports: list[_Report] = []
        self._nodes: dict[str, int] = {}
        self._jobs: dict[str, int] = {}
        self._over: set[str] = set()
        self._journal = self._open_journal(journal)
        self.set_policy(setup.policy)
        for node in setup.nodes:
            self.add_node(node)

    def __repr__(self) -> str:
        at = "not stepped yet" if self._now_ms is None else f"at {_time(self._now_ms)}"
        nodes, jobs = count_text(len(self._nodes), "node"), count_text(len(self._jobs) - len(self._over), "job")
        return f"<Engine: {nodes}, {jobs}, {at}>"

    # -- facts -------------------------------------------------------------------------------------------------

    def submit(
        self,
        job: str,
        *,
        gpus: float = 1,
        pods: int = 1,
        queue: str = "default",
        priority: int = 0,
        kind: str = "batch",
        cpu: str | float = 0,
        memory: str | float = 0,
        gpu_models: Sequence[str] = (),
        estimate: str = "",
        preemptible: bool = True,
    ) -> None:
        """Report a new job: pods that start together, or not at all.

        Args:
            job: Its id.
            gpus: GPUs of each pod; a part of one, such as 0.5, shares a device.
            pods: How many pods.
            queue: The queue, or LocalQueue, that it is submitted to.
            priority: Higher goes first.
            kind: "batch", "training", "interactive" or "inference".
            cpu: CPU cores of each pod.
            memory: Memory of each pod, such as "64Gi".
            gpu_models: GPU models that it accepts. Default: any.
            estimate: How long it will run, such as "2h", for orders that go by it.
            preemptible: Whether it may be preempted.

        Raises:
            UserError: There is a job of this id, or an amount cannot be read.
        """
        if job in self._jobs:
            raise UserError(f"{job}: was submitted before; an id names one job")
        if kind not in set(WorkKind):
            raise UserError(f"kind: expected one of {', '.join(WorkKind)}, found {kind!r}")
        if pods < 1 or gpus < 0:
            raise UserError(f"{job}: expected one pod or more, and no negative number of GPUs")
        milli = round(gpus * WHOLE_MILLI)
        pod_set = PodSet(
            count=pods,
            request=resources({"cpu": parse_cpu_milli(cpu), "memory": parse_memory_mib(memory)}),
            gpu=gpu_request(milli, tuple(sorted(gpu_models))) if milli else GpuRequest(),
        )
        work = Work(queue=queue, kind=WorkKind(kind), priority=priority, pod_sets=(pod_set,), preemptible=preemptible)
        estimate_ms = read_duration_ms("estimate", estimate) if estimate else 0
        number = self._jobs[job] = len(self._jobs)

        def report(facts: Facts, now_ms: int) -> None:
            facts.submit(number, Workload(id=job, work=work, submitted_ms=now_ms, estimate_ms=estimate_ms))

        self._reports.append(report)

    def finish(self, job: str) -> None:
        """Report that a job has finished."""
        self._end(job, FactKind.WORKLOAD_FINISHED)

    def cancel(self, job: str) -> None:
        """Report that a job was cancelled."""
        self._end(job, FactKind.WORKLOAD_CANCELLED)

    def fail_pod(self, job: str, pod: int = 0) -> None:
        """Report that a pod of a job has failed."""
        number = self._number_of(job)
        self._reports.append(lambda facts, now_ms: facts.add(FactKind.POD_FAILED, now_ms, number, pod=pod))

    def add_node(self, node: Node | str) -> None:
        """Report nodes that were added, such as "2x8:h100", or one that was changed."""
        if isinstance(node, str):
            for one in read_nodes(node, first=len(self._nodes)):
                self.add_node(one)
            return
        known = node.name in self._nodes
        number = self._nodes.setdefault(node.name, len(self._nodes))
        self._reports.append(lambda facts, now_ms: facts.node(number, node, now_ms, changed=known))

    def remove_node(self, name: str) -> None:
        """Report that a node is gone."""
        if name not in self._nodes:
            raise UserError(f"{name}: there is no such node")
        number = self._nodes.pop(name)
        self._reports.append(lambda facts, now_ms: facts.add(FactKind.NODE_REMOVED, now_ms, number))

    def set_policy(self, policy: PathOrSection | Policy) -> None:
        """Report another policy."""
        chosen = policy if isinstance(policy, Policy) else _setup(policy, "", None).policy
        self._reports.append(lambda facts, now_ms: facts.policy(chosen, now_ms))

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> EngineStep:
        """Take in what was reported, decide until nothing more changes, and return the decisions.

        Args:
            now_ms: The time, in milliseconds; it never goes back.

        Raises:
            UserError: The time is before that of the step before.
        """
        if self._now_ms is not None and now_ms < self._now_ms:
            raise UserError(f"now_ms: expected {self._now_ms} or later, found {now_ms}; time never goes back")
        facts, reports, self._reports = Facts(), self._reports, []
        for report in reports:
            report(facts, now_ms)
        batch = facts.batch()
        with kernels_as(compiled=self._compiled):
            result = step(self._state, batch, now_ms)
        self._journal.append(now_ms, batch, result)
        self._now_ms = now_ms
        self._carry_out(result.decisions, now_ms)
        decisions = self._reader.read(now_ms, batch, result)
        self._over.update(one.job for one in decisions if one.kind == DecisionKind.REJECT.name)
        return EngineStep(now_ms, tuple(decisions), now_ms if self._reports else result.next_wake_ms)

    def journal(self) -> JournalReader:
        """The journal: all facts and decisions so far."""
        return read_journal(self._path)

    def explain(
        self,
        job: str,
        *,
        at: str | None = None,
        changes: Sequence[str] = (),
        node: str | None = None,
        trials: int = BUDGET,
        kernels: str = "plain",
    ) -> JobExplanation:
        """Explain why a job waits or what became of it; the arguments are those of `tidegate.explain`."""
        with self.journal() as journal:
            return journal.explain(job, at=at, changes=changes, node=node, trials=trials, kernels=kernels)

    # -- inside ------------------------------------------------------------------------------------------------

    def _open_journal(self, path: str | Path | None) -> Journal:
        folder = None if path else tempfile.mkdtemp(prefix="tidegate-")
        self._path = Path(path) if path else Path(folder or "") / "engine.db"
        file = JournalFile.create(self._path)
        weakref.finalize(self, _close, file, folder)
        return Journal(file, remember=False)

    def _number_of(self, job: str) -> int:
        if job not in self._jobs:
            raise UserError(f"{job}: there is no such job")
        if job in self._over:
            raise UserError(f"{job}: is over")
        return self._jobs[job]

    def _end(self, job: str, kind: FactKind) -> None:
        number = self._number_of(job)
        self._over.add(job)
        self._reports.append(lambda facts, now_ms: facts.add(kind, now_ms, number))

    def _carry_out(self, decisions: DecisionBatch, now_ms: int) -> None:
        """Let decisions take effect: what they cause is reported with the next step, as of this one."""
        for number, fact in _effects(decisions, starts_with=self._starts_with()):
            self._reports.append(_effect(fact, number, now_ms))

    def _starts_with(self) -> DecisionKind:
        """The decision that a job starts with: where there are no nodes, quota is all there is."""
        return DecisionKind.PLACE if self._nodes else DecisionKind.ADMIT


def _setup(policy: PathOrSection | None, nodes: str, cluster: PathOrSection | None) -> Setup:
    """The nodes and the policy that are named."""
    if nodes and cluster is not None:
        raise UserError("--nodes and --cluster each name a cluster; name one")
    scenario = Scenario(Setup([], Policy(), [], TwinOptions()))
    if cluster is not None:
        scenario = with_cluster(scenario, read_cluster(cluster).content)
    if nodes:
        scenario = with_nodes(scenario, read_nodes(nodes))
    if policy is not None:
        scenario = with_policy(scenario, read_policy(policy).content)
    return finish_setup(scenario, ScenarioChanges())


_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT)


def _effects(decisions: DecisionBatch, starts_with: DecisionKind) -> Iterator[tuple[int, FactKind]]:
    """What becomes of each job that a step started or stopped; of several decisions on one the last counts."""
    effects: dict[int, FactKind] = {}
    for kind, number in zip(decisions.kind.tolist(), decisions.workload.tolist(), strict=True):
        if kind == starts_with:
            effects[number] = FactKind.POD_STARTED
        elif kind in _AWAY:
            effects[number] = FactKind.POD_GONE
        elif kind == DecisionKind.RELEASE:
            effects[number] = FactKind.WORKLOAD_FINISHED
    yield from effects.items()


def _effect(fact: FactKind, number: int, at_ms: int) -> _Report:
    return lambda facts, _: facts.add(fact, at_ms, number)


def _time(at_ms: int) -> str:
    """A time since the start, or a date."""
    return time_text(at_ms) if at_ms >= DATES_MS else duration_text(at_ms)


def _close(file: JournalFile, folder: str | None) -> None:
    file.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
