"""How long a search for spots takes: gangs in the 847-host network of Alibaba's Lingjun, and making room on full nodes.

    python bench/topology.py --data ../shared/traces/topology --json
    python bench/topology.py --plain --json

The network has three levels of switches above the hosts, here with eight GPUs each. Times are medians of one search,
through Python and in the kernel alone. The last scenario has the setting of Kueue's BenchmarkSchedulerTAS (1,000 full
nodes, 30 resources, 200 pods that need preemption): victims leave in order of priority until the pods fit, then those
that were not needed come back. Kueue publishes 296 ms for it: a whole cycle, with quota and snapshot, where ours is
the topology's part alone. The two are stated beside each other; they are not an equal measurement.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.engine.topology.query import PodSetQuery, question_of
from tidegate.engine.topology.search import find_gang
from tidegate.engine.topology.search_buffers import (
    ASSIGNMENT_COLUMNS,
    MIXED,
    TopologyExtent,
    empty_answer,
    empty_search,
)
from tidegate.engine.topology.usage import move_assignments
from tidegate.jit.registry import active, kernels_as
from tidegate.model.arrays import I64
from tidegate.model.hardware import Node, NodeShape, TopologyLevels
from tidegate.model.observed_status import DomainAssignment
from tidegate.model.queues import Flavor
from tidegate.model.struct import Resources, labels, resources
from tidegate.model.topology_failures import TopologyFailure
from tidegate.model.work import PodSet, SliceRule, TopologyRequest
from tidegate.state.topology import HOST, Topology, build
from topology_search import TopologySearch, assignment_rows

FLAVOR = "gpu"
SWITCHES = ("DSW", "PSW", "ASW")
POD, LARGE = resources({"cpu": 8_000, "gpu": 1}), resources({"cpu": 96_000, "gpu": 8})
KUEUE_PUBLISHED_MS = 296
SEED = 7


class Ask(NamedTuple):
    """A gang to place."""

    pods: int
    amounts: Resources
    topology: TopologyRequest
    leader: bool = False


GANGS = {
    "one switch required, 8 nodes": Ask(8, LARGE, TopologyRequest(required="ASW")),
    "one pod of switches required, 64 nodes": Ask(64, LARGE, TopologyRequest(required="PSW")),
    "one switch preferred, 64 nodes": Ask(64, LARGE, TopologyRequest(preferred="ASW")),
    "one switch preferred, 200 GPUs": Ask(200, POD, TopologyRequest(preferred="ASW")),
    "anywhere, 200 GPUs": Ask(200, POD, TopologyRequest(unconstrained=True)),
    "slices of 16 GPUs a switch, 256 GPUs": Ask(
        256, POD, TopologyRequest(preferred="PSW", slices=(SliceRule(level="ASW", size=16),))
    ),
    "leader and 63 nodes, pod of switches required": Ask(63, LARGE, TopologyRequest(required="PSW", group="g"), True),
}


def network(path: Path) -> Topology:
    """The hosts of the trace, each with eight GPUs."""
    shape = NodeShape(name="host")
    allocatable = resources({"cpu": 96_000, "memory": 2**40, "gpu": 8, "pods": 110})
    with path.open() as file:
        rows = list(csv.DictReader(file))
    nodes = {
        place: Node(
            name=row["ip"],
            shape=shape,
            labels=labels({HOST: row["ip"], **{switch: row[switch] for switch in SWITCHES}}),
            allocatable=allocatable,
        )
        for place, row in enumerate(rows)
    }
    levels = TopologyLevels(name="clos", labels=(*SWITCHES, HOST))
    return build(nodes, [Flavor(name=FLAVOR, topology="clos")], [levels])


def fill(search: TopologySearch, share: float) -> None:
    """Take this share of the GPUs, by hosts at random: most of them whole, some in part."""
    rng = np.random.default_rng(SEED)
    for values in search.topology.values:
        if rng.random() < share:
            search.add(
                FLAVOR,
                [DomainAssignment(values=values, count=8 if rng.random() < 0.8 else int(rng.integers(1, 8)))],
                POD,
            )


def wanted(ask: Ask) -> list[PodSetQuery]:
    sets = [PodSetQuery(PodSet(name="workers", count=ask.pods, topology=ask.topology), FLAVOR, ask.pods, ask.amounts)]
    if ask.leader:
        sets.append(PodSetQuery(PodSet(name="leader", topology=ask.topology), FLAVOR, 1, ask.amounts))
    return sets


def median_us(run: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return round(statistics.median(times) * 1e6, 1)


def measure(topology: Topology, share: float, repeat: int) -> Iterator[dict[str, Any]]:
    search = TopologySearch(topology.copy())
    fill(search, share)
    for name, ask in GANGS.items():
        sets = wanted(ask)
        found = search.find(sets)
        spots = found.assignments.get("workers", ())
        yield {
            "gang": name,
            "taken_share": share,
            "outcome": found.failure.name,
            "hosts": len(spots),
            "switches": len(switches(search.topology, spots)),
            "search_us": median_us(lambda sets=sets: search.find(sets), repeat),  # type: ignore[misc]
            "kernel_us": kernel_us(search.topology, sets, repeat),
        }


def switches(topology: Topology, spots: tuple[DomainAssignment, ...]) -> set[tuple[str, ...]]:
    """The switches that hosts hang on."""
    return {topology.values[topology.leaf_of(0, spot.values)][:-1] for spot in spots}


def kernel_us(topology: Topology, sets: list[PodSetQuery], repeat: int) -> float:
    """The kernel's own time: a call with the question less a call without one."""
    row = question_of(topology, sets[0], sets[1] if len(sets) > 1 else None)
    call = median_us(asker(topology, row[None, :][:0]), repeat)
    whole = median_us(asker(topology, row[None, :]), repeat)
    return round(max(whole - call, 0.0), 1)


def asker(topology: Topology, questions: I64) -> Callable[[], int]:
    """Something that asks the kernel, as a cycle would: everything is ready."""
    levels, kinds = topology.trees.axes["level"], len(topology.resources)
    extent = TopologyExtent(topology.domains.top, topology.leaves.top, levels, kinds, 4096)
    search, answer, forest = empty_search(extent), empty_answer(extent), topology.arrays()
    held, find = np.zeros((0, ASSIGNMENT_COLUMNS), np.int64), active(find_gang)
    return lambda: find(forest, search, questions, held, MIXED, answer)


class Full(NamedTuple):
    """Nodes that are full, the spots of who is there, lowest priority first, and a question that finds no room."""

    topology: Topology
    victims: list[I64]
    question: I64


def full_nodes(nodes: int, groups: int, kinds: int) -> Full:
    """Nodes filled with work of many sizes, and pods of half a node each that want to be in one of the groups."""
    names = [f"example.com/res-{number:02d}" for number in range(2, kinds)]
    a_block = math.isqrt(nodes)
    made, hosts = {}, []
    for place in range(nodes):
        block, rest = divmod(place + 1, a_block)
        host = f"node-{block}-{rest}"
        amounts = {"cpu": 10_000, "memory": 100 * 2**30, "pods": 110, **dict.fromkeys(names, 10)}
        marks = labels({HOST: host, "block": f"b-{block}", "node-group": f"group-{block % groups + 1}"})
        made[place] = Node(name=host, shape=NodeShape(name=""), labels=marks, allocatable=resources(amounts))
        hosts.append(host)
    levels = TopologyLevels(name="blocks", labels=("block", HOST))
    topology = build(made, [Flavor(name=FLAVOR, topology="blocks")], [levels])
    victims = [assignment_rows(topology, FLAVOR, spots, amounts) for spots, amounts in work_that_fills(hosts, names)]
    for rows in victims:
        active(move_assignments)(topology.arrays(), rows, 0, len(rows), -1)
    asked = resources({"cpu": 5_000, "memory": 50 * 2**30, **dict.fromkeys(names, 5)})
    request = TopologyRequest(unconstrained=True)
    pod_set = PodSet(name="main", selector=labels({"node-group": "group-1"}), topology=request)
    return Full(topology, victims, question_of(topology, PodSetQuery(pod_set, FLAVOR, 200, asked)))


def work_that_fills(hosts: list[str], names: list[str]) -> Iterator[tuple[list[DomainAssignment], Resources]]:
    """Work of many sizes, each put on the first nodes where it fits, until one does not."""
    left = [[10, 100] for _ in hosts]
    for number in range(1, 1 << 20):
        cpu, memory, pods = number % 10 + 1, number % 100 + 1, number * 10 % math.isqrt(len(hosts)) + 1
        spots: dict[str, int] = {}
        for host, free in zip(hosts, left, strict=True):
            fits = min(free[0] // cpu, free[1] // memory, pods)
            if fits:
                free[0], free[1], pods = free[0] - fits * cpu, free[1] - fits * memory, pods - fits
                spots[host] = fits
            if not pods:
                break
        if pods:
            return
        amounts = resources({"cpu": cpu * 1000, "memory": memory * 2**30, **dict.fromkeys(names, cpu)})
        yield [DomainAssignment(values=(host,), count=count) for host, count in spots.items()], amounts


def make_room(full: Full, fits: Callable[[], bool]) -> tuple[int, int]:
    """Send work away until the pods fit, then take back who was not needed; return the searches and the victims."""
    forest, gone, searches = full.topology.arrays(), [], 1
    for rows in full.victims:
        if fits():
            break
        active(move_assignments)(forest, rows, 0, len(rows), 1)
        gone.append(rows)
        searches += 1
    needed = []
    for rows in reversed(gone):
        active(move_assignments)(forest, rows, 0, len(rows), -1)
        searches += 1
        if not fits():
            active(move_assignments)(forest, rows, 0, len(rows), 1)
            needed.append(rows)
    for rows in needed:
        active(move_assignments)(forest, rows, 0, len(rows), -1)
    return searches, len(needed)


def preempting(repeat: int) -> dict[str, Any]:
    full = full_nodes(1000, 8, 30)
    fits = asker(full.topology, full.question[None, :])
    searches, needed = make_room(full, lambda: fits() == TopologyFailure.NONE)
    took_us = median_us(lambda: make_room(full, lambda: fits() == TopologyFailure.NONE), repeat)
    return {
        "setting": "1,000 full nodes, 30 resources, 200 pods of half a node: as in Kueue's BenchmarkSchedulerTAS",
        "workloads": len(full.victims),
        "victims": needed,
        "searches": searches,
        "topology_part_ms": round(took_us / 1000, 2),
        "kueue_published_ms": KUEUE_PUBLISHED_MS,
        "note": "Kueue's is a whole cycle with quota and snapshot, ours the topology's part alone: not equal",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/traces/topology"))
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument("--plain", action="store_true", help="kernels as plain Python")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    start = time.perf_counter()
    topology = network(options.data / "topo.csv")
    built_ms = (time.perf_counter() - start) * 1000
    with kernels_as(compiled=not options.plain):
        gangs = [row for share in (0.0, 0.5, 0.9) for row in measure(topology, share, options.repeat)]
        room = preempting(max(options.repeat // 20, 1))
    report = {"hosts": topology.leaves.top, "build_ms": round(built_ms, 1), "gangs": gangs, "preempting": room}
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{report['hosts']} hosts, trees built in {built_ms:.1f} ms")
    for row in gangs:
        print(
            f"{row['taken_share']:4.0%} {row['gang']:46} {row['outcome']:12} {row['hosts']:4} hosts "
            f"{row['switches']:3} switches {row['search_us']:8.1f} us, kernel {row['kernel_us']:7.1f} us"
        )
    print(json.dumps(room, indent=2))


if __name__ == "__main__":
    main()
