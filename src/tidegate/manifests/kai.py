"""KAI's Queue: quota, limit and weight over quota, of GPUs, CPU and memory. A limit of -1 is none."""

from __future__ import annotations

from fractions import Fraction

from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import schema
from tidegate.manifests.kueue_objects import read_duration_ms
from tidegate.manifests.object_meta import object_schema, read_meta
from tidegate.manifests.other_queues import OtherQueue
from tidegate.manifests.quantity import rounded_up
from tidegate.model.queues import UNLIMITED, WHOLE_WEIGHT
from tidegate.model.units import parse_quantity

_AMOUNTS = schema("quota limit overQuotaWeight")
QUEUE = object_schema(
    schema(
        "parentQueue preemptMinRuntime reclaimMinRuntime",
        idle="displayName",
        unmodelled={"priority": "KAI's queue priority has no counterpart; queues keep equal rank"},
        resources=schema(gpu=_AMOUNTS, cpu=_AMOUNTS, memory=_AMOUNTS),
    )
)

#: One of KAI's units in the unit that quota is counted in: GPUs in thousandths, CPU in milli-cores, memory in MB.
_UNITS = {"gpu": Fraction(1000), "cpu": Fraction(1), "memory": Fraction(10**6)}


def read_kai_queue(item: Item) -> OtherQueue:
    """Read a Queue of KAI; what it does not name is zero, as KAI reads it."""
    spec = item.mapping("spec")
    inner = spec.mapping("resources")
    owns: dict[str, int] = {}
    most: dict[str, int] = {}
    for name, unit in _UNITS.items():
        part = inner.mapping(name)
        quota, limit = _number(part, "quota"), _number(part, "limit")
        if limit == 0:
            part.warn("limit", "is 0 or not there: the queue may use none of it", "write -1 for no limit")
        owns[name] = UNLIMITED if quota < 0 else rounded_up(quota * unit)
        if limit >= 0:
            most[name] = rounded_up(limit * unit)
            owns[name] = min(owns[name], most[name])
    return OtherQueue(
        name=read_meta(item).name,
        parent=spec.text("parentQueue"),
        owns=owns,
        most=most,
        keeps={},
        item=spec,
        weight_milli=_weight(inner),
        protected_ms=_protected_ms(spec),
    )


def _number(item: Item, key: str) -> Fraction:
    value = item.get(key)
    if value is None:
        return Fraction()
    if isinstance(value, bool) or not isinstance(value, int | float):
        item.refuse(key, "a number, or -1 for no limit", value)
        return Fraction()
    return parse_quantity(value)


def _weight(inner: Item) -> int:
    """The weight of GPUs: a branch has one for all its resources."""
    weights = {name: _number(inner.mapping(name), "overQuotaWeight") for name in _UNITS if name in inner}
    weight = weights.get("gpu", Fraction(1))
    others = [name for name, found in weights.items() if found != weight]
    if others:
        found = f"differs for {' and '.join(others)}: that of GPUs counts for all"
        inner.mapping("gpu").warn("overQuotaWeight", found)
    return rounded_up(max(weight, Fraction()) * WHOLE_WEIGHT)


def _protected_ms(spec: Item) -> int:
    """The runtime that work is safe for: the longer of the two, as here there is one."""
    preempt, reclaim = read_duration_ms(spec, "preemptMinRuntime"), read_duration_ms(spec, "reclaimMinRuntime")
    if preempt != reclaim:
        longer = "preemptMinRuntime" if preempt > reclaim else "reclaimMinRuntime"
        spec.warn(longer, "counts for both: work is safe from its own queue and from others for the same time")
    return max(preempt, reclaim)
