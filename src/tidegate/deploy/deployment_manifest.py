"""The Deployment: replicas with the restricted pod security standard."""

from __future__ import annotations

import json
from typing import Any

from tidegate.deploy.install_spec import NAME, InstallSpec
from tidegate.kube.mirror.namespaces import NamespaceRule

#: The compiled kernels in the image (TIDEGATE_KERNELS in the Containerfile), and the cache for kernels that have to be
#: compiled on another architecture.
BUILT, CACHE = "/opt/tidegate/kernels", "/var/cache/tidegate"
DATA = "/var/lib/tidegate"
PORT = 8080

#: The user id, as in the Containerfile.
USER = 65532

LABELS = {"app.kubernetes.io/name": NAME}
SELECTOR = f"app.kubernetes.io/name={NAME}"

_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def deployment(installation: InstallSpec) -> dict[str, Any]:
    """The Deployment of an installation."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": installation.namespace, "labels": dict(LABELS)},
        "spec": {
            "replicas": installation.replicas,
            "selector": {"matchLabels": dict(LABELS)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod(installation)},
        },
    }


def _pod(installation: InstallSpec) -> dict[str, Any]:
    return {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [_spread("kubernetes.io/hostname"), _spread("topology.kubernetes.io/zone")],
        "terminationGracePeriodSeconds": 30,
        "containers": [_program(installation)],
        "volumes": [
            {"name": "cache", "emptyDir": {}},
            {"name": "data", "emptyDir": {"sizeLimit": _room_for_journals(installation)}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _room_for_journals(installation: InstallSpec) -> str:
    """Twice the limit of the journals: a pod that fills its volume is evicted."""
    mib = 2 * installation.journal_bytes >> 20
    return f"{mib >> 10}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def _spread(key: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(LABELS)},
    }


def _program(installation: InstallSpec) -> dict[str, Any]:
    return {
        "name": NAME,
        "image": installation.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "run",
            f"--mode={installation.mode}",
            f"--policy={installation.policy.source}",
            f"--lease={NAME}",
            f"--listen=:{PORT}",
            f"--journal={DATA}/journal.db",
            "--log=json",
            *_namespaces(installation.namespaces),
            f"--journal-max-size={installation.journal_max_size}",
            f"--journal-retention={installation.journal_retention}",
            *(["--allow-no-queues"] if installation.allow_no_queues else []),
        ],
        "env": [{"name": "XDG_CACHE_HOME", "value": CACHE}, {"name": "HOME", "value": "/tmp"}],  # noqa: S108 - a volume
        "ports": [{"name": "http", "containerPort": PORT}],
        # It listens at once; while kernels are compiled, it is alive and not ready.
        "startupProbe": _probe("/healthz", periodSeconds=2, failureThreshold=60),
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=6),
        "readinessProbe": _probe("/readyz", periodSeconds=5),
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": dict(_CONFINED),
        "volumeMounts": [
            {"name": "cache", "mountPath": CACHE},
            {"name": "data", "mountPath": DATA},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of its own
        ],
    }


def _namespaces(rule: NamespaceRule) -> list[str]:
    """The options that say which namespaces are managed; none for all but kube-system."""
    wanted = rule.as_selector()["matchExpressions"][1:]
    selector = json.dumps({"matchExpressions": wanted}, separators=(",", ":")) if wanted else ""
    named = [f"--managed-jobs-namespace-selector={selector}"] if selector else []
    return [*named, *(f"--exclude-namespace={name}" for name in rule.excluded)]


def _probe(path: str, **times: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5, **times}
