"""The right to write, for one term: it ends with the Lease, and does not come back with the next.

A process may sleep through the end of its Lease, through another's term, and find that it leads again. What it decided
before is about a cluster that is no more: so each term asks about its own number, at the moment of each write.
"""

from __future__ import annotations

from tidegate.live.election import Election

_NEVER = -1


class LeadershipTerm:
    """The right to write."""

    def __init__(self, election: Election) -> None:
        self._election, self._term = election, _NEVER

    def begin(self) -> None:
        """We lead: this is the term that it is for."""
        self._term = self._election.term

    def holds(self) -> bool:
        """Whether the Lease is ours now, and has been without a break since the term began."""
        return self._election.leads(self._term)
