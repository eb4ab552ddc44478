"""deploy/ is what `tidegate install` prints: as files, by kustomize and by Helm; and the image has what it needs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy_files import DEPLOY, MADE, deploy_files
from prometheus_server import program
from tidegate.deploy.deployment_manifest import BUILT, PORT, USER, deployment
from tidegate.deploy.grafana_dashboard import dashboard
from tidegate.deploy.install_objects import gate_objects, objects
from tidegate.deploy.install_spec import FIRST_POLICY, NAME, GivenPolicy, InstallSpec
from tidegate.jit.cache_files import FOLDER_VARIABLE
from tidegate.kube.mirror.namespaces import read_rule
from tidegate.live.endpoints import _ALIVE, _READY
from tidegate.live.metrics import Metrics
from tidegate.live.modes import Mode

ROOT = DEPLOY.parent


@pytest.fixture
def kustomize(renderers):
    return lambda folder: read([renderers["kustomize"], "build", folder])


@pytest.fixture
def helm(renderers):
    return lambda *values, namespace="tidegate": read([renderers["chart"], DEPLOY / "chart", namespace, *values])


def read(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return by_name(yaml.safe_load_all(done.stdout))


def by_name(things):
    named = [((thing["kind"], thing["metadata"]["name"]), thing) for thing in things if thing]
    assert len(dict(named)) == len(named)
    return dict(named)


def wanted(**installation):
    return by_name(objects(InstallSpec(**installation)))


def without_namespace(things):
    return {key: thing for key, thing in things.items() if key[0] != "Namespace"}


# -- files -------------------------------------------------------------------------------------------------------


def test_the_files_are_up_to_date():
    there = {
        str(path.relative_to(DEPLOY)): path.read_text()
        for folder in MADE
        for path in (DEPLOY / folder).rglob("*")
        if path.is_file()
    }
    assert there == deploy_files()  # else: run tests/deploy_files.py


@pytest.mark.parametrize("mode", Mode)
def test_kustomize_makes_what_install_prints(kustomize, mode):
    assert kustomize(DEPLOY / "overlays" / mode) == wanted(mode=mode)


def test_helm_makes_the_namespaces_that_install_makes(helm):
    made = helm(
        "mode=gate,admissionGate=true,excludeNamespaces[0]=x,managedJobsNamespaceSelector.matchExpressions[0].key=team,"
        "managedJobsNamespaceSelector.matchExpressions[0].operator=In,"
        "managedJobsNamespaceSelector.matchExpressions[0].values[0]=a"
    )
    rule = read_rule("team in (a)", ("x",))
    for key, thing in wanted(mode=Mode.GATE, admission_gate=True, namespaces=rule).items():
        if key[0] == "MutatingAdmissionPolicy":
            assert made[key]["spec"]["matchConstraints"] == thing["spec"]["matchConstraints"]
        elif key[0] == "Deployment":
            args, theirs = (one["spec"]["template"]["spec"]["containers"][0]["args"] for one in (thing, made[key]))
            chosen = [arg.partition("=")[2] for arg in theirs if arg.startswith("--managed-jobs-namespace-selector=")]
            assert read_rule(chosen[0], ("x",)) == rule
            assert "--exclude-namespace=x" in args
            assert "--exclude-namespace=x" in theirs


def test_kustomize_makes_the_door(kustomize):
    assert kustomize(DEPLOY / "admission-gate") == by_name(gate_objects())


def test_components_go_with_an_overlay(kustomize, tmp_path):
    """As a user writes it: a mode, with components, another namespace and another image.

    The door is applied by itself: kustomize would give its objects, which it does not know, the namespace too.
    """
    up = Path("../" * len(tmp_path.parts)) / DEPLOY.relative_to("/")
    parts = {"resources": [f"{up}/overlays/gate"], "namespace": "gpus"}
    parts["components"] = [
        f"{up}/components/{name}" for name in ("service-monitor", "prometheus-rule", "dashboard", "network-policy")
    ]
    parts["images"] = [{"name": InstallSpec().image.partition(":")[0], "newName": "mirror/tidegate", "newTag": "9"}]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    installation = {"mode": Mode.GATE, "namespace": "gpus", "image": "mirror/tidegate:9"}
    assert kustomize(tmp_path) == wanted(**installation, monitor=True, alerts=True, dashboard=True, network_policy=True)


@pytest.mark.parametrize("mode", Mode)
def test_helm_makes_what_install_prints(helm, mode):
    assert helm(f"mode={mode}") == without_namespace(wanted(mode=mode))


def test_helm_makes_what_values_ask_for(helm):
    values = (
        "admissionGate=true",
        "dashboard=true",
        "serviceMonitor.enabled=true",
        "replicas=3",
        "image.tag=v9",
        "mode=bind",
    )
    values += ("networkPolicy.enabled=true", "prometheusRule.enabled=true")
    installation = {"mode": Mode.BIND, "replicas": 3, "image": "tidegate:v9", "namespace": "gpus"}
    asked = without_namespace(
        wanted(**installation, admission_gate=True, dashboard=True, monitor=True, alerts=True, network_policy=True)
    )
    assert helm(*values, namespace="gpus") == asked


def test_helm_reads_kueues_objects_as_policy(helm):
    asked = without_namespace(wanted(policy=GivenPolicy("", None)))
    assert helm("policy.configMap=") == asked
    assert "--policy=kueue" in asked["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]["args"]


def test_helm_adds_what_clusters_ask_of_pods(helm):
    values = ("nodeSelector.pool=infra", "priorityClassName=urgent", "extraArgs={--verbose}", "podAnnotations.a=b")
    values += ("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus")
    values += ("prometheusRule.enabled=true", "prometheusRule.labels.release=prometheus")
    made = helm(*values)
    inner = made["Deployment", NAME]["spec"]["template"]
    assert inner["metadata"]["annotations"] == {"a": "b"}
    assert (inner["spec"]["nodeSelector"], inner["spec"]["priorityClassName"]) == ({"pool": "infra"}, "urgent")
    assert inner["spec"]["containers"][0]["args"][-1] == "--verbose"
    assert made["ServiceMonitor", NAME]["metadata"]["labels"]["release"] == "prometheus"
    assert made["PrometheusRule", NAME]["metadata"]["labels"]["release"] == "prometheus"


def test_helm_lets_namespaces_with_other_labels_read_the_metrics(helm):
    made = helm("networkPolicy.enabled=true", "networkPolicy.namespaceLabels.team=sre")
    (rule,) = made["NetworkPolicy", NAME]["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled", "team": "sre"}}}]


@pytest.mark.parametrize("value", ["mode=bold", "replicas=0", "typo=1"])
def test_helm_refuses_values_that_mean_nothing(renderers, value):
    command = [renderers["chart"], DEPLOY / "chart", "tidegate", value]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert value.partition("=")[0] in done.stderr


# -- the board ---------------------------------------------------------------------------------------------------


def test_the_board_asks_for_metrics_that_are_there_by_labels_that_they_have():
    samples = {}
    for metric in Metrics().registry.collect():
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(metric.type, ("",))
        labels = {"le"} if metric.type == "histogram" else set()
        samples |= {f"{metric.name}{end}": labels for end in ends}
    labels_of = {collector._name: set(collector._labelnames) for collector in Metrics().registry._collector_to_names}
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 15
    for query in queries:
        asked = set(re.findall(r"\b(?:kueue|tidegate)_\w+", query))
        assert asked
        assert asked <= set(samples), query
        known = {"le"} | {
            label
            for name, labels in labels_of.items()
            for label in labels
            if any(one.startswith(name) for one in asked)
        }
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r", *", group)}
        assert grouped <= known, query


def test_prometheus_understands_what_the_board_asks(tmp_path):
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    rules = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = [program("promtool"), "check", "rules", tmp_path / "rules.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def test_the_boards_panels_do_not_overlap():
    taken = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


# -- the image and the pod ---------------------------------------------------------------------------------------

LINES = [
    line.split(maxsplit=1)
    for line in (DEPLOY / "Containerfile").read_text().splitlines()
    if line and not line.startswith("#")
]


def test_the_image_copies_what_is_there():
    copied = [
        words for kind, rest in LINES if kind == "COPY" for words in [rest.split()] if not words[0].startswith("--")
    ]
    assert copied
    for *sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources), sources
    needed = {"README.md", "LICENSE"}  # which the build of the package reads
    assert needed <= {source for *sources, _ in copied for source in sources}


def test_the_image_runs_as_nobody_and_starts_the_program():
    told = {kind: rest for kind, rest in LINES if kind in ("USER", "ENTRYPOINT", "EXPOSE")}
    assert told["USER"] == f"{USER}:{USER}"
    assert told["EXPOSE"] == str(PORT)
    (program,) = json.loads(told["ENTRYPOINT"])
    assert f"\n{program} = " in (ROOT / "pyproject.toml").read_text()
    assert [kind for kind, _ in LINES if kind == "FROM"] == ["FROM", "FROM"]


def test_kernels_are_where_the_program_looks_for_them():
    runs = [rest for kind, rest in LINES if kind == "RUN"]
    assert any(run.endswith(f"-m tidegate.deploy.precompile --into {BUILT}") for run in runs)
    copied = next(rest.split() for kind, rest in LINES if kind == "COPY" and rest.startswith("--from"))
    assert BUILT.startswith(f"{copied[-1]}/")
    assert any(kind == "ENV" and f"{FOLDER_VARIABLE}={BUILT}" in rest for kind, rest in LINES)


def test_probes_ask_what_is_answered_and_only_volumes_are_written_to():
    spec = deployment(InstallSpec())["spec"]["template"]["spec"]
    (program,) = spec["containers"]
    assert program["startupProbe"]["httpGet"]["path"] in _ALIVE
    assert program["livenessProbe"]["httpGet"]["path"] in _ALIVE
    assert program["readinessProbe"]["httpGet"]["path"] in _READY
    mounted = {one["mountPath"] for one in program["volumeMounts"]}
    journal = next(word.partition("=")[2] for word in program["args"] if word.startswith("--journal"))
    written = {str(Path(journal).parent), *(one["value"] for one in program["env"])}
    assert written <= mounted
    assert {one["name"] for one in program["volumeMounts"]} == {one["name"] for one in spec["volumes"]}


def test_the_first_policy_can_be_used(tmp_path):
    from tidegate.live.policy_sources import PolicyFile

    (tmp_path / "tidegate.yaml").write_text(FIRST_POLICY)
    assert PolicyFile(tmp_path / "tidegate.yaml").check().placement
