"""What the report of a shadow rests on: nodes that came and went, and work that had not started."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.console import Console

from builders import fleet, job
from tidegate.cli.shadow_report import _show
from tidegate.engine.apply import apply
from tidegate.engine.step import step
from tidegate.journal.store import JournalStep
from tidegate.live.observed_history import ObservedHistory, observe, run_twin
from tidegate.live.shadow_comparison import ShadowComparison, compare_with_twin
from tidegate.model.facts import FactKind, Facts
from tidegate.model.policy import Policy
from tidegate.model.units import HOUR_MS
from tidegate.state.cluster import ClusterState

START_MS = 1_700_000_000_000


class Shadow:
    """A shadow that is told facts by the hour, and its steps."""

    def __init__(self) -> None:
        self.state, self.steps = ClusterState(), []

    def at(self, hours: float, *tell: Callable[[Facts, int], None]) -> None:
        now_ms, facts = START_MS + round(hours * HOUR_MS), Facts()
        for one in tell:
            one(facts, now_ms)
        batch = facts.batch()
        result = step(self.state.fork(), batch, now_ms)
        apply(self.state, batch, now_ms)
        self.steps.append(JournalStep(len(self.steps), now_ms, "", batch, result))

    def observed(self) -> ObservedHistory:
        return observe(self.steps, shadow=True)

    def report(self) -> ShadowComparison:
        observed = self.observed()
        return compare_with_twin(observed, run_twin(observed))


def has_node(number: int, *, changed: bool = False, closed: bool = False):
    node = replace(fleet("2x h100x8")[number], unschedulable=closed)
    return lambda facts, now_ms: facts.node(number, node, now_ms, changed=changed)


def cordons(number: int):
    return has_node(number, changed=True, closed=True)


def loses_node(number: int):
    return lambda facts, now_ms: facts.add(FactKind.NODE_REMOVED, now_ms, number)


def comes(number: int):
    return lambda facts, now_ms: facts.submit(number, job(f"j{number}", "1x8", at=now_ms))


def starts(number: int, node: int):
    def tell(facts: Facts, now_ms: int) -> None:
        facts.add(FactKind.POD_BOUND, now_ms, number, pod=0, arg=node)
        facts.add(FactKind.POD_STARTED, now_ms, number, pod=0)

    return tell


def ends(number: int):
    return lambda facts, now_ms: facts.add(FactKind.WORKLOAD_FINISHED, now_ms, number)


def opens(facts: Facts, now_ms: int) -> None:
    facts.policy(Policy(), now_ms)


def text_of(found: ShadowComparison) -> str:
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as caught:
        _show(found, 10, console)
    return caught.get()


def replaced_node() -> Shadow:
    """One node of 8 GPUs, drained and replaced after 10 h; four jobs of 8 GPUs, 5 h each, one after the other."""
    shadow = Shadow()
    shadow.at(0, opens, has_node(0), *map(comes, range(4)))
    shadow.at(0.001, starts(0, 0))
    shadow.at(5, ends(0), starts(1, 0))
    shadow.at(8, cordons(0))
    shadow.at(10, ends(1), loses_node(0), has_node(1), starts(2, 1))
    shadow.at(15, ends(2), starts(3, 1))
    shadow.at(20, ends(3))
    return shadow


def test_the_twin_has_nodes_when_the_cluster_had_them():
    """Both nodes all along saved 20 h of waiting where nobody could have saved any."""
    found = replaced_node().report()
    assert (found.nodes, found.gpus, found.gpus_available_share) == (2, 16, pytest.approx(0.45, abs=0.001))
    assert found.happened.mean_ms == pytest.approx(7.5 * HOUR_MS, rel=0.01)
    assert found.saved_ms == pytest.approx(0, abs=HOUR_MS / 10)
    assert "4 workloads on 2 nodes with 16 GPUs, there 45 % of the time" in text_of(found)


def test_a_cordoned_node_takes_no_work_in_the_twin_either():
    shadow = Shadow()
    shadow.at(0, opens, has_node(0), has_node(1))
    shadow.at(1, cordons(1))
    shadow.at(2, comes(0), comes(1))
    shadow.at(2.001, starts(0, 0))
    shadow.at(4, has_node(1, changed=True), starts(1, 1))
    shadow.at(8, ends(0), ends(1))
    found = shadow.report()
    assert found.twin.most_ms == found.happened.most_ms == pytest.approx(2 * HOUR_MS, rel=0.01)


def test_what_ran_before_the_shadow_came_waited_nobody_knows_how_long():
    """Taken to have waited until it was first seen, it waited 120 h, all of which the twin saved."""
    shadow = Shadow()
    before = [job("j0", "1x8", at=START_MS - 120 * HOUR_MS), job("j1", "1x8", at=START_MS - HOUR_MS)]
    shadow.at(
        0, opens, has_node(0), *(lambda facts, now_ms, n=n: facts.submit(n, before[n], now_ms) for n in range(2)),
        starts(0, 0),
    )  # fmt: skip
    shadow.at(2, ends(0), starts(1, 0))
    shadow.at(3, ends(1), comes(2))
    shadow.at(3.001, starts(2, 0))
    shadow.at(4, ends(2))
    found = shadow.report()
    assert (found.workloads, found.started, found.ran_before) == (3, 2, 1)
    assert (found.happened.most_ms, found.twin.most_ms) == (3 * HOUR_MS, pytest.approx(3 * HOUR_MS, abs=10))
    assert abs(found.saved_ms) < 10_000
    assert "Already running when the shadow started, so their waits are unknown: 1." in text_of(found)
    assert all(row.waited_ms is not None for row in found.differences)


def test_nodes_that_were_there_all_along_are_not_worth_a_word():
    shadow = Shadow()
    shadow.at(0, opens, has_node(0), comes(0))
    shadow.at(1, starts(0, 0))
    shadow.at(2, ends(0))
    found = shadow.report()
    assert found.gpus_available_share == 1
    assert "of the time" not in text_of(found)


def test_a_report_says_what_had_not_started():
    """Of four, one waited 1 h and ended, two wait for 9 and 8 h so far and one left: the mean of the row is 1 h."""
    shadow = Shadow()
    shadow.at(0, opens, has_node(0), comes(0))
    shadow.at(1, starts(0, 0), comes(1), comes(3))
    shadow.at(2, comes(2))
    shadow.at(3, lambda facts, now_ms: facts.add(FactKind.WORKLOAD_CANCELLED, now_ms, 3))
    shadow.at(10)
    found = shadow.report()
    assert (found.workloads, found.started, found.happened.mean_ms) == (4, 1, HOUR_MS)
    assert (found.waiting, found.left, found.waiting_mean_ms, found.waiting_most_ms) == (
        2, 1, 8.5 * HOUR_MS, 9 * HOUR_MS,
    )  # fmt: skip
    assert "Not started at the end: 2, after 8h30m on average so far and 9h at most." in text_of(found)
    assert "Over before they started: 1." in text_of(found)
