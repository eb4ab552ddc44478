"""Kernels compiled ahead of time, while an image is built: `python -m tidegate.deploy.kernels`.

They go where the program will look for them (XDG_CACHE_HOME).
Must not know: what an image is.
"""

from __future__ import annotations

from tidegate.live.warming import warm_up
from tidegate.model.policy import Policy
from tidegate.model.shares import Flavor, FlavorGroup, PreemptionRule, PreemptWhom, Queue, Quota, Shares

#: What policies need kernels for: places alone, and queues with quota whose work may be sent away.
_LOWER = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
_QUOTAS = (Quota("any", "gpu", 8_000), Quota("any", "cpu", 1_000_000))
_GROUP = FlavorGroup(("gpu", "cpu"), ("any",))
POLICIES = (
    Policy(),
    Policy(
        shares=Shares(
            flavors=(Flavor("any"),),
            queues=tuple(Queue(name, "all", (_GROUP,), _QUOTAS, _LOWER) for name in ("a", "b")),
        )
    ),
)


def compile_ahead(*, compiled: bool = True) -> None:
    """Compile what policies need; plain, nothing is compiled, and it is only tried."""
    for policy in POLICIES:
        warm_up(policy, compiled=compiled)


if __name__ == "__main__":
    compile_ahead()
