"""The replay, compiled where numba is installed and the load is worth it. Both ways give the same to the last bit.

Must not know: what the replay does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import types
from collections.abc import Callable
from functools import cache
from typing import Any

from tidegate.planning.kernels import replay as kernels


@cache
def has_numba() -> bool:
    """Say whether kernels can be compiled here."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled_replay() -> Callable[..., None]:
    """The replay, compiled: on its first call, or loaded from the cache on disk."""
    import numba

    kept: Any = numba.config
    before = kept.CACHE_DIR
    kept.CACHE_DIR = _cache_folder(numba.__version__)
    made: dict[str, Any] = {}
    try:
        for function in kernels.KERNELS:
            scope = {**sys.modules[function.__module__].__dict__, **made}
            twin = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
            twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
            # Kernels allocate nothing and so need no reference counts: calls are cheap, and compiling is quick.
            options: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
            made[function.__name__] = numba.njit(cache=True, **options)(twin)
    finally:
        kept.CACHE_DIR = before
    found: Callable[..., None] = made[kernels.replay.__name__]
    return found


def _cache_folder(numba_version: str) -> str:
    """Where compiled kernels are kept: a name of their sources, so that what is kept cannot be stale."""
    import platformdirs

    digest = hashlib.blake2b(numba_version.encode(), digest_size=8)
    for module in sorted({function.__module__ for function in kernels.KERNELS}):
        file = sys.modules[module].__file__
        assert file is not None
        with io.open_code(file) as source:
            digest.update(source.read())
    return f"{platformdirs.user_cache_dir('tidegate')}/kernels/{digest.hexdigest()}"
