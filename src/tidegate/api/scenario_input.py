"""What a run of the twin is made from: jobs, a cluster and a policy, named as the command line and the library do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.config.convert import Setup, build
from tidegate.config.validate import read_document
from tidegate.demand.tables import Tables
from tidegate.manifests.import_all import ImportedCluster
from tidegate.measure.format import count_text
from tidegate.model.errors import UserError
from tidegate.model.hardware import Node
from tidegate.model.policy import OrderKind, PlacementKind
from tidegate.model.problem import Severity
from tidegate.sim.scenario import (
    Scenario,
    ScenarioChanges,
    finish_setup,
    sample_scenario,
    scenario_notes,
    trace_scenario,
    with_cluster,
    with_gpu_pool,
    with_nodes,
    with_policy,
)
from tidegate.sim.trace_jobs import plain_nodes
from tidegate.sources.config_file import load_setup
from tidegate.sources.manifest_dir import ManifestDir, holds_manifests, load_manifest_dir

#: A policy or a cluster: the path of a tidegate.yaml or of a folder of manifests, or a section of a tidegate.yaml.
PathOrSection = str | Path | Mapping[str, Any]

#: How a tidegate.yaml begins, in YAML or JSON.
_TIDEGATE_YAML = re.compile(r'(?m)^\s*\{?\s*"?(version|cluster|policy|twin|work)"?\s*:')
_NODE_GROUP = re.compile(r"(\d{1,6})x(\d{1,2})(?::([\w.-]{1,63}))?")
_MOST_NODES, _MOST_GPUS = 100_000, 16
_MOST_POOL = 10_000_000


class ScenarioInput(NamedTuple):
    """What names a scenario: jobs, a cluster and a policy."""

    sources: Sequence[str] = ()
    nodes: str = ""
    gpus: str = ""
    cluster: PathOrSection | None = None
    policy: PathOrSection | None = None

    def title(self) -> str:
        """The name of the work, in a picture."""
        return ", ".join(Path(source).name or source for source in self.sources) or "sample week"


def check_seed(seed: int | None) -> None:
    """Refuse seeds below zero."""
    if seed is not None and seed < 0:
        raise UserError(f"--seed: expected a number of zero or more, found {seed}")


# -- reading ---------------------------------------------------------------------------------------------------


def read_scenario(
    given: ScenarioInput, seed: int | None, policies: Sequence[ScenarioPolicy], read_tables: Callable[[], Tables]
) -> Scenario:
    """The work and the cluster that are named; `policies` are those it will run under."""
    named = [f"--{name}" for name in ("nodes", "gpus", "cluster") if getattr(given, name)]
    if len(named) > 1:
        raise UserError(f"{' and '.join(named)} each name a cluster; name one")
    cluster = read_cluster(given.cluster).content if given.cluster else None
    nodes = read_nodes(given.nodes) if given.nodes else list(cluster.nodes) if cluster else []
    theirs = next((list(policy.content.nodes) for policy in policies if policy.content.nodes), [])
    scenario = _read_work(given, nodes or ([] if given.gpus else theirs), seed, read_tables)
    if given.gpus:
        return with_gpu_pool(scenario, _read_gpus(given.gpus))
    if cluster is not None:
        return with_cluster(scenario, cluster)
    return with_nodes(scenario, nodes) if nodes else scenario


def apply_policy(
    scenario: Scenario, policy: ScenarioPolicy | None, changes: ScenarioChanges, name: str
) -> tuple[Setup, list[str]]:
    """The setup of a scenario under a policy, and notes on it; an error if nothing could happen in a run."""
    ready = with_policy(scenario, policy.content) if policy else scenario
    setup = finish_setup(ready, changes)
    empty = "work" if setup.nodes or setup.policy.shares.queues else "cluster"
    if empty == "cluster" or not setup.work:
        raise UserError(f"{name}: nothing to simulate: `{empty}` is empty; docs/tidegate-yaml.md has an example")
    return setup, [*(policy.notes if policy else ()), *scenario_notes(ready, setup, name)]


def _read_work(
    given: ScenarioInput, nodes: list[Node], seed: int | None, read_tables: Callable[[], Tables]
) -> Scenario:
    if not given.sources:
        return sample_scenario(seed)
    scenarios = [source for source in given.sources if is_tidegate_yaml(source)]
    if not scenarios:
        return trace_scenario(read_tables(), nodes, seed)
    if len(given.sources) > 1:
        raise UserError(f"{scenarios[0]}: is a tidegate.yaml; name it with --cluster or --policy next to other sources")
    return Scenario(load_setup(Path(scenarios[0])))


def is_tidegate_yaml(source: str) -> bool:
    """Whether a source is a tidegate.yaml, by its name and how it begins."""
    path = Path(source)
    try:
        with path.open("rb") as file:
            text = file.read(1 << 16).decode(errors="replace")
    except (OSError, ValueError):
        return path.suffix in (".yaml", ".yml")
    if re.search(r"(?m)^\s*\"?apiVersion\"?\s*:", text):
        return False
    return path.suffix in (".yaml", ".yml") or (path.suffix == ".json" and bool(_TIDEGATE_YAML.match(text)))


def read_nodes(text: str, first: int = 0) -> list[Node]:
    """Nodes by number, GPUs and model: "8x8:h100,16x4:l40s"; their names are numbered from the first on."""
    nodes: list[Node] = []
    for group in text.split(","):
        found = _NODE_GROUP.fullmatch(group.strip())
        count, gpus = (int(found[1]), int(found[2])) if found else (0, 0)
        if found is None or not (1 <= count <= _MOST_NODES and 1 <= gpus <= _MOST_GPUS):
            expected = f"COUNTxGPUS such as 26x8, with 1 to {_MOST_GPUS} GPUs on each of up to {_MOST_NODES:,} nodes"
            raise UserError(f"--nodes: expected {expected}, found {group!r}")
        nodes += plain_nodes(count, gpus, found[3] or "", first + len(nodes))
    return nodes


def _read_gpus(text: str) -> int:
    """Thousandths of a GPU."""
    try:
        milli = round(float(text) * 1000)
    except (ValueError, OverflowError):
        milli = 0
    if not 1 <= milli <= _MOST_POOL * 1000:
        raise UserError(f"--gpus: expected a number of GPUs up to {_MOST_POOL:,}, found {text!r}")
    return milli


# -- policies --------------------------------------------------------------------------------------------------


class ScenarioPolicy(NamedTuple):
    """A tidegate.yaml or a folder of manifests, and notes on what of it is not used."""

    content: ImportedCluster | Setup
    notes: tuple[str, ...] = ()


def read_policy(policy: PathOrSection) -> ScenarioPolicy:
    """The policy of a tidegate.yaml, of a folder of manifests, or of a section `policy` as plain data."""
    return _read_section("policy", policy) if isinstance(policy, Mapping) else _read_path("policy", policy)


def read_cluster(cluster: PathOrSection) -> ScenarioPolicy:
    """The nodes and queues of a tidegate.yaml, of a folder of manifests, or of a section `cluster` as plain data."""
    return _read_section("cluster", cluster) if isinstance(cluster, Mapping) else _read_path("cluster", cluster)


def _read_section(name: str, data: Mapping[str, Any]) -> ScenarioPolicy:
    document, report = read_document({name: dict(data)})
    if document is None:
        raise UserError("\n".join(problem.text() for problem in report.problems))
    return ScenarioPolicy(build(document), tuple(problem.text() for problem in report.problems))


def _read_path(name: str, given: str | Path) -> ScenarioPolicy:
    if not isinstance(given, str | Path):
        raise UserError(f"{name}: expected a path or a dict, found {type(given).__name__}")
    path = Path(given)
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder; expected a tidegate.yaml or a folder of manifests")
    if holds_manifests(path):
        folder = load_manifest_dir(path)
        return ScenarioPolicy(folder.loaded or ImportedCluster(), tuple(unused_notes(folder)))
    setup = load_setup(path)
    note = f"{path}: its work is not used: only its policy, and its machines if it has any"
    return ScenarioPolicy(setup, (note,) if setup.work else ())


def unused_notes(folder: ManifestDir) -> list[str]:
    """What a run in the twin does not use of a folder."""
    loaded = folder.loaded or ImportedCluster()
    warnings = sum(found.severity is Severity.WARNING for found in folder.findings)
    told = [f"{folder.path}: {count_text(warnings, 'warning')}; `tidegate check {folder.path}` lists them"]
    lines = told if warnings else []
    if loaded.nodes and any(standing.queue for _, standing in loaded.standings):
        lines.append(f"{folder.path}: work that was admitted goes on and holds its quota, but no room on the nodes")
    if loaded.foreign:
        lines.append(f"{folder.path}: what other pods hold on the nodes is not counted")
    return lines


def is_policy_path(name: str) -> bool:
    """Say whether a policy is named by a path, and not by an order or a placement."""
    return "/" in name or name.endswith((".yaml", ".yml", ".json")) or (bool(name) and Path(name).is_dir())


def named_policy(name: str, seed: int | None) -> ScenarioChanges:
    """What a name such as `srtf`, `tide` or `srtf+firstfit` changes."""
    order: OrderKind | None = None
    placement: PlacementKind | None = None
    for part in name.split("+"):
        if part in set(OrderKind):
            order = OrderKind(part)
        elif part in set(PlacementKind):
            placement = PlacementKind(part)
        else:
            known = ", ".join([*OrderKind, *PlacementKind])
            expected = f"orders and placements ({known}), files and folders"
            raise UserError(f"--policies: expected {expected}, found {part!r}")
    return ScenarioChanges(order, placement, None, seed)
