"""A snapshot of a cluster: a journal of one step, with the objects and the decisions about them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidegate.engine.propose import Shadow
from tidegate.journal.store import SHADOW, JournalFile
from tidegate.journal.writer import Journal
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.writes import Ref
from tidegate.kube.world import KubeWorld, WorldOptions
from tidegate.model.errors import TidegateError
from tidegate.model.facts import FactBatch
from tidegate.model.policy import Policy
from tidegate.state.cluster import ClusterState

#: How long a server that has just started may answer 403.
_REFUSED_S, _FORBIDDEN = 15.0, "403 Forbidden"

#: Timeout of a snapshot.
MOST_S = 60.0


class SnapshotError(TidegateError):
    """A snapshot failed; the text says why."""


class ClusterSnapshot(NamedTuple):
    """The objects of the workloads in a snapshot."""

    objects: dict[int, Ref]  # by number of the workload
    pods: dict[str, int]  # number of the workload by uid of its pod


def take_snapshot(
    access: Connection, policy: Policy, path: Path, clock: Callable[[], int], most_s: float = MOST_S
) -> ClusterSnapshot:
    """List a cluster once into a journal; nothing is written to the cluster."""
    options = WorldOptions(
        ownership=Ownership(watches=True, unqueued=not policy.shares.queues), may_write=lambda: False
    )
    state, file = ClusterState(), JournalFile.create(path, {"mode": SHADOW})
    journal = Journal(file, remember=False)
    journal.follow(state)
    try:
        with KubeWorld(access, policy, clock, random.random, options) as world:
            events = _first_look(world, most_s)
            now_ms = world.now_ms()
            workloads = list(world.reconciler.lifecycle.workloads())
        journal.append(now_ms, events, Shadow(state).step(events, now_ms))
        journal.keep()
    finally:
        file.close()
    return ClusterSnapshot(
        {one.number: one.ref for one in workloads},
        {slot.pod: one.number for one in workloads for slot in one.slots if slot.pod},
    )


def _first_look(world: KubeWorld, most_s: float) -> FactBatch:
    until_s = time.monotonic() + most_s
    refused_s = time.monotonic() + _REFUSED_S
    while time.monotonic() < until_s:
        events = world.poll(None)
        if len(events.kind):
            return events
        refused = [text for text in world.api.problems() if _FORBIDDEN in text]
        if refused and time.monotonic() > refused_s:
            raise SnapshotError(
                f"the cluster may not be read by this user: {'; '.join(refused)}; use a journal, or ask for it"
            )
    raise SnapshotError(
        f"the cluster was not listed in {most_s:.0f} s: {'; '.join(world.api.problems()) or 'no answer'}"
    )
