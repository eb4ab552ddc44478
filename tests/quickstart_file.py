"""Writes the output of the commands in docs/quickstart.md and README.md: run it after changing what they print."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli.main import app

ROOT = Path(__file__).parent.parent

#: Pages, and how wide a terminal their output is made for.
PAGES = {"docs/quickstart.md": 100, "README.md": 140}

_CONSOLE = re.compile(r"(?<=```console\n)\$ tidegate .*?(?=```)", re.DOTALL)
#: Output with an ellipsis is an excerpt, and written by hand.
_EXCERPT = "\n…\n"


def page(name: str) -> str:
    """The page with the output that its commands print now, from the root of the tree."""
    return _CONSOLE.sub(lambda block: _printed(block[0], PAGES[name]), (ROOT / name).read_text(encoding="utf-8"))


def _printed(block: str, columns: int) -> str:
    if _EXCERPT in block:
        return block
    command = block.partition("\n")[0]
    return f"{command}\n{output(command.removeprefix('$ tidegate '), columns)}\n"


def output(command: str, columns: int) -> str:
    """What a command prints, without the error channel and spaces at the ends of lines."""
    environment = {"COLUMNS": str(columns)}
    result = CliRunner().invoke(app, shlex.split(command), env=environment, prog_name="tidegate")
    return "\n".join(line.rstrip() for line in result.stdout.rstrip().splitlines())


if __name__ == "__main__":
    os.chdir(ROOT)
    output("simulate", 80)  # the latest run, which README.md explains a job of
    for each in reversed(PAGES):
        (ROOT / each).write_text(page(each), encoding="utf-8")
        print(f"wrote {ROOT / each}")
