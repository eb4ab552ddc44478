"""The allocator of the C library, told when to give large blocks back to the system.

A list of a cluster is read in blocks of megabytes, page after page: while that goes on, blocks are used again, as new
memory costs more time than what is read into it. After that, large blocks are given back when they are free. By itself
the allocator keeps the first few for later, each thread its own. Where there is no such allocator nothing is done.
"""

from __future__ import annotations

import ctypes
import gc
import time
from pathlib import Path

#: Numbers of glibc's options: from which size blocks are given back at once, how much of what is free at the end of the
#: heap is kept, and how many threads have their own.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8
_LARGE_BYTES, _KEPT_BYTES = 256 << 10, 128 << 10

#: The same while a list is read: more than what three copies of a page take.
_PAGE_BYTES, _PAGES_BYTES = 16 << 20, 64 << 20

#: Where Linux says what a process has in memory, and its number of the advice that pages are not needed now.
_MAPPINGS, _DONT_NEED = Path("/proc/self/smaps"), 4


def keep_large_blocks() -> bool:
    """Have blocks as large as a page of a list used again; whether the allocator knows how."""
    return _tell(_PAGE_BYTES, _PAGES_BYTES)


def give_back_large_blocks() -> bool:
    """Have large blocks given back to the system when they are free, and those that are free by now."""
    return _tell(_LARGE_BYTES, _KEPT_BYTES) and trim()


def _tell(large_bytes: int, kept_bytes: int) -> bool:
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tell(_MMAP_THRESHOLD, large_bytes) and tell(_TRIM_THRESHOLD, kept_bytes) and tell(_ARENA_MAX, 1))


def give_back_library(name: str) -> int:
    """Give back the memory of a library whose name begins so, as far as its file has the same; how many bytes.

    What of it is run again is read from the file again. A compiler's is of no use once everything is compiled.
    """
    try:
        advise, lines = ctypes.CDLL(None).madvise, _MAPPINGS.read_text().splitlines()
    except (OSError, AttributeError):
        return 0
    given, begin, end = 0, 0, 0
    for fields in (line.split(maxsplit=5) for line in lines):
        if not fields[0].endswith(":"):  # a mapping begins: where it is, what may be done there, and the file
            there = "w" not in fields[1] and len(fields) == 6 and Path(fields[5]).name.startswith(name)
            begin, end = (int(part, 16) for part in fields[0].split("-")) if there else (0, 0)
        elif fields[0] == "Anonymous:" and fields[1] == "0" and begin:  # nothing there differs from the file
            given += (end - begin) * (advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONT_NEED) == 0)
    return given


def trim() -> bool:
    """Give back what is free by now; whether the allocator knows how."""
    try:
        give_back = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    give_back(0)
    return True


#: How long the collector rests at most: a server that does not answer must not let garbage pile up.
_MOST_S = 120.0


class Collector:
    """The garbage collector of this process."""

    def __init__(self) -> None:
        self._until_s = 0.0  # when it goes on at the latest; 0: it does not rest

    def pause(self) -> None:
        """Let it rest until what is being read is read."""
        gc.disable()
        self._until_s = time.monotonic() + _MOST_S

    def resume(self, *, settled: bool) -> None:
        """Let it go on if what was to be read is read, or takes too long; what there is by now is left alone."""
        if self._until_s and (settled or time.monotonic() > self._until_s):
            self._until_s = 0.0
            gc.freeze()
            gc.enable()
            trim()

    def forget(self) -> None:
        """What was read is of no use any more."""
        self._until_s = 0.0
        gc.unfreeze()
        gc.enable()
