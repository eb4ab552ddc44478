"""JSON that is nested deeper than any decoder follows, cut to a depth that all of them do.

Some fields of objects take any JSON, so a tenant decides how deep it is; one such object must not hide all others.
"""

from __future__ import annotations

import re

#: Deeper than any field that is read.
MOST_DEPTH = 256

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def cut_nesting(body: bytes, most: int = MOST_DEPTH) -> bytes:
    """The same JSON, with null for what is nested deeper."""
    parts, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(body):
        mark = token.group()
        if mark in (b"[", b"{"):
            depth += 1
            if depth == most + 1:
                parts += [body[begin : token.start()], b"null"]
        elif mark in (b"]", b"}"):
            depth -= 1
            if depth == most:
                begin = token.end()
    return b"".join([*parts, body[begin:] if depth <= most else b""])
