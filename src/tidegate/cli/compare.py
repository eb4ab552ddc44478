"""`tidegate compare`: run several policies on the same jobs in the twin, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.errors import CommandError, user_errors_reported
from tidegate.cli.scenario import (
    ClusterFileOption,
    GpusOption,
    NodesOption,
    ScenarioArgument,
    ScenarioOptions,
    TraceOption,
    apply_policy,
    print_notes,
    read_policy,
    read_scenario,
    refuse_trace,
)
from tidegate.cli.shared_options import JsonOption, Kernels, KernelsOption, PlotOption, SeedOption
from tidegate.cli.source_options import reads_sources
from tidegate.model.policy import OrderKind, PlacementKind
from tidegate.sources.options import SourceOptions

if TYPE_CHECKING:
    from tidegate.config.convert import Setup
    from tidegate.measure.collector import RunMeasures
    from tidegate.report.compare_queues import PolicyRuns
    from tidegate.sim.scenario import ScenarioChanges


@reads_sources
def compare_policies(
    sources: ScenarioArgument = None,
    *,
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            metavar="POLICY,...",
            help="Policies to compare: orders and placements, such as tide,bestfit,srtf or fifo+tide,srtf+firstfit; "
            "tidegate.yaml files and folders of manifests.",
        ),
    ] = "tide,bestfit,spread",
    nodes: NodesOption = "",
    gpus: GpusOption = "",
    cluster: ClusterFileOption = None,
    seed: SeedOption = None,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Run each policy with N seeds, for twins and placements that are random."
        ),
    ] = 1,
    kernels: KernelsOption = Kernels.AUTO,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    trace: TraceOption = "",
    options: SourceOptions,
) -> None:
    """Run several policies on the same jobs and show them side by side, as ratios to the first.

    --plot draws what each queue used against its quota.

    \b
    Examples:
      tidegate compare
      tidegate compare jobs.csv --nodes 26x8
      tidegate compare philly.csv --policies apart.yaml,borrow.yaml --plot queues.png
      tidegate compare tidegate.yaml --policies tide,bestfit,fgd
      tidegate compare tidegate.yaml --policies fifo+tide,srtf+firstfit --json
      tidegate compare tidegate.yaml --policies apart.yaml,borrow.yaml,manifests/
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        refuse_trace(trace)
        from tidegate.cli.simulate_runner import check_kernels
        from tidegate.measure.findings import find
        from tidegate.report.compare import compare, render_comparison
        from tidegate.report.output_files import check_writable, open_console
        from tidegate.report.plot.queues import plot_queues
        from tidegate.report.plot.style import check_picture

        given = ScenarioOptions(sources or [], nodes, gpus, cluster, None, options)
        contenders = _contenders(given, policies, seed)  # all before the first run
        check_kernels(kernels)
        if plot is not None:
            check_picture(plot)
            check_writable("--plot", plot)
            _check_quota(plot, contenders)
        runs = [(name, [_run(setup, more, kernels) for more in range(seeds)]) for name, setup in contenders]
        firsts = [(name, each[0]) for name, each in runs]
        if plot is not None:
            plot_queues(plot, firsts, f"{given.title()}: what queues had against their quota")
        found = [tuple(finding.text for finding in find(run.summary, run.lives, run.quota)) for _, run in firsts]
        compared = compare([_policy_runs(name, each) for name, each in runs], found)
    if as_json:
        import json

        typer.echo(json.dumps(compared.as_json(), allow_nan=False))
    else:
        render_comparison(compared, open_console())


def _run(setup: Setup, more: int, kernels: Kernels) -> RunMeasures:
    """Run a policy with the seeds of the twin and of its placement so much higher."""
    import msgspec

    from tidegate.cli.simulate_runner import simulate_setup

    placement = setup.policy.placement
    placement = msgspec.structs.replace(placement, seed=placement.seed + more)
    policy = msgspec.structs.replace(setup.policy, placement=placement)
    twin = msgspec.structs.replace(setup.twin, seed=setup.twin.seed + more)
    return simulate_setup(setup._replace(policy=policy, twin=twin), None, kernels)


def _policy_runs(name: str, runs: list[RunMeasures]) -> PolicyRuns:
    from tidegate.report.compare_queues import PolicyRuns

    return PolicyRuns(name, tuple(run.lives for run in runs), tuple(run.summary for run in runs))


def _contenders(given: ScenarioOptions, policies: str, seed: int | None) -> list[tuple[str, Setup]]:
    """The setups to compare, by name; a file is listed under the name of its policy."""
    from tidegate.model.policy import Policy
    from tidegate.sim.scenario import ScenarioChanges

    named = [name.strip() for name in policies.split(",")]
    files = {name: read_policy(Path(name)) for name in named if _is_path(name)}
    changes = {name: _named_policy(name, seed) for name in named if name not in files}
    scenario = read_scenario(given, seed, list(files.values()))
    found: list[tuple[str, Setup]] = []
    for name in named:
        setup, notes = apply_policy(
            scenario, files.get(name), changes.get(name, ScenarioChanges(seed=seed)), given.title()
        )
        print_notes(notes)
        called = setup.policy.name
        of_file = Path(name).stem if called == Policy().name else called
        found.append((of_file if name in files else name, setup))
    names = [name for name, _ in found]
    return [(name if names.count(name) == 1 else f"{name} {at}", setup) for at, (name, setup) in enumerate(found, 1)]


def _check_quota(plot: Path, contenders: list[tuple[str, Setup]]) -> None:
    if not any(setup.policy.shares.queues for _, setup in contenders):
        raise CommandError(
            f"--plot {plot}: draws queues against their quota, and no policy has queues; name one that does"
        )


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yaml", ".yml", ".json")) or (bool(name) and Path(name).is_dir())


def _named_policy(name: str, seed: int | None) -> ScenarioChanges:
    """What a name such as `srtf`, `tide` or `srtf+firstfit` changes."""
    from tidegate.sim.scenario import ScenarioChanges

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
            raise CommandError(f"--policies: expected {expected}, found {part!r}")
    return ScenarioChanges(order, placement, None, seed)
