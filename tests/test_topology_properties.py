"""Spots in the topology, as properties: brute force on small trees, compiled against plain kernels, a real network."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groves import FLAVOR, LEVELS, ONE, TABLE, ask, cases, grove, grown, hosts
from kueue.topology_cases import run
from shared import shared
from tidegate.jit.registry import kernels_as
from tidegate.model.queues import TopologyRule
from tidegate.model.struct import resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import SpreadRule, TopologyRequest

relaxed = settings(deadline=None)


def sums(room: dict, level: int) -> dict[tuple, int]:
    """Pods that fit in each domain of a level."""
    found: dict[tuple, int] = {}
    for where, fits in room.items():
        found[where[: level + 1]] = found.get(where[: level + 1], 0) + fits
    return found


def fewest(parts: list[int], needed: int) -> int:
    """The fewest parts that add up to enough: every choice is tried."""
    for count in range(len(parts) + 1):
        if any(sum(chosen) >= needed for chosen in itertools.combinations(parts, count)):
            return count
    return -1


def counts_of(found, room: dict, name: str = "s") -> dict[tuple, int]:
    full = {where[-1]: where for where in room}
    return {full[spot.values[0]]: spot.count for spot in found.assignments[name]}


@relaxed
@given(hosts(), st.integers(1, 12), st.integers(0, 2))
def test_a_required_level_takes_the_tightest_domain_and_the_fewest_parts_of_it(room, pods, level):
    found = grown(room).find([ask("s", pods, required=LEVELS[level])])
    fitting = [fits for fits in sums(room, level).values() if fits >= pods]
    if not fitting:
        assert found.failure is TopologyFailure.LACKS_ROOM
        assert found.shortfall.fits == max(sums(room, level).values())
        return
    counts = counts_of(found, room)
    chosen = {where[: level + 1] for where in counts}
    assert sum(counts.values()) == pods
    assert all(count <= room[where] for where, count in counts.items())
    assert [sums(room, level)[domain] for domain in chosen] == [min(fitting)]
    if level < 2:
        parts = [fits for part, fits in sums(room, level + 1).items() if part[:-1] in chosen]
        assert len({where[: level + 2] for where in counts}) == fewest(parts, pods)


@relaxed
@given(hosts(), st.integers(1, 12), st.integers(0, 2))
def test_a_preferred_level_widens_only_as_far_as_needed(room, pods, level):
    found = grown(room).find([ask("s", pods, preferred=LEVELS[level])])
    if sum(room.values()) < pods:
        assert (found.failure, found.shortfall.fits) == (TopologyFailure.LACKS_ROOM, sum(room.values()))
        return
    counts = counts_of(found, room)
    assert sum(counts.values()) == pods
    assert all(count <= room[where] for where, count in counts.items())
    narrowest = max((at for at in range(level + 1) if max(sums(room, at).values()) >= pods), default=-1)
    if narrowest >= 0:
        assert len({where[: narrowest + 1] for where in counts}) == 1
    else:
        assert len({where[:1] for where in counts}) == fewest(list(sums(room, 0).values()), pods)


@relaxed
@given(hosts(), st.integers(1, 12))
def test_pods_that_may_go_anywhere_fit_if_there_is_room_and_take_the_fullest_host_that_is_enough(room, pods):
    found = grown(room).find([ask("s", pods, unconstrained=True)])
    assert (found.failure is TopologyFailure.NONE) == (sum(room.values()) >= pods)
    enough = [fits for fits in room.values() if fits >= pods]
    if enough:
        assert [room[where] for where in counts_of(found, room)] == [min(enough)]


@relaxed
@given(hosts(12), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2))
def test_slices_stay_whole(room, slices, size, level, slice_level):
    if slice_level < level:
        level, slice_level = slice_level, level
    found = grown(room).find([ask("s", slices * size, f"{('block', 'rack', 'host')[slice_level]}:{size}",
                                  required=LEVELS[level])])  # fmt: skip
    fits: dict[tuple, int] = {}
    for domain, pods in sums(room, slice_level).items():
        fits[domain[: level + 1]] = fits.get(domain[: level + 1], 0) + pods // size
    assert (found.failure is TopologyFailure.NONE) == (max(fits.values()) >= slices)
    if found.failure is TopologyFailure.NONE:
        counts = counts_of(found, room)
        assert all(pods % size == 0 for pods in sums(counts, slice_level).values())
        assert all(count <= room[where] for where, count in counts.items())
        assert min(held for held in fits.values() if held >= slices) == fits[next(iter(counts))[: level + 1]]


@st.composite
def questions(draw):
    """One or two pod sets, or workers and a leader, of any kind."""
    made = []
    for number in range(draw(st.integers(1, 2))):
        layers = draw(st.sampled_from(["", "", "rack:2", "host:2", "block:4 rack:2", "rack:4 host:2", "rack:3 host:1"]))
        size = int(layers.split()[0].split(":")[1]) if layers else 1
        kind = draw(st.sampled_from([{"required": "block"}, {"preferred": "block"}, {"unconstrained": True}] + (
            [] if layers.startswith("block") else [{"required": "rack"}, {"preferred": "rack"}])))  # fmt: skip
        amounts = resources({"cpu": draw(st.integers(1, 2)), "gpu": draw(st.integers(0, 1))})
        group = {"group": f"g{number}"} if draw(st.booleans()) else {}
        made.append(ask(f"s{number}", size * draw(st.integers(1, 4)), layers, amounts, **kind, **group))
        if group:
            made.append(ask(f"l{number}", 1, layers, ONE, **kind, **group))
    return made


forests = st.lists(
    st.builds(
        lambda b, r, cpu, gpu, taint: (f"b{b}/r{r}/", f"={cpu} gpu={gpu}{' taint=t' if taint else ''}"),
        st.integers(0, 1), st.integers(0, 2), st.integers(0, 6), st.integers(0, 4), st.sampled_from([0] * 9 + [1]),
    ),
    min_size=1,
    max_size=10,
)  # fmt: skip
rules = st.builds(TopologyRule, mixed=st.booleans(), balanced=st.booleans())


def nodes_of(forest) -> list[str]:
    return [f"{where}x{number}{has}" for number, (where, has) in enumerate(forest)]


@relaxed
@given(forests, questions(), rules)
def test_no_host_is_given_more_than_it_has_and_every_pod_has_a_spot(forest, wanted, rule):
    search = grove(*nodes_of(forest), rule=rule)
    found = search.find(wanted)
    before = search.topology.leaves.free.copy()
    assert found.failure is not TopologyFailure.UNSETTLED
    assert found == search.find(wanted)
    assert (search.topology.leaves.free == before).all()
    for one in wanted:
        if one.pod_set.name in found.assignments:
            held = found.assignments[one.pod_set.name]
            assert sum(spot.count for spot in held) == one.pods
            assert list(held) == sorted(held, key=lambda spot: search.topology.leaf_of(0, spot.values))
            search.add(FLAVOR, held, one.amounts)
    assert (search.topology.leaves.free[: len(forest)] >= 0).all()
    for one in wanted:
        search.remove(FLAVOR, found.assignments.get(one.pod_set.name, ()), one.amounts)
    assert (search.topology.leaves.free == before).all()


@relaxed
@given(forests, questions(), rules, st.randoms())
def test_the_order_of_nodes_changes_nothing(forest, wanted, rule, random):
    nodes = nodes_of(forest)
    found = grove(*nodes, rule=rule).find(wanted)
    random.shuffle(nodes)
    assert grove(*nodes, rule=rule).find(wanted) == found


@relaxed
@given(hosts(), st.integers(1, 12), st.sampled_from(["required", "preferred"]), st.integers(0, 2), st.integers(1, 4))
def test_a_node_more_never_costs_the_place(room, pods, word, level, more):
    wanted = [ask("s", pods, **{word: LEVELS[level]})]
    if grown(room).find(wanted).failure is TopologyFailure.NONE:
        assert grown({**room, ("b0", "r0", "new"): more}).find(wanted).failure is TopologyFailure.NONE


@pytest.mark.compiles
@settings(max_examples=60, deadline=None)
@given(forests, questions(), rules)
def test_compiled_and_plain_kernels_find_the_same_spots(forest, wanted, rule):
    search = grove(*nodes_of(forest), rule=rule)
    plain = search.find(wanted)
    with kernels_as(compiled=True):
        assert search.find(wanted) == plain


@pytest.mark.compiles
def test_kueues_table_is_decided_the_same_by_compiled_kernels():
    shared(TABLE)
    with kernels_as(compiled=True):
        assert [run(case["case"], case["fixtures"]) for case in cases()] == [None] * len(cases())


def test_gangs_in_a_real_network_stay_below_one_switch_where_they_fit():
    path = shared("traces/topology/topo.csv")
    import topology as bench  # the script in bench/

    network = bench.network(path)
    assert (network.leaves.top, network.trees.levels[0]) == (847, 4)
    sizes = np.bincount(network.domains.parent[network.leaves.domain[:847]])
    search = bench.TopologySearch(network)
    for name, gang in bench.GANGS.items():
        found = search.find(bench.wanted(gang))
        assert found.failure is TopologyFailure.NONE, name
        assert sum(spot.count for spot in found.assignments["workers"]) == gang.pods
    whole = search.find(bench.wanted(bench.GANGS["one switch required, 8 nodes"])).assignments["workers"]
    assert len(bench.switches(network, whole)) == 1
    assert sizes.max() == 8


@relaxed
@given(hosts(12), st.integers(1, 8), st.integers(0, 2), st.integers(1, 4), st.sampled_from(["", "block", "rack"]))
def test_pods_that_are_spread_stay_below_the_cap_and_fit_whenever_caps_leave_room(room, pods, level, most, preferred):
    request = TopologyRequest(preferred=preferred, spread=SpreadRule(level=LEVELS[level], most=most))
    wanted = ask("s", pods)
    wanted = wanted._replace(pod_set=msgspec.structs.replace(wanted.pod_set, topology=request), is_implied=False)
    found = grown(room).find([wanted])
    capped = sum(min(fits, most) for fits in sums(room, level).values())
    assert (found.failure is TopologyFailure.NONE) == (capped >= pods)
    if found.failure is TopologyFailure.NONE:
        counts = counts_of(found, room)
        assert sum(counts.values()) == pods
        assert all(count <= room[where] for where, count in counts.items())
        assert max(sums(counts, level).values()) <= most
