"""What is to be run: the machines, work and policy of files, folders, traces and options, put together.

Must not know: how anything runs, or how results are shown.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from tidegate.cli.errors import CannotRun
from tidegate.cli.manifest_folder import counted, holds_manifests, unused, with_folder
from tidegate.config.convert import Setup
from tidegate.manifests.import_all import ImportedCluster
from tidegate.model.policy import BY_ESTIMATE, AdmissionKind, OrderKind, PlacementKind, Policy, WithoutEstimate
from tidegate.model.simulation import PlannedWorkload, TwinOptions
from tidegate.model.units import MINUTE_MS
from tidegate.sim.demo_trace import sample_nodes, sample_options, sample_work
from tidegate.sources.config_file import load_setup
from tidegate.sources.manifest_dir import ManifestDir, load_manifest_dir
from tidegate.sources.philly import read_philly

#: Queues that are listed in one note.
_MOST_LISTED = 5


class TraceFormat(StrEnum):
    """Traces that can be read, by name."""

    PHILLY = "philly"


_READERS = {TraceFormat.PHILLY: read_philly}


class Source(NamedTuple):
    """Where machines and work come from; the bundled sample if nothing is named."""

    file: Path | None = None
    trace: Path | None = None
    format: TraceFormat | None = None

    @property
    def is_sample(self) -> bool:
        """Whether it is the bundled week."""
        return self.file is None and self.trace is None

    def arguments(self) -> list[str]:
        """What names it on the command line."""
        traced = ["--trace", quote(str(self.trace)), "--format", str(self.format)] if self.trace else []
        return [*([quote(str(self.file))] if self.file else []), *traced]

    def title(self) -> str:
        """What to call it in a picture."""
        named = self.trace or self.file
        return named.name if named else "sample week"


class Changes(NamedTuple):
    """What the command line changes of a setup."""

    order: OrderKind | None = None
    placement: PlacementKind | None = None
    cycle_ms: int | None = None
    seed: int | None = None


def read_setup(source: Source, changes: Changes, given: ManifestDir | Setup | None = None) -> Setup:
    """The setup of a source, with the policy of a file or folder if one is given, as the command line changes it."""
    return finish_setup(source, read_source(source, changes.seed), changes, given)


def finish_setup(source: Source, setup: Setup, changes: Changes, given: ManifestDir | Setup | None = None) -> Setup:
    """The setup of a source that was read before, with a policy, as the command line changes it."""
    if given is not None:
        setup = _with_policy(source, setup, given)
    policy = change_policy(setup.policy, changes)
    if not setup.nodes and policy.shares.queues:  # without machines, quota is all there is
        policy = msgspec.structs.replace(policy, admission=AdmissionKind.KUEUE)
    twin = setup.twin if changes.seed is None else msgspec.structs.replace(setup.twin, seed=changes.seed)
    setup = setup._replace(policy=policy, twin=twin)
    _refuse_nothing(source, setup)
    return setup


# -- sources ---------------------------------------------------------------------------------------------------


def read_source(source: Source, seed: int | None) -> Setup:
    """The machines and work of a source, and its policy if it has one."""
    if source.trace is None and source.format is not None:
        raise CannotRun(f"--format {source.format} needs --trace FILE: the trace to read")
    if source.file is not None:
        setup = load_setup(source.file)
    elif source.trace is None:
        number = 1 if seed is None else seed
        setup = Setup(sample_nodes(), Policy(cycle_ms=10_000), sample_work(number), sample_options(number))
    else:  # a trace does not say whether GPUs were busy
        setup = Setup([], Policy(cycle_ms=MINUTE_MS), [], TwinOptions(observe_every_ms=0))
    return setup if source.trace is None else setup._replace(work=_read_trace(source.trace, source.format))


def _read_trace(path: Path, kind: TraceFormat | None) -> list[PlannedWorkload]:
    if kind is None:
        raise CannotRun(f"--trace {path} needs --format: one of {', '.join(TraceFormat)}")
    work = _READERS[kind](path)
    if not work:
        raise CannotRun(f"--trace {path}: has no jobs")
    return work


def _refuse_nothing(source: Source, setup: Setup) -> None:
    """Refuse a run in which nothing could happen."""
    has_room = bool(setup.nodes or setup.policy.shares.queues)
    if source.trace is not None and not has_room:
        what = "name a FILE with machines, or a --policy with queues: without machines, their quota is what there is"
        raise CannotRun(f"{source.trace}: nothing to run on; {what}")
    if not has_room or not setup.work:
        missing = "work" if has_room else "cluster"
        example = "docs/tidegate-yaml.md has an example"
        raise CannotRun(f"{source.file}: nothing to simulate: `{missing}` is empty; {example}")


# -- policies --------------------------------------------------------------------------------------------------


def read_policy(path: Path) -> ManifestDir | Setup:
    """The policy of a `tidegate.yaml`, or of a folder of manifests."""
    if not path.exists():
        raise CannotRun(f"{path}: there is no such file or folder; expected a tidegate.yaml or a folder of manifests")
    return load_manifest_dir(path) if holds_manifests(path) else load_setup(path)


def _with_policy(source: Source, setup: Setup, given: ManifestDir | Setup) -> Setup:
    if isinstance(given, Setup):  # its machines, if it has any; how the twin behaves and the work are the source's
        return setup._replace(policy=given.policy, nodes=given.nodes or setup.nodes)
    loaded = given.loaded or ImportedCluster()
    if source.is_sample and loaded.work:
        setup = setup._replace(work=[])
    return with_folder(setup, loaded)


def change_policy(policy: Policy, changes: Changes) -> Policy:
    """The policy, with what the command line says instead."""
    replace = msgspec.structs.replace
    if changes.order not in (None, OrderKind.FIFO) and policy.shares.queues:
        hint = "leave it out, or name a policy without queues"
        raise CannotRun(f"order {changes.order}: has no effect on queues, which go by priority, then time; {hint}")
    if changes.order is not None:
        policy = replace(policy, order=replace(policy.order, kind=changes.order), name=changes.order.value)
    if changes.placement is not None:
        placement = replace(policy.placement, kind=changes.placement)
        policy = replace(policy, placement=placement, name=f"{policy.order.kind} {changes.placement}")
    if changes.cycle_ms is not None:
        policy = replace(policy, cycle_ms=changes.cycle_ms)
    return policy


def notes_on(path: Path | None, given: ManifestDir | Setup | None, setup: Setup) -> list[str]:
    """What somebody should know before the run: what of a policy is not used, and work that finds no queue."""
    notes = unused(given) if isinstance(given, ManifestDir) else []
    if isinstance(given, Setup) and given.work:
        notes.append(f"{path}: its work is not used: only its policy, and its machines if it has any")
    return [*notes, *_without_estimates(setup), *_lost_work(setup)]


def _without_estimates(setup: Setup) -> list[str]:
    """A note on work without an estimate, where the order goes by it."""
    order, shares = setup.policy.order, setup.policy.shares
    unknown = sum(planned.workload.estimate_ms == 0 for planned in setup.work)
    if not unknown or order.kind not in BY_ESTIMATE or shares.queues:
        return []
    becomes = "go last" if order.without_estimate is WithoutEstimate.LAST else "never start"
    return [
        f"{order.kind} goes by estimates: {unknown:,} of {counted(len(setup.work), 'workload')} have none and {becomes}"
    ]


def _lost_work(setup: Setup) -> list[str]:
    """A note on work that names queues that are not there; a refusal if all of it does."""
    shares = setup.policy.shares
    known = {queue.name for queue in shares.queues} | {entrance.id for entrance in shares.entrances}
    if not known:
        return []
    lost = Counter(planned.workload.work.queue for planned in setup.work if planned.workload.work.queue not in known)
    if not lost:
        return []
    names = ", ".join(sorted(lost)[:_MOST_LISTED]) + (", …" if len(lost) > _MOST_LISTED else "")
    if lost.total() == len(setup.work):
        has = ", ".join(sorted(known)[:_MOST_LISTED]) + (", …" if len(known) > _MOST_LISTED else "")
        raise CannotRun(f"all work names queues that the policy does not have: {names}; it has {has}")
    found = f"{counted(lost.total(), 'workload')} of {len(setup.work):,} name queues that the policy does not have"
    return [f"{found}, and will wait for ever: {names}"]
