"""What workloads request, in columns: GPUs of each work, pod set and pod."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.units import WHOLE_MILLI
from tidegate.model.work import PodSet, Share, Work, WorkKind
from tidegate.state.classes import malformed

KINDS = tuple(WorkKind)


class WorkRequests(NamedTuple):
    """Works in columns; what is malformed asks for nothing."""

    queues: tuple[str, ...]  # in the order of their names, without other names of theirs
    queue: I64
    kind: I64
    priority: I64
    pods: I64
    gpu_milli: I64  # of all pods
    checkpoint_every_ms: I64
    first_pod: I64  # where the work's pods begin in `pod_milli`
    pod_milli: I64  # of every pod of every work, by ordinal
    first_set: I64  # where the work's pod sets begin in the two that follow
    set_pods: I64
    set_milli: I64  # of one pod

    def milli_of(self, work: I64, pod: I64) -> I64:
        """The GPU milli of single pods."""
        milli: I64 = self.pod_milli[self.first_pod[work] + pod]
        return milli


def asked_by(works: tuple[Work, ...], names: dict[str, str] | None = None) -> WorkRequests:
    """What these works ask for; some queues have other names, too."""
    named = [(names or {}).get(work.queue, work.queue) for work in works]
    queues = {name: row for row, name in enumerate(sorted(set(named)))}
    sets = [len(work.pod_sets) for work in works]
    pod_sets = [pod_set for work in works for pod_set in work.pod_sets]
    by_pod = [_pod_milli(work) for work in works]
    pods = np.array([len(milli) for milli in by_pod], np.int64)
    return WorkRequests(
        tuple(queues),
        np.array([queues[name] for name in named], np.int64),
        np.array([KINDS.index(work.kind) for work in works], np.int64),
        np.array([work.priority for work in works], np.int64),
        pods,
        np.array([milli.sum() for milli in by_pod], np.int64),
        np.array([work.checkpoint_every_ms for work in works], np.int64),
        np.cumsum(pods) - pods,
        np.concatenate([np.zeros(0, np.int64), *by_pod]),
        np.cumsum(np.array(sets, np.int64)) - np.array(sets, np.int64),
        np.array([pod_set.count for pod_set in pod_sets], np.int64),
        np.array([_milli(pod_set) for pod_set in pod_sets], np.int64),
    )


def _pod_milli(work: Work) -> I64:
    if malformed(work):
        return np.zeros(0, np.int64)
    counts = [pod_set.count for pod_set in work.pod_sets]
    return np.repeat(np.array([_milli(pod_set) for pod_set in work.pod_sets], np.int64), counts)


def _milli(pod_set: PodSet) -> int:
    gpu = pod_set.gpu
    return gpu.milli if gpu.share is Share.FRACTION else WHOLE_MILLI * gpu.count
