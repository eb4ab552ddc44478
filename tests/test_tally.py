"""Why nodes are not taken is counted by code: whatever code of the catalogue it is, there is a place for it."""

from __future__ import annotations

import numpy as np
import pytest

from builders import Cluster, fleet, job
from tidegate.engine.kernels.fifo_cycle import lack_of
from tidegate.engine.placement_rule import ready_rule
from tidegate.jit.registry import active, kernels_as
from tidegate.model.reasons.catalogue import CATALOGUE, CODES_END, NODE_REFUSALS, Reason, codes_of
from tidegate.state.score_table import TALLY_CODES

NODES = 9  # more than are scored row by row


def refused_everywhere(code: int) -> tuple[int, list[int]]:
    """Let every node refuse a pod with this code: the reason that is told, and the tally."""
    cluster = Cluster(fleet(f"{NODES}x h100x8"))
    cluster.submit(job("j", "1x1")).step()
    state = cluster.state
    state.pod_classes.match[:] = code
    state.drop_scores()
    rule, hot = ready_rule(state).rule, state.hot()
    assert hot.scores.tally.shape[1] == TALLY_CODES
    told = int(active(lack_of)(hot, rule, 0))
    return told, hot.scores.tally[0].tolist()


def assert_counted(code: int) -> None:
    told, tally = refused_everywhere(code)
    assert tally[code] == NODES == sum(tally)
    assert told == (code if code in codes_of(*NODE_REFUSALS) else Reason.NO_NODES)


def test_there_is_a_place_for_every_code():
    assert all(0 <= code < CODES_END == TALLY_CODES for code in Reason)
    assert max(CATALOGUE) < TALLY_CODES <= np.iinfo(np.int16).max


@pytest.mark.parametrize("code", [code for code in Reason if code])
def test_every_code_is_counted_where_it_belongs(code):
    assert_counted(int(code))


@pytest.mark.compiles
def test_every_code_is_counted_by_compiled_kernels_too():
    with kernels_as(compiled=True):
        for code in Reason:
            if code:
                assert_counted(int(code))
