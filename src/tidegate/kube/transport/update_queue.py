"""The update queue, a deduplicating work queue: the latest state of each object until the reconciler takes it.

It holds at most one update an object, however slow its consumer is. The key is the uid, so that an object that was
deleted and created again under its name is another one.
"""

from __future__ import annotations

import threading
import time

import msgspec


class Update(msgspec.Struct, frozen=True, gc=False):
    """The latest state of an object; nothing refers back to it, so the garbage collector can skip it."""

    kind: int  # number of its reflector
    uid: str
    thing: object | None  # None: it was deleted


class UpdateQueue:
    """Updates in the order in which their objects first had one."""

    def __init__(self) -> None:
        self._updates: dict[str, Update] = {}
        self._notes: list[object] = []
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self.coalesced = 0
        self._taken = False  # the first updates were taken
        self._since_s = 0.0  # when the oldest update arrived
        self.waited_s = 0.0  # how long the oldest update of the latest batch waited

    def put(self, kind: int, uid: str, thing: object | None) -> None:
        """Put the latest state of an object; it replaces one that was not taken."""
        with self._lock:
            if uid in self._updates:
                self.coalesced += 1
            if thing is None and not self._taken:
                self._updates.pop(uid, None)  # it was created and deleted before the first updates were taken
            else:
                self._updates[uid] = Update(kind, uid, thing)
            if not self._filled.is_set():
                self._fill()

    def note(self, note: object) -> None:
        """Add a note that is about no object, such as the result of a write; notes are not deduplicated."""
        with self._lock:
            self._notes.append(note)
            self._fill()

    def _fill(self) -> None:
        if not self._filled.is_set():
            self._since_s = time.monotonic()
            self._filled.set()

    def wait(self, most_s: float | None) -> bool:
        """Wait until there is an update or a note; False if there is none in time."""
        return self._filled.wait(most_s)

    def take(self) -> tuple[list[Update], list[object]]:
        """Take all updates and notes."""
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
