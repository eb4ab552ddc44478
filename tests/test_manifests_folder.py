"""Folders of manifests: files, lines, and what becomes of what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manifest_texts import QUEUES
from tidegate.model.problem import Severity
from tidegate.sources.manifest_dir import ManifestDirError, load_manifest_dir, review_manifest_dir

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  template:
    spec:
      containers:
      - name: c
        resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Path("m")
    (here / "jobs").mkdir(parents=True)
    (here / ".git").mkdir()
    (here / "queues.yaml").write_text(QUEUES)
    (here / "jobs/one.yml").write_text(JOB)
    (here / ".git/config.yaml").write_text("nonsense")
    (here / "README.md").write_text("nonsense")
    two = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "k", "namespace": "default"}}
    spec = {"template": {"spec": {"containers": []}}}
    (here / "jobs/two.json").write_text(json.dumps({**two, "spec": spec}, indent=1))
    return here


def test_a_folder_is_read_with_all_that_is_in_it(folder):
    found = load_manifest_dir(folder)
    assert (found.files, found.documents) == (3, 5)
    assert [planned.workload.id for planned in found.loaded.work] == ["default/j", "default/k"]
    assert found.loaded.shares.queues[0].name == "team"
    assert found.lines() == [
        (
            "m/jobs/two.json:4: document 1, Job default/k: warning: metadata: names no queue: no quota is counted; "
            "label it kueue.x-k8s.io/queue-name"
        )
    ]


def test_a_single_file_is_a_folder_too(folder):
    assert len(load_manifest_dir(folder / "queues.yaml").loaded.shares.queues) == 1


def test_errors_have_file_line_document_object_field_and_remedy(folder):
    text = QUEUES.replace("nominalQuota: 100", "nominalQuota: -1")
    (folder / "queues.yaml").write_text(text.replace("{clusterQueue: team}", "{clusterQueue: taem}"))
    with pytest.raises(ManifestDirError) as caught:
        load_manifest_dir(folder)
    assert str(caught.value).splitlines() == [
        (
            "m/queues.yaml:17: document 2, ClusterQueue team: "
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: expected an amount of zero or more, found -1"
        ),
        (
            "m/queues.yaml:24: document 3, LocalQueue default/main: spec.clusterQueue: "
            "there is no ClusterQueue 'taem'; did you mean 'team'?"
        ),
    ]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_still_read(folder):
    (folder / "bad.yaml").write_text("kind: [\n")
    (folder / "bomb.yaml").write_text(
        "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(3)) + "c: *d\n"
    )
    (folder / "jobs/one.yml").write_text(JOB.replace("limits", "limit"))
    lines = review_manifest_dir(folder).lines(Severity.ERROR)
    assert [line.split(" ")[0] for line in lines] == ["m/bad.yaml:2:", "m/bomb.yaml:5:", "m/jobs/one.yml:10:"]
    assert "is not valid YAML" in lines[0]
    assert "uses *d, which is not defined before" in lines[1]
    assert "did you mean 'limits'?" in lines[2]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda here: here / "nowhere", "m/nowhere: there is no such file or folder"),
        (lambda here: here / ".git/hooks", "m/.git/hooks: there is no such file or folder"),
        (
            lambda here: (here / "empty").mkdir() or here / "empty",
            "m/empty: has no manifests: expected files that end in",
        ),
    ],
)
def test_a_folder_that_is_none(folder, make, expected):
    found = review_manifest_dir(make(folder))
    assert found.loaded is None
    assert found.lines()[0].startswith(expected)


def test_text_inside_of_a_config_map_is_found_by_its_key(folder):
    (folder / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yunikorn-configs}\ndata:\n  queues.yaml: |\n"
        "    partitions: [{name: default, queues: [{name: root, quues: []}]}]\n"
    )
    (line,) = review_manifest_dir(folder).lines(Severity.ERROR)
    assert line.startswith("m/map.yaml:5: document 1, queues.yaml: partitions[0].queues[0].quues: unknown field")
    (folder / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yunikorn-configs}\ndata: {queues.yaml: 'a: ['}\n"
    )
    (line,) = review_manifest_dir(folder).lines(Severity.ERROR)
    assert line.startswith("m/map.yaml:4: document 1: data['queues.yaml']: is not valid YAML")


def test_the_same_folder_gives_the_same_result(folder):
    assert review_manifest_dir(folder) == review_manifest_dir(folder)
