"""The words for who may use how much: quotas, flavors, cohorts and queues. The semantics are Kueue's.

Must not know: usage, workloads.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.model.hardware import Taint
from tidegate.model.spec import Labels, Spec
from tidegate.model.work import Toleration


class Quota(Spec, frozen=True):
    """What a queue or cohort owns of one resource in one flavor."""

    flavor: str
    resource: str
    nominal: int
    borrow_limit: int | None = None  # None: no limit
    lend_limit: int | None = None  # None: all of it


class Flavor(Spec, frozen=True):
    """A kind of capacity that quota is counted in."""

    name: str
    node_labels: Labels = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class Cohort(Spec, frozen=True):
    """Queues that lend to each other."""

    name: str
    parent: str = ""
    quotas: tuple[Quota, ...] = ()
    weight_milli: int = 1000


class PreemptWhom(StrEnum):
    """Whom a rule allows to preempt."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class PreemptionRule(Spec, frozen=True):
    """When a queue's work may preempt."""

    within_queue: PreemptWhom = PreemptWhom.NEVER
    reclaim_in_cohort: PreemptWhom = PreemptWhom.NEVER
    borrow_in_cohort: PreemptWhom = PreemptWhom.NEVER
    borrow_priority_threshold: int | None = None


class Queue(Spec, frozen=True):
    """Where work waits."""

    name: str
    cohort: str = ""
    quotas: tuple[Quota, ...] = ()
    preemption: PreemptionRule = PreemptionRule()
    weight_milli: int = 1000
    strict_fifo: bool = False
    cordoned: bool = False
