"""Every change of a cluster in the order in which the API server made it, by watches of its own.

All kinds are in one etcd, so their resource versions are one order. A change is handed out a moment after it was seen,
when those of other kinds that came before it have been seen, too.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Self

from kubebench import ApiError, Plane

Thing = dict[str, Any]

#: How long a change waits for earlier ones of other kinds.
_SETTLE_S = 3.0
_WATCH_S = 300


class Change(NamedTuple):
    """An object as it is now, or as it was when it went."""

    version: int
    at_s: float
    kind: str
    gone: bool
    thing: Thing


class Watches:
    """Watches of some kinds, each in a thread. Use it in a with statement."""

    def __init__(self, plane: Plane, paths: Mapping[str, str]) -> None:
        self._plane, self._paths = plane, paths
        self._tls = ssl.create_default_context(cafile=str(plane.authority))
        self._seen: list[Change] = []
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self.cuts = 0

    def __enter__(self) -> Self:
        for kind, path in self._paths.items():
            threading.Thread(target=self._follow, args=(kind, path), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def take(self, *, all_of_them: bool = False) -> list[Change]:
        """What has changed, in order."""
        until_s = time.monotonic() - (0 if all_of_them else _SETTLE_S)
        with self._lock:
            ready = [one for one in self._seen if one.at_s <= until_s]
            self._seen = [one for one in self._seen if one.at_s > until_s]
        return sorted(ready, key=lambda one: one.version)

    def _note(self, kind: str, thing: Thing, *, gone: bool = False, version: int = 0) -> None:
        at = version or int(thing["metadata"]["resourceVersion"])
        with self._lock:
            self._seen.append(Change(at, time.monotonic(), kind, gone, thing))

    def _follow(self, kind: str, path: str) -> None:
        known: dict[str, Thing] = {}
        version = 0
        while not self._stopping.is_set():
            try:
                version = version or self._list(kind, path, known)
                for event, thing in self._watch(path, version):
                    version = self._hear(kind, event, thing, known)
            except (ApiError, OSError, HTTPException, ValueError):
                self.cuts += 1
                time.sleep(0.2)

    def _hear(self, kind: str, event: str, thing: Thing, known: dict[str, Thing]) -> int:
        """One event of a watch; the version to go on from, 0: list again."""
        if event == "ERROR":
            return 0
        if event != "BOOKMARK":
            if event == "DELETED":
                known.pop(thing["metadata"]["uid"], None)
            else:
                known[thing["metadata"]["uid"]] = thing
            self._note(kind, thing, gone=event == "DELETED")
        return int(thing["metadata"]["resourceVersion"])

    def _list(self, kind: str, path: str, known: dict[str, Thing]) -> int:
        listing = self._plane.admin.get(path)
        version, there = int(listing["metadata"]["resourceVersion"]), set()
        for thing in listing["items"]:
            uid = thing["metadata"]["uid"]
            there.add(uid)
            if known.get(uid, {}).get("metadata", {}).get("resourceVersion") != thing["metadata"]["resourceVersion"]:
                known[uid] = thing
                self._note(kind, thing)
        for uid in known.keys() - there:
            self._note(kind, known.pop(uid), gone=True, version=version)
        return version

    def _watch(self, path: str, version: int) -> Iterator[tuple[str, Thing]]:
        """The events of one request."""
        connection = HTTPSConnection("127.0.0.1", self._plane.port, context=self._tls, timeout=_WATCH_S + 30)
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={_WATCH_S}&resourceVersion={version}"
        try:
            connection.request(
                "GET", f"{path}?{query}", headers={"Authorization": f"Bearer {self._plane.token('admin')}"}
            )
            response = connection.getresponse()
            if response.status != 200:
                yield "ERROR", {}
                return
            while (line := response.readline()) and not self._stopping.is_set():
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            connection.close()
