"""What must hold of preemption in our own mode whatever happens: random clusters, queues, orders and work, with places.

`Watch` looks at every step: nothing is placed and preempted in one step, who leaves is not preempted again, nobody is
preempted twice between two facts from outside. Here in addition: nobody leaves in vain, and nobody waits for ever.
All that happens follows from one seed, so that work is in each other's way all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Cluster, fleet, job
from preemption_watch import Watch
from test_preemption_places import PHASES, seeds
from test_queues import queue
from tidegate.model.facts import FactKind
from tidegate.model.hardware import Node
from tidegate.model.policy import AdmissionKind, OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import FairSharing, Flavor, PreemptionRule, PreemptWhom, Queue, QueueSetup
from tidegate.model.work import Toleration, Workload
from tidegate.state.tables.workloads import Phase
from victim_cases import replace

relaxed = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)

#: Seeds with which some version of the engine evicted work in vain.
FOUND = (18, 80, 111, 112, 151, 191, 255)

QUEUES = ("qa", "qb", "qc")
NEVER, LOWER, NEWER, ANY = PreemptWhom
WITHIN, RECLAIM = [NEVER, LOWER, LOWER, LOWER, NEWER], [NEVER, LOWER, ANY, ANY, ANY]
POOLS = ["1x h100x8", "1x h100x4", "2x h100x4 in r1", "1x a100x4", "1x h100x2 taint=gpu"]
SHAPES = ["1x1", "1x1", "1x2", "1x4", "2x1", "2x2", "2x4", "3x1", "1x8", "1x0.5", "2x0.3"]
LIMITS_MS = [3_600_000, 1_000, 3_000, 10_000]  # passed over for longer, work gets a reservation
GUARDS = [{}] * 8 + [{"preemptible": False}, {"protected_ms": 4_000}]


class Contended:
    """A few nodes and queues that own about as much as they have, together or each: all is short most of the time."""

    def __init__(self, seed: int, admission: AdmissionKind = AdmissionKind.TIDEGATE, order: str = "fifo") -> None:
        self.rng = Random(seed)
        self.nodes = nodes = fleet(*(self.rng.choice(POOLS) for _ in range(self.rng.randint(1, 3))))
        self.cluster = Cluster(nodes)
        placement = PlacementRule(kind=self.rng.choice(list(PlacementKind)))
        shares = self._shares(nodes) if order == "fifo" else QueueSetup()
        rule = OrderRule(kind=OrderKind(order), reserve_after_ms=self.rng.choice(LIMITS_MS))
        self.cluster.set_policy(Policy(order=rule, placement=placement, admission=admission, shares=shares))
        self.watch = Watch(self.cluster)

    def _shares(self, nodes: list[Node]) -> QueueSetup:
        has = sum(node.shape.gpu_count for node in nodes)
        queues = tuple(self._queue(name, has) for name in QUEUES)
        flavors = (Flavor(name="any", tolerations=(Toleration(key="gpu"),)),)
        fair = FairSharing() if self.rng.random() < 0.3 else None
        return QueueSetup(flavors=flavors, queues=queues, ignore_undeclared=True, fair=fair)

    def _queue(self, name: str, has: int) -> Queue:
        rng, reclaim = self.rng, self.rng.choice(RECLAIM)
        borrow = NEVER if reclaim is NEVER else rng.choice([NEVER, LOWER])
        rule = PreemptionRule(
            within_queue=rng.choice(WITHIN),
            reclaim_in_cohort=reclaim,
            borrow_in_cohort=borrow,
            borrow_priority_threshold=rng.choice([None, 3]) if borrow is LOWER else None,
        )
        cohort, strict = rng.choice(["", "all", "all"]), rng.random() < 0.2
        return queue(
            name, rng.randint(0, has) if rng.random() < 0.5 else has, preemption=rule, cohort=cohort, strict_fifo=strict
        )

    def gang(self) -> Workload:
        """A gang of some queue, small or large, sometimes of two kinds of pods."""
        rng, number = self.rng, len(self.cluster.numbers)
        sets = [rng.choice(SHAPES) for _ in range(rng.choice([1, 1, 1, 2]))]
        at, priority = max(self.cluster.now_ms + rng.randint(-2, 2), 0), rng.choice([0, 1, 3, 7, 9])
        made = job(f"w{number:03d}", *sets, at=at, queue=rng.choice(QUEUES), priority=priority)
        return replace(made, work=replace(made.work, **rng.choice(GUARDS)))

    def submit(self, least: int, most: int) -> None:
        """Some more work."""
        for _ in range(self.rng.randint(least, most)):
            self.cluster.submit(self.gang())

    def happen(self, often: float = 0.35) -> None:
        """Maybe a fact about each workload, one that the world could tell; some of those who leave are gone."""
        for name in sorted(self.cluster.numbers):
            phase = self.watch.phase(name)
            if phase is Phase.NONE or self.rng.random() > often:
                continue
            if phase is Phase.TERMINATING:
                self.cluster.tell(FactKind.POD_GONE, name)
            elif phase is not Phase.PENDING:
                kinds = [FactKind.POD_STARTED] * 3 + [FactKind.WORKLOAD_FINISHED, FactKind.POD_FAILED]
                kind = self.rng.choice([*kinds, FactKind.WORKLOAD_CANCELLED])
                self.cluster.tell(kind, name, pod=0 if kind is FactKind.POD_FAILED else -1)
            elif self.rng.random() < 0.2:
                self.cluster.tell(FactKind.WORKLOAD_CANCELLED, name)

    def progress(self) -> None:
        """How far everybody is, for orders that ask."""
        for name in sorted(self.cluster.numbers):
            if self.watch.phase(name) not in (Phase.NONE, Phase.TERMINATING):
                remaining = self.rng.uniform(0, 1e4)
                self.cluster.tell(FactKind.PROGRESS_OBSERVED, name, values=(remaining, 1e4 - remaining))

    def run_steps(self, rounds: int) -> None:
        """Let work come and end, and all come to rest in between; sometimes nothing happens for a while."""
        for _ in range(rounds):
            self.submit(1, 5)
            self.happen(0.15)
            self.settle()
            self.cluster.now_ms += self.rng.choice([0, 0, 2_000, 20_000])

    def settle(self, most: int = 100) -> None:
        """Go on with nothing from outside until all is quiet. Whoever got victims starts as soon as they are gone."""
        promised: dict[str, list[str]] = {}
        for _ in range(most):
            self.watch.step()
            for name, victims in promised.items():
                holds = self.watch.phase(name) in (Phase.ASSUMED, Phase.RUNNING)
                assert holds, f"{sorted(victims)} left for {name} in vain"
            promised = self.watch.victims
            gone = self.watch.all_gone()
            self.watch.start_all()
            if not gone and not len(self.cluster.result.decisions.id):
                return
        raise AssertionError("it does not come to rest")


@relaxed
@given(st.data())
def test_in_our_own_mode_no_victim_leaves_in_vain(data):
    contended = Contended(data.draw(seeds))
    contended.run_steps(6)


@pytest.mark.parametrize("seed", FOUND)
def test_those_who_left_in_vain_once_leave_for_somebody_who_starts(seed):
    """Who was passed over had chosen places where victims were evicted for another, and was tried before it."""
    Contended(seed).run_steps(8)


@relaxed
@given(st.data())
def test_nothing_is_placed_and_preempted_in_one_step_of_queues(data):
    contended = Contended(data.draw(seeds))
    for _ in range(8):
        contended.submit(0, 4)
        contended.happen()
        contended.watch.step(contended.rng.randint(0, 5_000))


@relaxed
@given(st.data())
def test_by_kueues_rules_too_who_leaves_is_not_preempted_again(data):
    contended = Contended(data.draw(seeds), AdmissionKind.KUEUE)
    for _ in range(8):
        contended.submit(0, 4)
        contended.happen()
        contended.watch.step(contended.rng.randint(0, 5_000))


@relaxed
@given(st.data())
def test_nothing_is_placed_and_preempted_in_one_step_of_orders(data):
    contended = Contended(data.draw(seeds), order=data.draw(st.sampled_from(["srtf", "srsf", "las"])))
    for _ in range(8):
        contended.submit(0, 4)
        contended.happen()
        contended.progress()
        contended.watch.step(contended.rng.randint(0, 5_000))


#: Seeds with which work evicted others, and started at once on room that was there before.
NEEDLESS = (152, 197, 318, 320)


@pytest.mark.parametrize("seed", NEEDLESS)
def test_nobody_is_evicted_for_work_that_starts_elsewhere_at_once(seed):
    """What work gathered that was passed over lets pass only those whose victims were there."""
    contended = Contended(seed)
    for _ in range(6):
        contended.submit(1, 5)
        contended.happen(0.15)
        for _ in range(20):
            contended.watch.step()
            assert not set(contended.watch.victims) & contended.watch.placed
            gone = contended.watch.all_gone()
            contended.watch.start_all()
            if not gone and not len(contended.cluster.result.decisions.id):
                break
        contended.cluster.now_ms += contended.rng.choice([0, 0, 2_000, 20_000])


def test_nobody_is_evicted_for_quota_that_a_head_keeps_for_one_cycle():
    """The head of a queue that may preempt nobody keeps its quota while others are tried, and not in the next cycle."""
    contended = Contended(285)
    for round_ in range(6):
        contended.submit(1, 5)
        contended.happen(0.15)
        contended.watch.step()
        if round_ == 5:
            assert len(contended.watch.victims["w016"]) == 2  # not four
        contended.settle()
        contended.cluster.now_ms += contended.rng.choice([0, 0, 2_000, 20_000])


#: Orders and seeds with which victims left in vain, or more were evicted for the same work.
PLANNED_TWICE = [("srtf", 20), ("las", 35)]


def sees_plans_through(contended: Contended, rounds: int) -> None:
    """Let work come and end under an order that preempts: whoever got victims starts once these are gone."""
    for _ in range(rounds):
        contended.submit(1, 5)
        contended.happen(0.15)
        contended.progress()
        contended.settle()


@pytest.mark.parametrize(("order", "seed"), PLANNED_TWICE)
def test_work_starts_where_its_victims_made_room(order, seed):
    """Placed anew, work that came before it would be in its way there, and others would have to leave."""
    sees_plans_through(Contended(seed, order=order), 6)


# -- ageing ----------------------------------------------------------------------------------------------------

TICK_MS = 60_000


@dataclass
class Crowd:
    """A cluster with more small jobs than it has room for, at all times, and some gangs."""

    watch: Watch
    rng: Random
    gpus: int  # of a node
    runs: int  # ticks that a small job runs at most
    ends: dict[str, int] = field(default_factory=dict)  # tick at which each is done
    lengths: dict[str, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)  # tick of each
    tick: int = 0

    def advance(self) -> None:
        """One tick: jobs end, as many come as there is room for and one more, and what was placed runs."""
        self.tick += 1
        for name in [name for name, end in self.ends.items() if end <= self.tick]:
            self.watch.cluster.tell(FactKind.WORKLOAD_FINISHED, name)
            del self.ends[name]
        for number in range(self.gpus + 1):
            self.submit(f"s{self.tick:03d}-{number:03d}", f"1x{self.rng.randint(1, max(1, self.gpus // 2))}", self.runs)
        self.watch.step(TICK_MS)
        for name in sorted(self.watch.placed):
            self.started[name], self.ends[name] = self.tick, self.tick + self.lengths[name]
        self.watch.start_all()

    def submit(self, name: str, text: str, runs: int, **more) -> None:
        """A job that runs for some ticks."""
        cluster = self.watch.cluster
        self.lengths[name] = self.rng.randint(1, runs)
        asks = {"queue": more.pop("queue", "a"), "priority": more.pop("priority", 0)}
        made = job(name, text, at=cluster.now_ms, **asks)
        cluster.submit(replace(made, work=replace(made.work, **more)))


@settings(relaxed, max_examples=10)
@given(st.data())
def test_under_ageing_every_wait_has_a_bound(data):
    """A gang that others pass starts once its tolerated wait and the longest of what runs are over, gang by gang."""
    rng = Random(data.draw(seeds))
    nodes, gpus, gangs = rng.randint(2, 4), rng.choice([2, 4]), rng.randint(1, 2)
    cluster = Cluster(fleet(f"{nodes}x h100x{gpus}"), placement=rng.choice(["bestfit", "firstfit", "tide", "spread"]))
    owner = rng.choice(["", "a", "owner"])  # no queues; one for all; or its quota is free, and others have the nodes
    wide = nodes if owner != "owner" else 1
    queues = (queue("a", nodes * gpus),)
    if owner == "owner":
        rule = PreemptionRule(reclaim_in_cohort=rng.choice([NEVER, ANY]))
        queues = (queue("a", (nodes - 1) * gpus, cohort="all"), queue("owner", gpus, cohort="all", preemption=rule))
    if owner:
        shared = QueueSetup(flavors=(Flavor(name="any"),), queues=queues, ignore_undeclared=True)
        cluster.set_policy(replace(cluster.policy, shares=shared))
    crowd = Crowd(Watch(cluster), rng, gpus, runs=rng.randint(3, 5))
    crowd.advance()
    tolerated = rng.randint(1, 5)
    names = [f"gang{number}" for number in range(gangs)]
    for name in names:
        text, more = f"{rng.randint(min(2, wide), wide)}x{gpus}", {"tolerated_wait_ms": tolerated * TICK_MS}
        crowd.submit(name, text, 3, priority=rng.choice([0, 5]), queue=owner or "a", **more)
    bound = tolerated + gangs * (crowd.runs + 3) + 2
    for _ in range(bound):
        crowd.advance()
    assert sorted(crowd.started.keys() & set(names)) == names, f"still waits after {bound} ticks"
