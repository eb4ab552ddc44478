"""Text for terminals with Unicode, and for those with ASCII only."""

from __future__ import annotations

from rich.console import Console, RenderableType

#: For terminals that show nothing but ASCII.
ASCII = str.maketrans("▁▂▃▄▅▆▇█░·•…–─≤≥↑", "_.-~=+*#.|*.--<>^")  # noqa: RUF001 - the dash of what is not known


def print_page(page: RenderableType, console: Console) -> None:
    """Print a page."""
    if console.encoding.lower().startswith("utf"):
        console.print(page)
        return
    with console.capture() as captured:
        console.print(page)
    plain = captured.get().translate(ASCII)
    console.file.write(plain.encode(console.encoding, "backslashreplace").decode(console.encoding))
