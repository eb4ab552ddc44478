"""Consistency checks of the state: what is derived must equal what it is derived from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.state.check_quota import share_violations
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import pods_to_be
from tidegate.state.tables.nodes import BROKEN_MILLI
from tidegate.state.tables.workloads import Phase

_HOLDERS = (Phase.ASSUMED, Phase.RUNNING, Phase.TERMINATING)


def check(state: ClusterState) -> None:
    """Raise AssertionError, naming what is wrong, if the state is inconsistent."""
    wrong = list(violations(state))
    assert not wrong, "; ".join(wrong[:10])


def violations(state: ClusterState) -> Iterator[str]:
    """All inconsistencies."""
    yield from _nodes(state)
    yield from _chains(state)
    yield from _pods(state)
    if state.quota:
        yield from share_violations(state)


def _nodes(state: ClusterState) -> Iterator[str]:
    """Free is capacity less what the pods there take; negative only where the world shows more than there is."""
    nodes, pods, classes = state.nodes, state.pods, state.pod_classes
    used = np.flatnonzero(pods.node[: pods.top] >= 0)
    at, k = pods.node[used], pods.pod_class[used]
    for name, free, total, amount in (
        ("cpu", nodes.cpu_free, nodes.cpu, classes.cpu[k]),
        ("memory", nodes.memory_free, nodes.memory, classes.memory[k]),
        ("slots", nodes.slots_free, nodes.slots, np.ones(len(used), np.int64)),
        *(
            (name, nodes.extra_free[:, e], nodes.extra[:, e], classes.extra[k, e])
            for e, name in enumerate(state.extras)
        ),
    ):
        taken = np.bincount(at, amount, minlength=nodes.top).astype(np.int64) + _unmanaged(state, name)
        for row in np.flatnonzero(total[: nodes.top] - taken[: nodes.top] != free[: nodes.top]).tolist():
            yield f"node row {row}: {name} free {free[row]}, expected {total[row]} less {taken[row]}"
        for row in np.flatnonzero((free[: nodes.top] < 0) & (nodes.overdrawn[: nodes.top] == 0)).tolist():
            yield f"node row {row}: {name} is oversubscribed by {-free[row]}"
    for row in state.live_nodes().tolist():
        yield from _devices(state, row, used[at == row])


def _unmanaged(state: ClusterState, name: str) -> I64:
    """What unmanaged pods hold of each node."""
    taken = np.zeros(state.nodes.top, np.int64)
    for row, there in state.unmanaged.items():
        held = there.unmanaged
        taken[row] = held.pods if name == "slots" else dict(held.request).get(name, 0)
    return taken


def _devices(state: ClusterState, row: int, pods: I64) -> Iterator[str]:
    """What is left on each device, and the sums over them."""
    nodes, classes = state.nodes, state.pod_classes
    left, vram = np.zeros((2, nodes.left.shape[1]), np.int64)
    left[: nodes.devices[row]], vram[: nodes.devices[row]] = 1000, nodes.vram[row]
    short = 0
    for pod in pods.tolist():
        mask, k = int(state.pods.devices[pod]), int(state.pods.pod_class[pod])
        on = [d for d in range(len(left)) if mask >> d & 1]
        if len(on) > classes.gpus[k]:
            yield f"pod row {pod}: has {len(on)} devices, its class asks for {classes.gpus[k]}"
        short += int(classes.gpus[k]) - len(on)
        left[on] -= classes.milli[k]
        vram[on] -= classes.vram[k]
    if row in state.unmanaged:
        left[[d for d in range(len(left)) if state.unmanaged[row].devices >> d & 1]] -= 1000
        short += state.unmanaged[row].short
    if short != nodes.short[row]:
        yield f"node row {row}: short of {nodes.short[row]} GPUs, expected {short}"
    if (vram != nodes.vram_left[row]).any():
        yield f"node row {row}: GPU memory left {nodes.vram_left[row].tolist()}, expected {vram.tolist()}"
    found = nodes.left[row]
    broken = found < -BROKEN_MILLI // 2
    if (found + np.where(broken, BROKEN_MILLI, 0) != left).any():
        yield f"node row {row}: left {found.tolist()}, expected {left.tolist()}"
    if (left < 0).any():
        yield f"node row {row}: a device is oversubscribed: {left.tolist()}"
    working = left[~broken]
    idle = int((working == 1000).sum())
    if idle and short:
        yield f"node row {row}: {idle} GPUs are idle, and pods there are short of {short}"
    sums = (max(idle - short, 0), int(working.sum()), int(working.max(initial=0)))
    if sums != (nodes.idle[row], nodes.left_total[row], nodes.most_left[row]):
        yield f"node row {row}: sums {nodes.idle[row], nodes.left_total[row], nodes.most_left[row]}, expected {sums}"


def _chains(state: ClusterState) -> Iterator[str]:
    """Each pending workload is in the chain of its class, once, in order."""
    works, table = state.work_classes, state.workloads
    seen: set[int] = set()
    for w in range(works.top):
        row, before, length, unreported = int(works.head[w]), NONE, 0, 0
        while row != NONE and length <= table.top:
            if table.prev[row] != before or table.work_class[row] != w or table.phase[row] != Phase.PENDING:
                yield f"workload row {row}: wrongly in the chain of work class {w}"
            if before != NONE and (table.submitted_ms[before], table.tie[before]) > (
                table.submitted_ms[row],
                table.tie[row],
            ):
                yield f"workload row {row}: out of order in the chain of work class {w}"
            seen.add(row)
            unreported += int(table.held_code[row] == 0)
            row, before, length = int(table.next[row]), row, length + 1
        if unreported != works.unreported[w]:
            yield f"work class {w}: {unreported} pending without a reason, {works.unreported[w]} counted"
        if length != works.waiting[w] or works.tail[w] != before:
            yield f"work class {w}: {length} in the chain, {works.waiting[w]} counted"
    waiting = set(np.flatnonzero(table.phase[: table.top] == Phase.PENDING).tolist())
    if waiting != seen:
        yield f"workload rows {sorted(waiting ^ seen)}: waiting and in a chain do not agree"


def _pods(state: ClusterState) -> Iterator[str]:
    """Each pod belongs to a workload that holds something, and gangs are whole unless they are terminating."""
    table, pods = state.workloads, state.pods
    held = np.zeros(table.top, np.int64)
    for row in state.live_workloads().tolist():
        pod = int(table.first_pod[row])
        while pod != NONE and held[row] <= pods.top:
            if pods.workload[pod] != row:
                yield f"pod row {pod}: in the chain of workload row {row}, but belongs to {pods.workload[pod]}"
            held[row] += 1
            pod = int(pods.next[pod])
        asked, phase = _pods_asked(state, row), Phase(int(table.phase[row]))
        whole = phase in (Phase.ASSUMED, Phase.RUNNING) and not table.pending_eviction[row]
        if whole and held[row] not in asked:
            yield f"workload row {row}: {phase.name} with {held[row]} of {asked} pods"
        if phase not in _HOLDERS and held[row]:
            yield f"workload row {row}: {phase.name} and holds {held[row]} pods"
    in_use = int((pods.workload[: pods.top] >= 0).sum())
    if in_use != held.sum() or in_use + state.counters[Counter.SPARE_PODS] != pods.top:
        yield f"pods: {in_use} in use, {held.sum()} in chains, {state.counters[Counter.SPARE_PODS]} spare of {pods.top}"


def _pods_asked(state: ClusterState, row: int) -> tuple[int, ...]:
    """How many pods a workload may have: all; with quota those it was granted, or in Kueue's mode none yet."""
    if state.quota.holds_quota(row) and state.policy.admission is AdmissionKind.KUEUE:
        return (pods_to_be(state, row), 0)
    return (pods_to_be(state, row),)
