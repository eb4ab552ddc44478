"""Namespaces that are managed: by selector, without those that are excluded, kube-system never."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kubebench import Options, Plane, node, pod
from kubebench.objects import job
from kubelive import Live
from kubepaper import ours, paper
from tidegate.cli.main import app
from tidegate.kube.mirror.namespaces import ManagedNamespaces, NamespaceRule, SelectorError, read_rule
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.world import WorldOptions


@pytest.mark.parametrize(
    ("selector", "picked"),
    [
        ("", "abc"),
        ("team=x", "a"),
        ("team==x", "a"),
        ("team!=x", "bc"),
        ("team", "ab"),
        ("!team", "c"),
        ("team in (x, y)", "ab"),
        ("team notin (x,y)", "c"),
        ("team,tier=gpu", "b"),
        ("kubernetes.io/metadata.name in (a,c)", "ac"),
        ('{"matchLabels": {"team": "x"}}', "a"),
        ('{"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]}', "bc"),
    ],
)
def test_selectors_pick_as_kubectl_and_kueue_do(selector, picked):
    rule = read_rule(selector, ())
    there = {"a": {"team": "x"}, "b": {"team": "y", "tier": "gpu"}, "c": {}}
    assert "".join(name for name, labels in there.items() if rule.picks(name, labels)) == picked
    assert not rule.picks("kube-system", {"team": "x", "tier": "gpu"})


@pytest.mark.parametrize("selector", ["team in x", "a b", "{", '{"matchLabel": {}}', "=x", '{"matchLabels": 3}'])
def test_selectors_that_cannot_be_read_are_refused(selector):
    with pytest.raises(SelectorError, match="--managed-jobs-namespace-selector"):
        read_rule(selector, ())
    with pytest.raises(SelectorError, match="--exclude-namespace"):
        read_rule("", ("Not A Name",))


def test_a_rule_is_written_as_it_is_read():
    rule = read_rule("team in (a,b),!old", ("x", "y"))
    text = __import__("json").dumps(rule.as_selector())
    again = read_rule(text, ())
    for name, labels in (("n", {"team": "a"}), ("x", {"team": "a"}), ("n", {"team": "a", "old": ""}), ("n", {})):
        assert again.picks(name, labels) == rule.picks(name, labels)


@pytest.mark.parametrize("mode", [{}, {"scheduler": "", "gates": True}, {"watches": True}])
def test_work_in_other_namespaces_is_nobodys_of_ours(mode):
    cluster = paper(namespaces=ManagedNamespaces(NamespaceRule(excluded=("barred",))), **mode)
    cluster.begin_anew(namespaces=ManagedNamespaces(NamespaceRule(excluded=("barred",))), **mode)
    for name in ("default", "barred", "kube-system"):
        one, other = ours(f"p-{name}", 1), job(f"j-{name}", 1, suspend=True, scheduler="tidegate")
        for thing in (one, other):
            thing["metadata"] |= {"namespace": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}}
        cluster.put(one)
        cluster.put(other)
    cluster.step()
    found = {workload.ref.namespace for workload in cluster.reconciler.workloads.values()}
    assert found == {"default"}


def test_pods_of_other_namespaces_take_up_room():
    cluster = paper(nodes=1)
    foreign = ours("system", 8)
    foreign["metadata"]["namespace"] = "kube-system"
    cluster.put(foreign, spec__nodeName="n0", status__phase="Running")
    cluster.put(ours("p", 1))
    assert cluster.step() == []


def test_the_options_are_checked(tmp_path):
    config = tmp_path / "config"
    done = CliRunner().invoke(
        app, ["install", "--dry-run", "--kubeconfig", str(config), "--managed-jobs-namespace-selector", "a b"]
    )
    assert done.exit_code == 2
    assert "expected labels such as team=a" in done.stderr
    done = CliRunner().invoke(
        app,
        [
            "install",
            "--dry-run",
            "--managed-jobs-namespace-selector",
            "team=a",
            "--exclude-namespace",
            "x",
            "--admission-gate",
        ],
    )
    assert done.exit_code == 0
    assert "--exclude-namespace=x" in done.stdout
    assert '"key":"team"' in done.stdout


# -- on a real control plane -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False, scheduler=False)) as plane:
        plane.admin.post("/api/v1/nodes", node("n0"))
        yield plane


def make_namespace(plane, name, **labels):
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})


def is_bound(plane, namespace, name):
    return "nodeName" in plane.admin.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"]


def post(plane, namespace, name):
    plane.admin.post(f"/api/v1/namespaces/{namespace}/pods", pod(name, 1, scheduler="tidegate"))


def test_only_namespaces_that_the_selector_picks_are_managed(plane):
    make_namespace(plane, "ours", team="a")
    make_namespace(plane, "theirs")
    for name in ("ours", "theirs"):
        post(plane, name, "p")
    rule = ManagedNamespaces(read_rule("team=a", ("later-excluded",)))
    options = WorldOptions(ownership=Ownership(namespaces=rule))
    with Live.on(plane, options=options) as live:
        live.until(lambda: is_bound(plane, "ours", "p"))
        for name in ("later", "later-excluded"):
            make_namespace(plane, name, team="a")
            post(plane, name, "p")
        live.until(lambda: is_bound(plane, "later", "p"), what="a namespace that comes later")
        assert not is_bound(plane, "theirs", "p")
        assert not is_bound(plane, "later-excluded", "p")
        assert not live.world.needs_relist
        plane.admin.patch("/api/v1/namespaces/theirs", {"metadata": {"labels": {"team": "a"}}})
        live.until(lambda: live.world.needs_relist, what="notice that a namespace is managed now")
    with Live.on(plane, options=options) as live:
        live.until(lambda: is_bound(plane, "theirs", "p"), what="the next look")
