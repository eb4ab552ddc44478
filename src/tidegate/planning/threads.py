"""Threads for independent calls of `demand`: numpy releases the interpreter lock in its loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_THREADS = 2


def side_by_side(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run calls at once; the first that fails stops the others that have not begun."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = [pool.submit(call) for call in calls]
        try:
            return [one.result() for one in waiting]
        except BaseException:
            for one in waiting:
                one.cancel()
            raise
