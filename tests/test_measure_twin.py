"""Measures of whole runs in the twin: what must hold whatever the work, the policy and the failures."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_twins import queue, share_policy
from recorded_runs import measure_journal
from tidegate.engine.run import run
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector, RunMeasures
from tidegate.measure.fragmentation import fragmented_milli, gpu_pods_seen, lost_by_node
from tidegate.measure.job_records import Fate, collect_job_records
from tidegate.measure.summary import jain_index, summarise
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.model.struct import resources
from tidegate.model.units import HOUR_MS
from tidegate.model.work import GpuRequest, PodSet, Share, Work, WorkKind, Workload
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState

SECOND = 1_000


def fleet(count: int, gpus: int = 4) -> list[Node]:
    capacity = resources({"cpu": 64_000, "memory": 65_536, "pods": 100})
    shape = NodeShape(name="s", gpu_model="m", gpu_count=gpus, capacity=capacity)
    return [Node(name=f"n{number}", shape=shape) for number in range(count)]


def policy(order: OrderKind = OrderKind.FIFO, cycle_ms: int = 1, *, waits: bool = True) -> Policy:
    placement = PlacementRule(kind=PlacementKind.BEST_FIT)
    return Policy(order=OrderRule(kind=order), placement=placement, cycle_ms=cycle_ms, waits=waits)


def gpu(milli: int) -> GpuRequest:
    if milli >= 1000:
        return GpuRequest(share=Share.WHOLE, count=milli // 1000)
    return GpuRequest(share=Share.FRACTION, count=1, milli=milli) if milli else GpuRequest()


def planned(name: str, submit_s: int, pods: int, milli: int, **fields: object) -> PlannedWorkload:
    """One workload; what is not named of its run is left out."""
    queue, kind = str(fields.pop("queue", "q")), WorkKind(str(fields.pop("kind", "batch")))
    every = int(str(fields.pop("checkpoint_every_ms", 0)))
    pod_set = PodSet(count=pods, gpu=gpu(milli), request=resources({"cpu": 500}))
    work = Work(queue=queue, kind=kind, pod_sets=(pod_set,), checkpoint_every_ms=every)
    profile = RunProfile(**fields)
    workload = Workload(id=name, work=work, submitted_ms=submit_s * SECOND, estimate_ms=profile.runtime_ms)
    return PlannedWorkload(workload=workload, run=profile)


def measure(
    nodes: list[Node], plan: list[PlannedWorkload], rule: Policy, options: TwinOptions, every: int
) -> RunMeasures:
    state = ClusterState()
    witness, world = RunCollector(state, every_ms=every), SimWorld(nodes, jobs_of(plan), rule, options)
    run(state, world, witness, lambda _: world.is_over() or world.now_ms() > 2_000 * SECOND)
    return witness.measured()


@pytest.mark.parametrize("jobs", [1, 400])
@pytest.mark.parametrize("on_nodes", [True, False])
def test_a_century_of_a_large_fleet_is_counted(jobs, on_nodes) -> None:
    """3,200 GPUs for 36,500 days: GPU milli times milliseconds are more than 63 bits hold."""
    century_ms = 36_500 * 24 * HOUR_MS
    plan = [planned(f"j{n}", 0, 400 // jobs, 8_000, runtime_ms=century_ms) for n in range(jobs)]
    state, rule = ClusterState(), policy() if on_nodes else share_policy(queue("q", 3_200), admission="kueue")
    witness = RunCollector(state, every_ms=century_ms // 10)
    world = SimWorld(fleet(400, 8) if on_nodes else [], jobs_of(plan), rule, TwinOptions(observe_every_ms=0))
    run(state, world, witness, lambda _: world.is_over())
    summary = witness.measured().summary
    assert summary.allocation_share == pytest.approx(1)
    assert summary.total.served_share == pytest.approx(1)
    assert summary.total.allocated_gpu_h == pytest.approx(3_200 * 36_500 * 24)


@st.composite
def plans(draw: st.DrawFn) -> list[PlannedWorkload]:
    def one(at: int) -> PlannedWorkload:
        return planned(
            f"w{at}",
            draw(st.integers(0, 60)),
            draw(st.integers(1, 3)),
            draw(st.sampled_from([0, 300, 500, 1000, 2000, 4000])),
            queue=draw(st.sampled_from("abc")),
            kind=draw(st.sampled_from(list(WorkKind))).value,
            checkpoint_every_ms=draw(st.sampled_from([0, 5 * SECOND])),
            runtime_ms=draw(st.integers(1, 60)) * SECOND,
            load_ms=draw(st.integers(0, 5)) * SECOND,
            idle_tail_ms=draw(st.integers(0, 20)) * SECOND,
            busy_milli=draw(st.integers(0, 1000)),
            fails_every_ms=draw(st.sampled_from([0, 0, 40 * SECOND])),
        )

    return [one(at) for at in range(draw(st.integers(3, 10)))]


options_drawn = st.builds(
    TwinOptions,
    seed=st.integers(0, 5),
    start_ms=st.sampled_from([0, 700]),
    grace_ms=st.sampled_from([0, 1500]),
    observe_every_ms=st.sampled_from([0, 7 * SECOND]),
    node_fails_every_ms=st.sampled_from([0, 0, 100 * SECOND]),
    node_repair_ms=st.just(20 * SECOND),
)
orders = st.sampled_from([OrderKind.FIFO, OrderKind.FIFO, OrderKind.SRTF, OrderKind.LAS])


@settings(max_examples=40, deadline=None)
@given(plans(), options_drawn, orders, st.integers(1, 3), st.booleans())
def test_what_holds_of_every_run(plan, options, order, nodes, waits) -> None:
    measured = measure(fleet(nodes), plan, policy(order, waits=waits), options, 10 * SECOND)
    lives, samples, summary = measured.lives, measured.samples, measured.summary

    # Nobody holds more than there is, is busy for longer than it holds, or is observed when it holds nothing.
    assert lives.held_milli_ms.sum() <= measured.capacity.milli_ms
    assert (lives.busy_gpu_ms <= lives.observed_gpu_ms + 1e-6).all()
    assert (lives.lost_milli_ms <= lives.held_milli_ms).all()
    assert (lives.waited_ms >= 0).all()
    done = lives.fate == Fate.FINISHED
    assert (lives.finished_ms[done] >= lives.first_placed_ms[done]).all()
    assert (lives.waited_ms[done] <= (lives.finished_ms - lives.submitted_ms)[done]).all()

    # Lives come from the journal and samples from the state: two ways to the same sums.
    covered = samples.covered_ms
    assert (samples.allocated_milli * covered).sum() == pytest.approx(lives.held_milli_ms.sum())
    assert (samples.up_milli * covered).sum() == pytest.approx(measured.capacity.milli_ms)
    waited = lives.gpu_milli * lives.waited_ms
    assert (samples.waiting_milli.sum(axis=1) * covered).sum() == pytest.approx(waited.sum())
    assert np.nansum(samples.busy_gpus * covered) == pytest.approx(lives.busy_gpu_ms.sum(), abs=1e-3)
    assert (samples.node_allocated_milli.sum(axis=1)) == pytest.approx(samples.allocated_milli, rel=1e-5)
    assert (samples.waiting_workloads >= 0).all()

    # Parts sum to the whole, and shares are shares.
    for groups in (summary.queues, summary.kinds):
        for field in (
            "workloads",
            "finished",
            "evictions",
            "allocated_gpu_h",
            "busy_gpu_h",
            "idle_gpu_h",
            "waited_gpu_h",
        ):
            assert sum(getattr(group, field) for group in groups) == pytest.approx(getattr(summary.total, field))
    shares = [summary.allocation_share, summary.useful_share, summary.fragmented_share, summary.fairness]
    for group in (summary.total, *summary.queues, *summary.kinds):
        shares += [group.busy_share, group.served_share]
    assert all(share is None or 0 <= share <= 1 + 1e-9 for share in shares)


@settings(max_examples=20, deadline=None)
@given(plans(), options_drawn)
def test_what_was_observed_covers_what_was_held(plan, options) -> None:
    """The twin observes its work from PLACE to the end, unless it is told not to observe at all."""
    quiet = [each for each in plan if not each.run.fails_every_ms]
    options = TwinOptions(seed=options.seed, observe_every_ms=options.observe_every_ms)
    lives = measure(fleet(2), quiet, policy(), options, 10 * SECOND).lives
    if options.observe_every_ms:
        done = lives.fate == Fate.FINISHED
        assert lives.observed_gpu_ms[done] * 1000 == pytest.approx(lives.held_milli_ms[done])
    else:
        assert lives.observed_gpu_ms.sum() == 0


def test_a_day_by_hand() -> None:
    """Two jobs of 2 GPUs on one node of 4: an hour of loading, two of work at 50 %, one idle; one comes later."""
    job = {"runtime_ms": 2 * HOUR_MS, "load_ms": HOUR_MS, "idle_tail_ms": HOUR_MS, "busy_milli": 500}
    plan = [planned("a", 0, 1, 2000, queue="x", **job), planned("b", 2 * 3600, 2, 1000, queue="y", **job)]
    options = TwinOptions(observe_every_ms=HOUR_MS)
    state = ClusterState()
    witness, world = (
        RunCollector(state, every_ms=HOUR_MS),
        SimWorld(fleet(1), jobs_of(plan), policy(cycle_ms=1000), options),
    )
    run(state, world, witness, lambda _: world.is_over())
    measured = witness.measured()
    summary, samples = measured.summary, measured.samples
    assert summary.end_ms == 6 * HOUR_MS
    assert summary.makespan_ms == 6 * HOUR_MS
    assert summary.capacity_gpu_h == 24
    assert summary.total.allocated_gpu_h == 16
    assert summary.allocation_share == pytest.approx(16 / 24)
    assert summary.total.busy_gpu_h == pytest.approx(4)  # 2 GPUs x 2 h x 50 %, twice
    assert summary.total.busy_share == pytest.approx(0.25)
    assert summary.useful_share == pytest.approx(4 / 24)
    assert summary.total.idle_gpu_h == pytest.approx(12)
    assert summary.total.completion is not None
    assert summary.total.completion.p50_ms == 4 * HOUR_MS
    assert summary.fairness == 1
    assert samples.nodes == ("n0",)
    assert samples.allocated_milli.tolist() == [2000, 2000, 4000, 4000, 2000, 2000]
    assert samples.busy_gpus.tolist() == pytest.approx([0, 1, 1, 1, 1, 0])
    assert samples.waiting_milli.sum() == 0
    # At 2 h two GPUs are free after b came: of use to every pod of one GPU; a's kind wants two, and two there are.
    assert samples.fragmented_milli.tolist()[0] == 0


def test_waits_and_fairness_by_hand() -> None:
    """One node of 4 GPUs for an hour each: x at once, y after one hour, z after two; all ask for 4."""
    plan = [planned(queue, 0, 1, 4000, queue=queue, runtime_ms=HOUR_MS) for queue in "xyz"]
    measured = measure_short(plan)
    summary = measured.summary
    assert summary.total.wait is not None
    assert summary.total.wait.mean_ms == pytest.approx(HOUR_MS)
    assert summary.total.wait.p50_ms == pytest.approx(HOUR_MS)
    assert summary.total.wait.p90_ms == 2 * HOUR_MS
    served = [group.served_share for group in summary.queues]
    assert served == pytest.approx([1, 1 / 2, 1 / 3])
    # (1 + 1/2 + 1/3)^2 / 3(1 + 1/4 + 1/9) = 121/147
    assert summary.fairness == pytest.approx(121 / 147)
    assert summary.total.busy_share is None, "nothing was observed: unknown, not idle"
    assert summary.useful_share is None
    assert np.isnan(measured.samples.busy_gpus[0])
    assert measured.samples.waiting_workloads.sum(axis=1).tolist() == [2, 1, 0]
    assert measured.samples.waiting_pods.sum(axis=1).tolist() == [2, 1, 0]


def measure_short(plan: list[PlannedWorkload]) -> RunMeasures:
    state = ClusterState()
    witness = RunCollector(state, every_ms=HOUR_MS)
    world = SimWorld(fleet(1), jobs_of(plan), policy(cycle_ms=1000), TwinOptions(observe_every_ms=0))
    run(state, world, witness, lambda _: world.is_over())
    return witness.measured()


def test_a_journal_gives_what_the_witness_saw() -> None:
    plan = [planned(f"w{at}", 7 * at, 1, 2000, runtime_ms=30 * SECOND) for at in range(9)]
    state, journal = ClusterState(), Journal()
    witness = RunCollector(state, journal, every_ms=10 * SECOND)
    world = SimWorld(fleet(1), jobs_of(plan), policy(), TwinOptions(observe_every_ms=5 * SECOND))
    run(state, world, witness, lambda _: world.is_over())
    seen, read = witness.measured(), measure_journal(journal.steps, every_ms=10 * SECOND)
    assert seen.summary == read.summary
    for one, other in zip(seen.samples, read.samples, strict=True):
        np.testing.assert_array_equal(one, other)
    plain = summarise(collect_job_records(journal.steps), seen.capacity.milli_ms, seen.samples.fragmented_share())
    looked = {"other_model_share": seen.samples.other_model_share()}
    looked["idle_wanted_gpu_h"] = seen.samples.idle_wanted_gpu_h()
    assert seen.summary == msgspec.structs.replace(plain, **looked)


def test_a_summary_of_nothing() -> None:
    summary = measure(fleet(1), [], policy(), TwinOptions(), SECOND).summary
    assert summary.total.workloads == 0
    assert summary.total.wait is None
    assert summary.makespan_ms is None
    assert summary.fairness is None
    assert summary.as_json()["total"]["busy_share"] is None


def test_jain() -> None:
    assert jain_index([1, 1, 1]) == 1
    assert jain_index([1, 0, 0, 0]) == 0.25
    assert jain_index([]) is None
    assert jain_index([0, 0]) is None


@settings(max_examples=25, deadline=None)
@given(plans(), st.integers(1, 3))
def test_fragmentation_by_node_is_that_of_the_kernel(plan, nodes) -> None:
    state, world = ClusterState(), SimWorld(fleet(nodes), jobs_of(plan), policy(), TwinOptions(observe_every_ms=0))
    run(state, world, Journal(), lambda _: world.now_ms() >= 20 * SECOND or world.is_over())
    before = state.digest()
    lost = lost_by_node(state, state.live_nodes(), gpu_pods_seen(state))
    assert state.digest() == before, "looking changes nothing"
    classes = state.pod_classes
    classes.typical[:] = np.where(classes.gpus > 0, classes.seen, 0)
    assert lost.scattered.sum() + lost.other_model.sum() == pytest.approx(fragmented_milli(state))


def test_what_is_free_is_not_scattered_for_pods_without_gpus_or_of_other_models() -> None:
    """Published FGD counts it as lost to them: three empty nodes of four were told as too scattered."""
    lasts = {"runtime_ms": 100 * SECOND}
    asks = [planned("train", 0, 1, 4000, **lasts), *(planned(f"cpu-{at}", 0, 1, 0, **lasts) for at in range(99))]
    empty = measure(fleet(4), asks, policy(), TwinOptions(), HOUR_MS).summary
    assert (empty.fragmented_share, empty.other_model_share) == (0, 0)
    others = [msgspec.structs.replace(node, name=f"o{node.name}", shape=_other_model(node.shape)) for node in fleet(3)]
    wanted = [_of_model(planned(f"t{at}", 0, 1, 4000, **lasts), "m") for at in range(3)]
    apart = measure([*fleet(1), *others], wanted, policy(), TwinOptions(), HOUR_MS).summary
    assert apart.fragmented_share == 0
    assert apart.other_model_share == pytest.approx(0.75)


def _other_model(shape: NodeShape) -> NodeShape:
    return msgspec.structs.replace(shape, name="other", gpu_model="other")


def _of_model(plan: PlannedWorkload, model: str) -> PlannedWorkload:
    (pod_set,) = plan.workload.work.pod_sets
    asks = msgspec.structs.replace(pod_set, gpu=msgspec.structs.replace(pod_set.gpu, models=(model,)))
    work = msgspec.structs.replace(plan.workload.work, pod_sets=(asks,))
    return msgspec.structs.replace(plan, workload=msgspec.structs.replace(plan.workload, work=work))
