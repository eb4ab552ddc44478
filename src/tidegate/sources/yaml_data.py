"""Builds plain data of the events of a YAML parser, with the line and column of every value.

The stack is our own, so nothing recurses; aliases share their value and are never expanded, but count as if they were.
Scalars are read as in YAML 1.2: `no`, `12:30`, `010` and dates are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from tidegate.model import problem
from tidegate.model.errors import UserError

#: Values a file may have, aliases counted as if they were written out. It bounds the time that reading takes.
MOST_VALUES = 200_000

#: How deep lists and mappings may nest, aliases included.
MOST_DEPTH = 64

_WORDS = {"": None, "~": None, **dict.fromkeys(("null", "Null", "NULL"))}
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,29})", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,29})?(\.[0-9]{0,30})?([eE][-+]?[0-9]{1,3})?", re.ASCII)

#: The key that merges other mappings into its own.
_MERGE = "<<"


class FilePosition(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


def position_of(mark: Any) -> FilePosition:
    """The place of a parser's mark."""
    return FilePosition(mark.line + 1, mark.column + 1)


class FileReadError(UserError):
    """Why a file gives no data, and where if that is known."""

    def __init__(self, reason: str, place: FilePosition | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


class LocatedData:
    """The data of a file, and the positions of its values."""

    def __init__(self, data: Any, root: Any, marks: dict[int, Any]) -> None:
        self.data = data
        self._root = root
        self._marks = marks  # by the id of a list or mapping: the parser's marks of its items or keys

    def place(self, path: problem.Path) -> FilePosition:
        """The position of the value at the path, or of the innermost mapping or list around it."""
        found, value = self._root, self.data
        for step in path:
            try:
                found, value = self._marks[id(value)][step], value[step]
            except (KeyError, IndexError, TypeError):
                break
        return position_of(found) if found else FilePosition(1, 1)


def plain_value(text: str) -> Any:
    """What an unquoted scalar means."""
    if text in _WORDS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        try:
            number = float(text)
        except ValueError:  # a lone sign or point
            return text
        return number if math.isfinite(number) else text
    return text


class _Built(NamedTuple):
    """A finished value: how many values it has with all its parts, and how deep they nest."""

    value: Any
    size: int = 1
    height: int = 0


class _Open:
    """A list or mapping that is being filled."""

    def __init__(self, value: Any, mark: Any, anchor: str | None, before: int) -> None:
        self.value = value
        self.mark = mark
        self.anchor = anchor
        self.before = before  # values in the file up to it
        self.marks: Any = type(value)()
        self.key: str | None = None  # of a mapping: the key whose value comes next
        self.merged: list[Any] = []
        self.height = 1

    def wants_key(self) -> bool:
        """Whether a key must come next."""
        return self.key is None and isinstance(self.value, dict)


class Builder:
    """Takes events, gives data: of one document, or of several where that is asked for."""

    def __init__(self, *, several: bool = False, most_values: int = MOST_VALUES) -> None:
        self._several = several
        self._most_values = most_values
        self._earlier: list[LocatedData] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Built | None] = {}  # None: not finished yet
        self._marks: dict[int, Any] = {}
        self._whole: _Built | None = None
        self._root: Any = None
        self._values = 0
        self._aliased = 0  # values that stand only by alias
        self._takers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._take_scalar,
            yaml.MappingStartEvent: self._open,
            yaml.SequenceStartEvent: self._open,
            yaml.MappingEndEvent: self._close,
            yaml.SequenceEndEvent: self._close,
            yaml.AliasEvent: self._take_alias,
            yaml.DocumentStartEvent: self._begin,
        }

    def result(self) -> LocatedData:
        """The data of the whole file; None if it says nothing."""
        return LocatedData(self._whole.value if self._whole else None, self._root, self._marks)

    def results(self) -> list[LocatedData]:
        """The data of each document."""
        return [*self._earlier, self.result()] if self._whole else self._earlier

    def take(self, event: Any) -> bool:
        """Take the next event in; False after the last."""
        taker = self._takers.get(type(event))
        if taker is not None:
            taker(event)
        return not isinstance(event, yaml.StreamEndEvent)

    def _begin(self, event: Any) -> None:
        if self._whole is None:
            return
        if not self._several:
            raise _refused("has several documents; expected one", event.start_mark)
        self._earlier.append(self.result())
        self._whole, self._root = None, None
        self._anchors, self._marks = {}, {}

    def _take_scalar(self, event: Any) -> None:
        mark = event.start_mark
        _refuse_tag(event.tag, mark)
        value = event.value if event.style else plain_value(event.value)
        if self._stack and self._stack[-1].wants_key():
            if not isinstance(value, str):
                raise _refused(f"has a key that is not text: {problem.found_text(value)}; quote it", mark)
            self._take_key(self._stack[-1], value, mark)
            return
        built = _Built(value)
        if event.anchor:
            self._anchors[event.anchor] = built
        self._values += 1
        self._put(built, mark)

    def _take_key(self, parent: _Open, key: str, mark: Any) -> None:
        if key in parent.marks:
            shown, first = problem.shortened(key), parent.marks[key].line + 1
            raise _refused(f"has the key {shown} twice in one mapping, first on line {first}", mark)
        parent.key = key
        parent.marks[key] = mark

    def _open(self, event: Any) -> None:
        mark = event.start_mark
        _refuse_tag(event.tag, mark)
        self._refuse_as_key(mark)
        self._refuse_depth(1, mark)
        value: Any = {} if type(event) is yaml.MappingStartEvent else []
        self._stack.append(_Open(value, mark, event.anchor, self._values))
        self._values += 1
        if event.anchor:
            self._anchors[event.anchor] = None

    def _close(self, event: Any) -> None:
        del event
        done = self._stack.pop()
        for source in done.merged:
            self._merge(source, done)
        self._marks[id(done.value)] = done.marks
        built = _Built(done.value, self._values - done.before, done.height)
        if done.anchor:
            self._anchors[done.anchor] = built
        self._put(built, done.mark)

    def _merge(self, source: Any, into: _Open) -> None:
        for mapping in source if isinstance(source, list) else [source]:
            if not isinstance(mapping, dict):
                raise _refused("merges ('<<') something that is not a mapping", into.marks[_MERGE])
            for key, value in mapping.items():
                if key not in into.value:
                    into.value[key] = value
                    into.marks[key] = self._marks[id(mapping)][key]

    def _take_alias(self, event: Any) -> None:
        mark, name = event.start_mark, event.anchor
        self._refuse_as_key(mark)
        if name not in self._anchors:
            raise _refused(f"uses *{name}, which is not defined before", mark)
        built = self._anchors[name]
        if built is None:
            raise _refused(f"uses *{name} inside of &{name}: that has no end", mark)
        self._refuse_depth(built.height, mark)
        self._values += built.size
        self._aliased += built.size
        if self._several and self._aliased > MOST_VALUES:
            raise _refused(f"has too many values by alias: expected at most {MOST_VALUES:,}", mark)
        self._put(built, mark)

    def _put(self, built: _Built, mark: Any) -> None:
        """Put a finished value where it belongs."""
        if self._values > self._most_values:
            raise _refused(f"has too many values: expected at most {self._most_values:,}, aliases written out", mark)
        if not self._stack:
            self._whole, self._root = built, mark
            return
        parent = self._stack[-1]
        parent.height = max(parent.height, built.height + 1)
        if isinstance(parent.value, list):
            parent.value.append(built.value)
            parent.marks.append(mark)
        elif parent.key == _MERGE:
            parent.merged.append(built.value)
        else:
            parent.value[parent.key] = built.value
        parent.key = None

    def _refuse_as_key(self, mark: Any) -> None:
        if self._stack and self._stack[-1].wants_key():
            raise _refused("has a key that is not text but a list, a mapping or an alias", mark)

    def _refuse_depth(self, height: int, mark: Any) -> None:
        if len(self._stack) + height > MOST_DEPTH:
            raise _refused(f"nests too deep: expected at most {MOST_DEPTH} levels", mark)


def _refuse_tag(tag: str | None, mark: Any) -> None:
    if tag is not None:
        raise _refused(f"has the tag {problem.shortened(tag)}; tags are not supported", mark)


def _refused(reason: str, mark: Any) -> FileReadError:
    return FileReadError(reason, position_of(mark))
