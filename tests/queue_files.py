"""Samples and strategies of the queues in a `tidegate.yaml`."""

from __future__ import annotations

from hypothesis import strategies as st

from tidefiles import durations, mapping, memories

#: Every key about queues once.
FULL_QUEUES = """\
cluster:
  pools:
    - {name: h100, count: 4, shape: {gpu: h100, gpus: 8, cpu: 96, memory: 1Ti}}
    - {name: a100, count: 4, shape: {gpu: a100, gpus: 8, cpu: 96, memory: 1Ti}, taints: [{key: old}]}
policy:
  name: shared
  admission: kueue
  fair_sharing: [LessThanInitialShare]
  usage_sharing: {half_life: 7d, sampling: 10m, weights: {gpus: 1, cpu: 0.25}}
  undeclared: refuse
  topologies:
    - {name: network, levels: [zone, rack, kubernetes.io/hostname]}
  flavors:
    - {name: h100, labels: {tidegate.io/pool: h100}, topology: network}
    - name: a100
      labels: {tidegate.io/pool: a100}
      taints: [{key: old}]
      tolerations: [{key: old, operator: Exists}]
    - {name: hosts}
  cohorts:
    - {name: lab}
    - name: ml
      parent: lab
      weight: 2
      flavors: [{name: a100, gpus: 8, borrow: {gpus: 4}, lend: {gpus: 8}}]
  queues:
    - name: research
      cohort: ml
      weight: 0.5
      strict: true
      flavors:
        - {name: h100, gpus: 16, borrow: {gpus: 8}, lend: {gpus: 4}}
        - {name: a100, gpus: 8.5}
        - {name: hosts, cpu: 384, memory: 2Ti, pods: 100, other: {rdma/hca: 16}}
      preemption: {within: LowerPriority, reclaim: Any, borrow: LowerPriority, borrow_threshold: 10}
      fungibility:
        {when_can_borrow: TryNextFlavor, when_can_preempt: MayStopSearch, preference: PreemptionOverBorrowing}
      local_queues: [vision, {name: speech, weight: 2, stop: Hold}]
    - name: product
      cohort: lab
      stop: HoldAndDrain
      flavors: [{name: h100, gpus: 16}, {name: hosts, cpu: 384, memory: 2Ti, pods: 100, other: {rdma/hca: 0}}]
work:
  - {id: a, queue: vision, priority: 7, runtime: 1h, pods: {count: 4, min_count: 2, gpus: 1, cpu: 8}}
"""


def queues(**keys):
    """A document with one queue that owns eight GPUs, unless its keys say otherwise."""
    return policy(queues=[{"name": "q", "gpus": 8, **keys}])


def policy(**keys):
    """A document with a policy alone."""
    return {"policy": keys}


_gpus = st.sampled_from([0, 1, 8, 0.5, 16.25])
_cpus = st.sampled_from([0, 8, 0.5, "500m", 100_001])
_weights = st.sampled_from([0, 1, 0.5, 2])
_stops = st.sampled_from(["None", "Hold", "HoldAndDrain"])
_moves = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
_fungibilities = mapping(
    when_can_borrow=_moves,
    when_can_preempt=_moves,
    preference=st.sampled_from(["BorrowingOverPreemption", "PreemptionOverBorrowing"]),
)
_within = st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
_rules = st.one_of(
    mapping(within=_within),
    mapping(
        {"reclaim": st.sampled_from(["LowerPriority", "Any"])},
        within=_within,
        borrow=st.sampled_from(["Never", "LowerPriority"]),
        borrow_threshold=st.integers(-5, 5),
    ),
)
_usages = mapping(
    {"half_life": durations},
    sampling=durations,
    weights=st.dictionaries(st.sampled_from(["gpus", "cpu", "memory"]), _weights),
)


@st.composite
def _amounts(draw, *, lends: bool):
    """What somebody owns, and limits on what of it changes hands."""
    owned = {"gpus": draw(_gpus), "cpu": draw(_cpus), "memory": draw(memories)}
    given = {name: owned[name] for name in draw(st.sets(st.sampled_from(list(owned)), min_size=1))}
    if not lends:
        return given
    borrow = {name: owned[name] for name in given if draw(st.booleans())}
    lend = {name: given[name] for name in given if draw(st.booleans())}
    return {**given, **({"borrow": borrow} if borrow else {}), **({"lend": lend} if lend else {})}


@st.composite
def policies(draw):
    """A policy with a tree of cohorts and some queues; `research` is one of them. It has no errors."""
    cohorts = ["", "top", "middle", "named-only"]
    declared = [
        {"name": "top", **draw(mapping(weight=_weights)), **draw(_amounts(lends=False) | st.just({}))},
        {"name": "middle", "parent": "top", **draw(_amounts(lends=True) | st.just({}))},
    ]
    made = []
    for name in ("research", "product", "ops")[: draw(st.integers(1, 3))]:
        cohort = draw(st.sampled_from(cohorts))
        more = mapping(
            weight=_weights, strict=st.booleans(), stop=_stops, preemption=_rules, fungibility=_fungibilities
        )
        entrances = [f"{name}-a", {"name": f"{name}-b", "weight": 2, "stop": draw(_stops)}]
        made.append(
            {
                "name": name,
                **({"cohort": cohort} if cohort else {}),
                **draw(_amounts(lends=bool(cohort))),
                **draw(more),
                "local_queues": entrances[: draw(st.integers(0, 2))],
            }
        )
    rest = mapping(
        admission=st.sampled_from(["tidegate", "kueue"]),
        fair_sharing=st.booleans() | st.just(["LessThanInitialShare"]),
        usage_sharing=_usages,
        undeclared=st.sampled_from(["ignore", "refuse"]),
    )
    return {"queues": made, "cohorts": declared, **draw(rest)}
