"""Names and units of quota: flavor-resources, queues and flavors by name, amounts in units that people use.

The number of a flavor-resource in the journal is its index in `Shares.flavor_resources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidegate.model.queues import QueueSetup, charge_of
from tidegate.model.work import Work

_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_RESOURCES: Mapping[str, frozenset[str]] = MappingProxyType({})

#: Units of memory, the largest first.
_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))

#: What thousandths of a resource are counted in.
_MILLI = {"cpu": ("core", "cores"), "gpu": ("GPU", "GPUs")}


class FlavorResourceName(NamedTuple):
    """One resource in one flavor."""

    flavor: str
    resource: str


class QuotaNames(NamedTuple):
    """The names behind the numbers that a policy's decisions speak of."""

    lots: tuple[FlavorResourceName, ...] = ()
    branches: tuple[str, ...] = ()  # queues and cohorts, by row
    options: tuple[str, ...] = ()  # flavors in the order that queues list them, by row
    queues: Mapping[str, str] = _NOTHING  # ClusterQueue by LocalQueue
    covered: Mapping[str, frozenset[str]] = _NO_RESOURCES  # resources that a ClusterQueue has quota for


def quota_names_of(shares: QueueSetup) -> QuotaNames:
    """The names of a policy, as the engine numbers them: cohorts, then queues, each by name."""
    cohorts = {queue.cohort for queue in shares.queues} | {cohort.parent for cohort in shares.cohorts}
    cohorts |= {cohort.name for cohort in shares.cohorts}
    queues = sorted(shares.queues, key=lambda queue: queue.name)
    return QuotaNames(
        lots=tuple(FlavorResourceName(*pair) for pair in shares.flavor_resources()),
        branches=(*sorted(cohorts - {""}), *(queue.name for queue in queues)),
        options=tuple(flavor for queue in queues for group in queue.groups for flavor in group.flavors),
        queues={entrance.id: entrance.queue for entrance in shares.entrances},
        covered={queue.name: frozenset(name for group in queue.groups for name in group.resources) for queue in queues},
    )


def queue_text(queue: str, names: QuotaNames) -> str:
    """Say a queue: "LocalQueue team-a/train of ClusterQueue research", or as the work names it."""
    return f"LocalQueue {queue} of ClusterQueue {names.queues[queue]}" if queue in names.queues else f"queue {queue}"


def undeclared_resources(work: Work, names: QuotaNames) -> list[str]:
    """Resources that work asks for and that its queue has no quota for."""
    covered = names.covered.get(names.queues.get(work.queue, work.queue))
    asked = dict.fromkeys(name for pod_set in work.pod_sets for name, amount in charge_of(pod_set) if amount)
    return [] if covered is None else [name for name in asked if name not in covered]


def lot_text(lot: FlavorResourceName) -> str:
    """Say a lot: "gpu of flavor spot"."""
    return f"{lot.resource} of flavor {lot.flavor}"


def amount_text(resource: str, amount: int) -> str:
    """Say an amount with its unit, exactly: "8 GPUs", "1.5 cores", "64Gi of memory", "3 nvidia.com/gpu"."""
    if resource in _MILLI:
        one, many = _MILLI[resource]
        return f"{_decimal(amount)} {one if amount == 1000 else many}"
    if resource == "memory":
        return f"{bytes_text(amount)} of memory"
    if resource == "pods":
        return f"{amount:,} {'pod' if amount == 1 else 'pods'}"
    return f"{amount:,} {resource}"


def number_text(resource: str, amount: int) -> str:
    """Say an amount without its unit, for tables: "8", "1.5", "64Gi"."""
    if resource in _MILLI:
        return _decimal(amount)
    return bytes_text(amount) if resource == "memory" else f"{amount:,}"


def share_text(lot: FlavorResourceName, amount: int) -> str:
    """Say an amount of a lot: "8 GPUs of flavor spot"."""
    return f"{amount_text(lot.resource, amount)} of flavor {lot.flavor}"


def bytes_text(amount: int) -> str:
    """Say bytes exactly, in the largest unit that takes at most three decimals."""
    for suffix, size in _BINARY:
        if abs(amount) >= size and amount * 1000 % size == 0:
            return f"{_decimal(amount * 1000 // size)}{suffix}"
    return f"{amount:,}"


def _decimal(milli: int) -> str:
    """Thousandths as a decimal number, without zeros at its end."""
    whole, rest = divmod(abs(milli), 1000)
    sign = "-" if milli < 0 else ""
    return f"{sign}{whole:,}" + (f".{rest:03d}".rstrip("0") if rest else "")
