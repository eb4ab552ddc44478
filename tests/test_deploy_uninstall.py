"""`tidegate uninstall` on a real API server: nothing of Tidegate is left, what runs goes on, what is others' stays."""

from __future__ import annotations

import json
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from commands import ran
from deploy_files import DEPLOY
from kubeaccount import account, become
from kubebench import Options, Plane, job, node, pod
from kubedoor import await_door
from kubequeues import one_queue
from kubereplica import Replica
from kubetraces import left, path_of, traces
from test_deploy_server import monitoring
from tidegate.deploy.install_objects import objects
from tidegate.deploy.install_spec import GivenPolicy, InstallSpec
from tidegate.live.modes import Mode

_JOBS, _PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
_NODES, _NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
_NOW = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False)) as plane:
        for number in range(2):
            plane.admin.post(_NODES, node(f"n{number}"))
        yield plane


@pytest.fixture
def installed(plane, tmp_path):
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(16))
    plane.wait_for(lambda: not is_ending(plane), 60, "a namespace that is gone")
    config = str(plane.kubeconfig("admin"))
    ran("install", "--mode", "gate", "--policy", str(policy), "--admission-gate", "--kubeconfig", config, "--yes")
    await_door(plane)
    yield plane
    for path in (_JOBS, _PODS):
        plane.admin.delete(path, _NOW)
    plane.wait_for(lambda: not plane.admin.get(_PODS)["items"])


def is_ending(plane):
    there = [one["metadata"] for one in plane.admin.get(_NAMESPACES)["items"]]
    return any(meta["name"] == "tidegate" and "deletionTimestamp" in meta for meta in there)


def uninstall(plane, *arguments, code=0):
    """What became of each object."""
    said = ran("uninstall", "--kubeconfig", str(plane.kubeconfig("admin")), "--yes", "--json", *arguments, code=code)
    return {(one["kind"], one["name"]): one["outcome"] for one in json.loads(said)} if code == 0 else said


def queued(thing):
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return thing


def test_nothing_is_left_and_what_runs_goes_on(installed, tmp_path):
    """A job and a pod that run, a job that waits suspended, and a pod that waits behind a gate."""
    admin = installed.admin
    become(installed, "tidegate")
    admin.post(_JOBS, queued(job("one-node", 1, 8, runs="")))
    admin.post(_PODS, queued(pod("alone", 4, runs="")))
    options = ("--mode", "gate", "--policy", "configmap:tidegate-policy")
    with Replica(installed, tmp_path, "a", *options, user=account("tidegate")) as replica:
        replica.wait(lambda: admin.get(f"{_JOBS}/one-node")["status"].get("active"), "a job that runs", 60)
        replica.wait(lambda: admin.get(f"{_PODS}/alone")["spec"].get("nodeName"), "a pod that runs", 60)
        admin.post(_JOBS, queued(job("waits", 2, 8, runs="")))
        admin.post(_PODS, queued(pod("gated", 8, runs="")))
        pending = 'kueue_pending_workloads{cluster_queue="q",status="inadmissible"}'
        replica.wait(lambda: replica.metric(pending) == 2, "work that waits")
        assert replica.stop() == 0
    before = {one["metadata"]["uid"] for one in admin.get(_PODS)["items"] if one["spec"].get("nodeName")}
    assert len(before) == 2
    assert traces(admin.get(f"{_JOBS}/one-node"))

    planned = uninstall(installed, "--dry-run")
    assert planned["Job", "default/one-node"] == planned["Pod", "default/gated"] == "cleaned"
    assert len(left(installed)) > 10  # nothing was done

    done = uninstall(installed)
    assert done["Job", "default/waits"] == "held"
    assert done["Job", "default/one-node"] == "stays"  # its pods go on where they are
    assert done["Namespace", "tidegate"] == "removed"
    assert left(installed) == []
    shown = {one["metadata"]["name"]: traces(one) for path in (_JOBS, _PODS) for one in admin.get(path)["items"]}
    assert len(shown) == 5
    assert shown.pop("one-node") == ["tidegate.io/before"]  # what is still to be taken back, when it is over
    assert not any(shown.values())
    assert admin.get(f"{_JOBS}/waits")["spec"]["suspend"]
    running = {one["metadata"]["uid"] for one in admin.get(_PODS)["items"] if one["spec"].get("nodeName")}
    assert before <= running  # the same pods, and the one whose gate was lifted if it has room

    await_door(installed, closed=False)
    admin.post(_JOBS, queued(job("later", 1, 0)))
    assert not admin.get(f"{_JOBS}/later")["spec"].get("suspend")  # nothing arrives held any more
    installed.wait_for(lambda: not installed.admin.is_up(f"{_NAMESPACES}/tidegate"), 60, "a namespace that is gone")
    assert uninstall(installed, "--start-suspended")["Job", "default/waits"] == "started"
    assert not admin.get(f"{_JOBS}/waits")["spec"]["suspend"]
    admin.delete(f"{_JOBS}/one-node", _NOW)
    assert set(uninstall(installed).values()) == {"removed"}  # the admission policy that lifted its gate
    assert uninstall(installed) == {}


def test_a_gate_in_the_template_of_a_job_that_runs_holds_no_pods_and_goes_when_it_is_over(installed):
    """The API server does not let a template be changed while its job runs."""
    admin = installed.admin
    gang = job("gang", 1, 1, suspend=True, runs="")
    gang["spec"]["backoffLimit"] = 6
    gang["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "tidegate.io/admission"}]
    wrote = {"/spec/template/spec/schedulingGates": [None, [{"name": "tidegate.io/admission"}]]}
    gang["metadata"]["annotations"] = {"tidegate.io/before": json.dumps(wrote), "tidegate.io/standing": "{}"}
    admin.post(_JOBS, gang)
    admin.patch(f"{_JOBS}/gang", {"spec": {"suspend": False}})
    installed.wait_for(lambda: len(admin.get(_PODS)["items"]) == 1)
    assert uninstall(installed)["Job", "default/gang"] == "stays"
    (made,) = admin.get(_PODS)["items"]
    assert traces(made) == []  # it starts
    admin.delete(f"{_PODS}/{made['metadata']['name']}", _NOW)
    again = installed.wait_for(
        lambda: [one for one in admin.get(_PODS)["items"] if one["metadata"] != made["metadata"]]
    )
    assert traces(again[0]) == []  # and so does the one that is made again
    assert left(installed) == []
    admin.patch(f"{_JOBS}/gang", {"spec": {"suspend": True}})
    installed.wait_for(lambda: admin.get(f"{_JOBS}/gang")["status"].get("terminating") == 0)
    done = uninstall(installed)
    assert done["Job", "default/gang"] == "cleaned"
    assert done["MutatingAdmissionPolicy", "tidegate-release-gates"] == "removed"
    assert "schedulingGates" not in admin.get(f"{_JOBS}/gang")["spec"]["template"]["spec"]


def test_words_of_users_and_a_namespace_of_others_stay(installed):
    admin = installed.admin
    mine = {"tidegate.io/runtime": "1h", "tidegate.io/standing": "{}"}
    made = job("mine", 1, 1, suspend=True)
    made["metadata"]["annotations"] = mine
    admin.post(_JOBS, made)
    admin.post(f"{_NAMESPACES}/tidegate/configmaps", {"metadata": {"name": "of-others"}})
    done = uninstall(installed)
    assert done["Namespace", "tidegate"] == "stays"
    assert admin.get(f"{_JOBS}/mine")["metadata"]["annotations"] == {"tidegate.io/runtime": "1h"}
    assert admin.get(f"{_NAMESPACES}/tidegate/configmaps/of-others")
    admin.delete(f"{_NAMESPACES}/tidegate/configmaps/of-others")


def test_who_still_leads_is_told_and_work_is_left_alone(installed, tmp_path):
    admin = installed.admin
    held = queued(pod("held", 8, schedulingGates=[{"name": "tidegate.io/admission"}, {"name": "example.com/other"}]))
    admin.post(_PODS, held)
    become(installed, "tidegate")
    options = ("--mode", "gate", "--policy", "configmap:tidegate-policy")
    with Replica(installed, tmp_path, "elsewhere", *options, user=account("tidegate")) as replica:
        replica.wait(replica.leads, "a leader")
        said = uninstall(installed, "--wait", "3s", code=1)
        assert "elsewhere still leads: stop it" in said
        assert "tidegate.io/admission" in traces(admin.get(f"{_PODS}/held"))
        assert replica.stop() == 0
    assert uninstall(installed)["Pod", "default/held"] == "cleaned"
    assert [gate["name"] for gate in admin.get(f"{_PODS}/held")["spec"]["schedulingGates"]] == ["example.com/other"]


def test_another_installation_is_not_taken_apart(installed):
    said = uninstall(installed, "--namespace", "elsewhere", code=2)
    assert "it is installed in the namespace tidegate" in said
    assert len(left(installed)) > 10


# -- all that any form of installing makes ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_no_option_brings_what_uninstalling_does_not_know(mode):
    known = {path_of(one) for one in objects(InstallSpec.everything("tidegate", "tidegate-policy"))}
    options = [one.name for one in fields(InstallSpec) if one.type == "bool"]
    assert {"admission_gate", "network_policy", "alerts", "monitor", "dashboard"} <= set(options)
    for chosen in options:
        made = objects(InstallSpec(mode=mode, policy=GivenPolicy.to_begin_with(), **{chosen: True}))
        assert {path_of(one) for one in made} <= known


def printed(renderers, tmp_path, form):
    """Everything that a form of installing makes, with every option."""
    if form == "install":
        options = ("--service-monitor", "--prometheus-rule", "--network-policy", "--dashboard", "--admission-gate")
        return ran("install", "--mode", "gate", "--policy", "kueue", *options, "--dry-run")
    if form == "kustomize":
        up = Path("../" * len(tmp_path.parts)) / DEPLOY.relative_to("/")
        components = ["service-monitor", "prometheus-rule", "dashboard", "network-policy"]
        parts = {"resources": [f"{up}/overlays/gate"], "components": [f"{up}/components/{one}" for one in components]}
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
        commands = [[renderers["kustomize"], "build", folder] for folder in (tmp_path, DEPLOY / "admission-gate")]
    else:
        flags = (
            "admissionGate",
            "dashboard",
            "serviceMonitor.enabled",
            "networkPolicy.enabled",
            "prometheusRule.enabled",
        )
        values = [f"{flag}=true" for flag in flags]
        commands = [[renderers["chart"], DEPLOY / "chart", "tidegate", "mode=gate", "policy.files.a=b", *values]]
    done = [subprocess.run(one, capture_output=True, text=True, check=True, timeout=60).stdout for one in commands]
    return "\n---\n".join(done)


@pytest.fixture
def bare(plane):
    """Without an installation, where Prometheus' operator is."""
    for kind in ("ServiceMonitor", "PrometheusRule"):
        path = f"/apis/monitoring.coreos.com/v1/{kind.lower()}s"
        if not plane.admin.is_up(path):
            plane.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", monitoring(kind))
            plane.wait_for(lambda path=path: plane.admin.is_up(path), what=f"{kind} served")
    there = f"{_NAMESPACES}/tidegate"
    if plane.admin.is_up(there) and not is_ending(plane):  # of a test before
        uninstall(plane)
        if plane.admin.is_up(there):
            plane.admin.delete(there)
    plane.wait_for(lambda: not plane.admin.is_up(there), 60, "a namespace that is gone")
    return plane


@pytest.mark.parametrize("form", ["install", "kustomize", "chart"])
def test_nothing_of_any_form_of_installing_is_left(bare, renderers, tmp_path, form):
    things = [thing for thing in yaml.safe_load_all(printed(renderers, tmp_path, form)) if thing]
    if form == "chart":  # Helm makes the namespace itself
        bare.admin.post(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tidegate"}})
    for thing in things:
        bare.admin.post(f"{path_of(thing).rpartition('/')[0]}?fieldManager=kubectl-create", thing)
    assert {"NetworkPolicy", "PrometheusRule", "ValidatingAdmissionPolicy"} <= {thing["kind"] for thing in things}
    done = uninstall(bare)
    assert "failed" not in done.values()
    assert {thing["kind"] for thing in things} <= {kind for kind, _ in done}
    gone = [thing for thing in things if thing["kind"] != "Namespace"]
    assert [path_of(thing) for thing in gone if bare.admin.is_up(path_of(thing))] == []
    assert left(bare) == []
    assert done["Namespace", "tidegate"] == ("stays" if form == "chart" else "removed")
