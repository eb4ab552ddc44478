"""Deployment, ReplicaSet, StatefulSet and LeaderWorkerSet."""

from __future__ import annotations

from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import Unsupported, merged, schema
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup
from tidegate.manifests.object_meta import object_schema
from tidegate.manifests.pod_template import TEMPLATE
from tidegate.model.work import WorkKind

_DATA = "where its data can be reached is not known here, and taken to be everywhere"
_REPLICA_SPEC = schema("replicas", idle="minReadySeconds selector", template=TEMPLATE)
_DEPLOYMENT_SPEC = merged(_REPLICA_SPEC, schema(idle="paused progressDeadlineSeconds revisionHistoryLimit strategy"))
_STATEFUL_SPEC = schema(
    "replicas",
    idle="minReadySeconds ordinals persistentVolumeClaimRetentionPolicy podManagementPolicy revisionHistoryLimit "
    "selector serviceName updateStrategy",
    unmodelled={"volumeClaimTemplates": _DATA},
    template=TEMPLATE,
)
_LEADER_SPEC = schema(
    "replicas",
    idle="networkConfig rolloutStrategy startupPolicy",
    leaderWorkerTemplate=schema(
        "size",
        idle="persistentVolumeClaimRetentionPolicy restartPolicy",
        unmodelled={"volumeClaimTemplates": _DATA},
        refused={"subGroupPolicy": Unsupported("groups in groups", "use a slice annotation on the worker template")},
        leaderTemplate=TEMPLATE,
        workerTemplate=TEMPLATE,
    ),
)


def split_replicas(item: Item, _: ClusterDefaults) -> JobParts:
    """A Deployment or ReplicaSet: each of its pods queues for itself."""
    spec = item.mapping("spec")
    group = ReplicaGroup("main", 1, spec.mapping("template"))
    return JobParts((group,), WorkKind.INFERENCE, copies=spec.whole("replicas", 1))


def split_stateful(item: Item, _: ClusterDefaults) -> JobParts:
    """A StatefulSet: one pod set."""
    spec = item.mapping("spec")
    return JobParts((ReplicaGroup("main", spec.whole("replicas", 1), spec.mapping("template")),), WorkKind.INFERENCE)


def split_leader_workers(item: Item, _: ClusterDefaults) -> JobParts:
    """A LeaderWorkerSet: each of its groups queues for itself; the leader is a pod set if it has a template."""
    spec = item.mapping("spec")
    inner = spec.mapping("leaderWorkerTemplate")
    size, workers = inner.whole("size", 1, least=1), inner.mapping("workerTemplate")
    if "leaderTemplate" in inner:
        leader = ReplicaGroup("leader", 1, inner.mapping("leaderTemplate"))
        groups = (leader, ReplicaGroup("worker", size - 1, workers)) if size > 1 else (leader,)
    else:
        groups = (ReplicaGroup("main", size, workers),)
    return JobParts(groups, WorkKind.INFERENCE, copies=spec.whole("replicas", 1))


DEPLOYMENT = JobKind(object_schema(_DEPLOYMENT_SPEC), split_replicas)
REPLICA_SET = JobKind(object_schema(_REPLICA_SPEC), split_replicas)
STATEFUL_SET = JobKind(object_schema(_STATEFUL_SPEC), split_stateful)
LEADER_WORKER_SET = JobKind(object_schema(_LEADER_SPEC), split_leader_workers)
