"""What docs/architecture.md and docs/for-controller-authors.md name is there, and walks and lists keep their rules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tidegate.kube.actuator.pending_writes import WriteKind
from tidegate.kube.mirror.workload_pods import PodSlot, WorkloadStage
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.state.tables.workloads import Phase

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "tidegate"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
AUTHORS = (ROOT / "docs" / "for-controller-authors.md").read_text()

_ROW = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \| (`[^|]+`) \|", re.MULTILINE)


def section(title: str, level: int = 2) -> str:
    """The text below a heading, up to the next one of its level or above."""
    found = re.search(
        rf"^{'#' * level} {re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", TEXT, re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found[1]


WALKS = re.findall(r"^### (.+)$", section("Four walks"), re.MULTILINE)


def defined(path: Path) -> set[str]:
    """Names of functions and classes of a module, with those of methods."""
    tree = ast.parse(path.read_text())
    return {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_functions_that_are_there_and_no_module_twice(walk):
    down, back = re.split(r"^Back,", section(walk, 3), flags=re.MULTILINE)
    for way in (down, back):
        rows = _ROW.findall(way)
        assert len(rows) >= 4
        assert [int(number) for number in re.findall(r"^\| (\d+) \|", way, re.MULTILINE)] == list(
            range(1, len(rows) + 1)
        )
        modules = [module for module, _ in rows]
        assert len(set(modules)) == len(modules)
        for module, functions in rows:
            names = set(re.findall(r"`(\w+)`", functions))
            assert names
            assert names <= defined(SRC / module), module


def test_there_are_four_walks():
    assert len(WALKS) == 4


@pytest.mark.parametrize("text", [TEXT, AUTHORS], ids=["architecture", "for-controller-authors"])
def test_files_it_names_are_there(text):
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|json|toml|yaml))`", text))
    named |= set(re.findall(r"`((?:[\w.-]+/)+)`", text))
    missing = [name for name in named if not any((root / name).exists() for root in (ROOT, SRC, *SRC.glob("*/")))]
    assert missing == []


def test_every_package_has_its_row_and_modules_to_begin_with():
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    table = section("The packages, in reading order")
    rows = re.findall(r"^\| \S+ \| `(\w+)` \|.*\| ([^|]+) \|$", table, re.MULTILINE)
    assert {name for name, _ in rows} == packages
    for package, begin in rows:
        for module in re.findall(r"`([\w/]+\.py)`", begin):
            assert (SRC / package / module).is_file(), f"{package}/{module}"


def test_state_diagrams_have_the_names_of_the_code():
    states = section("States")
    workload, slot, write = re.findall(r"```mermaid\n(.*?)```", states, re.DOTALL)
    phases = set(re.findall(r"\b([A-Z]{4,})\b(?= -->)|--> ([A-Z]{4,})\b", workload))
    assert {name for pair in phases for name in pair if name} == {phase.name for phase in Phase}
    words = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", workload)) - {phase.name for phase in Phase}
    assert words <= {kind.name for kind in (*FactKind, *DecisionKind)}
    assert set(re.findall(r'" as (\w+)$', slot, re.MULTILINE)) - {"empty", "pod", "node"} <= set(PodSlot.__slots__)
    assert set(re.findall(r"\b[A-Z]{4,}\b", write)) >= {outcome.name for outcome in WriteOutcome}
    kinds = re.search(r"says what it is for \(([^)]+)\)", states)
    assert kinds
    assert set(kinds[1].split(", ")) == {kind.name for kind in WriteKind}
    stages = re.search(r"shows it: ([A-Z, ]+)\.", states.replace("\n", " "))
    assert stages
    assert stages[1].split(", ") == [stage.name for stage in WorkloadStage]


def kernel_modules() -> dict[str, set[str]]:
    """Modules of the kernels and the topology, by name, with those that they import."""
    found: dict[str, set[str]] = {}
    for package in ("kernels", "topology"):
        for path in (SRC / "engine" / package).glob("*.py"):
            imports = [
                node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
            ]
            ours = [name for name in imports if name and re.match(r"tidegate\.engine\.(kernels|topology)\.\w+$", name)]
            found[f"{package}/{path.stem}"] = {"/".join(name.split(".")[2:]) for name in ours}
    return {name: needs for name, needs in found.items() if not name.endswith("__init__")}


def test_the_reading_order_of_the_kernels_is_that_of_their_imports():
    order: list[str] = []
    for cell in re.findall(r"^\| \d+ \| [^|]+ \| ([^|]+) \|$", section("The kernels, in reading order"), re.MULTILINE):
        kernels, _, topology = cell.partition("topology:")
        order += [f"kernels/{name}" for name in re.findall(r"`(\w+)`", kernels)]
        order += [f"topology/{name}" for name in re.findall(r"`(\w+)`", topology)]
    modules = kernel_modules()
    assert sorted(order) == sorted(modules)
    above: set[str] = set()
    late = []
    for name in order:
        late += [f"{name} needs {needed}" for needed in modules[name] - above - {name} if needed in modules]
        above.add(name)
    assert late == []
