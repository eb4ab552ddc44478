"""Where a pod fits, how often, and what taking a place changes on a node."""

from __future__ import annotations

import numpy as np

from tidegate.jit.registry import COMPILED, entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Counter, Hot
from tidegate.state.score_table import STALE
from tidegate.state.tables import nodes, pod_classes, pods, workloads
from tidegate.state.tables.pod_classes import ShareCode
from tidegate.state.tables.pods import Pods
from tidegate.state.tables.workloads import Phase

WHOLE = int(ShareCode.WHOLE)
FRACTION = int(ShareCode.FRACTION)

NODE_DOWN = int(Reason.NODE_DOWN)
POD_TOO_LARGE = int(Reason.POD_TOO_LARGE)
LACKS_GPU = int(Reason.LACKS_GPU)
LACKS_FRACTION = int(Reason.LACKS_FRACTION)
LACKS_GPU_MEMORY = int(Reason.LACKS_GPU_MEMORY)
LACKS_CPU = int(Reason.LACKS_CPU)
LACKS_MEMORY = int(Reason.LACKS_MEMORY)
LACKS_SLOT = int(Reason.LACKS_SLOT)
LACKS_RESOURCE = int(Reason.LACKS_RESOURCE)

CHANGES = int(Counter.CHANGES)
ROOM_EPOCH = int(Counter.ROOM_EPOCH)
SPARE_POD = int(Counter.SPARE_POD)
SPARE_PODS = int(Counter.SPARE_PODS)

ASSUMED = int(Phase.ASSUMED)
RUNNING = int(Phase.RUNNING)
WHOLE_GPU = 1000

#: Less memory than is ever left on a device, however much more is in use there than it has.
NO_MEMORY = -(1 << 62)

#: So few workloads release their places as quickly one by one, even in plain Python.
_FEW = 3


@inlined
def refusal(hot: Hot, k: int, n: int) -> int:
    """The first Reason why node n cannot take a pod of class k now; 0 if it can."""
    # Rows as lists in the plain run: Python reads a list far quicker than an array.
    node = hot.nodes[n] if COMPILED else hot.nodes[n].tolist()
    pod = hot.pod_classes[k] if COMPILED else hot.pod_classes[k].tolist()
    return refusal_by(hot, k, n, node, pod)


@inlined
def refusal_by(hot: Hot, k: int, n: int, node: I64, pod: I64) -> int:
    """`refusal` for the rows of the node and of the class."""
    code = hot.match[k, node[nodes.NODE_CLASS]]
    if code != 0:
        return int(code)
    code = lack_by(hot, k, n, node, pod)
    # Checked only where it does not fit: a node that is too small never fits.
    return POD_TOO_LARGE if code != 0 and is_too_small(hot, k, n, node, pod) else code


@inlined
def is_too_small(hot: Hot, k: int, n: int, node: I64, pod: I64) -> bool:
    """Whether node n could not take a pod of class k even if it were empty; given their rows."""
    if (
        node[nodes.DEVICES] < pod[pod_classes.GPUS]
        or node[nodes.CPU] < pod[pod_classes.CPU]
        or node[nodes.MEMORY] < pod[pod_classes.MEMORY]
    ):
        return True
    if node[nodes.SLOTS] < 1 or node[nodes.VRAM] < pod[pod_classes.VRAM]:
        return True
    for e in range(hot.extra.shape[1]):
        if hot.extra_total[n, e] < hot.extra[k, e]:
            return True
    return False


@inlined
def lack_by(hot: Hot, k: int, n: int, node: I64, pod: I64) -> int:
    """The Reason why node n, which matches, cannot take a pod of class k now; given their rows."""
    if node[nodes.UP] == 0:
        return NODE_DOWN
    share = pod[pod_classes.SHARE]
    if share == WHOLE and node[nodes.IDLE] < pod[pod_classes.GPUS]:
        return LACKS_GPU
    if share == FRACTION and node[nodes.MOST_LEFT] < pod[pod_classes.MILLI]:
        return LACKS_FRACTION
    if share == FRACTION and pod[pod_classes.VRAM] > 0 and best_fit_device(hot, k, n) < 0:
        return LACKS_GPU_MEMORY
    # Where more is in use than there is, free is below zero: that matters only to pods that request some of it.
    if 0 < pod[pod_classes.CPU] > node[nodes.CPU_FREE]:
        return LACKS_CPU
    if 0 < pod[pod_classes.MEMORY] > node[nodes.MEMORY_FREE]:
        return LACKS_MEMORY
    if node[nodes.SLOTS_FREE] < 1:
        return LACKS_SLOT
    for e in range(hot.extra.shape[1]):
        if 0 < hot.extra[k, e] > hot.extra_free[n, e]:
            return LACKS_RESOURCE
    return 0


@inlined
def copies_on(hot: Hot, k: int, n: int, node: I64, pod: I64) -> int:
    """How many pods of class k node n could take alone; given their rows."""
    most = node[nodes.SLOTS_FREE]
    if pod[pod_classes.SHARE] == WHOLE:
        most = min(most, node[nodes.IDLE] // pod[pod_classes.GPUS])
    elif pod[pod_classes.SHARE] == FRACTION:
        most = min(most, fractions_on(hot, k, n))
    # Divide only where a product says that it matters: division is the expensive part of a score.
    if 0 < most * pod[pod_classes.CPU] > node[nodes.CPU_FREE]:
        most = node[nodes.CPU_FREE] // pod[pod_classes.CPU]
    if 0 < most * pod[pod_classes.MEMORY] > node[nodes.MEMORY_FREE]:
        most = node[nodes.MEMORY_FREE] // pod[pod_classes.MEMORY]
    for e in range(hot.extra.shape[1]):
        if 0 < most * hot.extra[k, e] > hot.extra_free[n, e]:
            most = hot.extra_free[n, e] // hot.extra[k, e]
    return int(most)


@inlined
def fractions_on(hot: Hot, k: int, n: int) -> int:
    """How many fractions of class k the devices of node n could take."""
    fitting = 0
    for d in range(hot.left.shape[1]):
        on_device = hot.left[n, d] // hot.pod_classes[k, pod_classes.MILLI]
        if hot.pod_classes[k, pod_classes.VRAM] > 0:
            on_device = min(on_device, hot.vram_left[n, d] // hot.pod_classes[k, pod_classes.VRAM])
        fitting += max(on_device, 0)
    return fitting


@inlined
def memory_wanted(hot: Hot, k: int) -> int:
    """The memory that a device must have left for a fraction of class k.

    Where more is in use than there is, less than none is left: that matters only to pods that request some of it.
    """
    vram = int(hot.pod_classes[k, pod_classes.VRAM])
    return vram if vram > 0 else NO_MEMORY


@inlined
def best_fit_device(hot: Hot, k: int, n: int) -> int:
    """The device of node n with the least left that still fits a fraction of class k; -1 if none."""
    milli, vram = hot.pod_classes[k, pod_classes.MILLI], memory_wanted(hot, k)
    best, best_left = -1, 1 << 30
    for d in range(hot.left.shape[1]):
        left = hot.left[n, d]
        if milli <= left < best_left and hot.vram_left[n, d] >= vram:
            best, best_left = d, left
    return best


@inlined
def has_equal_before(hot: Hot, n: int, d: int, vram: int) -> bool:
    """Whether a device of lower index, with that memory, has as much left: it gives the same gain, and goes first."""
    for other in range(d):
        if hot.left[n, other] == hot.left[n, d] and hot.vram_left[n, other] >= vram:
            return True
    return False


@inlined
def lowest_idle(hot: Hot, k: int, n: int) -> int:
    """A mask of the lowest-index idle devices of node n, as many as class k requests."""
    return idle_mask(hot, n, int(hot.pod_classes[k, pod_classes.GPUS]))


@inlined
def idle_mask(hot: Hot, n: int, missing: int) -> int:
    """A mask of the lowest-index idle devices of node n, up to `most`."""
    mask = 0
    left = hot.left[n] if COMPILED else hot.left[n].tolist()
    if hot.nodes[n, nodes.LINKED] > 0:
        return linked_idle(left, int(hot.nodes[n, nodes.LINKED]), missing)
    for d in range(len(left)):
        if missing > 0 and left[d] == WHOLE_GPU:
            mask |= 1 << d
            missing -= 1
    return mask


@kernel
def linked_idle(left: I64, size: int, missing: int) -> int:
    """A mask of idle devices from as few NVLink groups as possible: the tightest sufficient one, or the freest."""
    mask = 0
    while missing > 0:
        best, has = -1, 0
        for first in range(0, len(left), size):
            idle = 0
            for d in range(first, min(first + size, len(left))):
                idle += int(left[d] == WHOLE_GPU and mask >> d & 1 == 0)
            is_tighter = idle >= missing and (has < missing or idle < has)
            if idle > 0 and (best < 0 or is_tighter or (has < missing and idle > has)):
                best, has = first, idle
        if best < 0:
            return mask
        for d in range(best, min(best + size, len(left))):
            if missing > 0 and left[d] == WHOLE_GPU and mask >> d & 1 == 0:
                mask |= 1 << d
                missing -= 1
    return mask


@inlined
def log_change(hot: Hot, n: int) -> None:
    """Log that node n changed, so that its scores are computed again."""
    counters, scores, at = hot.counters, hot.scores, int(hot.counters[CHANGES])
    if hot.nodes[n, nodes.CHANGED_AT] >= scores.seen[0]:
        return  # its latest change has not been read yet
    if at == len(hot.changes):
        scores.cursor[:] = STALE
        scores.seen[0] = 0
        scores.worth_at[:] = STALE
        scores.shared_at[:, :] = STALE
        hot.nodes[:, nodes.CHANGED_AT] = -1
        at = 0
    hot.changes[at] = n
    hot.nodes[n, nodes.CHANGED_AT] = at
    counters[CHANGES] = at + 1


@inlined
def move_pod(hot: Hot, k: int, n: int, devices: int, sign: int) -> None:
    """Take (sign -1) or give back (sign 1) what a pod of class k uses on node n."""
    move_amounts(hot, k, n, devices, sign)
    log_change(hot, n)


@inlined
def move_amounts(hot: Hot, k: int, n: int, devices: int, sign: int) -> None:
    """Move what a pod uses without logging it: for a trial that is undone before scores are read."""
    node = hot.nodes[n]
    had = node if COMPILED else node.tolist()
    pod = hot.pod_classes[k] if COMPILED else hot.pod_classes[k].tolist()
    node[nodes.CPU_FREE] = had[nodes.CPU_FREE] + sign * pod[pod_classes.CPU]
    node[nodes.MEMORY_FREE] = had[nodes.MEMORY_FREE] + sign * pod[pod_classes.MEMORY]
    node[nodes.SLOTS_FREE] = had[nodes.SLOTS_FREE] + sign
    for e in range(hot.extra.shape[1]):
        hot.extra_free[n, e] += sign * hot.extra[k, e]
    if pod[pod_classes.SHARE] != 0:
        milli, vram = sign * pod[pod_classes.MILLI], sign * pod[pod_classes.VRAM]
        left = hot.left[n]
        devices_left = left if COMPILED else left.tolist()
        rest, d, missing = int(devices), 0, pod[pod_classes.GPUS]
        while rest > 0:
            if rest & 1:
                missing -= 1
                devices_left[d] += milli
                left[d] = devices_left[d]
                if vram != 0:
                    hot.vram_left[n, d] += vram
            rest, d = rest >> 1, d + 1
        kind = 0 if pod[pod_classes.SHARE] == FRACTION else pod[pod_classes.GPUS]
        hot.hosted[n, kind] -= sign
        short = had[nodes.SHORT] - sign * missing
        node[nodes.SHORT] = short
        write_sums(node, devices_left, short)


@inlined
def write_sums(node: I64, devices_left: I64, short: int) -> None:
    """Write the sums over a node's devices into its row. Idle ones that pods there are short of do not count."""
    idle, total, most = 0, 0, 0
    for left in devices_left:
        if left > 0:
            total += left
            if left > most:  # noqa: PLR1730 - without a call, which the plain run would feel
                most = left
            if left == WHOLE_GPU:
                idle += 1
    node[nodes.IDLE] = idle - short if idle > short else 0
    node[nodes.LEFT_TOTAL] = total
    node[nodes.MOST_LEFT] = most


@entry
def sum_devices(hot: Hot, rows: I64) -> None:
    """Update the sums over the devices of these nodes."""
    for i in range(len(rows)):
        n = rows[i]
        write_sums(hot.nodes[n], hot.left[n] if COMPILED else hot.left[n].tolist(), hot.nodes[n, nodes.SHORT])


@inlined
def take_place(hot: Hot, k: int, n: int, devices: int, j: int, ordinal: int, decision: int) -> None:
    """Give pod `ordinal` of workload j its place: a row in the pods, and what it uses of the node."""
    counters = hot.counters
    p = int(counters[SPARE_POD])
    pod = hot.pods[p]
    counters[SPARE_POD] = pod[pods.NEXT]
    counters[SPARE_PODS] -= 1
    pod[pods.WORKLOAD] = j
    pod[pods.ORDINAL] = ordinal
    pod[pods.POD_CLASS] = k
    pod[pods.NODE] = n
    pod[pods.DEVICES] = devices
    pod[pods.PHASE] = ASSUMED
    pod[pods.DECISION] = decision
    pod[pods.NEXT] = hot.workloads[j, workloads.FIRST_POD]
    hot.workloads[j, workloads.FIRST_POD] = p
    move_pod(hot, k, n, devices, -1)


@inlined
def free_pod(hot: Hot, p: int) -> None:
    """Put a pod row back into the chain of spare ones."""
    counters, pod = hot.counters, hot.pods[p]
    pod[pods.WORKLOAD] = -1
    pod[pods.ORDINAL] = 0
    pod[pods.POD_CLASS] = -1
    pod[pods.NODE] = -1
    pod[pods.DEVICES] = 0
    pod[pods.PHASE] = 0
    pod[pods.DECISION] = -1
    pod[pods.NEXT] = counters[SPARE_POD]
    counters[SPARE_POD] = p
    counters[SPARE_PODS] += 1


@inlined
def release_last_place(hot: Hot, j: int) -> None:
    """Release the place of workload j's latest pod."""
    p = int(hot.workloads[j, workloads.FIRST_POD])
    pod = hot.pods[p] if COMPILED else hot.pods[p].tolist()
    hot.workloads[j, workloads.FIRST_POD] = pod[pods.NEXT]
    move_pod(hot, pod[pods.POD_CLASS], pod[pods.NODE], pod[pods.DEVICES], 1)
    free_pod(hot, p)


@entry
def release_places(hot: Hot, rows: I64) -> None:
    """Release all places of these workloads."""
    if not COMPILED and len(rows) > _FEW:
        release_at_once(hot, rows)
    else:
        for i in range(len(rows)):
            j = int(rows[i])
            while hot.workloads[j, workloads.FIRST_POD] >= 0:
                release_last_place(hot, j)
    if len(rows) > 0:
        hot.counters[ROOM_EPOCH] += 1


def release_at_once(hot: Hot, rows: I64) -> None:
    """`release_last_place` for all pods of many workloads at once: the plain run is quick by the column."""
    pod_rows: list[int] = []
    for first in hot.workloads[rows, workloads.FIRST_POD].tolist():
        p = first
        while p >= 0:
            pod_rows.append(p)
            p = int(hot.pods[p, pods.NEXT])
    hot.workloads[rows, workloads.FIRST_POD] = -1
    at = np.array(pod_rows, np.int64)
    n = hot.pods[at, pods.NODE]
    return_amounts(hot, hot.pods[at, pods.POD_CLASS], n, hot.pods[at, pods.DEVICES])
    for node in dict.fromkeys(n.tolist()):
        write_sums(hot.nodes[node], hot.left[node].tolist(), int(hot.nodes[node, nodes.SHORT]))
        log_change(hot, node)
    hot.pods[at] = Pods.defaults
    hot.pods[at[:1], pods.NEXT], hot.pods[at[1:], pods.NEXT] = hot.counters[SPARE_POD], at[:-1]
    if pod_rows:
        hot.counters[SPARE_POD] = pod_rows[-1]
        hot.counters[SPARE_PODS] += len(pod_rows)


def return_amounts(hot: Hot, k: I64, n: I64, devices: I64) -> None:
    """Give back what pods of classes k use on nodes n."""
    pod = hot.pod_classes[k].T
    np.add.at(hot.nodes[:, nodes.CPU_FREE], n, pod[pod_classes.CPU])
    np.add.at(hot.nodes[:, nodes.MEMORY_FREE], n, pod[pod_classes.MEMORY])
    np.add.at(hot.nodes[:, nodes.SLOTS_FREE], n, 1)
    if hot.extra.shape[1]:
        np.add.at(hot.extra_free, n, hot.extra[k])
    pair, d = np.nonzero(devices[:, None] >> np.arange(hot.left.shape[1]) & 1)
    np.add.at(hot.left, (n[pair], d), pod[pod_classes.MILLI][pair])
    if np.count_nonzero(pod[pod_classes.VRAM]):
        np.add.at(hot.vram_left, (n[pair], d), pod[pod_classes.VRAM][pair])
    quota = np.flatnonzero(pod[pod_classes.SHARE])
    kind = np.where(pod[pod_classes.SHARE] == FRACTION, 0, pod[pod_classes.GPUS])
    np.subtract.at(hot.hosted, (n[quota], kind[quota]), 1)
    np.subtract.at(hot.nodes[:, nodes.SHORT], n, pod[pod_classes.GPUS] - np.bincount(pair, minlength=len(n)))


@entry
def confirm(hot: Hot, rows: I64, now_ms: int) -> None:
    """Note that the world reports these workloads running: what was assumed is true."""
    for i in range(len(rows)):
        j = rows[i]
        if hot.workloads[j, workloads.PHASE] == ASSUMED:
            hot.workloads[j, workloads.PHASE] = RUNNING
            hot.workloads[j, workloads.SINCE_MS] = now_ms
            p = hot.workloads[j, workloads.FIRST_POD]
            while p >= 0:
                hot.pods[p, pods.PHASE] = RUNNING
                p = hot.pods[p, pods.NEXT]
