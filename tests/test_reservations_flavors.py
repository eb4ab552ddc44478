"""Places that are reserved in one of several flavors, and those who wait behind the one they are reserved for."""

from __future__ import annotations

from builders import Cluster, job, placed
from queue_twins import HOUR
from test_queues import admitted, queue, queue_cluster
from tidegate.engine.quota_reservations import holding_of
from tidegate.model.facts import FactKind
from tidegate.model.queues import Flavor
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import labels
from victim_cases import hosts

FLAVORS = tuple(Flavor(name=model, node_labels=labels({"pool": model})) for model in ("h100", "a100"))


def beside_small_jobs() -> Cluster:
    """A gang of four GPUs has quota of two flavors. Nodes of the first are too small; those of the second are full."""
    queues = [queue("a", 64, flavors=("h100", "a100")), queue("b", 64, flavors=("a100",))]
    cluster = queue_cluster(hosts("1x h100x2", "1x a100x4"), *queues, flavors=FLAVORS)
    cluster.submit(*(job(f"s{i}", "1x1", queue="b", at=i) for i in range(4)))
    cluster.step()
    cluster.submit(job("gang", "1x4", queue="a", at=cluster.now_ms))
    cluster.step()
    cluster.tell(FactKind.WORKLOAD_FINISHED, "s0")
    cluster.submit(job("s4", "1x1", queue="b", at=cluster.now_ms))
    cluster.step()
    cluster.step(2 * HOUR)
    assert cluster.state.reserved.top == 1
    return cluster


def test_places_reserved_in_one_flavor_are_not_charged_to_another():
    cluster = beside_small_jobs()
    for name in ("s1", "s2", "s3", "s4"):
        cluster.tell(FactKind.WORKLOAD_FINISHED, name)
    assert cluster.step() == [placed("gang"), admitted("gang")]
    assert [place for place, _ in cluster.places["gang"]] == ["a100-1-00"]
    row = cluster.state.workload_numbers.row(cluster.numbers["gang"])
    assert holding_of(cluster.state, row).claims == ((0, "gpu", "a100", 4000),)


def test_places_reserved_in_one_flavor_are_kept_while_another_is_tried():
    cluster = beside_small_jobs()
    for number in range(1, 4):
        cluster.tell(FactKind.WORKLOAD_FINISHED, f"s{number}")
        cluster.submit(job(f"late{number}", "1x1", queue="b", at=cluster.now_ms))
        said = cluster.step()
        assert placed(f"late{number}") not in said
        assert "gang" not in {one.id for one in said}  # it waits for what it waited for before


def test_who_is_reserved_for_starts_in_another_flavor_that_has_room_first():
    cluster = beside_small_jobs()
    node = hosts("1x h100x4")[0]
    cluster.add_node(node)
    assert cluster.step() == [placed("gang"), admitted("gang")]
    assert [place for place, _ in cluster.places["gang"]] == [node.name]


def test_who_is_behind_one_that_gets_a_reservation_is_tried_at_once():
    cluster = queue_cluster(hosts("1x h100x4"), queue("a", 8))
    cluster.submit(job("stays", "1x1", queue="a"))
    cluster.step()
    cluster.submit(job("gang", "1x4", queue="a", at=cluster.now_ms))
    cluster.step()
    cluster.submit(job("passes", "1x1", queue="a", at=cluster.now_ms))
    assert placed("passes") in cluster.step()
    cluster.now_ms += 2 * HOUR
    cluster.submit(job("needs none of it", "1x0", queue="a", at=cluster.now_ms))
    said = cluster.step()
    assert Reason.PLACES_RESERVED in {one.reason for one in said if one.id == "gang"}
    assert placed("needs none of it") in said
