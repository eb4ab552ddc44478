"""The clock of decisions: it never goes back and never jumps, whatever happens to the wall clock."""

from __future__ import annotations

from collections.abc import Callable


class SteadyClock:
    """The wall clock, as long as it runs evenly.

    After the wall clock was set, or if it is behind the previous leader's, time passes at half or twice its pace until
    both agree. So backoff and protection always end, and no time limit ends early.
    """

    def __init__(self, wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> None:
        self._wall_ms, self._elapsed_ms = wall_ms, elapsed_ms
        self._now_ms, self._at_ms = 0, -1  # -1: not read yet

    def not_before(self, floor_ms: int) -> None:
        """Start no earlier than this time, which another leader has seen."""
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
        else:  # an odd millisecond is kept for the next call
            self._now_ms, self._at_ms = self._now_ms + passed_ms // 2, self._at_ms + passed_ms // 2 * 2
        return self._now_ms
