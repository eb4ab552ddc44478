"""Nodes by number and by name, and what pods that are not ours hold of them.

Must not know: workloads.
"""

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
from tidegate.model.spec import Labels, Resources, resources
from tidegate.model.standing import Foreign
from tidegate.model.work import Toleration


class _Held(NamedTuple):
    """What pods hold of a node together."""

    request: Resources
    charge: Resources
    pods: int


class NodeRegistry:
    """The nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, Node]] = {}  # by uid
        self._plain: dict[str, Node] = {}  # by uid: without devices that are had by claim
        self._numbers: dict[str, int] = {}  # by name
        self._names: list[str] = []  # by number
        self._labels: dict[int, Labels] = {}  # by number
        self._devices: dict[str, dict[str, int]] = {}  # by name: devices that are had by claim
        self._unmanaged: dict[str, UnmanagedPod] = {}  # by uid
        self._shapes: dict[str, dict[PodShape, int]] = {}  # by name of the node: how many of each shape it has
        self._stirred: dict[str, None] = {}  # names of nodes whose room changed
        self._taints: dict[int, tuple[Taint, ...]] = {}  # by number: those that keep pods away
        self._shut: set[int] = set()  # numbers of nodes that are cordoned or not ready
        self._closed: set[int] = set()  # numbers of nodes that take fewer pods than before
        self._missed: set[str] = set()  # names of nodes that are not there, and may have pods
        self._returned: set[str] = set()  # names of nodes that are there now, and had pods before

    def see(self, uid: str, node: Node | None, facts: FactBuilder) -> None:
        """A node is as it is now, or gone."""
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
            facts.node(number, node, changed=False)
            self._stirred[node.name] = None
        elif known[1] != node:
            self._nodes[uid] = (known[0], node)
            if _is_closer(node, known[1]):
                self._closed.add(known[0])
            self._labels[known[0]] = node.labels
            self._note_open(known[0], node)
            facts.node(known[0], node, changed=True)

    def _note_open(self, number: int, node: Node) -> None:
        (self._shut.discard if node.ready and not node.unschedulable else self._shut.add)(number)
        self._taints[number] = tuple(one for one in node.taints if one.effect is not TaintEffect.PREFER_NO_SCHEDULE)

    def _remove(self, uid: str, number: int, node: Node, facts: FactBuilder) -> None:
        del self._nodes[uid], self._plain[uid]
        del self._labels[number], self._taints[number]
        self._shut.discard(number)
        self._closed.add(number)
        if self._numbers.get(node.name) == number:  # else: another of the same name has come before
            del self._numbers[node.name]
            self._missed.add(node.name)
        facts.node_removed(number)

    def see_devices(self, devices: dict[str, dict[str, int]], facts: FactBuilder) -> None:
        """Nodes have these devices by claim, by the resource that they are counted as."""
        if devices != self._devices:
            self._devices = devices
            for uid, node in list(self._plain.items()):
                self.see(uid, node, facts)

    def _with_devices(self, node: Node) -> Node:
        """The node with its devices counted; where a device plugin counts them already, that stands."""
        had = self._devices.get(node.name)
        if not had or node.shape.gpu_count:
            return node
        replace = msgspec.structs.replace
        shape = replace(node.shape, gpu_count=min(sum(had.values()), MOST_DEVICES))
        return replace(node, shape=shape, allocatable=resources({**dict(node.allocatable or ()), **had}))

    def take_closed(self) -> set[int]:
        """Numbers of the nodes that may refuse pods that they took before, since the last time."""
        closed, self._closed = self._closed, set()
        return closed

    def take_returned(self) -> set[str]:
        """Names of nodes that came since the last time and may have pods already: they had been there before."""
        returned, self._returned = self._returned, set()
        return returned

    def is_open(self, number: int) -> bool:
        """Whether a node is there, ready, and not cordoned."""
        return number in self._labels and number not in self._shut

    def takes(self, number: int, tolerations: Iterable[Toleration]) -> bool:
        """Whether a node takes new pods with these tolerations."""
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
        """The name that a node selector finds a node by; empty if it has none."""
        return dict(self.labels_of(number)).get(HOST, "")

    def labels_of(self, number: int) -> Labels:
        """The labels of a node; none if it is gone."""
        return self._labels.get(number, ())

    def __len__(self) -> int:
        return len(self._nodes)

    # -- pods that are not ours --------------------------------------------------------------------------------

    def count_in(self, uid: str, pod: UnmanagedPod | None) -> None:
        """Count a pod as somebody else's, or what it takes beyond its workload; without one, count it no more."""
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
        """How many pods that are not ours have a node."""
        return sum(pod.shape.pods for pod in self._unmanaged.values())

    def _add(self, pod: UnmanagedPod, sign: int) -> None:
        shapes = self._shapes.setdefault(pod.node, {})
        shapes[pod.shape] = shapes.get(pod.shape, 0) + sign
        if not shapes[pod.shape]:
            del shapes[pod.shape]
        self._stirred[pod.node] = None

    def tell_rooms(self, facts: FactBuilder) -> None:
        """Tell of the nodes whose room changed; nodes with the same pods have the same room."""
        known: dict[tuple[tuple[PodShape, int], ...], _Held] = {}
        for name in self._stirred:
            number, shapes = self.number_of(name), self._shapes.get(name)
            if number == NOBODY or shapes is None:
                continue
            key = tuple(shapes.items())
            held = known.get(key)
            if held is None:
                held = known[key] = _sum(shapes)
            facts.foreign(number, Foreign(node=name, request=held.request, charge=held.charge, pods=held.pods))
            if not shapes:
                del self._shapes[name]
        self._stirred = {}


def _sum(shapes: dict[PodShape, int]) -> _Held:
    request, charge = Counter[str](), Counter[str]()
    for shape, pods in shapes.items():
        for name, amount in shape.request:
            request[name] += pods * amount
        for name, amount in shape.charge:
            charge[name] += pods * amount
    return _Held(resources(request), resources(charge), sum(pods * shape.pods for shape, pods in shapes.items()))


def _is_closer(node: Node, before: Node) -> bool:
    """Whether a node may refuse pods that it took before."""
    shut = (node.unschedulable, not node.ready) != (before.unschedulable, not before.ready)
    return shut or node.taints != before.taints or node.labels != before.labels
