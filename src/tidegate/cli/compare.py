"""`tidegate compare`: several policies on one trace in the twin, side by side.

Must not know: how runs are measured or compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tidegate.cli.errors import CannotRun, told_plainly
from tidegate.cli.manifest_folder import say_notes
from tidegate.cli.scenario_input import Changes, Source, finish_setup, notes_on, read_policy, read_source
from tidegate.cli.shared_options import FileArgument, FormatOption, JsonOption, KernelsOption, SeedOption, TraceOption
from tidegate.cli.simulate_runner import Kernels, check_kernels, simulate_setup
from tidegate.config.convert import Setup
from tidegate.measure.collector import RunMeasures
from tidegate.measure.findings import find
from tidegate.model.policy import OrderKind, PlacementKind, Policy
from tidegate.report.compare import compare, render_comparison
from tidegate.report.compare_queues import PolicyRuns
from tidegate.report.output_files import check_writable, open_console
from tidegate.report.plot.queues import plot_queues
from tidegate.report.plot.style import check_picture


def compare_policies(
    file: FileArgument = None,
    *,
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            help="Orders and placements, such as tide,bestfit,srtf or fifo+tide,srtf+firstfit; "
            "tidegate.yaml files and folders of manifests.",
        ),
    ] = "tide,bestfit,spread",
    trace: TraceOption = None,
    trace_format: FormatOption = None,
    seed: SeedOption = None,
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Runs of each policy with seeds one after the other, where the twin is random."),
    ] = 1,
    kernels: KernelsOption = Kernels.AUTO,
    plot: Annotated[
        Path | None, typer.Option(help="Draw what queues had against their quota into a .svg or .png.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run several policies on one trace and show them side by side, as ratios to the first.

    \b
    Examples:
      tidegate compare
      tidegate compare tidegate.yaml --policies tide,bestfit,fgd
      tidegate compare tidegate.yaml --policies fifo+tide,srtf+firstfit --json
      tidegate compare tidegate.yaml --policies apart.yaml,borrow.yaml,manifests/
      tidegate compare --trace philly.csv --format philly --policies apart.yaml,borrow.yaml --plot queues.png
    """  # noqa: D301 - \b keeps the lines apart
    with told_plainly():
        source = Source(file, trace, trace_format)
        contenders = _contenders(source, policies, seed)  # all before the first run
        check_kernels(kernels)
        if plot is not None:
            check_picture(plot)
            check_writable("--plot", plot)
            _check_quota(plot, contenders)
        runs = [(name, [_run(setup, more, kernels) for more in range(seeds)]) for name, setup in contenders]
        firsts = [(name, each[0]) for name, each in runs]
        if plot is not None:
            plot_queues(plot, firsts, f"{source.title()}: what queues had against their quota")
        found = [tuple(finding.text for finding in find(run.summary, run.lives, run.quota)) for _, run in firsts]
        compared = compare([_policy_runs(name, each) for name, each in runs], found)
    if as_json:
        typer.echo(json.dumps(compared.as_json(), allow_nan=False))
    else:
        render_comparison(compared, open_console())


def _run(setup: Setup, more: int, kernels: Kernels) -> RunMeasures:
    """Run a policy with the seeds of the twin and of its placement so much higher."""
    placement = setup.policy.placement
    placement = msgspec.structs.replace(placement, seed=placement.seed + more)
    policy = msgspec.structs.replace(setup.policy, placement=placement)
    twin = msgspec.structs.replace(setup.twin, seed=setup.twin.seed + more)
    return simulate_setup(setup._replace(policy=policy, twin=twin), None, kernels, open_console(stderr=True))


def _policy_runs(name: str, runs: list[RunMeasures]) -> PolicyRuns:
    return PolicyRuns(name, tuple(run.lives for run in runs), tuple(run.summary for run in runs))


def _contenders(source: Source, policies: str, seed: int | None) -> list[tuple[str, Setup]]:
    """The setups to compare, by name; those of files are called as their policies are."""
    read = read_source(source, seed)
    found: list[tuple[str, Setup]] = []
    for text in policies.split(","):
        name = text.strip()
        if not _is_path(name):
            setup = finish_setup(source, read, _named_policy(name, seed))
            say_notes(notes_on(None, None, setup))
            found.append((name, setup))
            continue
        path, given = Path(name), read_policy(Path(name))
        setup = finish_setup(source, read, Changes(seed=seed), given)
        say_notes(notes_on(path, given, setup))
        called = setup.policy.name
        found.append((path.stem if called == Policy().name else called, setup))
    names = [name for name, _ in found]
    return [(name if names.count(name) == 1 else f"{name} {at}", setup) for at, (name, setup) in enumerate(found, 1)]


def _check_quota(plot: Path, contenders: list[tuple[str, Setup]]) -> None:
    if not any(setup.policy.shares.queues for _, setup in contenders):
        raise CannotRun(f"--plot {plot}: draws queues against their quota, and no policy has queues; name one that has")


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yaml", ".yml", ".json")) or (bool(name) and Path(name).is_dir())


def _named_policy(name: str, seed: int | None) -> Changes:
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
            raise CannotRun(f"--policies: expected {expected}, found {part!r}")
    return Changes(order, placement, None, seed)
