"""Lines of scenarios that tell something: what each means, and how it is told to the engine.

Every line begins with a word of `FACTS`; a line that cannot be read raises a ValueError that says what was expected.
Must not know: files, decisions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import yaml

from builders import POOL, Cluster, fleet, job
from tidegate.config.convert import build_policy
from tidegate.config.validate import read_document
from tidegate.model.facts import ALL_PODS, FactKind, WriteOutcome
from tidegate.model.hardware import Node, NodeShape, Taint
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy, WithoutEstimate
from tidegate.model.struct import labels, resources
from tidegate.model.units import parse_duration_ms
from tidegate.model.work import GpuRequest, NodeRequirement, NodeTerm, Operator, PodSet, Share, Toleration, Workload

#: Tells a fact on a stage.
Act = Callable[["Stage"], None]

replace = msgspec.structs.replace


class Stage:
    """A cluster, and the names that a scenario has used so far."""

    def __init__(self) -> None:
        self.cluster = Cluster([])
        self.policy = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT))
        self.pools: list[str] = []
        self.nodes: dict[str, Node] = {}  # removed ones, too: they may come back
        self.at_ms = 0  # when the fact happens
        self.binds: dict[tuple[str, int], int] = {}  # the decision that gave a pod its place
        self.shares: dict[str, dict[str, dict[str, object]]] = {}  # queues, cohorts and flavors by name
        self.rules: dict[str, object] = {}  # by which they share

    def tell(self, kind: FactKind, job: str, pod: str | None = None, **more) -> None:
        """Tell a fact about a job, or one of its pods."""
        if job not in self.cluster.numbers:
            raise ValueError(f"no job {job!r} was submitted; there are {', '.join(self.cluster.numbers) or 'none'}")
        self.cluster.tell(kind, job, pod=ALL_PODS if pod is None else int(pod), **more)

    def tell_node(self, kind: FactKind, node: str, device: int = 0) -> None:
        """Tell a fact about a node."""
        self.node(node)
        self.cluster.tell(kind, node, arg=device)

    def node(self, name: str) -> Node:
        """The node of that name, as it was last told."""
        if name not in self.nodes:
            raise ValueError(f"there is no node {name!r}; there are {', '.join(self.nodes) or 'none'}")
        return self.nodes[name]

    def show(self, node: Node) -> None:
        """Tell of a node that is new, or changed."""
        self.nodes[node.name] = node
        self.cluster.add_node(node)

    def change_work(self, workload: Workload) -> None:
        """Tell that a job asks for something else."""
        if workload.id not in self.cluster.numbers:
            raise ValueError(f"no job {workload.id!r} was submitted")
        self.cluster.change(workload)

    def change(self, **fields: object) -> None:
        """Tell of a policy with other fields."""
        self.policy = replace(self.policy, **fields)
        self.cluster.set_policy(self.policy)

    def change_shares(self, kind: str, name: str, keys: dict[str, object]) -> None:
        """Tell of a policy with another queue, cohort or flavor, or with another one of that name."""
        self.shares.setdefault(kind, {})[name] = {"name": name, **keys}
        self._read_shares()

    def set_shares(self, keys: dict[str, object]) -> None:
        """Tell of a policy that shares by other rules."""
        self.rules |= keys
        self._read_shares()

    def _read_shares(self) -> None:
        lists = {kind: list(entries.values()) for kind, entries in self.shares.items()}
        document, report = read_document({"policy": {**self.rules, **lists}})
        if document is None:
            raise ValueError("; ".join(problem.text() for problem in report.problems))
        made = build_policy(document.policy)
        self.change(shares=made.shares, admission=made.admission)


# -- fleet and policy ------------------------------------------------------------------------------------------


def _fleet(pool: str) -> Act:
    if POOL.fullmatch(pool) is None:
        raise ValueError(f"expected {FACTS['fleet'].usage}")

    def tell(stage: Stage) -> None:
        stage.pools.append(pool)
        for node in fleet(*stage.pools)[len(stage.nodes) :]:
            stage.show(node)

    return tell


def _order(kind: str, strict: str | None, after: str | None, refuses: str | None, limits: str | None) -> Act:
    unknown = WithoutEstimate.REFUSE if refuses else WithoutEstimate.LAST
    rule = OrderRule(kind=OrderKind(kind), strict=strict is not None, without_estimate=unknown)
    if after:
        rule = replace(rule, reserve_after_ms=parse_duration_ms(after))
    if limits:
        rule = replace(rule, las_limits_gpu_s=tuple(map(int, limits.split())))
    return lambda stage: stage.change(order=rule)


def _placement(kind: str) -> Act:
    rule = PlacementRule(kind=PlacementKind(kind))
    return lambda stage: stage.change(placement=rule)


def _share(kind: str, name: str, keys: str) -> Act:
    read = _keys(keys)
    return lambda stage: stage.change_shares(kind, name, read)


def _shares(keys: str) -> Act:
    read = _keys(keys)
    return lambda stage: stage.set_shares(read)


def _keys(text: str) -> dict[str, object]:
    """Keys as in a `tidegate.yaml`."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        read = None
    if not isinstance(read, dict):
        raise ValueError(f"expected keys as in a tidegate.yaml, such as {{gpus: 8}}, found {text!r}")  # noqa: TRY004
    return read


def _waits(word: str) -> Act:
    return lambda stage: stage.change(waits=word == "yes")


# -- work ------------------------------------------------------------------------------------------------------


def _submit(job: str, sets: str, options: str, where: str | None) -> Act:
    made, at_ms = _read_work(job, sets, options, where), _told_options(options).get("at")
    return lambda stage: stage.cluster.submit(replace(made, submitted_ms=stage.at_ms if at_ms is None else at_ms))


def _read_work(job: str, sets: str, options: str, where: str | None) -> Workload:
    read = _told_options(options)
    if where:
        read["terms"] = tuple(map(_term, where.split(" or ")))
    return _workload(job, tuple(sets.split(" + ")), read)


def _told_options(options: str) -> dict[str, object]:
    told = dict(pair.split("=", 1) for pair in options.split())
    for name in told.keys() - _OPTIONS.keys():
        raise ValueError(f"unknown option {name!r}; known: {', '.join(_OPTIONS)}")
    return {name: _option(name, text) for name, text in told.items()}


def _change(job: str, sets: str, options: str, where: str | None) -> Act:
    made = _read_work(job, sets, options, where)
    return lambda stage: stage.change_work(made)


def _option(name: str, text: str) -> object:
    try:
        return _OPTIONS[name](text)
    except ValueError:
        raise ValueError(f"cannot read {name}={text}") from None


def _workload(name: str, sets: tuple[str, ...], read: dict[str, object]) -> Workload:
    mig, estimate_ms, tolerated_ms = read.get("mig"), read.get("estimate", 0), read.get("tolerates_wait", 0)
    own = {key: value for key, value in read.items() if key not in {"mig", "estimate", "tolerates_wait", "at"}}
    made = replace(job(name, *sets, **own), estimate_ms=estimate_ms)
    made = replace(made, work=replace(made.work, tolerated_wait_ms=tolerated_ms))
    if mig is None:
        return made
    sliced = tuple(_sliced(pod_set, mig) for pod_set in made.work.pod_sets)
    return replace(made, work=replace(made.work, pod_sets=sliced))


def _sliced(pod_set: PodSet, profile: str) -> PodSet:
    return replace(pod_set, gpu=GpuRequest(share=Share.MIG, count=pod_set.gpu.count, profile=profile))


def _term(text: str) -> NodeTerm:
    return NodeTerm(requirements=tuple(map(_requirement, text.split(" and "))))


def _requirement(text: str) -> NodeRequirement:
    match = re.fullmatch(r"(\S+) (in|not in|exists|absent|>|<)(?: (\S+))?", text)
    if match is None or (match[3] is None) != (match[2] in {"exists", "absent"}):
        raise ValueError(f"expected a condition such as `rack in r1,r2` or `rack exists`, found {text!r}")
    return NodeRequirement(key=match[1], operator=_OPERATORS[match[2]], values=tuple((match[3] or "").split(",")))


_OPERATORS = {
    "in": Operator.IN, "not in": Operator.NOT_IN, "exists": Operator.EXISTS, "absent": Operator.DOES_NOT_EXIST,
    ">": Operator.GREATER, "<": Operator.LESS,
}  # fmt: skip

_OPTIONS: dict[str, Callable[[str], object]] = {
    "queue": str,
    "priority": int,
    "at": parse_duration_ms,  # submitted then; else where its line stands in the round
    "estimate": parse_duration_ms,
    "tolerates_wait": parse_duration_ms,
    "cpu": int,  # cores a pod
    "memory": int,  # GiB a pod
    "min_count": int,  # pods of each set that it may start with
    "vram": lambda gib: int(gib) * 1024,  # of each GPU
    "models": lambda text: tuple(sorted(text.split(","))),
    "mig": str,
    "selector": lambda text: labels(dict(pair.split(":", 1) for pair in text.split(","))),
    "tolerations": lambda text: tuple(Toleration(key=key, operator=Operator.EXISTS) for key in text.split(",")),
}


def _about(kind: FactKind, job: str, pod: str | None = None) -> Act:
    return lambda stage: stage.tell(kind, job, pod)


def _progress(job: str, remaining: str, attained: str | None) -> Act:
    seconds = tuple(parse_duration_ms(text) / 1000 for text in (remaining, attained or "0s"))
    return lambda stage: stage.tell(FactKind.PROGRESS_OBSERVED, job, values=seconds)


def _bind(job: str, pod: str, outcome: str) -> Act:
    def tell(stage: Stage) -> None:
        if (job, int(pod)) not in stage.binds:
            raise ValueError(f"pod {pod} of {job!r} was never placed")
        stage.cluster.outcome(stage.binds[job, int(pod)], WriteOutcome[outcome.upper()])

    return tell


def _bound(job: str, pod: str, node: str) -> Act:
    def tell(stage: Stage) -> None:
        stage.node(node)
        stage.tell(FactKind.POD_BOUND, job, pod, arg=stage.cluster.nodes[node])

    return tell


# -- nodes -----------------------------------------------------------------------------------------------------


def _node(node: str, verb: str, what: str | None) -> Act:
    needs_more = verb in {"tainted", "labelled", "gpus", "cpu"}
    if needs_more != (what is not None) or (verb == "labelled" and "=" not in str(what)):
        raise ValueError(
            f"expected `node NODE tainted KEY`, `labelled KEY=VALUE`, `gpus 4`, or one of {', '.join(_NODE_VERBS)}"
        )
    if verb == "removed":
        return lambda stage: stage.tell_node(FactKind.NODE_REMOVED, node)
    return lambda stage: stage.show(_NODE_VERBS[verb](stage.node(node), what or ""))


def _with_cpu(shape: NodeShape, cores: int) -> NodeShape:
    return replace(shape, capacity=resources(dict(shape.capacity) | {"cpu": cores * 1000}))


_NODE_VERBS: dict[str, Callable[[Node, str], Node]] = {
    "added": lambda node, _: node,
    "removed": lambda node, _: node,
    "cordoned": lambda node, _: replace(node, unschedulable=True),
    "uncordoned": lambda node, _: replace(node, unschedulable=False),
    "down": lambda node, _: replace(node, ready=False),
    "up": lambda node, _: replace(node, ready=True),
    "tainted": lambda node, key: replace(node, taints=(*node.taints, Taint(key=key))),
    "untainted": lambda node, _: replace(node, taints=()),
    "gpus": lambda node, count: replace(node, shape=replace(node.shape, gpu_count=int(count))),
    "cpu": lambda node, cores: replace(node, shape=_with_cpu(node.shape, int(cores))),
    "labelled": lambda node, pair: replace(node, labels=labels(dict(node.labels) | dict([pair.split("=", 1)]))),
}


def _device(node: str, device: str, verb: str) -> Act:
    kind = FactKind.DEVICE_FAILED if verb == "failed" else FactKind.DEVICE_RECOVERED
    return lambda stage: stage.tell_node(kind, node, int(device))


# -- the words -------------------------------------------------------------------------------------------------


class _Fact(NamedTuple):
    usage: str
    rest: str  # a pattern of what follows the word
    read: Callable[..., Act]


_JOB = r"(?P<job>[^\s\[]+)"
_POD = _JOB + r"(?:\[(?P<pod>\d+)\])?"
_SET = r"(?:\d+x)?\d+(?:\.\d+)?"
_WORK = rf"{_JOB} (?P<sets>{_SET}(?: \+ {_SET})*)(?P<options>(?: [a-z_]+=\S+)*)(?: where (?P<where>.+))?"

_KEYS = r"(?P<keys>\{.*\})"

#: By first word.
FACTS = {
    "fleet": _Fact("fleet 4x h100x8 cpu=96 in r1", r"(?P<pool>.+)", _fleet),
    "order": _Fact(
        f"order {'|'.join(OrderKind)}, such as order fifo strict, order fifo reserve_after=2h, order las 3250 7200",
        rf"(?P<kind>{'|'.join(OrderKind)})(?P<strict> strict)?(?: reserve_after=(?P<after>\S+))?(?P<refuses> refuse)?"
        r"(?P<limits>(?: \d+)*)",
        _order,
    ),
    "placement": _Fact(f"placement {'|'.join(PlacementKind)}", rf"(?P<kind>{'|'.join(PlacementKind)})", _placement),
    "queue": _Fact(
        "queue NAME {gpus: 8, cohort: ml, preemption: {reclaim: Any}}, with the keys of a tidegate.yaml",
        rf"(?P<name>\S+) {_KEYS}",
        partial(_share, "queues"),
    ),
    "cohort": _Fact("cohort NAME {parent: lab, gpus: 8}", rf"(?P<name>\S+) {_KEYS}", partial(_share, "cohorts")),
    "flavor": _Fact("flavor NAME {labels: {pool: h100}}", rf"(?P<name>\S+) {_KEYS}", partial(_share, "flavors")),
    "shares": _Fact("shares {fair_sharing: true, admission: kueue}", _KEYS, _shares),
    "waits": _Fact("waits yes or waits no", r"(?P<word>yes|no)", _waits),
    "submit": _Fact(
        "submit JOB 2x8, submit JOB 1x4 + 2x0.5 priority=1 models=h100 where rack in r1,r2 and pool exists",
        _WORK,
        _submit,
    ),
    "change": _Fact("change JOB 1x4 priority=2: it asks for this now, and waits as before", _WORK, _change),
    "finish": _Fact("finish JOB", _JOB, partial(_about, FactKind.WORKLOAD_FINISHED)),
    "cancel": _Fact("cancel JOB", _JOB, partial(_about, FactKind.WORKLOAD_CANCELLED)),
    "started": _Fact("started JOB or started JOB[POD]", _POD, partial(_about, FactKind.POD_STARTED)),
    "gone": _Fact("gone JOB or gone JOB[POD]", _POD, partial(_about, FactKind.POD_GONE)),
    "failed": _Fact("failed JOB or failed JOB[POD]", _POD, partial(_about, FactKind.POD_FAILED)),
    "progress": _Fact(
        "progress JOB remaining=1h attained=5m",
        rf"{_JOB} remaining=(?P<remaining>\S+)(?: attained=(?P<attained>\S+))?",
        _progress,
    ),
    "bind": _Fact(
        "bind JOB[POD] done, failed or unknown", rf"{_JOB}\[(?P<pod>\d+)\] (?P<outcome>done|failed|unknown)", _bind
    ),
    "bound": _Fact(
        "bound JOB[POD] on NODE: it is there, whoever put it there",
        rf"{_JOB}\[(?P<pod>\d+)\] on (?P<node>\S+)",
        _bound,
    ),
    "node": _Fact(
        f"node NODE {'|'.join(_NODE_VERBS)}",
        rf"(?P<node>\S+) (?P<verb>{'|'.join(_NODE_VERBS)})(?: (?P<what>\S+))?",
        _node,
    ),
    "device": _Fact(
        "device NODE[0] failed or recovered",
        r"(?P<node>[^\s\[]+)\[(?P<device>\d+)\] (?P<verb>failed|recovered)",
        _device,
    ),
}


def read_fact(text: str) -> Act:
    """What a line tells; a ValueError says what is wrong with it."""
    word, _, rest = text.partition(" ")
    if word not in FACTS:
        raise ValueError(f"unknown word {word!r}; known: scenario, at, =>, {', '.join(FACTS)}")
    fact = FACTS[word]
    match = re.fullmatch(fact.rest, rest)
    if match is None:
        raise ValueError(f"expected {fact.usage}")
    return fact.read(**match.groupdict())
