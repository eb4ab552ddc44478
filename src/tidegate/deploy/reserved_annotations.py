"""The ValidatingAdmissionPolicy for reserved annotations: writing them needs `update` on reservedannotations.

By RBAC that is Tidegate's account and administrators. Annotations for the twin are free for all users.
"""

from __future__ import annotations

from typing import Any

from tidegate.kube.mirror.job_adapters import KINDS
from tidegate.kube.transport.resources import Resource
from tidegate.manifests.label_names import IGNORE, KIND, RUNTIME, SUBMIT

#: The resource in roles that allows writing reserved annotations; no server has such objects.
RESERVED = Resource("tidegate.io", "v1", "reservedannotations", "ReservedAnnotation")

NAME = "tidegate-reserved-annotations"

_PREFIX = "tidegate.io/"

#: Annotations with our prefix that users write.
_FREE = (IGNORE, KIND, RUNTIME, SUBMIT)

_MAY = f"authorizer.group('{RESERVED.group}').resource('{RESERVED.plural}').check('update').allowed()"


def _reserved(key: str) -> str:
    free = ", ".join(f"'{word}'" for word in _FREE)
    return f"{key}.startsWith('{_PREFIX}') && !({key} in [{free}])"


def reservation(labels: dict[str, str]) -> list[dict[str, Any]]:
    """The policy and its binding."""
    about = {"name": NAME, "labels": labels}
    api = "admissionregistration.k8s.io/v1"
    bound = {"policyName": NAME, "validationActions": ["Deny"]}
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": dict(about), "spec": _policy()},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": dict(about), "spec": bound},
    ]


def _policy() -> dict[str, Any]:
    same = "k in variables.before && variables.before[k] == variables.now[k]"
    kept = f"variables.now.all(k, !({_reserved('k')}) || ({same}))"
    there = f"variables.before.all(k, !({_reserved('k')}) || k in variables.now)"
    template = "object.?spec.?template.?metadata.?annotations.orValue({})"
    plain = f"request.operation != 'CREATE' || {template}.all(k, !({_reserved('k')}))"
    said = f"annotations under {_PREFIX} are Tidegate's own, but for {', '.join(_FREE)}"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": _rules()},
        "matchConditions": [{"name": "is-no-kubelet", "expression": "!('system:nodes' in request.userInfo.groups)"}],
        "variables": [
            {"name": "now", "expression": "object.metadata.?annotations.orValue({})"},
            {
                "name": "before",
                "expression": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})",
            },
        ],
        "validations": [
            {"expression": f"({kept} && {there}) || {_MAY}", "message": said, "reason": "Forbidden"},
            {"expression": f"({plain}) || {_MAY}", "message": f"spec.template: {said}", "reason": "Forbidden"},
        ],
    }


def _rules() -> list[dict[str, Any]]:
    """Rules for every request that writes annotations of work."""
    core = {"apiGroups": [""], "apiVersions": ["v1"]}
    rules = [
        {**core, "resources": ["pods", "pods/status"], "operations": ["CREATE", "UPDATE"]},
        {**core, "resources": ["pods/binding", "bindings"], "operations": ["CREATE"]},
    ]
    groups: dict[str, list[str]] = {}
    for kind in KINDS:
        groups.setdefault(kind.resource.group, []).append(kind.resource.plural)
    for group, plurals in groups.items():
        written = [*plurals, *(f"{plural}/status" for plural in plurals)]
        rules.append(
            {"apiGroups": [group], "apiVersions": ["*"], "resources": written, "operations": ["CREATE", "UPDATE"]}
        )
    return rules
