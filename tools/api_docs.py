"""Writes docs/api.md from the signatures and docstrings of the public interface.

python tools/api_docs.py            # write the page
python tools/api_docs.py --check    # exit code 1 if the page is not up to date
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import tidegate
from tidegate.journal.job_decisions import PodPlace
from tidegate.measure.summary import RunSummary, TimeSpread, WorkloadGroup

PAGE = Path(__file__).parent.parent / "docs" / "api.md"

_HEAD = """\
<!-- Made by tools/api_docs.py from the docstrings of `import tidegate`: change those, then run it. -->
# Python interface

`import tidegate` gives these names, and loads what a name needs when it is used first. [python.md](python.md) is a
tutorial. Everything else below `tidegate` is internal and may change with any version.

A `Source` is what `read_source` takes, or what it returned. Paths are `str` or `pathlib.Path`. Durations are text:
"90s", "1h30m", "2d". Times in frames are milliseconds since the start of a run. Frames are
[polars](https://docs.pola.rs) frames; `.to_pandas()` makes pandas frames of them. `to_dict()` gives what the command
prints with `--json`. Messages of errors name options as the command line does: `--nodes` is the argument `nodes`.
"""

#: What stands together, under a heading.
_SECTIONS = {
    "Run jobs in the twin": (
        "simulate",
        "Simulation",
        "RunSummary",
        "WorkloadGroup",
        "TimeSpread",
        "compare",
        "Comparison",
    ),
    "Read sources": ("read_source", "SourceData"),
    "Read journals and explain jobs": ("read_journal", "JournalReader", "explain", "JobExplanation"),
    "Step an engine by hand": ("Engine", "EngineStep", "JobDecision", "PodPlace"),
    "Measure a demand and plan": ("measure_demand", "MeasuredDemand", "plan", "CapacityPlan"),
    "Errors": ("TidegateError", "UserError"),
}

#: Long names of types, and how they are shown.
_SHORT = {
    "polars.dataframe.frame.": "polars.",
    "pl.": "polars.",
    "PathOrSection": "str | Path | dict",
    "Source | SourceData": "Source",
    "HasJournal | str | Path": "JournalReader | Simulation | Engine | str | Path",
    "Policies": "list | dict",
}


#: Parts of results that people read by name; they have fields only.
_RESULTS = (RunSummary, WorkloadGroup, TimeSpread, PodPlace)

#: Members for other modules of the package: what they return may change.
_INTERNAL = (
    "RunSummary.as_json",
    "SourceData.tables",
    "SourceData.source_tables",
    "SourceData.model",
    "MeasuredDemand.model_for",
)


def page() -> str:
    """The whole page."""
    named = {name for names in _SECTIONS.values() for name in names} - {kind.__name__ for kind in _RESULTS}
    if named != set(tidegate.__all__):
        raise ValueError(f"_SECTIONS and tidegate.__all__ differ: {sorted(named ^ set(tidegate.__all__))}")
    parts = [_HEAD]
    for title, names in _SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [part for name in names for part in _entry(name, _thing(name))]
    return "\n".join(parts)


def _thing(name: str) -> Any:
    return next((kind for kind in _RESULTS if kind.__name__ == name), None) or getattr(tidegate, name)


def _entry(name: str, thing: Any) -> list[str]:
    if not inspect.isclass(thing):
        return [f"### {name}\n", _code(f"tidegate.{name}", thing), _text(thing)]
    shown = [] if issubclass(thing, Exception) or not _is_made_by_users(thing) else [_code(f"tidegate.{name}", thing)]
    return [f"### {name}\n", *shown, _text(thing), *_fields(thing), *_members(thing)]


def _is_made_by_users(kind: type) -> bool:
    return "Args:" in (inspect.getdoc(kind) or "")


def _fields(kind: type) -> list[str]:
    """The fields of a tuple or a struct, with the comments next to them."""
    fields = getattr(kind, "_fields", getattr(kind, "__struct_fields__", ()))
    if not fields:
        return []
    comments = dict(re.findall(r"(?m)^    (\w+): [^#\n]+#\s*(.+)$", inspect.getsource(kind)))
    hints = {name: getattr(hint, "__forward_arg__", str(hint)) for name, hint in inspect.get_annotations(kind).items()}
    rows = [_row(name, hints[name], comments.get(name, "")) for name in fields]
    return ["| field | type | what it is |", "|---|---|---|", *rows, ""]


def _row(name: str, hint: str, said: str) -> str:
    shown = _shorten(hint).replace("|", r"\|")
    return f"| `{name}` | `{shown}` | {said[:1].upper()}{said[1:]} |"


def _members(kind: type) -> list[str]:
    """The properties and the methods."""
    own = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    fields = getattr(kind, "_fields", getattr(kind, "__struct_fields__", ()))
    own = {name: one for name, one in own.items() if name not in fields and f"{kind.__name__}.{name}" not in _INTERNAL}
    properties = {name: member for name, member in own.items() if isinstance(member, property)}
    rows = [
        _row(name, str(inspect.signature(_getter(member)).return_annotation), inspect.getdoc(member) or "")
        for name, member in properties.items()
    ]
    lines = ["| property | type | what it is |", "|---|---|---|", *rows, ""] if rows else []
    for name, member in own.items():
        if inspect.isfunction(member) and inspect.getdoc(member):
            lines += [f"#### {kind.__name__}.{name}\n", _code(name, member), _text(member)]
    return lines


def _getter(member: property) -> Any:
    assert member.fget is not None
    return member.fget


def _code(name: str, thing: Any) -> str:
    """The signature, with a line for each parameter where it is long."""
    signature = inspect.signature(thing)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    shown: list[str] = []
    for at, one in enumerate(parameters):
        if one.kind is one.KEYWORD_ONLY and (at == 0 or parameters[at - 1].kind is not one.KEYWORD_ONLY):
            shown.append("*")
        default = "" if one.default is one.empty else " = " + repr(one.default).replace("'", '"')
        shown.append(f"{one.name}: {_shorten(str(one.annotation))}{default}")
    returned = "" if inspect.isclass(thing) else f" -> {_shorten(str(signature.return_annotation))}"
    line = f"{name}({', '.join(shown)}){returned}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in shown), f"){returned}"])
    return f"```text\n{line}\n```\n"


def _shorten(annotation: str) -> str:
    for long, short in _SHORT.items():
        annotation = annotation.replace(long, short)
    return annotation


def _text(thing: Any) -> str:
    """A docstring as Markdown: its sections become lists."""
    lines: list[str] = []
    section = ""
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line in ("Args:", "Raises:"):
            section = line
            lines += ["", "Arguments:" if line == "Args:" else "Raises:", ""]
        elif section and re.match(r"    \w+:", line):
            name, _, said = line.strip().partition(":")
            lines.append(f"- `{name}`:{said}")
        elif section and line.strip():
            lines[-1] += f" {line.strip()}"
        elif line.strip() or not section:
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    if parser.parse_args().check:
        is_current = PAGE.exists() and PAGE.read_text() == page()
        print("docs/api.md is up to date" if is_current else "docs/api.md is not up to date: run tools/api_docs.py")
        return 0 if is_current else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
