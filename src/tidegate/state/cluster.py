"""The cluster's state, as tables, classes and counters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tidegate.model.arrays import I32, I64
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy
from tidegate.model.struct import encode
from tidegate.model.work import Share, Work, WorkKind
from tidegate.state.classes import CORE_RESOURCES, NodeClassKey, PodClassKey, malformed, mismatch
from tidegate.state.column_table import NONE, CheckpointError, named
from tidegate.state.id_map import UNKNOWN, Numbers
from tidegate.state.quota_tables import QuotaTables
from tidegate.state.score_table import STALE, Scores, ScoreTableSize, empty_scores
from tidegate.state.tables.nodes import Nodes, Taken
from tidegate.state.tables.pod_classes import PodClasses, ShareCode
from tidegate.state.tables.pod_sets import PodSets
from tidegate.state.tables.pods import Pods
from tidegate.state.tables.reserved_places import ReservedPlaces
from tidegate.state.tables.work_classes import ALWAYS, WorkClasses
from tidegate.state.tables.workloads import Workloads
from tidegate.state.tide_prices import TidePrices, no_prices

#: Version of the checkpoint's layout.
CHECKPOINT_VERSION = 9

_KINDS = tuple(WorkKind)

#: Tables besides those of the quota tree.
_TABLES = ("nodes", "pod_classes", "pod_sets", "work_classes", "workloads", "pods", "reserved")

#: Maps besides the tables.
_MAPS = (
    "node_specs", "unmanaged", "done", "granted", "missing", "queues", "node_classes", "pod_class_rows",
    "work_class_rows", "sizes",
)  # fmt: skip
_SHARE_CODES = {Share.NONE: ShareCode.NONE, Share.WHOLE: ShareCode.WHOLE, Share.FRACTION: ShareCode.FRACTION}


class Counter(IntEnum):
    """Numbers of the state that kernels change too."""

    CHANGES = 0  # entries in the change log
    ROOM_EPOCH = 1  # times that room was made: a release, a node
    NEXT_DECISION = 2
    SPARE_POD = 3  # first of the chain of spare pod rows
    SPARE_PODS = 4  # the length of that chain
    RANDOM = 5  # draws so far
    ORDER_EPOCH = 6  # times that the order between workloads may have changed
    LEARNT_FROM = 7  # pods submitted at the last update of typical pods and prices; -1: update at once
    LATEST_SUBMITTED = 8  # the latest time of submission seen
    PLANNED = 9  # preemptive orders: the epochs, added up, that the latest plan is for
    PENDING_EVICTIONS = 10  # workloads with a pending eviction since those were last carried out
    PODS_FINISHED = 11  # pods of workloads that finished
    UNREPORTED = 12  # changes of the pending workloads since their reasons were last reported
    EXTERNAL = 13  # the external epoch: batches of facts so far that report more than the outcome of decisions
    FLEET = 14  # times that nodes or devices came, changed or went
    LOOKED_MS = 15  # when protection that was over was last looked for
    REPEATS = 16  # preemptions since the last external event of work that had been preempted since then
    RESERVED = 17  # reserved places
    SPARED = 18  # when to retry preemption of what was placed in this very step; 0: not needed
    PASSED_OVER = 19  # 1: a workload was passed over for longer than the limit
    KEPT_WORK = 20  # work classes when unused ones were last given back
    KEPT_PODS = 21  # pod classes, likewise
    KEPT_NODES = 22  # node classes and other resources, likewise
    SEEN_BEFORE = 23  # pods submitted so far of classes that were given back and are not remembered
    PASSED_DUE = 24  # when a workload will have been passed over for longer than the limit; 0: none will
    CLAIMS = 25  # Claims: what changed for workloads that may preempt since they were last tried
    EPOCH_BOUND = 26  # the external epoch in which some could not be preempted, or were tried no more; 0: in none
    COUNT = 27


class Claims(IntFlag):
    """Changes that may let a workload preempt that could not before, though no room was made."""

    SHIFTED = 1  # work began to terminate, places were reserved, or a queue borrows now, or has another fair share
    ROOM_TAKEN = 2  # work was admitted: entries that counted on terminating work may have to evict others


#: Names of the counters, in order.
_COUNTERS = tuple(counter.name for counter in Counter if counter is not Counter.COUNT)


class Hot(NamedTuple):
    """The columns that kernels read and write: the blocks of the tables, their grids, and the score table."""

    nodes: I64
    left: I64
    vram_left: I64
    hosted: I64
    extra_free: I64
    extra_total: I64
    pod_classes: I64
    extra: I64
    match: I64
    pod_sets: I64
    work_classes: I64
    workloads: I64
    pods: I64
    reserved: I64
    reserved_left: I64
    reserved_extra: I64
    scores: Scores
    changes: I64
    counters: I64


class ClusterState:
    """Everything a decision may depend on."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.policy = Policy()
        self.nodes = Nodes({"extra": 0, "device": 8, "gpu_kind": 9})
        self.pod_classes = PodClasses({"extra": 0, "node_class": 4})
        self.pod_sets = PodSets()
        self.work_classes = WorkClasses()
        self.workloads = Workloads()
        self.pods = Pods()
        self.reserved = ReservedPlaces({"extra": 0, "device": 8})
        self.counters: I64 = np.zeros(Counter.COUNT, np.int64)
        self.counters[Counter.SPARE_POD] = NONE
        self.counters[Counter.LATEST_SUBMITTED] = -1
        self.counters[Counter.LEARNT_FROM] = -1
        self.node_specs: dict[int, Node] = {}  # by row
        self.unmanaged: dict[int, Taken] = {}  # by row of the node, where there is any
        # By row of the workload that holds its place: pods that are done, each by set and ordinal.
        self.done: dict[int, tuple[tuple[int, int], ...]] = {}
        # By row of the running workload: pods that lost their node and are to be placed again, by set and ordinal.
        self.missing: dict[int, tuple[tuple[int, int], ...]] = {}
        # By row of the workload that holds its place and no quota: pods granted of each set, where that is fewer.
        self.granted: dict[int, tuple[int, ...]] = {}
        self.workload_ids: npt.NDArray[np.object_] = np.full(16, "", object)  # by row
        self.node_numbers = Numbers()
        self.workload_numbers = Numbers()
        self.extras: list[str] = []  # names of the `extra` axis
        self.queues: dict[str, int] = {}
        self.node_classes: dict[NodeClassKey, int] = {}
        self.pod_class_rows: dict[PodClassKey, int] = {}
        self.work_class_rows: dict[Work, int] = {}
        self.works: list[Work] = []  # by row of the work class
        self.sizes: dict[tuple[int, ...], int] = {}  # of pods, memory aside
        self.label_keys: frozenset[str] = frozenset()
        self.prices = no_prices()
        self.quota = QuotaTables()
        # A cache from here on: never written down, never compared.
        self.changes: I64 = np.zeros(1 << 10, np.int64)
        self._scores: Scores | None = None
        self._reported: tuple[
            Work, ...
        ] = ()  # the works that the world reported last: it reports the same again and again
        self._rows_of_reported: I64 = np.zeros(0, np.int64)  # their rows; UNKNOWN until they are looked up
        self.ready: Any = None  # what `engine` derived from the policy, the classes and the fleet

    # -- interning ---------------------------------------------------------------------------------------------

    def intern_work(self, work: Work) -> int:
        """The work class of a work, created if it is new."""
        row = self.work_class_rows.get(work)
        return self._add_work_class(work) if row is None else row

    def intern_works(self, works: tuple[Work, ...], asked: I32) -> I64:
        """The work class of each index that is asked for; new ones are created in that order."""
        if works is not self._reported:
            self._reported, self._rows_of_reported = works, np.full(len(works), UNKNOWN, np.int64)
        rows = self._rows_of_reported[asked]
        new = rows == UNKNOWN
        if np.count_nonzero(new):
            for at in np.unique(asked[new]).tolist():
                self._rows_of_reported[at] = self.intern_work(works[at])
            rows = self._rows_of_reported[asked]
        return rows

    def renumber_reported(self, to_row: I64) -> None:
        """Renumber work classes, also of the works that were reported last."""
        self._rows_of_reported = to_row[self._rows_of_reported]

    def pods_seen(self) -> int:
        """Pods submitted so far."""
        return int(self.pod_classes.seen[: self.pod_classes.top].sum() + self.counters[Counter.SEEN_BEFORE])

    def classes_of(self, works: tuple[Work, ...]) -> I64:
        """The work class of each; UNKNOWN for those not looked up yet, and malformed ones."""
        if works is not self._reported:
            return np.full(len(works), UNKNOWN, np.int64)
        known = self._rows_of_reported
        malformed = self.work_classes.malformed[np.where(known == UNKNOWN, 0, known)] > 0
        classes: I64 = np.where(malformed, UNKNOWN, known)
        return classes

    def intern_pod_class(self, key: PodClassKey) -> int:
        """The row of a pod class, created if it is new."""
        row = self.pod_class_rows.get(key)
        if row is None:
            row = self._add_pod_class(key)
        return row

    def intern_extra(self, name: str) -> int:
        """The place of a resource on the `extra` axis."""
        if name not in self.extras:
            self.extras.append(name)
            self.nodes.widen("extra", len(self.extras))
            self.pod_classes.widen("extra", len(self.extras))
            self.reserved.widen("extra", len(self.extras))
            for row, taken in self.unmanaged.items():
                held = dict(taken.unmanaged.request).get(name, 0)
                self.nodes.extra_free[row, -1] = -held
                self.nodes.overdrawn[row] |= held > 0
            self.drop_scores()
        return self.extras.index(name)

    def intern_node_class(self, node: Node) -> int:
        """The row of a node's class, created if it is new."""
        key = NodeClassKey.of(node, self.label_keys)
        row = self.node_classes.get(key)
        if row is None:
            row = self.node_classes[key] = len(self.node_classes)
            self.pod_classes.widen("node_class", 2 * row + 2)
            for pod_key, pod_class in self.pod_class_rows.items():
                self.pod_classes.match[pod_class, row] = mismatch(pod_key, key)
            self.drop_scores()
        return row

    def _add_work_class(self, work: Work) -> int:
        row = int(self.work_classes.take(1)[0])
        self.work_class_rows[work] = row
        self.works.append(work)
        table = self.work_classes
        table.queue[row] = self.queues.setdefault(work.queue, len(self.queues))
        table.kind[row] = _KINDS.index(work.kind)
        table.malformed[row] = malformed(work)
        if table.malformed[row]:
            return row
        table.priority[row] = work.priority
        table.protected_ms[row] = work.protected_ms if work.preemptible else ALWAYS
        table.tolerated_ms[row] = work.tolerated_wait_ms
        table.checkpoint_ms[row], table.restart_ms[row] = work.checkpoint_every_ms, work.restart_cost_ms
        sets = [(self.intern_pod_class(PodClassKey.of(pod_set)), pod_set.count) for pod_set in work.pod_sets]
        rows = self.pod_sets.take(len(sets))
        table.first_set[row], table.sets[row] = rows[0], len(sets)
        for set_row, (pod_class, count) in zip(rows.tolist(), sets, strict=True):
            self.pod_sets.pod_class[set_row] = pod_class
            self.pod_sets.count[set_row] = count
            self.pod_sets.work_class[set_row] = row
            table.pods[row] += count
            table.gpu_milli[row] += count * self.pod_classes.gpus[pod_class] * self.pod_classes.milli[pod_class]
            if count > 1 and not self.pod_classes.gang[pod_class]:
                self.pod_classes.gang[pod_class] = 1
                self.forget_scores_of(pod_class)
        return row

    def _add_pod_class(self, key: PodClassKey) -> int:
        self._look_at_labels(key.label_keys())
        for name, _ in key.request:
            if name not in CORE_RESOURCES:
                self.intern_extra(name)
        row = int(self.pod_classes.take(1)[0])
        self.pod_class_rows[key] = row
        table = self.pod_classes
        for name, amount in key.request:
            if name == "cpu":
                table.cpu[row] = amount
            elif name == "memory":
                table.memory[row] = amount
            elif name != "pods":
                table.extra[row, self.extras.index(name)] = amount
        table.share[row] = _SHARE_CODES[key.gpu.share]
        table.gpus[row] = key.gpu.count
        self.nodes.widen("gpu_kind", key.gpu.count + 1)  # a pod may be reported where there are fewer than it requests
        table.milli[row] = key.gpu.milli if key.gpu.share is Share.FRACTION else (1000 if key.gpu.count else 0)
        # A pod that takes whole devices takes their memory; whether that is enough depends on the node class.
        table.vram[row] = key.gpu.memory_mib if key.gpu.share is Share.FRACTION else 0
        size = tuple(int(column[row]) for column in (table.cpu, table.share, table.gpus, table.milli, table.vram))
        table.size[row] = self.sizes.setdefault(size, len(self.sizes))
        for node_key, node_class in self.node_classes.items():
            table.match[row, node_class] = mismatch(key, node_key)
        self.ready = None
        if self._scores is not None and not self._scores.holds(row, int(table.size[row])):
            self._scores = None
        return row

    def _look_at_labels(self, keys: set[str]) -> None:
        if keys <= self.label_keys:
            return
        self.label_keys = self.label_keys | keys
        self.node_classes = {}
        self.counters[Counter.LEARNT_FROM] = -1  # prices are by node class
        for row in sorted(self.node_specs):
            self.nodes.node_class[row] = self.intern_node_class(self.node_specs[row])

    # -- rows --------------------------------------------------------------------------------------------------

    def live_nodes(self) -> I64:
        """Rows of the nodes there are."""
        return np.flatnonzero(self.nodes.number[: self.nodes.top] >= 0)

    def live_workloads(self) -> I64:
        """Rows of the workloads that are not over."""
        return np.flatnonzero(self.workloads.number[: self.workloads.top] >= 0)

    def name_workloads(self, rows: I64, numbers: I64, ids: list[str]) -> None:
        """Note the numbers and ids of new workloads."""
        self.workloads.number[rows] = numbers
        self.workload_numbers.put(numbers, rows)
        self._reserve_ids()
        self.workload_ids[rows] = ids

    def rename_workloads(self, before: I64, ids: Sequence[str]) -> None:
        """Note the rows of workloads by the numbers in them; before, these numbers had rows."""
        table = self.workloads
        self.workload_numbers.drop(before)
        rows = self.live_workloads()
        self.workload_numbers.put(table.number[rows], rows)
        self._reserve_ids()
        self.workload_ids[:] = ""
        self.workload_ids[rows] = [ids[number] for number in table.number[rows].tolist()]

    def _reserve_ids(self) -> None:
        if len(self.workload_ids) < self.workloads.capacity:
            grown = np.full(self.workloads.capacity, "", object)
            grown[: len(self.workload_ids)] = self.workload_ids
            self.workload_ids = grown

    def note_pending_eviction(self, rows: I64, code: int | I64) -> None:
        """Note pending evictions; the first reason noted stands."""
        fresh = rows[self.workloads.pending_eviction[rows] == 0]
        self.workloads.pending_eviction[rows] = np.where(
            self.workloads.pending_eviction[rows] == 0, code, self.workloads.pending_eviction[rows]
        )
        self.counters[Counter.PENDING_EVICTIONS] += len(fresh)

    def forget_workloads(self, rows: I64) -> None:
        """Forget workloads that are over: their rows can be used again."""
        self.workload_numbers.drop(self.workloads.number[rows])
        self.workload_ids[rows] = ""
        self.forget_done(rows)
        self.workloads.give(rows)

    def forget_done(self, rows: I64) -> None:
        """Workloads hold no places any more: forget which of their pods were granted, or are done."""
        for row in rows.tolist() if self.done or self.granted or self.missing else ():
            self.done.pop(row, None)
            self.missing.pop(row, None)
            self.granted.pop(row, None)

    # -- the score cache ---------------------------------------------------------------------------------------

    def drop_scores(self) -> None:
        """Throw the score table away, and what was derived: classes, nodes or the policy changed."""
        self._scores = None
        self.ready = None

    def forget_scores(self) -> None:
        """Throw the score table away: prices changed."""
        self._scores = None

    def forget_scores_of(self, pod_class: int) -> None:
        """Throw one row of the score table away."""
        if self._scores is not None:
            self._scores.cursor[pod_class] = STALE

    def scores(self) -> Scores:
        """The score table, made again if it was thrown away."""
        if self._scores is None:
            self._scores = empty_scores(
                self.nodes.rank[: self.nodes.top],
                ScoreTableSize(
                    classes=self.pod_classes.capacity,
                    sizes=2 * len(self.sizes) + 8,
                    devices=self.nodes.left.shape[1],
                    fractions=len(np.unique(self.prices.milli[self.prices.gpus == 0])),
                ),
            )
            room = max(1 << 16, 32 * self.nodes.top)
            if len(self.changes) < room:
                self.changes = np.zeros(room, np.int64)
            self.counters[Counter.CHANGES] = 0
            self.nodes.changed_at[:] = -1
        return self._scores

    def hot(self) -> Hot:
        """What kernels take. Valid until a table grows or the score table is thrown away."""
        scores = self.scores()
        nodes, classes = self.nodes, self.pod_classes
        return Hot(
            nodes.block, nodes.left, nodes.vram_left, nodes.hosted, nodes.extra_free, nodes.extra,
            classes.block, classes.extra, classes.match,
            self.pod_sets.block, self.work_classes.block, self.workloads.block, self.pods.block,
            self.reserved.block, self.reserved.withheld_left, self.reserved.withheld_extra,
            scores, self.changes, self.counters,
        )  # fmt: skip

    def reserve_pods(self, count: int) -> None:
        """Have this many spare pod rows at least."""
        missing = count - int(self.counters[Counter.SPARE_PODS])
        if missing <= 0:
            return
        pods = self.pods
        first, last = pods.top, pods.top + max(missing, pods.top // 2, 64)
        pods.reserve(last)
        pods.top = last
        pods.next[first:last] = np.arange(first + 1, last + 1)
        pods.next[last - 1] = self.counters[Counter.SPARE_POD]
        self.counters[Counter.SPARE_POD] = first
        self.counters[Counter.SPARE_PODS] += last - first

    # -- whole-state operations --------------------------------------------------------------------------------

    def fork(self) -> ClusterState:
        """A copy that can be changed freely."""
        twin = ClusterState.__new__(ClusterState)
        twin.__dict__.update(self.__dict__)
        for name in _TABLES:
            setattr(twin, name, getattr(self, name).copy())
        for name in _MAPS:
            setattr(twin, name, dict(getattr(self, name)))
        for name in ("workload_ids", "node_numbers", "workload_numbers"):
            setattr(twin, name, getattr(self, name).copy())
        twin.extras, twin.works, twin.quota = list(self.extras), list(self.works), self.quota.copy()
        twin.counters = self.counters.copy()
        twin.changes = np.zeros(1 << 10, np.int64)
        twin._reported = ()  # noqa: SLF001 - a twin of the same class
        twin.drop_scores()
        return twin

    def scratch(self) -> ClusterState:
        """A copy for trying out places: what placing changes is copied, the rest is shared and must not be changed."""
        twin = ClusterState.__new__(ClusterState)
        twin.__dict__.update(self.__dict__)
        twin.nodes, twin.workloads, twin.pods = self.nodes.copy(), self.workloads.copy(), self.pods.copy()
        twin.reserved = self.reserved.copy()
        twin.counters = self.counters.copy()
        twin.changes = np.zeros(len(self.changes), np.int64)
        twin._scores = None  # noqa: SLF001 - a twin of the same class
        return twin

    def dump(self) -> bytes:
        """The checkpoint: everything that is true, as bytes. Equal states give equal bytes."""
        counters = self.counters.copy()
        counters[Counter.CHANGES] = 0  # part of the cache
        nodes = self.nodes.copy()
        nodes.changed_at[:] = -1
        tables = {name: getattr(self, name) for name in _TABLES} | {"nodes": nodes}
        cold = {
            "version": CHECKPOINT_VERSION,
            "now_ms": self.now_ms,
            "policy": self.policy,
            "counters": dict(zip(_COUNTERS, counters.tolist(), strict=True)),
            "tables": {name: table.dump() for name, table in tables.items()},
            "node_specs": sorted(self.node_specs.items()),
            "unmanaged": sorted(self.unmanaged.items()),
            "workload_ids": self.workload_ids[: self.workloads.top].tolist(),
            "extras": self.extras,
            "queues": list(self.queues),
            "label_keys": sorted(self.label_keys),
            "node_classes": list(self.node_classes),
            "works": list(self.work_class_rows),
            "pod_class_keys": list(self.pod_class_rows),
            "sizes": list(self.sizes),
            "prices": {name: [column.shape, column.tobytes()] for name, column in self.prices._asdict().items()},
            "quota": self.quota.dump(),
        }
        for name, of_rows in (("done", self.done), ("granted", self.granted), ("missing", self.missing)):
            if of_rows:  # mostly there are none
                cold[name] = sorted(of_rows.items())
        return encode(cold)

    def digest(self) -> str:
        """The state's fingerprint."""
        return hashlib.blake2b(self.dump(), digest_size=16).hexdigest()

    @classmethod
    def load(cls, checkpoint: bytes) -> ClusterState:
        """The state that was dumped."""
        cold = msgspec.msgpack.decode(checkpoint)
        if cold["version"] != CHECKPOINT_VERSION:
            raise CheckpointError(
                f"checkpoint has layout {cold['version']}, this Tidegate reads layout {CHECKPOINT_VERSION}: "
                "rebuild the state from the journal or the cluster"
            )
        return _restore(cls(), cold)


def _restore(state: ClusterState, cold: dict[str, Any]) -> ClusterState:
    state.now_ms = cold["now_ms"]
    state.policy = msgspec.convert(cold["policy"], Policy)
    counters = named("counters", cold["counters"], _COUNTERS)
    state.counters[:] = [counters[name] for name in _COUNTERS]
    for name, dumped in named("tables", cold["tables"], _TABLES).items():
        setattr(state, name, type(getattr(state, name)).load(dumped))
    state.node_specs = {row: msgspec.convert(spec, Node) for row, spec in cold["node_specs"]}
    state.unmanaged = {row: msgspec.convert(taken, Taken) for row, taken in cold["unmanaged"]}
    state.done = {row: tuple((at, ordinal) for at, ordinal in pods) for row, pods in cold.get("done", ())}
    state.missing = {row: tuple((at, ordinal) for at, ordinal in pods) for row, pods in cold.get("missing", ())}
    state.granted = {row: tuple(counts) for row, counts in cold.get("granted", ())}
    state.workload_ids = np.array(cold["workload_ids"], object)
    state.extras = cold["extras"]
    state.queues = {name: row for row, name in enumerate(cold["queues"])}
    state.label_keys = frozenset(cold["label_keys"])
    state.node_classes = {msgspec.convert(key, NodeClassKey): row for row, key in enumerate(cold["node_classes"])}
    state.pod_class_rows = {msgspec.convert(key, PodClassKey): row for row, key in enumerate(cold["pod_class_keys"])}
    state.work_class_rows = {msgspec.convert(work, Work): row for row, work in enumerate(cold["works"])}
    state.works = list(state.work_class_rows)
    state.sizes = {tuple(size): row for row, size in enumerate(cold["sizes"])}
    prices = named("prices", cold["prices"], TidePrices._fields)
    columns = {name: np.frombuffer(prices[name][1], column.dtype) for name, column in no_prices()._asdict().items()}
    # A copy each: kernels are compiled for columns that can be written.
    state.prices = TidePrices(**{name: column.reshape(prices[name][0]).copy() for name, column in columns.items()})
    state.quota = QuotaTables.load(cold["quota"])
    for numbers, rows, table in (
        (state.node_numbers, state.live_nodes(), state.nodes),
        (state.workload_numbers, state.live_workloads(), state.workloads),
    ):
        numbers.put(table.number[rows], rows)
    return state
