"""The brute-force oracle itself, on cases small enough to be done by hand."""

from __future__ import annotations

from builders import fleet, job, pods
from quota_oracle import Holder
from tidegate.model.queues import Cohort, FairSharing, FairStrategy, PreemptionRule, PreemptWhom
from tidegate.model.struct import labels
from tidegate.model.work import PodSet, Toleration, TopologyRequest
from victim_cases import GPU, LOT, MINUTE, hosts, queue, replace, shares_of
from victim_oracle import (
    INFEASIBLE,
    NO_LEVEL,
    Answer,
    BoundPod,
    Room,
    Running,
    Situation,
    VictimOracle,
    can_place,
    work_lost,
)

NEVER, LOWER, NEWER, ANY = PreemptWhom
WITHIN = PreemptionRule(within_queue=LOWER)
NODES = fleet("2x h100x8")
LEFT, RIGHT = (node.name for node in NODES)
ONE_QUEUE = shares_of(queue("a", 100, WITHIN))


def runs(name: str, lost: int, *places: tuple[str, int, int], queue: str = "a", priority: int = 0, **more) -> Running:
    """A workload with whole GPUs on nodes: from one device up to another."""
    bound = tuple(BoundPod(node, pods(f"1x{end - start}"), tuple(range(start, end))) for node, start, end in places)
    amount = sum(len(pod.devices) for pod in bound) * GPU
    holder = Holder(name, queue, ((LOT, amount),), priority, more.pop("at", 0), **more)
    return Running(holder, bound, lost)


def asks(
    *sets: PodSet | str,
    running: list[Running],
    shares=ONE_QUEUE,
    nodes=NODES,
    priority: int = 9,
    **more,
) -> VictimOracle:
    """The oracle for a workload of queue a that wants to start."""
    made = tuple(text if isinstance(text, PodSet) else pods(text) for text in sets)
    whole = sum(pod_set.count * pod_set.gpu.count * (pod_set.gpu.milli or GPU) for pod_set in made)
    return VictimOracle(
        Situation(list(nodes), shares, running, Holder("high", "a", ((LOT, whole),), priority, 100), made, **more)
    )


def found(*victims: str, lost: int = 0, level=(2, 0)) -> Answer:
    return Answer(True, frozenset(victims), lost, level if victims else NO_LEVEL)


# -- work lost -------------------------------------------------------------------------------------------------


def test_work_lost_is_gpus_times_the_time_since_the_last_checkpoint_and_the_restart():
    work = job("j", "2x4").work
    assert work_lost(work, 10 * MINUTE) == 8000 * 10 * MINUTE
    assert work_lost(replace(work, checkpoint_every_ms=4 * MINUTE), 10 * MINUTE) == 8000 * 2 * MINUTE
    assert work_lost(replace(work, checkpoint_every_ms=5 * MINUTE), 10 * MINUTE) == 0
    assert work_lost(replace(work, restart_cost_ms=MINUTE), 10 * MINUTE) == 8000 * 11 * MINUTE
    assert work_lost(job("half", "1x0.5").work, MINUTE) == 500 * MINUTE
    assert work_lost(job("cores", "3x0").work, MINUTE) == MINUTE


# -- places ----------------------------------------------------------------------------------------------------


def rooms(*texts: str, nodes=None) -> list[Room]:
    return [Room.of(node) for node in nodes or hosts(*texts)]


def test_a_pod_goes_where_gpus_cores_and_memory_are_enough():
    assert can_place(rooms("1x h100x8"), (pods("1x8"),))
    assert not can_place(rooms("1x h100x8"), (pods("1x9"),))
    assert can_place(rooms("2x h100x4"), (pods("2x4"),))
    assert not can_place(rooms("2x h100x4"), (pods("1x8"),))
    assert not can_place(rooms("1x h100x8 cpu=8"), (pods("2x1", cpu=5),))
    assert not can_place(rooms("1x h100x8 memory=8"), (pods("2x1", memory=5),))
    assert not can_place(rooms("1x h100x8 pods=1"), (pods("2x1"),))


def test_nodes_take_only_pods_that_match_them():
    assert not can_place(rooms("1x h100x8 taint=gpu"), (pods("1x1"),))
    assert can_place(rooms("1x h100x8 taint=gpu"), (pods("1x1", tolerations=(Toleration(key="gpu"),)),))
    assert not can_place(rooms("1x h100x8 in r1"), (pods("1x1", selector=labels({"rack": "r2"})),))
    assert not can_place(rooms("1x a100x8"), (pods("1x1", models=("h100",)),))
    assert not can_place(rooms("1x h100x8 vram=40"), (pods("1x1", vram=80 * 1024),))
    cordoned = [replace(node, unschedulable=True) for node in hosts("1x h100x8")]
    assert not can_place(rooms(nodes=cordoned), (pods("1x1"),))


def test_fractions_share_devices_and_whole_gpus_do_not():
    room = rooms("1x h100x2")
    room[0].take(pods("1x0.6"), (0,))
    assert can_place(room, (pods("1x0.4"), pods("1x1")))
    assert can_place(room, (pods("1x0.5"), pods("1x0.5")))
    assert not can_place(room, (pods("1x0.5"), pods("1x1")))
    assert not can_place(room, (pods("1x2"),))
    assert not can_place(room, (pods("2x0.6"),))
    assert not can_place(rooms("1x h100x1"), (pods("2x0.5", vram=50 * 1024),))


def test_a_broken_device_holds_nothing():
    [node] = hosts("1x h100x2")
    assert not can_place([Room.of(node, (1,))], (pods("1x2"),))
    assert can_place([Room.of(node, (1,))], (pods("1x1"),))


def test_pods_of_several_kinds_are_placed_in_whatever_way_fits():
    """The first kind must leave the node alone that the second needs, wherever it would go by itself."""
    room = rooms("1x h100x4", "1x h100x8")
    room[1].take(pods("1x2"), (0, 1))
    assert can_place(room, (pods("2x2"), pods("1x6")))
    assert can_place(room, (pods("1x4"), pods("1x6")))
    assert not can_place(room, (pods("1x5"), pods("1x6")))
    assert can_place(room, (pods("2x3"), pods("1x4")))
    assert not can_place(room, (pods("3x3"), pods("1x4")))


def test_a_required_level_keeps_a_set_in_one_domain():
    nodes = hosts("2x h100x4 in r1", "1x h100x4 in r2")
    rack, host = (TopologyRequest(required=level) for level in ("rack", "kubernetes.io/hostname"))
    assert can_place(rooms(nodes=nodes), (pods("3x4"),))
    assert not can_place(rooms(nodes=nodes), (pods("3x4", topology=rack),))
    assert can_place(rooms(nodes=nodes), (pods("2x4", topology=rack), pods("1x4", topology=rack)))
    assert not can_place(rooms(nodes=nodes), (pods("2x4", topology=host),))
    assert can_place(rooms(nodes=nodes), (pods("4x1", topology=host),))


# -- one queue -------------------------------------------------------------------------------------------------


def test_who_fits_needs_no_victims():
    assert asks("1x8", running=[runs("x", 5, (LEFT, 0, 8))]).answer() == found()


def test_the_set_that_loses_the_least_work_goes_whichever_is_smaller():
    both = [runs("x", 3, (LEFT, 0, 4)), runs("y", 4, (LEFT, 4, 8))]
    assert asks("1x8", running=[*both, runs("z", 8, (RIGHT, 0, 8))]).answer() == found("x", "y", lost=7)
    assert asks("1x8", running=[*both, runs("z", 6, (RIGHT, 0, 8))]).answer() == found("z", lost=6)
    assert asks("1x5", running=[*both, runs("z", 9, (RIGHT, 0, 3))]).answer() == found()
    assert asks("1x6", running=[*both, runs("z", 9, (RIGHT, 0, 3))]).answer() == found("x", "y", lost=7)
    assert asks("1x4", running=[*both, runs("z", 1, (RIGHT, 0, 5))]).answer() == found("z", lost=1)


def test_a_lower_level_goes_before_less_work():
    both = [runs("x", 300, (LEFT, 0, 4)), runs("y", 400, (LEFT, 4, 8))]
    running = [*both, runs("z", 1, (RIGHT, 0, 8), priority=1)]
    assert asks("1x8", running=running).answer() == found("x", "y", lost=700)
    assert asks("2x8", running=running).answer() == found("x", "y", "z", lost=701, level=(2, 1))


def test_a_gang_over_nodes_frees_both():
    running = [runs("x", 1, (LEFT, 0, 1), (RIGHT, 0, 1)), runs("y", 5, (LEFT, 1, 8)), runs("z", 5, (RIGHT, 1, 8))]
    assert asks("2x1", running=running).answer() == found("x", lost=1)
    assert asks("2x8", running=running).answer() == found("x", "y", "z", lost=11)
    assert asks("1x7", running=running).answer() == found("y", lost=5)
    assert asks("2x7", running=running).answer() == found("y", "z", lost=10)


def test_who_may_not_be_preempted_is_worked_around():
    full = [runs("x", 1, (LEFT, 0, 8), protected=True), runs("y", 5, (RIGHT, 0, 8))]
    assert asks("1x8", running=full).answer() == found("y", lost=5)
    assert asks("2x8", running=full).answer() == INFEASIBLE
    equal = [runs("x", 1, (LEFT, 0, 8), priority=9, at=200), runs("y", 5, (RIGHT, 0, 8))]
    assert asks("2x8", running=equal).answer() == INFEASIBLE
    newer = shares_of(queue("a", 100, PreemptionRule(within_queue=NEWER)))
    assert asks("2x8", running=equal, shares=newer).answer() == found("x", "y", lost=6, level=(2, 9))
    never = shares_of(queue("a", 100, PreemptionRule()))
    assert asks("1x8", running=equal, shares=never).answer() == INFEASIBLE


def test_who_leaves_already_costs_nothing():
    running = [runs("x", 9, (LEFT, 0, 8), leaving=True), runs("y", 5, (RIGHT, 0, 8))]
    oracle = asks("1x8", running=running)
    assert oracle.answer() == found()
    assert not oracle.is_legal(["x"])  # it goes anyway
    assert asks("2x8", running=running).answer() == found("y", lost=5)


def test_places_alone_or_quota_alone_may_be_what_is_lacking():
    tight = shares_of(queue("a", 8, WITHIN))
    half = [runs("x", 1, (LEFT, 0, 2)), runs("y", 5, (LEFT, 2, 6))]
    assert asks("1x8", running=half, shares=tight).answer() == found("x", "y", lost=6)  # quota
    assert asks("1x6", running=half, shares=tight).answer() == found("y", lost=5)
    assert asks("2x6", running=half).answer() == found("y", lost=5)  # places
    oracle = asks("1x6", running=half, shares=tight)
    assert (oracle.has_places([]), oracle.has_quota([]), oracle.is_enough(["x"])) == (True, False, False)


def test_devices_and_cores_are_freed_too():
    half = Running(Holder("x", "a", ((LOT, 500),), 0, 0), (BoundPod(LEFT, pods("1x0.5"), (0,)),), 3)
    others = [runs("y", 9, (LEFT, 1, 8)), runs("z", 99, (RIGHT, 0, 8))]
    assert asks("1x1", running=[half, *others]).answer() == found("x", lost=3)
    assert asks("2x0.5", running=[half, *others]).answer() == found("x", lost=3)
    assert asks("1x0.5", running=[half, *others]).answer() == found()
    assert asks("1x1", running=[half, *others], broken={LEFT: (0,)}).answer() == found("y", lost=9)
    greedy = Running(Holder("c", "a", ((LOT, 0),), 0, 0), (BoundPod(LEFT, pods("1x0", cpu=128)),), 2)
    assert asks("1x8", running=[greedy, others[1]]).answer() == found("c", lost=2)


# -- cohorts ---------------------------------------------------------------------------------------------------


def lab(rule: PreemptionRule, *, mine: int = 8, its: int = 4, third: int = 4):
    return shares_of(
        queue("a", mine, rule, cohort="all"),
        queue("b", its, PreemptionRule(), cohort="all"),
        queue("c", third, PreemptionRule(), cohort="all"),
    )


def test_what_was_lent_is_taken_only_as_far_as_the_borrower_is_over_its_quota():
    """b owns four and uses seven: 3, 1 and 3. Once the 1 and one 3 are gone it is below what it owns."""
    running = [
        runs("x", 1, (LEFT, 0, 3), queue="b"),
        runs("y", 2, (LEFT, 3, 4), queue="b"),
        runs("z", 3, (LEFT, 4, 7), queue="b"),
    ]
    oracle = asks("1x8", running=running, shares=lab(PreemptionRule(reclaim_in_cohort=ANY)))
    assert oracle.is_legal(["x", "y"])
    assert oracle.is_legal(["y", "z"])
    assert not oracle.is_legal(["x", "z"])
    assert not oracle.is_legal(["x", "y", "z"])
    assert oracle.answer() == found()  # the other node
    both = asks("2x4", running=[*running, runs("w", 9, (RIGHT, 0, 8), protected=True)],
                shares=lab(PreemptionRule(reclaim_in_cohort=ANY)))  # fmt: skip
    assert both.answer() == INFEASIBLE


def test_quota_that_others_borrowed_goes_before_the_own_queue():
    rule = PreemptionRule(within_queue=LOWER, reclaim_in_cohort=ANY)
    running = [runs("x", 1, (LEFT, 0, 8)), runs("y", 99, (RIGHT, 0, 8), queue="b", priority=50)]
    oracle = asks("1x8", running=running, shares=lab(rule, mine=16, its=0, third=0))
    assert oracle.level(["x"]) == (2, 0)
    assert oracle.level(["y"]) == (0, 50)
    assert oracle.answer() == found("y", lost=99, level=(0, 50))


def test_who_borrows_takes_nothing_from_others_unless_it_may():
    """a owns four and uses four already. To borrow it may preempt its own work, or others' up to a priority."""
    running = [runs("x", 9, (LEFT, 0, 4)), runs("y", 1, (RIGHT, 0, 8), (LEFT, 4, 8), queue="b", priority=2)]
    own = PreemptionRule(within_queue=LOWER, reclaim_in_cohort=ANY)
    shares = lab(own, mine=4, its=8, third=4)
    oracle = asks("1x4", running=running, shares=shares)
    assert oracle.answer() == found("x", lost=9)
    assert not oracle.is_legal(["y"])
    borrows = PreemptionRule(within_queue=LOWER, reclaim_in_cohort=ANY, borrow_in_cohort=LOWER)
    assert asks("1x4", running=running, shares=lab(borrows, mine=4, its=8)).answer() == found("y", lost=1, level=(1, 2))
    below = replace(borrows, borrow_priority_threshold=1)
    assert asks("1x4", running=running, shares=lab(below, mine=4, its=8)).answer() == found("x", lost=9)


def test_who_asks_for_more_than_its_queue_owns_preempts_for_quota_only_if_it_may_borrow():
    running = [runs("x", 9, (LEFT, 0, 8), queue="b"), runs("y", 9, (RIGHT, 0, 8), queue="b")]
    for rule, answer in (
        (PreemptionRule(reclaim_in_cohort=ANY), INFEASIBLE),
        (PreemptionRule(reclaim_in_cohort=ANY, borrow_in_cohort=LOWER), found("x", lost=9, level=(1, 0))),
    ):
        assert asks("1x8", running=running, shares=lab(rule, mine=4, its=8)).answer() == answer


def test_a_cohort_takes_back_what_other_cohorts_borrowed_from_it():
    rule = PreemptionRule(reclaim_in_cohort=ANY)
    queues = (
        queue("a", 4, rule, cohort="near"),
        queue("b", 4, PreemptionRule(), cohort="near"),
        queue("c", 0, PreemptionRule(), cohort="far"),
    )
    cohorts = (Cohort(name="near", parent="top"), Cohort(name="far", parent="top"))
    shares = shares_of(*queues, cohorts=cohorts)
    running = [runs("x", 9, (LEFT, 0, 8), queue="c", priority=50)]
    oracle = asks("1x8", running=running, shares=shares, nodes=NODES[:1])
    assert oracle.answer() == found("x", lost=9, level=(0, 50))


# -- fair sharing ----------------------------------------------------------------------------------------------


def test_a_share_is_taken_from_only_while_it_stays_the_higher_one():
    """All borrow from one cohort of sixteen: a asks for four, b uses twelve in pieces of four, c uses four."""
    rule = PreemptionRule(reclaim_in_cohort=ANY)
    none = tuple(queue(name, 0, rule, cohort="all") for name in "abc")
    owner = queue("o", 16, PreemptionRule(), cohort="all")
    running = [
        *(runs(f"b{i}", 1, (LEFT if i < 2 else RIGHT, 4 * (i % 2), 4 * (i % 2) + 4), queue="b") for i in range(3)),
        runs("c0", 1, (RIGHT, 4, 8), queue="c"),
    ]
    shares = shares_of(*none, owner, fair=FairSharing(strategies=(FairStrategy.FINAL_SHARE,)))
    oracle = asks("1x4", running=running, shares=shares)
    assert oracle.is_legal(["b0"])
    assert not oracle.is_legal(["c0"])  # then c would have less than a
    assert not oracle.is_legal(["b0", "b1", "b2"])
    assert not oracle.is_legal(["nobody"])


def test_who_stays_within_its_own_quota_takes_it_back_from_any_borrower():
    rule = PreemptionRule(reclaim_in_cohort=ANY)
    queues = (queue("a", 8, rule, cohort="all"), queue("b", 8, rule, cohort="all"))
    running = [runs("b0", 1, (LEFT, 0, 8), queue="b"), runs("b1", 1, (RIGHT, 0, 8), queue="b", priority=99)]
    oracle = asks("1x8", running=running, shares=shares_of(*queues, fair=FairSharing()))
    assert oracle.is_legal(["b1"])
    assert oracle.is_enough(["b1"])
