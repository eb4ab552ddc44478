"""Queue objects and cluster defaults: Kueue's objects, priority classes, limit ranges, runtimes and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.mirror.namespaces import NAMESPACES
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.kube.transport.resources import Resource
from tidegate.manifests.cluster_defaults import NO_DEFAULTS, ClusterDefaults
from tidegate.manifests.findings import ManifestFindings
from tidegate.manifests.import_other_queues import read_other_queues
from tidegate.manifests.import_queues import read_cluster_defaults, read_kueue_configuration, read_queue_setup
from tidegate.manifests.label_names import KNOWN_LABELS
from tidegate.manifests.object_index import ManifestDocument, index_objects
from tidegate.model.problem import Severity
from tidegate.model.queues import QueueSetup


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced)


#: The kinds that a policy is made of.
QUEUE_KINDS = (
    _kueue("clusterqueues", "ClusterQueue"),
    _kueue("cohorts", "Cohort"),
    _kueue("localqueues", "LocalQueue", namespaced=True),
    _kueue("resourceflavors", "ResourceFlavor"),
    _kueue("topologies", "Topology"),
    _kueue("admissionchecks", "AdmissionCheck"),
    NAMESPACES,
)

#: The kinds that the decoding of work depends on.
AROUND_KINDS = (
    _kueue("workloadpriorityclasses", "WorkloadPriorityClass"),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
    Resource("", "v1", "limitranges", "LimitRange"),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    Resource("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False),
    Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime"),
)

_NOTHING = msgspec.Raw(b"null")


class QueueObject(msgspec.Struct, rename="camel", frozen=True):
    """An object of any of these kinds."""

    metadata: KubeObjectMeta
    spec: msgspec.Raw = _NOTHING
    value: msgspec.Raw = _NOTHING
    global_default: bool = False
    overhead: msgspec.Raw = _NOTHING

    def kept(self, resource: Resource) -> dict[str, Any]:
        """The object without its status and other fields that do not matter."""
        meta = self.metadata
        about = {"name": meta.name, "labels": meta.labels, "annotations": _words(meta.annotations)}
        if resource.namespaced:
            about["namespace"] = meta.namespace
        top = {"globalDefault": True} if self.global_default else {}
        for name, raw in (("spec", self.spec), ("value", self.value), ("overhead", self.overhead)):
            found = msgspec.json.decode(raw)
            if found is not None:
                top[name] = found
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about, **top}


def _words(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (annotations or {}).items() if key in KNOWN_LABELS}


class ReadQueueObjects(NamedTuple):
    """The decoded queue objects."""

    shares: QueueSetup = QueueSetup()
    around: ClusterDefaults = NO_DEFAULTS
    findings: tuple[str, ...] = ()  # errors, with object and field

    @property
    def is_good(self) -> bool:
        """Whether all of it could be read."""
        return not self.findings


def read_policy_objects(things: Iterable[Mapping[str, Any]]) -> ReadQueueObjects:
    """Decode queues and cluster defaults.

    A reference to a missing object is no error: the object may be created later, and work that needs it is pending.
    """
    findings = ManifestFindings()
    documents = [ManifestDocument(thing, file="the cluster") for thing in sorted(things, key=_name)]
    objects = index_objects(documents, findings)
    told = read_kueue_configuration(objects)
    around = read_cluster_defaults(objects, told)
    shares = read_queue_setup(objects, told, read_other_queues(objects, [], None), ())
    return ReadQueueObjects(shares, around, tuple(findings.texts(Severity.ERROR)))


def _name(thing: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = thing["metadata"]
    return thing["kind"], meta.get("namespace", ""), meta["name"]


class QueueObjects:
    """The queue objects of a cluster, and what they were decoded to last."""

    def __init__(self) -> None:
        self._things: dict[str, Mapping[str, Any]] = {}  # by uid
        self._dirty = True
        self.latest = ReadQueueObjects()

    def see(self, uid: str, thing: Mapping[str, Any] | None) -> None:
        """Handle an update of an object; None: it was deleted."""
        if thing == self._things.get(uid):
            return
        self._dirty = True
        if thing is None:
            del self._things[uid]
        else:
            self._things[uid] = thing

    def read(self) -> ReadQueueObjects | None:
        """Decode them; None if the result is as before."""
        if not self._dirty:
            return None
        self._dirty = False
        before, self.latest = self.latest, read_policy_objects(self._things.values())
        return None if self.latest == before else self.latest
