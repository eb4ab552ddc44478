"""Kernels: written once, in the subset of Python that numba compiles, and run compiled or plain.

Both forms give the same result to the last bit; only speed differs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: False here; True in the scope of compiled kernels, where code for the plain run is left out.
COMPILED = False

_plain: dict[str, Callable[..., Any]] = {}
_entries: set[str] = set()
_inlined: set[str] = set()
_compiler: Any = None  # of all kernels
_is_compiled = False
_ready: Callable[[], bool] | None = None  # whether compiled kernels are ready; None: nothing waits for them


def kernel(function: Function) -> Function:
    """Register a function as a kernel. It may call other kernels by name, so that no two may share one."""
    other = _plain.get(function.__name__)
    if other is not None:
        raise ValueError(
            f"two kernels are called {function.__name__}: in {other.__module__} and {function.__module__}; rename one"
        )
    _plain[function.__name__] = function
    return function


def entry(function: Function) -> Function:
    """Register a kernel that Python calls: only such a kernel is compiled with a wrapper."""
    kernel(function)
    _entries.add(function.__name__)
    return function


def inlined(function: Function) -> Function:
    """Register a kernel that is inlined: without a call, the whole state need not be handed over."""
    kernel(function)
    _inlined.add(function.__name__)
    return function


def active(function: Function) -> Function:
    """The kernel in the current form."""
    return compiled(function) if _is_compiled else function


def compiled(function: Function) -> Function:
    """The kernel as it is compiled: on its first call, or loaded from the cache."""
    found: Function = compiler().entry(function.__name__)
    return found


def compiler() -> Any:
    """The compiler of all kernels that are registered by now."""
    global _compiler  # noqa: PLW0603 - what is compiled is there for the whole process
    if _compiler is None:
        from tidegate.jit.cache_files import open_store
        from tidegate.jit.compile import Compiler, Registered

        _compiler = Compiler(Registered(_plain, _entries, _inlined), open_store())
    _compiler.take_in()
    return _compiler


def can_compile() -> bool:
    """Whether kernels can be compiled here."""
    return importlib.util.find_spec("numba") is not None


def use_compiled() -> None:
    """Run kernels compiled from now on. The first call of each compiles it, or loads it."""
    global _is_compiled  # noqa: PLW0603 - one switch for the process: it changes speed, never a result
    compiler()
    _is_compiled = True


def use_plain() -> None:
    """Run kernels as plain Python from now on."""
    global _is_compiled  # noqa: PLW0603
    _is_compiled = False


def is_compiled() -> bool:
    """Whether kernels run compiled."""
    return _is_compiled


@contextmanager
def kernels_as(*, compiled: bool) -> Any:
    """Run kernels in one form inside a block."""
    global _ready  # noqa: PLW0603
    before, _ready = (_is_compiled, _ready), None
    (use_compiled if compiled else use_plain)()
    try:
        yield
    finally:
        (use_compiled if before[0] else use_plain)()
        _ready = before[1]


@contextmanager
def compiled_when(ready: Callable[[], bool]) -> Any:
    """Run plain kernels inside a block, and compiled ones from the first step at which they are ready."""
    global _ready  # noqa: PLW0603
    with kernels_as(compiled=False):
        _ready = ready
        yield


def settle_form() -> None:
    """Called between steps, never within one: switch to compiled kernels if they are ready by now."""
    if _ready is not None and not _is_compiled and _ready():
        use_compiled()
