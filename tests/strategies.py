"""Hypothesis strategies: clusters, work, and what can happen to them."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from builders import fleet, job, pods
from tidegate.model.struct import labels
from tidegate.model.work import Operator, Toleration

replace = msgspec.structs.replace

pools = st.sampled_from(
    [
        "1x h100x8",
        "2x h100x4",
        "1x a100x8 in r1",
        "3x a100x2 cpu=8",
        "1x t4x1 memory=16",
        "1x h100x8 taint=gpu",
        "1x cpux0",
    ]
)
fleets = st.lists(pools, min_size=1, max_size=4).map(lambda texts: fleet(*texts))

_asks = st.sampled_from(["1x1", "1x2", "1x8", "2x1", "2x4", "3x2", "1x0.5", "1x0.25", "2x0.3", "1x0", "2x8", "4x1"])
_more = st.fixed_dictionaries(
    {"cpu": st.sampled_from([1, 4, 9]), "memory": st.sampled_from([1, 20]), "models": st.sampled_from([(), ("h100",)])}
)
_tolerance = st.sampled_from([(), (Toleration(key="gpu", operator=Operator.EXISTS),)])
#: Mostly none; else never to be preempted, or not before a while.
protections = st.sampled_from([{}, {}, {}, {}, {"preemptible": False}, {"protected_ms": 4_000}])
_selectors = st.sampled_from([(), (), (), labels({"rack": "r1"})])


@st.composite
def pod_sets(draw):
    """One kind of pods."""
    return pods(draw(_asks), tolerations=draw(_tolerance), selector=draw(_selectors), **draw(_more))


@st.composite
def workloads(draw, number: int, at_ms: int):
    """A workload; its time of submission may lie before or after others'."""
    sets = draw(st.lists(pod_sets(), min_size=1, max_size=2))
    at = at_ms + draw(st.integers(-2, 2))
    queue, priority = draw(st.sampled_from(["a", "b"])), draw(st.sampled_from([0, 0, 5]))
    made = job(f"w{number:03d}", *sets, at=max(at, 0), queue=queue, priority=priority)
    return replace(made, work=replace(made.work, **draw(protections)))


placements = st.sampled_from(
    ["random", "firstfit", "spread", "dotprod", "clustering", "packing", "bestfit", "fgd", "tide"]
)
orders = st.sampled_from(["fifo", "fifo", "srtf", "srsf", "las"])
