"""Reservations through the twin: what others reserve is no room, places are taken, and chosen again where they fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from builders import Cluster, fleet, job
from queue_twins import HOUR, planned, play, queue, share_policy, simulate
from test_preemption_twin import CYCLE_MS, MINUTE, WITHIN, preemptions, stream, waited_ms
from test_queues import queue_cluster
from tidegate.model.facts import FactKind
from tidegate.model.hardware import TopologyLevels
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Flavor
from tidegate.model.simulation import PlannedWorkload, TwinOptions
from tidegate.model.work import TopologyRequest, WorkKind
from tidegate.state.topology import HOST
from victim_cases import hosts, with_work


def test_nobody_is_evicted_at_places_that_are_reserved_for_one_ahead():
    """Whatever the one GPU of `mid` is taken from, it is reserved for the gang, which waits for work that stays."""
    stays = planned("stays", "1x1", hours=30, preemptible=False)
    low = [planned(f"low{i:02d}", "1x1", hours=30) for i in range(15)]
    gang = planned("gang", "2x8", at=0.1, priority=100)
    mid = planned("mid", "1x1", at=2, priority=50)
    run = simulate([stays, *low, gang, mid], [queue("a", 64, preemption=WITHIN)], fleet("2x h100x8"))
    assert preemptions(run) == 0
    assert run.finished["low00"] == 30


def test_room_of_a_gang_that_broke_and_goes_first_again_is_not_taken_for_free():
    """A pod of `prod` fails time and again: nobody is evicted for `mid`, which could not keep the room anyway."""
    prod = planned("prod", "2x4", hours=40, priority=100, fails_every_ms=10 * HOUR, checkpoint_every_ms=10 * MINUTE)
    low = [planned(f"low{i}", "1x1", hours=60) for i in range(8)]
    mid = planned("mid", "2x8", at=0.02, priority=50)
    options = {"grace_ms": 5 * MINUTE, "cycle_ms": CYCLE_MS}
    run = simulate([prod, *low, mid], [queue("a", 16, preemption=WITHIN)], fleet("2x h100x8"), **options)
    assert run.column("evictions")["prod"] > 0
    assert preemptions(run) == 8
    assert waited_ms(run, "prod") == 0


@pytest.mark.parametrize("queues", [[queue("a", 24)], []])
def test_reserved_places_are_taken_where_the_placement_rule_would_choose_others(queues):
    """The rule spreads: it gives the small pod the large node, and finds no room for the other on any try."""
    low = [planned(f"low{i:03d}", "1x1", at=i / 6) for i in range(200)]
    gang = planned("gang", "1x1", "1x8", at=1)
    policy = share_policy(*queues, cycle_ms=CYCLE_MS) if queues else Policy(cycle_ms=CYCLE_MS)
    policy = replace(policy, placement=PlacementRule(kind=PlacementKind.SPREAD))
    run = play([*low, gang], policy, fleet("1x h100x8", "1x h100x4"))
    assert waited_ms(run, "gang") < 3 * HOUR


def test_nothing_is_reserved_beside_a_server_that_does_not_end_where_there_is_another_node():
    server = planned("server", "1x4", hours=300, preemptible=False)
    server = replace(server, workload=with_work(server.workload, kind=WorkKind.INFERENCE))
    low = [planned(f"low{i:04d}", "1x1", at=0.01 + i * 128 / 3600) for i in range(600)]
    gang = planned("gang", "1x8", at=2)
    run = play([server, *low, gang], Policy(cycle_ms=CYCLE_MS), fleet("4x h100x8"))
    assert waited_ms(run, "gang") < 3 * HOUR


def test_work_that_fits_nowhere_does_not_keep_others_from_a_reservation():
    low = [planned(f"low{i:03d}", "1x1", at=i * 108 / 3600) for i in range(400)]
    gang = planned("gang", "2x8", at=2)
    alone = play([*low, gang], Policy(cycle_ms=CYCLE_MS), fleet("4x h100x8"))
    beside = play([planned("huge", "1x16"), *low, gang], Policy(cycle_ms=CYCLE_MS), fleet("4x h100x8"))
    assert waited_ms(beside, "gang") == waited_ms(alone, "gang") < 3 * HOUR


def test_who_loses_a_domain_to_another_tree_is_tried_again_at_once():
    """Two queues without a cohort choose the same of two empty nodes in one cycle."""
    work = [planned("a", "1x3", hours=10), planned("b", "1x3", queue="b")]
    asks = TopologyRequest(required=HOST)
    work = [
        replace(
            each, workload=with_work(each.workload, pod_sets=(replace(each.workload.work.pod_sets[0], topology=asks),))
        )
        for each in work
    ]
    net = TopologyLevels(name="net", labels=(HOST,))
    queues = [queue("a", 8), queue("b", 8)]
    run = simulate(work, queues, hosts("2x h100x4"), flavors=(Flavor(name="any", topology="net"),), topologies=(net,))
    assert waited_ms(run, "b") == 0


@pytest.mark.parametrize("with_queues", [False, True])
def test_places_with_a_broken_device_are_chosen_again(with_queues):
    cluster = queue_cluster(fleet("1x h100x8"), queue("default", 64)) if with_queues else Cluster(fleet("1x h100x8"))
    cluster.submit(job("old", "1x2"), job("older", "1x2", at=1), *(job(f"s{i}", "1x1", at=2) for i in range(4)))
    cluster.step()
    cluster.submit(job("gang", "1x4", at=cluster.now_ms))
    cluster.step()
    for name in ("old", "older", *(f"s{i}" for i in range(4))):
        cluster.tell(FactKind.POD_STARTED, name)
    cluster.step()
    cluster.tell(FactKind.WORKLOAD_FINISHED, "s0")
    cluster.submit(job("s4", "1x1", at=cluster.now_ms))
    cluster.step()
    cluster.step(2 * HOUR)
    [devices] = cluster.state.reserved.devices[: cluster.state.reserved.top].tolist()
    broken = next(device for device in range(8) if devices >> device & 1)
    cluster.tell(FactKind.DEVICE_FAILED, "h100-0-00", arg=broken)
    cluster.step(MINUTE)
    [devices] = cluster.state.reserved.devices[: cluster.state.reserved.top].tolist()
    assert devices >> broken & 1 == 0


def test_places_are_chosen_again_when_others_are_free_sooner():
    """The gang waits at the younger of two jobs, which runs for long; the older ends, and half of its node is taken."""
    work = [
        planned("old", "1x4", hours=5),
        planned("young", "1x8", at=0.1, hours=100),
        planned("beside", "1x4", hours=8),
        planned("gang", "1x8", at=1),
        *(planned(f"low{i:03d}", "1x1", at=1.1 + i / 4, hours=2) for i in range(80)),
    ]
    run = play(work, Policy(cycle_ms=CYCLE_MS), fleet("2x h100x8"), TwinOptions())
    assert waited_ms(run, "gang") < 24 * HOUR


@pytest.mark.parametrize(("queues", "seed"), [([], 0), ([queue("a", 24)], 2)])
def test_places_are_not_chosen_again_so_often_that_none_of_them_is_ever_free(queues, seed):
    """Jobs of two to six hours come without end. A choice in vain lasts half as long as the next: 18 hours at most."""
    low = stream(seed, 24, load=1.1, until_h=40, hours=(2, 6))
    gang = planned("gang", "2x4", at=10, priority=100)
    policy = share_policy(*queues, cycle_ms=MINUTE) if queues else Policy(cycle_ms=MINUTE)
    policy = replace(policy, placement=PlacementRule(kind=PlacementKind.SPREAD))
    run = play([*low, gang], policy, fleet("6x h100x4"))
    assert waited_ms(run, "gang") < 18 * HOUR


def of_model(work: PlannedWorkload, model: str) -> PlannedWorkload:
    sets = [replace(each, gpu=replace(each.gpu, models=(model,))) for each in work.workload.work.pod_sets]
    return replace(work, workload=with_work(work.workload, pod_sets=tuple(sets)))


@pytest.mark.parametrize("queues", [[], [queue("a", 64)]])
def test_one_that_waits_at_work_that_never_ends_does_not_keep_others_from_a_reservation(queues):
    server = of_model(planned("server", "1x4", hours=300), "a100")
    low = [of_model(planned(f"low{i:03d}", "1x1", at=i / 8), "h100") for i in range(80)]
    waits, gang = of_model(planned("waits", "1x8", at=1), "a100"), of_model(planned("gang", "1x8", at=1.1), "h100")
    policy = share_policy(*queues, cycle_ms=CYCLE_MS) if queues else Policy(cycle_ms=CYCLE_MS)
    run = play([server, *low, waits, gang], policy, fleet("1x h100x8", "1x a100x8"))
    assert waited_ms(run, "gang") < 4 * HOUR


@pytest.mark.parametrize(
    ("own", "others", "stream_in"),
    [
        (4, {"b": 4}, "a"),  # small jobs of its own queue, within what that owns
        (0, {"b": 0, "owner": 8}, "b"),  # small jobs of another queue, which borrows too
        (4, {"b": 12}, "a"),  # quota is free at all times, and a node never is
    ],
)
def test_a_gang_that_borrows_does_not_starve_behind_small_jobs(own, others, stream_in):
    """Nobody may be preempted for quota that it borrows: it is kept for the gang once that was passed over for long."""
    low = [planned(f"low{i:03d}", "1x1", at=i / 8, queue=stream_in) for i in range(80)]
    gang = planned("gang", "1x8", at=1)
    queues = [queue("a", own, cohort="all"), *(queue(name, gpus, cohort="all") for name, gpus in others.items())]
    run = simulate([*low, gang], queues, fleet("1x h100x8"), cycle_ms=CYCLE_MS)
    assert waited_ms(run, "gang") < 3 * HOUR


def test_a_queue_does_not_stand_still_for_a_gang_that_borrows_what_its_owner_uses():
    server = planned("server", "1x4", hours=100, queue="b")
    low = [planned(f"low{i:02d}", "1x1", at=i / 2) for i in range(40)]
    gang = planned("gang", "1x8", at=1)
    queues = [queue("a", 4, cohort="all"), queue("b", 4, cohort="all")]
    run = simulate([server, *low, gang], queues, fleet("1x h100x8"), cycle_ms=CYCLE_MS)
    assert {waited_ms(run, each.workload.id) for each in low} == {0}
    assert run.finished["gang"] == 101
