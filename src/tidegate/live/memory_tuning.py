"""Memory tuning: when the C library returns memory to the system, and when Python's garbage collector runs.

A cluster is listed page by page, in blocks of megabytes. Meanwhile blocks are reused, as new memory costs more time
than decoding. After that, free large blocks are returned to the system. Without glibc nothing is done.
"""

from __future__ import annotations

import ctypes
import gc
import time
from pathlib import Path

#: glibc's mallopt options: the size from which blocks are returned at once, the free bytes kept at the end of the
#: heap, and the number of arenas.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8
_LARGE_BYTES, _KEPT_BYTES = 256 << 10, 128 << 10

#: The same while lists are read: more than three copies of a page.
_PAGE_BYTES, _PAGES_BYTES = 16 << 20, 64 << 20

#: The memory map of the process, and the number of MADV_DONTNEED.
_MAPPINGS, _DONT_NEED = Path("/proc/self/smaps"), 4


def keep_large_blocks() -> bool:
    """Reuse blocks as large as a page of a list; whether the allocator can."""
    return _tell(_PAGE_BYTES, _PAGES_BYTES)


def give_back_large_blocks() -> bool:
    """Return large blocks to the system when they are free, and those that are free now."""
    return _tell(_LARGE_BYTES, _KEPT_BYTES) and trim()


def _tell(large_bytes: int, kept_bytes: int) -> bool:
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tell(_MMAP_THRESHOLD, large_bytes) and tell(_TRIM_THRESHOLD, kept_bytes) and tell(_ARENA_MAX, 1))


def give_back_library(name: str) -> int:
    """Return the unmodified memory of a library to the system; how many bytes.

    Code that runs again is read from the file again. A compiler is not needed once all is compiled.
    """
    try:
        advise, lines = ctypes.CDLL(None).madvise, _MAPPINGS.read_text().splitlines()
    except (OSError, AttributeError):
        return 0
    given, begin, end = 0, 0, 0
    for fields in (line.split(maxsplit=5) for line in lines):
        if not fields[0].endswith(":"):  # a mapping: addresses, permissions and file
            there = "w" not in fields[1] and len(fields) == 6 and Path(fields[5]).name.startswith(name)
            begin, end = (int(part, 16) for part in fields[0].split("-")) if there else (0, 0)
        elif fields[0] == "Anonymous:" and fields[1] == "0" and begin:  # nothing differs from the file
            given += (end - begin) * (advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONT_NEED) == 0)
    return given


def trim() -> bool:
    """Return free memory to the system; whether the allocator can."""
    try:
        give_back = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    give_back(0)
    return True


#: The longest pause: a server that does not answer must not let garbage accumulate.
_MOST_S = 120.0


class Collector:
    """Python's garbage collector, paused while a cluster is listed.

    The known objects are no garbage, and scanning them again and again takes longer than decoding. So the collector
    is paused until all is decoded, and never scans those objects.
    """

    def __init__(self) -> None:
        self._until_s = 0.0  # when it resumes at the latest; 0: it is not paused

    def pause(self) -> None:
        """Pause it while objects are decoded."""
        gc.disable()
        self._until_s = time.monotonic() + _MOST_S

    def resume(self, *, settled: bool) -> None:
        """Resume it if all is decoded, or the pause is too long; existing objects are not scanned any more."""
        if self._until_s and (settled or time.monotonic() > self._until_s):
            self._until_s = 0.0
            gc.freeze()
            gc.enable()
            trim()

    def forget(self) -> None:
        """Make it scan all objects again, as they are not needed any more."""
        self._until_s = 0.0
        gc.unfreeze()
        gc.enable()
