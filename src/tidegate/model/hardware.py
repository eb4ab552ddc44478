"""Hardware: node shapes, topologies, taints and nodes."""

from __future__ import annotations

from enum import StrEnum

from tidegate.model.struct import Labels, Resources, Spec

#: Devices a node may have: one bit each in a device mask.
MOST_DEVICES = 62

#: Pods a node may hold: a kubelet runs hundreds. Products of it and of an amount stay within 64 bits.
MOST_POD_SLOTS = 1 << 20


#: Resources of Kubernetes that are whole GPUs, or what a device plugin offers as such.
DEVICES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu")
_INTEL = "gpu.intel.com/"
_NOT_DEVICES = ("monitoring", "millicores", "memory.max", "tiles")


def is_device(resource: str) -> bool:
    """Say whether a resource counts whole GPUs, of any vendor."""
    return resource in DEVICES or (resource.startswith(_INTEL) and not resource.endswith(_NOT_DEVICES))


class NodeShape(Spec, frozen=True):
    """What a machine of one kind has."""

    name: str
    gpu_model: str = ""
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    nvlink_group_size: int = 0  # GPUs that reach each other over NVLink; 0: unknown
    capacity: Resources = ()
    reserved: Resources = ()  # kept for the system, never given to work


class TopologyLevels(Spec, frozen=True):
    """Node labels from the widest domain to the narrowest."""

    name: str
    labels: tuple[str, ...]


class TaintEffect(StrEnum):
    """What a taint does to a pod that does not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(Spec, frozen=True):
    """A mark that keeps pods away unless they tolerate it."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


class Node(Spec, frozen=True):
    """One machine, as the world shows it."""

    name: str
    shape: NodeShape
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    allocatable: Resources | None = None  # exact, in the units that quota is counted in; None: as its shape says
