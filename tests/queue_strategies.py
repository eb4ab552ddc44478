"""Hypothesis strategies for shares: flavors, cohorts, queues, and work that asks them for quota."""

from __future__ import annotations

from hypothesis import strategies as st

from strategies import protections
from tidegate.model.hardware import Taint
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import (
    Cohort,
    FairSharing,
    FairStrategy,
    Flavor,
    FlavorGroup,
    FlavorMove,
    FlavorPreference,
    Fungibility,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
)
from tidegate.model.work import GpuRequest, PodSet, Share, Toleration, Work, Workload

FLAVORS = ("od", "spot")
QUEUES = ("qa", "qb", "qc", "qd")
EITHER = st.booleans()
_limits = st.one_of(st.none(), st.integers(0, 6))


@st.composite
def quotas(draw, flavors: tuple[str, ...], *, cohort: bool):
    """Quota of GPUs and CPU in each of the flavors."""
    made = []
    for flavor in flavors:
        for resource in ("cpu", "gpu"):
            nominal = draw(st.integers(0, 8))
            lend = draw(_limits) if cohort else None
            made.append(
                Quota(
                    flavor=flavor,
                    resource=resource,
                    nominal=nominal,
                    borrow_limit=draw(_limits) if cohort else None,
                    lend_limit=None if lend is None else min(lend, nominal),
                )
            )
    return tuple(made)


@st.composite
def preemption_rules(draw):
    """Any rule that Kueue accepts."""
    reclaim = draw(st.sampled_from([PreemptWhom.NEVER, PreemptWhom.LOWER_PRIORITY, PreemptWhom.ANY]))
    borrows = [PreemptWhom.NEVER] if reclaim is PreemptWhom.NEVER else [PreemptWhom.NEVER, PreemptWhom.LOWER_PRIORITY]
    within = [PreemptWhom.NEVER, PreemptWhom.LOWER_PRIORITY, PreemptWhom.LOWER_OR_NEWER]
    return PreemptionRule(
        within_queue=draw(st.sampled_from(within)),
        reclaim_in_cohort=reclaim,
        borrow_in_cohort=draw(st.sampled_from(borrows)),
        borrow_priority_threshold=draw(st.one_of(st.none(), st.integers(0, 5))),
    )


_moves = st.builds(
    Fungibility,
    when_can_borrow=st.sampled_from(list(FlavorMove)),
    when_can_preempt=st.sampled_from(list(FlavorMove)),
    preference=st.sampled_from(list(FlavorPreference)),
)


@st.composite
def queues(draw, name: str, cohorts: list[str]):
    """A queue, alone or in a cohort."""
    flavors = FLAVORS[: draw(st.integers(1, 2))]
    cohort = draw(st.sampled_from(["", *cohorts]))
    return Queue(
        name=name,
        cohort=cohort,
        groups=(FlavorGroup(resources=("cpu", "gpu"), flavors=flavors),),
        quotas=draw(quotas(flavors, cohort=bool(cohort))),
        preemption=draw(preemption_rules()),
        fungibility=draw(_moves),
        weight_milli=draw(st.sampled_from([0, 500, 1000, 1000, 3000])),
        strict_fifo=draw(st.booleans()),
    )


@st.composite
def shares(draw, fair=EITHER):
    """A tree of one to three levels."""
    cohorts = [
        Cohort(name="root", quotas=draw(quotas(FLAVORS[:1], cohort=False))),
        Cohort(name="left", parent="root", quotas=draw(quotas(FLAVORS[:1], cohort=True))),
        Cohort(name="lone"),
    ]
    made = tuple(draw(queues(name, [cohort.name for cohort in cohorts])) for name in QUEUES)
    flavors = (Flavor(name="od"), Flavor(name="spot", node_taints=(Taint(key="spot"),)))
    return QueueSetup(flavors=flavors, cohorts=tuple(cohorts), queues=made, fair=FairSharing() if draw(fair) else None)


@st.composite
def contended_shares(draw):
    """Queues that own little of what they share fairly, and may preempt each other: where loops come from."""
    flavor = FLAVORS[:1]
    whom = st.sampled_from([PreemptWhom.LOWER_PRIORITY, PreemptWhom.LOWER_OR_NEWER])
    made = tuple(
        Queue(
            name=name,
            cohort="root",
            groups=(FlavorGroup(resources=("gpu",), flavors=flavor),),
            quotas=(Quota(flavor="od", resource="gpu", nominal=draw(st.sampled_from([0, 0, 2]))),),
            preemption=PreemptionRule(within_queue=draw(whom), reclaim_in_cohort=PreemptWhom.ANY),
            weight_milli=draw(st.sampled_from([1000, 1000, 2000])),
        )
        for name in QUEUES[: draw(st.integers(2, 3))]
    )
    cohort = Cohort(name="root", quotas=(Quota(flavor="od", resource="gpu", nominal=draw(st.integers(6, 12))),))
    strategies = draw(st.sampled_from([tuple(FairStrategy), tuple(FairStrategy)[:1], tuple(FairStrategy)[1:]]))
    return QueueSetup(
        flavors=(Flavor(name="od"),), cohorts=(cohort,), queues=made, fair=FairSharing(strategies=strategies)
    )


@st.composite
def contended_asks(draw, number: int):
    """A workload that asks for a good part of what there is."""
    pod_set = PodSet(count=1, charge=(("gpu", draw(st.integers(1, 6))),))
    work = Work(
        queue=draw(st.sampled_from(QUEUES[:3])), priority=draw(st.sampled_from([0, 0, 1, 2])), pod_sets=(pod_set,)
    )
    return Workload(id=f"w{number:03d}", work=work, submitted_ms=number)


@st.composite
def policies(draw, fair=EITHER):
    """A policy that admits by quota alone."""
    return Policy(admission=AdmissionKind.KUEUE, shares=draw(shares(fair)))


@st.composite
def asks(draw, number: int, at_ms: int, *, protects: bool = True):
    """A workload that asks for quota, maybe content with fewer pods."""
    count, gpus = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    pod_set = PodSet(
        count=count,
        min_count=draw(st.sampled_from([0, 0, 1])) if count > 1 else 0,
        charge=(("cpu", draw(st.integers(0, 3))), ("gpu", gpus)),
        gpu=GpuRequest(share=Share.WHOLE, count=gpus),  # where there are nodes
        tolerations=draw(st.sampled_from([(), (Toleration(key="spot"),)])),
    )
    work = Work(
        queue=draw(st.sampled_from([*QUEUES, "nowhere"])),
        priority=draw(st.sampled_from([0, 0, 3, 7])),
        pod_sets=(pod_set,),
        **(draw(protections) if protects else {}),
    )
    return Workload(id=f"w{number:03d}", work=work, submitted_ms=max(at_ms + draw(st.integers(-2, 2)), 0))
