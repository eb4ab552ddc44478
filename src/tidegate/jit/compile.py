"""Compiles kernels with numba: options, how compiled code is kept, and how it is loaded again.

A kernel that other kernels call has no wrapper for Python; one that Python calls is compiled with one.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import llvmlite
import numba
from numba.core import serialize, sigutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.types import BaseTuple, Type, unliteral

from tidegate.jit import linking, numba_tuples
from tidegate.jit.digest import Fingerprints, Kernels, digest_of
from tidegate.jit.linking import PREFIX, KernelLibrary, use_libraries
from tidegate.jit.numba_tuples import ByPointer

#: Kernels follow chains and branch: what the compiler's higher levels optimise is not in them. They are compiled for
#: any processor of the architecture: on whole runs that is as fast, and the result runs on other machines.
_CONFIG: dict[str, Any] = {
    "OPT": type(numba.config.OPT)(1),  # type: ignore[attr-defined]
    "LOOP_VECTORIZE": 0,
    "SLP_VECTORIZE": 0,
    "CPU_NAME": "generic",
    "CPU_FEATURES": "",
}

#: Kernels allocate nothing and so need no reference counts: calls are cheap, and compiling is quick.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


def _sources(*modules: types.ModuleType) -> str:
    texts = []
    for module in modules:
        assert module.__file__ is not None
        with io.open_code(module.__file__) as source:
            texts.append(source.read())
    return digest_of(*texts)


#: The options of compiling, linking and keeping are part of a kernel's digest.
_MACHINERY = _sources(linking, numba_tuples, sys.modules[__name__])


class Files(Protocol):
    """Where compiled code is kept."""

    def read(self, name: str) -> bytes | None:
        """What was written under a name; None: nothing."""

    def write(self, name: str, data: bytes) -> bool:
        """Write under a name; return whether that worked."""


class Registered(NamedTuple):
    """The registered kernels; more may come."""

    kernels: Kernels
    entries: set[str]  # names of kernels that Python calls
    inlined: set[str]  # names of kernels that are inlined


class Compiler:
    """All kernels as numba has them, compiled when they are first called, or loaded."""

    def __init__(self, registered: Registered, files: Files) -> None:
        for name, value in _CONFIG.items():
            setattr(numba.config, name, value)
        self._kernels, self._called, self._inlined = registered
        self.files = files
        self._fingerprints = Fingerprints(self._kernels)
        self._libraries: dict[str, KernelLibrary] = {}  # by the names of their files
        self._inner: dict[str, Any] = {}
        self._entries: dict[str, Any] = {}
        self._scopes: dict[str, dict[str, Any]] = {}  # the globals of a module's kernels
        self._target: object = None
        self.compiled: list[str] = []  # files of what this process had to compile
        self.watch: Callable[[], None] = _nothing  # called when one more kernel is ready

    def reached(self) -> tuple[int, int]:
        """How many kernels are compiled or loaded, and how many there are."""
        return len({file.rpartition("-")[0] for file in self._libraries}), len(self._kernels)

    def take_in(self) -> None:
        """Add kernels that were registered since."""
        if len(self._inner) == len(self._kernels):  # checked at every call of a kernel from Python
            return
        fresh = [name for name in self._kernels if name not in self._inner]
        for name in fresh:
            self._inner[name] = self._dispatcher(name, no_cpython_wrapper=name not in self._called)
        for scope in self._scopes.values():
            scope.update(self._inner, COMPILED=True)
        self._target = use_libraries(
            self._inner[fresh[0]].targetctx, frozenset(PREFIX + each for each in self._inlined)
        )

    def entry(self, name: str) -> Any:
        """A kernel for Python to call; one that is not an entry is compiled once more, with a wrapper."""
        if name in self._called:
            return self._inner[name]
        if name not in self._entries:
            self._entries[name] = self._dispatcher(name, no_cpython_wrapper=False, alone=True)
        return self._entries[name]

    def _dispatcher(self, name: str, *, no_cpython_wrapper: bool, alone: bool = False) -> Any:
        """A kernel as numba has it; `alone`: with an object file of its own even if it is inlined."""
        function = self._kernels[name]
        module = function.__module__
        if module not in self._scopes:
            self._scopes[module] = dict(sys.modules[module].__dict__)
        twin = types.FunctionType(function.__code__, self._scopes[module], name, function.__defaults__)
        twin.__qualname__, twin.__module__ = PREFIX + ("alone." if alone else "") + name, module
        options: dict[str, Any] = {
            "no_cpython_wrapper": no_cpython_wrapper,
            "forceinline": name in self._inlined and not alone,
        }
        compiled = numba.njit(**_OPTIONS, **options)(twin)
        compiled._cache = _Kept(self, name, options)  # noqa: SLF001 - numba has no other way to say how to keep code
        return _without_literals(compiled)

    def file_name(self, name: str, options: dict[str, Any], arguments: tuple[Type, ...]) -> str:
        """The file name of a kernel for arguments of these types: a digest of everything that goes into it."""
        made_of = (
            _MACHINERY,
            (sys.version, numba.__version__, llvmlite.__version__, self._target),
            (sorted(_CONFIG.items()), sorted(_OPTIONS.items()), sorted(options.items())),
            self._fingerprints.of(name),
            [_describe(each) for each in arguments],
        )
        return f"{name}-{digest_of(made_of)}"

    def keep(self, file: str, result: Any) -> None:
        """Write compiled code."""
        library: KernelLibrary = result.library
        self.compiled.append(file)
        needs = library.symbols_needed()
        packed, *rest = result._reduce()  # noqa: SLF001 - as numba's own cache does
        self.files.write(file, pickle.dumps((needs, packed, serialize.dumps(rest))))
        self._put(file, library)

    def load(self, file: str, context: Any) -> Any:
        """Load compiled code, with all that it calls; None: it is not there, or not whole."""
        found = self._read(file)
        if found is None:
            return None
        library = self._library(file, context)
        if library is None:
            return None
        try:
            rest = pickle.loads(found[2])  # noqa: S301 - the user's own files, as numba's own cache does
        except ModuleNotFoundError:  # kept by a version that had the kernel in a module that is gone
            return None
        return CompileResult._rebuild(context, library, *rest)  # noqa: SLF001

    def _read(self, file: str) -> Any:
        found = self.files.read(file)
        return None if found is None else pickle.loads(found)  # noqa: S301

    def _library(self, file: str, context: Any) -> KernelLibrary | None:
        """A library with everything that it calls."""
        if file in self._libraries:
            return self._libraries[file]
        found = self._read(file)
        if found is None:
            return None
        needs, packed, _ = found
        for need, symbols in needs.items():
            needed = self._library(need, context)
            if needed is None or not needed.symbols >= symbols:
                return None
        library = KernelLibrary.unpacked(context.codegen(), packed)
        library.needs = {need: self._libraries[need] for need in needs}
        self._put(file, library)
        return library

    def _put(self, file: str, library: KernelLibrary) -> None:
        self._libraries[file] = library
        library.key = None if library.is_inlined else file
        self.watch()


def _nothing() -> None:
    """No observer."""


class _Kept(_Cache):
    """The cache that numba reads before it compiles a kernel, and writes to when it has."""

    def __init__(self, compiler: Compiler, name: str, options: dict[str, Any]) -> None:
        self._compiler, self._name, self._options = compiler, name, options

    @property
    def cache_path(self) -> str:
        """Not used by numba."""
        return ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel that is compiled already."""
        target_context.refresh()
        return self._compiler.load(self._file(sig), target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel."""
        self._compiler.keep(self._file(sig), data)

    def _file(self, sig: Any) -> str:
        arguments, _ = sigutils.normalize_signature(sig)
        return self._compiler.file_name(self._name, self._options, arguments)

    def enable(self) -> None:
        """Nothing to do."""

    def disable(self) -> None:
        """Nothing to do."""

    def flush(self) -> None:
        """Nothing to do."""


def _describe(kind: Any) -> object:
    """A type with the names of all fields, which numba's own name of it leaves out."""
    if isinstance(kind, ByPointer):
        return "pointer", _describe(kind.pointee)
    if issubclass(type(kind), BaseTuple):
        return str(type(kind)), str(kind), getattr(kind, "fields", ()), [_describe(each) for each in kind.types]
    return str(kind)


def _without_literals(compiled: Any) -> Any:
    """Keep numba from compiling a kernel once more for every constant argument."""
    find = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: find(tuple(map(unliteral, args)), kws)
    return compiled
