"""Exponential backoff with jitter; never shorter than the server's Retry-After."""

from __future__ import annotations

from collections.abc import Callable

#: Returns a random number from 0 up to 1; randomness is an input.
Jitter = Callable[[], float]


class Backoff:
    """The delays between the tries of one request."""

    def __init__(self, jitter: Jitter, *, first_ms: int = 50, most_ms: int = 10_000) -> None:
        self._draw, self._first_ms, self._most_ms = jitter, first_ms, most_ms
        self.tries = 0

    def next_ms(self, asked_ms: int = 0) -> int:
        """The next delay: between half of the current step and all of it, after what the server asked for."""
        whole = min(self._first_ms << min(self.tries, 20), self._most_ms)
        self.tries += 1
        return asked_ms + int(whole * (0.5 + 0.5 * self._draw()))

    def reset(self) -> None:
        """Start with the shortest delay again, after a success."""
        self.tries = 0
