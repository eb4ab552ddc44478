"""Pods that are not ours: which those are, and what they hold of their nodes, whatever happens to them."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import msgspec
import pytest

from kubebench import pod
from kubepaper import ours, paper, queued
from tidegate.kube.mirror.job_adapters import OWNERS
from tidegate.kube.mirror.namespaces import ManagedNamespaces, NamespaceRule
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.pod_spec_cache import PodSpecCache
from tidegate.kube.mirror.pods import GateOwner, PodObject, PodTraits, UnmanagedPod, see_pod
from tidegate.kube.transport.objects import KubeOwnerReference

_MODES = ("scheduler", "gates", "watches", "unqueued")
_KIND, _DAEMON_SET = next(iter(sorted(OWNERS))), ("apps", "DaemonSet")
_OWNERS = [
    None,
    *(
        KubeOwnerReference(kind, "o", "o", controller=True, api_version=f"{group}/v1")
        for group, kind in (_KIND, _DAEMON_SET)
    ),
]


def test_what_is_ignored_is_never_ours():
    seen = see(pod("p", 1), PodSpecCache())
    ignored = 0
    for scheduler, *flags in itertools.product(("tidegate", ""), *((True, False),) * 3):
        for excluded in ((), ("default",)):
            rule = ManagedNamespaces(NamespaceRule(excluded=excluded))
            mode = dict(zip(_MODES, (scheduler, *flags), strict=True))
            ownership = Ownership(**mode, namespaces=rule)
            for whose, gate, started, named, owner in itertools.product(
                ("tidegate", "other"), GateOwner, (True, False), (True, False), _OWNERS
            ):
                traits = PodTraits("default", gate, started, named, whose, owner, "", "", 0)
                if ownership.ignores(traits):
                    one = msgspec.structs.replace(seen, traits=traits)
                    assert not ownership.has_pod(one)
                    assert not ownership.is_pod_bypassed(one)
                    assert not ownership.binds_pod(one)
                    assert owner is None or owner.group_kind == _DAEMON_SET
                    ignored += 1
    assert ignored > 100


def see(thing, cache):
    return see_pod(msgspec.json.decode(msgspec.json.encode(thing), type=PodObject), cache)


@pytest.mark.parametrize("seed", range(5))
def test_nodes_have_the_room_that_pods_of_others_leave(seed):
    """Against a plain sum: pods come, run, end, change hands and go, seen whole or as they are listed."""
    draw = random.Random(seed)
    cluster = paper(nodes=3)
    cluster.now_ms = 2_000_000_000_000
    held = {}
    for _ in range(400):
        name = f"p{draw.randrange(12)}"
        if draw.random() < 0.2:
            held.pop(name, None)
            if f"pod/{name}" in cluster.objects:
                cluster.remove(f"pod/{name}")
        else:
            change(cluster, held, draw, name)
        if draw.random() < 0.2:
            cluster.step()
            compare(cluster, held)
    cluster.step()
    compare(cluster, held)


def change(cluster, held, draw, name):
    """A pod of others is something else now; as it is listed, it is its node and its shape."""
    thing = pod(name, draw.randrange(3), scheduler="nobody")
    thing["spec"]["nodeName"] = draw.choice(("", "n0", "n1", "n2", "gone"))
    thing["status"] = {"phase": draw.choice(("Pending", "Running", "Running", "Succeeded"))}
    if draw.random() < 0.2:  # the room of others is the same with ours beside them
        cluster.put(ours(f"ours-{draw.randrange(3)}", 0))
    meta = {"namespace": "default", "uid": f"pod/{name}", "creationTimestamp": "2026-11-16T08:00:00Z"}
    thing["metadata"] = {**thing["metadata"], **meta}
    seen = see(thing, cluster.pod_specs)
    held[name] = seen
    cluster.objects[f"pod/{name}"] = thing
    listed = seen.unmanaged() if draw.random() < 0.5 else None
    cluster.reconciler.see_pod(seen.uid, listed or seen)


def compare(cluster, held):
    state = cluster.state
    for row, node in state.node_specs.items():
        there = [one for one in held.values() if one.node == node.name and one.unmanaged()]
        want = Counter[str]()
        for one in there:
            want.update(dict(one.shape.request))
        foreign = state.unmanaged[row].unmanaged if row in state.unmanaged else None
        assert (foreign.pods if foreign else 0) == len(there)
        assert dict(foreign.request if foreign else ()) == {name: amount for name, amount in want.items() if amount}
    assert cluster.reconciler.node_registry.unmanaged == sum(one.unmanaged() is not None for one in held.values())
    assert not any(uid.startswith("pod/p") for uid in cluster.reconciler.pods)


def test_a_pod_of_ours_that_is_listed_as_another_s_keeps_its_place():
    cluster = paper(nodes=1)
    cluster.put(ours("mine", 2), spec__nodeName="n0", status__phase="Running")
    cluster.step()
    mine = cluster.reconciler.pods["pod/mine"]
    cluster.reconciler.see_pod("pod/mine", UnmanagedPod("n0", mine.shape))
    cluster.step()
    assert cluster.reconciler.node_registry.unmanaged == 0
    assert len(cluster.reconciler.workloads) == 1
    cluster.remove("pod/mine")
    cluster.step()
    assert not cluster.reconciler.workloads
    assert not cluster.reconciler.pods


def test_a_pod_that_comes_to_be_ours_is_taken():
    cluster = paper(nodes=1, gates=True)
    cluster.put(pod("p", 1, scheduler="nobody"), spec__nodeName="n0", status__phase="Running")
    cluster.step()
    assert cluster.reconciler.node_registry.unmanaged == 1
    assert not cluster.reconciler.pods
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    cluster.change("pod/p", metadata__labels=labels)
    cluster.step()
    assert list(cluster.reconciler.past) == ["pod/p"]
    cluster.remove("pod/p")
    assert not cluster.reconciler.past
    assert cluster.reconciler.node_registry.unmanaged == 0


def test_a_member_of_a_group_that_leaves_us_leaves_its_group():
    cluster = paper(nodes=1, gates=True)
    gate = [{"name": "tidegate.io/admission"}]
    members = [queued(pod(f"g-{number}", 1, group=("g", 3), schedulingGates=gate)) for number in range(3)]
    for member in members[:2]:
        cluster.put(member)
    cluster.put(pod("g-0", 1, group=("g", 3)))  # neither gated nor queued any more
    cluster.put(members[2])
    assert not cluster.reconciler.workloads
    cluster.put(members[0])
    assert len(cluster.reconciler.workloads) == 1
