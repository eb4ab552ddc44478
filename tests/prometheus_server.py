"""A real Prometheus on loopback, filled with series; tests that need it skip, and say why, where it is not there."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

_UNPACKED = Path(__file__).parent.parent / ".venv" / "prometheus" / "usr" / "bin"
_LOOK_BACK = "--query.lookback-delta=5m"


class Family(NamedTuple):
    """A metric and its samples: labels, seconds since 1970, value."""

    name: str
    kind: str  # gauge or counter
    samples: Iterable[tuple[dict[str, str], float, float]]


def program(name: str) -> str:
    """Where a program is; the test is skipped where it is not there."""
    found = shutil.which(name) or shutil.which(name, path=str(_UNPACKED))
    if found is None:
        pytest.skip(f"needs {name}, which is not on this machine: apt-get install prometheus")
    return found


def write_openmetrics(path: Path, families: Iterable[Family]) -> None:
    """Series as text, as `promtool tsdb create-blocks-from openmetrics` reads them."""
    with path.open("w") as file:
        for family in families:
            file.write(f"# TYPE {family.name.removesuffix('_total')} {family.kind}\n")
            for labels, at, value in family.samples:
                text = ",".join(f'{key}="{word}"' for key, word in labels.items())
                file.write(f"{family.name}{{{text}}} {value} {at:.3f}\n")
        file.write("# EOF\n")


@contextmanager
def serving(folder: Path, families: Iterable[Family]) -> Iterator[str]:
    """The address of a server that has these series."""
    server, tool = program("prometheus"), program("promtool")
    write_openmetrics(folder / "series.txt", families)
    command = [tool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "series.txt"), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [
        server,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        _LOOK_BACK,
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/-/ready", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(300):
        assert process.poll() is None, "the server ended"
        try:
            with opener.open(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server does not become ready")
