"""What `simulate`, `compare` and `explain` run: the options that name it, and how it is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tidegate.cli.errors import CommandError
from tidegate.report.output_files import open_console, print_line
from tidegate.sources.options import SourceOptions

if TYPE_CHECKING:
    from tidegate.api.scenario_input import ScenarioInput, ScenarioPolicy
    from tidegate.config.convert import Setup
    from tidegate.sim.scenario import Scenario, ScenarioChanges

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


class ScenarioOptions(NamedTuple):
    """What the command line names to run."""

    sources: list[str]
    nodes: str = ""
    gpus: str = ""
    cluster: Path | None = None
    policy: Path | None = None
    reading: SourceOptions = SourceOptions()

    def input(self) -> ScenarioInput:
        """What names the scenario, without how its sources are read."""
        from tidegate.api.scenario_input import ScenarioInput

        return ScenarioInput(self.sources, self.nodes, self.gpus, self.cluster, self.policy)

    def title(self) -> str:
        """The name of the work, in a picture."""
        return self.input().title()

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


def read_scenario(given: ScenarioOptions, seed: int | None, policies: Sequence[ScenarioPolicy] = ()) -> Scenario:
    """The work and the cluster that the options name; `policies` are those it will run under."""
    from tidegate.api.scenario_input import read_scenario as read
    from tidegate.cli.source_io import read_tables

    return read(given.input(), seed, policies, partial(read_tables, given.sources, given.reading, seed or 0))


def read_setup(given: ScenarioOptions, changes: ScenarioChanges) -> Setup:
    """The setup that the options name, with what the command line changes; notes go to the error channel."""
    from tidegate.api.scenario_input import apply_policy, read_policy

    policy = read_policy(given.policy) if given.policy else None
    scenario = read_scenario(given, changes.seed, [policy] if policy else [])
    setup, notes = apply_policy(scenario, policy, changes, given.title())
    print_notes(notes)
    return setup


def print_notes(notes: Iterable[str]) -> None:
    """Print what to know before a run, next to its results."""
    for note in dict.fromkeys(notes):
        print_line(open_console(stderr=True), note, style="yellow")
