"""Reads a YAML or JSON file as plain data, with the line and column of every value.

Any bytes give data or a FileReadError, soon: what is too large or binary is refused early.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from tidegate.sources.yaml_data import Builder, FilePosition, FileReadError, LocatedData, position_of

#: Bytes a file may have.
MOST_BYTES = 16 << 20

#: Bytes, and values, that a file of several documents may have: a dump of a cluster is long.
MOST_BYTES_OF_SEVERAL = 256 << 20
MOST_VALUES_OF_SEVERAL = 5_000_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_file(path: Path) -> LocatedData:
    """Read a file; a FileReadError says why that is not possible."""
    return read_bytes(_content(path, MOST_BYTES))


def read_all(path: Path) -> list[LocatedData]:
    """Read the documents of a file; a FileReadError says why that is not possible."""
    return read_documents(_content(path, MOST_BYTES_OF_SEVERAL))


def _content(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
            size = max(os.fstat(file.fileno()).st_size, len(content))  # a pipe has no size
    except FileNotFoundError:
        raise FileReadError("there is no such file") from None
    except IsADirectoryError:
        raise FileReadError("is a directory; expected a file") from None
    except (OSError, ValueError) as error:
        raise FileReadError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if size > most:
        raise _too_large(size, most)
    return content


def read_bytes(content: bytes) -> LocatedData:
    """Read the content of a file; a FileReadError says why that is not possible."""
    if len(content) > MOST_BYTES:
        raise _too_large(len(content), MOST_BYTES)
    return _built(content, Builder()).result()


def read_documents(content: bytes) -> list[LocatedData]:
    """Read the documents in the content of a file; a FileReadError says why that is not possible."""
    return _built(content, Builder(several=True, most_values=MOST_VALUES_OF_SEVERAL)).results()


def _built(content: bytes, builder: Builder) -> Builder:
    _refuse_binary(content)
    try:
        loader = _LOADER(content)
        try:
            while builder.take(loader.get_event()):
                pass
        finally:
            loader.dispose()
    except FileReadError:
        raise
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, content) from None
    except yaml.reader.ReaderError as error:
        raise _character_error(error, content) from None
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError) as error:
        # The parser written in Python stumbles over some escapes and numbers, with whatever they raise.
        raise FileReadError(f"is not valid YAML: {error}") from None
    return builder


def _too_large(size: int, most: int) -> FileReadError:
    return FileReadError(f"is too large: expected at most {most:,} bytes, found {size:,}")


def _refuse_binary(content: bytes) -> None:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileReadError("is not UTF-8 text but UTF-16; save it as UTF-8")
    nul = content.find(b"\0")
    if nul >= 0:
        raise FileReadError("is binary: expected text, found a NUL byte", _place_of_byte(content, nul))
    try:
        content.decode()
    except UnicodeDecodeError as error:
        found = f"the byte 0x{content[error.start]:02x}"
        raise FileReadError(f"is not UTF-8 text: found {found}", _place_of_byte(content, error.start)) from None


def _place_of_byte(content: bytes, offset: int) -> FilePosition:
    start = content.rfind(b"\n", 0, offset) + 1
    column = len(content[start:offset].decode(errors="replace"))
    return FilePosition(content.count(b"\n", 0, offset) + 1, column + 1)


def _syntax_error(error: yaml.MarkedYAMLError, content: bytes) -> FileReadError:
    mark = error.problem_mark or error.context_mark
    place = position_of(mark) if mark else None
    if place and _has_tab_indent(content, place.line):
        return FileReadError("is indented with a tab; YAML wants spaces", place)
    reason = f"is not valid YAML: {error.problem or error.context}"
    start = error.context_mark
    if error.problem and start and mark and start.line < mark.line:
        reason += f", {error.context} that begins on line {start.line + 1}"
    return FileReadError(reason, place)


def _has_tab_indent(content: bytes, line: int) -> bool:
    lines = content.split(b"\n", line)
    text = lines[line - 1] if len(lines) >= line else b""
    return b"\t" in text[: len(text) - len(text.lstrip())]


def _character_error(error: yaml.reader.ReaderError, content: bytes) -> FileReadError:
    character = error.character
    found = f"0x{character:02x}" if isinstance(character, int) else repr(character)
    place = _place_of_byte(content, min(int(error.position), len(content)))
    return FileReadError(f"has a character that YAML does not allow: {found}", place)
