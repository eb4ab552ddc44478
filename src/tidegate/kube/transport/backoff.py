"""How long to wait before the next try: longer each time, never all at once, never less than the server asked for."""

from __future__ import annotations

from collections.abc import Callable

#: Draws a number from 0 up to 1. Randomness is an input.
Jitter = Callable[[], float]


class Backoff:
    """Pauses between tries of one thing."""

    def __init__(self, jitter: Jitter, *, first_ms: int = 50, most_ms: int = 10_000) -> None:
        self._draw, self._first_ms, self._most_ms = jitter, first_ms, most_ms
        self.tries = 0

    def next_ms(self, asked_ms: int = 0) -> int:
        """The next pause: between half of it and all of it, or longer if the server asked for that."""
        whole = min(self._first_ms << min(self.tries, 20), self._most_ms)
        self.tries += 1
        return asked_ms + int(whole * (0.5 + 0.5 * self._draw()))

    def reset(self) -> None:
        """It worked: begin with short pauses again."""
        self.tries = 0
