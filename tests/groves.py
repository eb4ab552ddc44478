"""Short ways to say trees and what is asked of them, for tests of the topology.

grove("b1/r1/x1=4", "b1/r1/x2=2 gpu=1")            nodes by block, rack and host, with four and two places for pods
ask("s", 3, required="rack")                       a pod set of three pods
"""

from __future__ import annotations

import json
import re

from hypothesis import strategies as st

from shared import SHARED
from tidegate.engine.topology.query import PodSetQuery
from tidegate.model.hardware import Node, NodeShape, Taint, TopologyLevels
from tidegate.model.observed_status import DomainAssignment
from tidegate.model.queues import Flavor, TopologyRule
from tidegate.model.struct import labels, resources
from tidegate.model.work import PodSet, SliceRule, TopologyRequest
from tidegate.state.topology import HOST, build
from topology_search import TopologySearch

FLAVOR = "f"
LEVELS = ("block", "rack", HOST)
NAMES = {"block": "block", "rack": "rack", "host": HOST}
ONE = resources({"cpu": 1})

#: Kueue's own table of topology assignments.
TABLE = "cases/kueue/scheduler.TestFindTopologyAssignments.jsonl"


def cases() -> list[dict]:
    """The cases of Kueue's table; none where it is not there."""
    path = SHARED / TABLE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def node(text: str, **more) -> Node:
    """A node: "b1/r1/x1=4 gpu=2 taint=t" is host x1 in rack r1 of block b1, with four cores and two GPUs."""
    where, _, amounts = text.partition("=")
    cores, *rest = amounts.split()
    found = dict(word.split("=") for word in rest)
    taints = (Taint(key=found.pop("taint")),) if "taint" in found else ()
    marks = labels({**dict(zip(LEVELS, where.split("/"), strict=True)), "kind": found.pop("kind", "any")})
    has = resources({"cpu": int(cores), "pods": 110, **{name: int(amount) for name, amount in found.items()}})
    return Node(name=where, shape=NodeShape(name=""), labels=marks, taints=taints, allocatable=has, **more)


def grove(*nodes: str | Node, levels=LEVELS, flavors=(FLAVOR,), rule: TopologyRule | None = None) -> TopologySearch:
    """Trees over these nodes, one for each flavor, and a search in them."""
    specs = dict(enumerate(text if isinstance(text, Node) else node(text) for text in nodes))
    made = [Flavor(name=name, topology="t") for name in flavors]
    return TopologySearch(build(specs, made, [TopologyLevels(name="t", labels=tuple(levels))]), rule)


def ask(name: str, pods: int, slices: str = "", amounts=ONE, **more) -> PodSetQuery:
    """What a pod set asks for; slices such as "rack:4 host:2"."""
    topology = {NAMES.get(key, key): value for key, value in more.items() if key in ("required", "preferred", "group")}
    topology = {key: NAMES.get(value, value) for key, value in topology.items()}
    layers = [part.split(":") for part in slices.split()]
    request = TopologyRequest(
        **topology,
        unconstrained=more.get("unconstrained", False),
        slices=tuple(SliceRule(level=NAMES[level], size=int(size)) for level, size in layers),
    )
    fields = {key: value for key, value in more.items() if key in ("selector", "terms", "tolerations", "preferred_")}
    if "preferred_" in fields:
        fields["preferred"] = fields.pop("preferred_")
    pod_set = PodSet(name=name, count=pods, topology=request, **fields)
    return PodSetQuery(pod_set, more.get("flavor", FLAVOR), pods, amounts, not request, more.get("held", ()))


def spots(text: str) -> tuple[DomainAssignment, ...]:
    """Spots: "x1=2 x3=1"."""
    return tuple(DomainAssignment(values=(host,), count=int(count)) for host, count in re.findall(r"(\S+)=(\d+)", text))


def placed(search: TopologySearch, *wanted: PodSetQuery, **more) -> str:
    """Where the pods go, in words: "s: x1=2 x3=1", or why they do not."""
    found = search.find(wanted, **more)
    if found.shortfall is not None:
        return found.failure.name
    return told(found.assignments)


def told(found: dict[str, tuple[DomainAssignment, ...]]) -> str:
    """Spots in words."""
    return "; ".join(
        f"{name}: " + " ".join(f"{'/'.join(spot.values)}={spot.count}" for spot in held)
        for name, held in sorted(found.items())
    )


@st.composite
def hosts(draw, most: int = 9) -> dict[tuple[str, str, str], int]:
    """Hosts by block, rack and name, with the pods that fit on each."""
    count = draw(st.integers(1, most))
    return {
        (f"b{draw(st.integers(0, 1))}", f"r{draw(st.integers(0, 2))}", f"x{number}"): draw(st.integers(0, 4))
        for number in range(count)
    }


def grown(room: dict[tuple[str, str, str], int], rule: TopologyRule | None = None) -> TopologySearch:
    """The tree of such hosts."""
    return grove(*(f"{'/'.join(where)}={fits}" for where, fits in room.items()), rule=rule)
