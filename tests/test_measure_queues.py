"""What is measured of queues, against sums made step by step from the engine's state and from the journal."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import fleet
from queue_twins import HOUR, Run, partial_policy, partial_work, planned, play, queue, share_policy, simulate
from tidegate.engine.run import run as run_world
from tidegate.measure.collector import RunCollector
from tidegate.measure.findings import find
from tidegate.model.decisions import DecisionKind
from tidegate.model.queues import Cohort, Flavor, PreemptionRule, PreemptWhom, Queue, QueueSetup, Quota
from tidegate.model.simulation import TwinOptions
from tidegate.report.text.queues import quota_as_json, write_queue_csv
from tidegate.report.text.run import as_json
from tidegate.sim.loops import UntilOver
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

GPU_H = 1000 * HOUR
SUMS = ("quota", "used", "borrowed", "lent", "due", "served", "short_lent", "short_free")


class Watcher:
    """A record that keeps what the state says after each step, and adds it up the slow way."""

    def __init__(self, state: ClusterState, record: RunCollector, shares: QueueSetup) -> None:
        self._state, self._record, self._shares = state, record, shares
        self.steps: list[tuple[int, dict[str, list[int]], dict[str, int]]] = []

    def append(self, now_ms, events, result) -> None:
        """Take the next step."""
        self._record.append(now_ms, events, result)
        self.steps.append((now_ms, self._used(), self._waiting()))

    def _used(self) -> dict[str, list[int]]:
        tables = self._state.quota
        lots = [tables.flavor_resource(flavor, "gpu") for flavor in _flavors(self._shares)]
        return {
            queue.name: tables.quota_nodes.usage[tables.quota_node_rows[f"queue/{queue.name}"], lots].tolist()
            for queue in self._shares.queues
        }

    def _waiting(self) -> dict[str, int]:
        table, found = self._state.workloads, dict.fromkeys((queue.name for queue in self._shares.queues), 0)
        for row in self._state.live_workloads().tolist():
            work = self._state.works[int(table.work_class[row])]
            if table.phase[row] == Phase.PENDING:
                found[work.queue] += sum(s.count * s.gpu.count * 1000 for s in work.pod_sets)
        return found

    def sums(self) -> dict[str, dict[str, float]]:
        """All sums by queue, in GPU milli x ms."""
        total = {name: dict.fromkeys(SUMS, 0.0) for name in self.steps[0][1]}
        for (now_ms, used, waiting), (next_ms, _, _) in zip(self.steps, self.steps[1:], strict=False):
            for name, values in _had(self._shares, used, waiting).items():
                for key, value in values.items():
                    total[name][key] += value * (next_ms - now_ms)
        return total


def _flavors(shares: QueueSetup) -> list[str]:
    return sorted({quota.flavor for queue in shares.queues for quota in queue.quotas})


def _root(name: str, shares: QueueSetup) -> str:
    for cohort in shares.cohorts:
        if cohort.name == name and cohort.parent:
            return _root(cohort.parent, shares)
    return name


def _had(shares: QueueSetup, used: dict[str, list[int]], waiting: dict[str, int]) -> dict[str, dict[str, float]]:
    """What each queue had at a moment, by the definitions, one queue and flavor after the other."""
    flavors = _flavors(shares)
    own = {q.name: {quota.flavor: quota for quota in q.quotas} for q in shares.queues}
    lent = dict.fromkeys(used, 0.0)
    for at, flavor in enumerate(flavors):
        for root in {_root(q.cohort, shares) or q.name for q in shares.queues}:
            members = [q.name for q in shares.queues if (_root(q.cohort, shares) or q.name) == root]
            free = {
                name: min(max(own[name][flavor].nominal - used[name][at], 0), own[name][flavor].lend_limit or 1 << 60)
                for name in members
                if flavor in own[name]
            }
            borrowed = sum(
                max(used[name][at] - (own[name][flavor].nominal if flavor in own[name] else 0), 0) for name in members
            )
            pool = sum(
                quota.nominal
                for cohort in shares.cohorts
                if _root(cohort.name, shares) == root
                for quota in cohort.quotas
                if quota.flavor == flavor
            )
            offered = sum(free.values()) + pool
            for name, amount in free.items():
                lent[name] += amount * min(borrowed, offered) / offered if offered else 0.0
    found = {}
    for name, by_flavor in used.items():
        quota, mine = sum(q.nominal for q in own[name].values()), sum(by_flavor)
        above = sum(
            max(by_flavor[at] - (own[name][f].nominal if f in own[name] else 0), 0) for at, f in enumerate(flavors)
        )
        due = min(mine + waiting[name], quota)
        served = min(mine, due)
        short_lent = min(due - served, lent[name])
        short_free = min(due - served - short_lent, max(quota - mine - lent[name], 0))
        values = (quota, mine, above, lent[name], due, served, short_lent, short_free)
        found[name] = dict(zip(SUMS, values, strict=True))
    return found


def watched(work, policy, options: TwinOptions, nodes=()) -> tuple[Watcher, RunCollector]:
    """A run, seen by both."""
    world, state = SimWorld(list(nodes), jobs_of(work), policy, options), ClusterState()
    witness = RunCollector(state, every_ms=HOUR // 2)
    watcher = Watcher(state, witness, policy.shares)
    run_world(state, world, watcher, UntilOver(world))
    return watcher, witness


RULES = [
    PreemptionRule(),
    PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY),
    PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.LOWER_PRIORITY),
]


@st.composite
def worlds(draw):
    """Queues in a tree of cohorts, with quota in one or two flavors, and work for them; every event counts."""
    flavors = ("x", "y")[: draw(st.integers(1, 2))]
    queues = []
    for name in "abc":
        cohort = draw(st.sampled_from(["", "left", "root"]))
        made = queue(
            name,
            draw(st.integers(0, 6)),
            flavors=flavors,
            cohort=cohort,
            strict_fifo=draw(st.booleans()),
            preemption=draw(st.sampled_from(RULES)),
        )
        lend = draw(st.sampled_from([None, 1000])) if cohort else None
        quotas = tuple(Quota(flavor=q.flavor, resource="gpu", nominal=q.nominal, lend_limit=lend) for q in made.quotas)
        queues.append(Queue(**{**{f: getattr(made, f) for f in made.__struct_fields__}, "quotas": quotas}))
    own = (Quota(flavor="x", resource="gpu", nominal=draw(st.integers(0, 3)) * 1000),)
    cohorts = (Cohort(name="root", quotas=own), Cohort(name="left", parent="root"))
    policy = share_policy(
        *queues, cohorts=cohorts, flavors=tuple(Flavor(name=name) for name in flavors), admission="kueue"
    )
    work = [
        planned(
            f"w{at:02d}",
            f"{draw(st.integers(1, 3))}x{draw(st.integers(1, 2))}",
            at=draw(st.integers(0, 12)) / 4,
            hours=draw(st.integers(1, 12)) / 4,
            queue=draw(st.sampled_from("abc")),
            priority=draw(st.sampled_from([0, 0, 5])),
            min_count=draw(st.sampled_from([0, 1])),
            checkpoint_every_ms=draw(st.sampled_from([0, HOUR // 3])),
        )
        for at in range(draw(st.integers(1, 12)))
    ]
    options = TwinOptions(
        seed=1,
        grace_ms=draw(st.sampled_from([0, HOUR // 5])),
        api_latency_ms=draw(st.sampled_from([0, HOUR // 60])),
        admission_fails_milli=draw(st.sampled_from([0, 0, 300])),
        observe_every_ms=0,
    )
    return work, policy, options


@given(worlds())
@example((partial_work(), partial_policy(), TwinOptions(seed=1, observe_every_ms=0)))
@settings(max_examples=60, deadline=None)
def test_all_sums_are_those_of_the_engines_own_state(world):
    watcher, witness = watched(*world)
    measured = witness.measured()
    use = measured.quota
    if use is None:  # nothing ever happened
        return
    slow = watcher.sums()
    for key in SUMS:
        fast = dict(zip(use.queues, getattr(use.sums, key).tolist(), strict=True))
        assert fast == pytest.approx({name: sums[key] for name, sums in slow.items()}), key


@given(worlds())
@example((partial_work(), partial_policy(), TwinOptions(seed=1, observe_every_ms=0)))  # a loop at one instant
@settings(max_examples=60, deadline=None)
def test_nobody_is_counted_twice(world):
    run = play(*world[:2], (), world[2])
    measured, summary = run.measured, run.measured.summary
    if measured.quota is None:
        return
    shares = summary.shares
    assert sum(share.used_gpu_h for share in shares) == pytest.approx(summary.total.allocated_gpu_h)
    assert sum(group.workloads for group in summary.queues) == summary.total.workloads
    preempted = _preempted(run)
    assert {share.name: share.preempted for share in shares} == preempted[0]
    assert {share.name: share.preempting for share in shares} == preempted[1]
    assert sum(share.preempted for share in shares) == summary.total.preemptions
    lost = sum(share.preempted_lost_gpu_h for share in shares)
    assert lost == pytest.approx(sum(share.preempting_lost_gpu_h for share in shares))
    assert lost <= summary.total.lost_gpu_h + 1e-9
    for share in shares:
        assert 0 <= share.borrowed_gpu_h <= share.used_gpu_h + 1e-9
        assert 0 <= share.lent_gpu_h <= share.quota_gpu_h + 1e-9
        assert share.due_share is None or 0 <= share.due_share <= 1 + 1e-12
    for fairness in (summary.due_fairness(), summary.use_fairness(), summary.fairness):
        assert fairness is None or 0 < fairness <= 1 + 1e-12
    use = measured.quota
    hours = np.diff(np.append(use.at_ms, summary.end_ms).clip(summary.start_ms))
    assert (use.used_milli * hours[:, None]).sum(axis=0) == pytest.approx(use.sums.used)
    assert (use.due_milli * hours[:, None]).sum(axis=0) == pytest.approx(use.sums.due)


def _preempted(run: Run) -> tuple[dict[str, int], dict[str, int]]:
    """Preemptions by the queue of the victim and of the cause, row by row from the journal."""
    queues: dict[int, str] = {}
    names = [q.name for q in run.state.policy.shares.queues]
    suffered, caused = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for step in run.journal.steps:
        told = step.events.submissions
        numbers = step.events.subject[step.events.kind == 1].tolist()
        queues |= dict(zip(numbers, (step.events.works[row].queue for row in told.work.tolist()), strict=True))
        batch = step.result.decisions
        for kind, victim, cause in zip(batch.kind, batch.workload, batch.cause, strict=True):
            if kind == DecisionKind.PREEMPT:
                suffered[queues[int(victim)]] += 1
                caused[queues[int(cause)]] += 1
    return suffered, caused


def test_waits_are_told_by_queue():
    work = [planned(f"w{n}", "1x8", hours=1) for n in range(21)] + [planned("z", "1x1", queue="b", at=2)]
    run = simulate(work, [queue("a", 8), queue("b", 8)])
    groups = {group.name: group for group in run.measured.summary.queues}
    wait = groups["a"].wait
    assert [wait.p50_ms, wait.p95_ms, wait.max_ms] == [10 * HOUR, 19 * HOUR, 20 * HOUR]
    assert groups["b"].wait.max_ms == 0


def test_work_that_came_by_an_entrance_counts_for_its_queue():
    from tidegate.model.queues import LocalQueue

    policy = share_policy(queue("a", 8), entrances=(LocalQueue(id="team", queue="a"),), admission="kueue")
    run = play([planned("j", "1x8", queue="team")], policy, (), TwinOptions())
    (share,) = run.measured.summary.shares
    assert (share.name, share.used_gpu_h) == ("a", 8.0)
    assert [group.name for group in run.measured.summary.queues] == ["a"]


# -- findings --------------------------------------------------------------------------------------------------

DAY = 24.0
PAIR = [queue("a", 8, cohort="all"), queue("b", 8, cohort="all")]


def said(run: Run) -> str:
    """All findings in one text."""
    measured = run.measured
    return "\n".join(finding.text for finding in find(measured.summary, measured.lives, measured.quota))


def test_a_team_above_its_share_for_a_week_is_named():
    week = [planned("j", "1x12", hours=8 * DAY)]
    text = "a used 1.5 times its quota of 8 GPUs for 8 days in a row: raise its quota, or limit what it may borrow."
    assert text in said(simulate(week, PAIR, observe_every_ms=0))
    assert "in a row" not in said(simulate([planned("j", "1x12", hours=6 * DAY)], PAIR, observe_every_ms=0))
    assert "in a row" not in said(simulate([planned("j", "1x8", hours=8 * DAY)], PAIR, observe_every_ms=0))


def test_everybody_at_the_top_priority_is_named():
    work = [planned(f"w{n:02d}", "1x1", priority=9 if n % 5 else 0) for n in range(20)]
    text = "80 % of the work has the highest priority, 9: where all is urgent, nothing is."
    assert text in said(simulate(work, [queue("a", 8)]))
    even = [planned(f"w{n:02d}", "1x1", priority=n % 3) for n in range(20)]
    assert "highest priority" not in said(simulate(even, [queue("a", 8)]))


def test_quota_that_nobody_uses_is_named():
    text = "b owns 8 GPUs, and hardly anybody used them; in a cohort others could borrow it."
    work = [planned("j", "1x8", hours=9)]
    assert text in said(simulate(work, [queue("a", 8), queue("b", 8)]))
    lent = said(simulate([planned("j", "1x16", hours=9)], PAIR))
    assert "hardly anybody" not in lent


def test_quota_and_limits_that_the_fleet_can_never_meet_are_named():
    work = [planned("j", "1x8")]
    text = "a owns 20 GPUs, and the machines have 16: such a quota can never be met."
    assert text in said(simulate(work, [queue("a", 20)], fleet("2x h100x8")))
    both = [queue("a", 12), queue("b", 12)]
    text = "Queues together own 24 GPUs, and the machines have 16: such a quota can never be met."
    assert text in said(simulate(work, both, fleet("2x h100x8")))
    assert "never be met" not in said(simulate(work, PAIR, fleet("2x h100x8")))


def test_a_borrowing_limit_beyond_the_fleet_is_named():
    wide = Queue(
        **{
            **{name: getattr(PAIR[0], name) for name in PAIR[0].__struct_fields__},
            "quotas": (Quota(flavor="any", resource="gpu", nominal=8000, borrow_limit=64_000),),
        }
    )
    text = "a may borrow 64 GPUs above its own 8, and the machines have 16: the limit never holds it back."
    assert text in said(simulate([planned("j", "1x8")], [wide, PAIR[1]], fleet("2x h100x8")))
    assert "may borrow" not in said(simulate([planned("j", "1x8")], PAIR, fleet("2x h100x8")))


def test_work_that_can_never_start_is_named():
    work = [planned("j", "1x8"), planned("huge", "4x8")]
    text = "1 workload can never start: huge asks for 32 GPUs, and its queue a can have at most 16."
    assert text in said(simulate(work, PAIR))


def test_lenders_that_wait_are_named():
    work = [planned("lent", "2x8", hours=5, queue="a"), planned("mine", "1x8", at=1, queue="b")]
    text = "b waited for 32 GPU-hours of its own quota while others had borrowed it: let lenders reclaim"
    assert text in said(simulate(work, PAIR))


def test_a_strict_queue_that_starves_behind_its_head_is_named():
    work = [planned("run", "1x4", hours=10), planned("head", "1x8", at=1), planned("small", "1x4", at=2, hours=5)]
    text = "a is strict: on average 2.2 GPUs of its own quota stood free while its work waited behind the head."
    assert text in said(simulate(work, [queue("a", 8, strict_fifo=True)]))


# -- for programs ----------------------------------------------------------------------------------------------


def test_json_and_csv_have_stable_keys():
    work = [planned("lent", "2x8", hours=5, queue="a"), planned("mine", "1x8", at=1, queue="b")]
    run = simulate(work, PAIR)
    measured = run.measured
    plain = as_json(measured.summary, measured.lives, measured.samples, measured.quota)
    json.dumps(plain, allow_nan=False)
    assert plain["quota"] == quota_as_json(measured.quota)
    assert list(plain["quota"]) == ["at_ms", "used_gpus", "quota_gpus", "due_gpus"]
    assert plain["quota"]["due_gpus"]["b"][:6] == [0.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    assert {"due_share", "due_fairness", "use_fairness", "shares", "queues"} <= plain["summary"].keys()
    assert list(plain["summary"]["shares"][0]) == [
        "name", "cohort", "strict", "quota_gpus", "used_gpus", "quota_gpu_h", "used_gpu_h", "use_of_quota",
        "used_part", "quota_part", "borrowed_gpu_h", "lent_gpu_h", "due_gpu_h", "due_share", "short_lent_gpu_h",
        "short_free_gpu_h", "preempted", "preempted_lost_gpu_h", "preempting", "preempting_lost_gpu_h",
    ]  # fmt: skip
    file = io.StringIO()
    write_queue_csv(measured.summary, file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [(row["queue"], row["borrowed_gpu_h"], row["lent_gpu_h"]) for row in rows] == [
        ("a", "40", "0"),
        ("b", "0", "40"),
    ]
    assert [row["wait_max_ms"] for row in rows] == ["0", str(4 * HOUR)]
