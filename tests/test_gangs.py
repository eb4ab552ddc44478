"""Gangs of unlike pods start where they fit, whatever the order their pod sets are written in."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from builders import Cluster, fleet, job, placed, pods
from tidegate.jit.registry import kernels_as
from tidegate.model.decisions import DecisionKind
from tidegate.model.hardware import Node
from tidegate.model.work import PodSet
from victim_oracle import Room, can_place

PLACEMENTS = ["tide", "bestfit", "firstfit", "spread", "packing", "random"]


def drawn(seed: int) -> tuple[list[Node], tuple[PodSet, ...]]:
    """A small cluster of unlike nodes, and a gang of unlike pods that takes a good part of it."""
    r = Random(seed)
    sizes = [(r.randint(1, 2), r.choice(["h100", "a100"]), r.choice([1, 2, 4, 8])) for _ in range(r.randint(1, 3))]
    nodes = fleet(*(f"{count}x {model}x{gpus} cpu={r.choice([16, 32, 128])}" for count, model, gpus in sizes))
    sets = []
    for _ in range(r.choice([2, 2, 3, 4])):
        gpus = r.choice(["1", "2", "4", "8", "0.5", "0"])
        models = (r.choice(["h100", "a100"]),) if gpus != "0" and r.random() < 0.3 else ()
        sets.append(pods(f"{r.randint(1, 2)}x{gpus}", cpu=r.choice([1, 8, 15, 30]), models=models))
    return nodes, tuple(sets)


def starts(nodes: list[Node], sets: tuple[PodSet, ...], placement: str) -> bool:
    cluster = Cluster(nodes, placement=placement)
    cluster.submit(job("gang", *sets))
    return any(said.kind is DecisionKind.PLACE for said in cluster.step())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_as_good_as_every_gang_that_fits_an_empty_cluster_starts(placement):
    feasible = [case for case in map(drawn, range(1000)) if can_place([Room.of(node) for node in case[0]], case[1])]
    missed = sum(not starts(*case, placement) for case in feasible)
    assert len(feasible) > 200
    assert missed <= len(feasible) // 200


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_launcher_that_is_written_first_leaves_the_nodes_of_the_workers_alone(placement):
    cluster = Cluster(fleet("1x cpux0 cpu=256", "2x h100x8 cpu=128"), placement=placement)
    cluster.submit(job("gang", pods("1x0", cpu=8), pods("2x8", cpu=124)))
    assert cluster.step() == [placed("gang")]
    launcher, *workers = cluster.places["gang"]
    assert launcher == ("cpu-0-00", 0)
    assert sorted(workers) == [("h100-1-00", 255), ("h100-1-01", 255)]


def test_pods_keep_their_ordinals_where_the_last_set_goes_first():
    cluster = Cluster(fleet("1x h100x8", "1x h100x4"), placement="firstfit")
    cluster.submit(job("gang", "1x1", "1x0.5", "1x8"))
    assert cluster.step() == [placed("gang")]
    assert cluster.result.decisions.pod.tolist() == [0, 1, 2]
    assert cluster.places["gang"] == [("h100-1-00", 1), ("h100-1-00", 2), ("h100-0-00", 255)]
    assert cluster.state.pods.decision[:3].tolist() == cluster.result.decisions.id.tolist()


@pytest.mark.compiles
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_compiled_kernels_try_again_as_plain_ones_do(placement):
    for seed in range(100):
        nodes, sets = drawn(seed)
        places = []
        for compiled in (False, True):
            with kernels_as(compiled=compiled):
                cluster = Cluster(nodes, placement=placement)
                cluster.submit(job("gang", *sets))
                cluster.step()
                places.append(cluster.places)
        assert places[0] == places[1]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_that_claims_any_number_of_pods_takes_a_gang_that_asks_for_nothing(placement):
    [node] = fleet("1x cpux0")
    huge = tuple((name, 1 << 60) for name in ("cpu", "memory", "pods"))
    node = msgspec.structs.replace(node, shape=msgspec.structs.replace(node.shape, capacity=huge))
    with kernels_as(compiled=False):
        cluster = Cluster([node], placement=placement)
        cluster.submit(job("gang", pods("2x0", cpu=0, memory=0)))
        assert [said.kind for said in cluster.step()].count(DecisionKind.PLACE) == 1
