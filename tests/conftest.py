"""What tests of several modules are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import SMALL
from kubebench import Unbuildable, find_programs
from kubebench.programs import RENDERERS


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
