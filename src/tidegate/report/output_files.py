"""Files and consoles of commands: files are written whole or not at all; NO_COLOR and ASCII terminals are respected."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.model.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: For terminals that show nothing but ASCII.
ASCII = str.maketrans("▁▂▃▄▅▆▇█░·•…–─≤≥↑", "_.-~=+*#.|*.--<>^")  # noqa: RUF001 - the dash of what is not known


class UnwritableError(UserError):
    """A file that cannot be written; the text says why and what to do."""


def open_console(*, stderr: bool = False) -> Console:
    """A console; where NO_COLOR is set it writes no escape codes at all, not even bold ones or a progress bar."""
    from rich.console import Console  # takes a while to load

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is spelled out
    return Console(stderr=stderr, force_terminal=False if os.environ.get("NO_COLOR") else None)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: never wrapped, never taken for markup, and without what the terminal cannot show."""
    showable = text.encode(console.encoding, "backslashreplace").decode(console.encoding)
    console.out(showable, style=style, highlight=False)


def check_writable(option: str, path: Path) -> None:
    """Refuse a path that cannot be written, before any work is done for it."""
    if path.is_dir():
        raise UnwritableError(f"{option} {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UnwritableError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UnwritableError(f"{option} {path}: you may not write to the folder {path.parent}; name another one")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path next to the target, moved there at the end; no half-written file is left."""
    beside = path.with_name(path.name + ".part")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def console_text(show: Callable[[Console], None], width: int = 100) -> str:
    """What would be printed on a console of this width, as plain text."""
    from rich.console import Console

    text = io.StringIO()
    show(Console(file=text, width=width, color_system=None, force_terminal=False))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).rstrip()


def print_page(page: RenderableType, console: Console) -> None:
    """Print a page."""
    if console.encoding.lower().startswith("utf"):
        console.print(page)
        return
    with console.capture() as captured:
        console.print(page)
    plain = captured.get().translate(ASCII)
    console.file.write(plain.encode(console.encoding, "backslashreplace").decode(console.encoding))
