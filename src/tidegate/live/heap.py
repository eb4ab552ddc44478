"""The allocator of the C library, told to give large blocks back: a list of a cluster is read in blocks of megabytes.

By itself it keeps the first few for later, each thread its own. Where there is no such allocator nothing is done.
Must not know: what is kept.
"""

from __future__ import annotations

import ctypes

#: Numbers of glibc's options: from which size blocks are given back at once, and how many threads have their own.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_LARGE_BYTES = 256 << 10


def give_back_large_blocks() -> bool:
    """Have large blocks given back to the system when they are free; whether the allocator knows how."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tell(_MMAP_THRESHOLD, _LARGE_BYTES) and tell(_ARENA_MAX, 1))


def trim() -> bool:
    """Give back what is free by now; whether the allocator knows how."""
    try:
        give_back = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    give_back(0)
    return True
