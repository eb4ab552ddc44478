"""A cluster whose nodes open for new work and close again, at times that are known from the start.

What runs on a node that closes runs on to its end: a drain is not simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from tidegate.model.facts import Facts
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy
from tidegate.model.simulation import TwinOptions
from tidegate.sim.submissions import TwinJobs
from tidegate.sim.world import SimWorld


class Opening(NamedTuple):
    """A node opens for new work, or closes."""

    at_ms: int
    node: int  # row
    opens: bool


class OpeningWorld(SimWorld):
    """A cluster whose nodes are closed at first, but for those that open at once."""

    def __init__(
        self, nodes: Sequence[Node], jobs: TwinJobs, policy: Policy, options: TwinOptions, openings: Sequence[Opening]
    ) -> None:
        self._openings = sorted(openings, key=lambda opening: opening.at_ms)[::-1]  # the next is the last
        super().__init__([_turned(node, opens=False) for node in nodes], jobs, policy, options)
        for opening in self._openings_due():
            self._open_or_close(opening)

    def _open_or_close(self, opening: Opening) -> None:
        self.nodes[opening.node] = _turned(self.nodes[opening.node], opens=opening.opens)

    def _openings_due(self) -> Iterator[Opening]:
        while self._openings and self._openings[-1].at_ms <= self._now_ms:
            yield self._openings.pop()

    def _submit_due(self, facts: Facts) -> None:
        for opening in self._openings_due():
            self._open_or_close(opening)
            facts.node(opening.node, self.nodes[opening.node], self._now_ms, changed=True)
        super()._submit_due(facts)

    def _next_ms(self) -> int | None:
        times = [super()._next_ms(), self._openings[-1].at_ms if self._openings else None]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _is_settled(self) -> bool:
        return not self._openings and super()._is_settled()


def _turned(node: Node, *, opens: bool) -> Node:
    return msgspec.structs.replace(node, unschedulable=not opens)
