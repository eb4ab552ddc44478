"""Reads a pod template: what one pod needs, and a pod set of any size."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidegate.manifests.cluster_defaults import NO_DEFAULTS, ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, Unsupported, schema
from tidegate.manifests.gpus import charge_in_gpus, read_devices
from tidegate.manifests.label_names import GPU_MEMORY
from tidegate.manifests.object_meta import TEMPLATE_META
from tidegate.manifests.pod_requests import CONTAINER, RESOURCES, read_requests
from tidegate.manifests.quantity import Amounts, asked, requested
from tidegate.manifests.selectors import AFFINITY, TOLERATION, read_node_affinity, read_tolerations
from tidegate.manifests.topology_requests import read_topology_annotations
from tidegate.model.struct import labels
from tidegate.model.work import NodeTerm, PodSet, PreferredTerm, Share

_ELSEWHERE = "where its data can be reached is not known here, and taken to be everywhere"
_VOLUME = schema(
    idle="name configMap csi downwardAPI emptyDir flexVolume gitRepo hostPath image nfs projected secret azureFile "
    "cephfs glusterfs flocker quobyte",
    unmodelled=dict.fromkeys(
        (
            "persistentVolumeClaim", "ephemeral", "awsElasticBlockStore", "azureDisk", "cinder", "fc",
            "gcePersistentDisk", "iscsi", "photonPersistentDisk", "portworxVolume", "rbd", "scaleIO", "storageos",
            "vsphereVolume",
        ),
        _ELSEWHERE,
    ),
)  # fmt: skip
_IDLE = (
    "automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers hostAliases hostIPC "
    "hostPID hostUsers hostname hostnameOverride imagePullSecrets os readinessGates restartPolicy schedulerName "
    "securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds nodeName hostNetwork"
)
POD_SPEC = schema(
    "priority priorityClassName runtimeClassName",
    idle=_IDLE,
    unmodelled={
        "activeDeadlineSeconds": "work is not ended for its time",
        "preemptionPolicy": "whether work preempts is its queue's rule",
        "schedulingGates": "gates are lifted by those who set them, when is not known",
    },
    refused={
        "resourceClaims": Unsupported("devices by claim (DRA)", "ask for nvidia.com/gpu under limits"),
        **dict.fromkeys(
            ("schedulingGroup", "workloadRef"),
            Unsupported("groups of Kubernetes' own scheduler", "use a job kind that is a gang, or leave it out"),
        ),
    },
    containers=CONTAINER,
    initContainers=CONTAINER,
    overhead=ANYTHING,
    resources=RESOURCES,
    nodeSelector=ANYTHING,
    affinity=AFFINITY,
    tolerations=TOLERATION,
    topologySpreadConstraints=schema(
        "whenUnsatisfiable",
        idle="labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy topologyKey",
    ),
    volumes=_VOLUME,
)
TEMPLATE = schema(metadata=TEMPLATE_META, spec=POD_SPEC)


class PodRequirements(NamedTuple):
    """What one pod of a template needs."""

    kind: PodSet
    amounts: Amounts  # exact, as quota counts them
    priority_class: str


def read_template(template: Item, defaults: ClusterDefaults = NO_DEFAULTS, namespace: str = "") -> PodRequirements:
    """Read what a pod of the template needs; its topology is what its annotations ask for."""
    spec, meta = template.mapping("spec"), template.mapping("metadata")
    if "containers" not in spec:
        spec.report("containers", found="required field is missing")
    _review_spread(spec)
    whole = read_requests(spec, defaults, namespace)
    devices = read_devices(whole, spec, meta)
    counted = defaults.counted(whole)
    terms, preferred = _affinity(spec)
    if devices.gpu.share is Share.FRACTION and devices.gpu.memory_mib:
        meta.mapping("annotations").note(GPU_MEMORY, "the share of a device is the least there is; memory decides")
    kind = PodSet(
        request=requested(devices.rest),
        gpu=devices.gpu,
        selector=labels(spec.pairs("nodeSelector")),
        terms=terms,
        tolerations=read_tolerations(spec.items("tolerations")),
        preferred=preferred,
        topology=read_topology_annotations(meta),
        charge=charge_in_gpus(devices.gpu, counted) if devices.gpu.share is Share.FRACTION else asked(counted),
        footprint=asked(whole) if devices.gpu.share is not Share.FRACTION and asked(whole) != asked(counted) else None,
    )
    return PodRequirements(kind, counted, spec.text("priorityClassName"))


def _affinity(spec: Item) -> tuple[tuple[NodeTerm, ...], tuple[PreferredTerm, ...]]:
    return read_node_affinity(spec.mapping("affinity").mapping("nodeAffinity"))


def _review_spread(spec: Item) -> None:
    for item in spec.items("topologySpreadConstraints"):
        if item.text("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            hint = "use ScheduleAnyway, or leave it out"
            item.report("", found="is not supported: pods that must be spread", hint=hint)
        else:
            item.warn("", "has no effect here: spread is not preferred")


def sized(needs: PodRequirements, name: str, count: int, least: int = 0) -> PodSet:
    """A pod set of so many such pods."""
    return msgspec.structs.replace(needs.kind, name=name, count=count, min_count=least)
