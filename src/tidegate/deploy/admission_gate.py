"""The admission gate: MutatingAdmissionPolicies that hold work that names a queue, made from the job adapters.

A kind is held by its suspend field, or by scheduling gates on its pods. Objects whose controller is of such a kind
pass; owners are identified by group and kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.kube.mirror.job_adapters import DEPLOYMENT, KINDS, LEADER_WORKER_SET, JobAdapter, Path
from tidegate.kube.mirror.job_patch import GATE
from tidegate.kube.mirror.namespaces import NamespaceRule
from tidegate.kube.transport.resources import PODS, Resource
from tidegate.manifests.label_names import QUEUE

Thing = dict[str, Any]

_API = "admissionregistration.k8s.io/v1"
_DAEMON_SET = Resource("apps", "v1", "daemonsets", "DaemonSet")

_SUSPENDED_BY: Path = ("spec", "suspend")

_HAS_NO_NODE = {"name": "has-no-node", "expression": '!has(object.spec.nodeName) || object.spec.nodeName == ""'}

_LABELS = f'labels: {{"{QUEUE}": object.metadata.labels["{QUEUE}"]}}'


def gate_files(namespaces: NamespaceRule) -> dict[str, tuple[str, list[Thing]]]:
    """The comment and the objects of each file, by its name, in the order of creation."""
    held = [_suspending(path, namespaces) for path in dict.fromkeys(kind.suspend for kind in KINDS if kind.suspend)]
    files = {f"{_file_of(path)}.yaml": (said, made) for path, said, made in held}
    files["gate-pods.yaml"] = (
        "Pods are created behind a scheduling gate. Pods of a job that can be suspended need none.",
        _policy("gate-pods", _constraints([PODS], ("CREATE",), namespaces), [_apply(_GATED)], _HAS_NO_NODE, _of_none()),
    )
    files["label-templates.yaml"] = (
        "Kinds that cannot be suspended pass their queue label on to their pods, which are gated.",
        [*_label_templates(namespaces), *_label_groups(namespaces)],
    )
    return files


def release_policy() -> list[Thing]:
    """The policy after an uninstall that removes our gate from new pods.

    A running job has our gate in its immutable template, and nothing else would remove it from pods it creates again.
    """
    has = f'gate.name == "{GATE}"'
    there = f"has(object.spec.schedulingGates) && object.spec.schedulingGates.exists(gate, {has})"
    without = f'object.spec.schedulingGates.filter(gate, gate.name != "{GATE}")'
    patch = f'[JSONPatch{{op: "replace", path: "/spec/schedulingGates", value: {without}}}]'
    constraints = {"resourceRules": _rules([PODS], ("CREATE",))}
    made = _policy("release-gates", constraints, [_json_patch(patch)], {"name": "has-our-gate", "expression": there})
    made[0]["spec"]["failurePolicy"] = "Ignore"
    return made


# -- policies ----------------------------------------------------------------------------------------------------


def _suspending(path: Path, namespaces: NamespaceRule) -> tuple[Path, str, list[Thing]]:
    """Kinds with a suspend field are created suspended."""
    kinds = [kind.resource for kind in KINDS if kind.suspend == path]
    constraints = _constraints(kinds, ("CREATE",), namespaces)
    made = _policy(_file_of(path), constraints, [_json_patch(_suspend(path))], _unowned(KINDS))
    field = ".".join(map(str, path))
    said = f"Jobs with {field} are created suspended, unless another job owns them."
    return path, said, made


def _file_of(path: Path) -> str:
    """The name of the policy for a field: suspend, suspend-run-policy."""
    inner = "".join(f"-{char.lower()}" if char.isupper() else char for char in "-".join(map(str, path[1:-1])))
    return "suspend" if path == _SUSPENDED_BY else f"suspend-{inner}"


def _suspend(path: Path) -> str:
    """The CEL expression that suspends an object, even if the parent of the field is missing."""
    pointer = "/".join(map(str, path))
    patch = f'[JSONPatch{{op: "add", path: "/{pointer}", value: true}}]'
    if path == _SUSPENDED_BY:
        return patch
    outer, field = path[:-1], path[-1]
    made = f'[JSONPatch{{op: "add", path: "/{"/".join(map(str, outer))}", value: {{"{field}": true}}}}]'
    return f"has(object.{'.'.join(map(str, outer))}) ? {patch} : {made}"


_GATED = f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'


def _of_none() -> Thing:
    """The condition that neither a job with a suspend field nor a DaemonSet owns a pod."""
    return _unowned([*(kind for kind in KINDS if kind.suspend), _DAEMON_SET])


def _label_templates(namespaces: NamespaceRule) -> list[Thing]:
    ungated = [DEPLOYMENT, *(kind.resource for kind in KINDS if not kind.suspend)]
    constraints = _constraints(ungated, ("CREATE", "UPDATE"), namespaces)
    inner = f"Object.spec.template{{metadata: Object.spec.template.metadata{{{_LABELS}}}}}"
    owned = _unowned([LEADER_WORKER_SET, PODS])
    return _policy("label-templates", constraints, [_apply(f"Object{{spec: Object.spec{{template: {inner}}}}}")], owned)


def _label_groups(namespaces: NamespaceRule) -> list[Thing]:
    constraints = _constraints([LEADER_WORKER_SET], ("CREATE", "UPDATE"), namespaces)
    leaders = f"has(object.spec.leaderWorkerTemplate.leaderTemplate) ? {_group('leaderTemplate')} : Object{{}}"
    return _policy("label-groups", constraints, [_apply(_group("workerTemplate")), _apply(leaders)])


def _group(template: str) -> str:
    """The labels of one template of a LeaderWorkerSet."""
    at = "Object.spec.leaderWorkerTemplate"
    inner = f"{at}.{template}{{metadata: {at}.{template}.metadata{{{_LABELS}}}}}"
    return f"Object{{spec: Object.spec{{leaderWorkerTemplate: {at}{{{template}: {inner}}}}}}}"


# -- parts of policies -------------------------------------------------------------------------------------------


def _policy(name: str, constraints: Thing, mutations: list[Thing], *conditions: Thing) -> list[Thing]:
    about = {"name": f"tidegate-{name}"}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": constraints,
        **({"matchConditions": list(conditions)} if conditions else {}),
        "mutations": mutations,
    }
    return [
        {"apiVersion": _API, "kind": "MutatingAdmissionPolicy", "metadata": dict(about), "spec": spec},
        {
            "apiVersion": _API,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": dict(about),
            "spec": {"policyName": about["name"]},
        },
    ]


def _constraints(kinds: Iterable[Resource], operations: tuple[str, ...], namespaces: NamespaceRule) -> Thing:
    return {
        "namespaceSelector": namespaces.as_selector(),
        "objectSelector": {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}]},
        "resourceRules": _rules(kinds, operations),
    }


def _rules(kinds: Iterable[Resource], operations: tuple[str, ...]) -> list[Thing]:
    """A rule for each group; any version of kinds that are not built in."""
    groups: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        version = "*" if "." in kind.group else kind.version
        groups.setdefault((kind.group, version), []).append(kind.plural)
    return [
        {"apiGroups": [group], "apiVersions": [version], "resources": plurals, "operations": list(operations)}
        for (group, version), plurals in groups.items()
    ]


def _unowned(owners: Iterable[JobAdapter | Resource]) -> Thing:
    """The condition that no object of these kinds controls it. The apiVersion of the core group has no slash."""
    resources = (one.resource if isinstance(one, JobAdapter) else one for one in owners)
    named = ", ".join(f'"{one.group or one.version}/{one.kind}"' for one in resources)
    kind = 'owner.apiVersion.split("/")[0] + "/" + owner.kind'
    held = f"has(owner.controller) && owner.controller && ({kind}) in [{named}]"
    there = "!has(object.metadata.ownerReferences)"
    return {
        "name": "nobody-speaks-for-it",
        "expression": f"{there} || !object.metadata.ownerReferences.exists(owner, {held})",
    }


def _apply(expression: str) -> Thing:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def _json_patch(expression: str) -> Thing:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
