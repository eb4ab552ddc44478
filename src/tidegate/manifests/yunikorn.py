"""YuniKorn's queues.yaml: partitions with a tree of queues, guaranteed and max."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, FieldSchema, check_fields, schema
from tidegate.manifests.other_queues import OtherQueue
from tidegate.manifests.quantity import counted

#: How deep queues may nest.
MOST_DEPTH = 32

_LIMITS = {"limits": "limits of users and groups are not counted", "maxapplications": "work is not counted by number"}
_QUEUE = schema(
    "name",
    idle="parent adminacl submitacl",
    unmodelled={**_LIMITS, "childtemplate": "queues are not made while running"},
    resources=schema(guaranteed=ANYTHING, max=ANYTHING),
    properties=ANYTHING,
    queues=ANYTHING,  # reviewed one by one, as they nest
)
_PARTITION = schema(
    "name",
    idle="statedumpfilepath",
    unmodelled={
        **_LIMITS,
        "placementrules": "work goes to the queue that it names",
        "nodesortpolicy": "which node is taken is the placement's matter",
        "preemption": "what was lent is taken back",
    },
    queues=ANYTHING,
)
FILE = schema("partitions checksum")

_PROPERTIES = {
    "priority.policy": "YuniKorn's priority fences have no counterpart",
    "priority.offset": "YuniKorn's priority offsets have no counterpart; queues keep equal rank",
    "preemption.policy": "YuniKorn's preemption fences have no counterpart",
    "preemption.delay": "what was lent is taken back at once",
    "application.sort.priority": "work goes by its priority",
}
_SORTS = ("fifo", "fair", "stateaware")


def is_queues_file(value: object) -> bool:
    """Say whether a document is a queues.yaml."""
    return isinstance(value, dict) and "partitions" in value and "kind" not in value


def read_queues_file(item: Item) -> list[OtherQueue]:
    """Read the queues of all partitions; with several, the name of each stands before its queues'."""
    check_fields(item, FILE)
    partitions = item.items("partitions")
    found: list[OtherQueue] = []
    for partition in partitions:
        check_fields(partition, _PARTITION)
        name = partition.text("name", "default")
        prefix = f"[{name}]" if len(partitions) > 1 else ""
        found += _queues(partition, "", prefix, 0)
    return found


def _queues(item: Item, parent: str, prefix: str, depth: int) -> Iterator[OtherQueue]:
    if depth > MOST_DEPTH:
        item.report("queues", expected=f"at most {MOST_DEPTH} levels", found="more")
        return
    for queue in item.items("queues"):
        check_fields(queue, _QUEUE)
        branch = _branch(queue, parent, prefix)
        yield branch
        yield from _queues(queue, branch.name, prefix, depth + 1)


def _branch(item: Item, parent: str, prefix: str) -> OtherQueue:
    _review_properties(item)
    name = item.needed_text("name").lower()
    resources = item.mapping("resources")
    owns, most = _amounts(resources.mapping("guaranteed")), _amounts(resources.mapping("max"))
    for resource, amount in sorted(owns.items()):
        if amount > most.get(resource, amount):
            resources.report("guaranteed", found=f"is more {resource} than max", hint="raise max or lower guaranteed")
    return OtherQueue(
        name=f"{parent}.{name}" if parent else f"{prefix}{name}",
        parent=parent,
        owns=owns,
        most=most,
        keeps={},
        item=item,
    )


def _amounts(item: Item) -> dict[str, int]:
    """Amounts by our names: YuniKorn calls CPU vcore."""
    found = {name: item.quantity(name) for name in item.value}
    named = {("cpu" if name == "vcore" else name): amount for name, amount in found.items()}
    return {name: counted(name, amount) for name, amount in named.items() if amount is not None}


def _review_properties(item: Item) -> None:
    properties = item.pairs("properties")
    inner = item.mapping("properties")
    for name in properties:
        if name in _PROPERTIES:
            inner.warn(name, f"has no effect here: {_PROPERTIES[name]}")
        elif name != "application.sort.policy":
            inner.warn(name, "has no effect here: it is not a property that is read")
    order = properties.get("application.sort.policy", "fifo")
    if order not in _SORTS:
        inner.refuse("application.sort.policy", f"one of {', '.join(_SORTS)}", order)
    elif order != "fifo":
        inner.warn("application.sort.policy", f"{order} has no counterpart: work goes by priority, then by time")


#: What a queues.yaml may have, for the documentation.
FORMS: dict[str, FieldSchema] = {"queues.yaml": FILE, "partition": _PARTITION, "queue": _QUEUE}
