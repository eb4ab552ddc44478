"""News of objects, the latest of each, until they are taken: filled by the network, emptied by whoever decides.

However slow the one who empties it is, it holds no more than one entry an object. An object is known by its uid, so
that one that was deleted and made again under the same name is another.
"""

from __future__ import annotations

import threading
import time

import msgspec


class Update(msgspec.Struct, frozen=True, gc=False):
    """What is known of an object now; nothing refers back to it, so the garbage collector need not look at it."""

    kind: int  # of the follower that told it
    uid: str
    thing: object | None  # None: it is gone


class UpdateQueue:
    """News in the order in which their objects first had any."""

    def __init__(self) -> None:
        self._updates: dict[str, Update] = {}
        self._notes: list[object] = []
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self.coalesced = 0
        self._taken = False  # somebody has looked
        self._since_s = 0.0  # when what is there first came
        self.waited_s = 0.0  # how long the oldest of what was taken last had to wait

    def put(self, kind: int, uid: str, thing: object | None) -> None:
        """Tell the latest of an object; what was told of it before and not taken is of no interest any more."""
        with self._lock:
            if uid in self._updates:
                self.coalesced += 1
            if thing is None and not self._taken:
                self._updates.pop(uid, None)  # it came and went before anybody looked
            else:
                self._updates[uid] = Update(kind, uid, thing)
            if not self._filled.is_set():
                self._fill()

    def note(self, note: object) -> None:
        """Tell something that is about no object, such as what came of a write; every note counts."""
        with self._lock:
            self._notes.append(note)
            self._fill()

    def _fill(self) -> None:
        if not self._filled.is_set():
            self._since_s = time.monotonic()
            self._filled.set()

    def wait(self, most_s: float | None) -> bool:
        """Wait until there is something; False if there is still nothing."""
        return self._filled.wait(most_s)

    def take(self) -> tuple[list[Update], list[object]]:
        """All news and notes since the last time."""
        with self._lock:
            news, self._updates = self._updates, {}
            self._taken = True
            notes, self._notes = self._notes, []
            self.waited_s = time.monotonic() - self._since_s if self._filled.is_set() else 0.0
            self._filled.clear()
        return list(news.values()), notes

    def __contains__(self, uid: str) -> bool:
        return uid in self._updates

    def __len__(self) -> int:
        return len(self._updates)
