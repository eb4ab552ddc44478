"""Samples and strategies of `tidegate.yaml`: as text, and as the plain data that YAML gives."""

from __future__ import annotations

import copy

from hypothesis import strategies as st

from tidegate.config.codec import sound
from tidegate.config.schema import ConfigDocument
from tidegate.config.validate import read_document

#: Every key of the format once.
FULL = """\
version: 1
cluster:
  pools:
    - name: train
      count: 8
      shape:
        gpu: h100
        gpus: 8
        gpu_memory: 80Gi
        nvlink_group: 8
        cpu: 192
        memory: 2Ti
        pods: 110
        other: {rdma/hca: 8}
        reserved: {cpu: 4, memory: 16Gi}
      labels: {zone: a}
      taints: [{key: team, value: ml, effect: NoSchedule}]
policy:
  name: fair
  order: {kind: las, limits: [3250, 7200], strict: false}
  placement: {kind: random, seed: 7}
  cycle: 10s
  waits: true
twin:
  seed: 1
  api_latency: 200ms
  start: 20s
  grace: 30s
  admission_fails: 0.01
  observe_every: 1h
  node_fails_every: 60d
  node_repair: 4h
work:
  - id: pretrain
    queue: research
    kind: training
    priority: 10
    submit: 2h
    copies: 5
    every: 1h
    runtime: 12h
    pods:
      - name: worker
        count: 4
        gpus: 8
        gpu_memory: 70Gi
        cpu: 96
        memory: 1Ti
        models: [h100]
        other: {rdma/hca: 4}
        selector: {zone: a}
        tolerations: [{key: team, operator: Equal, value: ml, effect: NoSchedule}]
    use: {load: 10m, busy: 0.8, idle_tail: 30m, swing: 0.3, gpu_memory: 60Gi}
    checkpoint: 30m
    restart: 5m
    fails_every: 3d
    estimate: 10h
    tolerates_wait: 1h
    preemptible: true
    protected: 10m
"""


def is_sound(data):
    """Whether every part of a document is right in itself; they need not fit each other."""
    return sound(data, ConfigDocument) is not None


def texts(data):
    """All that is said about a document."""
    return [problem.text() for problem in read_document(data)[1].problems]


def pool(**keys):
    """A document with one pool."""
    return {"cluster": {"pools": [{"name": "a", "count": 1, **keys}]}}


def job(**keys):
    """A document with one workload."""
    return {"work": [{"id": "j", "runtime": "1h", **keys}]}


durations = st.sampled_from(["90s", "15m", "1h30m", "2d", "1.5h", "5min", "250ms", 30, 0.5])
memories = st.sampled_from(["64Gi", "1.5Ti", "512Mi", "10G", 0, 1 << 30])
cpus = st.sampled_from([0, 8, 0.5, "500m", "96"])
labels = st.dictionaries(st.sampled_from(["zone", "team.io/rack", "a_b"]), st.sampled_from(["", "a", "1"]))
others = st.dictionaries(st.sampled_from(["rdma/hca", "ephemeral-storage"]), st.integers(0, 100))
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
seeds = st.integers(0, 2**53)
orders = st.sampled_from(["fifo", "srtf", "srsf", "las"])
placements = st.sampled_from(["random", "firstfit", "spread", "dotprod", "packing", "bestfit", "fgd", "tide"])


def mapping(required=None, **optional):
    """A mapping with all the required keys and any of the optional ones."""
    return st.fixed_dictionaries(required or {}, optional=optional)


shapes = mapping(
    gpu=st.sampled_from(["h100", "a100", ""]),
    gpus=st.integers(0, 16),
    gpu_memory=memories,
    cpu=cpus,
    memory=memories,
    pods=st.integers(1, 500),
    other=others,
)
taints = mapping({"key": st.sampled_from(["team", "spot"])}, value=st.sampled_from(["", "ml"]), effect=effects)
tolerations = mapping(
    key=st.sampled_from(["", "team"]),
    operator=st.sampled_from(["Equal", "Exists"]),
    value=st.just("ml"),
    effect=effects,
)
pods = mapping(
    count=st.integers(1, 64),
    gpus=st.sampled_from([1, 2, 8, 0.25, 0.5, 1.0]),
    gpu_memory=memories,
    cpu=cpus,
    memory=memories,
    models=st.lists(st.sampled_from(["h100", "a100"])),
    other=others,
    selector=labels,
    tolerations=st.lists(tolerations, max_size=2),
).map(lambda entry: entry if "gpus" in entry else {key: entry[key] for key in entry if key != "gpu_memory"})
uses = mapping(
    load=durations,
    busy=st.sampled_from([0, 1, 0.8, 0.333]),
    idle_tail=durations,
    swing=st.just(0.3),
    gpu_memory=memories,
)
several_pods = st.lists(pods, min_size=1, max_size=3).map(
    lambda entries: [{**entry, "name": f"set-{number}"} for number, entry in enumerate(entries)]
)
policies = mapping(
    name=st.just("mine"),
    order=orders | mapping(kind=orders, strict=st.booleans(), limits=st.just([5, 9])),
    placement=placements | mapping(kind=placements, seed=seeds),
    cycle=durations,
    waits=st.booleans(),
)
twins = mapping(
    seed=seeds,
    api_latency=durations,
    start=durations,
    grace=durations,
    admission_fails=st.sampled_from([0, 0.5, 0.999]),
    observe_every=durations,
    node_fails_every=durations,
    node_repair=durations,
)


def _with_names(key, entries):
    return [{**entry, key: f"{key}{number}"} for number, entry in enumerate(entries)]


pools = mapping({"count": st.integers(1, 12)}, shape=shapes, labels=labels, taints=st.lists(taints, max_size=2))
work = mapping(
    {"runtime": durations},
    queue=st.just("research"),
    kind=st.sampled_from(["batch", "training", "interactive", "inference"]),
    priority=st.integers(-(2**31), 2**31 - 1),
    submit=durations,
    copies=st.integers(1, 5),
    every=durations,
    pods=pods | several_pods,
    use=uses,
    checkpoint=durations,
    restart=durations,
    fails_every=st.just("3650d"),
    estimate=durations,
    tolerates_wait=durations,
    preemptible=st.booleans(),
    protected=durations,
)

#: Plain data of files without errors.
documents = mapping(
    version=st.just(1),
    cluster=mapping(pools=st.lists(pools, max_size=3).map(lambda entries: _with_names("name", entries))),
    policy=policies,
    twin=twins,
    work=st.lists(work, max_size=3).map(lambda entries: _with_names("id", entries)),
)

#: What YAML or JSON can give.
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged(draw):
    """A document in which one value was replaced, one key dropped, or one key added."""
    document = {"version": 1, **copy.deepcopy(draw(documents))}
    holder, key = draw(st.sampled_from(list(slots(document))))
    match draw(st.sampled_from(["replace", "drop", "add"])):
        case "replace":
            holder[key] = draw(plain | st.sampled_from([-1, 0, "", "64 gigs", "8", "yes", 1.5, 10**30, None, [], {}]))
        case "drop":
            holder.pop(key)
        case "add" if isinstance(holder, dict):
            holder[draw(st.sampled_from(["cpus", "gpu", "kind", "x", ""]))] = draw(plain)
    return document


def slots(value):
    """Every place of a value that holds another."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from slots(inner)
