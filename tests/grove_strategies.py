"""Hypothesis strategies for queues with topologies: nodes in racks, and work that asks to be placed there."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from groves import LEVELS, node
from queue_strategies import EITHER, QUEUES, shares
from tidegate.model.hardware import Node, TopologyLevels
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import TopologyRule
from tidegate.model.work import PodSet, SliceRule, TopologyRequest, Work, Workload


@st.composite
def hosts(draw, most: int = 6) -> list[Node]:
    """Nodes in two blocks of two racks, of which some have no room."""
    count = draw(st.integers(1, most))
    return [host(draw, number) for number in range(count)]


def host(draw, number: int) -> Node:
    """One node; told again, it may be somewhere else or not be ready."""
    block, rack = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    ready = draw(st.integers(0, 5)) > 0
    return node(f"b{block}/r{rack}/x{number}={draw(st.integers(0, 6))} gpu={draw(st.integers(0, 6))}", ready=ready)


@st.composite
def grove_policies(draw, fair=EITHER, admission=AdmissionKind.KUEUE):
    """A tree of queues whose flavors have a topology: all of them, or the first."""
    made = draw(shares(fair))
    second = draw(st.sampled_from(["", "t", "rack"]))
    rule = TopologyRule(
        mixed=draw(EITHER), balanced=draw(EITHER), recomputes=draw(EITHER), fails_fast=draw(EITHER), likes=draw(EITHER)
    )
    flavors = tuple(
        msgspec.structs.replace(flavor, topology=name) for flavor, name in zip(made.flavors, ("t", second), strict=True)
    )
    levels = (TopologyLevels(name="t", labels=LEVELS), TopologyLevels(name="rack", labels=LEVELS[:2]))
    return Policy(
        admission=admission,
        shares=msgspec.structs.replace(made, flavors=flavors, topologies=levels, topology=rule),
    )


@st.composite
def requests(draw) -> TopologyRequest:
    """Some level, required or preferred, with or without slices; or nothing."""
    kind = draw(st.sampled_from(["none", "anywhere", "required", "preferred", "slices"]))
    level = draw(st.integers(0, 2))
    if kind == "none":
        return TopologyRequest()
    if kind == "anywhere":
        return TopologyRequest(unconstrained=True)
    slices = ()
    if kind == "slices":
        slices = (SliceRule(level=LEVELS[draw(st.integers(level, 2))], size=draw(st.integers(1, 2))),)
    return TopologyRequest(
        required=LEVELS[level] if kind == "required" else "",
        preferred=LEVELS[level] if kind in ("preferred", "slices") else "",
        slices=slices,
    )


@st.composite
def grove_asks(draw, number: int, at_ms: int):
    """A workload of one or two pod sets, maybe leader and workers."""
    first = draw(requests())
    sets = [pod_set(draw, "main", first)]
    if draw(st.integers(0, 3)) == 0 and first and not first.slices:
        group = msgspec.structs.replace(first, group="g")
        leader = msgspec.structs.replace(pod_set(draw, "leader", group), count=1, min_count=0)
        sets = [leader, msgspec.structs.replace(sets[0], topology=group, min_count=0)]
    work = Work(queue=draw(st.sampled_from(QUEUES)), priority=draw(st.sampled_from([0, 3, 7])), pod_sets=tuple(sets))
    return Workload(id=f"w{number:03d}", work=work, submitted_ms=max(at_ms + draw(st.integers(-2, 2)), 0))


def pod_set(draw, name: str, request: TopologyRequest) -> PodSet:
    """Pods that ask for a core or two, and a GPU or two."""
    count = draw(st.integers(1, 4))
    return PodSet(
        name=name,
        count=count,
        min_count=draw(st.sampled_from([0, 0, 1])) if count > 1 else 0,
        charge=(("cpu", draw(st.integers(0, 2))), ("gpu", draw(st.integers(1, 2)))),
        topology=request,
    )
