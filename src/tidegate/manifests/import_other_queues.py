"""Imports the queues of Volcano, KAI and YuniKorn, and resolves the queue that work names.

Names stay as they are; with queues of several systems in one folder, those that are not Kueue's get their system's
name in front (`volcano:team-a`).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidegate.config.messages import did_you_mean
from tidegate.manifests.jobs.to_workload import KAI, VOLCANO, YUNIKORN, ImportedWorkload
from tidegate.manifests.kai import read_kai_queue
from tidegate.manifests.kinds import KAI as KAI_GROUP
from tidegate.manifests.kinds import KUEUE as KUEUE_GROUP
from tidegate.manifests.kinds import VOLCANO as VOLCANO_GROUP
from tidegate.manifests.object_index import ObjectIndex
from tidegate.manifests.other_queues import Amounts, OtherQueue, OtherQueueTree, build_quota_tree, protected_ms, rooted
from tidegate.manifests.volcano import read_volcano_queue
from tidegate.manifests.yunikorn import read_queues_file
from tidegate.model.queues import Cohort, Flavor, Queue, charge_of


class OtherQueues(NamedTuple):
    """The queues of other systems than Kueue."""

    branches: dict[str, dict[str, OtherQueue]]  # by system and name
    prefixes: dict[str, str]  # by system
    flavors: tuple[Flavor, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    queues: tuple[Queue, ...] = ()


def read_other_queues(objects: ObjectIndex, work: list[ImportedWorkload], totals: Amounts | None) -> OtherQueues:
    """Read the queues of all systems and make their trees."""
    systems = {
        VOLCANO: _below_root([read_volcano_queue(item) for item in objects.of(VOLCANO_GROUP, "Queue")]),
        KAI: [read_kai_queue(item) for item in objects.of(KAI_GROUP, "Queue")],
        YUNIKORN: [branch for item in objects.queue_files for branch in read_queues_file(item)],
    }
    rooted_queues = {system: rooted(branches) for system, branches in systems.items() if branches}
    several = len(rooted_queues) + bool(objects.of(KUEUE_GROUP, "ClusterQueue")) > 1
    prefixes = {system: f"{system}:" if several else "" for system in rooted_queues}
    trees = [
        _tree(system, _prefixed(branches, prefixes[system]), work, totals) for system, branches in rooted_queues.items()
    ]
    for system, prefix in prefixes.items():
        if prefix:
            item = systems[system][0].item
            item.note("", f"queues of several systems are in the folder: those of {system} are called {prefix}…")
    return OtherQueues(
        branches={
            system: {branch.name: branch for branch in _prefixed(branches, prefixes[system])}
            for system, branches in rooted_queues.items()
        },
        prefixes=prefixes,
        flavors=tuple(flavor for tree in trees for flavor in tree.flavors),
        cohorts=tuple(cohort for tree in trees for cohort in tree.cohorts),
        queues=tuple(queue for tree in trees for queue in tree.queues),
    )


def _below_root(branches: list[OtherQueue]) -> list[OtherQueue]:
    """Volcano's queues: they are below `root`, which need not be written."""
    if any(branch.name == "root" for branch in branches):
        return branches
    return [branch._replace(parent="") if branch.parent == "root" else branch for branch in branches]


def _prefixed(branches: list[OtherQueue], prefix: str) -> list[OtherQueue]:
    return [
        branch._replace(name=prefix + branch.name, parent=prefix + branch.parent if branch.parent else "")
        for branch in branches
    ]


def _tree(
    system: str, branches: list[OtherQueue], work: list[ImportedWorkload], totals: Amounts | None
) -> OtherQueueTree:
    charged = {"cpu", "memory"}
    for one in work:
        if one.queue.system == system:
            charged.update(name for pods in one.planned.workload.work.pod_sets for name, _ in charge_of(pods))
    return build_quota_tree(system, branches, charged, totals)


def resolve_queue(one: ImportedWorkload, other: OtherQueues) -> ImportedWorkload:
    """The workload with the imported name of its queue, and the time that it is protected there."""
    system = one.queue.system
    if system not in (VOLCANO, KAI, YUNIKORN):
        return one
    name = other.prefixes.get(system, "") + one.queue.name
    queues = other.branches.get(system, {})
    leaves = {queue.name for queue in other.queues}
    if name not in queues or name not in leaves:
        _refuse_queue(one, "no" if name not in queues else "no leaf", queues)
    work = one.planned.workload.work
    changed = msgspec.structs.replace(work, queue=name, protected_ms=protected_ms(name, queues))
    workload = msgspec.structs.replace(one.planned.workload, work=changed)
    return one._replace(planned=msgspec.structs.replace(one.planned, workload=workload))


def _refuse_queue(one: ImportedWorkload, how: str, known: dict[str, OtherQueue]) -> None:
    *way, key = one.queue.key or ("",)
    found = f"there is {how} queue {one.queue.name!r} of {one.queue.system}"
    one.item.part(*way).warn(key, found, did_you_mean(one.queue.name, known) or "add it to the folder")
