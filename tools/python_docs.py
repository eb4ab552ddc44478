"""Runs the examples of docs/python.md and writes what they print below them.

python tools/python_docs.py            # run the examples and write the page
python tools/python_docs.py --check    # exit code 1 if the page is not up to date
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "python.md"

#: An example, with what it prints if that is on the page.
_EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def examples() -> list[str]:
    """The code of each example, in order."""
    return [found["code"] for found in _EXAMPLE.finditer(PAGE.read_text())]


def page() -> str:
    """The page, with what its examples print."""
    names: dict[str, Any] = {"__name__": "__main__"}

    def ran(found: re.Match[str]) -> str:
        printed = _printed(found["code"], names)
        shown = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{found['code']}```\n{shown}"

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(ROOT / "examples")
        return _EXAMPLE.sub(ran, PAGE.read_text())


def _printed(code: str, names: dict[str, Any]) -> str:
    """What an example prints; names stay for those after it."""
    printed = io.StringIO()
    with pl.Config(fmt_str_lengths=60, tbl_width_chars=100), contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  examples of our own page
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    made = page()
    if parser.parse_args().check:
        is_current = PAGE.read_text() == made
        print("docs/python.md is up to date" if is_current else "docs/python.md differs: run tools/python_docs.py")
        return 0 if is_current else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
