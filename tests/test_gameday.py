"""A minute of the game day on a real control plane, and its rules: each finds what it is for, and nothing else.

`bench/gameday.py --minutes 60` is the long form.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from gameday.day import Day, Plan
from gameday.ending import MOST_S, Ending
from gameday.ground import Setting
from gameday.load import KINDS, Pace, Work
from gameday.operators import Operators, as_before, as_later
from gameday.policies import GPU, Limit, excess, limits_of, policy_text, read_limits
from gameday.records import Deed, Records
from gameday.rules import BACK, BUDGET_S, EVENT_S, GANG_S, GROWN_S, Rules
from gameday.watching import Change
from kubebench import ApiError
from kubejobs import PATHS
from tidegate.kube.mirror.handover_annotation import HandoverNote, read_note, write_note
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class Story:
    """Changes as a test tells them, a second apart."""

    def __init__(self, gpus=40):
        self.now_s, self.version = 1000.0, 0
        self.rules = Rules(Records(self.now_s), lambda: self.deleters)
        self.records, self.deleters = self.rules.records, {}
        self.policy(limits_of(gpus))
        for name in ("n1", "n2"):
            self.node(name)
        self.now_s += 10

    def tell(self, kind, thing, *, gone=False):
        self.version, self.now_s = self.version + 1, self.now_s + 1
        self.rules.see(Change(self.version, self.now_s, kind, gone, thing))

    def policy(self, limits):
        self.tell("configmaps", {"metadata": {"name": "p"}, "data": {"policy.yaml": policy_text(limits)}})

    def node(self, name, **spec):
        self.tell("nodes", {"metadata": {"name": name}, "spec": spec, "status": READY})

    def job(self, name, *, pods=2, queue="a", suspend=False, by="tidegate"):
        labels = {"gameday/work": name, "kueue.x-k8s.io/queue-name": queue}
        fields = [{"manager": by, "fieldsV1": {"f:spec": {"f:suspend": {}}}}]
        meta = {"name": name, "uid": f"uid-{name}", "labels": labels, "managedFields": fields}
        spec = {"suspend": suspend, "parallelism": pods, "completions": pods}
        self.tell("jobs", {"metadata": meta, "spec": spec, "status": {}})

    def pod(self, name, work, gpus=4, *, node="", phase="Running", gone=False, leaves=False, gated=False):
        labels = {"gameday/work": work, "kueue.x-k8s.io/queue-name": "a"}
        meta = {"name": name, "uid": f"uid-{name}", "labels": labels}
        meta |= {"deletionTimestamp": "now"} if leaves else {}
        container = {"resources": {"limits": {GPU: str(gpus)}}}
        spec = {"containers": [container], **({"nodeName": node} if node else {})}
        spec |= {"schedulingGates": [{"name": "tidegate.io/admission"}]} if gated else {}
        self.tell("pods", {"metadata": meta, "spec": spec, "status": {"phase": phase}}, gone=gone)

    def event(self, about, reason, note="Text."):
        thing = {"reportingController": "tidegate.io/tidegate", "reason": reason, "note": note}
        self.tell("events", {**thing, "metadata": {}, "regarding": {"uid": f"uid-{about}"}})

    def admitted(self, name, **more):
        self.job(name, suspend=True, **more)
        self.job(name, **more)
        self.event(name, "Admitted")

    def later(self, seconds=EVENT_S + 1):
        self.now_s += seconds
        self.rules.check_time(self.now_s)

    @property
    def found(self):
        return [violation.rule for violation in self.rules.violations]


@pytest.mark.parametrize(
    ("used", "exceeds"),
    [
        ({"a": 4, "b": 6}, False),
        ({"a": 8, "b": 4}, False),
        ({"a": 8, "b": 6}, True),
        ({"a": 9, "b": 0}, True),  # b lends half of what it has
        ({"a": 4, "b": 8}, False),
        ({"a": 0, "b": 11}, True),  # it may borrow two
        ({"a": 4, "gone": 9}, False),
        ({"a": 4, "b": 6, "": 1}, True),  # of whatever queue: the cohort has no more
        ({"a": 4, "b": 5, "": 1}, False),
    ],
)
def test_what_a_cohort_allows(used, exceeds):
    limits = {"a": Limit(4), "b": Limit(6) if "" in used else Limit(8, borrow=2, lend=4)}
    assert bool(excess(limits, used)) == exceeds


def test_limits_are_read_as_they_are_written():
    assert read_limits(policy_text(limits_of(100, late=7))) == limits_of(100, late=7)
    assert read_limits("") is None
    assert read_limits("{") is None


def test_work_that_runs_as_admitted_and_ends_is_no_violation():
    story = Story()
    story.admitted("job-1")
    for pod in ("p1", "p2"):
        story.pod(pod, "job-1", node="n1")
    for pod in ("p1", "p2"):
        story.pod(pod, "job-1", node="n1", phase="Succeeded")
        story.pod(pod, "job-1", node="n1", phase="Succeeded", gone=True)
    story.later()
    assert story.found == []
    assert story.rules.waits["job"]


def test_quota_that_is_exceeded_when_work_starts_is_found_and_quota_that_is_lowered_later_is_none():
    for lowered in (False, True):
        story = Story(gpus=20)
        if not lowered:
            story.policy(limits_of(10))
            story.now_s += 60
        story.admitted("job-1", pods=3)
        if lowered:
            story.policy(limits_of(10))
            story.now_s += 60
        for pod in ("p1", "p2", "p3"):
            story.pod(pod, "job-1", node="n1")
        assert story.found == ([] if lowered else ["quota exceeded"])


def test_a_queue_that_keeps_more_than_a_smaller_policy_gives_it_is_no_fault_of_another_queue():
    """Found in a run: c kept 51 GPUs of 33 and 16 borrowed, and work of b was blamed."""
    story = Story()
    story.policy({"a": Limit(40), "b": Limit(20), "c": Limit(30, borrow=16)})
    story.admitted("job-1", pods=10, queue="c")
    for number in range(10):
        story.pod(f"c{number}", "job-1", node="n1")
    story.policy({"a": Limit(40), "b": Limit(20), "c": Limit(20, borrow=16)})
    story.now_s += 60
    story.admitted("job-2", pods=4, queue="b")
    for number in range(4):
        story.pod(f"b{number}", "job-2", node="n2")
    assert story.found == []
    story.admitted("job-3", pods=1, queue="c")
    story.pod("c-more", "job-3", node="n2")
    assert story.found == ["quota exceeded"]


def test_each_pod_of_a_deployment_has_an_event_of_its_own():
    """A pod may come long after the others: when they were admitted says nothing of it."""
    for told, found in ((True, []), (False, ["change without an Event"])):
        story = Story()
        for name in ("p1", "p2"):
            story.pod(name, "deployment-1", phase="Pending", gated=True)
            story.pod(name, "deployment-1", phase="Pending")
            story.later(1)
            if told or name == "p1":
                story.event(name, "Admitted")
            story.now_s += 100
        story.later()
        assert story.found == found


def test_a_pod_that_leaves_and_the_one_that_follows_it_have_one_quota():
    story = Story(gpus=12)  # four of them are a's, and b and c lend five
    story.admitted("job-1", pods=2)
    for pod in ("p1", "p2"):
        story.pod(pod, "job-1", node="n1")
    story.pod("p2", "job-1", node="n1", leaves=True)
    story.pod("p3", "job-1", node="n2")
    assert story.found == []
    story.pod("p4", "job-1", node="n2")
    assert story.found == ["quota exceeded"]
    story.later(1)
    assert story.found == ["quota exceeded"]
    story.later(GROWN_S + 1)
    assert story.found == ["quota exceeded", "work has grown"]


def test_a_pod_that_is_bound_long_after_its_node_was_closed_is_found():
    story = Story()
    story.admitted("job-1")
    story.node("n1", unschedulable=True)
    story.pod("p1", "job-1", node="n1")
    assert story.found == []  # the write was under way
    story.now_s += 10
    story.pod("p2", "job-1", node="n1")
    assert story.found == ["pod on an unusable node"]


def test_a_gang_in_parts_is_found_and_independent_pods_are_no_gang():
    for name, found in (("gang-1", ["gang in parts"]), ("job-1", [])):
        story = Story()
        story.admitted(name)
        story.pod("p1", name, node="n1")
        story.later(1)
        story.later(GANG_S + 1)
        assert story.found == found


def test_a_gang_whose_pods_a_budget_keeps_may_be_in_parts_for_longer():
    story = Story()
    story.admitted("gang-1")
    story.pod("p1", "gang-1", node="n1")
    story.records.deeds.append(Deed(story.now_s, "add a budget", frozenset(("budget/gang-1",))))
    story.later(1)
    story.later(GANG_S + 1)
    assert story.found == []
    story.later(BUDGET_S + 1)
    assert story.found == ["gang in parts"]


@pytest.mark.parametrize(
    ("explained", "found"),
    [
        ("", ["pod lost without explanation"]),
        ("event", []),
        ("deed", []),
        ("deed, by tidegate", ["pod lost without explanation"]),
    ],
)
def test_a_pod_that_is_lost_is_explained(explained, found):
    story = Story()
    story.admitted("job-1")
    story.pod("p1", "job-1", node="n1")
    if explained == "event":
        story.event("job-1", "Preempted", "Preempted for Job x: why.")
    if "deed" in explained:
        story.records.deeds.append(Deed(story.now_s, "drain", frozenset(("node/n1",))))
    if "tidegate" in explained:
        story.deleters["p1"] = "tidegate"
    story.pod("p1", "job-1", node="n1", gone=True)
    story.later()
    assert story.found == found


@pytest.mark.parametrize(
    ("killed_s", "found"),
    [(1.0, []), (-2.0, ["change without an Event"]), (4.0, ["change without an Event"])],
)
def test_only_a_leader_that_is_killed_right_after_a_change_takes_its_event_along(killed_s, found):
    story = Story()
    story.job("job-1", suspend=True)
    story.job("job-1")
    story.records.kills.append(story.now_s + killed_s)
    story.later()
    assert story.found == found


def test_a_change_without_an_event_or_an_actor_is_found():
    story = Story()
    story.job("job-1", suspend=True)
    story.job("job-1")
    story.later()
    assert story.found == ["change without an Event"]
    story.job("job-1", suspend=True, by="kubectl")
    assert story.found == ["change without an Event", "change without an actor"]


def test_an_eviction_for_no_cause_is_found():
    story = Story()
    story.admitted("job-1")
    story.job("job-1", suspend=True)
    story.event("job-1", "Evicted", "Evicted: its gang is broken.")
    story.event("job-1", "Requeued")
    story.later()
    assert story.found == ["evicted without a cause"]


class Refusing:
    """An API server that refuses what it is asked for with these statuses, one after the other, and then does it."""

    def __init__(self, *statuses):
        self.statuses, self.asked = list(statuses), []

    def _ask(self, path, *_, **__):
        self.asked.append(path)
        if self.statuses and (status := self.statuses.pop(0)):
            raise ApiError(status, "refused")
        meta = {"name": "p1", "uid": "uid-p1", "labels": {"gameday/work": "job-1"}}
        return {"items": [{"metadata": meta, "status": {"phase": "Running"}}]}

    get = post = patch = delete = _ask


def operators(api, *, job_sets=False):
    plane = SimpleNamespace(api=lambda _: api)
    ground = SimpleNamespace(plane=plane, setting=Setting(nodes=5), replicas=(), has_job_sets=job_sets)
    return Operators(ground, SimpleNamespace(queues=["a"], deleted=set()), 1, 1.0, Records(0.0))


@pytest.mark.parametrize(("status", "deeds"), [(503, []), (0, ["cordon"])])
def test_an_action_that_is_refused_is_none_and_its_node_is_free_again(status, deeds):
    acting = operators(Refusing(status, 503))
    assert acting._attempt("cordon", acting._cordon) == (not status)
    assert acting.done["cordon"] == (not status)
    assert [deed.action for deed in acting._records.deeds] == deeds
    acting._undo_due(math.inf)  # refused once more
    assert len(acting._out) == 1
    acting._undo_due(math.inf)
    assert not acting._out
    assert [deed.action for deed in acting._records.deeds] == [*deeds, BACK]


def test_an_action_that_breaks_does_not_stop_the_day():
    acting = operators(Refusing())
    assert not acting._attempt("upgrade", lambda: {}["no such"])
    assert acting.failed == ["upgrade: KeyError: 'no such'"]
    assert not acting.done["upgrade"]


class Serving:
    """An API server with a Job and a Deployment, and with JobSets if they are installed."""

    def __init__(self, *, job_sets):
        self.job_sets, self.written = job_sets, []

    def get(self, path, **_):
        if path == PATHS["JobSet"] and not self.job_sets:
            raise ApiError(404, "404 page not found")
        names = {PATHS["Job"]: "job-1", PATHS["JobSet"]: "jobset-1", PATHS["Deployment"]: "deployment-1"}
        labels = {"gameday/work": names.get(path, "pod-1")}
        return {"items": [{"metadata": {"name": labels["gameday/work"], "labels": labels}, "spec": {"suspend": True}}]}

    def _write(self, path, *_):
        self.written.append(path)

    patch = delete = _write


@pytest.mark.parametrize("job_sets", [True, False])
@pytest.mark.parametrize("action", ["resume", "move to a queue", "delete work"])
def test_actions_on_work_pass_over_kinds_that_are_not_served(action, job_sets):
    """Found in a run: without the definition of JobSets each of them failed, the whole day long."""
    api = Serving(job_sets=job_sets)
    acting = operators(api, job_sets=job_sets)
    assert acting._attempt(action, getattr(acting, f"_{action.replace(' ', '_')}"))
    assert len(api.written) == 1


def test_an_action_that_fails_whenever_it_is_tried_is_found():
    acting = operators(Refusing(*[404] * 9))
    for _ in range(3):
        acting._attempt("scale", acting._scale)
        acting._attempt("delete pod", acting._delete_pod)
    assert sorted(acting.never_done()) == ["delete pod", "scale"]
    acting.done["delete pod"] += 1
    assert acting.never_done() == ["scale"]


def test_whether_a_policy_could_be_used_is_known_for_each_time():
    """A replica that starts under an empty policy ends with exit code 2, and rightly; any other one does not."""
    story = Story()
    began_s = story.now_s
    story.now_s += 100
    story.tell("configmaps", {"metadata": {"name": "p"}, "data": {"policy.yaml": ""}})
    story.now_s += 10
    story.policy(limits_of(40))
    had = story.records.had_no_policy
    assert not had(began_s, began_s + 90)
    assert had(began_s + 90, began_s + 105)
    assert had(began_s + 105, began_s + 108)
    assert had(began_s + 108, began_s + 150)
    assert not had(began_s + 130, began_s + 200)


def work(name, pods, gpus):
    return Work(name, KINDS["job"], "a", urgent=False, pods=pods, gpus=gpus, runs_s=9, waves=1)


def ending(story, *works, wait_s=300.0):
    return Ending(story.records, {one.name: one for one in works}, wait_s, story.now_s)


def test_the_day_goes_on_while_works_end_and_half_an_hour_at_most():
    story = Story()
    works = [work(f"job-{at}", 2, 4) for at in range(20)]
    end, left, began_s = ending(story, *works), [one.name for one in works], story.now_s
    while end.left_s(story.now_s) > 0 and left:
        story.now_s += 200
        left.pop()
        end.see(story.now_s, left)
    assert MOST_S <= story.now_s - began_s <= MOST_S + 300 + 200
    assert left
    end = ending(story, *works)
    assert end.left_s(story.now_s + 299) > 0
    assert end.left_s(story.now_s + 300) <= 0


@pytest.mark.parametrize("held", ["quota", "room", "nothing"])
def test_work_that_waits_at_the_end_is_endless_only_if_nothing_holds_what_it_needs(held):
    story = Story(gpus=36 if held == "quota" else 80)  # a has 40 % of it, and borrows
    story.node("n1")
    story.job("job-2", pods=2, suspend=True)
    if held != "nothing":
        story.admitted("job-1", pods=4)
        for at in range(4):
            story.pod(f"p{at}", "job-1", gpus=4, node=f"n{1 + at % 2}")
    end = ending(story, work("job-1", 4, 4), work("job-2", 2, 8), work("job-3", 1, 1))
    for _ in range(20):
        story.now_s += 10
        end.see(story.now_s, ["job-2"])
    found = [name for name, _ in end.endless(story.now_s, ["job-2"])]
    assert found == (["job-2"] if held == "nothing" else [])


def test_work_is_endless_once_no_other_ends_or_if_it_runs_too_long():
    story = Story()
    story.job("job-2", suspend=True)
    story.admitted("job-1", pods=1)
    story.pod("p1", "job-1", node="n1")
    end = ending(story, *(work(f"job-{at}", 1, 40) for at in range(1, 5)))
    for at in range(31):
        story.now_s += 10
        end.see(story.now_s, ["job-1", "job-2", "job-3"][: 3 - at // 15])
    left = ["job-1", "job-2"]
    assert [name for name, _ in end.endless(story.now_s, left)] == ["job-1"]  # it runs too long
    story.now_s += 300
    assert [name for name, _ in end.endless(story.now_s, left)] == left


@pytest.mark.parametrize(("status", "again"), [(0, False), (404, False), (429, True)])
def test_a_drain_evicts_again_what_a_budget_keeps_and_passes_over_what_has_gone(status, again):
    api = Refusing(0, 0, status)
    acting = operators(api)
    assert acting._attempt("drain", acting._drain)
    assert [deed.targets for deed in acting._records.deeds if "pod/uid-p1" in deed.targets] == (
        [] if status else [{"pod/uid-p1", "work/job-1"}]
    )
    acting._later = [one for one in acting._later if one.number > 1]  # without the end of the drain
    acting._undo_due(math.inf)
    assert api.asked[3:] == (["/api/v1/namespaces/default/pods/p1/eviction"] if again else [])
    assert bool(acting._records.deeds[1:]) == (again or not status)


def test_annotations_of_other_versions_are_read_as_our_own():
    grants = (PodSetAssignment(pod_set="main", count=2, flavors=((GPU, "any"),)),)
    standing = ObservedStatus(queue="q", grants=grants, granted_ms=5, admitted=True)
    note = HandoverNote(standing=standing, nodes=(("n0", 2),))
    text = write_note(note)
    for change in (as_before, as_later):
        changed = json.dumps(change(json.loads(text)))
        assert changed != text
        assert read_note(changed) == note


@pytest.mark.usefixtures("kube_programs")
@pytest.mark.parametrize("mode", ["bind", "gate"])
def test_a_minute_of_the_day_leaves_nothing_unexplained(mode):
    setting = Setting(mode, nodes=10, seed=3, kernels="plain", quick=True)
    pace = Pace(0.8 * setting.quota, shortest_s=3, longest_s=12, burst_every_s=20, burst=4)
    with Day(Plan(setting, 0.4, pace, action_every_s=1.5)) as day:
        day.live()
        found = day.summary()
    assert found["violations"] == [], json.dumps(found, indent=1)
    assert sum(found["actions"].values()) >= 4
    assert found["events"]["Admitted"] >= 10
