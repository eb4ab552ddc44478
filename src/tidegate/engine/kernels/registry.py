"""Kernels are written once, in the subset of Python that numba compiles, and run compiled or plain.

Both ways give the same result to the last bit; which one runs is a matter of speed alone.
Must not know: what any kernel does.
"""

from __future__ import annotations

import hashlib
import io
import sys
import types
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: False here; True in the scope of compiled kernels, where what is written for the plain run is left out.
COMPILED = False

_plain: dict[str, Callable[..., Any]] = {}
_inlined: set[str] = set()
_compiled: dict[str, Callable[..., Any]] = {}
_active = _plain


def kernel(function: Function) -> Function:
    """Register a function as a kernel. It may call other kernels, by their own names, so that no two may share one."""
    other = _plain.get(function.__name__)
    if other is not None:
        raise ValueError(
            f"two kernels are called {function.__name__}: in {other.__module__} and {function.__module__}; rename one"
        )
    _plain[function.__name__] = function
    return function


def inlined(function: Function) -> Function:
    """Register a kernel that is written into its callers: without a call, the whole state need not be handed over."""
    kernel(function)
    _inlined.add(function.__name__)
    return function


def active(function: Function) -> Function:
    """The kernel in the form that is in use."""
    return _active.get(function.__name__, function)  # type: ignore[return-value]


def use_compiled() -> None:
    """Run kernels compiled from now on. The first call of each compiles it, or loads it from the cache on disk."""
    global _active  # noqa: PLW0603 - one switch for the process: it changes speed, never a result
    if len(_compiled) != len(_plain):
        _compile_all()
    _active = _compiled


def use_plain() -> None:
    """Run kernels as plain Python from now on."""
    global _active  # noqa: PLW0603
    _active = _plain


def is_compiled() -> bool:
    """Say which form is in use."""
    return _active is _compiled


@contextmanager
def kernels_as(*, compiled: bool) -> Any:
    """Run kernels in one form inside a block."""
    was_compiled = is_compiled()
    (use_compiled if compiled else use_plain)()
    try:
        yield
    finally:
        (use_compiled if was_compiled else use_plain)()


def _compile_all() -> None:
    import numba

    import tidegate.engine.kernels.pointers  # noqa: F401 - tells numba how kernels hand on what they work on

    # numba notices a change in a kernel's own file but not in the files of the kernels it calls.
    # A cache folder for each state of all the sources cannot be stale.
    numba.config.CACHE_DIR = cache_folder(numba.__version__)  # type: ignore[attr-defined]
    for name, function in _plain.items():
        twin = types.FunctionType(
            function.__code__, dict(sys.modules[function.__module__].__dict__), name, function.__defaults__
        )
        twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
        # Kernels allocate nothing and so need no reference counts: calls are cheap, and compiling is quick.
        options: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "forceinline": name in _inlined}
        _compiled[name] = _without_literals(numba.njit(cache=True, **options)(twin))
    for compiled in _compiled.values():
        # Compiled on its first call only, so that here every kernel can be told of all the others.
        compiled.py_func.__globals__.update(_compiled, COMPILED=True)  # type: ignore[attr-defined]


def _without_literals(compiled: Any) -> Any:
    """Keep numba from compiling a kernel once more for every constant that it is called with."""
    from numba.core.types import unliteral

    find = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: find(tuple(map(unliteral, args)), kws)
    return compiled


def cache_folder(numba_version: str) -> str:
    """Where compiled kernels are kept: a name of their sources.

    Kernels outside of this package call those in it and, in other files, none of their own kind: what changes there
    numba notices.
    """
    import platformdirs

    digest = hashlib.blake2b(numba_version.encode(), digest_size=8)
    modules = {function.__module__ for function in _plain.values()}
    for module in sorted(name for name in modules if name.startswith(__package__)):
        file = sys.modules[module].__file__
        assert file is not None
        with io.open_code(file) as source:
            digest.update(source.read())
    return f"{platformdirs.user_cache_dir('tidegate')}/kernels/{digest.hexdigest()}"
