"""The Helm chart, made from the same objects as everything else: what a value decides stands in as a word, and becomes
a template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import yaml

import tidegate
from tidegate.deploy.deployment_manifest import LABELS, deployment
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
from tidegate.deploy.install_spec import FIRST_POLICY, NAME, POLICY, GivenPolicy, InstallSpec
from tidegate.deploy.reserved_annotations import reservation
from tidegate.live.modes import Mode

Thing = dict[str, Any]

#: Words that stand in for values, and the templates that they become.
_WORDS = {
    "tg-namespace": "{{ .Release.Namespace }}",
    "tg-image": "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}",
    "tg-policy": "{{ .Values.policy.configMap }}",
    "imagePullPolicy: IfNotPresent": "imagePullPolicy: {{ .Values.image.pullPolicy }}",
    "424242": "{{ .Values.replicas }}",
    "--mode=shadow": "--mode={{ .Values.mode }}",
    "--policy=configmap:{{ .Values.policy.configMap }}": (
        "--policy={{ if .Values.policy.configMap }}configmap:{{ .Values.policy.configMap }}{{ else }}kueue{{ end }}"
    ),
}  # fmt: skip

_INSTALLATION = InstallSpec(
    namespace="tg-namespace", image="tg-image", replicas=424242, policy=GivenPolicy("tg-policy", {"a": "b"})
)

#: Lists and maps of a pod that values may add.
_POD_VALUES = ("imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName")

_VALUES = f"""\
# shadow: watches, and writes nothing but its Lease. gate: lets work start and stop. bind: binds pods, too.
mode: shadow
replicas: 2

image:
  repository: {NAME}
  tag: ""  # the chart's appVersion
  pullPolicy: IfNotPresent
imagePullSecrets: []

policy:
  # The ConfigMap with the policy; empty: the policy is the cluster's Kueue objects.
  configMap: {POLICY}
  # Its files: a tidegate.yaml, or manifests. None: the ConfigMap is there already, or made later; an upgrade without
  # them leaves it as it is. gate and bind need queues.
  files: {{}}
    # tidegate.yaml: |
POLICY
# Work that names a queue is held when it is created (Kubernetes 1.36).
admissionGate: false

# For Prometheus' operator; many want a label by which they choose, such as release: prometheus.
serviceMonitor:
  enabled: false
  labels: {{}}

# Alerts for Prometheus' operator; docs/runbooks.md has what to do about each.
prometheusRule:
  enabled: false
  labels: {{}}

# Only pods of namespaces with these labels reach the endpoints; kubelets always do.
networkPolicy:
  enabled: false
  namespaceLabels:
    metrics: enabled

# A Grafana dashboard, where Grafana's sidecar finds it.
dashboard: false

# Kueue's managedJobsNamespaceSelector: matchLabels and matchExpressions of the namespaces that are managed; empty: all.
managedJobsNamespaceSelector: {{}}
# Namespaces that are not managed whatever their labels are; kube-system never is.
excludeNamespaces: []

extraArgs: []
podAnnotations: {{}}
nodeSelector: {{}}
tolerations: []
priorityClassName: ""
resources:
RESOURCES"""


def chart() -> dict[str, str]:
    """The files of the chart."""
    things = {(thing["kind"], thing["metadata"]["name"]): thing for thing in objects(_INSTALLATION)}
    policy = things.pop(("ConfigMap", "tg-policy"))
    del things["Namespace", "tg-namespace"], things["Deployment", NAME]
    cluster, own = things.pop(("ClusterRole", NAME)), things.pop(("Role", NAME))
    return {
        "Chart.yaml": _about(),
        "values.yaml": _values(),
        "values.schema.json": _schema(),
        "files/tidegate.json": dashboard_text(),
        "templates/NOTES.txt": _NOTES,
        "templates/roles.yaml": _roles("ClusterRole", cluster) + _roles("Role", own),
        "templates/deployment.yaml": _deployment(),
        "templates/policy.yaml": _if("and .Values.policy.configMap .Values.policy.files", _policy(policy)),
        "templates/rest.yaml": _templated(as_yaml(things.values())),
        "templates/network-policy.yaml": _if(".Values.networkPolicy.enabled", _network_policy()),
        "templates/monitor.yaml": _if(".Values.serviceMonitor.enabled", _monitor()),
        "templates/alerts.yaml": _if(".Values.prometheusRule.enabled", _alerts()),
        "templates/dashboard.yaml": _if(".Values.dashboard", _dashboard()),
        "templates/admission-gate.yaml": _if(
            ".Values.admissionGate", "".join(f"---\n{_gate(file)}" for file in GATE_FILES)
        ),
        "templates/reserved-annotations.yaml": _if('ne .Values.mode "shadow"', as_yaml(reservation(dict(LABELS)))),
    }


def _gate(file: str) -> str:
    """A file of the admission gate, for the namespaces that values name."""
    barred = "values:\n        - kube-system\n"
    values = '{{ toJson (concat (list "kube-system") .Values.excludeNamespaces) }}'
    wanted = """\
      {{- with .Values.managedJobsNamespaceSelector }}
      {{- range (get . "matchExpressions" | default list) }}
      - {{ toJson . }}
      {{- end }}
      {{- range $key, $value := (get . "matchLabels" | default dict) }}
      - {key: {{ $key | quote }}, operator: In, values: [{{ $value | quote }}]}
      {{- end }}
      {{- end }}
"""
    made = f"values: {values}\n" + wanted
    text = gate_text(file)
    assert barred in text
    return text.replace(barred, made)


def _templated(text: str) -> str:
    for word, template in _WORDS.items():
        text = text.replace(word, template)
    return text


def _if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _roles(kind: str, role: Thing) -> str:
    """A role whose rules are those of the mode."""
    head = as_yaml([{key: value for key, value in role.items() if key != "rules"}])
    parts = []
    for mode in Mode:
        installation = InstallSpec(mode=mode, namespace="tg-namespace", policy=_INSTALLATION.policy)
        made = next(thing for thing in objects(installation) if thing["kind"] == kind)
        parts.append(f'{{{{- if eq .Values.mode "{mode}" }}}}\n{_rules(made["rules"])}{{{{- end }}}}\n')
    return _templated(head) + "rules:\n" + "".join(parts)


def _rules(rules: list[Thing]) -> str:
    """Rules; the one that names the policy only where there is one."""
    texts = [(rule, as_yaml([[rule]]).removeprefix("---\n")) for rule in rules]
    return "".join(
        _templated(_if(".Values.policy.configMap", text) if "tg-policy" in rule.get("resourceNames", ()) else text)
        for rule, text in texts
    )


def _policy(made: Thing) -> str:
    made["data"] = "tg-files"
    made["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}  # an upgrade without files does not delete it
    return _templated(as_yaml([made])).replace("data: tg-files", "data: {{- toYaml .Values.policy.files | nindent 2 }}")


def _deployment() -> str:
    made = deployment(_INSTALLATION)
    inner = made["spec"]["template"]
    inner["metadata"]["annotations"] = "tg-annotations"
    inner["spec"]["tg-pod"] = "values"
    inner["spec"]["containers"][0]["resources"] = "tg-resources"
    inner["spec"]["containers"][0]["args"].append("tg-args")
    text = _templated(as_yaml([made]))
    text = text.replace("resources: tg-resources", "resources: {{- toYaml .Values.resources | nindent 10 }}")
    text = _replaced(
        text,
        r"( *)- tg-args\n",
        lambda pad: (
            _namespace_args(pad)
            + f"{pad}{{{{- range .Values.extraArgs }}}}\n{pad}- {{{{ . | quote }}}}\n{pad}{{{{- end }}}}\n"
        ),
    )
    text = _replaced(
        text, r"( *)annotations: tg-annotations\n", lambda pad: _with(pad, "annotations", "podAnnotations")
    )
    return _replaced(text, r"( *)tg-pod: values\n", lambda pad: "".join(_with(pad, name, name) for name in _POD_VALUES))


def _namespace_args(pad: str) -> str:
    """The options that say which namespaces are managed."""
    chosen = '{{ printf "--managed-jobs-namespace-selector=%s" (toJson .) | quote }}'
    return (
        f"{pad}{{{{- with .Values.managedJobsNamespaceSelector }}}}\n{pad}- {chosen}\n{pad}{{{{- end }}}}\n"
        f"{pad}{{{{- range .Values.excludeNamespaces }}}}\n{pad}- --exclude-namespace={{{{ . }}}}\n"
        f"{pad}{{{{- end }}}}\n"
    )


def _replaced(text: str, pattern: str, made: Callable[[str], str]) -> str:
    text, count = re.subn(pattern, lambda found: made(found[1]), text)
    assert count == 1, pattern
    return text


def _with(pad: str, field: str, value: str) -> str:
    return (
        f"{pad}{{{{- with .Values.{value} }}}}\n{pad}{field}: {{{{- toYaml . | nindent {len(pad) + 2} }}}}\n"
        f"{pad}{{{{- end }}}}\n"
    )


def _monitor() -> str:
    return _labelled(monitor(_INSTALLATION), "serviceMonitor")


def _alerts() -> str:
    """The alerts; what Prometheus fills in itself is kept from Helm."""
    made = alert_rules(_INSTALLATION)
    for rule in made["spec"]["groups"][0]["rules"]:
        texts = rule["annotations"].items()
        rule["annotations"] = {key: re.sub(r"{{(.*?)}}", _unbroken, text) for key, text in texts}
    return re.sub(
        r"TG<(.*?)>",
        lambda found: f"{{{{ `{{{{{found[1].replace('~', ' ')}}}}}` }}}}",
        _labelled(made, "prometheusRule"),
    )


def _unbroken(found: re.Match[str]) -> str:
    """What stands for a template of Prometheus, in one word: YAML breaks no line in it."""
    return f"TG<{found[1].replace(' ', '~')}>"


def _labelled(made: Thing, value: str) -> str:
    """An object with labels that a value adds."""
    made["metadata"]["labels"]["tg-labels"] = "values"
    line = f"{{{{- with .Values.{value}.labels }}}}{{{{- toYaml . | nindent 4 }}}}{{{{- end }}}}"
    return _replaced(_templated(as_yaml([made])), r"( *)tg-labels: values\n", lambda pad: f"{pad}{line}\n")


def _network_policy() -> str:
    made = network_policy(_INSTALLATION)
    made["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"] = "tg-labels"
    return _replaced(
        _templated(as_yaml([made])),
        r"( *)matchLabels: tg-labels\n",
        lambda pad: (
            f"{pad}matchLabels: {{{{- toYaml .Values.networkPolicy.namespaceLabels | nindent {len(pad) + 2} }}}}\n"
        ),
    )


def _dashboard() -> str:
    made = dashboard_map(_INSTALLATION)
    made["data"] = {"tidegate.json": "tg-dashboard"}
    got = '|\n{{ .Files.Get "files/tidegate.json" | indent 4 }}'
    return _templated(as_yaml([made])).replace("tg-dashboard", got)


def _about() -> str:
    about = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "GPU scheduling for AI work on Kubernetes.",
        "type": "application",
        "version": tidegate.__version__,
        "appVersion": tidegate.__version__,
        "kubeVersion": ">=1.30.0-0",
    }
    return yaml.safe_dump(about, sort_keys=False)


def _values() -> str:
    policy = "".join(f"    #   {line}\n" for line in FIRST_POLICY.splitlines())
    wanted = deployment(_INSTALLATION)["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources = "".join(f"  {line}\n" for line in yaml.safe_dump(wanted, sort_keys=False).splitlines())
    return _VALUES.replace("POLICY\n", policy + "\n").replace("RESOURCES", resources)


def _schema() -> str:
    """What values may be: a mode that is none, or a value that does not exist, is refused before anything is made."""
    text, flag, number = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": 9}
    some, several = {"type": "object"}, {"type": "array"}
    properties = {
        "mode": {"enum": [mode.value for mode in Mode]},
        "replicas": number,
        "image": _closed(
            {"repository": text, "tag": text, "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]}}
        ),
        "policy": _closed({"configMap": text, "files": {"type": ["object", "null"]}}),
        "networkPolicy": _closed({"enabled": flag, "namespaceLabels": some}),
        "serviceMonitor": _closed({"enabled": flag, "labels": some}),
        "prometheusRule": _closed({"enabled": flag, "labels": some}),
        "admissionGate": flag,
        "dashboard": flag,
        "extraArgs": several,
        "managedJobsNamespaceSelector": _closed({"matchLabels": some, "matchExpressions": several}),
        "excludeNamespaces": {"type": "array", "items": text},
        "imagePullSecrets": several,
        "podAnnotations": some,
        "nodeSelector": some,
        "tolerations": several,
        "priorityClassName": text,
        "resources": some,
        "global": some,  # which Helm adds
    }
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **_closed(properties)}, indent=2) + "\n"


def _closed(properties: Thing) -> Thing:
    return {"type": "object", "properties": properties, "additionalProperties": False}


_NOTES = """\
Tidegate runs in mode {{ .Values.mode }} in the namespace {{ .Release.Namespace }}.

  tidegate doctor --mode {{ .Values.mode }} --namespace {{ .Release.Namespace }} --account tidegate
  kubectl --namespace {{ .Release.Namespace }} logs deployment/tidegate
"""
