"""The pages about the Python interface: made from the docstrings, and from examples that run and are typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import api_docs
import pytest
import python_docs

ROOT = Path(__file__).parent.parent


def test_the_api_page_is_up_to_date():
    assert api_docs.PAGE.read_text() == api_docs.page()  # else: run tools/api_docs.py
    assert api_docs.PAGE.read_text().startswith("<!-- Made by tools/api_docs.py")


def test_examples_run_and_print_what_the_page_says():
    assert python_docs.PAGE.read_text() == python_docs.page()  # else: run tools/python_docs.py
    assert len(python_docs.examples()) >= 8


@pytest.mark.timeout(300)  # type checkers read numpy and polars, too
def test_examples_are_typed(tmp_path):
    code = tmp_path / "examples_of_the_page.py"
    code.write_text("\n".join(python_docs.examples()))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(code)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_a_wrong_call_is_found_by_the_type_checker(tmp_path):
    code = tmp_path / "wrong_call.py"
    code.write_text("import tidegate\ntidegate.simulate('jobs.csv', nodes=4)\ntidegate.simulator('jobs.csv')\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(code)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.findall(r"\[(\S+)\]", checked.stdout) == ["arg-type", "attr-defined"]


def test_pages_name_files_that_are_there():
    for page in (api_docs.PAGE, python_docs.PAGE):
        links = re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text())
        assert links
        assert [link for link in links if not (page.parent / link).exists()] == []
