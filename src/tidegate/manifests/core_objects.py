"""Reads Kubernetes' own objects around work: Node, Namespace, PriorityClass, LimitRange and RuntimeClass."""

from __future__ import annotations

from fractions import Fraction

from tidegate.manifests.cluster_defaults import PriorityClass, ResourceLimits
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, merged, schema
from tidegate.manifests.object_meta import object_schema, read_meta
from tidegate.manifests.quantity import Amounts, charged, largest, offered
from tidegate.manifests.selectors import TAINT, read_taints
from tidegate.manifests.workload_status import read_conditions
from tidegate.model.hardware import MOST_DEVICES, Node, NodeShape, is_device
from tidegate.model.queues import Namespace
from tidegate.model.struct import labels

NODE = object_schema(
    schema("unschedulable", idle="configSource externalID podCIDR podCIDRs providerID", taints=TAINT),
    schema(
        idle="addresses capacity config daemonEndpoints declaredFeatures features images nodeInfo phase "
        "runtimeHandlers volumesAttached volumesInUse",
        allocatable=ANYTHING,
        conditions=schema("type status reason", idle="message lastHeartbeatTime lastTransitionTime"),
    ),
)
NAMESPACE = object_schema(schema(idle="finalizers"))
PRIORITY = object_schema(top="value globalDefault", idle="description preemptionPolicy")
_LIMITS = schema(
    "type",
    unmodelled={"maxLimitRequestRatio": "how far a limit may be above a request is not checked"},
    default=ANYTHING,
    defaultRequest=ANYTHING,
    max=ANYTHING,
    min=ANYTHING,
)
LIMIT_RANGE = object_schema(schema(limits=_LIMITS))
RUNTIME_CLASS = merged(
    object_schema(idle="handler"),
    schema(
        overhead=schema(podFixed=ANYTHING),
        unmodelled={"scheduling": "what it adds to pods is not added; write it in the pods"},
    ),
)

_PRODUCT = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
_MEMORY = ("nvidia.com/gpu.memory",)
_REPLICAS = "nvidia.com/gpu.replicas"
_INSTANCE = "node.kubernetes.io/instance-type"

#: Labels that say what a node has.
SHAPE_LABELS = (*_PRODUCT, *_MEMORY, _REPLICAS, _INSTANCE)


def read_node(item: Item) -> Node:
    """Read a Node: what it has for pods, exactly and in the units of its shape."""
    meta, spec, status = read_meta(item), item.mapping("spec"), item.mapping("status")
    amounts = status.amounts("allocatable")
    if "allocatable" not in status:
        status.warn("allocatable", "is not there: the node has no room", "write what the node has for pods")
    return Node(
        name=meta.name,
        shape=_shape(item, meta.labels, amounts),
        labels=labels(meta.labels),
        taints=read_taints(spec.items("taints")),
        ready=_is_ready(status),
        unschedulable=spec.flag("unschedulable"),
        allocatable=charged(amounts),
    )


def _is_ready(status: Item) -> bool:
    """Whether the kubelet says so; a node that was written by hand, without any conditions, is."""
    if "conditions" not in status:
        status.note("conditions", "are not there: the node is taken to be ready")
        return True
    ready = read_conditions(status).get("Ready")
    return ready is not None and ready.holds


def _shape(item: Item, found: dict[str, str], amounts: Amounts) -> NodeShape:
    gpus = {name: amount for name, amount in amounts.items() if is_device(name)}
    rest = {name: amount for name, amount in amounts.items() if name not in gpus}
    count = int(sum(gpus.values(), Fraction()))
    inner = item.mapping("metadata").mapping("labels")
    if count > MOST_DEVICES:
        item.mapping("status").warn("allocatable", f"has {count} GPUs, of which {MOST_DEVICES} can be used")
    if found.get(_REPLICAS, "1") not in ("", "0", "1"):
        inner.warn(_REPLICAS, "GPUs are shared by time: each replica is counted as a device of its own")
    return NodeShape(
        name=found.get(_INSTANCE, ""),
        gpu_model=_first(found, _PRODUCT),
        gpu_count=min(count, MOST_DEVICES),
        gpu_memory_mib=_memory_mib(inner, _first(found, _MEMORY)),
        capacity=offered(rest),
    )


def _first(found: dict[str, str], keys: tuple[str, ...]) -> str:
    return next((found[key] for key in keys if found.get(key)), "")


def _memory_mib(item: Item, written: str) -> int:
    if not written:
        return 0
    if not written.isdecimal() or len(written) > 9:
        item.warn(_MEMORY[0], "is not a number of MiB: the memory of its GPUs is not known")
        return 0
    return int(written)


def read_namespace(item: Item) -> Namespace:
    """Read a Namespace; its name is a label, too."""
    meta = read_meta(item)
    return named_namespace(meta.name, meta.labels)


def named_namespace(name: str, more: dict[str, str] | None = None) -> Namespace:
    """A namespace with the label that every one has, and more."""
    return Namespace(name=name, labels=labels({**(more or {}), "kubernetes.io/metadata.name": name}))


def read_priority_class(item: Item) -> PriorityClass:
    """Read a PriorityClass, of Kubernetes or of Kueue."""
    if "value" not in item:
        item.report("value", found="required field is missing")
    value = item.whole("value", least=-(2**31))
    return PriorityClass(read_meta(item).name, value, item.flag("globalDefault"))


def read_limit_range(item: Item) -> dict[str, ResourceLimits]:
    """Read what a LimitRange says about containers and pods, by type."""
    found: dict[str, ResourceLimits] = {}
    for limits in item.mapping("spec").items("limits"):
        kind = limits.needed_text("type")
        bounds = ResourceLimits(
            requests=limits.amounts("defaultRequest"),
            limits=limits.amounts("default"),
            least=limits.amounts("min"),
            most=limits.amounts("max"),
        )
        found[kind] = joined(found[kind], bounds) if kind in found else bounds
    return found


def joined(first: ResourceLimits, second: ResourceLimits) -> ResourceLimits:
    """Both together: the narrower bounds, and the first of the defaults."""
    tighter = {name: min(amount, first.most.get(name, amount)) for name, amount in second.most.items()}
    return ResourceLimits(
        requests={**second.requests, **first.requests},
        limits={**second.limits, **first.limits},
        least=largest(first.least, second.least),
        most={**first.most, **tighter},
    )


def read_overhead(item: Item) -> Amounts:
    """Read the overhead of a RuntimeClass."""
    return item.mapping("overhead").amounts("podFixed")
