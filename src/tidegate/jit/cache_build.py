"""Compiles kernels in a process of its own, once for all processes that wait for them.

A process that finds no compiled kernels starts it, at the lowest priority, unless one runs already; it ends by itself,
within minutes, and its result is there for the next time even if its parent is gone. A lock that ends with its process
says that one runs; a file says that all kernels are there, for this state of the sources, these versions and this kind
of machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, NamedTuple

import tidegate
from tidegate.jit.cache_files import KernelStore, open_store

#: The program that compiles.
_PROGRAM = "tidegate.deploy.precompile"

#: After this many seconds it is stopped.
MOST_SECONDS = 900

#: If it failed less than this many seconds ago, it is not tried again yet.
_REST_S = 3600.0

#: Seconds between two reads of its files.
_LOOK_EVERY_S = 0.25

#: Started processes; they are not waited for.
_started: list[subprocess.Popen[bytes]] = []


@cache
def build_key() -> str:
    """A name of everything that compiled kernels depend on: all sources, versions, and the kind of machine."""
    made_of = hashlib.blake2b(digest_size=12)
    machine = (sys.version, sys.platform, platform.machine(), version("numba"), version("llvmlite"))
    made_of.update(repr(machine).encode())
    root = Path(tidegate.__path__[0])
    for path in sorted(root.rglob("*.py")):
        made_of.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return made_of.hexdigest()


def is_ready(store: KernelStore | None = None) -> bool:
    """Whether all kernels are there."""
    return (store or open_store()).has(_name("ready"))


def _name(what: str) -> str:
    return f"{build_key()}.{what}"


# -- the builder -----------------------------------------------------------------------------------------------


@contextmanager
def sole_builder(folder: Path, tries: int = 1) -> Iterator[bool]:
    """Hold the lock of the only builder of a folder; False: another process holds it, also after so many tries."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _name("lock")).open("w") as lock:
        taken = _take(lock)
        for _ in range(tries - 1):
            if taken:
                break
            time.sleep(_LOOK_EVERY_S)  # another process may hold it only to look
            taken = _take(lock)
        yield taken


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def note_progress(store: KernelStore, done: int, total: int) -> None:
    """Note how many kernels are done."""
    store.write(_name("progress"), json.dumps([done, total]).encode())


def note_ready(store: KernelStore) -> None:
    """Note that all kernels are there."""
    store.write(_name("ready"), b"")


def note_failure(store: KernelStore, error: str) -> None:
    """Note that they cannot be compiled."""
    store.write(_name("failed"), error.encode())


def end_in_time() -> None:
    """Let the system stop this process after a while, whatever it does."""
    signal.alarm(MOST_SECONDS)


# -- the processes that wait -----------------------------------------------------------------------------------


class Progress(NamedTuple):
    """How many kernels are compiled."""

    done: int
    total: int


class Build:
    """A build that is waited for."""

    def __init__(self, store: KernelStore) -> None:
        self._store = store
        self._ready = is_ready(store)
        self._look_s, self._looked = 0.0, False

    def start(self) -> bool:
        """Start a build, unless one runs; return whether one runs."""
        folder = self._store.folders[-1]
        if self._ready or self._has_just_failed():
            return False
        try:
            if self.is_running():
                return True
            command = [sys.executable, "-m", _PROGRAM, "--once"]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            # In a session of its own: it finishes although its parent is done, or is interrupted.
            _started.append(subprocess.Popen(command, start_new_session=True, cwd=folder, env=environment, **quiet))  # type: ignore[call-overload]  # noqa: S603
        except OSError:
            return False
        return True

    def is_running(self) -> bool:
        """Whether a process compiles."""
        with sole_builder(self._store.folders[-1]) as alone:
            return not alone

    def is_ready(self) -> bool:
        """Whether all kernels are there; reads files only now and then."""
        now_s = time.monotonic()
        if not self._ready and now_s >= self._look_s:
            self._look_s = now_s + _LOOK_EVERY_S
            self._ready, self._looked = is_ready(self._store), True
        return self._ready

    def looked(self) -> bool:
        """Whether files were read since this was asked last."""
        looked, self._looked = self._looked, False
        return looked

    def progress(self) -> Progress:
        """How many kernels are done."""
        found = self._store.read(_name("progress"))
        return Progress(*json.loads(found)) if found is not None else Progress(0, 0)

    def wait(self, tell: Callable[[Progress], None]) -> bool:
        """Wait until the build ends; return whether all kernels are there."""
        started_s = time.monotonic()
        while not self.is_ready() and time.monotonic() - started_s < MOST_SECONDS:
            tell(self.progress())
            time.sleep(2 * _LOOK_EVERY_S)
            if time.monotonic() - started_s > 10 and not self.is_running() and not self.is_ready():
                break
        return is_ready(self._store)

    def _has_just_failed(self) -> bool:
        with suppress(OSError):
            noted = (self._store.folders[-1] / _name("failed")).stat().st_mtime
            return time.time() - noted < _REST_S
        return False
