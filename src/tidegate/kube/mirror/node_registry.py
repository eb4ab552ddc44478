"""Nodes by number and by name, and what pods that are not ours hold of them.

Must not know: workloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from tidegate.kube.mirror.fact_builder import FactBuilder
from tidegate.kube.mirror.job_patch import HOST
from tidegate.kube.mirror.pods import SeenPod
from tidegate.model.decisions import NOBODY
from tidegate.model.hardware import MOST_DEVICES, Node, Taint, TaintEffect
from tidegate.model.spec import Labels, resources
from tidegate.model.standing import Foreign
from tidegate.model.work import Toleration


@dataclass(slots=True)
class _Room:
    """What pods that are not ours hold of a node."""

    request: Counter[str] = field(default_factory=Counter)
    charge: Counter[str] = field(default_factory=Counter)
    pods: int = 0

    def add(self, pod: SeenPod, sign: int) -> None:
        for name, amount in pod.shape.request:
            self.request[name] += sign * amount
        for name, amount in pod.shape.charge:
            self.charge[name] += sign * amount
        self.pods += sign


class NodeRegistry:
    """The nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, Node]] = {}  # by uid
        self._plain: dict[str, Node] = {}  # by uid: without devices that are had by claim
        self._numbers: dict[str, int] = {}  # by name
        self._names: list[str] = []  # by number
        self._labels: dict[int, Labels] = {}  # by number
        self._devices: dict[str, dict[str, int]] = {}  # by name: devices that are had by claim
        self._rooms: dict[str, _Room] = {}  # by name
        self._strangers: dict[str, SeenPod] = {}  # by uid: pods that are counted in the rooms
        self._stirred: dict[str, None] = {}  # names of nodes whose room changed
        self._taints: dict[int, tuple[Taint, ...]] = {}  # by number: those that keep pods away
        self._shut: set[int] = set()  # numbers of nodes that are cordoned or not ready
        self._closed: set[int] = set()  # numbers of nodes that take fewer pods than before

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

    def count_in(self, uid: str, pod: SeenPod | None) -> None:
        """Count a pod as somebody else's, or, without one, do not count it any more."""
        counted = self._strangers.pop(uid, None)
        if counted is not None:
            self._add(counted, -1)
        if pod is not None:
            self._strangers[uid] = pod
            self._add(pod, 1)
        if counted is not None and pod is not None and counted.node == pod.node and counted.shape is pod.shape:
            return
        for one in (counted, pod):
            if one is not None:
                self._stirred[one.node] = None

    @property
    def unmanaged(self) -> int:
        """How many pods that are not ours have a node."""
        return len(self._strangers)

    def _add(self, pod: SeenPod, sign: int) -> None:
        self._rooms.setdefault(pod.node, _Room()).add(pod, sign)

    def tell_rooms(self, facts: FactBuilder) -> None:
        """Tell of the nodes whose room changed."""
        for name in self._stirred:
            number, room = self.number_of(name), self._rooms.get(name)
            if number == NOBODY or room is None:
                continue
            held = Foreign(node=name, request=resources(room.request), charge=resources(room.charge), pods=room.pods)
            facts.foreign(number, held)
            if not room.pods:
                del self._rooms[name]
        self._stirred = {}


def _is_closer(node: Node, before: Node) -> bool:
    """Whether a node may refuse pods that it took before."""
    shut = (node.unschedulable, not node.ready) != (before.unschedulable, not before.ready)
    return shut or node.taints != before.taints or node.labels != before.labels
