"""Writes the files of deploy/ from the objects that `tidegate install` prints: run it after changing those.

What is written by hand there is the Containerfile alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from deploy_chart import chart
from tidegate.deploy.deployment_manifest import LABELS
from tidegate.deploy.install_objects import (
    GATE_FILES,
    alert_rules,
    as_yaml,
    dashboard_map,
    dashboard_text,
    gate_text,
    monitor,
    network_policy,
    objects,
)
from tidegate.deploy.install_spec import InstallSpec
from tidegate.deploy.reserved_annotations import reservation
from tidegate.live.modes import Mode

DEPLOY = Path(__file__).parent.parent / "deploy"

#: Folders that are made, and nothing else is in them.
MADE = ("base", "overlays", "components", "admission-gate", "chart", "grafana")

_ROLES = ("ClusterRole", "Role")
_HEAD = "# Made by tests/deploy_files.py; change src/tidegate/deploy instead.\n"

_GATE_HEAD = """\
# The admission gate: work that names a queue is held when it is created, so that nothing runs before it is admitted.
#   kubectl apply -k deploy/admission-gate
# Needs Kubernetes 1.36 (admissionregistration.k8s.io/v1). Kinds that are not installed do no harm.
"""


def deploy_files() -> dict[str, str]:
    """Every file by its path in deploy/."""
    made = {f"chart/{name}": text for name, text in chart().items()}
    made |= {f"admission-gate/{name}": gate_text(name) for name in GATE_FILES}
    made["admission-gate/kustomization.yaml"] = _GATE_HEAD + _kustomization("Kustomization", resources=list(GATE_FILES))
    made["grafana/tidegate.json"] = dashboard_text()
    made |= _component("network-policy", network_policy(InstallSpec()))
    made |= _component("service-monitor", monitor(InstallSpec())) | _component(
        "dashboard", dashboard_map(InstallSpec())
    )
    made |= _component("prometheus-rule", alert_rules(InstallSpec()))
    return made | _base() | {name: text for mode in Mode for name, text in _overlay(mode).items()}


def _kustomization(kind: str, **fields: Any) -> str:
    version = "v1beta1" if kind == "Kustomization" else "v1alpha1"
    head = {"apiVersion": f"kustomize.config.k8s.io/{version}", "kind": kind}
    return as_yaml([{**head, **fields}]).removeprefix("---\n")


def _base() -> dict[str, str]:
    """What all modes have; roles are a mode's own."""
    files: dict[str, str] = {}
    for thing in objects(InstallSpec()):
        if thing["kind"] not in _ROLES:
            files[f"base/{thing['kind'].lower()}.yaml"] = _HEAD + as_yaml([thing]).removeprefix("---\n")
    names = [name.removeprefix("base/") for name in files]
    said = "# What all modes have. Apply an overlay: it adds the mode's role.\n"
    return files | {"base/kustomization.yaml": _HEAD + said + _kustomization("Kustomization", resources=names)}


def _overlay(mode: Mode) -> dict[str, str]:
    folder = f"overlays/{mode}"
    roles = [thing for thing in objects(InstallSpec(mode=mode)) if thing["kind"] in _ROLES]
    change = f"- op: replace\n  path: /spec/template/spec/containers/0/args/1\n  value: --mode={mode}\n"
    patches = [{"target": {"kind": "Deployment", "name": "tidegate"}, "patch": change}]
    said = f"# Tidegate in mode {mode}:\n#   kubectl apply -k deploy/overlays/{mode}\n"
    files = {"roles.yaml": as_yaml(roles)}
    if mode.writes:
        files["reserved-annotations.yaml"] = as_yaml(reservation(dict(LABELS)))
    whole = _kustomization("Kustomization", resources=["../../base", *files], patches=patches)
    made = {f"{folder}/{name}": _HEAD + text for name, text in files.items()}
    return {f"{folder}/kustomization.yaml": _HEAD + said + whole, **made}


def _component(name: str, thing: dict[str, Any]) -> dict[str, str]:
    folder, file = f"components/{name}", f"{thing['kind'].lower()}.yaml"
    return {
        f"{folder}/kustomization.yaml": _HEAD + _kustomization("Component", resources=[file]),
        f"{folder}/{file}": _HEAD + as_yaml([thing]).removeprefix("---\n"),
    }


def main() -> None:
    for folder in MADE:
        shutil.rmtree(DEPLOY / folder, ignore_errors=True)
    files = deploy_files()
    for name, text in files.items():
        path = DEPLOY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"wrote {len(files)} files of {DEPLOY}")


if __name__ == "__main__":
    main()
