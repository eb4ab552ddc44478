"""Replicas of Tidegate as processes of their own, on a control plane of the test bench."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from kubebench import Plane
from kubebench.process import KEEPER, LEASH, free_port

#: Short times, so that tests need not wait for Leases.
QUICK = ("--lease-duration", "4s", "--renew-deadline", "2s", "--retry-period", "300ms", "--policy-period", "300ms")


class Replica:
    """One process. Use it in a with statement: what still runs at its end is killed, however we end."""

    def __init__(
        self, plane: Plane, folder: Path, name: str, *arguments: str, user: str = "tidegate", journals: bool = True
    ) -> None:
        self.name, self.port = name, free_port()
        self.journal, self.log = folder / f"{name}.db", folder / f"{name}.log"
        self.command = [
            sys.executable, "-m", "tidegate", "run", "--kubeconfig", str(plane.kubeconfig(user)), "--identity", name,
            *(("--journal", str(self.journal)) if journals else ()), "--listen", f"127.0.0.1:{self.port}",
            "--kernels", "plain", "--log", "json", "--allow-no-queues", *QUICK, *arguments,
        ]  # fmt: skip

    def __enter__(self) -> Self:
        leashed = [sys.executable, "-S", "-E", str(LEASH), str(os.getpid()), *self.command]
        with self.log.open("a") as log:
            started = {"stderr": log, "stdout": log, "env": {**os.environ, "NO_COLOR": "1"}}
            self.process = KEEPER.submit(partial(subprocess.Popen, leashed, **started)).result()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP; 0 if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """The value of a metric, as it is written; 0 if there is none."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def events(self, event: str = "") -> list[dict[str, Any]]:
        """Lines of the log; those of an event, if one is named."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if not event or line["event"] == event]

    def leads(self) -> bool:
        """Whether it leads."""
        return self.metric("tidegate_leader") == 1

    def wait(self, holds: Callable[[], object], what: str, most_s: float = 30.0) -> None:
        """Wait until something holds."""
        until_s = time.monotonic() + most_s
        while not holds():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what} did not come about in {most_s:.0f} s; {self.name} said:\n{self._said()}")
            time.sleep(0.05)

    def _said(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-20:])
