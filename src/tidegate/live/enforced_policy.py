"""The policy of a tidegate.yaml as a cluster enforces it: quota by resource names, queues by LocalQueue names."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tidegate.config.convert_queues import groups_of
from tidegate.model.hardware import DEVICES
from tidegate.model.policy import OrderKind, Policy
from tidegate.model.queues import LocalQueue, QueueSetup, Quota, in_any_namespace
from tidegate.model.units import WHOLE_MILLI

#: GPUs as a tidegate.yaml counts them, in thousandths, and the resource that pods ask for them by.
_GPU, _WHOLE_GPU = "gpu", "nvidia.com/gpu"

_LEFT = "how long work still runs, which no object of a cluster shows"

#: Orders that a cluster cannot enforce, and what they need.
_REFUSED_ORDERS = {
    OrderKind.SRTF: _LEFT,
    OrderKind.SRSF: _LEFT,
    OrderKind.LAS: "how long work has run, which is not handed over from one leader to the next",
}


def obstacles(policy: Policy) -> list[str]:
    """What a cluster cannot enforce of a policy, each with the field and what to write instead."""
    found = []
    order = policy.order.kind
    if order in _REFUSED_ORDERS:
        found.append(
            f"policy.order: expected fifo on a cluster, found {order}, which goes by {_REFUSED_ORDERS[order]}; "
            f"write `order: fifo`, or try {order} in the twin (tidegate simulate)"
        )
    if not policy.waits:
        found.append(
            "policy.waits: expected true on a cluster, found false: a Job that does not fit at once cannot be sent "
            "back, it stays and waits; leave it out"
        )
    return found + list(_part_gpus(policy.shares))


def _part_gpus(shares: QueueSetup) -> Iterator[str]:
    """Quotas of fractions of a GPU: device plugins give whole ones."""
    owners = [("queues", one.name, one.quotas) for one in shares.queues]
    owners += [("cohorts", one.name, one.quotas) for one in shares.cohorts]
    for kind, name, quotas in owners:
        for quota in quotas:
            limits = {"gpus": quota.nominal, "borrow.gpus": quota.borrow_limit, "lend.gpus": quota.lend_limit}
            for field, milli in limits.items() if quota.resource == _GPU else ():
                if milli is not None and milli % WHOLE_MILLI:
                    yield (
                        f"policy.{kind}[{name}].{field}: expected whole GPUs on a cluster, where pods ask for "
                        f"{_WHOLE_GPU}, found {milli / WHOLE_MILLI:g}; write {-(-milli // WHOLE_MILLI)}"
                    )


def enforced(policy: Policy) -> Policy:
    """The policy with the names of a cluster; `obstacles` found nothing in it."""
    shares = policy.shares
    if not shares.queues:
        return policy
    counts = shares.ignore_undeclared  # a resource without quota would be free
    queues = []
    for queue in shares.queues:
        quotas = _quotas(queue.quotas, zeros=counts)
        queues.append(replace(queue, quotas=quotas, groups=groups_of(quotas)))
    cohorts = tuple(replace(cohort, quotas=_quotas(cohort.quotas, zeros=False)) for cohort in shares.cohorts)
    shares = replace(shares, queues=tuple(queues), cohorts=cohorts, entrances=_local_queues(shares))
    return replace(policy, shares=_renamed_weights(shares))


def _quotas(quotas: tuple[Quota, ...], *, zeros: bool) -> tuple[Quota, ...]:
    """Quotas by the resource names of pods; `zeros`: GPUs that `gpus` does not count have a quota of none."""
    made, declared = [], {(quota.flavor, quota.resource) for quota in quotas}
    for quota in quotas:
        if quota.resource != _GPU:
            made.append(quota)
            continue
        made.append(_whole(quota))
        others = (_GPU, *(name for name in DEVICES if name != _WHOLE_GPU)) if zeros else ()
        made += [
            Quota(flavor=quota.flavor, resource=name, nominal=0, borrow_limit=0)
            for name in others
            if (quota.flavor, name) not in declared - {(quota.flavor, _GPU)}
        ]
    return tuple(made)


def _whole(quota: Quota) -> Quota:
    borrow, lend = quota.borrow_limit, quota.lend_limit
    return replace(
        quota,
        resource=_WHOLE_GPU,
        nominal=quota.nominal // WHOLE_MILLI,
        borrow_limit=None if borrow is None else borrow // WHOLE_MILLI,
        lend_limit=None if lend is None else lend // WHOLE_MILLI,
    )


def _local_queues(shares: QueueSetup) -> tuple[LocalQueue, ...]:
    """The LocalQueues: entrances as NAMESPACE/NAME, those without a namespace in every one.

    A queue has one of its own name in every namespace, unless it lists LocalQueues of namespaces.
    """
    made = {
        entrance.id if "/" in entrance.id else in_any_namespace(entrance.id): entrance for entrance in shares.entrances
    }
    bound = {entrance.queue for entrance in shares.entrances if "/" in entrance.id}
    for queue in shares.queues:
        if queue.name not in bound:
            made.setdefault(in_any_namespace(queue.name), LocalQueue(id="", queue=queue.name))
    return tuple(replace(entrance, id=name) for name, entrance in made.items())


def _renamed_weights(shares: QueueSetup) -> QueueSetup:
    if shares.usage is None:
        return shares
    weights = {(_WHOLE_GPU if name == _GPU else name): weight for name, weight in shares.usage.weights_milli}
    return replace(shares, usage=replace(shares.usage, weights_milli=tuple(sorted(weights.items()))))
