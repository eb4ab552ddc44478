"""Objects written straight into etcd, a hundred at a time: for clusters too large to be created one by one.

The API server finds them as if it had written them, with its defaults; nothing checks them. Whoever writes them takes
objects that the API server has shown, and changes no more than names.
Must not know: kinds of objects.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

#: Most writes, and bytes, of a transaction: etcd takes 128, and 1.5 MiB.
_MOST_WRITES, _MOST_BYTES = 128, 1 << 20
_WRITERS = 4

_Pair = tuple[str, dict[str, Any]]


class Store:
    """The etcd of a control plane."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc

    def put_all(self, things: Iterable[_Pair]) -> int:
        """Write objects, each at its path below the registry (`pods/default/p1`); how many they were."""
        parts, written = _in_parts(things), 0
        with ThreadPoolExecutor(_WRITERS) as writers:
            while some := list(islice(parts, 4 * _WRITERS)):  # no more in memory than these
                written += sum(writers.map(self._put, some))
        return written

    def _put(self, writes: list[dict[str, str]]) -> int:
        connection = HTTPConnection(self._host, timeout=60)
        body = json.dumps({"success": [{"requestPut": write} for write in writes]})
        try:
            connection.request("POST", "/v3/kv/txn", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"etcd refused to write {len(writes)} objects: {answer.status} {said[:200]!r}")
        return len(writes)


def _in_parts(things: Iterable[_Pair]) -> Iterator[list[dict[str, str]]]:
    part: list[dict[str, str]] = []
    filled = 0
    for path, thing in things:
        write = {"key": _coded(f"/registry/{path}".encode()), "value": _coded(json.dumps(thing).encode())}
        size = len(write["value"])
        if part and (len(part) == _MOST_WRITES or filled + size > _MOST_BYTES):
            yield part
            part, filled = [], 0
        part.append(write)
        filled += size
    if part:
        yield part


def _coded(content: bytes) -> str:
    return b64encode(content).decode()
