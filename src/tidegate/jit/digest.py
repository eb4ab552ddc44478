"""A digest of everything that goes into a compiled kernel, so that none is ever mistaken for another.

Its module and code, the constants it names and their values (columns, counters, reason codes), the fields of the tuples
it takes, and all that of the kernels that it calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import CodeType, ModuleType
from typing import Any

import numpy as np

Kernels = Mapping[str, Callable[..., Any]]


def digest_of(*parts: object) -> str:
    """A digest of the written form of some parts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


class Fingerprints:
    """Digests of kernels, by name. What kernels depend on must not change any more."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._own: dict[str, tuple[object, frozenset[str]]] = {}  # what it depends on; kernels that it calls
        self._digests: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The digest of a kernel and of all that it calls."""
        if name not in self._digests:
            reached, open_ = {name}, [name]
            while open_:
                fresh = self._parts(open_.pop())[1] - reached
                reached |= fresh
                open_.extend(fresh)
            self._digests[name] = digest_of(*((each, self._parts(each)[0]) for each in sorted(reached)))
        return self._digests[name]

    def _parts(self, name: str) -> tuple[object, frozenset[str]]:
        if name not in self._own:
            kernel = self._kernels[name]
            named = sorted({each for code in _codes(kernel.__code__) for each in code.co_names})
            values, calls = [], set()
            for each in named:
                value = kernel.__globals__.get(each)
                if value is not None and self._kernels.get(each) is value:
                    calls.add(each)
                else:
                    values.append((each, describe(value, named)))
            code = [_describe_code(code) for code in _codes(kernel.__code__)]
            self._own[name] = (kernel.__module__, code, kernel.__defaults__, values), frozenset(calls)
        return self._own[name]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside of it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _describe_code(code: CodeType) -> object:
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_argcount, code.co_flags


def describe(value: Any, named: list[str]) -> object:
    """What a kernel may use of a value; of a module, what it names."""
    if isinstance(value, ModuleType):
        used = [each for each in named if hasattr(value, each)]
        return value.__name__, [(each, describe(getattr(value, each), [])) for each in used]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Enum):
        return str(type(value)), value.name, value.value
    if isinstance(value, type) and issubclass(value, Enum):
        return str(value), [(member.name, member.value) for member in value]
    if isinstance(value, type):
        return str(value), getattr(value, "_fields", ())
    if isinstance(value, tuple):
        return tuple(describe(each, named) for each in value)
    if isinstance(value, int | float | str | bytes | None):
        return value
    return type(value).__name__, getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
