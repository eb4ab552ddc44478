"""Says which functions and files are longer than we allow; exits 1 if any is.

A function: 60 lines, a kernel 120; of a command its options do not count. A file: 600 lines.
"""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

FUNCTION, KERNEL, FILE = 60, 120, 600


#: A function with more keyword-only parameters is a command: its options are a list, and do not count.
MOST_PARAMETERS = 6


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.body[0].lineno if len(node.args.kwonlyargs) > MOST_PARAMETERS else node.lineno


def main() -> int:
    root = Path(__file__).parent.parent
    complaints, lengths = [], []
    for path in sorted([*root.glob("src/**/*.py"), *root.glob("bench/**/*.py"), *root.glob("tests/**/*.py")]):
        text = path.read_text()
        lines = text.count("\n")
        if lines > FILE:
            complaints.append(f"{path}: {lines} lines, at most {FILE}")
        cap = KERNEL if {"kernels", "topology"} & set(path.parts) else FUNCTION
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - _first_line(node) + 1
                if "src" in path.parts:
                    lengths.append(length)
                if length > cap:
                    complaints.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {cap}")
    print("\n".join(complaints))
    p90 = statistics.quantiles(lengths, n=10)[8]
    print(f"{len(lengths)} functions, median {statistics.median(lengths):.0f} lines, p90 {p90:.0f}, max {max(lengths)}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
