"""`tidegate check FILE|DIR...`: check files, and show what they contain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.errors import EXIT_BAD_INPUT


def check(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR", help="tidegate.yaml files, and folders of Kubernetes manifests."),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each file.")] = False,
) -> None:
    """Check tidegate.yaml files and folders of manifests, and show what they contain.

    \b
    Examples:
      tidegate check tidegate.yaml
      tidegate check manifests/
      tidegate check teams/*.yaml --json
    """  # noqa: D301 - \b keeps the lines apart
    from tidegate.report.output_files import open_console
    from tidegate.report.text.check import check_files

    if not check_files(files, open_console(), as_json=as_json):
        raise typer.Exit(EXIT_BAD_INPUT)
