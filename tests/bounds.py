"""Every test has a bound: what takes longer is stopped and named, also where Hypothesis would try it again.

pytest-timeout raises pytest's own failure, which Hypothesis takes for a counterexample: it goes on with examples like
it, without a bound. This one Hypothesis lets through. It comes again for as long as it is not heeded.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import engine

#: Seconds from one interruption to the next.
_AGAIN_S = 10.0

#: Seconds for tests that compile kernels: a machine that has none compiles for minutes, once.
_COMPILING_S = 900

# Examples are drawn anew in every run; `--hypothesis-seed=N` repeats one. How long one example takes is not limited, as
# that depends on what else the machine does; the test is.
settings.register_profile("tests", max_examples=50, deadline=None, print_blob=True)
settings.load_profile("tests")


# Hypothesis makes a failing example smaller for five minutes: longer than a test may take, so that nobody would see
# what failed. It has no setting for that.
engine.MAX_SHRINKING_SECONDS = 20


class TookTooLong(BaseException):
    """A test took longer than it may."""


def limit(name: str, seconds: float) -> Callable[[], None]:
    """Interrupt what runs when its time is over; what is returned calls that off."""

    def interrupt(signum, frame):
        raise TookTooLong(f"{name} took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)

    def call_off() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    return call_off


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item, settings):
    """Interrupt the test when its time is over."""
    item.cancel_timeout = limit(item.nodeid, settings.timeout)
    return True


def pytest_collection_modifyitems(items):
    """Give time to compile to those who do."""
    for item in items:
        if item.get_closest_marker("compiles") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_COMPILING_S))
