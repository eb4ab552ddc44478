"""All objects of an installation, in the order of creation, and as YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tidegate.deploy.admission_gate import gate_files
from tidegate.deploy.alert_rules import alert_groups
from tidegate.deploy.deployment_manifest import LABELS, PORT, deployment
from tidegate.deploy.grafana_dashboard import dashboard
from tidegate.deploy.install_spec import NAME, THERE, InstallSpec
from tidegate.deploy.permissions import Permission, permissions_of, role_rules
from tidegate.deploy.reserved_annotations import reservation
from tidegate.kube.mirror.namespaces import NamespaceRule

_RBAC = "rbac.authorization.k8s.io"

#: The label of namespaces whose pods may read the metrics: kubebuilder's convention.
SCRAPING = {"metrics": "enabled"}

#: The files of the admission gate, in the order of its kustomization.
GATE_FILES = tuple(gate_files(NamespaceRule()))


def objects(installation: InstallSpec) -> list[dict[str, Any]]:
    """Everything that is installed."""
    given = permissions_of(installation.mode, installation.lease, installation.policy.config_map)
    made = [
        *([] if installation.namespace in THERE else [namespace(installation)]),
        _object("v1", "ServiceAccount", NAME, installation.namespace),
        cluster_role(given),
        _binding("ClusterRole", installation),
        role(installation, given),
        _binding("Role", installation),
        *([] if installation.policy.files is None else [policy_map(installation, installation.policy.files)]),
        deployment(installation),
        _budget(installation),
        _service(installation),
        *(reservation(dict(LABELS)) if installation.mode.writes else ()),
    ]
    if installation.network_policy:
        made.append(network_policy(installation))
    if installation.monitor:
        made.append(monitor(installation))
    if installation.alerts:
        made.append(alert_rules(installation))
    if installation.dashboard:
        made.append(dashboard_map(installation))
    return [*made, *gate_objects(installation.namespaces)] if installation.admission_gate else made


def _object(api: str, kind: str, name: str, where: str, **fields: Any) -> dict[str, Any]:
    about = {"name": name, **({"namespace": where} if where else {}), "labels": dict(LABELS)}
    return {"apiVersion": api, "kind": kind, "metadata": about, **fields}


def namespace(installation: InstallSpec) -> dict[str, Any]:
    """The namespace, with the restricted pod security standard."""
    made = _object("v1", "Namespace", installation.namespace, "")
    made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return made


def cluster_role(given: list[Permission]) -> dict[str, Any]:
    """The permissions in all namespaces."""
    everywhere = [grant for grant in given if not grant.own]
    return _object(f"{_RBAC}/v1", "ClusterRole", NAME, "", rules=role_rules(everywhere))


def role(installation: InstallSpec, given: list[Permission]) -> dict[str, Any]:
    """The permissions in its own namespace."""
    return _object(
        f"{_RBAC}/v1", "Role", NAME, installation.namespace, rules=role_rules([grant for grant in given if grant.own])
    )


def _binding(role: str, installation: InstallSpec) -> dict[str, Any]:
    """The binding of a ClusterRole or Role to the service account."""
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": installation.namespace}
    ref = {"apiGroup": _RBAC, "kind": role, "name": NAME}
    where = installation.namespace if role == "Role" else ""
    return _object(f"{_RBAC}/v1", f"{role}Binding", NAME, where, roleRef=ref, subjects=[subject])


def policy_map(installation: InstallSpec, data: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap with the policy."""
    return _object("v1", "ConfigMap", installation.policy.config_map, installation.namespace, data=dict(data))


def _budget(installation: InstallSpec) -> dict[str, Any]:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(LABELS)}}
    return _object("policy/v1", "PodDisruptionBudget", NAME, installation.namespace, spec=spec)


def _service(installation: InstallSpec) -> dict[str, Any]:
    port = {"name": "http", "port": PORT, "targetPort": "http"}
    return _object("v1", "Service", NAME, installation.namespace, spec={"selector": dict(LABELS), "ports": [port]})


def network_policy(installation: InstallSpec) -> dict[str, Any]:
    """The NetworkPolicy: namespaces with the label for scraping reach one port; kubelets always do."""
    scraping = {"namespaceSelector": {"matchLabels": dict(SCRAPING)}}
    ingress = {"from": [scraping], "ports": [{"protocol": "TCP", "port": "http"}]}
    spec = {"podSelector": {"matchLabels": dict(LABELS)}, "policyTypes": ["Ingress"], "ingress": [ingress]}
    return _object("networking.k8s.io/v1", "NetworkPolicy", NAME, installation.namespace, spec=spec)


def monitor(installation: InstallSpec) -> dict[str, Any]:
    """The ServiceMonitor of Prometheus' operator."""
    spec = {"selector": {"matchLabels": dict(LABELS)}, "endpoints": [{"port": "http", "interval": "15s"}]}
    return _object("monitoring.coreos.com/v1", "ServiceMonitor", NAME, installation.namespace, spec=spec)


def alert_rules(installation: InstallSpec) -> dict[str, Any]:
    """The PrometheusRule of Prometheus' operator."""
    return _object(
        "monitoring.coreos.com/v1", "PrometheusRule", NAME, installation.namespace, spec={"groups": alert_groups()}
    )


def dashboard_map(installation: InstallSpec) -> dict[str, Any]:
    """The ConfigMap with the dashboard, as Grafana's sidecar finds it."""
    made = _object(
        "v1", "ConfigMap", f"{NAME}-dashboard", installation.namespace, data={"tidegate.json": dashboard_text()}
    )
    made["metadata"]["labels"]["grafana_dashboard"] = "1"
    return made


def dashboard_text() -> str:
    """The dashboard as Grafana imports it."""
    return json.dumps(dashboard(), indent=2) + "\n"


def gate_text(file: str) -> str:
    """A file of the admission gate."""
    said, made = gate_files(NamespaceRule())[file]
    return f"# {said}\n" + as_yaml(made).removeprefix("---\n")


def gate_objects(namespaces: NamespaceRule = NamespaceRule()) -> list[dict[str, Any]]:  # noqa: B008 - frozen
    """The objects of the admission gate, for managed namespaces."""
    return [thing for _, made in gate_files(namespaces).values() for thing in made]


# -- as text -----------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes block scalars, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def as_yaml(things: Iterable[Mapping[str, Any]]) -> str:
    """Objects as a stream of YAML, as `kubectl apply -f -` takes it."""
    return yaml.dump_all(things, Dumper=_Dumper, sort_keys=False, width=120, explicit_start=True)
