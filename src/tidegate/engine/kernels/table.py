"""The score table kept up to date: only nodes that changed since a class was last asked for are scored again.

Must not know: what a score is made of.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels import by_column
from tidegate.engine.kernels.fit import CHANGES, copies_on, refusal
from tidegate.engine.kernels.registry import COMPILED, inlined, kernel
from tidegate.engine.kernels.rule import RANDOM, Rule
from tidegate.engine.kernels.score import devices_score, looks_at_devices, sums_score
from tidegate.model.columns import I32, I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.scores import BLOCK, TALLY_CODES
from tidegate.state.tables import C_GANG, C_VRAM, N_CHANGED_AT, N_RANK

#: So few nodes are quicker by the row, even in plain Python.
_FEW = 6

DRAWS = int(Counter.RANDOM)


@inlined
def refresh(hot: Hot, rule: Rule, k: int) -> None:
    """Bring the row of class k up to date."""
    scores = hot.scores
    seen, latest = scores.cursor[k], hot.counters[CHANGES]
    if seen == latest:
        return
    scores.cursor[k] = latest
    if seen >= 0 and latest == seen + 1:
        rescore(hot, rule, k, hot.changes[seen])
        return
    if seen < 0 or latest - seen > scores.used[0]:
        clear_row(hot, k)
        nodes = scores.at_rank[: scores.used[0]]
        if COMPILED:
            for i in range(len(nodes)):
                rescore(hot, rule, k, nodes[i])
        else:
            rescore_at_once(hot, rule, k, nodes)
    elif COMPILED:
        for at in range(seen, latest):
            # A node that changed several times is scored once: at its latest entry.
            if hot.nodes[hot.changes[at], N_CHANGED_AT] == at:
                rescore(hot, rule, k, hot.changes[at])
    else:
        nodes = hot.changes[seen:latest]
        rescore_at_once(hot, rule, k, nodes[hot.nodes[nodes, N_CHANGED_AT] == np.arange(seen, latest)])


@inlined
def clear_row(hot: Hot, k: int) -> None:
    """Forget everything about class k."""
    scores = hot.scores
    scores.headroom[k] = 0
    scores.copies[k, :] = 0
    scores.score[k, :] = -1
    scores.block[k, :] = -1
    scores.tally[k, :] = 0
    scores.tally[k, 1] = scores.used[0]  # what a score of -1 says


@inlined
def rescore(hot: Hot, rule: Rule, k: int, n: int) -> None:
    """Score node n for class k, and bring what is derived from the scores up to date."""
    scores, at = hot.scores, hot.nodes[n, N_RANK]
    fresh, copies = score_of(hot, rule, k, n), 0
    old = scores.score[k, at]
    scores.tally[k, -min(old, 0)] -= 1
    scores.tally[k, -min(fresh, 0)] += 1
    scores.score[k, at] = fresh
    if hot.pod_classes[k, C_GANG] == 1:
        if fresh >= 0:
            copies = copies_on(hot, k, n)
        scores.headroom[k] += copies - scores.copies[k, at]
        scores.copies[k, at] = copies
    b = at // BLOCK
    if fresh >= scores.block[k, b]:
        scores.block[k, b] = fresh
    elif old == scores.block[k, b]:
        scores.block[k, b] = highest(scores.score[k], b * BLOCK, (b + 1) * BLOCK)


@inlined
def score_of(hot: Hot, rule: Rule, k: int, n: int) -> int:
    """The score of node n for class k; minus the Reason if it does not fit."""
    code = refusal(hot, k, n)
    if code != 0:
        return -code
    if looks_at_devices(rule.kind):
        return devices_score(hot, rule, k, n)
    return sums_score(hot, rule, k, n)


def rescore_at_once(hot: Hot, rule: Rule, k: int, nodes: I64) -> None:
    """What `rescore` does, for many nodes in one go."""
    if len(nodes) <= _FEW or looks_at_devices(rule.kind) or hot.pod_classes[k, C_VRAM] > 0:
        for n in nodes.tolist():
            rescore(hot, rule, k, n)
        return
    scores, at = hot.scores, hot.nodes[nodes, N_RANK]
    codes = by_column.refusals(hot, k, nodes)
    fresh = np.where(codes == 0, by_column.sums_scores(hot, rule, k, nodes), -codes)
    scores.tally[k] -= np.bincount(-np.minimum(scores.score[k][at], 0), minlength=TALLY_CODES)
    scores.tally[k] += np.bincount(-np.minimum(fresh, 0), minlength=TALLY_CODES)
    scores.score[k, at] = fresh
    if hot.pod_classes[k, C_GANG]:
        copies = np.where(fresh >= 0, by_column.copies(hot, k, nodes), 0)
        scores.headroom[k] += np.sum(copies) - np.sum(scores.copies[k, at])
        scores.copies[k, at] = copies
    blocks = np.unique(at // BLOCK)
    scores.block[k, blocks] = scores.score[k].reshape(-1, BLOCK)[blocks].max(axis=1)


@inlined
def best_node(hot: Hot, rule: Rule, k: int) -> int:
    """The node with the highest score for class k, the lowest rank among equals; -1 if it fits nowhere."""
    scores = hot.scores
    refresh(hot, rule, k)
    if scores.tally[k, 0] == 0:
        return -1
    if rule.kind == RANDOM:
        return int(scores.at_rank[nth_at_least(scores.score[k], 0, draw(hot, rule, scores.tally[k, 0]))])
    best = highest(scores.block[k], 0, scores.block.shape[1])
    first = first_equal(scores.block[k], best, 0) * BLOCK
    return int(scores.at_rank[first_equal(scores.score[k], best, first)])


@inlined
def highest(values: I32, start: int, end: int) -> int:
    """The highest value in a stretch. Without its index the loop runs on many values at once."""
    if not COMPILED:
        return int(values[start:end].max())
    best = values[start]
    for i in range(start + 1, end):
        best = max(best, values[i])
    return int(best)


@inlined
def first_equal(values: I32, wanted: int, start: int) -> int:
    """The index of the first value, from a start, that is the wanted one."""
    if not COMPILED:
        return start + int((values[start:] == wanted).argmax())
    i = start
    while values[i] != wanted:
        i += 1
    return i


@kernel
def nth_at_least(values: I64, least: int, n: int) -> int:
    """The index of the n-th value, from 0, that is at least so much."""
    for i in range(len(values)):
        if values[i] >= least:
            if n == 0:
                return i
            n -= 1
    return -1


@kernel
def draw(hot: Hot, rule: Rule, below: int) -> int:
    """An even draw from 0 to below - 1, from the rule's seed and the number of draws so far."""
    hot.counters[DRAWS] += 1
    # A mixing function of 31 bits, so that nothing overflows whether compiled or plain.
    x = ((rule.seed & 0x7FFFFFFF) * 1_000_003 + hot.counters[DRAWS]) & 0x7FFFFFFF
    for _ in range(3):
        x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
        x = ((x ^ (x >> 12)) * 0x297A2D39) & 0x7FFFFFFF
        x = x ^ (x >> 15)
    return int((x * below) >> 31)
