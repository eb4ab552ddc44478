"""An owner that asks for its quota back in whole nodes, while free GPUs are scattered over the nodes of a borrower.

It starts as soon as victims are gone wherever evicting work that borrows frees quota and places. Where its quota is
free, and the nodes are held by work within its own quota, that moves if it has a lower priority and fits elsewhere.
Else nobody is evicted: ageing bounds the wait (`test_preemption_properties.test_under_ageing_every_wait_has_a_bound`).
"""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from builders import Cluster, fleet, held, job, preempted
from preemption_watch import Watch
from test_preemption_places import seeds
from test_preemption_properties import relaxed
from test_queues import queue, queue_cluster
from tidegate.engine.release import pods_of
from tidegate.model.facts import FactKind
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Flavor, PreemptionRule, PreemptWhom, QueueSetup
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.tables.workloads import Phase
from victim_cases import replace, with_work

NODE = 8  # GPUs of a node
RECLAIM = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)


class Borrowed:
    """A few nodes that a borrower fills with small jobs, and an owner that asks for whole nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.nodes = rng.randint(3, 6)
        self.owns = NODE * rng.randint(1, self.nodes // 2)
        self.lends = NODE * self.nodes - self.owns
        self.cluster = Cluster(fleet(f"{self.nodes}x h100x{NODE}"))
        queues = (
            queue("owner", self.owns, cohort="all", preemption=RECLAIM),
            queue("borrower", self.lends, cohort="all"),
        )
        shares = QueueSetup(flavors=(Flavor(name="any"),), queues=queues, ignore_undeclared=True)
        rule = PlacementRule(kind=rng.choice(list(PlacementKind)))
        self.cluster.set_policy(Policy(placement=rule, admission=AdmissionKind.TIDEGATE, shares=shares))
        self.watch = Watch(self.cluster)
        self.asked: dict[str, int] = {}  # GPUs of each

    def step(self) -> None:
        """One step; what was placed starts."""
        self.watch.step()
        self.watch.start_all()

    def submit(self, queue_name: str, text: str) -> str:
        """Work of a queue."""
        name, (count, gpus) = f"{queue_name}{len(self.asked):03d}", map(int, text.split("x"))
        self.asked[name] = count * gpus
        self.cluster.submit(job(name, text, queue=queue_name, at=self.cluster.now_ms))
        return name

    def fill(self, beyond: int) -> None:
        """The borrower takes what there is, and so many GPUs of it are free again, wherever that may be."""
        for _ in range(4 * self.nodes):
            self.submit("borrower", f"1x{self.rng.choice([1, 1, 2, 2, 4])}")
        self.step()
        waits = [name for name in self.asked if self.watch.phase(name) is Phase.PENDING]
        for name in waits:
            self.cluster.tell(FactKind.WORKLOAD_CANCELLED, name)
        free = NODE * self.nodes - sum(self.by_node().values())
        for name in self.rng.sample(sorted(self.running()), len(self.running())):
            if free < beyond:
                free += self.asked[name]
                self.cluster.tell(FactKind.WORKLOAD_FINISHED, name)
        self.step()

    def running(self) -> dict[str, int]:
        """The node of each job of the borrower that runs."""
        state, found = self.cluster.state, {}
        for name in self.asked:
            if name.startswith("borrower") and self.watch.phase(name) in (Phase.ASSUMED, Phase.RUNNING):
                row = state.workload_numbers.row(self.cluster.numbers[name])
                found[name] = int(state.pods.node[pods_of(state, row)[0]])
        return found

    def by_node(self) -> dict[int, int]:
        """GPUs that the borrower's jobs have on each node."""
        used = dict.fromkeys(self.cluster.state.node_specs, 0)
        for name, node in self.running().items():
            used[node] += self.asked[name]
        return used

    def can_reclaim(self, nodes: int) -> bool:
        """Whether so many nodes can be cleared where the borrower must be over its quota before each eviction."""
        used, jobs = self.by_node(), self.running()
        over = sum(used.values()) - self.lends
        for chosen in combinations(used, nodes):
            sizes = [self.asked[name] for name, node in jobs.items() if node in chosen]
            if not sizes or sum(sizes) - max(sizes) < over:
                return True
        return False


@relaxed
@given(st.data())
def test_an_owner_gets_whole_nodes_back_wherever_evicting_who_borrows_clears_them(data):
    world = Borrowed(data.draw(seeds))
    world.fill(beyond=world.rng.randint(0, NODE + 2))
    count = world.rng.randint(1, world.owns // NODE)
    can = world.can_reclaim(count)
    gang = world.submit("owner", f"{count}x{NODE}")
    world.step()
    assert bool(world.watch.victims) or not can or world.watch.runs(gang), "nobody is evicted for it"
    assert not world.watch.victims or can, "evicted though that is not enough"
    world.watch.all_gone()
    world.step()
    assert world.watch.runs(gang) == can


@relaxed
@given(st.data())
def test_an_owner_is_tried_again_whenever_the_borrower_takes_more(data):
    """What it could not reclaim it can as soon as the borrower is over its quota by enough."""
    world = Borrowed(data.draw(seeds))
    world.fill(beyond=world.rng.randint(2, NODE))
    gang = world.submit("owner", f"1x{NODE}")
    world.step()
    for _ in range(NODE):
        if world.watch.leaving() or world.watch.runs(gang):
            break
        assert not world.can_reclaim(1), "it could start"
        world.submit("borrower", "1x1")
        world.step()
        world.watch.step(1)  # what was placed in the step before may go
    world.watch.all_gone()
    world.step()
    assert world.watch.runs(gang) or not world.can_reclaim(1)


# -- quota is free, and its nodes are held by work within its own quota ---------------------------------------------


class Scattered(Borrowed):
    """A borrower whose jobs stand on every node, and within its quota or a little above it."""

    def ask(self, nodes: int, priority: int) -> str:
        """The owner asks for whole nodes."""
        made = job("gang", f"{nodes}x{NODE}", queue="owner", at=self.cluster.now_ms)
        self.cluster.submit(with_work(made, priority=priority))
        return "gang"

    def fill_with(self, jobs: int) -> None:
        """So many jobs of one GPU run, wherever that may be."""
        for _ in range(NODE * self.nodes):
            self.submit("borrower", "1x1")
        self.step()
        for name in self.rng.sample(sorted(self.running()), NODE * self.nodes - jobs):
            self.cluster.tell(FactKind.WORKLOAD_FINISHED, name)
        self.step()


@relaxed
@given(st.data())
def test_work_of_lower_priority_moves_for_an_owner_and_nobody_else_waits(data):
    """Kueue's rules let nobody go whose queue does not borrow; but who gets its quota back, and a place, only moves."""
    world = Scattered(data.draw(seeds))
    world.fill_with(world.lends + world.rng.randint(-2 * NODE, 3))
    over = max(len(world.running()) - world.lends, 0)
    count = world.rng.randint(1, world.owns // NODE)
    gang = world.ask(count, priority=100)
    world.step()
    world.watch.all_gone()
    world.step()
    assert world.watch.runs(gang)
    assert len(world.watch.ever) <= count * NODE
    world.step()  # who moves is placed beside it
    gone = [name for name, _ in world.watch.ever if not world.watch.runs(name)]
    assert len(gone) <= over, "more than the borrower had borrowed"


@relaxed
@given(st.data())
def test_work_of_the_same_priority_does_not_move(data):
    world = Scattered(data.draw(seeds))
    world.fill_with(world.rng.randint(world.lends - NODE // 2, world.lends))
    gang = world.ask(1, priority=0)
    world.step()
    assert not world.watch.ever
    assert world.watch.runs(gang) == (0 in world.by_node().values())


def test_work_that_fits_nowhere_else_does_not_move():
    """Each node has a job of five GPUs: beside it there is no room for another, however many GPUs are free in all."""
    cluster = queue_cluster(
        fleet(f"2x h100x{NODE}"),
        queue("owner", 6, cohort="all", preemption=RECLAIM),
        queue("borrower", 10, cohort="all"),
    )
    watch = Watch(cluster)
    cluster.submit(*(job(f"low{at}", "1x5", queue="borrower", at=at) for at in range(2)))
    watch.step()
    watch.start_all()
    assert watch.runs("low0")
    assert watch.runs("low1")
    cluster.submit(with_work(job("gang", "1x6", queue="owner", at=cluster.now_ms), priority=100))
    watch.step()
    assert not watch.ever


def test_who_moves_is_told_so():
    cluster = queue_cluster(
        fleet(f"2x h100x{NODE}"),
        queue("owner", NODE, cohort="all", preemption=RECLAIM),
        queue("borrower", NODE, cohort="all"),
    )
    cluster.set_policy(replace(cluster.policy, placement=PlacementRule(kind=PlacementKind.SPREAD)))
    watch = Watch(cluster)
    cluster.submit(*(job(f"low{at}", "1x1", queue="borrower", at=at) for at in range(NODE)))
    watch.step()
    watch.start_all()
    cluster.submit(with_work(job("gang", f"1x{NODE}", queue="owner", at=cluster.now_ms), priority=100))
    said = watch.step()
    moved = [name for name, _ in watch.ever]
    assert len(moved) == NODE // 2
    assert said == [*(preempted(name, Reason.PREEMPTED_TO_MOVE) for name in moved), held("gang", Reason.AWAITS_VICTIMS)]


def test_work_does_not_move_where_others_would_take_its_room():
    """Of two full nodes each has four jobs of a team that owns eight GPUs, and four of one that owns nothing.

    A node's four borrowers may go. But they wait again beside the four owners, and would borrow what is left for these.
    """
    cluster = queue_cluster(
        fleet(f"2x h100x{NODE}"),
        queue("owner", NODE, cohort="all", preemption=RECLAIM),
        queue("mine", NODE, cohort="all"),
        queue("lent", 0, cohort="all"),
    )
    cluster.set_policy(replace(cluster.policy, placement=PlacementRule(kind=PlacementKind.SPREAD)))
    watch = Watch(cluster)
    for name in ("mine", "lent"):
        cluster.submit(*(job(f"{name}{at}", "1x1", queue=name, at=cluster.now_ms) for at in range(NODE)))
        watch.step()
    watch.start_all()
    cluster.submit(with_work(job("gang", f"1x{NODE}", queue="owner", at=cluster.now_ms), priority=100))
    watch.step()
    assert not watch.ever
