"""Kernels compiled ahead of time: `python -m tidegate.deploy.precompile [--into FOLDER]`.

Without a folder they go into the user's cache. An image or a wheel contains the folder: Tidegate finds it by
TIDEGATE_KERNELS, or as `compiled_kernels` in the package.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.deploy.kernel_trials import trials
from tidegate.jit.cache_build import end_in_time, note_failure, note_progress, note_ready, sole_builder
from tidegate.jit.cache_files import KernelStore, open_store, user_folder
from tidegate.jit.registry import compiler, kernels_as

#: The lowest priority, as other processes work meanwhile.
_NICE = 19

#: How often it tries to become the only builder.
_TRIES = 4


def compile_all(tell: Callable[[int, int], None], store: KernelStore, most: int | None = None) -> int:
    """Compile every kernel, or find it compiled; says how many were compiled. Of so many trials: for measuring."""
    compiling = compiler()
    compiling.files, compiling.watch = store, lambda: tell(*compiling.reached())
    with kernels_as(compiled=True):
        for trial in trials()[:most]:
            trial()
    if most is None:
        note_ready(store)
    return len(compiling.compiled)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, as the only builder; with --once, in the background."""
    parser = argparse.ArgumentParser(prog="python -m tidegate.deploy.precompile", description=__doc__)
    parser.add_argument("--into", type=Path, help="folder to put them in; without it, the user's cache")
    parser.add_argument("--once", action="store_true", help="in the background: quiet, at the lowest priority")
    options = parser.parse_args(arguments)
    store = KernelStore([options.into]) if options.into else open_store()
    if options.once:
        os.nice(_NICE)
        end_in_time()
    with sole_builder(options.into or user_folder(), _TRIES) as alone:
        if not alone:
            print("another process compiles them", file=sys.stderr)  # noqa: T201
            return 0
        return _build(store, quiet=options.once)


def _build(store: KernelStore, *, quiet: bool) -> int:
    store.clear_remains()
    gc.freeze()  # existing objects stay, and most objects of the compiler are freed by reference counts
    gc.set_threshold(50_000, 20, 50)
    try:
        count = compile_all(lambda done, total: note_progress(store, done, total), store)
    except Exception:
        note_failure(store, traceback.format_exc())
        raise
    if not quiet:
        print(f"{count} kernels compiled into {store.folders[-1]}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
