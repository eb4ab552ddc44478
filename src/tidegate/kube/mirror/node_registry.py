"""The node registry: nodes by number and name, and what unmanaged pods hold of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidegate.kube.mirror.fact_builder import FactBuilder
from tidegate.kube.mirror.job_patch import HOST
from tidegate.kube.mirror.pod_spec_cache import PodShape
from tidegate.kube.mirror.pods import UnmanagedPod
from tidegate.model.decisions import NOBODY
from tidegate.model.hardware import MOST_DEVICES, Node, Taint, TaintEffect
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.struct import Labels, Resources, resources
from tidegate.model.work import Toleration


class _Held(NamedTuple):
    """What pods hold of a node in total."""

    request: Resources
    charge: Resources
    pods: int


class NodeRegistry:
    """The nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, Node]] = {}  # by uid
        self._plain: dict[str, Node] = {}  # by uid: without devices that are claimed (DRA)
        self._numbers: dict[str, int] = {}  # by name
        self._names: list[str] = []  # by number
        self._labels: dict[int, Labels] = {}  # by number
        self._devices: dict[str, dict[str, int]] = {}  # by name: devices that are claimed (DRA)
        self._unmanaged: dict[str, UnmanagedPod] = {}  # by uid
        self._shapes: dict[
            str, dict[PodShape, int]
        ] = {}  # by name of the node: how many unmanaged pods of each shape it has
        self._dirty: dict[str, None] = {}  # names of nodes whose unmanaged pods changed
        self._taints: dict[int, tuple[Taint, ...]] = {}  # by number: NoSchedule and NoExecute
        self._unschedulable: set[int] = set()  # numbers of nodes that are cordoned or not ready
        self._closed: set[int] = set()  # numbers of nodes that may reject pods they accepted before
        self._missed: set[str] = set()  # names of nodes that do not exist, and may have pods
        self._returned: set[str] = set()  # names of nodes that exist now, and had pods before

    def see(self, uid: str, node: Node | None, facts: FactBuilder) -> None:
        """Handle an update of a node; None: it was deleted."""
        if node is not None:
            self._plain[uid] = node
            node = self._with_devices(node)
        known = self._nodes.get(uid)
        if node is None:
            if known is not None:
                self._remove(uid, *known, facts)
        elif known is None:
            number = len(self._names)
            self._names.append(node.name)
            if node.name in self._missed or node.name in self._numbers:
                self._missed.discard(node.name)
                self._returned.add(node.name)
            self._nodes[uid] = (number, node)
            self._numbers[node.name] = number
            self._labels[number] = node.labels
            self._note_open(number, node)
            facts.nodes.append((number, node, False))
            self._dirty[node.name] = None
        elif known[1] != node:
            self._nodes[uid] = (known[0], node)
            if _is_closer(node, known[1]):
                self._closed.add(known[0])
            self._labels[known[0]] = node.labels
            self._note_open(known[0], node)
            facts.nodes.append((known[0], node, True))

    def _note_open(self, number: int, node: Node) -> None:
        (self._unschedulable.discard if node.ready and not node.unschedulable else self._unschedulable.add)(number)
        self._taints[number] = tuple(one for one in node.taints if one.effect is not TaintEffect.PREFER_NO_SCHEDULE)

    def _remove(self, uid: str, number: int, node: Node, facts: FactBuilder) -> None:
        del self._nodes[uid], self._plain[uid]
        del self._labels[number], self._taints[number]
        self._unschedulable.discard(number)
        self._closed.add(number)
        if self._numbers.get(node.name) == number:  # else another node has this name already
            del self._numbers[node.name]
            self._missed.add(node.name)
        facts.removed_nodes.append(number)

    def see_devices(self, devices: dict[str, dict[str, int]], facts: FactBuilder) -> None:
        """Update the claimable devices of nodes (DRA), by the resource that they count as."""
        if devices != self._devices:
            self._devices = devices
            for uid, node in list(self._plain.items()):
                self.see(uid, node, facts)

    def _with_devices(self, node: Node) -> Node:
        """The node with its claimable devices; a count by a device plugin takes precedence."""
        had = self._devices.get(node.name)
        if not had or node.shape.gpu_count:
            return node
        replace = msgspec.structs.replace
        shape = replace(node.shape, gpu_count=min(sum(had.values()), MOST_DEVICES))
        return replace(node, shape=shape, allocatable=resources({**dict(node.allocatable or ()), **had}))

    def take_closed(self) -> set[int]:
        """Numbers of the nodes that may reject pods they accepted before, since the last call."""
        closed, self._closed = self._closed, set()
        return closed

    def take_returned(self) -> set[str]:
        """Names of nodes that came since the last time and may have pods already: they had been there before."""
        returned, self._returned = self._returned, set()
        return returned

    def is_open(self, number: int) -> bool:
        """Whether a node exists, is ready, and is not cordoned."""
        return number in self._labels and number not in self._unschedulable

    def takes(self, number: int, tolerations: Iterable[Toleration]) -> bool:
        """Whether a node accepts new pods with these tolerations."""
        repels = self._taints.get(number, ())
        return self.is_open(number) and all(any(one.tolerates(taint) for one in tolerations) for taint in repels)

    def number_of(self, name: str) -> int:
        """The number of the node of that name; NOBODY if there is none."""
        return self._numbers.get(name, NOBODY)

    def number_for(self, name: str) -> int:
        """The number of the node that a pod is on; if there is none, its pods are found once there is."""
        number = self.number_of(name)
        if number == NOBODY:
            self._missed.add(name)
        return number

    def name_of(self, number: int) -> str:
        """The name of a node."""
        return self._names[number]

    def host_of(self, number: int) -> str:
        """The hostname label of a node; empty if it has none."""
        return dict(self.labels_of(number)).get(HOST, "")

    def labels_of(self, number: int) -> Labels:
        """The labels of a node; none if it was deleted."""
        return self._labels.get(number, ())

    def __len__(self) -> int:
        return len(self._nodes)

    # -- unmanaged pods ---------------------------------------------------------------------------------------

    def count_unmanaged(self, uid: str, pod: UnmanagedPod | None) -> None:
        """Count an unmanaged pod, or what a pod takes beyond its request; None: it does not count any more."""
        counted = self._unmanaged.get(uid)
        if counted == pod:
            return
        if counted is not None:
            self._add(self._unmanaged.pop(uid), -1)
        if pod is not None:
            self._unmanaged[uid] = pod
            self._add(pod, 1)

    @property
    def unmanaged(self) -> int:
        """How many unmanaged pods have a node."""
        return sum(pod.shape.pods for pod in self._unmanaged.values())

    def _add(self, pod: UnmanagedPod, sign: int) -> None:
        shapes = self._shapes.setdefault(pod.node, {})
        shapes[pod.shape] = shapes.get(pod.shape, 0) + sign
        if not shapes[pod.shape]:
            del shapes[pod.shape]
        self._dirty[pod.node] = None

    def report_unmanaged(self, facts: FactBuilder) -> None:
        """Report what unmanaged pods hold of nodes where that changed; nodes with equal pods share one sum."""
        known: dict[tuple[tuple[PodShape, int], ...], _Held] = {}
        for name in self._dirty:
            number, shapes = self.number_of(name), self._shapes.get(name)
            if number == NOBODY or shapes is None:
                continue
            key = tuple(shapes.items())
            held = known.get(key)
            if held is None:
                held = known[key] = _sum(shapes)
            facts.unmanaged.append(
                (number, UnmanagedPods(node=name, request=held.request, charge=held.charge, pods=held.pods))
            )
            if not shapes:
                del self._shapes[name]
        self._dirty = {}


def _sum(shapes: dict[PodShape, int]) -> _Held:
    request, charge = Counter[str](), Counter[str]()
    for shape, pods in shapes.items():
        for name, amount in shape.request:
            request[name] += pods * amount
        for name, amount in shape.charge:
            charge[name] += pods * amount
    return _Held(resources(request), resources(charge), sum(pods * shape.pods for shape, pods in shapes.items()))


def _is_closer(node: Node, before: Node) -> bool:
    """Whether a node may reject pods that it accepted before."""
    shut = (node.unschedulable, not node.ready) != (before.unschedulable, not before.ready)
    return shut or node.taints != before.taints or node.labels != before.labels
