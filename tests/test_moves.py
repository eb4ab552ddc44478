"""Orders that preempt leave whoever runs where it is, but for those who are in the way of somebody who is to run."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from builders import Cluster, fleet, job
from preempting_world import Settled, holders, settle
from tidegate.engine import preempt
from tidegate.jit.registry import kernels_as
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Workload

HOUR_MS = 3_600_000
ORDERS = ["srtf", "srsf", "las"]
PLACEMENTS = ["tide", "bestfit", "firstfit", "spread", "packing"]


def lasts(hours: float, id_: str, text: str, **more) -> Workload:
    """A job that is thought to run for so long."""
    return msgspec.structs.replace(job(id_, text, **more), estimate_ms=int(hours * HOUR_MS))


def crowded(order: str, placement: str, nodes: int, each: int) -> Cluster:
    """Nodes of eight GPUs with so many jobs of one GPU running on each."""
    cluster = Cluster(fleet(f"{nodes}x h100x8"), order=order, placement=placement)
    cluster.submit(*(lasts(100 + at, f"s{at:03d}", "1x1", at=at) for at in range(8 * nodes)))
    assert settle(cluster, starts=True).rested
    on: Counter[str] = Counter()
    for name, ((node, _),) in sorted(cluster.places.items()):
        on[node] += 1
        if on[node] > each:
            cluster.tell(FactKind.WORKLOAD_FINISHED, name)
    assert settle(cluster).rested
    return cluster


def reasons(end: Settled) -> Counter[Reason]:
    """How often workloads were preempted for each reason."""
    told: Counter[Reason] = Counter()
    for each in end.steps:
        decisions = each.result.decisions
        told.update(Reason(code) for code in decisions.code[decisions.kind == DecisionKind.PREEMPT].tolist())
    return told


#: By attained service the wide job is the last of its level: it is to run only where the rule packs.
WIDE_RUNS = [(order, rule) for order in ("srtf", "srsf") for rule in PLACEMENTS]
WIDE_RUNS += [("las", "firstfit"), ("las", "packing")]


@pytest.mark.parametrize(("order", "placement"), WIDE_RUNS)
@pytest.mark.parametrize(("nodes", "each"), [(8, 7), (4, 6), (4, 1)])
def test_only_those_on_one_node_move_for_a_job_that_needs_a_node(order, placement, nodes, each):
    cluster = crowded(order, placement, nodes, each)
    before = dict(cluster.places)
    cluster.submit(lasts(0.1, "wide", "1x8", at=cluster.now_ms))
    end = settle(cluster, starts=True)
    assert end.rested
    assert reasons(end) == {Reason.PREEMPTED_TO_MOVE: each}
    assert len({before[name][0][0] for name in end.preempted}) == 1
    assert len(holders(cluster)) == nodes * each + 1


def test_those_move_who_lose_the_least_work():
    cluster = Cluster(fleet("2x h100x8"), order="srtf", placement="spread")
    cluster.submit(lasts(50, "old", "1x1"))
    settle(cluster, starts=True)
    cluster.step(HOUR_MS)
    cluster.submit(lasts(90, "young-0", "1x1", at=1), lasts(90, "young-1", "1x1", at=2))
    settle(cluster, starts=True)
    old_node, young_node = cluster.places["old"][0][0], cluster.places["young-0"][0][0]
    assert old_node != young_node
    cluster.submit(lasts(1, "wide", "1x8", at=cluster.now_ms))
    end = settle(cluster, starts=True)
    assert "old" not in end.preempted
    assert cluster.places["young-0"][0][0] == old_node
    assert cluster.places["wide"] == [(young_node, 255)]


def test_who_is_moved_is_told_for_whom():
    cluster = crowded("srtf", "firstfit", 3, 6)
    cluster.submit(lasts(0.1, "fits", "1x1", at=cluster.now_ms), lasts(0.2, "wide", "1x8", at=cluster.now_ms))
    cluster.step()
    decisions = cluster.result.decisions
    causes = decisions.cause[decisions.kind == DecisionKind.PREEMPT].tolist()
    assert {cluster.ids[cause] for cause in causes} == {"wide"}


@pytest.mark.parametrize("order", ["srtf", "srsf"])
def test_no_more_are_preempted_than_are_in_the_way(order):
    """Filled anew by this rule, nine small jobs would stand on every node, and no wide one would have room."""
    cluster = Cluster(fleet("8x h100x8"), order=order, placement="spread")
    cluster.submit(*(lasts(100 + at, f"wide-{at}", "1x8", at=at) for at in range(7)))
    settle(cluster, starts=True)
    cluster.submit(*(lasts(1, f"small-{at}", "1x1", at=at) for at in range(9)))
    end = settle(cluster, starts=True)
    assert reasons(end) == {Reason.PREEMPTED_BY_ORDER: 1}
    assert sum(name.startswith("small") for name in holders(cluster)) == 9


def test_nobody_is_preempted_for_nobody():
    """Filled anew by this rule, each small job would have a node of its own, and the wide one none."""
    cluster = Cluster(fleet("2x h100x8"), order="srtf", placement="spread")
    cluster.submit(lasts(100, "wide", "1x8"))
    settle(cluster, starts=True)
    cluster.submit(*(lasts(1 + at, f"small-{at}", "1x1", at=at) for at in range(3)))
    settle(cluster, starts=True)
    cluster.tell(FactKind.WORKLOAD_FINISHED, "small-0")
    assert settle(cluster).preempted == {}
    assert holders(cluster) == ["small-1", "small-2", "wide"]


def live(seed: int) -> tuple[list[object], int]:
    """Some life of a small cluster: what was decided, and how often somebody was moved."""
    r = Random(seed)
    nodes = fleet(
        *(f"{r.randint(1, 4)}x {model}x{r.choice([2, 4, 8])}" for model in ("h100", "a100")[: r.randint(1, 2)])
    )
    cluster = Cluster(nodes, placement=r.choice(PLACEMENTS), order=r.choice(ORDERS))
    sizes = ["1x1", "1x1", "1x2", "2x1", "1x4", "2x2", "1x8", "0.5", "2x4"]
    told: list[object] = []
    moved = 0
    for _ in range(8):
        for _ in range(r.randint(1, 4)):
            hours, name = r.randint(1, 50), f"j{len(cluster.numbers):03d}"
            cluster.submit(lasts(hours, name, r.choice(sizes), at=cluster.now_ms, cpu=r.choice([1, 1, 8])))
        end = settle(cluster, 100, starts=True)
        assert end.rested
        told += [each.result.decisions.workload.tolist() for each in end.steps]
        told += [each.result.decisions.node.tolist() for each in end.steps]
        moved += reasons(end)[Reason.PREEMPTED_TO_MOVE]
        for name in holders(cluster):
            if r.random() < 0.12:
                cluster.tell(FactKind.WORKLOAD_FINISHED, name)
    return told, moved


def test_the_whole_cluster_is_as_good_as_never_filled_anew(monkeypatch):
    anew, filled = [], preempt._moved

    def counted(*arguments):
        anew.append(arguments)
        return filled(*arguments)

    monkeypatch.setattr(preempt, "_moved", counted)
    assert sum(live(seed)[1] for seed in range(60)) > 20
    assert len(anew) <= 1


@pytest.mark.compiles
def test_compiled_kernels_clear_the_same_way_as_plain_ones():
    for seed in range(12):
        lives = []
        for compiled in (False, True):
            with kernels_as(compiled=compiled):
                lives.append(live(seed))
        assert lives[0] == lives[1]
