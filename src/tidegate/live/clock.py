"""The time that decisions are made at: it never goes back, whatever the clock on the wall does.

Must not know: what it is used for.
"""

from __future__ import annotations

from collections.abc import Callable


class SteadyClock:
    """The clock on the wall, as long as it goes forward.

    One that was set back, or that is behind what a leader before us had, is caught up with: until then time passes at
    half its pace, so that back-off and protection still come to their end.
    """

    def __init__(self, wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> None:
        self._wall_ms, self._elapsed_ms = wall_ms, elapsed_ms
        self._now_ms, self._at_ms = 0, elapsed_ms()

    def not_before(self, floor_ms: int) -> None:
        """It was this late already, somewhere else."""
        self._now_ms = max(self._now_ms, floor_ms)

    def __call__(self) -> int:
        """The time in milliseconds."""
        wall_ms, at_ms = self._wall_ms(), self._elapsed_ms()
        if wall_ms >= self._now_ms:
            self._now_ms, self._at_ms = wall_ms, at_ms
        else:
            passed_ms = (at_ms - self._at_ms) // 2
            self._now_ms, self._at_ms = self._now_ms + passed_ms, self._at_ms + 2 * passed_ms
        return self._now_ms
