"""The wheel: it is built, installed into an empty environment and used from outside the repository."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import tidegate

ROOT = Path(__file__).parent.parent

#: What is run where only the wheel is installed.
_USE = """
import tidegate
run = tidegate.simulate("jobs.csv", nodes="4x8", journal="run.db", kernels="plain")
print(tidegate.__file__)
print(run.summary.total.finished)
print(tidegate.explain("run.db", "job-724", kernels="plain").headline)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree; with what is installed if that can build it, else with what PyPI has."""
    folder = tmp_path_factory.mktemp("wheel")
    alone = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *alone, "--wheel-dir", folder, ROOT]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    if built.returncode and not alone:
        pytest.skip(f"hatchling is not installed and cannot be fetched: {built.stderr.strip()[-200:]}")
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with the wheel alone; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel]
    subprocess.run(command, check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # after the wheel's own
    return folder


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names} == {"tidegate", f"tidegate-{tidegate.__version__}.dist-info"}
    assert {"tidegate/py.typed", "tidegate/__init__.pyi", "tidegate/api/simulation.py"} <= set(names)


def test_it_simulates_and_explains_outside_the_repository(environment, tmp_path):
    shutil.copy(ROOT / "examples" / "jobs.csv", tmp_path)
    without = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    where = {"cwd": tmp_path, "env": {**without, "XDG_STATE_HOME": str(tmp_path)}, "timeout": 100}
    bin_ = environment / "bin"
    used = subprocess.run([bin_ / "python", "-c", _USE], **where, capture_output=True, text=True, check=False)
    assert used.returncode == 0, used.stderr
    file, finished, headline = used.stdout.splitlines()
    assert Path(file).is_relative_to(environment)
    assert finished == "1478"
    assert headline.startswith("job-724 ")
    asked = [bin_ / "tidegate", "explain", "job-724", "--journal", "run.db", "--kernels", "plain"]
    said = subprocess.run(asked, **where, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert " ".join(said.stdout.split()).startswith(headline)
