"""The time that decisions are made at: it goes on at an even pace, whatever the clock on the wall does."""

from __future__ import annotations

from collections.abc import Callable


class SteadyClock:
    """The clock on the wall, as long as it goes at the pace at which time passes.

    One that was set, or that is behind what a leader before us had, is caught up with: until then time passes at half
    its pace, or at twice. So it never goes back, back-off and protection come to their end, and no window is over at
    once because somebody set a clock.
    """

    def __init__(self, wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> None:
        self._wall_ms, self._elapsed_ms = wall_ms, elapsed_ms
        self._now_ms, self._at_ms = 0, -1  # -1: nobody has asked yet

    def not_before(self, floor_ms: int) -> None:
        """It was this late already, somewhere else."""
        self._now_ms = max(self._now_ms, floor_ms)

    def __call__(self) -> int:
        """The time in milliseconds."""
        wall_ms, at_ms = self._wall_ms(), self._elapsed_ms()
        if self._at_ms < 0:
            self._now_ms, self._at_ms = max(wall_ms, self._now_ms), at_ms
            return self._now_ms
        passed_ms = at_ms - self._at_ms
        if wall_ms >= self._now_ms + passed_ms // 2:
            self._now_ms, self._at_ms = min(wall_ms, self._now_ms + 2 * passed_ms), at_ms
        else:  # an odd millisecond is left for the next time
            self._now_ms, self._at_ms = self._now_ms + passed_ms // 2, self._at_ms + passed_ms // 2 * 2
        return self._now_ms
