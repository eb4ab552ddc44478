"""The queues of the day as a policy, in Kueue's words, and what they allow: arithmetic that is not Tidegate's.

Three queues share a cohort: one lends all and borrows, one lends half, one borrows a little. A fourth comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import yaml

GPU = "nvidia.com/gpu"

#: Parts of the quota, in hundredths.
_PARTS = {"a": 40, "b": 35, "c": 25}

#: Names of the queues that work is submitted to.
QUEUES = tuple(_PARTS)
LATE = "late"


class Limit(NamedTuple):
    """What a queue may use."""

    nominal: int
    borrow: int = -1  # -1: as much as others lend
    lend: int = -1  # -1: all


Limits = Mapping[str, Limit]


def limits_of(gpus: int, *, late: int = 0) -> dict[str, Limit]:
    """The limits of a day with so much quota, and of a queue that comes later."""
    owned = {name: gpus * part // 100 for name, part in _PARTS.items()}
    limits = {"a": Limit(owned["a"]), "b": Limit(owned["b"], lend=owned["b"] // 2), "c": Limit(owned["c"], borrow=16)}
    return {**limits, **({LATE: Limit(late)} if late else {})}


def policy_text(limits: Limits) -> str:
    """The policy as manifests."""
    things = [_thing("ResourceFlavor", "any", {})]
    things += [_queue(name, limit) for name, limit in limits.items()]
    things += [_thing("LocalQueue", name, {"clusterQueue": name}, namespace="default") for name in limits]
    return yaml.safe_dump_all(things, sort_keys=False)


def _thing(kind: str, name: str, spec: Mapping[str, object], **meta: str) -> dict[str, object]:
    about = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name, **meta}}
    return {**about, **({"spec": spec} if spec else {})}


def _queue(name: str, limit: Limit) -> dict[str, object]:
    gpus: dict[str, object] = {"name": GPU, "nominalQuota": limit.nominal}
    if limit.borrow >= 0:
        gpus["borrowingLimit"] = limit.borrow
    if limit.lend >= 0:
        gpus["lendingLimit"] = limit.lend
    flavor = {"name": "any", "resources": [{"name": "cpu", "nominalQuota": 10_000}, gpus]}
    spec = {
        "namespaceSelector": {},
        "cohort": "all",
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        "resourceGroups": [{"coveredResources": ["cpu", GPU], "flavors": [flavor]}],
    }
    return _thing("ClusterQueue", name, spec)


def read_limits(text: str) -> dict[str, Limit] | None:
    """The limits that a policy has; None if it is none that can be used: it has no queues, or is no YAML."""
    try:
        things = [thing for thing in yaml.safe_load_all(text) if thing]
        found = dict(_limit(thing) for thing in things if thing["kind"] == "ClusterQueue")
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None
    return found or None


def _limit(thing: Mapping[str, object]) -> tuple[str, Limit]:
    spec = thing["spec"]
    assert isinstance(spec, dict)
    resources = spec["resourceGroups"][0]["flavors"][0]["resources"]
    (gpus,) = (one for one in resources if one["name"] == GPU)
    name = thing["metadata"]["name"]  # type: ignore[index]
    return name, Limit(int(gpus["nominalQuota"]), gpus.get("borrowingLimit", -1), gpus.get("lendingLimit", -1))


def excess(limits: Limits, used: Mapping[str, int], before: Mapping[str, int] | None = None) -> str:
    """Which limit the use of queues exceeds, and by more than the use before; empty: none.

    Work of no queue in particular counts for the cohort; that of a queue which is gone holds no quota. What was
    admitted under larger limits keeps its quota: one queue may be over its limit while another starts work.
    """
    was = {} if before is None else _overdrafts(limits, before)
    over = {name: gpus for name, gpus in _overdrafts(limits, used).items() if gpus > was.get(name, 0)}
    for name in over.keys() & limits.keys():
        return f"{name} uses {used[name]} of {limits[name].nominal} and may borrow {limits[name].borrow}"
    return f"the cohort borrows {over['']} more than is lent: {dict(used)}" if over else ""


def _overdrafts(limits: Limits, used: Mapping[str, int]) -> dict[str, int]:
    """GPUs over the borrowing limit of each queue, and, under no name, over what the cohort lends."""
    used = {name: gpus for name, gpus in used.items() if name in limits or not name}
    over = {
        name: used.get(name, 0) - limit.nominal - limit.borrow for name, limit in limits.items() if limit.borrow >= 0
    }
    over[""] = sum(max(0, gpus - (limits[name].nominal if name in limits else 0)) for name, gpus in used.items())
    for name, limit in limits.items():
        free = max(0, limit.nominal - used.get(name, 0))
        over[""] -= free if limit.lend < 0 else min(free, limit.lend)
    return {name: gpus for name, gpus in over.items() if gpus > 0}
