"""What would start a waiting job: the smallest change of each kind is true, said, written, and read back the same."""

from __future__ import annotations

import pytest

import explain
from builders import fleet, job, pods
from situations import draw
from test_queues import GPU, queue, queue_cluster
from tidegate.journal.queue_position import find_gpu_holders, find_queue_position
from tidegate.journal.quota_names import FlavorResourceName
from tidegate.model.hardware import Taint
from tidegate.model.queues import Flavor, PreemptionRule, PreemptWhom, Quota, StopPolicy
from tidegate.state.check import check
from tidegate.whatif.budget import FixKind
from tidegate.whatif.change_syntax import FORMS, read_change, write_change
from tidegate.whatif.change_text import changes_text, effect_text, position_text, search_text
from tidegate.whatif.changes import (
    AllowFlavor,
    AllowModel,
    ImpossibleChangeError,
    MoreBorrowing,
    MoreNodes,
    MoreQuota,
    MoveToQueue,
    OpenQueue,
    SetPriority,
    StopWorkloads,
)
from tidegate.whatif.effect import find_effect
from tidegate.whatif.fork_trials import Trials
from tidegate.whatif.search import find_fixes

ANY = FlavorResourceName("any", "gpu")


def found(cluster, id_: str) -> dict[FixKind, tuple]:
    """The changes that were found for a job, by kind."""
    number = cluster.numbers[id_]
    before = cluster.state.digest()
    findings = find_fixes(cluster.state, number)
    assert cluster.state.digest() == before  # trying leaves no trace
    return {attempt.kind: attempt.fix.changes for attempt in findings.attempts if attempt.fix}


# -- is it true? -----------------------------------------------------------------------------------------------


def test_the_smallest_change_starts_the_job_and_no_smaller_one_does():
    """A share of `bench/explain.py --jobs 1000`."""
    report = explain.run(jobs=24, workloads=24, of_one=2)
    assert report["wrong"] == []
    assert report["admits"] == report["smallest"] == report["jobs"] == 24
    assert report["smaller_tried"] > 200
    assert len(report["kinds"]) >= 6
    for trait in ("admission", "sharing", "preemption"):
        assert len(report["jobs_of"][trait]) == 2


def test_the_judge_notices_a_change_that_is_too_large_or_too_small(monkeypatch):
    def off_by(units):
        def find(state, number):
            findings = find_fixes(state, number)
            attempts = [a for a in findings.attempts if a.fix and isinstance(a.fix.changes[0], MoreQuota)]
            wrong = [
                a._replace(fix=a.fix._replace(changes=(c._replace(amount=c.amount + units),)))
                for a in attempts
                for c in a.fix.changes[:1]
            ]
            return findings._replace(attempts=tuple(wrong))

        return find

    cluster = queue_cluster([], queue("a", 8), admission="kueue")
    cluster.submit(job("big", "1x6", queue="a"), job("late", "1x4", queue="a", at=1)).step()
    drawn = draw(0, 8)._replace(state=cluster.state)
    assert explain.judge(drawn, 1).wrong == ()
    for units, complaint in ((500, "a smaller one does"), (-500, "does not start it")):
        monkeypatch.setattr(explain, "find_fixes", off_by(units))
        assert [complaint in wrong for wrong in explain.judge(drawn, 1).wrong] == [True]


def test_a_larger_change_can_do_less():
    """The fine print: what is added is taken by those who go first, so more is not always better."""
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("runs", "1x4", queue="a")).step()
    cluster.submit(job("first", "1x2", queue="a", priority=5), job("mine", "1x1", queue="a")).step()
    mine, trials = cluster.numbers["mine"], Trials(cluster.state, cluster.numbers["mine"])
    assert [trials.starts([MoreQuota("a", ANY, n * GPU)]) for n in (1, 2, 3)] == [True, False, True]
    assert found(cluster, "mine")[FixKind.QUOTA] == (MoreQuota("a", ANY, 1 * GPU),)
    assert find_effect(cluster.state, mine, [MoreQuota("a", ANY, 2 * GPU)]).started == (cluster.numbers["first"],)


def test_in_strict_order_who_goes_first_is_served_first():
    cluster = queue_cluster([], queue("a", 4, strict_fifo=True), admission="kueue")
    cluster.submit(job("runs", "1x4", queue="a")).step()
    cluster.submit(job("first", "1x2", queue="a", priority=5), job("mine", "1x1", queue="a")).step()
    assert found(cluster, "mine")[FixKind.QUOTA] == (MoreQuota("a", ANY, 3 * GPU),)


# -- kinds -----------------------------------------------------------------------------------------------------


def test_kinds_of_quota_are_found_with_what_they_take():
    limited = queue("a", 4, cohort="all")
    limited = type(limited)(
        **{
            **{name: getattr(limited, name) for name in limited.__struct_fields__},
            "quotas": (Quota(flavor="any", resource="gpu", nominal=4 * GPU, borrow_limit=1 * GPU),),
            "preemption": PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY),
        }
    )
    cluster = queue_cluster([], limited, queue("b", 8, cohort="all"), admission="kueue")
    cluster.submit(job("old", "1x3", queue="a"), job("mine", "1x4", queue="a", at=1)).step()
    numbers = cluster.numbers
    assert found(cluster, "mine") == {
        FixKind.BORROW: (MoreBorrowing("a", ANY, 2 * GPU),),
        FixKind.QUOTA: (MoreQuota("a", ANY, 2 * GPU),),
        FixKind.QUEUE: (MoveToQueue(numbers["mine"], "b"),),
        FixKind.PRIORITY: (SetPriority(numbers["mine"], 1),),
        FixKind.STOP: (StopWorkloads(numbers["old"]),),
    }
    findings = find_fixes(cluster.state, numbers["mine"])
    at_once = {a.kind: a.fix.at_once for a in findings.attempts if a.fix}
    assert at_once == {**dict.fromkeys(at_once, True), FixKind.PRIORITY: False}  # its victim has to leave first
    sent = find_effect(cluster.state, numbers["mine"], [SetPriority(numbers["mine"], 1)]).sent_away
    assert [(gone.number, gone.cause) for gone in sent] == [(numbers["old"], numbers["mine"])]


def test_a_stopped_queue_is_to_be_opened():
    cluster = queue_cluster([], queue("a", 4, stop=StopPolicy.HOLD), admission="kueue")
    cluster.submit(job("mine", "1x2", queue="a")).step()
    assert found(cluster, "mine") == {FixKind.OPEN: (OpenQueue("a"),)}


def test_flavors_and_models_that_a_job_keeps_itself_from():
    flavors = (Flavor(name="any"), Flavor(name="spot", node_taints=(Taint(key="spot"),)))
    cluster = queue_cluster([], queue("a", 2, flavors=("any", "spot")), admission="kueue", flavors=flavors)
    cluster.submit(job("old", "1x2", queue="a"), job("mine", "1x2", queue="a", at=1)).step()
    assert found(cluster, "mine")[FixKind.FLAVOR] == (AllowFlavor(cluster.numbers["mine"], "spot"),)
    cluster = queue_cluster(fleet("1x h100x8", "1x a100x8"), queue("a", 16))
    cluster.submit(job("old", "1x8", queue="a", models=("h100",))).step()
    cluster.submit(job("mine", pods("1x4", models=("h100",)), queue="a")).step()
    assert found(cluster, "mine")[FixKind.MODEL] == (AllowModel(cluster.numbers["mine"], "a100"),)


def test_nodes_of_the_shape_that_takes_fewest():
    cluster = queue_cluster(fleet("1x h100x8", "1x a100x4"), queue("a", 64))
    cluster.submit(job("old", "1x8", "1x4", queue="a"), job("mine", "2x8", queue="a", at=1)).step()
    assert found(cluster, "mine")[FixKind.NODES] == (MoreNodes(cluster.nodes["h100-0-00"], 2),)


def test_where_one_change_will_not_do_several_together_are_found():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8))
    cluster.submit(job("old", "1x8", queue="a"), job("mine", "1x6", queue="a", at=1)).step()
    changes = found(cluster, "mine")
    assert changes[FixKind.STOP] == (StopWorkloads(cluster.numbers["old"]),)
    assert set(changes[FixKind.TOGETHER]) == {MoreQuota("a", ANY, 6 * GPU), MoreNodes(cluster.nodes["h100-0-00"], 1)}


def test_without_queues_nodes_stops_and_priorities_are_tried():
    cluster = queue_cluster(fleet("1x h100x8"))
    cluster.submit(job("old", "1x8"), job("mine", "1x8", at=1)).step()
    changes = found(cluster, "mine")
    assert changes == {FixKind.NODES: (MoreNodes(0, 1),), FixKind.STOP: (StopWorkloads(cluster.numbers["old"]),)}
    room = find_gpu_holders(cluster.state, cluster.numbers["mine"])
    assert (room.nodes, room.gpus, room.idle) == (1, 8, 0)
    assert [(holder.number, holder.amount) for holder in room.holders] == [(0, 8 * GPU)]


def test_who_starts_when_others_have_left_is_told_so():
    preempts = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
    cluster = queue_cluster([], queue("a", 4, preemption=preempts), admission="kueue")
    cluster.submit(job("old", "1x4", queue="a")).step()
    cluster.submit(job("mine", "1x4", queue="a", priority=9)).step()
    findings = find_fixes(cluster.state, cluster.numbers["mine"])
    assert findings.leaving
    assert (
        search_text(findings)[0] == "Nothing has to change: it starts once the workloads that are terminating are gone."
    )


def test_what_can_never_start_is_told_with_what_was_tried():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 64))
    cluster.submit(job("mine", "1x16", queue="a")).step()
    findings = find_fixes(cluster.state, cluster.numbers["mine"])
    assert findings.fixes == ()
    said = search_text(findings)
    assert said[0] == "No change that was tried would start it now."
    assert "more nodes" in said[1]


def test_a_search_ends_with_its_budget_and_says_what_it_left_out():
    cluster = queue_cluster([], queue("a", 8), *(queue(f"q{n}", 0) for n in range(6)), admission="kueue")
    cluster.submit(*(job(f"j{n}", "1x8", queue="a", at=n) for n in range(12))).step()
    findings = find_fixes(cluster.state, cluster.numbers["j11"], budget=6)
    assert findings.tried < find_fixes(cluster.state, cluster.numbers["j11"]).tried
    assert [attempt.kind for attempt in findings.attempts if not attempt.finished]
    assert any("Not tried to the end" in sentence for sentence in search_text(findings))
    assert findings == find_fixes(cluster.state, cluster.numbers["j11"], budget=6)


# -- as text ---------------------------------------------------------------------------------------------------


def test_changes_that_are_written_are_read_back_the_same():
    kinds = set()
    for seed in range(8):
        drawn = draw(seed, 16)
        for number in drawn.waiting[:2]:
            for fix in find_fixes(drawn.state, number).fixes:
                for change in fix.changes:
                    kinds.add(type(change))
                    assert read_change(write_change(change, drawn.state), drawn.state, number) == change
    assert len(kinds) >= 5


def small() -> object:
    flavors = (Flavor(name="any"), Flavor(name="spot", node_taints=(Taint(key="spot"),)))
    cluster = queue_cluster(fleet("2x h100x8"), queue("research", 8, flavors=("any", "spot")), flavors=flavors)
    cluster.submit(job("old", "1x8", queue="research"), job("mine", "1x8", queue="research", at=1)).step()
    return cluster


READ = [
    ("quota:research+8", MoreQuota("research", ANY, 8 * GPU)),
    ("quota:research-0.5", MoreQuota("research", ANY, -500)),
    ("quota:research/spot+2", MoreQuota("research", FlavorResourceName("spot", "gpu"), 2 * GPU)),
    ("quota:research/spot/gpu+2", MoreQuota("research", FlavorResourceName("spot", "gpu"), 2 * GPU)),
    ("borrow:research", MoreBorrowing("research", ANY, None)),
    ("borrow:research+3", MoreBorrowing("research", ANY, 3 * GPU)),
    ("nodes:h100+2", MoreNodes(0, 2)),
    ("nodes:h100-0-01+1", MoreNodes(1, 1)),
    ("model:h100", AllowModel(1, "h100")),
    ("flavor:spot", AllowFlavor(1, "spot")),
    ("priority:7", SetPriority(1, 7)),
    ("priority:+7", SetPriority(1, 7)),
    ("priority:-7", SetPriority(1, -7)),
    ("stop:old", StopWorkloads(0)),
    ("queue:research", MoveToQueue(1, "research")),
    ("open:research", OpenQueue("research")),
]


@pytest.mark.parametrize(("text", "change"), READ, ids=lambda value: value if isinstance(value, str) else "")
def test_changes_can_be_named(text, change):
    assert read_change(text, small().state, 1) == change


REFUSED = [
    ("quoat:research+8", "'quoat' is no kind of change; did you mean quota:QUEUE[/FLAVOR][/RESOURCE]+N?"),
    ("help", f"'help' is no kind of change; expected one of {'; '.join(FORMS.values())}"),
    ("quota", "it does not say which quota; expected quota:QUEUE[/FLAVOR][/RESOURCE]+N"),
    ("quota:research", "'research' does not say how much more; expected quota:QUEUE[/FLAVOR][/RESOURCE]+N"),
    ("quota:reserch+8", "there is no queue or cohort 'reserch'; did you mean research?"),
    ("quota:research/h100+8", "research has no quota of 'h100'; it has research/any/gpu, research/spot/gpu"),
    ("quota:research+8x", "'8x' is no amount of gpu; expected GPUs, such as 8 or 0.5"),
    ("quota:research+0.0001", "'0.0001' is no amount of gpu; expected GPUs, such as 8 or 0.5"),
    ("nodes:h200+1", "there is no shape or node 'h200'; did you mean h100?"),
    ("nodes:h100-1", "'h100-1' does not say how many nodes come; expected nodes:SHAPE+N, N from 1 to 1,000"),
    ("nodes:h100+100000", "'h100+100000' does not say how many nodes come; expected nodes:SHAPE+N, N from 1 to 1,000"),
    ("model:b200", "there is no GPU model 'b200'; did you mean h100?"),
    ("flavor:spto", "there is no flavor 'spto'; did you mean spot?"),
    ("priority:high", "'high' is no priority; expected priority:N or priority:+N"),
    ("stop:odl", "there is no job that is not over 'odl'; did you mean old?"),
    ("stop:mine", "mine is the job that is asked about; name another one"),
    ("queue:x", "there is no queue 'x'; there is research"),
    ("open:x", "there is no queue 'x'; there is research"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_read_is_told_with_what_was_expected(text, message):
    with pytest.raises(ImpossibleChangeError) as caught:
        read_change(text, small().state, 1)
    assert str(caught.value) == message


# -- in words --------------------------------------------------------------------------------------------------


def test_changes_and_outcomes_are_said():
    cluster = small()
    state, changes = cluster.state, [MoreQuota("research", ANY, 8 * GPU), SetPriority(1, 5)]
    assert changes_text(changes, state) == "8 GPUs more of flavor any for queue research and priority 5 instead of 0"
    told = effect_text(find_effect(state, 1, changes), 1, state)
    assert told.headline == "mine starts at once with 8 GPUs of flavor any on h100-0-01 (8 GPUs)."
    assert told.others == ("Nobody else starts or has to go.",)
    less = effect_text(find_effect(state, 1, [MoreQuota("research", ANY, 2 * GPU)]), 1, state)
    assert less.headline == "mine still waits: its queue lacks 6 GPUs of flavor any."


def test_every_change_on_a_fork_leaves_a_sound_state():
    for seed in range(6):
        drawn = draw(seed, 16)
        for number in drawn.waiting[:2]:
            for fix in find_fixes(drawn.state, number).fixes:
                fork = drawn.state.fork()
                explain.step(fork, explain.facts_of(fork, fix.changes), fork.now_ms)
                check(fork)


def test_the_place_in_the_queue_is_told():
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("runs", "1x4", queue="a")).step()
    cluster.submit(job("mine", "1x2", queue="a", at=2), job("vip", "1x2", queue="a", priority=5, at=3))
    cluster.submit(job("older", "1x3", queue="a", at=1)).step()
    lines = {id_: find_queue_position(cluster.state, cluster.numbers[id_]) for id_ in ("vip", "mine", "runs")}
    assert lines["runs"] is None
    assert position_text(lines["vip"], cluster.state) == "It is the head of queue a, before 2 others."
    assert position_text(lines["mine"], cluster.state) == (
        "In queue a 2 go before it (1 a higher priority and 1 submitted earlier) of 2 others that wait; "
        "the head is vip."
    )
