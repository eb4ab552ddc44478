"""A real Kueue that runs, and Tidegate beside it: a shadow reads along and reports, the other modes refuse.

Kueue's manager is not built by `make test`: `PYTHONPATH=tests python -m kubebench kueue` builds it, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from kubebench import Options, Plane, Unbuildable, job, node
from kubejobs import queued
from kubekueue import Kueue
from kubereplica import Replica

_JOBS, _NODES = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/nodes"
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_WORKLOADS = f"{_KUEUE}/namespaces/default/workloads"


def shares(nominal):
    """A queue of so many GPUs, with an entrance for the team."""
    about = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    quota = [{"name": "cpu", "nominalQuota": "1000"}, {"name": "nvidia.com/gpu", "nominalQuota": str(nominal)}]
    group = {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "any", "resources": quota}]}
    yield f"{_KUEUE}/resourceflavors", {**about, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield f"{_KUEUE}/clusterqueues", {**about, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}
    meta = {"name": "team", "namespace": "default"}
    entrance = {**about, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": "q"}}
    yield f"{_KUEUE}/namespaces/default/localqueues", entrance


@pytest.fixture(scope="module")
def beside(kube_programs):
    """A control plane with a Kueue that runs, two nodes, and quota for one of them."""
    with Plane(Options(build=False, audit=True)) as plane:
        try:
            kueue = Kueue(plane)
        except Unbuildable as reason:
            pytest.skip(f"{reason}; Kueue's manager: PYTHONPATH=tests python -m kubebench kueue")
        with kueue:
            for path, thing in shares(8):
                plane.admin.post(path, thing)
            for number in range(2):
                plane.admin.post(_NODES, node(f"n{number}"))
            yield plane


def is_done(plane, name):
    conditions = plane.admin.get(f"{_JOBS}/{name}")["status"].get("conditions", ())
    return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)


def call(*arguments):
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


def test_a_shadow_reads_along_with_kueue_and_reports(beside, tmp_path):
    """Kueue admits one job at a time, as quota has it; so would Tidegate have, in the same order."""
    names = [f"j{number}" for number in range(3)]
    with Replica(beside, tmp_path, "s", "--policy", "kueue") as replica:
        replica.wait(replica.leads, "a leader", 60)
        assert replica.events("running next to Kueue")
        for name in names:
            beside.admin.post(_JOBS, queued(job(name, 1, 8, runs="3s", suspend=True)))
            time.sleep(1.1)  # objects have whole seconds, and among those of one second Kueue's order is anybody's
        replica.wait(lambda: all(is_done(beside, name) for name in names), "the end of all jobs", 120)
        replica.wait(lambda: replica.metric('tidegate_facts_total{kind="WORKLOAD_FINISHED"}') == 3, "the ends")
        assert replica.stop() == 0
    assert len(beside.admin.get(_WORKLOADS)["items"]) == 3  # it was Kueue that let them go
    told = call("shadow-report", str(replica.journal), "--json")
    report = json.loads(told.stdout)
    assert (report["workloads"], report["started"]) == (3, 3)
    assert (report["unlawful"], report["halves_gpu_hours"]) == (0, 0)
    assert [row for row in report["differences"] if row["would"] == "held"] == []
    written = {
        (line["verb"], line["objectRef"]["resource"])
        for line in beside.audited()
        if line["user"]["username"] == "tidegate" and line["verb"] not in ("get", "list", "watch")
    }
    assert written == {("update", "leases")}


@pytest.mark.parametrize("mode", ["gate", "bind"])
def test_modes_that_write_refuse_beside_kueue(beside, mode):
    config = str(beside.kubeconfig("tidegate"))
    ended = call("run", "--mode", mode, "--policy", "kueue", "--kubeconfig", config, "--listen", "")
    assert ended.returncode == 3
    assert "a Kueue runs here and owns the same work" in ended.stderr
    assert "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io" in ended.stderr
