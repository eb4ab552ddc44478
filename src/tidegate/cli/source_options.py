"""Options of every command that reads sources, and what they mean together.

Must not know: how sources are read, or what a command makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tidegate.sources.options import CanonicalTable, Format, ReportProgress

#: Characters of what is being read that a progress bar shows.
_MOST_SHOWN = 40

_SERVER = "A server"

SourcesArgument = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE…", help="Files, folders, or the address of a Prometheus.", show_default=False),
]
SourceFormatOption = Annotated[
    Format | None, typer.Option("--format", help="What the sources are; guessed if not said.", show_default=False)
]
MapOption = Annotated[
    str,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN,…",
        help="Which column is which: submitted=created_at:ms,gpus=num_gpu,queue==red.",
        show_default=False,
    ),
]
TableOption = Annotated[CanonicalTable | None, typer.Option(help="What tables in files are of.", show_default=False)]
DelimiterOption = Annotated[str, typer.Option(help='Between cells of a CSV; "tab" for a tab.', show_default=False)]
TimezoneOption = Annotated[
    str,
    typer.Option(
        metavar="ZONE", help="Of users, and of times that name none; else as sources say.", show_default=False
    ),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Refuse sources with anything to drop or put right.")]
StartOption = Annotated[
    str,
    typer.Option(metavar="TIME", help=f"{_SERVER}: from when; 7d before the end if not said.", show_default=False),
]
EndOption = Annotated[str, typer.Option(metavar="TIME", help=f"{_SERVER}: until when; now.", show_default=False)]
StepOption = Annotated[
    str, typer.Option(metavar="TIME", help=f"{_SERVER}: between samples; 1m up to a week.", show_default=False)
]
CacheOption = Annotated[
    str,
    typer.Option(metavar="DIR", help=f"{_SERVER}: keep what was fetched here.", show_default=False),
]
TokenOption = Annotated[
    str, typer.Option(envvar="PROMETHEUS_TOKEN", help=f"{_SERVER}: a bearer token.", show_default=False)
]
UserOption = Annotated[str, typer.Option(envvar="PROMETHEUS_USER", help=f"{_SERVER}: a user.", show_default=False)]
PasswordOption = Annotated[
    str, typer.Option(envvar="PROMETHEUS_PASSWORD", help=f"{_SERVER}: the user's password.", show_default=False)
]
CaFileOption = Annotated[
    str,
    typer.Option(
        metavar="FILE", envvar="PROMETHEUS_CA_FILE", help=f"{_SERVER}: whom to trust (PEM).", show_default=False
    ),
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help=f"{_SERVER}: do not check its certificate.")]


def read_delimiter(text: str) -> str:
    """A delimiter, as people write it."""
    return "\t" if text in ("tab", "\\t") else text


@contextmanager
def watching(console: Console) -> Iterator[ReportProgress]:
    """A bar that shows what is being read, where somebody looks."""
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)

        def watch(what: str, share: float) -> None:
            shown = what if len(what) <= _MOST_SHOWN else what[: _MOST_SHOWN - 1] + "…"
            bar.update(task, description=shown, completed=share)

        yield watch
