"""What the kernels of a cycle over the queues hand on to each other."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.engine.kernels.cycle_scratch import CycleScratch
from tidegate.engine.kernels.gang_placement import Output
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaView


class Cycle(NamedTuple):
    """The state, the placement rule, all quota tables, the scratch of the cycle, and its decisions."""

    hot: Hot
    rule: Rule
    view: QuotaView
    scratch: CycleScratch
    out: Output
