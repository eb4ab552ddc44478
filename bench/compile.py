"""What it costs to compile all kernels, and where the time goes.

Compiles into an empty folder, in this process, and counts CPU seconds: by pass of numba, by kernel, and how many
specialisations there are. `--as-numba` links kernels as numba does by itself, each into all who call it, for
comparison: that is what it was before, with the same kernels.

    python bench/compile.py --json
    python bench/compile.py --trials 1 --as-numba
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from numba.core import event
from numba.core.codegen import JITCodeLibrary

from tidegate.deploy.precompile import compile_all
from tidegate.jit.cache_files import KernelStore
from tidegate.jit.linking import KernelLibrary


class Timed(event.Listener):
    """CPU seconds of nested events, each without what is inside of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._open: list[list[float]] = []

    def name(self, told: Any) -> str:
        """What an event is about."""
        return str(told.data["name"]).partition(" ")[0]

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's name
        """Begin to count."""
        self._open.append([time.process_time(), 0.0])

    def on_end(self, event: Any) -> None:
        """Count."""
        began, inside = self._open.pop()
        took = time.process_time() - began
        self.seconds[self.name(event)] += took - inside
        self.calls[self.name(event)] += 1
        if self._open:
            self._open[-1][1] += took


class TimedKernels(Timed):
    """By kernel."""

    def name(self, told: Any) -> str:
        """The kernel's name."""
        return str(told.data["dispatcher"].py_func.__name__)


def link_as_numba() -> None:
    """Have kernels linked into all who call them, and optimised twice, as numba does."""
    for name in ("add_llvm_module", "finalize"):
        setattr(KernelLibrary, name, getattr(JITCodeLibrary, name))


def measure(trials: int | None) -> dict[str, Any]:
    passes, kernels = Timed(), TimedKernels()
    event.register("numba:run_pass", passes)  # type: ignore[no-untyped-call]
    event.register("numba:compile", kernels)  # type: ignore[no-untyped-call]
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        count = compile_all(lambda *_: None, KernelStore([Path(folder)]), trials)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    total = time.process_time() - began
    return {
        "cpu_seconds": round(total, 1),
        "specialisations": count,
        "kernels": len(kernels.calls),
        "mib": round(size / (1 << 20), 1),
        "passes": {name: round(seconds, 1) for name, seconds in _top(passes.seconds, 12)},
        "top": [
            {"kernel": name, "cpu_seconds": round(seconds, 2), "specialisations": kernels.calls[name]}
            for name, seconds in _top(kernels.seconds, 25)
        ],
    }


def _top(seconds: dict[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda each: -each[1])[:count]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as-numba", action="store_true", help="link kernels as numba does")
    parser.add_argument("--trials", type=int, help="only the first of them: 1 is places alone, 2 has queues on nodes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.as_numba:
        link_as_numba()
    found = measure(options.trials)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['cpu_seconds']} CPU s, {found['specialisations']} specialisations of {found['kernels']} kernels")
    for name, seconds in found["passes"].items():
        print(f"{seconds:8.1f}  {name}")
    for row in found["top"]:
        print(f"{row['cpu_seconds']:8.2f}  {row['specialisations']}  {row['kernel']}")


if __name__ == "__main__":
    main()
