"""Checks the names of the tree against the rules of CONTRIBUTING.md.

A public class name stands once in `src`. Columns have a table for a namespace, not a letter for a prefix. Words that
the field has another word for stand in no module name, flag, log line, Event reason, metric name and page of the docs.

    python tools/names.py            # what is wrong, one line each, and the counts
    python tools/names.py --json

Exit code 1: something is wrong.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Words of this project's past, each with the word of the field that is used instead.
REPLACED = {
    "anew": "again",
    "board": "dashboard",
    "cast": "names",
    "checkup": "readiness checks",
    "consumed": "decayed usage",
    "crew": "partial admission",
    "desk": "cycle scratch",
    "doom": "mark preempted",
    "doomed": "preempted this cycle",
    "door": "admission gate",
    "enrol": "register",
    "entrance": "local queue",
    "fence": "lease guard",
    "follower": "reflector",
    "foreign": "unmanaged",
    "forest": "trees",
    "grove": "topology view",
    "hindsight": "observed history",
    "homeless": "unplaced",
    "house": "place admitted",
    "inbox": "update queue",
    "inquiry": "access review",
    "judge": "capacity replay",
    "leaving": "terminating",
    "ledger": "cluster mirror",
    "letting": "actuator",
    "lot": "flavor-resource",
    "lots": "flavor-resources",
    "mandate": "leadership term",
    "misfit": "topology failure",
    "moment": "time",
    "news": "updates",
    "patience": "scale-up delay",
    "pauses": "backoff",
    "pins": "job patch",
    "plant": "build",
    "purpose": "write kind",
    "reckoning": "shadow comparison",
    "rivals": "conflicting schedulers",
    "roster": "workload pods",
    "script": "fast path",
    "seat": "slot",
    "somebody": "a person, a name",
    "spell": "phase",
    "standing": "observed status",
    "standings": "workload status",
    "stay": "allocation",
    "stays": "allocations",
    "stir": "mark dirty",
    "stirred": "dirty",
    "story": "history",
    "stretch": "batched steps",
    "surroundings": "cluster defaults",
    "ticket": "quota reservation",
    "tidings": "fact builder",
    "told": "reported",
    "trouble": "pending eviction",
    "unhoused": "unplaced",
    "untold": "unreported",
    "uproot": "invalidate",
    "valve": "burst rule",
    "voice": "event recorder",
    "whoever": "the one that",
    "witness": "collector",
}

#: Words that are plain English in a sentence of the docs, and wrong only as a name.
_SENTENCE_WORDS = {
    "board", "cast", "consumed", "door", "house", "judge", "leaving", "lot", "lots", "moment", "news", "plant",
    "patience", "purpose", "script", "standing", "stay", "stays", "story", "stretch", "trouble", "voice",
}  # fmt: skip

#: Two words that say what one word of the field says, anywhere in the docs.
_PHRASES = ("told of", "told to go", "send away", "sent away", "comes to", "of late", "looked at again", "come to be")

_COLUMN = re.compile(r"^_?[A-Z]_[A-Z][A-Z0-9_]*$")
_LOG_CALL = re.compile(r"^(debug|info|warning|error|exception|log)$")
_MOST_GLOSSARY_ROWS = 45


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = {name: sorted(check()) for name, check in CHECKS.items()}
    if options.json:
        print(json.dumps(found))
    else:
        for name, complaints in found.items():
            print("\n".join([*complaints, f"{name}: {len(complaints)}"]))
    return 1 if any(found.values()) else 0


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def _words(name: str) -> list[str]:
    """The words of a name in any of the cases that names are written in."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _replaced(name: str, where: str) -> Iterator[str]:
    for word in _words(name):
        if word in REPLACED:
            yield f"{where}: {name!r} has {word!r}: say {REPLACED[word]!r}"


def class_names() -> Iterator[str]:
    """Public classes that share a name."""
    places = defaultdict(list)
    for path, tree in _modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    for name, where in places.items():
        if len(where) > 1:
            yield f"{name}: {', '.join(where)}"


def column_letters() -> Iterator[str]:
    """Constants whose table is one letter."""
    for path, tree in _modules():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(name, ast.Name) and _COLUMN.match(name.id):
                        yield f"{path}:{node.lineno}: {name.id}"


def module_names() -> Iterator[str]:
    """Modules named with a word that was replaced."""
    for path, _ in _modules():
        yield from _replaced(Path(path).stem, path)


def _strings(node: ast.AST) -> Iterator[tuple[str, int]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value, each.lineno


def flags() -> Iterator[str]:
    """Options of the command line named with a word that was replaced."""
    for path, tree in _modules():
        for text, line in _strings(tree):
            if re.fullmatch(r"--[a-z][a-z-]*(/--[a-z][a-z-]*)?", text):
                yield from _replaced(text, f"{path}:{line}")


def log_lines() -> Iterator[str]:
    """Log lines whose event or fields have a word that was replaced."""
    for path, tree in _modules():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if _LOG_CALL.match(node.func.attr) and "log" in ast.unparse(node.func.value).lower():
                names = [keyword.arg for keyword in node.keywords if keyword.arg]
                for text in [*(text for text, _ in _strings(node)), *names]:
                    yield from _replaced(text, f"{path}:{node.lineno}")


def event_reasons() -> Iterator[str]:
    """Reasons of Events and conditions, and names of metrics, with a word that was replaced."""
    for path, tree in _modules():
        for text, line in _strings(tree):
            if re.fullmatch(r"([A-Z][a-z]+){2,}|tidegate_[a-z_]+", text):
                yield from _replaced(text, f"{path}:{line}")


def docs() -> Iterator[str]:
    """Pages with a word that was replaced; ADRs keep the words of their time."""
    words = "|".join(sorted([*(set(REPLACED) - _SENTENCE_WORDS), *_PHRASES]))
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in pattern.finditer(line):
                yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: {line.strip()[:90]}"


def glossary() -> Iterator[str]:
    """A glossary that is too long to be read."""
    text = (ROOT / "docs" / "concepts.md").read_text()
    rows = sum(1 for line in text.splitlines() if line.startswith("| ") and not line.startswith("| word"))
    if rows > _MOST_GLOSSARY_ROWS:
        yield f"docs/concepts.md: {rows} rows, at most {_MOST_GLOSSARY_ROWS}"


CHECKS = {
    "public class names that stand twice": class_names,
    "columns with a letter for a table": column_letters,
    "module names": module_names,
    "flags": flags,
    "log lines": log_lines,
    "Event reasons and metrics": event_reasons,
    "docs": docs,
    "glossary": glossary,
}

if __name__ == "__main__":
    sys.exit(main())
