"""docs/quickstart.md and README.md show real output: their commands are run, and must print what stands there."""

from __future__ import annotations

import re

import pytest

from quickstart_file import ROOT, output, page
from shared import shared


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The root of the tree, with a place of its own for the latest run."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("platformdirs.user_state_dir", lambda _: str(tmp_path))


def test_the_quick_start_prints_what_stands_there(here):
    assert page("docs/quickstart.md") == (ROOT / "docs" / "quickstart.md").read_text()  # else: tests/quickstart_file.py


def test_the_readme_explains_a_job_of_the_bundled_week(here):
    output("simulate", 80)
    assert page("README.md") == (ROOT / "README.md").read_text()  # else: run tests/quickstart_file.py


def test_the_finding_of_the_readme_is_found():
    excerpt = re.search(
        r"^\$ tidegate (plan .*?)\n(.*?)```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert excerpt
    source = shared("traces/itp/cluster07.csv")
    printed = output(excerpt[1].replace("cluster07.csv", str(source)), 100).splitlines()
    assert [line for line in excerpt[2].splitlines() if line != "…" and line not in printed] == []
