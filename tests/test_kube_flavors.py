"""What pods get of the flavors that they were admitted with: node labels as node selector, and tolerations."""

from __future__ import annotations

import json

from msgspec.structs import replace

from kubebench.objects import job, pod
from kubepaper import POOL, QUEUES, SPOT_TOLERATION, Paper, on_spot, ours, queued, spot_node
from kuberelay import Relay
from tidegate.journal.quota_names import quota_names_of
from tidegate.kube.mirror.handover_annotation import HandoverNote
from tidegate.kube.mirror.handover_check import HandoverCheck
from tidegate.kube.mirror.job_adapters import JOB
from tidegate.kube.mirror.job_patch import BEFORE, GATE, HOST, JobStart, PodSetHosts, restored, start_steps, undo_steps
from tidegate.kube.takeover import HandoverState, Takeover
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment
from tidegate.model.queues import Flavor, FlavorGroup, Quota

_PATH = ("spec", "template", "spec")
_READY = [{"type": "Ready", "status": "True"}]
_OWN = {"key": "own", "operator": "Exists"}


def gated(gpus: int = 8) -> Paper:
    cluster = Paper(on_spot(QUEUES, gpus), scheduler="", gates=True)
    for number in range(2):
        cluster.put(spot_node(f"n{number}"), status__conditions=_READY)
    return cluster


def held(name: str, gpus: int = 8, **spec):
    """A pod as the door leaves it."""
    return queued(pod(name, gpus, schedulingGates=[{"name": GATE}], **spec))


def template(cluster: Paper, name: str):
    return cluster.objects[name]["spec"]["template"]["spec"]


def test_a_pod_keeps_its_own_tolerations_and_selector():
    cluster = gated()
    cluster.put(held("p", tolerations=[_OWN], nodeSelector={"pool": "spot", "zone": "a"}))
    cluster.objects["node/n0"]["metadata"]["labels"]["zone"] = "a"
    cluster.change("node/n0")
    assert cluster.step() == [("ungate", "pod/p")]
    cluster.obey()
    spec = cluster.objects["pod/p"]["spec"]
    assert spec["tolerations"] == [_OWN, SPOT_TOLERATION]
    assert spec["nodeSelector"] == {**POOL, "zone": "a", HOST: "n0"}


def test_a_toleration_that_is_there_is_not_written_again():
    cluster = gated()
    cluster.put(held("p", tolerations=[SPOT_TOLERATION]))
    cluster.step()
    body = json.loads(cluster.orders[0].write.request.body)
    assert "tolerations" not in body["spec"]


def test_work_without_quota_gets_nothing():
    cluster = Paper(scheduler="", gates=True)
    cluster.put(spot_node("n0"), status__conditions=_READY)
    cluster.put(held("p", tolerations=[SPOT_TOLERATION]))
    cluster.step()
    assert json.loads(cluster.orders[0].write.request.body)["spec"]["nodeSelector"] == {HOST: "n0"}


def test_a_job_gets_them_and_gives_them_back():
    cluster = gated()
    cluster.put(queued(job("low", 1, 8, suspend=True, tolerations=[_OWN])))
    before = template(cluster, "job/low")
    assert cluster.step() == [("start", "job/low")]
    cluster.obey()
    assert template(cluster, "job/low")["tolerations"] == [_OWN, SPOT_TOLERATION]
    assert POOL.items() <= template(cluster, "job/low")["nodeSelector"].items()
    cluster.put(held("high", priority=10))
    assert ("stop", "job/low") in cluster.step()
    cluster.obey()
    assert template(cluster, "job/low") == before
    assert BEFORE not in cluster.objects["job/low"]["metadata"].get("annotations", {})


def test_who_takes_over_a_group_that_was_let_go_in_part_keeps_its_flavor():
    """The queue lists another flavor first, and its nodes are others."""
    cluster = gated()
    cluster.policy = two_flavors(cluster.policy)
    cluster.reconciler.name_quota(quota_names_of(cluster.policy.shares), cluster.policy.shares.flavors)
    for name in "ab":
        cluster.put(held(name, 4, group=("g", 2)))
    assert len(cluster.step()) == 2
    noted = HandoverNote(
        standing=ObservedStatus(
            queue="q",
            grants=(PodSetAssignment(pod_set="main", count=2, flavors=(("cpu", "any"), ("nvidia.com/gpu", "any"))),),
            admitted=True,
        ),
        nodes=(("n0", 2),),
    )
    assert cluster.carry_out(cluster.orders[0])
    other = cluster.orders[1].write.key
    cluster.begin_anew(scheduler="", gates=True)
    labels_of = cluster.reconciler.node_registry.labels_of
    check = HandoverCheck(lambda _: noted, cluster.policy.shares, labels_of, cluster.now_ms)
    Takeover(cluster.reconciler).resume(check, HandoverState())
    assert cluster.step() == [("ungate", other)]
    cluster.obey()
    for name in "ab":
        spec = cluster.objects[f"pod/{name}"]["spec"]
        assert spec["tolerations"] == [SPOT_TOLERATION]
        assert spec["nodeSelector"] == {**POOL, HOST: "n0"}


def test_who_takes_over_half_a_gang_on_tainted_nodes_binds_the_other_half():
    """Its pods tolerate nothing of themselves: their flavor does."""
    cluster = Relay(on_spot(QUEUES))
    for number in range(2):
        cluster.put(spot_node(f"n{number}"), status__conditions=_READY)
    for name in "ab":
        cluster.put(queued(ours(name, 4, group=("g", 2))))
    assert [kind for kind, _ in cluster.step()] == ["ungate", "bind"] * 2
    assert all(cluster.carry_out(order) for order in cluster.orders[:2])
    other = cluster.orders[2].write.key
    cluster.take_over()
    assert cluster.step() == [("ungate", other), ("bind", other)]


def test_pods_that_we_bind_get_the_tolerations_though_no_gate_holds_them():
    """Nodes with a NoExecute taint would lose them again right after they were bound."""
    cluster = Paper(on_spot(QUEUES))
    cluster.put(spot_node("n0"), status__conditions=_READY)
    cluster.put(queued(ours("p", 4, tolerations=[_OWN])))
    assert cluster.step() == [("ungate", "pod/p"), ("bind", "pod/p")]
    cluster.obey()
    assert cluster.objects["pod/p"]["spec"]["tolerations"] == [_OWN, SPOT_TOLERATION]
    assert cluster.nodes_of("p") == ["n0"]
    cluster.put(queued(ours("q", 4, tolerations=[SPOT_TOLERATION])))
    assert cluster.step() == [("bind", "pod/q")]


def test_jobs_whose_pods_we_bind_get_the_tolerations_and_give_them_back():
    cluster = Paper(on_spot(QUEUES))
    cluster.put(spot_node("n0"), status__conditions=_READY)
    cluster.put(queued(job("low", 1, 8, suspend=True, scheduler="tidegate", tolerations=[_OWN])))
    before = template(cluster, "job/low")
    cluster.step()
    cluster.obey()
    assert template(cluster, "job/low") == {**before, "tolerations": [_OWN, SPOT_TOLERATION]}
    cluster.put(queued(ours("high", 8, priority=10)))
    assert ("stop", "job/low") in cluster.step()
    cluster.obey()
    assert template(cluster, "job/low") == before


def two_flavors(policy):
    """The same, where a flavor without quota comes first."""
    shares, queue = policy.shares, policy.shares.queues[0]
    other = Flavor(name="other", node_labels=(("pool", "other"),))
    (group,) = queue.groups
    quotas = (*queue.quotas, *(Quota(flavor="other", resource=name, nominal=0) for name in group.resources))
    groups = (FlavorGroup(resources=group.resources, flavors=("other", *group.flavors)),)
    queues = (replace(queue, groups=groups, quotas=quotas),)
    return replace(policy, shares=replace(shares, flavors=(other, *shares.flavors), queues=queues))


def test_a_job_that_comes_back_on_another_flavor_has_nothing_of_the_first():
    cluster = gated()
    cluster.put(queued(job("j", 1, 8, suspend=True)))
    (workload,) = cluster.reconciler.workloads.values()
    workload.admit("main", "any")
    workload.lose_quota()
    workload.admit("main", "other")
    assert dict(workload.flavors) == {"main": ("other",)}


# -- what was there before -------------------------------------------------------------------------------------


def started(thing):
    place = PodSetHosts(1, ("n0",), POOL, (SPOT_TOLERATION,))
    return patched(thing, start_steps(JOB, thing, JobStart({"main": place}, gated=False)))


def patched(thing, steps):
    thing = json.loads(json.dumps(thing))
    for step in steps:
        *way, last = [key.replace("~1", "/") for key in step["path"].split("/")[1:]]
        inner = thing
        for key in way:
            inner = inner[key]
        if step["op"] == "remove":
            del inner[last]
        elif step["op"] == "add":
            inner[last] = step["value"]
    return thing


def a_job(**spec):
    inner = {"containers": [], **spec}
    return {"metadata": {"annotations": {"a": "b"}}, "spec": {"suspend": True, "template": {"spec": inner}}}


def test_what_was_written_is_taken_back_whatever_was_there():
    for spec in ({}, {"tolerations": [_OWN]}, {"nodeSelector": {"zone": "a"}}, {"tolerations": [SPOT_TOLERATION]}):
        thing = a_job(**spec)
        begun = started(thing)
        assert begun["spec"]["template"]["spec"]["tolerations"].count(SPOT_TOLERATION) == 1
        assert restored(JOB, begun)["spec"]["template"] == thing["spec"]["template"]
        assert patched(begun, undo_steps(JOB, begun))["spec"]["template"] == thing["spec"]["template"]


def test_what_an_owner_changed_since_stays():
    begun = started(a_job(nodeSelector={"zone": "a"}, tolerations=[_OWN]))
    inner = begun["spec"]["template"]["spec"]
    inner["nodeSelector"] |= {"zone": "b", "new": "x"}
    inner["tolerations"].append({"key": "new", "operator": "Exists"})
    base = restored(JOB, begun)["spec"]["template"]["spec"]
    assert base["nodeSelector"] == {"zone": "b", "new": "x"}
    assert base["tolerations"] == [_OWN, {"key": "new", "operator": "Exists"}]


def test_notes_that_somebody_else_wrote_do_no_harm():
    begun = started(a_job())
    pointer = "/spec/template/spec/"
    for forged in (7, [], ["x"], [1, 2], [None, "spot"], [{"a": 1}, [1]], [["x"], {"pool": 3}]):
        note = json.dumps({f"{pointer}nodeSelector": forged, f"{pointer}tolerations": forged})
        begun["metadata"]["annotations"][BEFORE] = note
        assert restored(JOB, begun)["spec"]["template"]["spec"]["containers"] == []
        undo_steps(JOB, begun)
