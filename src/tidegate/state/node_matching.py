"""Which nodes match the pods of a set, and which they prefer: computed once for each kind of node and of pod."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from tidegate.model.arrays import I64
from tidegate.model.hardware import Node
from tidegate.model.queues import Flavor
from tidegate.model.work import PodSet, PreferredTerm
from tidegate.state.classes import NodeClassKey, PodClassKey, mismatch
from tidegate.state.column_table import ColumnTable


class FilterKey(NamedTuple):
    """What pods request of nodes, amounts aside."""

    pod: PodClassKey
    preferred: tuple[PreferredTerm, ...]

    @classmethod
    def of(cls, pod_set: PodSet, flavor: Flavor) -> FilterKey:
        """The key of a pod set on a flavor: the flavor's tolerations are the pods' too."""
        tolerations = (*pod_set.tolerations, *flavor.tolerations)
        pod = PodClassKey((), pod_set.gpu, pod_set.selector, pod_set.terms, tolerations)
        return cls(pod, pod_set.preferred)

    def label_keys(self) -> set[str]:
        """The node labels it reads."""
        return self.pod.label_keys() | {r.key for liked in self.preferred for r in liked.term.requirements}


class Filters(ColumnTable):
    """One row for each key of pods."""

    grids: ClassVar = {"match": "node_class", "liking": "node_class"}

    match: I64  # (rows, node classes): Reason why a node does not match; 0: it does
    liking: I64  # (rows, node classes): weights of the preferred terms that hold, added up


class Matching:
    """Classes of nodes, filters of pods, and how they go together."""

    def __init__(self) -> None:
        self.filters = Filters({"node_class": 0})
        self.label_keys: frozenset[str] = frozenset()
        self._nodes: dict[int, Node] = {}  # by the row they were given under
        self._classes: dict[NodeClassKey, int] = {}
        self._rows: dict[FilterKey, int] = {}

    def copy(self) -> Matching:
        """A copy that shares nothing that changes."""
        twin = Matching.__new__(Matching)
        twin.__dict__.update(self.__dict__)
        twin.filters = self.filters.copy()
        twin._classes, twin._rows = dict(self._classes), dict(self._rows)  # noqa: SLF001 - a twin of the same class
        return twin

    def node_class_of(self, node: Node, row: int) -> int:
        """The class of a node, which is kept under a row."""
        self._nodes[row] = node
        return self._intern(node)

    def filter_of(self, pod_set: PodSet, flavor: Flavor, class_of: I64) -> int:
        """The row of what a pod set requests; if it reads a label for the first time, nodes are classed again."""
        key = FilterKey.of(pod_set, flavor)
        row = self._rows.get(key)
        if row is None:
            self._look_at(key.label_keys(), class_of)
            row = self._rows[key] = int(self.filters.take(1)[0])
            for node_class, number in self._classes.items():
                self._settle(key, row, node_class, number)
        return row

    def _look_at(self, keys: set[str], class_of: I64) -> None:
        if keys <= self.label_keys:
            return
        self.label_keys |= keys
        self._classes = {}
        for row, node in self._nodes.items():
            class_of[row] = self._intern(node)

    def _intern(self, node: Node) -> int:
        key = NodeClassKey.of(node, self.label_keys)
        number = self._classes.get(key)
        if number is None:
            number = self._classes[key] = len(self._classes)
            self.filters.widen("node_class", number + 1)
            for filter_key, row in self._rows.items():
                self._settle(filter_key, row, key, number)
        return number

    def _settle(self, key: FilterKey, row: int, node_class: NodeClassKey, number: int) -> None:
        labels = dict(node_class.labels)
        self.filters.match[row, number] = mismatch(key.pod, node_class)
        self.filters.liking[row, number] = sum(liked.weight for liked in key.preferred if liked.term.holds(labels))
