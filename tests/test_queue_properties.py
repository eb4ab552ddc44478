"""What must hold for queues with quota whatever happens: random trees, random work, random facts, classic and fair.

`check` runs before and after every step (builders.Cluster): usage that is not what workloads hold, chains that are not
whole, or somebody who waits and holds fail here whatever caused them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Cluster
from queue_strategies import EITHER, asks, policies
from strategies import fleets, replace
from test_properties import submit_equals
from tidegate.engine.step import step
from tidegate.jit.registry import kernels_as
from tidegate.journal.encoding import pack_events, pack_result, unpack_events
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import PreemptWhom
from tidegate.model.work import Work
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.quota_nodes import NO_LIMIT
from tidegate.state.tables.workloads import Phase

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


#: Quota alone, quota and places behind it as with Kueue, and both together as in our own mode.
QUOTA_ALONE = [(AdmissionKind.KUEUE, False)]
MODES = [(AdmissionKind.KUEUE, False), (AdmissionKind.KUEUE, True), (AdmissionKind.TIDEGATE, True)]


def queue_cluster(data, fair=EITHER, modes=MODES) -> Cluster:
    admission, nodes = data.draw(st.sampled_from(modes))
    cluster = Cluster(data.draw(fleets) if nodes else [])
    cluster.set_policy(replace(data.draw(policies(fair)), admission=admission))
    return cluster


def play(
    data, cluster: Cluster, rounds: int, *, changes: bool = True, protects: bool = True
) -> list[tuple[object, int, object]]:
    """Random facts for some rounds; what was told and decided."""
    told, admission = [], cluster.policy.admission
    for _ in range(rounds):
        for _ in range(data.draw(st.integers(0, 4))):
            submit_equals(data, cluster, data.draw(asks(0, cluster.now_ms, protects=protects)))
        for name in sorted(cluster.numbers):
            tell_something(data, cluster, name, protects=protects)
        if changes and data.draw(st.integers(0, 5)) == 0:
            cluster.set_policy(changed_policy(data, admission))
        events = cluster._facts.batch()
        cluster.step(data.draw(st.integers(0, 5_000)))
        told.append((events, cluster.now_ms, cluster.result))
    return told


def changed_policy(data, admission: AdmissionKind) -> Policy:
    """Another policy: queues are gone, there again or elsewhere in the tree, and sometimes admission is another."""
    made, kept = data.draw(policies()), data.draw(st.sampled_from([4, 4, 3, 2, 0]))
    queues = tuple(data.draw(st.permutations(made.shares.queues)))[:kept]
    flips = data.draw(st.integers(0, 3)) == 0
    admission = data.draw(st.sampled_from(list(AdmissionKind))) if flips else admission
    return replace(made, admission=admission, shares=replace(made.shares, queues=queues))


def tell_something(data, cluster: Cluster, name: str, *, protects: bool) -> None:
    row = cluster.state.workload_numbers.row(cluster.numbers[name])
    if row < 0 or data.draw(st.integers(0, 2)):
        return
    phase = Phase(int(cluster.state.workloads.phase[row]))
    if phase is Phase.TERMINATING:
        cluster.tell(FactKind.POD_GONE, name)
    elif phase in (Phase.ASSUMED, Phase.RUNNING):
        kinds = [FactKind.POD_STARTED, FactKind.WORKLOAD_FINISHED]
        kinds += [FactKind.POD_FAILED] if cluster.state.workloads.first_pod[row] >= 0 else []
        cluster.tell(data.draw(st.sampled_from(kinds)), name)
    elif data.draw(st.integers(0, 5)) == 0:
        cluster.tell(FactKind.WORKLOAD_CANCELLED, name)
    elif data.draw(st.integers(0, 5)) == 0:
        cluster.change(replace(data.draw(asks(0, 0, protects=protects)), id=name))


@relaxed
@given(st.data())
def test_the_state_stays_whole_and_a_replay_gives_the_same_bytes(data):
    cluster = queue_cluster(data)
    told = play(data, cluster, 6)
    again = ClusterState()
    for events, now_ms, result in told:
        replayed = step(again, unpack_events(pack_events(events)), now_ms)
        assert pack_result(replayed) == pack_result(result)
    assert again.dump() == cluster.state.dump()


@relaxed
@given(st.data())
def test_a_checkpoint_goes_on_as_the_state_would_have(data):
    cluster = queue_cluster(data)
    play(data, cluster, 3)
    twin = ClusterState.load(cluster.state.dump())
    assert twin.dump() == cluster.state.dump()
    fork = cluster.state.fork()
    for events, now_ms, result in play(data, cluster, 2):
        assert pack_result(step(twin, events, now_ms)) == pack_result(result)
        assert pack_result(step(fork, events, now_ms)) == pack_result(result)
    assert twin.digest() == cluster.state.digest() == fork.digest()


@relaxed
@given(st.data())
def test_nothing_new_means_no_decision(data):
    cluster = queue_cluster(data)
    play(data, cluster, 3)
    assert cluster.step(0) == []


@pytest.mark.compiles
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_compiled_and_plain_kernels_give_the_same_journal(data):
    cluster = queue_cluster(data)
    told = play(data, cluster, 5)
    twin = ClusterState()
    with kernels_as(compiled=True):
        for events, now_ms, result in told:
            assert pack_result(step(twin, events, now_ms)) == pack_result(result)
    assert twin.dump() == cluster.state.dump()


@relaxed
@given(st.data())
def test_quota_is_never_exceeded_and_limits_are_kept(data):
    """Without a change of quota, nobody uses more than the tree has, or borrows more than it may."""
    cluster = queue_cluster(data)
    play(data, cluster, 6, changes=False)
    branches = cluster.state.quota.quota_nodes
    for row in range(branches.top):
        usage, subtree = branches.usage[row], branches.subtree[row]
        if branches.parent[row] == NONE:
            assert (usage <= subtree).all()
            continue
        limit = branches.borrow_limit[row]
        assert ((limit == NO_LIMIT) | (usage <= subtree + np.maximum(limit, 0))).all()


@relaxed
@given(st.data())
def test_a_lender_gets_back_what_it_lent(data):
    """Who waits in a queue that may reclaim from anyone is admitted once its victims are gone, within its own quota."""
    cluster = queue_cluster(data, st.just(False), QUOTA_ALONE)
    play(data, cluster, 4, changes=False, protects=False)
    for _ in range(40):
        for name in sorted(cluster.numbers):
            row = cluster.state.workload_numbers.row(cluster.numbers[name])
            if row >= 0 and cluster.state.workloads.phase[row] == Phase.TERMINATING:
                cluster.tell(FactKind.POD_GONE, name)
        if not any(said.kind in (DecisionKind.ADMIT, DecisionKind.PREEMPT) for said in cluster.step(1)):
            break
    state = cluster.state
    for queue in state.policy.shares.queues:
        if queue.preemption.reclaim_in_cohort is PreemptWhom.ANY and len(queue.groups[0].flavors) == 1:
            assert not waits_within_quota(state, queue.name), queue.name


def waits_within_quota(state: ClusterState, name: str) -> bool:
    """Whether the first in a queue waits though its queue, even with it, would stay below what it owns."""
    tables = state.quota
    branch = tables.quota_node_rows[f"queue/{name}"]
    rows = [row for row in state.live_workloads().tolist() if state.workloads.phase[row] == Phase.PENDING]
    mine = [
        row
        for row in rows
        if tables.queue_requests.queue[state.workloads.work_class[row]] == branch
        and not tables.queue_requests.refused[state.workloads.work_class[row]]
    ]
    if not mine:
        return False
    first = min(mine, key=lambda row: order_of(state, row))
    work = state.works[int(state.workloads.work_class[first])]
    needs = dict.fromkeys(("cpu", "gpu"), 0)
    for resource, amount in work.pod_sets[0].charge or ():
        needs[resource] = amount * work.pod_sets[0].count
    option = tables.resource_groups.first_option[tables.quota_nodes.first_group[branch]]
    return all(
        tables.quota_nodes.usage[branch, lot] + needs[tables.resources[tables.flavor_resources.resource[lot]]]
        <= tables.quota_nodes.nominal[branch, lot]
        for lot in range(tables.flavor_resources.top)
        if tables.flavor_resources.flavor[lot] == tables.flavor_options.flavor[option]
    )


def order_of(state: ClusterState, row: int) -> tuple[int, int, int]:
    priority = int(state.work_classes.priority[state.workloads.work_class[row]])
    return (-priority, int(state.workloads.submitted_ms[row]), int(state.workloads.tie[row]))


@relaxed
@given(st.data())
def test_other_names_in_the_same_order_change_nothing(data):
    cluster = queue_cluster(data)
    told = play(data, cluster, 4)
    other = ClusterState()
    for events, now_ms, result in told:
        assert pack_result(step(other, renamed(events), now_ms)) == pack_result(result)


def renamed(events: FactBatch) -> FactBatch:
    """The same facts, with longer names of queues, cohorts and workloads that sort as the others do."""
    ids = [f"work-{name}-x" for name in events.submissions.ids]
    payloads = tuple(map(with_other_names, events.payloads))
    works = tuple(map(with_other_names, events.works))
    return events._replace(payloads=payloads, works=works, submissions=events.submissions._replace(ids=ids))


def with_other_names(spec):
    """A policy or a work with other names."""
    if isinstance(spec, Work):
        return replace(spec, queue=f"the-{spec.queue}-x")
    if not isinstance(spec, Policy):
        return spec
    shares = spec.shares
    queues = tuple(replace(q, name=f"the-{q.name}-x", cohort=q.cohort and f"a-{q.cohort}-x") for q in shares.queues)
    cohorts = tuple(replace(c, name=f"a-{c.name}-x", parent=c.parent and f"a-{c.parent}-x") for c in shares.cohorts)
    return replace(spec, shares=replace(shares, queues=queues, cohorts=cohorts))


@relaxed
@given(st.data())
def test_a_dry_run_decides_what_the_step_does_and_leaves_no_trace(data):
    cluster = queue_cluster(data)
    play(data, cluster, 3)
    events = cluster.submit(data.draw(asks(990, cluster.now_ms)))._facts.batch()
    before = cluster.state.dump()
    proposed = step(cluster.state.fork(), events, cluster.now_ms + 1)
    assert cluster.state.dump() == before
    assert pack_result(step(cluster.state, events, cluster.now_ms + 1)) == pack_result(proposed)


@relaxed
@given(st.data())
def test_one_node_more_never_costs_the_head_its_place(data):
    nodes, policy = data.draw(fleets), data.draw(policies())
    work, extra = data.draw(asks(0, 0)), data.draw(fleets)[0]
    fits = []
    for fleet in (nodes, [*nodes, replace(extra, name="zz-extra")]):
        cluster = Cluster(fleet)
        cluster.set_policy(replace(policy, admission=AdmissionKind.TIDEGATE))
        fits.append(DecisionKind.PLACE in {said.kind for said in cluster.submit(work).step()})
    assert fits[1] or not fits[0]
