"""Whatever happens to work and writes: nobody is bound twice, no node is overbooked, gangs are whole or not there."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubebench.objects import job
from kubepaper import Paper, job_pods, ours, paper
from tidegate.kube.actuator.pending_writes import WriteKind
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.facts import WriteOutcome

_GPUS = 4

#: What may come of a write: whether it is done, and what we hear of it.
_FATES = st.sampled_from(
    [(True, WriteOutcome.DONE)] * 4
    + [(False, WriteOutcome.FAILED), (True, WriteOutcome.UNKNOWN), (False, WriteOutcome.UNKNOWN)]
)
_EVENTS = st.sampled_from(["pod", "group", "job", "shut job", "over", "delete", "step", "step", "step", "restart"])
_HISTORIES = st.lists(st.tuples(_EVENTS, st.integers(0, 5), st.integers(1, _GPUS)), min_size=3, max_size=25)


#: No name is ever used again: on paper it is also the uid.
_numbers = itertools.count()


def happen(cluster: Paper, event: str, number: int, gpus: int) -> None:
    """One thing that happens outside."""
    pods = sorted(name for name in cluster.objects if name.startswith("pod/"))
    if event == "pod":
        cluster.put(ours(f"p{next(_numbers)}", gpus))
    elif event == "group":
        group = f"g{next(_numbers)}"
        for member in range(2):
            cluster.put(ours(f"{group}-{member}", gpus, group=(group, 2)))
    elif event.endswith("job") and f"job/j{number}" not in cluster.objects:
        cluster.put(job(f"j{number}", 2, gpus, suspend=event == "shut job", scheduler="tidegate"))
    elif event == "over" and pods:
        name = pods[number % len(pods)]
        if "nodeName" in cluster.objects[name]["spec"]:
            cluster.change(name, status__phase="Succeeded" if gpus % 2 else "Failed")
    elif event == "delete" and pods:
        cluster.remove(pods[number % len(pods)])
    elif event == "restart":
        cluster.begin_anew()  # what was ordered and not carried out is lost


def control_jobs(cluster: Paper) -> None:
    """What the job controller does: pods of open jobs are made again, those of suspended ones are deleted."""
    for name, thing in list(cluster.objects.items()):
        if not name.startswith("job/"):
            continue
        short = name.removeprefix("job/")
        mine = [pod for pod in cluster.objects if pod.startswith(f"pod/{short}-")]
        live = [
            pod for pod in mine if cluster.objects[pod].get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]
        if thing["spec"]["suspend"]:
            for pod in live:
                cluster.remove(pod)
        elif len(live) < 2:
            resources = thing["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
            gpus = int(resources["nvidia.com/gpu"])
            job_pods(cluster, short, 2 - len(live), first=2 * next(_numbers), gpus=gpus)


def decide(cluster: Paper, fates) -> None:
    """One step, and what comes of its orders."""
    cluster.step()
    for order in cluster.orders:
        done, heard = next(fates, (True, WriteOutcome.DONE))
        if order.write_kind is WriteKind.BIND and order.write.key in cluster.objects and not order.again:
            at = cluster.objects[order.write.key]["spec"].get("nodeName")
            assert at is None, f"{order.write.key} is bound to {at} and was to be bound again"
        accepted = cluster.carry_out(order) if done else False
        WriteOutcomes(cluster.reconciler).settle(order, WriteOutcome.FAILED if done and not accepted else heard)


def used(cluster: Paper) -> Counter[str]:
    held: Counter[str] = Counter()
    for name, thing in cluster.objects.items():
        over = thing.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if name.startswith("pod/") and "nodeName" in thing["spec"] and not over:
            limits = thing["spec"]["containers"][0]["resources"]["limits"]
            held[thing["spec"]["nodeName"]] += int(limits["nvidia.com/gpu"])
    return held


def assert_gangs_are_whole(cluster: Paper) -> None:
    gangs: dict[str, list[bool]] = {}
    for name, thing in cluster.objects.items():
        if not name.startswith("pod/"):
            continue
        over = thing.get("status", {}).get("phase") in ("Succeeded", "Failed")
        group = thing["metadata"].get("labels", {}).get("kueue.x-k8s.io/pod-group-name")
        owners = thing["metadata"].get("ownerReferences")
        gang = group or (owners[0]["name"] if owners else None)
        if gang and not over:
            gangs.setdefault(gang, []).append("nodeName" in thing["spec"])
    for gang, bound in gangs.items():
        assert all(bound) or not any(bound), f"{gang} is bound in part: {bound}"


_REPLACED = [
    ("job", 0, 1),
    ("step", 0, 1),
    ("over", 0, 1),
    ("step", 0, 1),
]  # a pod is over, another takes its place
_NOT_BOUND = [(True, WriteOutcome.DONE), (True, WriteOutcome.DONE), (False, WriteOutcome.FAILED)]  # and cannot be bound


@settings(max_examples=120, deadline=None)
@given(_HISTORIES, st.lists(_FATES, max_size=60))
@example(_REPLACED, _NOT_BOUND)
def test_nobody_is_bound_twice_and_no_node_is_overbooked(history, fates):
    cluster, fates = paper(nodes=2, gpus=_GPUS), iter(fates)
    for event, number, gpus in history:
        happen(cluster, event, number, gpus)
        control_jobs(cluster)
        if event == "step":
            decide(cluster, fates)
        assert all(count <= _GPUS for count in used(cluster).values()), used(cluster)
    for _ in range(12):  # all is well again, and comes to rest
        control_jobs(cluster)
        decide(cluster, iter(()))
        assert all(count <= _GPUS for count in used(cluster).values()), used(cluster)
    assert_gangs_are_whole(cluster)


@settings(max_examples=40, deadline=None)
@given(_HISTORIES)
def test_who_takes_over_at_rest_changes_nothing(history):
    cluster = paper(nodes=2, gpus=_GPUS)
    for event, number, gpus in history:
        happen(cluster, event, number, gpus)
        control_jobs(cluster)
    for _ in range(12):
        control_jobs(cluster)
        decide(cluster, iter(()))
    before = used(cluster)
    cluster.begin_anew()
    cluster.step()
    assert not [order for order in cluster.orders if order.write_kind is WriteKind.STOP]
    assert used(cluster) == before
