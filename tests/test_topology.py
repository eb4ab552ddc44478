"""Spots in the topology: rules one by one, and Kueue's own table."""

from __future__ import annotations

import pytest

from groves import FLAVOR, LEVELS, ONE, TABLE, ask, cases, grove, node, placed, spots, told
from kueue.topology_cases import numbers, run
from shared import shared
from tidegate.engine.topology.usage import assignments_fit
from tidegate.jit.registry import active
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.queues import TopologyRule
from tidegate.model.struct import labels, resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import NodeRequirement, NodeTerm, PreferredTerm, Toleration
from tidegate.state.topology import HOST
from topology_search import assignment_rows, cut_assignments

TWO_RACKS = ("b1/r1/x1=1", "b1/r1/x2=2", "b1/r2/x3=4", "b1/r2/x4=1", "b2/r1/x5=3")


@pytest.mark.parametrize("case", cases() or [None], ids=lambda case: case["_case"] if case else "none")
def test_kueues_table_is_decided_as_kueue_decides(case):
    shared(TABLE)
    assert run(case["case"], case["fixtures"]) is None
    assert numbers(case["case"], case["fixtures"]) is None


# -- the tree ---------------------------------------------------------------------------------------------------------


def test_domains_are_in_the_order_of_their_values_and_children_are_consecutive():
    topology = grove("b2/r1/x9=1", "b1/r2/x1=1", "b1/r10/x2=1", "b1/r10/x3=1").topology
    assert topology.values == [("b1", "r10", "x2"), ("b1", "r10", "x3"), ("b1", "r2", "x1"), ("b2", "r1", "x9")]
    assert topology.trees.level_start[0].tolist() == [0, 2, 5, 9]
    assert topology.domains.first_child[:5].tolist() == [2, 4, 5, 7, 8]
    assert topology.domains.children[:5].tolist() == [2, 1, 2, 1, 1]
    assert topology.domains.parent[:9].tolist() == [-1, -1, 0, 0, 1, 2, 2, 3, 4]


def test_nodes_that_are_down_closed_or_without_a_label_are_left_out():
    bare = node("b1/r1/x4=4")
    search = grove(
        node("b1/r1/x1=4", ready=False),
        node("b1/r1/x2=4", unschedulable=True),
        node("b1/r1/x3=4"),
        type(bare)(name="x4", shape=bare.shape, labels=labels({"block": "b1"}), allocatable=bare.allocatable),
    )
    assert search.topology.values == [("b1", "r1", "x3")]
    assert placed(grove(node("b1/r1/x1=1", ready=False)), ask("s", 1, required="host")) == "NO_DOMAINS"


def test_without_hosts_a_leaf_holds_all_its_nodes():
    search = grove("b1/r1/x1=2", "b1/r1/x2=3", "b1/r2/x3=4 taint=t", levels=LEVELS[:2])
    assert placed(search, ask("s", 5, required="rack")) == "s: b1/r1=5"
    assert placed(search, ask("s", 4, required="rack")) == "s: b1/r2=4"  # taints are the hosts' matter


def test_one_host_in_two_flavors_is_full_in_both():
    search = grove("b1/r1/x1=2", "b1/r1/x2=1", flavors=("f", "g"))
    search.add("g", spots("x1=2"), ONE)
    assert placed(search, ask("s", 1, required="host")) == "s: x2=1"
    assert placed(search, ask("s", 1, required="host"), ask("t", 1, required="host", flavor="g")) == "LACKS_ROOM"
    assert placed(search, ask("s", 2, required="host"), as_if_empty=True) == "s: x1=2"
    search.remove("g", spots("x1=2"), ONE)
    assert placed(search, ask("s", 2, required="host")) == "s: x1=2"


def test_what_others_hold_takes_room_even_in_an_empty_cluster():
    search = grove("b1/r1/x1=2", "b1/r1/x2=1")
    search.topology.set_unmanaged(UnmanagedPods(node="b1/r1/x1", charge=resources({"cpu": 1}), pods=1))
    assert placed(search, ask("s", 2, required="host"), as_if_empty=True) == "LACKS_ROOM"
    search.topology.set_unmanaged(UnmanagedPods(node="b1/r1/x1", charge=(), pods=0))
    search.topology.set_unmanaged(UnmanagedPods(node="nobody", charge=resources({"cpu": 1}), pods=1))
    assert placed(search, ask("s", 2, required="host")) == "s: x1=2"


# -- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ask("s", 3, required="rack"), "s: x1=1 x2=2"),  # the tightest rack of the three that fit
        (ask("s", 4, required="rack"), "s: x3=4"),
        (ask("s", 6, required="rack"), "LACKS_ROOM"),
        (ask("s", 6, required="block"), "s: x2=2 x3=4"),  # as few hosts as possible
        (ask("s", 6, preferred="rack"), "s: x2=2 x3=4"),
        (ask("s", 11, preferred="host"), "s: x1=1 x2=2 x3=4 x4=1 x5=3"),
        (ask("s", 12, preferred="host"), "LACKS_ROOM"),
        (ask("s", 2, unconstrained=True), "s: x2=2"),  # the fullest host that is enough
        (ask("s", 5, unconstrained=True), "s: x1=1 x2=2 x4=1 x5=1"),
        (ask("s", 4, "rack:2", required="block"), "s: x3=3 x4=1"),  # below the slices' level the fullest host first
        (ask("s", 6, "host:2", required="block"), "s: x2=2 x3=4"),
        (ask("s", 8, "host:2", required="block"), "LACKS_ROOM"),
        (ask("s", 3, "rack:2", required="block"), "UNEVEN"),
        (ask("s", 1, "block:1", required="rack"), "SLICE_ABOVE"),
        (ask("s", 4, "rack:4 host:3", required="block"), "SLICE_SIZE"),
        (ask("s", 4, "host:4 rack:2", required="block"), "SLICE_ABOVE"),
        (ask("s", 1, required="zone"), "LEVEL_UNKNOWN"),
        (ask("s", 0, required="rack"), "s: "),
        (ask("s", 1, required="rack", flavor="unknown"), "NO_DOMAINS"),
    ],
)
def test_where_pods_go(wanted, expected):
    assert placed(grove(*TWO_RACKS), wanted) == expected


def test_a_refusal_says_how_much_would_fit_and_why_nodes_were_not_taken():
    search = grove(*TWO_RACKS, "b2/r1/x6=9 taint=t", "b2/r1/x7=9 kind=old", "b2/r1/x8=0")
    found = search.find([ask("s", 9, required="rack", selector=labels({"kind": "any"}))])
    assert found.failure is TopologyFailure.LACKS_ROOM
    short = found.shortfall
    assert (short.fits, short.needed, short.size, short.level, short.pod_sets) == (5, 9, 1, "rack", ("s",))
    assert (short.nodes, short.tainted, short.unmatched, short.lacking) == (8, 1, 1, (("cpu", 1),))
    layers = grove(*TWO_RACKS).find([ask("s", 8, "rack:4 host:2", required="block")]).shortfall.layers
    assert layers == (("rack", 1, 2), (HOST, 3, 4))


def test_tolerations_and_terms_open_nodes():
    search = grove("b1/r1/x1=1 taint=t", "b1/r1/x2=1 kind=old")
    old = (NodeTerm(requirements=(NodeRequirement(key="kind", values=("old",)),)),)
    assert placed(search, ask("s", 1, required="host", terms=old)) == "s: x2=1"
    assert placed(search, ask("s", 2, required="rack", tolerations=(Toleration(key="t"),))) == "s: x1=1 x2=1"
    assert placed(search, ask("s", 2, required="rack")) == "LACKS_ROOM"


def test_liked_nodes_go_first_only_where_the_rule_says_so():
    liked = (PreferredTerm(weight=5, term=NodeTerm(requirements=(NodeRequirement(key="kind", values=("old",)),))),)
    trees = ("b1/r1/x1=1", "b1/r1/x2=4 kind=old")
    assert placed(grove(*trees), ask("s", 1, required="host", preferred_=liked)) == "s: x1=1"
    fond = grove(*trees, rule=TopologyRule(likes=True))
    assert placed(fond, ask("s", 1, required="host", preferred_=liked)) == "s: x2=1"


def test_leader_and_workers_share_a_domain_and_the_larger_set_are_the_workers():
    search = grove("b1/r1/x1=3", "b1/r2/x2=2", "b1/r2/x3=2")
    both = ask("w", 3, required="rack", group="g"), ask("l", 1, required="rack", group="g")
    assert placed(search, *both) == "l: x2=1; w: x2=1 x3=2"
    assert placed(search, *reversed(both)) == "l: x2=1; w: x2=1 x3=2"
    assert placed(search, ask("w", 4, required="rack", group="g"), both[1]) == "LACKS_LEADER"


def test_pod_sets_see_what_those_before_took_and_nothing_stays_taken():
    search = grove("b1/r1/x1=2", "b1/r1/x2=1")
    sets = [ask(name, 1, required="host") for name in "abcd"]
    before = search.topology.leaves.free.copy()
    assert placed(search, *sets[:3]) == "a: x2=1; b: x1=1; c: x1=1"
    found = search.find(sets)
    assert (found.failure, told(found.assignments)) == (TopologyFailure.LACKS_ROOM, "a: x2=1; b: x1=1; c: x1=1")
    assert found.shortfall.pod_sets == ("d",)
    assert (search.topology.leaves.free == before).all()
    assert (search.topology.leaves.empty == before).all()


def test_spots_found_before_are_checked_all_at_once():
    search = grove("b1/r1/x1=3")
    rows = assignment_rows(search.topology, FLAVOR, spots("x1=2 x1=2"), ONE)
    check, forest = active(assignments_fit), search.topology.arrays()
    assert (check(forest, rows, 0, 1), check(forest, rows, 0, 2)) == (True, False)
    assert not check(forest, assignment_rows(search.topology, FLAVOR, spots("gone=1"), ONE), 0, 1)
    assert search.topology.leaves.free[0].tolist() == [3, 110]


# -- nodes that failed, work that grows -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trees", "wanted", "failed", "expected"),
    [
        # The rest keeps its rack: x3 is in another one.
        ("b1/r1/x2=1 b1/r2/x3=1", ask("s", 2, required="rack", held=spots("x1=1 x2=1")), "x1", "LACKS_ROOM"),
        ("b1/r1/x2=2 b1/r2/x3=1", ask("s", 2, required="rack", held=spots("x1=1 x2=1")), "x1", "s: x2=2"),
        ("b1/r1/x2=1 b1/r2/x3=1", ask("s", 2, preferred="rack", held=spots("x1=1 x2=1")), "x1", "s: x2=1 x3=1"),
        # All of it was there: it may go anywhere.
        ("b1/r1/x2=1 b1/r2/x3=2", ask("s", 2, required="rack", held=spots("x1=2")), "x1", "s: x3=2"),
        # A slice is mended in the rack where it broke, though another has room.
        (
            "b1/r1/x1=9 b1/r2/x4=3 b1/r2/x5=4",
            ask("s", 4, "rack:2", required="block", held=spots("x1=2 x3=1 x4=1")),
            "x3",
            "s: x1=2 x4=2",
        ),
        # Of three layers the innermost broken one: pairs on hosts are whole, the four of a rack are not.
        (
            "b1/r1/x1=4 b1/r1/x2=8 b1/r2/x4=9 b1/r2/x5=1 b1/r2/x6=1",
            ask("s", 8, "block:8 rack:4 host:2", required="block", held=spots("x1=2 x2=2 x3=2 x4=2")),
            "x3",
            "s: x1=2 x2=2 x4=4",
        ),
        (
            "b1/r1/x1=4 b1/r1/x2=8 b1/r2/x4=3 b1/r2/x5=1 b1/r2/x6=1",
            ask("s", 8, "rack:4 host:2", required="block", held=spots("x1=2 x2=2 x3=2 x4=2")),
            "x3",
            "LACKS_ROOM",
        ),
        ("b1/r1/x2=9", ask("s", 3, required="rack", held=spots("x1=1 x2=1 x9=1")), "x1", "STALE"),
        ("b1/r1/x2=9", ask("s", 1, required="rack", held=spots("x2=1")), "x1", "s: x2=1"),
    ],
)
def test_only_what_was_on_the_failed_node_is_replaced(trees, wanted, failed, expected):
    search = grove(*trees.split())
    search.add(FLAVOR, [spot for spot in wanted.held if spot.values != (failed,)], ONE)
    found = search.replace([wanted], failed)
    assert (told(found.assignments) if found.failure is TopologyFailure.NONE else found.failure.name) == expected


def test_work_of_one_pod_stays_where_it_is():
    wanted = ask("s", 1, required="rack", held=spots("gone=1"))
    assert told(grove("b1/r1/x1=1").replace([wanted], "gone", stays=True).assignments) == "s: gone=1"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ask("s", 5, unconstrained=True, held=spots("x2=1 x3=1")), "s: x2=1 x3=4"),
        (ask("s", 2, unconstrained=True, held=spots("x2=1 x3=1")), "s: x2=1 x3=1"),
        (ask("s", 1, unconstrained=True, held=spots("x3=2 x2=1")), "s: x3=1"),
        (ask("s", 1, unconstrained=True, held=spots("gone=2 x2=1")), "s: x1=1"),
        (ask("s", 9, unconstrained=True, held=spots("x3=1")), "LACKS_ROOM"),
    ],
)
def test_elastic_work_keeps_its_spots(wanted, expected):
    rule = TopologyRule(elastic=True)
    assert placed(grove("b1/r1/x1=1", "b1/r1/x2=2", "b1/r2/x3=4", rule=rule), wanted) == expected


def test_an_elastic_leader_keeps_its_spot_and_a_new_one_is_searched():
    search = grove("b1/r1/x1=1", "b1/r1/x2=2", "b1/r2/x3=4", rule=TopologyRule(elastic=True))
    workers = ask("w", 4, unconstrained=True, group="g", held=spots("x3=2"))
    leader = ask("l", 1, unconstrained=True, group="g", held=spots("x3=1"))
    assert placed(search, workers, leader) == "l: x3=1; w: x2=2 x3=2"
    assert placed(search, workers, leader._replace(held=())).endswith("w: x2=2 x3=2")
    assert placed(search, workers._replace(pods=2), leader._replace(held=())) == "l: x3=1; w: x3=2"
    assert cut_assignments(spots("a=2 b=2"), 3) == spots("a=2 b=1")


def test_balanced_placement_spreads_evenly():
    trees = ("b1/r1/x1=4", "b1/r2/x2=4", "b1/r3/x3=2")
    assert placed(grove(*trees), ask("s", 6, preferred="rack")) == "s: x1=4 x3=2"
    assert placed(grove(*trees, rule=TopologyRule(balanced=True)), ask("s", 6, preferred="rack")) == "s: x1=3 x2=3"
