"""A test that does not end is stopped and named, and the run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ENDLESS = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_a_property_with_an_example_that_never_ends(number):
    while number >= 0:
        pass

def test_a_loop_that_swallows_everything():
    while True:
        try:
            while True:
                pass
        except Exception:
            pass

def test_another():
    pass
"""


def test_what_does_not_end_is_stopped_and_named(tmp_path):
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    options = ["-p", "bounds", "--timeout=1", "-o", "timeout_func_only=true", "-q", "-n", "1", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_endless.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "2 failed, 1 passed" in done.stdout
    for name in ("test_a_property_with_an_example_that_never_ends", "test_a_loop_that_swallows_everything"):
        assert f"bounds.TookTooLong: test_endless.py::{name} took longer than 1 s" in done.stdout
