"""Reservations of quota that is borrowed: for whom it is kept, against whom, and how that goes with preemption."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from builders import fleet, job
from preemption_watch import Watch
from queue_twins import HOUR, planned, play, queue, share_policy, simulate
from test_preemption_twin import CYCLE_MS, MINUTE, waited_ms
from test_queues import queue as owner
from test_queues import queue_cluster
from tidegate.model.facts import FactKind
from tidegate.model.policy import OrderRule
from tidegate.model.queues import PreemptionRule, PreemptWhom
from tidegate.model.work import WorkKind
from victim_cases import hosts, with_work

RECLAIMS = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)


def behind_borrowers() -> Watch:
    """A gang of `b`, which owns nothing, waits at one of two nodes; on both run younger jobs of `b`."""
    queues = (
        owner("a", 8, cohort="all", preemption=RECLAIMS),
        owner("b", 0, cohort="all"),
        owner("c", 8, cohort="all"),
    )
    cluster = queue_cluster(hosts("2x h100x4"), *queues)
    cluster.set_policy(replace(cluster.policy, order=OrderRule(reserve_after_ms=60_000)))
    watch = Watch(cluster)
    cluster.submit(*(job(f"old{i}", "1x1", queue="a", at=i) for i in range(8)))
    watch.step()
    watch.start_all()
    cluster.submit(job("gang", "1x4", queue="b", at=cluster.now_ms))
    watch.step()
    for i in range(8):
        cluster.tell(FactKind.WORKLOAD_FINISHED, f"old{i}")
        cluster.submit(job(f"low{i}", "1x1", queue="b", at=cluster.now_ms))
        watch.step()
        watch.start_all()
    watch.step(70_000)
    assert cluster.state.reserved.node[: cluster.state.reserved.top].tolist() == [1]
    return watch


def test_room_is_made_once_where_others_wait_for_the_same_node():
    """The gang is older than `own`, but it borrows: what is reserved for it does not count for whom others leave."""
    watch = behind_borrowers()
    watch.cluster.submit(job("own", "1x1", queue="a", at=watch.cluster.now_ms))
    watch.step()
    assert len(watch.ever) == 1
    watch.all_gone()
    watch.step()
    assert watch.placed == {"own"}
    assert len(watch.ever) == 1


def test_a_queue_that_uses_what_it_owns_is_kept_nothing_that_others_lend():
    """`wide` waits for older work of its own queue. The small jobs of `b` borrow what `c` does not use, and go on."""
    queues = [queue(name, gpus, cohort="all") for name, gpus in (("a", 4), ("b", 2), ("c", 4))]
    older, wide = planned("older", "1x4", hours=20), planned("wide", "1x4", at=1)
    small = [planned(f"small{i:03d}", "1x1", at=i / 5.5, queue="b") for i in range(90)]
    run = simulate([older, wide, *small], queues, fleet("2x h100x5"), cycle_ms=CYCLE_MS)
    assert {waited_ms(run, each.workload.id) // CYCLE_MS for each in small} <= {0, 1}
    assert run.finished["wide"] <= 20 + 1.01


def test_what_is_kept_by_borrowing_goes_to_nobody_who_waits_for_longer():
    """`due` owns nothing and is kept two GPUs of `c`. Those of `a` came before it, and wait for work of their queue."""
    queues = [queue(name, gpus, cohort="all") for name, gpus in (("a", 2), ("b", 0), ("c", 4), ("s", 0))]
    older = planned("older", "1x2", hours=40)
    wide = [planned(f"wide{i}", "1x2", at=2, hours=30) for i in range(4)]
    due = planned("due", "1x2", at=2.1, queue="b")
    small = [planned(f"small{i:03d}", "1x1", at=i / 8, queue="s") for i in range(160)]
    run = simulate([older, *wide, due, *small], queues, fleet("1x h100x8"), cycle_ms=CYCLE_MS)
    assert waited_ms(run, "due") < 3 * HOUR


@pytest.mark.parametrize(("kind", "limit_ms", "most_hours"), [("inference", HOUR, 3), ("training", MINUTE, 6)])
def test_older_work_of_its_queue_that_does_not_end_lets_nobody_starve(kind, limit_ms, most_hours):
    """`wide` can only run with quota of `b`. Inference is not expected to end; other work is, but not for ever."""
    queues = [queue(name, 4, cohort="all") for name in "ab"]
    older, wide = planned("older", "1x2", hours=200), planned("wide", "1x4", at=1)
    older = replace(older, workload=with_work(older.workload, kind=WorkKind(kind)))
    small = [planned(f"small{i:03d}", "1x1", at=i / 6) for i in range(240)]
    policy = replace(share_policy(*queues, cycle_ms=CYCLE_MS), order=OrderRule(reserve_after_ms=limit_ms))
    run = play([older, wide, *small], policy, fleet("1x h100x8"))
    assert waited_ms(run, "wide") < most_hours * HOUR
