"""`tidegate install` and `tidegate doctor` where no server is needed: what is printed, and what is refused."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from commands import ran
from kubebench.process import free_port
from kubequeues import one_queue
from tidegate.cli.doctor import _print
from tidegate.cli.main import app
from tidegate.deploy.access_review import access_requests
from tidegate.deploy.check_result import CheckLevel, CheckResult
from tidegate.deploy.permissions import FOLLOWED, SUSPENDED, permissions_of, role_rules
from tidegate.live.election import LeaseName
from tidegate.live.modes import Mode
from tidegate.live.service import ServiceOptions, _ownership
from tidegate.model.policy import Policy

pytestmark = pytest.mark.usefixtures("folder")

_LEASE = LeaseName("tidegate", "tidegate")


def printed(*arguments):
    return list(yaml.safe_load_all(ran("install", "--dry-run", *arguments)))


def kinds(things):
    return [thing["kind"] for thing in things]


def found(things, kind):
    return next(thing for thing in things if thing["kind"] == kind)


def arguments_of(things):
    return found(things, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]


# -- install -----------------------------------------------------------------------------------------------------


def test_without_options_it_only_watches():
    things = printed()
    assert "--mode=shadow" in arguments_of(things)
    verbs = {verb for rule in found(things, "ClusterRole")["rules"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch"}
    assert kinds(things)[0] == "Namespace"
    assert "ServiceMonitor" not in kinds(things)
    assert "MutatingAdmissionPolicy" not in kinds(things)
    assert found(things, "Deployment")["spec"]["replicas"] == 2


def test_yaml_and_json_are_the_same_objects():
    assert json.loads(ran("install", "--dry-run", "--json"))["items"] == printed()


def test_options_are_heeded(tmp_path):
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues" / "a.yaml").write_text(one_queue(8))
    things = printed(
        "--mode", "gate", "--journal-max-size", "1Gi", "--journal-retention", "7d",
        "--namespace", "gpus", "--image", "mirror/tidegate:9", "--replicas", "3", "--service-monitor",
        "--admission-gate", "--dashboard", "--policy", str(tmp_path / "queues"),
    )  # fmt: skip
    where = {thing["metadata"].get("namespace", "gpus") for thing in things}
    assert where == {"gpus"}
    spec = found(things, "Deployment")["spec"]
    assert spec["replicas"] == 3
    assert {one["image"] for one in spec["template"]["spec"]["containers"]} == {"mirror/tidegate:9"}
    assert set(found(things, "ConfigMap")["data"]) == {"a.yaml"}
    assert {"--journal-max-size=1Gi", "--journal-retention=7d"} <= set(arguments_of(things))
    (data,) = (one for one in spec["template"]["spec"]["volumes"] if one["name"] == "data")
    assert data["emptyDir"]["sizeLimit"] == "2Gi"  # a pod that fills its volume is evicted
    assert {"ServiceMonitor", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} <= set(kinds(things))


@pytest.mark.parametrize(("source", "argument"), [("kueue", "kueue"), ("configmap:mine", "configmap:mine")])
def test_a_policy_that_is_there_is_not_printed(source, argument):
    things = printed("--policy", source)
    assert f"--policy={argument}" in arguments_of(things)
    assert "ConfigMap" not in kinds(things)
    names = {name for rule in found(things, "Role")["rules"] for name in rule.get("resourceNames", ())}
    assert names == ({"tidegate", "mine"} if source != "kueue" else {"tidegate"})


def test_a_policy_that_nobody_names_is_not_printed_and_so_not_emptied():
    """Piped over an installation that has a policy, what is printed must leave it alone."""
    done = CliRunner().invoke(app, ["install", "--dry-run"])
    assert "ConfigMap" not in kinds(yaml.safe_load_all(done.stdout))
    assert "tidegate/tidegate-policy stays as it is" in done.stderr
    assert done.stdout.startswith("# kubectl apply --server-side --field-manager=tidegate-install -f -\n")


@pytest.mark.parametrize("mode", ["gate", "bind"])
def test_a_policy_without_queues_is_refused_by_who_writes(mode, tmp_path):
    (tmp_path / "tidegate.yaml").write_text("version: 1\npolicy: {placement: bestfit}\n")
    named = ("--mode", mode, "--policy", str(tmp_path / "tidegate.yaml"))
    assert "expected queues, found none" in ran("install", "--dry-run", *named, code=2)
    assert "--allow-no-queues" in arguments_of(printed(*named, "--allow-no-queues"))
    assert "expected queues, found none" in ran("run", *kubeconfig(tmp_path, "https://127.0.0.1:1"), *named, code=2)


def test_namespaces_that_are_there_are_not_labelled():
    assert "Namespace" not in kinds(printed("--namespace", "kube-system"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--mode", "bold"), "bold"),
        (("--namespace", "Upper"), "--namespace: expected lower-case"),
        (("--namespace", "a" * 64), "63 at most"),
        (("--image", "two words"), "--image: expected"),
        (("--replicas", "0"), "--replicas"),
        (("--journal-max-size", "1Mi"), "expected 16Mi or more"),
        (("--journal-retention", "long"), "expected a duration"),
        (("--policy", "missing.yaml"), "missing.yaml: there is no such file"),
        (("--policy", "broken.yaml"), "broken.yaml:"),
        (("--policy", "torn.yaml"), "torn.yaml"),
        (("--policy", "configmap:other/policy"), "it may read no other namespace"),
        (("--policy", "configmap:"), "expected configmap:NAME"),
    ],
)
def test_what_cannot_be_installed_is_refused(arguments, told):
    assert told in ran("install", "--dry-run", *arguments, code=2)


def test_files_that_do_not_fit_one_config_map_are_refused(tmp_path):
    text = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: NAME}\n"
    for name in ("a", "b"):
        (tmp_path / "queues" / name).mkdir(parents=True)
        (tmp_path / "queues" / name / "same.yaml").write_text(text.replace("NAME", name))
    assert "each name once" in ran("install", "--dry-run", "--policy", str(tmp_path / "queues"), code=2)


def kubeconfig(tmp_path, server):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    return ("--kubeconfig", str(tmp_path / "config"))


def test_a_server_that_is_not_there_is_told(tmp_path):
    where = kubeconfig(tmp_path, f"https://127.0.0.1:{free_port()}")
    assert "nothing was applied" in ran("install", "--yes", *where, code=2)


def test_without_a_yes_nothing_is_applied(tmp_path):
    where = kubeconfig(tmp_path, "https://127.0.0.1:1")
    assert "mode shadow, to https://127.0.0.1:1?" in ran("install", *where, code=1)


# -- doctor ------------------------------------------------------------------------------------------------------


def test_doctor_says_that_a_server_is_not_there(tmp_path):
    from typer.testing import CliRunner

    from tidegate.cli.main import app

    where = kubeconfig(tmp_path, f"https://127.0.0.1:{free_port()}")
    result = CliRunner().invoke(app, ["doctor", *where, "--json"])
    (finding,) = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (finding["check"], finding["level"]) == ("server", "fail")
    assert finding["remedy"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--mode", "bold"), "bold"),
        (("--context", "missing"), "missing"),
        (("--namespace", "Upper"), "--namespace: expected lower-case"),
        (("--policy", "configmap:a/b/c"), "expected configmap:NAMESPACE/NAME"),
        (("--account", "a/b/c"), "--account: expected NAMESPACE/NAME"),
    ],
)
def test_doctor_refuses_what_means_nothing(tmp_path, arguments, told):
    assert told in ran("doctor", *kubeconfig(tmp_path, "https://127.0.0.1:1"), *arguments, code=2)


def test_doctors_table_fits_eighty_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = ", ".join(["patch resourceclaims.resource.k8s.io/status"] * 9)
    _print(
        [
            CheckResult("permissions", CheckLevel.FAIL, long, long, long),
            CheckResult("admission-gate", CheckLevel.OK, "fine"),
        ]
    )
    said = capsys.readouterr().out.splitlines()
    assert max(map(len, said)) <= 80
    assert said[-1] == "1 ok, 1 fail"


# -- the table of permissions ------------------------------------------------------------------------------------


def allowed(mode):
    """What a mode may do, one by one."""
    return {
        (group, thing, verb, name)
        for rule in role_rules(permissions_of(mode, _LEASE, "policy"))
        for group in rule["apiGroups"]
        for thing in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_each_mode_may_do_what_the_one_before_it_may_and_more():
    assert allowed(Mode.SHADOW) < allowed(Mode.GATE) < allowed(Mode.BIND)


def test_nothing_is_allowed_by_a_star():
    for mode in Mode:
        assert "*" not in {word for access_request in allowed(mode) for word in access_request}


def test_shadow_writes_its_lease_and_nothing_else():
    writes = {
        access_request for access_request in allowed(Mode.SHADOW) if access_request[2] not in ("get", "list", "watch")
    }
    assert {access_request[1] for access_request in writes} == {"leases"}


@pytest.mark.parametrize("mode", Mode)
def test_only_who_may_bind_tries_to(mode):
    ownership = _ownership(ServiceOptions(mode, _LEASE, "me"), Policy())
    assert bool(ownership.scheduler and not ownership.watches) == (mode is Mode.BIND)


def test_every_kind_that_is_followed_or_suspended_may_be():
    shadow, gate = allowed(Mode.SHADOW), allowed(Mode.GATE)
    for kind in FOLLOWED:
        assert {(kind.group, kind.plural, verb, "") for verb in ("list", "watch")} <= shadow
    for kind in SUSPENDED:
        assert (kind.group, kind.plural, "patch", "") in gate


def test_what_is_checked_is_what_is_granted():
    for mode in Mode:
        asked = {
            (one.grant.resource.group, one.grant.thing, one.verb, one.name)
            for one in access_requests(permissions_of(mode, _LEASE, "policy"))
        }
        assert asked == allowed(mode)
