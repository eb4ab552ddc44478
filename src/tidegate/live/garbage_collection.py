"""Python's garbage collector, out of the way while a cluster is taken in.

What is known of a cluster is no garbage, and there is much of it: looking through it again and again as it grows takes
longer than reading it. So the collector rests until everything is read, and leaves that alone from then on.
"""

from __future__ import annotations

import gc
import time

from tidegate.live.heap_trim import trim

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
