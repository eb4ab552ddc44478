"""Short ways to run commands in tests, and a file for them to run on."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli.main import app

#: A gang on all GPUs for an hour, and three notebooks that come meanwhile.
SMALL = """\
cluster:
  pools:
    - {name: train, count: 2, shape: {gpu: h100, gpus: 8, gpu_memory: 80Gi, cpu: 192, memory: 2Ti}}
policy: {cycle: 10s}
work:
  - {id: gang, queue: research, kind: training, runtime: 1h, pods: [{count: 2, gpus: 8}]}
  - {id: note, submit: 10m, copies: 3, every: 5m, runtime: 30m, pods: [{gpus: 1}], use: {busy: 0.2}}
"""


def ran(*arguments: str, code: int = 0, **environment: str) -> str:
    """What a command prints; it must end with this code."""
    result = CliRunner().invoke(app, list(arguments), env=environment, prog_name="tidegate")
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stdout if code == 0 else result.stderr


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
