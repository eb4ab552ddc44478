"""Compiled kernels are named by everything that goes into them: none is ever taken for another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tidegate
from tidegate.engine.kernels.fifo_cycle import lack_of
from tidegate.engine.kernels.quota_cycle import cycle_queues
from tidegate.jit import registry
from tidegate.jit.cache_build import is_ready, note_ready
from tidegate.jit.cache_files import FOLDER_VARIABLE, KernelStore, bundled_folders
from tidegate.jit.compile import Compiler
from tidegate.jit.digest import Fingerprints, describe
from tidegate.state.tables import quota_nodes, quota_reservations

SOURCE = Path(tidegate.__path__[0])

#: Asks a kernel, plain and compiled, whether a tree of quotas is dirty.
ASK = """
import numpy as np
from tidegate.engine.kernels import fixpoint
from tidegate.jit.registry import active, kernels_as
from tidegate.state.tables import quota_nodes
rows = np.zeros((2, len(quota_nodes.QuotaNodes.columns)), np.int64)
rows[0, quota_nodes.DIRTY] = 1
with kernels_as(compiled=True):
    kernel = active(fixpoint.is_dirty)
    print(quota_nodes.DIRTY, fixpoint.is_dirty(rows), kernel(rows), sum(kernel.stats.cache_hits.values()))
"""


def digest(name: str) -> str:
    return Fingerprints(registry._plain).of(name)


def test_a_constant_that_changes_changes_every_kernel_that_comes_to_use_it(monkeypatch):
    before = {name: digest(name) for name in ("is_dirty", "run_cycles", "lack_of")}
    monkeypatch.setattr(quota_nodes, "DIRTY", quota_nodes.DIRTY + 1)
    after = {name: digest(name) for name in before}
    assert after["is_dirty"] != before["is_dirty"]
    assert after["run_cycles"] != before["run_cycles"]  # it calls the other
    assert after["lack_of"] == before["lack_of"]  # it does not
    assert lack_of.__name__ == "lack_of"


def test_a_kernel_that_moves_to_another_module_changes_its_name(monkeypatch):
    """What is kept of a kernel names its module: after a move it could not be loaded any more."""
    before = digest("is_dirty"), digest("run_cycles")
    monkeypatch.setattr(registry._plain["is_dirty"], "__module__", "tidegate.elsewhere")
    assert digest("is_dirty") != before[0]
    assert digest("run_cycles") != before[1]


def test_columns_counters_and_reason_codes_go_into_the_name(monkeypatch):
    from tidegate.engine.kernels import fifo_cycle, quota_cycle

    before = digest("lack_of"), digest("cycle_queues")
    monkeypatch.setattr(fifo_cycle, "GANG_PARTIAL", fifo_cycle.GANG_PARTIAL + 1)
    monkeypatch.setattr(quota_reservations, "GATED", quota_reservations.GATED + 1)
    assert digest("lack_of") != before[0]
    assert digest("cycle_queues") != before[1]
    assert cycle_queues.__module__ == quota_cycle.__name__


def test_values_are_told_apart():
    Point = namedtuple("Point", "x y")  # noqa: PYI024 - made here
    Other = namedtuple("Point", "y x")  # noqa: PYI024
    values = [1, 1.0, True, "1", (1,), (1, 2), None, np.arange(2), np.arange(2.0), np.arange(3), Point, Other]
    described = [repr(describe(value, [])) for value in values]
    assert len(set(described)) == len(values)
    assert repr(describe(np, ["int64"])) != repr(describe(np, ["zeros"]))


@pytest.mark.compiles
def test_a_field_that_moves_changes_the_name():
    from numba import types

    from tidegate.jit.numba_tuples import ByPointer

    one = namedtuple("Pair", "a b")  # noqa: PYI024 - made here
    other = namedtuple("Pair", "b a")  # noqa: PYI024
    kinds = [ByPointer(types.NamedUniTuple(types.int64, 2, each)) for each in (one, other)]
    names = {registry.compiler().file_name("lack_of", {}, (kind,)) for kind in kinds}
    assert str(kinds[0]) == str(kinds[1])
    assert len(names) == 2


def asked(source: Path, cache: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "XDG_CACHE_HOME": str(cache)}
    told = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    return told.stdout.split()


@pytest.mark.compiles
def test_a_column_more_hits_no_stale_kernel(tmp_path):
    """As an edit does it: the same cache and the same files, in which a column is put before the others."""
    cache, edited = tmp_path / "cache", tmp_path / "src"
    shutil.copytree(SOURCE, edited / "tidegate", ignore=shutil.ignore_patterns("__pycache__"))
    assert asked(edited, cache) == [str(quota_nodes.DIRTY), "True", "True", "0"]
    assert asked(edited, cache) == [str(quota_nodes.DIRTY), "True", "True", "1"]
    table = edited / "tidegate" / "state" / "tables" / "quota_nodes.py"
    text = table.read_text()
    changed = text.replace("    parent: I64", "    new: I64\n    parent: I64", 1).replace(
        "    PARENT,", "    NEW, PARENT,", 1
    )
    assert changed.count("\n") == text.count("\n") + 1
    assert "NEW, PARENT" in changed
    table.write_text(changed)
    assert asked(edited, cache) == [str(quota_nodes.DIRTY + 1), "True", "True", "0"]
    table.write_text(text)
    assert asked(edited, cache) == [str(quota_nodes.DIRTY), "True", "True", "1"]
    assert asked(SOURCE.parent, cache) == [
        str(quota_nodes.DIRTY),
        "True",
        "True",
        "1",
    ]  # where they lie makes no difference


def test_a_kernel_of_a_module_that_is_gone_is_compiled_again(monkeypatch):
    """Its text is the same, so its file has the same name; what numba keeps with it names its module."""
    compiler = object.__new__(Compiler)
    monkeypatch.setattr(compiler, "_read", lambda file: ({}, b"", b"ctidegate.no_such_module\nkernel\n."))
    monkeypatch.setattr(compiler, "_library", lambda file, context: object())
    assert compiler.load("kernel-0", None) is None


def test_a_file_is_whole_or_not_there(tmp_path):
    store = KernelStore([tmp_path])
    assert store.read("it") is None
    assert store.write("it", b"compiled")
    assert store.read("it") == b"compiled"
    (tmp_path / "it").write_bytes((tmp_path / "it").read_bytes()[:-1])
    assert store.read("it") is None
    assert [path.name for path in tmp_path.iterdir()] == ["it"]  # nothing half-written beside it


def test_folders_are_read_in_order_and_the_last_is_written_to(tmp_path):
    bundled, own = tmp_path / "bundled", tmp_path / "own"
    KernelStore([bundled]).write("a", b"1")
    store = KernelStore([bundled, own])
    store.write("a", b"2")
    store.write("b", b"3")
    assert (store.read("a"), store.read("b")) == (b"1", b"3")
    assert sorted(path.name for path in own.iterdir()) == ["a", "b"]
    assert not KernelStore([Path("/proc/no")]).write("a", b"1")  # a folder that cannot be written to is no error


def test_what_one_user_writes_another_can_read(tmp_path):
    """As in an image: root compiles, and who runs it is somebody else."""
    before = os.umask(0o022)
    try:
        assert KernelStore([tmp_path / "kernels"]).write("it", b"compiled")
    finally:
        os.umask(before)
    assert (tmp_path / "kernels" / "it").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_cannot_be_entered_is_as_if_it_were_empty(tmp_path, monkeypatch):
    locked, store = tmp_path / "locked" / "kernels", KernelStore([tmp_path / "locked" / "kernels"])
    assert store.write("it", b"")
    note_ready(store)
    assert is_ready(store)
    with nobody_in(tmp_path / "locked"):
        monkeypatch.setenv(FOLDER_VARIABLE, str(locked))
        assert not store.has("it")
        assert not is_ready(store)
        assert locked not in bundled_folders()


def test_kernels_that_are_there_and_cannot_be_read_are_not_ready(tmp_path):
    store = KernelStore([tmp_path])
    note_ready(store)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert not is_ready(store)


@contextmanager
def nobody_in(folder: Path) -> Iterator[None]:
    """Be somebody who may not enter a folder: root may enter them all."""
    root = os.geteuid() == 0
    folder.chmod(0o000)
    if root:
        os.seteuid(65532)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
