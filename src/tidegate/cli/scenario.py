"""What `simulate`, `compare` and `explain` run: the options that name it, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tidegate.cli.errors import CommandError
from tidegate.report.output_files import open_console, print_line
from tidegate.sources.options import SourceOptions

if TYPE_CHECKING:
    from tidegate.config.convert import Setup
    from tidegate.manifests.import_all import ImportedCluster
    from tidegate.model.hardware import Node
    from tidegate.sim.scenario import Scenario, ScenarioChanges
    from tidegate.sources.manifest_dir import ManifestDir

CLUSTER_PANEL = "Cluster options"

ScenarioArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCE",
        help="Jobs to run: CSV, Parquet, sacct output, a public trace, a `kubectl get -o json` dump, a folder of "
        "these, or a Prometheus address. Or one tidegate.yaml. Default: a bundled week of a mixed team cluster.",
        show_default=False,
    ),
]
NodesOption = Annotated[
    str,
    typer.Option(
        "--nodes",
        metavar="COUNTxGPUS[:MODEL],...",
        help="Run on these nodes: 26x8, or 8x8:h100,16x4:l40s.",
        show_default=False,
        rich_help_panel=CLUSTER_PANEL,
    ),
]
GpusOption = Annotated[
    str,
    typer.Option(
        "--gpus",
        metavar="N",
        help="Run on a pool of N GPUs, without nodes.",
        show_default=False,
        rich_help_panel=CLUSTER_PANEL,
    ),
]
ClusterFileOption = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="PATH",
        help="Run on the nodes and queues of a tidegate.yaml, a folder of Kubernetes manifests, or a dump of "
        "`kubectl get nodes -o json`.",
        show_default=False,
        rich_help_panel=CLUSTER_PANEL,
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="PATH",
        help="Use the policy of a tidegate.yaml, or the queues of a folder of Kubernetes manifests.",
        show_default=False,
        rich_help_panel=CLUSTER_PANEL,
    ),
]
#: Refused: `--trace FILE` was the way to name a trace.
TraceOption = Annotated[str, typer.Option("--trace", hidden=True, help="Renamed: name the trace as SOURCE.")]

#: How a tidegate.yaml begins, in YAML or JSON.
_TIDEGATE_YAML = re.compile(r'(?m)^\s*\{?\s*"?(version|cluster|policy|twin|work)"?\s*:')
_NODE_GROUP = re.compile(r"(\d{1,6})x(\d{1,2})(?::([\w.-]{1,63}))?")
_MOST_NODES, _MOST_GPUS = 100_000, 16
_MOST_POOL = 10_000_000


class ScenarioOptions(NamedTuple):
    """What the command line names to run."""

    sources: list[str]
    nodes: str = ""
    gpus: str = ""
    cluster: Path | None = None
    policy: Path | None = None
    reading: SourceOptions = SourceOptions()

    def title(self) -> str:
        """The name of the work, in a picture."""
        return ", ".join(Path(source).name or source for source in self.sources) or "sample week"

    def arguments(self) -> list[str]:
        """What names the same work and cluster on the command line; without credentials and the policy."""
        given: list[tuple[str, object]] = [("nodes", self.nodes), ("gpus", self.gpus), ("cluster", self.cluster)]
        secret = ("token", "user", "password")
        given += [(name, value) for name, value in self.reading._asdict().items() if name not in secret]
        flags = [f"--{name.replace('_', '-')}" + _value_text(value) for name, value in given if value]
        return [*map(quote, self.sources), *flags]


def _value_text(value: object) -> str:
    return "" if value is True else f" {quote(str(value))}"


def refuse_trace(trace: str) -> None:
    """Refuse the option that named a trace before every source could be run."""
    if trace:
        raise CommandError(f"--trace was renamed to SOURCE: tidegate simulate {quote(trace)} --policy queues.yaml")


# -- reading ---------------------------------------------------------------------------------------------------


def read_scenario(given: ScenarioOptions, seed: int | None, policies: Sequence[ScenarioPolicy] = ()) -> Scenario:
    """The work and the cluster that the options name; `policies` are those it will run under."""
    from tidegate.sim.scenario import with_cluster, with_gpu_pool, with_nodes

    named = [f"--{name}" for name in ("nodes", "gpus", "cluster") if getattr(given, name)]
    if len(named) > 1:
        raise CommandError(f"{' and '.join(named)} each name a cluster; name one")
    cluster = read_policy(given.cluster).content if given.cluster else None
    nodes = _read_nodes(given.nodes) if given.nodes else list(cluster.nodes) if cluster else []
    theirs = next((list(policy.content.nodes) for policy in policies if policy.content.nodes), [])
    scenario = _read_work(given, nodes or ([] if given.gpus else theirs), seed)
    if given.gpus:
        return with_gpu_pool(scenario, _read_gpus(given.gpus))
    if cluster is not None:
        return with_cluster(scenario, cluster)
    return with_nodes(scenario, nodes) if nodes else scenario


def read_setup(given: ScenarioOptions, changes: ScenarioChanges) -> Setup:
    """The setup that the options name, with what the command line changes; notes go to the error channel."""
    policy = read_policy(given.policy) if given.policy else None
    scenario = read_scenario(given, changes.seed, [policy] if policy else [])
    setup, notes = apply_policy(scenario, policy, changes, given.title())
    print_notes(notes)
    return setup


def apply_policy(
    scenario: Scenario, policy: ScenarioPolicy | None, changes: ScenarioChanges, name: str
) -> tuple[Setup, list[str]]:
    """The setup of a scenario under a policy, and notes on it; an error if nothing could happen in a run."""
    from tidegate.sim.scenario import finish_setup, scenario_notes, with_policy

    ready = with_policy(scenario, policy.content) if policy else scenario
    setup = finish_setup(ready, changes)
    empty = "work" if setup.nodes or setup.policy.shares.queues else "cluster"
    if empty == "cluster" or not setup.work:
        raise CommandError(f"{name}: nothing to simulate: `{empty}` is empty; docs/tidegate-yaml.md has an example")
    return setup, [*(policy.notes if policy else ()), *scenario_notes(ready, setup, name)]


def _read_work(given: ScenarioOptions, nodes: list[Node], seed: int | None) -> Scenario:
    from tidegate.sim.scenario import Scenario, sample_scenario, trace_scenario
    from tidegate.sources.config_file import load_setup

    scenarios = [source for source in given.sources if _is_tidegate_yaml(source)]
    if not given.sources:
        return sample_scenario(seed)
    if not scenarios:
        from tidegate.cli.source_io import read_tables

        return trace_scenario(read_tables(given.sources, given.reading, seed or 0), nodes, seed)
    if len(given.sources) > 1:
        raise CommandError(
            f"{scenarios[0]}: is a tidegate.yaml; name it with --cluster or --policy next to other sources"
        )
    return Scenario(load_setup(Path(scenarios[0])))


def _is_tidegate_yaml(source: str) -> bool:
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


def _read_nodes(text: str) -> list[Node]:
    from tidegate.sim.trace_jobs import plain_nodes

    nodes: list[Node] = []
    for part in text.split(","):
        found = _NODE_GROUP.fullmatch(part.strip())
        count, gpus = (int(found[1]), int(found[2])) if found else (0, 0)
        if found is None or not (1 <= count <= _MOST_NODES and 1 <= gpus <= _MOST_GPUS):
            expected = f"COUNTxGPUS such as 26x8, with 1 to {_MOST_GPUS} GPUs on each of up to {_MOST_NODES:,} nodes"
            raise CommandError(f"--nodes: expected {expected}, found {part!r}")
        nodes += plain_nodes(count, gpus, found[3] or "", len(nodes))
    return nodes


def _read_gpus(text: str) -> int:
    """Thousandths of a GPU."""
    try:
        milli = round(float(text) * 1000)
    except (ValueError, OverflowError):
        milli = 0
    if not 1 <= milli <= _MOST_POOL * 1000:
        raise CommandError(f"--gpus: expected a number of GPUs up to {_MOST_POOL:,}, found {text!r}")
    return milli


# -- policies --------------------------------------------------------------------------------------------------


class ScenarioPolicy(NamedTuple):
    """A tidegate.yaml or a folder of manifests, and notes on what of it is not used."""

    content: ImportedCluster | Setup
    notes: tuple[str, ...] = ()


def read_policy(path: Path) -> ScenarioPolicy:
    """The policy of a tidegate.yaml, or of a folder of manifests."""
    from tidegate.manifests.import_all import ImportedCluster
    from tidegate.sources.config_file import load_setup
    from tidegate.sources.manifest_dir import holds_manifests, load_manifest_dir

    if not path.exists():
        raise CommandError(
            f"{path}: there is no such file or folder; expected a tidegate.yaml or a folder of manifests"
        )
    if holds_manifests(path):
        folder = load_manifest_dir(path)
        return ScenarioPolicy(folder.loaded or ImportedCluster(), tuple(unused_notes(folder)))
    setup = load_setup(path)
    note = f"{path}: its work is not used: only its policy, and its machines if it has any"
    return ScenarioPolicy(setup, (note,) if setup.work else ())


def unused_notes(folder: ManifestDir) -> list[str]:
    """What a run in the twin does not use of a folder."""
    from tidegate.manifests.import_all import ImportedCluster
    from tidegate.measure.format import count_text
    from tidegate.model.problem import Severity

    loaded = folder.loaded or ImportedCluster()
    warnings = sum(found.severity is Severity.WARNING for found in folder.findings)
    told = [f"{folder.path}: {count_text(warnings, 'warning')}; `tidegate check {folder.path}` lists them"]
    lines = told if warnings else []
    if loaded.nodes and any(standing.queue for _, standing in loaded.standings):
        lines.append(f"{folder.path}: work that was admitted goes on and holds its quota, but no room on the nodes")
    if loaded.foreign:
        lines.append(f"{folder.path}: what other pods hold on the nodes is not counted")
    return lines


def print_notes(notes: Iterable[str]) -> None:
    """Print what to know before a run, next to its results."""
    for note in dict.fromkeys(notes):
        print_line(open_console(stderr=True), note, style="yellow")
