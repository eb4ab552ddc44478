"""Queues in the twin, for tests: work, policies and runs in a few words.

run = simulate([planned("a", "1x8", queue="q", hours=2)], [queue("q", 8)])
run.finished["a"]                                  when it finished, in hours
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from builders import job, pods
from test_queues import queue
from tidegate.engine.run import run
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector, RunMeasures
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Cohort, Flavor, FlavorGroup, PreemptionRule, PreemptWhom, Queue, QueueSetup, Quota
from tidegate.model.simulation import InitialState, PlannedWorkload, RunProfile, TwinOptions
from tidegate.sim.loops import UntilOver
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

__all__ = [
    "HOUR", "Run", "partial_policy", "partial_work", "planned", "play", "queue", "share_policy", "simulate",
]  # fmt: skip

HOUR = 3_600_000


def planned(id_: str, *sets: str, at: float = 0, hours: float = 1.0, queue: str = "a", **more) -> PlannedWorkload:
    """A workload of the twin; times in hours."""
    of_work = ("checkpoint_every_ms", "restart_cost_ms", "preemptible")
    work = {name: more.pop(name) for name in of_work if name in more}
    of_run = {name: more.pop(name) for name in ("load_ms", "idle_tail_ms", "fails_every_ms") if name in more}
    made = job(id_, *(pods(text, min_count=more.get("min_count", 0)) for text in sets), at=int(at * HOUR), queue=queue)
    changed = msgspec.structs.replace(made.work, priority=more.get("priority", 0), **work)
    made = msgspec.structs.replace(made, work=changed)
    return PlannedWorkload(workload=made, run=RunProfile(runtime_ms=int(hours * HOUR), **of_run))


def share_policy(*queues: Queue, admission: str = "tidegate", cycle_ms: int = 1, **shares) -> Policy:
    """A policy of queues; at a cycle of 1 ms every event counts."""
    flavors = shares.pop("flavors", (Flavor(name="any"),))
    return Policy(
        placement=PlacementRule(kind=PlacementKind.FIRST_FIT),
        admission=AdmissionKind(admission),
        shares=QueueSetup(flavors=flavors, queues=queues, ignore_undeclared=True, **shares),
        cycle_ms=cycle_ms,
    )


class Run(NamedTuple):
    """A run of the twin that was seen to its end."""

    journal: Journal
    measured: RunMeasures
    state: ClusterState

    @property
    def finished(self) -> dict[str, float]:
        """When each finished, in hours."""
        lives = self.measured.lives
        return {name: at / HOUR for name, at in zip(lives.ids, lives.finished_ms.tolist(), strict=True) if at >= 0}

    def column(self, name: str) -> dict[str, int]:
        """A column of the lives."""
        lives = self.measured.lives
        return {id_: int(value) for id_, value in zip(lives.ids, np.asarray(getattr(lives, name)), strict=True)}


def simulate(work: list[PlannedWorkload], queues: list[Queue], nodes=(), **more) -> Run:
    """Run work through queues; without nodes in Kueue's mode, where quota is all there is."""
    options = {name: more.pop(name) for name in list(more) if name in TwinOptions.__struct_fields__}
    snapshot = more.pop("snapshot", InitialState())
    policy = share_policy(*queues, **{"admission": "tidegate" if nodes else "kueue", **more})
    return play(work, policy, nodes, TwinOptions(**{"observe_every_ms": HOUR, **options}), snapshot)


def play(
    work, policy: Policy, nodes=(), options: TwinOptions | None = None, snapshot: InitialState | None = None
) -> Run:
    """Run work under a policy, check the state in the end, and measure."""
    world = SimWorld(list(nodes), jobs_of(work), policy, options or TwinOptions(), snapshot or InitialState())
    state, journal = ClusterState(), Journal()
    witness = RunCollector(state, journal, every_ms=HOUR)
    run(state, world, witness, UntilOver(world))
    check(state)
    return Run(journal, witness.measured(), state)


def partial_work() -> list[PlannedWorkload]:
    """Found by `test_nobody_is_counted_twice`: `a` owns two GPUs and may borrow two more, of which `b` has both.

    With one of its two pods w00 stays within a's quota and may ask b's back. Once w05 is gone both pods fit, borrowing:
    now w05 goes first, as its priority is higher.
    """
    small = [planned(f"w0{number}", "1x1", hours=0.25) for number in range(1, 5)]
    return [
        planned("w00", "2x2", hours=0.25, min_count=1),
        *small,
        planned("w05", "2x2", hours=0.25, queue="b", priority=5),
    ]


def partial_policy() -> Policy:
    """The queues of `partial_work`."""

    def owner(name: str, gpus: int, rule: PreemptionRule) -> Queue:
        group, quota = FlavorGroup(resources=("gpu",), flavors=("x",)), Quota(flavor="x", resource="gpu", nominal=gpus)
        return Queue(name=name, cohort="left", groups=(group,), quotas=(quota,), preemption=rule)

    root = Cohort(name="root", quotas=(Quota(flavor="x", resource="gpu", nominal=2_000),))
    queues = owner("a", 2_000, PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)), owner("b", 0, PreemptionRule())
    cohorts = (root, Cohort(name="left", parent="root"))
    return share_policy(*queues, cohorts=cohorts, flavors=(Flavor(name="x"),), admission="kueue")
