"""Links compiled kernels by symbol, without a copy of the callee in each caller.

numba links the code of every function into each of its callers, and compiles it there once more. Kernels call each
other in deep trees, so that most would be compiled dozens of times. Here a kernel is compiled once, to an object of its
own, and callers name its symbol; only `inlined` kernels are handed on as code.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary

#: Prefix of kernels in numba's names.
PREFIX = "tidegate."


#: Prefix of kernels' symbols.
_MANGLED = "_ZN8tidegate"

#: Kernels of up to this many instructions may be inlined by their callers.
_SMALL = 80


class PackedKernel(NamedTuple):
    """A kernel in its serialised form."""

    name: str
    symbols: frozenset[str]  # what it defines
    object: bytes  # empty: it is inlined
    code: bytes  # for callers to inline; empty: they do not


class KernelLibrary(JITCodeLibrary):
    """The code of one kernel, or of a helper that numba itself compiles for one."""

    inlined: frozenset[str] = frozenset()  # names of kernels that are inlined

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.key: Any = None  # how others reference it, once it is compiled; None: it is linked into its callers
        self.needs: dict[Any, KernelLibrary] = {}  # kernels that it calls by symbol
        self.body: Any = None  # its code, where it is small
        self._symbols: frozenset[str] | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel's."""
        return bool(self.name.startswith(PREFIX))

    @property
    def is_inlined(self) -> bool:
        """Whether it is inlined, and so needs no object of its own."""
        return self.name in self.inlined

    def add_llvm_module(self, ll_module: Any) -> None:
        """Add code; what it is linked into is optimised as a whole."""
        if self.is_kernel:
            ll_module.data_layout = self._codegen._data_layout  # noqa: SLF001
            self._final_module.link_in(ll_module)
        else:
            super().add_llvm_module(ll_module)

    def finalize(self) -> None:
        """Compile it, with what is inlined; other kernels are called by symbol."""
        if not self.is_kernel:
            super().finalize()
            return
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)  # noqa: SLF001
            if library.key is not None:
                self.needs[library.key] = library
                if library.body is not None:
                    self.needs.update(library.needs)  # inlined code calls them from here
                    self._final_module.link_in(library.body, preserve=True)
            else:
                self.needs.update(library.needs)
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)  # noqa: SLF001
        if self.is_inlined:
            self._finalized = True
            return
        passes, builder = self._codegen._module_pass_manager()  # noqa: SLF001
        passes.run(self._final_module, builder)
        self._final_module.verify()
        self.body = self._small_body()
        self.symbols_needed()
        self._finalize_final_module()

    def _small_body(self) -> Any:
        """Its code if that is small, for callers to inline; otherwise they call it by symbol."""
        for function in self._final_module.functions:
            if not function.is_declaration and _is_longer(function, _SMALL):
                return None
        body = self._final_module.clone()
        for function in body.functions:
            if not function.is_declaration:
                function.linkage = "available_externally"
        return body

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols it defines."""
        if self._symbols is None:
            self._symbols = frozenset(function.name for function in self.get_defined_functions())
        return self._symbols

    def symbols_needed(self) -> dict[Any, frozenset[str]]:
        """The symbols it calls, by the kernel that defines them."""
        declared = {function.name for function in self._final_module.functions if function.is_declaration}
        found = {key: library.symbols & declared for key, library in self.needs.items()}
        missing = {name for name in declared if name.startswith(_MANGLED)}.difference(*found.values())
        if missing:  # otherwise the engine would end the whole process
            raise AssertionError(f"{self.name} calls kernels that are not there: {sorted(missing)}")
        return {key: symbols for key, symbols in found.items() if symbols}

    def serialize_using_object_code(self) -> PackedKernel:
        """Everything that is needed to load it again."""
        if self.is_inlined:
            return PackedKernel(self.name, self.symbols, b"", self._get_module_for_linking().as_bitcode())
        code = b"" if self.body is None else self.body.as_bitcode()
        return PackedKernel(self.name, self.symbols | self._globals(), self._get_compiled_object(), code)

    def _globals(self) -> frozenset[str]:
        return frozenset(each.name for each in self._final_module.global_variables if not each.is_declaration)

    @classmethod
    def unpacked(cls, codegen: Any, packed: PackedKernel) -> KernelLibrary:
        """A kernel from its serialised form. Everything that it calls must be loaded."""
        self = cls(codegen, packed.name)
        self._symbols = packed.symbols
        if self.is_inlined:
            self._shared_module, self._finalized = llvm.parse_bitcode(packed.code), True
            return self
        self.body = llvm.parse_bitcode(packed.code) if packed.code else None
        self.enable_object_caching()
        self._set_compiled_object(packed.object)
        codegen._engine._defined_symbols |= packed.symbols  # noqa: SLF001
        self._finalize_final_module()
        return self


def _is_longer(function: Any, most: int) -> bool:
    """Whether a function has more instructions than the limit."""
    instructions = (each for block in function.blocks for each in block.instructions)
    return next(islice(instructions, most, None), None) is not None


def use_libraries(context: Any, inlined: frozenset[str]) -> object:
    """Make numba compile kernels to libraries of this kind; return the target."""
    KernelLibrary.inlined = inlined
    codegen = context.codegen()
    if codegen._library_class is not KernelLibrary:  # noqa: SLF001
        codegen._library_class = KernelLibrary  # noqa: SLF001 - of this one object
        load, set_env, engine = codegen.unserialize_library, codegen.set_env, codegen._engine  # noqa: SLF001
        codegen.unserialize_library = lambda kept: kept if isinstance(kept, KernelLibrary) else load(kept)
        # An inlined kernel has no object, and so nothing to set.
        codegen.set_env = lambda name, env: set_env(name, env) if engine.is_symbol_defined(name) else None
    return codegen.magic_tuple()
