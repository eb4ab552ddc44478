"""Which kernels a run uses: plain ones, compiled ones, or plain ones until a background process has compiled them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from tidegate.jit.registry import can_compile, compiled_when, kernels_as
from tidegate.model.errors import UserError

if TYPE_CHECKING:
    from tidegate.jit.cache_build import Build


class Kernels(StrEnum):
    """How kernels run."""

    AUTO = "auto"
    PLAIN = "plain"
    COMPILED = "compiled"


def _ignore(_: str) -> None:
    """A listener that does nothing."""


def read_kernels(name: str) -> Kernels:
    """The kernels of a name; refuses those that cannot run here."""
    if name not in set(Kernels):
        raise UserError(f"kernels: expected one of {', '.join(Kernels)}, found {name!r}")
    check_kernels(Kernels(name))
    return Kernels(name)


def check_kernels(kernels: Kernels) -> None:
    """Refuse kernels that cannot run here."""
    if kernels is Kernels.COMPILED and not can_compile():
        raise UserError("compiled kernels need numba, which is not installed: pip install 'tidegate[fast]'")


def compiles(kernels: Kernels, *, worth: bool) -> bool:
    """Whether kernels run compiled: where that is asked for, or worth the compiler's start."""
    check_kernels(kernels)
    return can_compile() and (kernels is Kernels.COMPILED or (kernels is Kernels.AUTO and worth))


@contextmanager
def kernels_for(kernels: Kernels, *, worth: bool, tell: Callable[[str], None] = _ignore) -> Iterator[None]:
    """Kernels for a piece of work, without waiting for a compiler.

    Where compiled ones are wanted and are not there, it begins with plain ones, and goes on with compiled ones once a
    process in the background has them. What comes of it is the same.
    """
    from tidegate.jit.cache_build import Build
    from tidegate.jit.cache_files import open_store

    if not compiles(kernels, worth=worth):
        with kernels_as(compiled=False):
            yield
        return
    build = Build(open_store())
    if build.is_ready() or not build.start():
        # Without a process that compiles, who asked for compiled kernels has them compiled as they are needed.
        with kernels_as(compiled=build.is_ready() or kernels is Kernels.COMPILED):
            yield
        return
    with compiled_when(partial(_look, build, tell)):
        yield


def _look(build: Build, tell: Callable[[str], None]) -> bool:
    """Whether compiled kernels are there; if not, how far they are."""
    if build.is_ready():
        tell("")
        return True
    if build.looked():
        done, total = build.progress()
        tell(f"compiling kernels in the background ({done} of {total or '…'}); running with plain kernels")
    return False
