"""How well an entry fits once it needs spots too: now, without others' work, or never.

Must not know: how flavors or victims are found.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import (
    FIT,
    I_LOT,
    I_MODE,
    NO_FIT,
    PREEMPT,
    X_AGAIN,
    X_CLASS,
    X_CODE,
    X_LOT,
    X_MISSING,
    X_MODE,
    Desk,
    Heads,
)
from tidegate.engine.kernels.domain_assignment import (
    ask_topology,
    forget_found,
    keep_found,
    search_as_if_empty,
    search_spots,
)
from tidegate.engine.topology.cycle_view import G_ASKED, Grove
from tidegate.engine.topology.search_buffers import A_FITS, A_NEEDED, A_QUESTION, Q_LEADER_SET, Q_SET
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.topology_failures import TopologyFailure
from tidegate.state.quota_tables import A_POD_SET, D_ASKS, D_FIRST_ASK, M_ORDINAL, Again, Book

NO_FLAVOR = int(Reason.NO_FLAVOR)
FLAVOR_TOPOLOGY = int(Reason.FLAVOR_TOPOLOGY)
TOPOLOGY_UNFIT = int(Reason.TOPOLOGY_UNFIT)
TOPOLOGY_TOO_SMALL = int(Reason.TOPOLOGY_TOO_SMALL)
TOPOLOGY_MISASKED = int(Reason.TOPOLOGY_MISASKED)
LACKS_ROOM, LACKS_LEADER, NO_DOMAINS = (
    int(TopologyFailure.LACKS_ROOM),
    int(TopologyFailure.LACKS_LEADER),
    int(TopologyFailure.NO_DOMAINS),
)
UNSETTLED, STALE, NO_REPLACEMENT = (
    int(TopologyFailure.UNSETTLED),
    int(TopologyFailure.STALE),
    int(TopologyFailure.NO_REPLACEMENT),
)
FAILED = int(Again.FAILED)


@inlined
def weigh_topology(book: Book, d: Desk, grove: Grove | None, e: int) -> None:
    """See how well an entry fits once it needs spots too: what has no room now may have some without others' work."""
    if grove is not None:
        entry = d.heads.entries[e]
        if entry[X_MODE] != NO_FIT:
            entry[X_MODE] = weigh_spots(book, d.heads, grove, e, entry[X_MODE])


@kernel
def weigh_spots(book: Book, heads: Heads, grove: Grove, e: int, mode: int) -> int:
    """Find spots for an entry that quota would do for; or see whether they could be had if nothing of ours ran."""
    entry, again = heads.entries[e], heads.entries[e, X_AGAIN]
    forget_found(entry)
    if not ask_topology(book, heads, grove, e):
        entry[X_CODE], entry[X_MISSING] = NO_FLAVOR, FLAVOR_TOPOLOGY
        return NO_FIT
    if mode == FIT:
        code = search_spots(grove, 0)
        if code == 0:
            keep_found(book, heads, grove, e)
            return FIT
        note_misfit(entry, grove, code, TOPOLOGY_UNFIT)
        needs_preemption(book, heads, e, grove.asked[grove.answer.numbers[A_QUESTION]])
        mode = PREEMPT
    if again != FAILED and grove.marks[G_ASKED] > 0:  # nobody has to go for work that lost a node
        code = search_as_if_empty(grove)
        if code != 0:
            note_misfit(entry, grove, code, TOPOLOGY_TOO_SMALL)
            return NO_FIT
        for i in range(grove.marks[G_ASKED]):
            needs_preemption(book, heads, e, grove.asked[i])
    return mode


@inlined
def note_misfit(entry: I64, grove: Grove, code: int, reason: int) -> None:
    """Remember that there are no spots: how many slices would fit, of how many; or what is wrong with the request."""
    numbers = grove.answer.numbers
    entry[X_CODE], entry[X_LOT], entry[X_MISSING] = reason, numbers[A_FITS], numbers[A_NEEDED]
    if code not in (LACKS_ROOM, LACKS_LEADER, NO_DOMAINS, UNSETTLED, STALE, NO_REPLACEMENT):
        entry[X_CODE], entry[X_LOT], entry[X_MISSING] = TOPOLOGY_MISASKED, code, 0


@kernel
def needs_preemption(book: Book, heads: Heads, e: int, question: I64) -> None:
    """All that the pod sets of a question were assigned takes preemption: quota is there, but in the wrong place."""
    asked, w = book.asked, heads.entries[e, X_CLASS]
    first = asked.demands[w, D_FIRST_ASK]
    for a in range(asked.demands[w, D_ASKS]):
        ordinal = asked.needs[asked.asks[first + a, A_POD_SET], M_ORDINAL]
        if ordinal in (question[Q_SET], question[Q_LEADER_SET]) and heads.choice[e, I_LOT, a] != 0:
            heads.choice[e, I_MODE, a] = PREEMPT
