"""Jobs of every kind on a real control plane: admitted, run and finished, gated or bound by us."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, node
from kubejobs import PATHS, crd_files, install_runtime, make, queued
from kubelive import Live
from kubeowners import RECIPES, Owners
from tidegate.kube.following import Pace
from tidegate.kube.ledger import Reach
from tidegate.kube.world import WorldOptions
from tidegate.model.facts import Outcome

_PODS, _NODES = PATHS["Pod"], "/api/v1/nodes"

#: What is over by itself, and what runs until it is deleted.
_ENDS = ("Job", "JobSet", "PyTorchJob", "TFJob", "MPIJob", "TrainJob", "RayJob")
_STAYS = ("RayCluster",)
_PODS_OF = {"Job": 2, "JobSet": 3, "PyTorchJob": 3, "TFJob": 3, "MPIJob": 3, "TrainJob": 2, "RayJob": 4, "RayCluster": 3}


@pytest.fixture(scope="module")
def plane(kube_programs):
    controllers = f"{Options().controllers},deployment-controller,replicaset-controller,statefulset-controller"
    files = crd_files()
    with Plane(Options(build=False, audit=True, controllers=controllers)) as plane:
        plane.install(*files)
        install_runtime(plane)
        for number in range(4):
            plane.admin.post(_NODES, node(f"n{number}"))
        yield plane


def pods_of(plane, name):
    return [one for one in plane.admin.get(_PODS)["items"] if one["metadata"]["name"].startswith(f"{name}-")]


def is_over(plane, kind, name):
    status = plane.admin.get(f"{PATHS[kind]}/{name}").get("status", {})
    words = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
    return bool(words & {"Complete", "Completed", "Succeeded"}) or status.get("jobStatus") == "SUCCEEDED"


def is_running(plane, name, pods):
    found = pods_of(plane, name)
    return len(found) == pods and all(one["status"].get("phase") == "Running" for one in found)


def options(**reach):
    return WorldOptions(reach=Reach(**reach), pace=Pace(absent_s=2))


@pytest.fixture(scope="module")
def gated(plane):
    """All kinds at once, suspended and with a queue; the cluster's own scheduler binds."""
    kinds = (*_ENDS, *_STAYS)
    for kind in kinds:
        plane.admin.post(PATHS[kind], queued(make(kind, f"gated-{kind.lower()}", suspend=True)))
    ended = {}
    with Owners(plane, *RECIPES) as owners, Live.on(plane, options=options(scheduler="", gates=True)) as live:

        def done():
            for kind in _ENDS:
                ended[kind] = ended.get(kind) or is_over(plane, kind, f"gated-{kind.lower()}")
            for kind in _STAYS:
                ended[kind] = ended.get(kind) or is_running(plane, f"gated-{kind.lower()}", _PODS_OF[kind])
            return all(ended.values())

        try:
            live.until(done, most_s=60)
        except TimeoutError:
            pass
    return ended, owners.errors, live


@pytest.mark.parametrize("kind", [*_ENDS, *_STAYS])
def test_a_job_that_is_gated_is_let_go_and_runs(gated, kind):
    ended, errors, _ = gated
    assert ended[kind], errors
