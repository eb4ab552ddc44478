"""`tidegate check DIR` and `tidegate simulate --policy DIR`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from manifest_texts import QUEUES
from tidegate.api.scenario_input import unused_notes
from tidegate.cli.main import app
from tidegate.config.convert import Setup
from tidegate.model.policy import Policy
from tidegate.model.simulation import TwinOptions
from tidegate.report.text.check import check_files
from tidegate.sim.scenario import (
    ScenarioChanges,
    finish_setup,
    sample_scenario,
    to_submit,
    with_manifests,
    with_policy,
)
from tidegate.sources.manifest_dir import holds_manifests, load_manifest_dir

NODE = """
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.product: h100}}
status:
  allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}
  conditions: [{type: Ready, status: "True"}]
"""
JOB = """
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  creationTimestamp: "2026-11-16T08:00:{second}Z"
  labels: {{kueue.x-k8s.io/queue-name: main}}
  annotations: {{tidegate.io/runtime: 2h}}
spec: {{template: {{spec: {{containers: [{{resources: {{limits: {{cpu: 1, memory: 1Gi, nvidia.com/gpu: 4}}}}}}]}}}}}}
"""
DONE = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: done}
spec: {queueName: main, podSets: [{template: {spec: {containers: []}}}]}
status: {conditions: [{type: Finished, status: "True"}]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    jobs = JOB.format(name="a", second="30") + JOB.format(name="b", second="00")
    Path("m/all.yaml").write_text(QUEUES + NODE + jobs + DONE)
    Path("empty.yaml").write_text("version: 1\n")
    return Path("m")


def run(*names, as_json=False):
    console = Console(file=io.StringIO(), width=40)
    usable = check_files([Path(name) for name in names], console, as_json=as_json)
    return 0 if usable else 2, console.file.getvalue().splitlines()


def test_a_folder_is_summarized(folder):
    assert run("m") == (
        0,
        [
            "m: fine",
            "  machines  1 node, 8 GPUs",
            "  shares    1 queue, 0 cohorts, 1 flavor, 1 local queue",
            "  work      3 workloads, 3 pods",
        ],
    )


def test_a_file_of_manifests_is_told_from_a_tidegate_yaml(folder):
    assert holds_manifests(folder / "all.yaml")
    Path("list.json").write_text('{"kind": "List", "items": [], "apiVersion": "v1"}')
    assert holds_manifests(Path("list.json"))
    assert not holds_manifests(Path("empty.yaml"))
    assert not holds_manifests(Path("nowhere.yaml"))
    assert run("m/all.yaml")[1][0] == "m/all.yaml: fine"


def test_errors_end_with_2_and_one_line_each(folder):
    (folder / "bad.yaml").write_text("{apiVersion: kueue.x-k8s.io/v1, kind: Cohort, metadata: {name: c}}")
    code, lines = run("m", "empty.yaml")
    assert code == 2
    assert lines[0] == (
        "m/bad.yaml:1: document 1, Cohort c: apiVersion: "
        "expected kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2, found 'kueue.x-k8s.io/v1'"
    )
    assert lines[1] == "empty.yaml: fine"


def test_json_has_every_part_of_a_finding(folder):
    (folder / "bad.yaml").write_text(
        "\n\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: c}, spec: {parent: x}}"
    )
    code, (line,) = run("m", as_json=True)
    told = json.loads(line)
    assert (code, told["ok"], told["summary"], told["files"], told["documents"]) == (2, False, None, 2, 8)
    assert told["problems"] == [
        {
            "severity": "error",
            "file": "m/bad.yaml",
            "document": 1,
            "kind": "Cohort",
            "name": "c",
            "path": "spec.parent",
            "line": 3,
            "column": 80,
            "expected": "",
            "found": "unknown field",
            "hint": "did you mean 'parentName'?",
            "message": "unknown field; did you mean 'parentName'?",
        }
    ]
    (folder / "bad.yaml").unlink()
    assert json.loads(run("m", as_json=True)[1][0])["summary"]["gpus"] == 8


def test_a_folder_takes_the_place_of_queues_and_nodes_and_adds_its_work(folder):
    loaded = load_manifest_dir(folder).loaded
    setup = with_manifests(Setup([], Policy(name="mine"), [], TwinOptions()), loaded)
    assert [node.name for node in setup.nodes] == ["n1"]
    assert (setup.policy.name, setup.policy.shares) == ("mine", loaded.shares)
    assert {planned.workload.id: planned.workload.submitted_ms for planned in setup.work} == {
        "default/a": 30_000,
        "default/b": 0,
    }
    assert {planned.run.runtime_ms for planned in setup.work} == {7_200_000}


def test_without_nodes_of_its_own_a_folder_runs_on_those_of_the_file(folder):
    Path("q").mkdir()
    Path("q/q.yaml").write_text(QUEUES)
    setup = finish_setup(with_policy(sample_scenario(None), load_manifest_dir(Path("q")).loaded), ScenarioChanges())
    assert (len(setup.nodes), len(setup.work) > 1000, len(setup.policy.shares.queues)) == (30, True, 1)
    setup = finish_setup(with_policy(sample_scenario(None), load_manifest_dir(folder).loaded), ScenarioChanges())
    assert (len(setup.nodes), len(setup.work)) == (1, 2)


def test_work_that_is_over_is_not_submitted(folder):
    loaded = load_manifest_dir(folder).loaded
    assert "default/done" in dict(loaded.standings)
    assert [planned.workload.id for planned in to_submit(loaded)[0]] == ["default/a", "default/b"]


def test_what_the_twin_does_not_use_is_said(folder):
    assert unused_notes(load_manifest_dir(folder)) == []
    admitted = DONE.replace("type: Finished", "type: QuotaReserved").replace("name: done", "name: held")
    pod = (
        "---\n{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n1, hostPID: true, containers: [{}]}}\n"
    )
    warned = JOB.format(name="c", second="00").replace("spec: {", "spec: {activeDeadlineSeconds: 5, ", 1)
    (folder / "more.yaml").write_text(
        admitted.replace('"True"}]}', '"True"}], admission: {clusterQueue: team}}') + pod + warned
    )
    assert unused_notes(load_manifest_dir(folder)) == [
        "m: 1 warning; `tidegate check m` lists them",
        "m: work that was admitted goes on and holds its quota, but no room on the nodes",
        "m: what other pods hold on the nodes is not counted",
    ]


def test_a_folder_with_errors_is_not_simulated(folder):
    (folder / "bad.yaml").write_text("kind: [")
    found = CliRunner().invoke(app, ["simulate", "--policy", "m"])
    assert found.exit_code == 2
    assert "m/bad.yaml:2: is not valid YAML" in found.output


def test_a_folder_is_simulated(folder, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    found = CliRunner().invoke(app, ["simulate", "--policy", "m", "--json", "--journal", "run.db"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["summary"]["total"]["finished"] == 2
