"""What the twin runs, put together: work and nodes of one source, the policy of another, and changes to it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from tidegate.config.convert import Setup
from tidegate.demand.tables import Tables
from tidegate.manifests.import_all import ImportedCluster
from tidegate.measure.format import count_text
from tidegate.model.errors import UserError
from tidegate.model.hardware import Node
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import BY_ESTIMATE, AdmissionKind, OrderKind, PlacementKind, Policy, WithoutEstimate
from tidegate.model.queues import Flavor, FlavorGroup, LocalQueue, Queue, QueueSetup, Quota
from tidegate.model.simulation import InitialState, PlannedWorkload, TwinOptions
from tidegate.model.units import DAY_MS, MINUTE_MS
from tidegate.sim.demo_trace import sample_nodes, sample_options, sample_work
from tidegate.sim.trace_jobs import enough_nodes, trace_jobs

#: Queues that one note lists.
_MOST_LISTED = 5

#: Times beyond this are dates, and not counted from the start of a run.
_DATES_MS = 3_650 * DAY_MS

#: The queue, and its flavor, that all GPUs belong to where only their number is known.
POOL = "gpus"


class Scenario(NamedTuple):
    """Work to run, with nodes and a policy as far as its source has them."""

    setup: Setup
    is_sample: bool = False
    has_assumed_nodes: bool = False  # no one named nodes: they follow from the work
    assumed: tuple[str, ...] = ()  # defaults of what the source does not say
    notes: tuple[str, ...] = ()


class ScenarioChanges(NamedTuple):
    """What replaces parts of a scenario and its policy."""

    order: OrderKind | None = None
    placement: PlacementKind | None = None
    cycle_ms: int | None = None
    seed: int | None = None


# -- work ------------------------------------------------------------------------------------------------------


def sample_scenario(seed: int | None) -> Scenario:
    """The bundled week of a mixed team cluster."""
    number = 1 if seed is None else seed
    policy = Policy(cycle_ms=10_000)
    return Scenario(Setup(sample_nodes(), policy, sample_work(number), sample_options(number)), is_sample=True)


def trace_scenario(tables: Tables, nodes: list[Node], seed: int | None) -> Scenario:
    """The jobs of gathered tables, for these nodes; without any, for as many as the jobs need."""
    jobs = trace_jobs(tables, nodes, seed or 0)
    if not jobs.work:
        raise UserError(_no_jobs(tables, jobs.notes))
    setup = Setup(
        nodes or enough_nodes(jobs.work),
        Policy(cycle_ms=MINUTE_MS),
        jobs.work,
        TwinOptions(observe_every_ms=0),  # a trace does not say whether GPUs were busy
    )
    return Scenario(setup, has_assumed_nodes=not nodes, assumed=jobs.assumed, notes=jobs.notes)


def _no_jobs(tables: Tables, notes: tuple[str, ...]) -> str:
    has = [name for name in ("requests", "use", "capacity", "starts") if getattr(tables, name) is not None]
    names = ", ".join(dict.fromkeys(origin.name for origin in tables.origins))
    if tables.jobs is None:
        return f"{names}: no jobs to run, only {', '.join(has)}; `tidegate preflight` measures them"
    return f"{names}: no jobs to run: expected a submission, GPUs and a runtime ({'; '.join(notes)})"


# -- capacity --------------------------------------------------------------------------------------------------


def with_nodes(scenario: Scenario, nodes: list[Node]) -> Scenario:
    """The scenario on these nodes."""
    return scenario._replace(setup=scenario.setup._replace(nodes=nodes), has_assumed_nodes=False)


def with_gpu_pool(scenario: Scenario, milli: int) -> Scenario:
    """The scenario with so many GPUs in one queue that all work may use, and no nodes."""
    setup = scenario.setup
    teams = sorted({planned.workload.work.queue for planned in setup.work} - {POOL})
    queue = Queue(
        name=POOL,
        groups=(FlavorGroup(resources=("gpu",), flavors=(POOL,)),),
        quotas=(Quota(flavor=POOL, resource="gpu", nominal=milli),),
    )
    shares = QueueSetup(
        flavors=(Flavor(name=POOL),),
        queues=(queue,),
        entrances=tuple(LocalQueue(id=team, queue=POOL) for team in teams),
        ignore_undeclared=True,
    )
    policy = msgspec.structs.replace(setup.policy, shares=shares)
    return scenario._replace(setup=setup._replace(nodes=[], policy=policy), has_assumed_nodes=False)


def with_cluster(scenario: Scenario, cluster: ImportedCluster | Setup) -> Scenario:
    """The scenario on the nodes and queues of a cluster; what that cluster runs is not used."""
    if isinstance(cluster, Setup):
        setup = scenario.setup._replace(nodes=cluster.nodes, policy=cluster.policy, twin=cluster.twin)
    else:
        policy = msgspec.structs.replace(scenario.setup.policy, shares=cluster.shares)
        setup = scenario.setup._replace(nodes=list(cluster.nodes), policy=policy)
    return scenario._replace(setup=setup, has_assumed_nodes=False)


# -- policy ----------------------------------------------------------------------------------------------------


def with_policy(scenario: Scenario, given: ImportedCluster | Setup | None) -> Scenario:
    """The scenario under another policy, on the policy's nodes if it has any."""
    if given is None:
        return scenario
    setup = scenario.setup
    shares = given.shares if isinstance(given, ImportedCluster) else given.policy.shares
    if scenario.has_assumed_nodes and shares.queues:
        setup = setup._replace(nodes=[])  # quota is all there is
    if isinstance(given, Setup):
        setup = setup._replace(policy=given.policy, nodes=given.nodes or setup.nodes)
        return scenario._replace(setup=setup, has_assumed_nodes=scenario.has_assumed_nodes and not given.nodes)
    if scenario.is_sample and given.work:
        setup = setup._replace(work=[])
    return scenario._replace(setup=with_manifests(setup, given))


def finish_setup(scenario: Scenario, changes: ScenarioChanges) -> Setup:
    """The setup to run, with the changes."""
    setup = scenario.setup
    policy = change_policy(setup.policy, changes)
    if not setup.nodes and policy.shares.queues:  # without nodes, quota is all there is
        policy = msgspec.structs.replace(policy, admission=AdmissionKind.KUEUE)
    twin = setup.twin if changes.seed is None else msgspec.structs.replace(setup.twin, seed=changes.seed)
    return setup._replace(policy=policy, twin=twin)


def change_policy(policy: Policy, changes: ScenarioChanges) -> Policy:
    """The policy with another order, placement or cycle."""
    replace = msgspec.structs.replace
    if changes.order not in (None, OrderKind.FIFO) and policy.shares.queues:
        hint = "leave it out, or name a policy without queues"
        raise UserError(f"order {changes.order}: has no effect on queues, which go by priority, then time; {hint}")
    if changes.order is not None:
        policy = replace(policy, order=replace(policy.order, kind=changes.order), name=changes.order.value)
    if changes.placement is not None:
        placement = replace(policy.placement, kind=changes.placement)
        policy = replace(policy, placement=placement, name=f"{policy.order.kind} {changes.placement}")
    if changes.cycle_ms is not None:
        policy = replace(policy, cycle_ms=changes.cycle_ms)
    return policy


# -- manifests -------------------------------------------------------------------------------------------------


def with_manifests(setup: Setup, loaded: ImportedCluster) -> Setup:
    """The setup with a folder's queues, its nodes if it has any, and its work next to the setup's own.

    Where work of the folder holds quota, the run begins at the folder's moment: the setup's own work comes after it.
    """
    policy = msgspec.structs.replace(setup.policy, shares=loaded.shares)
    work, snapshot = to_submit(loaded)
    return setup._replace(
        nodes=list(loaded.nodes) or setup.nodes,
        policy=policy,
        work=[*(_moved(planned, snapshot.at_ms) for planned in setup.work), *work],
        snapshot=snapshot,
    )


def to_submit(loaded: ImportedCluster) -> tuple[list[PlannedWorkload], InitialState]:
    """The unfinished work of a folder, in time since the first of it was created, and its observed status."""
    standings = dict(loaded.standings)
    ended = {name for name, standing in standings.items() if standing.finished or not standing.active}
    work = [planned for planned in loaded.work if planned.workload.id not in ended]
    since_ms = min((p.workload.submitted_ms for p in work if p.workload.submitted_ms > _DATES_MS), default=0)
    moved = [_moved(p, -since_ms) if p.workload.submitted_ms > _DATES_MS else p for p in work]
    kept = [(p.workload.id, _since(standings[p.workload.id], since_ms)) for p in moved if p.workload.id in standings]
    if not any(_says_something(standing) for _, standing in kept):
        return moved, InitialState()
    granted_ms = [standing.granted_ms for _, standing in kept if standing.queue]
    at_ms = max([p.workload.submitted_ms for p in moved] + granted_ms)
    return moved, InitialState(at_ms=at_ms, standings=tuple(kept))


def _says_something(standing: ObservedStatus) -> bool:
    """Whether a workload stands anywhere but at the end of its queue."""
    return bool(standing.queue or standing.requeue_at_ms or standing.replaces or standing.parked or standing.order_ms)


def _moved(planned: PlannedWorkload, by_ms: int) -> PlannedWorkload:
    workload = planned.workload
    moved = msgspec.structs.replace(workload, submitted_ms=workload.submitted_ms + by_ms)
    return msgspec.structs.replace(planned, workload=moved)


def _since(standing: ObservedStatus, since_ms: int) -> ObservedStatus:
    times = {name: getattr(standing, name) for name in ("granted_ms", "requeue_at_ms", "order_ms")}
    moved = {name: max(at_ms - since_ms, 0) for name, at_ms in times.items() if at_ms > _DATES_MS}
    return msgspec.structs.replace(standing, **moved)


# -- notes -----------------------------------------------------------------------------------------------------


def scenario_notes(scenario: Scenario, setup: Setup, name: str) -> list[str]:
    """What to know before a run: defaults, work without estimates that the order needs, and unknown queues."""
    return [
        *_defaults(scenario, setup, name),
        *scenario.notes,
        *_without_estimates(setup),
        *_unknown_queues(setup),
    ]


def _defaults(scenario: Scenario, setup: Setup, name: str) -> list[str]:
    """One line with everything that the source does not say."""
    assumed = list(scenario.assumed)
    if scenario.has_assumed_nodes and setup.nodes:
        gpus = setup.nodes[0].shape.gpu_count
        assumed.append(
            f"{count_text(len(setup.nodes), 'node')} with {gpus} GPUs (set with --nodes, --gpus or --cluster)"
        )
    return [f"{name}: {count_text(len(setup.work), 'job')}; assumed: {', '.join(assumed)}"] if assumed else []


def _without_estimates(setup: Setup) -> list[str]:
    order, shares = setup.policy.order, setup.policy.shares
    unknown = sum(planned.workload.estimate_ms == 0 for planned in setup.work)
    if not unknown or order.kind not in BY_ESTIMATE or shares.queues:
        return []
    then = "go last" if order.without_estimate is WithoutEstimate.LAST else "never start"
    return [
        f"{order.kind} goes by estimates: {unknown:,} of {count_text(len(setup.work), 'workload')} have none and {then}"
    ]


def _unknown_queues(setup: Setup) -> list[str]:
    """A note on work that names unknown queues; an error if all of it does."""
    shares = setup.policy.shares
    known = {queue.name for queue in shares.queues} | {entrance.id for entrance in shares.entrances}
    if not known:
        return []
    lost = Counter(planned.workload.work.queue for planned in setup.work if planned.workload.work.queue not in known)
    if not lost:
        return []
    names = _listed(set(lost))
    if lost.total() == len(setup.work):
        raise UserError(f"all work names queues that the policy does not have: {names}; it has {_listed(known)}")
    found = f"{count_text(lost.total(), 'workload')} of {len(setup.work):,} name queues that the policy does not have"
    return [f"{found}, and will wait for ever: {names}"]


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)[:_MOST_LISTED]) + (", …" if len(names) > _MOST_LISTED else "")
