"""Volcano's Queue: deserved, capability, guarantee and weight."""

from __future__ import annotations

from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, Unsupported, schema
from tidegate.manifests.object_meta import object_schema, read_meta
from tidegate.manifests.other_queues import OtherQueue
from tidegate.manifests.quantity import counted
from tidegate.model.queues import WHOLE_WEIGHT, StopPolicy

QUEUE = object_schema(
    schema(
        "weight parent reclaimable dequeueStrategy",
        idle="type",
        unmodelled={
            "priority": "Volcano's queue priority has no counterpart; queues keep equal rank",
            "affinity": "Volcano's node groups have no counterpart; its work may go to any node",
        },
        refused={"extendClusters": Unsupported("work sent to other clusters")},
        deserved=ANYTHING,
        capability=ANYTHING,
        guarantee=schema(resource=ANYTHING),
    ),
    schema("state", idle="allocated completed inqueue pending reservation running unknown"),
)

_ROOT = "root"


def read_volcano_queue(item: Item) -> OtherQueue:
    """Read a Queue of Volcano; the one called root has nothing above it."""
    name, spec = read_meta(item).name, item.mapping("spec")
    parent = spec.text("parent", _ROOT)
    owns, most = _amounts(spec, "deserved"), _amounts(spec, "capability")
    keeps = _amounts(spec.mapping("guarantee"), "resource")
    _review(spec, owns, most, keeps)
    return OtherQueue(
        name=name,
        parent="" if name == _ROOT else parent,
        owns={**keeps, **owns},
        most=most,
        keeps=keeps,
        item=spec,
        weight_milli=spec.whole("weight", 1, least=1) * WHOLE_WEIGHT,
        strict_fifo=_is_fifo(spec),
        stop=_stop(item),
    )


def _amounts(item: Item, key: str) -> dict[str, int]:
    return {name: counted(name, amount) for name, amount in item.amounts(key).items()}


def _review(spec: Item, owns: dict[str, int], most: dict[str, int], keeps: dict[str, int]) -> None:
    if not owns:
        spec.note("deserved", "is not there: the queue owns nothing, and shares what is left by its weight")
    if not spec.flag("reclaimable", default=True):
        spec.warn("reclaimable", "false has no counterpart: what the queue borrowed may be taken back")
    for name, amount in sorted(owns.items()):
        if amount > most.get(name, amount):
            spec.report(
                "deserved", found=f"is more {name} than the capability", hint="raise capability or lower deserved"
            )
    for name, amount in sorted(keeps.items()):
        if amount > owns.get(name, amount):
            spec.report("guarantee", found=f"is more {name} than deserved", hint="raise deserved or lower guarantee")


def _is_fifo(spec: Item) -> bool:
    strategy = spec.text("dequeueStrategy", "traverse")
    if strategy not in ("fifo", "traverse"):
        spec.refuse("dequeueStrategy", "one of fifo, traverse", strategy)
    return strategy == "fifo"


def _stop(item: Item) -> StopPolicy:
    state = item.mapping("status").text("state")
    return StopPolicy.HOLD if state in ("Closed", "Closing") else StopPolicy.NONE
