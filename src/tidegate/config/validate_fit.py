"""Checks the queues of a tidegate.yaml against its work and its machines.

Work that names no queue or could never have its quota, and quota that no machine backs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.config.convert import full_order, pod_set, pool_nodes
from tidegate.config.convert_queues import build_queue_setup
from tidegate.config.quantities import CpuQuota, GpuQuota, MemoryQuota
from tidegate.config.schema import ConfigDocument, PolicyEntry
from tidegate.config.schema_queues import LocalQueueEntry
from tidegate.config.schema_work import PodsEntry, WorkEntry
from tidegate.config.validate_queues import MOST_LISTED, no_effect, unknown_name
from tidegate.model.policy import OrderKind
from tidegate.model.problem import Path, Problem, Severity, shortened
from tidegate.model.queues import QueueSetup, charge_of
from tidegate.model.quota_limits import FlavorResource, highest_usable, supply_of, unbacked_quotas

_DEFAULT_QUEUE = "default"
_MIB = 1 << 20


def queue_of_name(policy: PolicyEntry) -> dict[str, str]:
    """The queue behind every name that work may submit to."""
    names = {queue.name: queue.name for queue in policy.queues}
    for queue in policy.queues:
        for entrance in queue.local_queues:
            names.setdefault(entrance.name if isinstance(entrance, LocalQueueEntry) else entrance, queue.name)
    return names


def unknown_queues(policy: PolicyEntry, work: Sequence[tuple[int, WorkEntry]]) -> Iterator[Problem]:
    """Work that names a queue that is not there, or names none where none is the default."""
    names = queue_of_name(policy)
    for number, entry in work if names else ():
        if entry.queue in names:
            continue
        at: Path = ("work", number, "queue")
        if entry.queue == _DEFAULT_QUEUE:
            known = f": {', '.join(sorted(names))}" if len(names) <= MOST_LISTED else ""
            yield Problem(path=at, expected=f"one of the queues{known}", found=f"no queue called {_DEFAULT_QUEUE}")
        else:
            yield unknown_name(at, "queue", entry.queue, list(names))


def queue_warnings(document: ConfigDocument) -> Iterator[Problem]:
    """Quota that machines do not back, work that is more than its queue can ever have, keys that queues overrule."""
    policy = document.policy
    if not policy.queues:
        return
    shares = build_queue_setup(policy)
    order = full_order(policy)
    if order.kind is not OrderKind.FIFO or order.strict:
        yield no_effect(
            ("policy", "order"), "there are no queues: they order by priority and time, strict each for itself"
        )
    if not policy.waits:
        yield no_effect(("policy", "waits"), "there are no queues: work in a queue waits")
    yield from _unbacked(document, shares)
    yield from _above_quota(document, shares)


def _unbacked(document: ConfigDocument, shares: QueueSetup) -> Iterator[Problem]:
    if not document.cluster.pools:
        return
    supply = supply_of(shares, [(next(pool_nodes(pool)), pool.count) for pool in document.cluster.pools])
    numbers = {queue.name: number for number, queue in enumerate(document.policy.queues)}
    for excess in unbacked_quotas(shares, supply):
        quota, there = amount_text(excess.lot[1], excess.quota), amount_text(excess.lot[1], excess.supply)
        of = f" of flavor {excess.lot[0]}" if len(shares.flavors) > 1 else ""
        at: Path = ("policy", "queues", numbers[excess.owner]) if excess.owner else ("policy", "queues")
        owns = f"owns {quota}{of}" if excess.owner else f"own {quota}{of} together"
        yield Problem(path=at, found=f"{owns}, and the machines have {there}", severity=Severity.WARNING)


def _above_quota(document: ConfigDocument, shares: QueueSetup) -> Iterator[Problem]:
    most, names = highest_usable(shares), queue_of_name(document.policy)
    for number, entry in enumerate(document.work):
        queue = names.get(entry.queue, "")
        for pods in entry.pod_entries():
            for resource, asked in _least(pods):
                can = _most(most.get(queue, {}), resource)
                if can is not None and asked > can:
                    text = f"asks for {amount_text(resource, asked)}, and its queue {shortened(queue)} can have at most"
                    found = f"{text} {amount_text(resource, can)}, borrowing included: it will wait for ever"
                    yield Problem(path=("work", number, "pods"), found=found, severity=Severity.WARNING)


def _least(pods: PodsEntry) -> list[tuple[str, int]]:
    """What the smallest number of pods that may start asks for together."""
    kind = pod_set(pods)
    count = kind.min_count if 0 < kind.min_count < kind.count else kind.count
    return [(resource, count * amount) for resource, amount in charge_of(kind)]


def _most(lots: dict[FlavorResource, int], resource: str) -> int | None:
    """The most of a resource in one flavor; None if the queue does not count it."""
    return max((most for lot, most in lots.items() if lot[1] == resource), default=None)


def amount_text(resource: str, amount: int) -> str:
    """Say an amount that quota counts."""
    if resource == "gpu":
        text = GpuQuota(amount).text()
        return f"{text} GPU" + ("" if text == "1" else "s")
    if resource == "cpu":
        return f"{CpuQuota(amount).text()} CPU"
    return f"{MemoryQuota(amount // _MIB).text()} of memory" if resource == "memory" else f"{amount:,} {resource}"
