"""Updates the score table: only nodes that changed since a class was last read are scored again."""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels import vectorized_scores
from tidegate.engine.kernels.node_fit import CHANGES, copies_on, refusal_by
from tidegate.engine.kernels.node_score import devices_score, looks_at_devices, sums_score
from tidegate.engine.kernels.placement_rule import RANDOM, Rule
from tidegate.jit.registry import COMPILED, inlined, kernel
from tidegate.model.arrays import I32, I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.score_table import BLOCK, STALE, Scores
from tidegate.state.tables import nodes, pod_classes

#: So few nodes are quicker by the row, even in plain Python.
_FEW = 6

DRAWS = int(Counter.RANDOM)


@inlined
def refresh(hot: Hot, rule: Rule, k: int) -> None:
    """Update the row of class k."""
    scores = hot.scores
    seen, latest = int(scores.cursor[k]), int(hot.counters[CHANGES])
    if seen == latest:
        return
    scores.cursor[k] = latest
    scores.seen[0] = latest
    if seen >= 0 and latest == seen + 1:
        rescore(hot, rule, k, int(hot.changes[seen]))
        return
    everything = seen < 0 or latest - seen > scores.used[0]
    if everything:
        clear_row(hot, k)
    if not COMPILED:
        node_rows = scores.at_rank[: scores.used[0]] if everything else hot.changes[seen:latest]
        rescore_at_once(hot, rule, k, node_rows, seen)
    elif everything:
        for at in range(scores.used[0]):
            rescore(hot, rule, k, scores.at_rank[at])
    else:
        for at in range(seen, latest):
            # A node that changed several times is scored once: at its latest entry.
            if hot.nodes[hot.changes[at], nodes.CHANGED_AT] == at:
                rescore(hot, rule, k, hot.changes[at])


@inlined
def clear_row(hot: Hot, k: int) -> None:
    """Clear the row of class k."""
    scores = hot.scores
    scores.headroom[k] = 0
    scores.copies[k, :] = 0
    scores.score[k, :] = -1
    scores.block[k, :] = -1
    scores.tally[k, :] = 0
    scores.tally[k, 1] = scores.used[0]  # what a score of -1 means
    scores.counted[k] = STALE


@inlined
def rescore(hot: Hot, rule: Rule, k: int, n: int) -> None:
    """Score node n for class k, and update what is derived from the scores."""
    scores = hot.scores
    node = hot.nodes[n] if COMPILED else hot.nodes[n].tolist()
    pod = hot.pod_classes[k] if COMPILED else hot.pod_classes[k].tolist()
    fresh, copies, at = -refusal_by(hot, k, n, node, pod), 0, node[nodes.RANK]
    if fresh == 0:
        fresh = devices_score(hot, rule, k, n) if looks_at_devices(rule.kind) else sums_score(rule, node, pod)
    if pod[pod_classes.GANG] == 1:
        if fresh >= 0:
            copies = copies_on(hot, k, n, node, pod)
        had = scores.copies[k, at]
        if copies != had:
            scores.headroom[k] += copies - had
            scores.copies[k, at] = copies
    old = scores.score[k, at]
    scores.score[k, at] = fresh
    if not COMPILED or fresh == old:
        return
    scores.tally[k, -min(old, 0)] -= 1
    scores.tally[k, -min(fresh, 0)] += 1
    b = at // BLOCK
    if fresh >= scores.block[k, b]:
        scores.block[k, b] = fresh
    elif old == scores.block[k, b]:
        scores.block[k, b] = highest(scores.score[k], b * BLOCK, (b + 1) * BLOCK)


def rescore_at_once(hot: Hot, rule: Rule, k: int, node_rows: I64, seen: int) -> None:
    """Rescore many nodes at once, for class k and for every other class that has seen as many changes as it had."""
    if len(node_rows) <= _FEW or looks_at_devices(rule.kind) or hot.pod_classes[k, pod_classes.VRAM] > 0:
        for n in node_rows.tolist():
            rescore(hot, rule, k, n)
        return
    cursor, latest = hot.scores.cursor, hot.counters[CHANGES]
    behind = (cursor >= max(seen, 0)) & (cursor < latest) & (hot.pod_classes[:, pod_classes.VRAM] == 0)
    behind[k] = True
    classes = np.flatnonzero(behind)
    vectorized_scores.rescore(hot, rule, classes, node_rows)
    cursor[classes] = latest


@inlined
def count_nodes(hot: Hot, k: int) -> None:
    """Update the tally of class k: the plain run counts only when it is read."""
    scores = hot.scores
    if not COMPILED and scores.counted[k] != scores.cursor[k]:
        scores.counted[k] = scores.cursor[k]
        scores.tally[k] = vectorized_scores.tally(hot, k)


@inlined
def fits_somewhere(hot: Hot, k: int) -> bool:
    """Whether some node fits class k."""
    return bool(hot.scores.tally[k, 0] > 0 if COMPILED else hot.scores.score[k, first_highest(hot.scores, k)] >= 0)


@inlined
def best_node(hot: Hot, rule: Rule, k: int) -> int:
    """The node with the highest score for class k, the lowest rank among equals; -1 if it fits nowhere."""
    scores = hot.scores
    refresh(hot, rule, k)
    if rule.kind == RANDOM:
        count_nodes(hot, k)
        fitting = scores.tally[k, 0]
        return int(scores.at_rank[nth_at_least(scores.score[k], 0, draw(hot, rule, fitting))]) if fitting > 0 else -1
    at = first_highest(scores, k)
    return int(scores.at_rank[at]) if scores.score[k, at] >= 0 else -1


@inlined
def first_highest(scores: Scores, k: int) -> int:
    """The first position with the highest score of class k."""
    if not COMPILED:
        return int(scores.score[k].argmax())
    best = highest(scores.block[k], 0, scores.block.shape[1])
    first = first_equal(scores.block[k], best, 0) * BLOCK
    return first_equal(scores.score[k], best, first)


@inlined
def highest(values: I32, start: int, end: int) -> int:
    """The highest value in a range. Without its index the loop runs on many values at once."""
    best = values[start]
    for i in range(start + 1, end):
        best = max(best, values[i])
    return int(best)


@inlined
def first_equal(values: I32, wanted: int, start: int) -> int:
    """The index of the first value, from a start, that is the wanted one."""
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
    """A uniform draw from 0 to below - 1, from the rule's seed and the number of draws so far."""
    hot.counters[DRAWS] += 1
    # A mixing function of 31 bits, so that nothing overflows whether compiled or plain.
    x = ((rule.seed & 0x7FFFFFFF) * 1_000_003 + hot.counters[DRAWS]) & 0x7FFFFFFF
    for _ in range(3):
        x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
        x = ((x ^ (x >> 12)) * 0x297A2D39) & 0x7FFFFFFF
        x = x ^ (x >> 15)
    return int((x * below) >> 31)
