"""The parts of a job of any kind: groups of replicas with their templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import FieldSchema
from tidegate.model.work import WorkKind


class ReplicaGroup(NamedTuple):
    """Pods of one kind in a job."""

    name: str
    pods: int
    template: Item
    least: int = 0  # pods it may start with; 0: all


class JobParts(NamedTuple):
    """What a job is made of."""

    groups: tuple[ReplicaGroup, ...]
    kind: WorkKind = WorkKind.TRAINING
    priority_class: str = ""  # of the job; empty: that of the first pods that have one
    queue: str = ""  # where the kind itself has a field for it
    copies: int | None = None  # workloads, each with all groups; None: one
    estimate_ms: int = 0


class JobKind(NamedTuple):
    """A kind of job: its field schema, and how it is split into parts."""

    form: FieldSchema
    split: Callable[[Item, ClusterDefaults], JobParts]


def with_container(template: Item, resources: Mapping[str, Any]) -> Item:
    """The template with one more container, which the operator of the job adds to each pod."""
    spec = template.mapping("spec")
    containers = [*(item.value for item in spec.items("containers")), {"resources": resources}]
    changed = {**template.value, "spec": {**spec.value, "containers": containers}}
    return Item(changed, template.findings, template.origin, template.path)
