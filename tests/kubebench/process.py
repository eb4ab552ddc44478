"""One program of the control plane: started, waited for, ended, started again.

Must not know: which program it is.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: A script that becomes another program, which the kernel ends with its parent.
LEASH = Path(__file__).parent / "leash.py"

#: The thread that starts programs: the kernel ends them with it, and it lives as long as we do.
KEEPER = ThreadPoolExecutor(1, "kubebench")


class Process:
    """A program with its arguments and its log."""

    def __init__(self, command: list[str], log: Path, home: Path) -> None:
        self.command, self.log, self.home = command, log, home
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What the program is called."""
        return Path(self.command[0]).name

    @property
    def pid(self) -> int:
        """Its process id; 0 if it does not run."""
        return self._running.pid if self._running is not None and self._running.poll() is None else 0

    def start(self) -> None:
        """Start it, on a leash."""
        KEEPER.submit(self._start).result()

    def _start(self) -> None:
        leashed = [sys.executable, "-S", "-E", str(LEASH), str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env={"HOME": str(self.home), "PATH": os.environ.get("PATH", ""), "GOMAXPROCS": "2"},
                start_new_session=True,  # a Ctrl-C is for the tests to handle
            )

    def wait_until(self, ready: Callable[[], bool], most_s: float) -> None:
        """Wait until it is ready; if it ends or takes too long, say so with the end of its log."""
        until = time.monotonic() + most_s
        while not ready():
            if self.pid == 0:
                raise RuntimeError(f"{self.name} ended:\n{self.tail()}")
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name} is not ready after {most_s:.0f} s:\n{self.tail()}")
            time.sleep(0.05)

    def stop(self, *, kill: bool = False) -> None:
        """End it; with `kill` at once, without its last words."""
        if self._running is None:
            return
        self._running.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._running = None

    def pause(self) -> None:
        """Stop it in its tracks, as an overloaded machine would."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def cpu_s(self) -> float:
        """What it has computed so far; 0 if it does not run."""
        if self.pid == 0:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> int:
        """The memory it has in use."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
        return 0

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
