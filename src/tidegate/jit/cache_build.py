"""Compiling kernels in a process of its own, once for all who wait for them.

Whoever finds no compiled kernels starts it, at the lowest priority, unless one runs already; it ends by itself, within
minutes, and what it made is there for the next time even if who started it is gone. A lock that ends with its process
says that one runs; a file says that all kernels are there, for this state of the sources, these versions and this
kind of machine.
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
from tidegate.jit.cache_files import Store, open_store

#: The program that compiles.
_PROGRAM = "tidegate.deploy.precompile"

#: After so many seconds it is stopped, whatever it does.
MOST_SECONDS = 900

#: It failed less than so many seconds ago: it is not tried again yet.
_REST_S = 3600.0

#: Seconds from one look at its files to the next.
_LOOK_EVERY_S = 0.25

#: Processes that were started here: nobody waits for them.
_started: list[subprocess.Popen[bytes]] = []


@cache
def build_key() -> str:
    """A name of everything that compiled kernels are made of: all sources, versions, and the kind of machine."""
    made_of = hashlib.blake2b(digest_size=12)
    machine = (sys.version, sys.platform, platform.machine(), version("numba"), version("llvmlite"))
    made_of.update(repr(machine).encode())
    root = Path(tidegate.__path__[0])
    for path in sorted(root.rglob("*.py")):
        made_of.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return made_of.hexdigest()


def is_ready(store: Store | None = None) -> bool:
    """Say whether all kernels are there."""
    return (store or open_store()).has(_name("ready"))


def _name(what: str) -> str:
    return f"{build_key()}.{what}"


# -- who compiles ----------------------------------------------------------------------------------------------


@contextmanager
def sole_builder(folder: Path, tries: int = 1) -> Iterator[bool]:
    """Be the one who compiles into a folder; False: somebody else is, also after so many tries."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _name("lock")).open("w") as lock:
        taken = _take(lock)
        for _ in range(tries - 1):
            if taken:
                break
            time.sleep(_LOOK_EVERY_S)  # somebody may only look whether there is one
            taken = _take(lock)
        yield taken


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def note_progress(store: Store, done: int, total: int) -> None:
    """Note how far it is."""
    store.write(_name("progress"), json.dumps([done, total]).encode())


def note_ready(store: Store) -> None:
    """Note that all kernels are there."""
    store.write(_name("ready"), b"")


def note_failure(store: Store, error: str) -> None:
    """Note that they cannot be compiled."""
    store.write(_name("failed"), error.encode())


def end_in_time() -> None:
    """Let the system stop this process after a while, whatever it does."""
    signal.alarm(MOST_SECONDS)


# -- who waits -------------------------------------------------------------------------------------------------


class Progress(NamedTuple):
    """How many kernels are compiled."""

    done: int
    total: int


class Build:
    """The build that somebody waits for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ready = is_ready(store)
        self._look_s, self._looked = 0.0, False

    def start(self) -> bool:
        """Have a process compile, unless one does; says whether there is one."""
        folder = self._store.folders[-1]
        if self._ready or self._has_just_failed():
            return False
        try:
            if self.is_running():
                return True
            command = [sys.executable, "-m", _PROGRAM, "--once"]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            # Of a session of its own: it finishes although who started it is done, or is interrupted.
            _started.append(subprocess.Popen(command, start_new_session=True, cwd=folder, env=environment, **quiet))  # type: ignore[call-overload]  # noqa: S603
        except OSError:
            return False
        return True

    def is_running(self) -> bool:
        """Say whether some process compiles."""
        with sole_builder(self._store.folders[-1]) as alone:
            return not alone

    def is_ready(self) -> bool:
        """Say whether all kernels are there; looks at files now and then only."""
        now_s = time.monotonic()
        if not self._ready and now_s >= self._look_s:
            self._look_s = now_s + _LOOK_EVERY_S
            self._ready, self._looked = is_ready(self._store), True
        return self._ready

    def looked(self) -> bool:
        """Say whether files were looked at since this was asked last."""
        looked, self._looked = self._looked, False
        return looked

    def progress(self) -> Progress:
        """How far it is."""
        found = self._store.read(_name("progress"))
        return Progress(*json.loads(found)) if found is not None else Progress(0, 0)

    def wait(self, tell: Callable[[Progress], None]) -> bool:
        """Wait until it is over; says whether all kernels are there."""
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
