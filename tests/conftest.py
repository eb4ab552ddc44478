"""What tests of several modules are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import SMALL
from kubebench import Options, Plane, Unbuildable, find_programs, node
from kubebench.programs import RENDERERS
from kubebench.users import NARROW

pytest_plugins = ["bounds"]

#: What tests leave on a control plane.
_LEFT = (
    "/apis/batch/v1/namespaces/default/jobs",
    "/api/v1/namespaces/default/pods",
    "/api/v1/nodes",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a good and a broken file, and a home of its own for the latest run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("small.yaml").write_text(SMALL)
    Path("broken.yaml").write_text(SMALL.replace("count: 2", "count: two", 1).replace("cycle", "cycel"))
    Path("torn.yaml").write_text(SMALL[: SMALL.index("policy") - 3])
    Path("empty.yaml").write_text("version: 1\n")
    return here


@pytest.fixture(scope="session")
def kube_programs():
    """The programs of a control plane; tests that need them skip where they are not there (`make kubebench`)."""
    try:
        return find_programs(build=False)
    except Unbuildable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def renderers():
    """What turns the files of deploy/ into objects: kustomize, and Helm's engine; tests skip without them."""
    try:
        return find_programs(RENDERERS, build=False)
    except Unbuildable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def plane(kube_programs):
    """A control plane for the tests of a module, without the cluster's own scheduler, with an audit log.

    A module that needs another has a fixture of this name of its own.
    """
    users = (*Options().users, NARROW)
    with Plane(Options(build=False, scheduler=False, audit=True, users=users)) as plane:
        yield plane


@pytest.fixture
def cluster(plane):
    """The control plane with two nodes of eight GPUs and nothing on them; empty again after each test."""
    for number in range(2):
        plane.admin.post("/api/v1/nodes", node(f"n{number}"))
    yield plane
    plane.clear(*_LEFT)
