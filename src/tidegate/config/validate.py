"""Checks the parts of a tidegate.yaml against each other: duplicate names, sums too large, pods that never fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

from msgspec import UNSET

from tidegate.config.codec import decode, sound
from tidegate.config.convert import HOST_LABEL, POOL_LABEL, full_order, full_placement, pod_set, pool_nodes
from tidegate.config.feasible_nodes import obstacle, room
from tidegate.config.schema import MOST_NODES, ConfigDocument, PolicyEntry, PoolEntry
from tidegate.config.schema_work import (
    LONGEST_ID,
    MOST_PODS,
    MOST_WORKLOADS,
    PodsEntry,
    TopologyRequestEntry,
    WorkEntry,
)
from tidegate.config.validate_fit import queue_warnings, unknown_queues
from tidegate.config.validate_queues import idle_queue_keys, no_effect, queue_errors, repeated, unknown_name
from tidegate.model.policy import BY_ESTIMATE, OrderKind, OrderRule, PlacementKind, WithoutEstimate
from tidegate.model.problem import Path, Problem, Report, Severity
from tidegate.model.units import LARGEST_AMOUNT, WHOLE_MILLI, duration_text
from tidegate.model.work import PodSet

T = TypeVar("T")

#: Entries with their positions in the file's lists.
Numbered = list[tuple[int, T]]

#: Comparisons of a kind of pod with a kind of pool; a file that would need more is not checked for hosting.
MOST_COMPARISONS = 50_000

#: Pools named in one warning.
MOST_POOLS_LISTED = 3


#: Failures on average until the next checkpoint: with more of them, one try in a thousand gets there.
MOST_FAILURES = 7


def read_document(data: object) -> tuple[ConfigDocument | None, Report]:
    """Make a document of plain data; None if the report has errors."""
    report = Report()
    document = decode(data, ConfigDocument, report)
    pools, work, policy = _sound_entries(data) if document is None else _entries(document)
    report.add_all(_pool_errors(pools))
    report.add_all(_work_errors(work))
    report.add_all(_policy_errors(policy))
    report.add_all(_twin_errors(document))
    report.add_all(queue_errors(policy))
    report.add_all(unknown_queues(policy, work))
    report.add_all(_unknown_levels(policy, work))
    if document is None or report.errors:
        return None, report
    report.add_all(_idle_keys(document))
    report.add_all(_unknown_runtimes(document))
    report.add_all(idle_queue_keys(document.policy))
    report.add_all(_hosting(document))
    report.add_all(queue_warnings(document))
    return document, report


def _entries(document: ConfigDocument) -> tuple[Numbered[PoolEntry], Numbered[WorkEntry], PolicyEntry]:
    return list(enumerate(document.cluster.pools)), list(enumerate(document.work)), document.policy


def _sound_entries(data: object) -> tuple[Numbered[PoolEntry], Numbered[WorkEntry], PolicyEntry]:
    """The entries that are valid on their own, so that one broken line does not hide problems of the others."""
    root = data if isinstance(data, dict) else {}
    cluster = root.get("cluster")
    pools = _numbered(cluster.get("pools") if isinstance(cluster, dict) else None, PoolEntry)
    return pools, _numbered(root.get("work"), WorkEntry), sound(root.get("policy"), PolicyEntry) or PolicyEntry()


def _numbered(items: object, kind: type[T]) -> Numbered[T]:
    listed = items if isinstance(items, list) else []
    entries = ((number, sound(item, kind)) for number, item in enumerate(listed))
    return [(number, entry) for number, entry in entries if entry is not None]


def _pool_errors(pools: Numbered[PoolEntry]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for number, pool in pools:
        at: Path = ("cluster", "pools", number)
        yield from _shape_errors(pool, at)
        if first.setdefault(pool.name, number) != number:
            yield repeated((*at, "name"), pool.name, ("cluster", "pools", first[pool.name]))
        for key in (POOL_LABEL, HOST_LABEL):
            if key in pool.labels:
                yield Problem(path=(*at, "labels", key), found="Tidegate sets this label itself", hint="leave it out")
    total = sum(pool.count for _, pool in pools)
    if total > MOST_NODES:
        yield Problem(path=("cluster", "pools"), expected=f"at most {MOST_NODES:,} nodes in all", found=f"{total:,}")


def _shape_errors(pool: PoolEntry, at: Path) -> Iterator[Problem]:
    shape = pool.shape
    if shape.nvlink_group > shape.gpus:
        expected = f"at most the node's {shape.gpus} GPUs"
        yield Problem(path=(*at, "shape", "nvlink_group"), expected=expected, found=str(shape.nvlink_group))
    pairs = (("cpu", shape.reserved.cpu, shape.cpu), ("memory", shape.reserved.memory, shape.memory))
    for name, reserved, there in pairs:
        if reserved > there:
            expected = f"at most the node's {there.text()}"
            yield Problem(path=(*at, "shape", "reserved", name), expected=expected, found=reserved.text())


def _work_errors(work: Numbered[WorkEntry]) -> Iterator[Problem]:
    yield from _id_clashes(work)
    for number, entry in work:
        yield from _entry_errors(entry, ("work", number))
    total = sum(entry.copies for _, entry in work)
    if total > MOST_WORKLOADS:
        expected = f"at most {MOST_WORKLOADS:,} workloads in all, copies included"
        yield Problem(path=("work",), expected=expected, found=f"{total:,}")


def _id_clashes(work: Numbered[WorkEntry]) -> Iterator[Problem]:
    """Find ids that two workloads would have, without making the ids of all copies."""
    copied = {entry.id: (number, entry.copies) for number, entry in reversed(work) if entry.copies > 1}
    single = {entry.id: number for number, entry in reversed(work) if entry.copies == 1}
    for number, entry in work:
        first = copied[entry.id][0] if entry.copies > 1 else single[entry.id]
        if first != number:
            yield repeated(("work", number, "id"), entry.id, ("work", first))
        base, _, copy = entry.id.rpartition("-")
        if entry.copies == 1 and base in copied and _is_number_below(copy, copied[base][1]):
            yield repeated(("work", number, "id"), entry.id, ("work", copied[base][0]), whose="a copy of ")


def _is_number_below(text: str, bound: int) -> bool:
    return text.isdecimal() and len(text) <= 7 and text == str(int(text)) and int(text) < bound


def _entry_errors(entry: WorkEntry, at: Path) -> Iterator[Problem]:
    last_ms = entry.submit + (entry.copies - 1) * entry.every
    if last_ms > LARGEST_AMOUNT:
        expected = f"everything within {duration_text(LARGEST_AMOUNT)} of the start"
        yield Problem(path=(*at, "every"), expected=expected, found=f"the last copy after {duration_text(last_ms)}")
    if entry.copies > 1 and len(f"{entry.id}-{entry.copies - 1}") > LONGEST_ID:
        yield Problem(path=(*at, "id"), expected=f"at most {LONGEST_ID} characters with a copy's number", found="more")
    total = sum(pods.count for pods in entry.pod_entries())
    if total > MOST_PODS:
        yield Problem(path=(*at, "pods"), expected=f"at most {MOST_PODS:,} pods in all", found=f"{total:,}")
    yield from _endless(entry, at, total)
    first: dict[str, int] = {}
    for number, (where, pods) in enumerate(_pods_with_paths(entry, at)):
        if first.setdefault(pods.name, number) != number:
            yield repeated((*where, "name"), pods.name, (*at, "pods", first[pods.name]))
        if pods.gpu_memory and not pods.gpus:
            yield Problem(path=(*where, "gpu_memory"), expected="gpus too", found="none")
        if pods.min_count > pods.count:
            yield Problem(
                path=(*where, "min_count"), expected=f"at most count, {pods.count}", found=str(pods.min_count)
            )


def _endless(entry: WorkEntry, at: Path, pods: int) -> Iterator[Problem]:
    """Work that fails so often that it hardly ever reaches its next checkpoint, or its end."""
    if not entry.fails_every:
        return
    segment_ms = min(int(entry.checkpoint) or int(entry.runtime), int(entry.runtime))
    failures = segment_ms * pods / int(entry.fails_every)
    if failures > MOST_FAILURES:
        found = f"{failures:,.0f} failures on average in the {duration_text(segment_ms)} that it must run without one"
        expected = f"at most {MOST_FAILURES}, or it may never end"
        hint = "write a shorter checkpoint, or a longer fails_every"
        yield Problem(path=(*at, "fails_every"), expected=expected, found=found, hint=hint)


def _unknown_levels(policy: PolicyEntry, work: Numbered[WorkEntry]) -> Iterator[Problem]:
    """Levels that no topology has: such work would never start."""
    known = sorted({level for topology in policy.topologies for level in topology.levels})
    for number, entry in work if known else ():
        for where, pods in _pods_with_paths(entry, ("work", number)):
            for key, level in _levels_of(pods.topology):
                if level not in known:
                    yield unknown_name((*where, "topology", *key), "level", level, known)


def _levels_of(entry: TopologyRequestEntry) -> Iterator[tuple[Path, str]]:
    """Every level that is named, and where."""
    named: list[tuple[Path, str]] = [(("required",), entry.required), (("preferred",), entry.preferred)]
    named += [(("slices", number, "level"), rule.level) for number, rule in enumerate(entry.slices)]
    if entry.spread is not UNSET:
        named.append((("spread", "level"), entry.spread.level))
    return ((key, level) for key, level in named if level)


def _pods_with_paths(entry: WorkEntry, at: Path) -> Iterator[tuple[Path, PodsEntry]]:
    for number, pods in enumerate(entry.pod_entries()):
        yield (*at, "pods", number) if isinstance(entry.pods, list) else (*at, "pods"), pods


def _policy_errors(policy: PolicyEntry) -> Iterator[Problem]:
    limits = full_order(policy).limits
    if any(limit <= before for before, limit in pairwise(limits)):
        found = ", ".join(map(str, limits))
        yield Problem(path=("policy", "order", "limits"), expected="limits that rise", found=found)


def _twin_errors(document: ConfigDocument | None) -> Iterator[Problem]:
    if document is not None and document.twin.admission_fails >= WHOLE_MILLI:
        yield Problem(path=("twin", "admission_fails"), expected="less than 1: else nothing ever starts", found="1")


def _idle_keys(document: ConfigDocument) -> Iterator[Problem]:
    """Keys that do nothing where they stand."""
    order, placement = full_order(document.policy), full_placement(document.policy)
    if order.strict and order.kind is not OrderKind.FIFO:
        yield no_effect(("policy", "order", "strict"), "kind is fifo")
    if int(order.reserve_after) != OrderRule().reserve_after_ms and order.kind is not OrderKind.FIFO:
        yield no_effect(("policy", "order", "reserve_after"), "kind is fifo")
    if order.without_estimate != OrderRule().without_estimate and order.kind not in BY_ESTIMATE:
        yield no_effect(("policy", "order", "without_estimate"), "kind is srtf or srsf")
    if order.limits != OrderRule().las_limits_gpu_s and order.kind is not OrderKind.LAS:
        yield no_effect(("policy", "order", "limits"), "kind is las")
    if placement.seed and placement.kind is not PlacementKind.RANDOM:
        yield no_effect(("policy", "placement", "seed"), "kind is random")
    for number, pool in enumerate(document.cluster.pools):
        if pool.shape.gpu and not pool.shape.gpus:
            yield no_effect(("cluster", "pools", number, "shape", "gpu"), "gpus is more than 0")
    yield from _idle_work_keys(document)


def _unknown_runtimes(document: ConfigDocument) -> Iterator[Problem]:
    """Work without an estimate, under an order that needs one."""
    order = full_order(document.policy)
    unknown = sum(entry.copies for entry in document.work if entry.estimate is UNSET)
    if not unknown or order.kind not in BY_ESTIMATE or document.policy.queues:
        return
    becomes = "go last" if order.without_estimate is WithoutEstimate.LAST else "never start"
    found = f"{order.kind} goes by estimates: {unknown:,} of {sum(entry.copies for entry in document.work):,} workloads"
    hint = "write an estimate of their runtime"
    yield Problem(path=("work",), found=f"{found} have none and {becomes}", hint=hint, severity=Severity.WARNING)


def _idle_work_keys(document: ConfigDocument) -> Iterator[Problem]:
    for number, entry in enumerate(document.work):
        if entry.every and entry.copies == 1:
            yield no_effect(("work", number, "every"), "copies is more than 1")
        for where, pods in _pods_with_paths(entry, ("work", number)):
            if pods.models and not pods.gpus:
                yield no_effect((*where, "models"), "gpus is more than 0")
            if pods.min_count and not document.policy.queues:
                yield no_effect((*where, "min_count"), "there are queues")
            if pods.topology != TopologyRequestEntry() and not document.policy.topologies:
                yield no_effect((*where, "topology"), "a flavor of its queue has a topology")


def _hosting(document: ConfigDocument) -> Iterator[Problem]:
    """Pods that no pool can host, and sets of them that all pools together cannot."""
    pools, asked = document.cluster.pools, _kinds_of_pods(document)
    if not pools or len(pools) * len(asked) > MOST_COMPARISONS:
        return
    examples = [next(pool_nodes(pool)) for pool in pools]
    for pods, places in asked.items():
        rooms = [room(node, pods) for node in examples]
        if any(rooms):
            total = sum(pool.count * there for pool, there in zip(pools, rooms, strict=True))
            found = f"these pods start together, and the empty cluster holds only {total:,} of them"
        else:
            obstacles = [
                f"in {pool.name} it {obstacle(node, pods)}" for pool, node in zip(pools, examples, strict=True)
            ]
            more = (
                f"; and {len(obstacles) - MOST_POOLS_LISTED} more pools" if len(obstacles) > MOST_POOLS_LISTED else ""
            )
            total, found = 0, "no pool can host such a pod: " + "; ".join(obstacles[:MOST_POOLS_LISTED]) + more
        for where, count in places:
            if count > total:
                yield Problem(path=where, found=found, severity=Severity.WARNING)


def _kinds_of_pods(document: ConfigDocument) -> dict[PodSet, list[tuple[Path, int]]]:
    """Where each kind of pod is requested, and how many at once. Pods that name their node are left out."""
    asked: dict[PodSet, list[tuple[Path, int]]] = {}
    for number, entry in enumerate(document.work):
        for where, pods in _pods_with_paths(entry, ("work", number)):
            if HOST_LABEL not in pods.selector:
                kind = pod_set(pods)
                key = PodSet(request=kind.request, gpu=kind.gpu, selector=kind.selector, tolerations=kind.tolerations)
                asked.setdefault(key, []).append((where, pods.count))
    return asked
