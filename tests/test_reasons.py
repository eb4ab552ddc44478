"""The reason catalogue in words, and the page made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Cluster, job
from reasons_file import REASONS, counts, reasons_text
from tidegate.engine.kernels.fifo_cycle import KINDS, LACKS, REFUSALS, lack_of
from tidegate.engine.placement_rule import ready_rule
from tidegate.journal.decision_text import reason_text
from tidegate.model.reasons.catalogue import (
    CATALOGUE,
    CODES_END,
    NODE_REFUSALS,
    ROOM_CODES,
    Reason,
    codes_of,
)
from tidegate.state.cluster import Counter
from tidegate.state.score_table import TALLY_CODES

ROOT = Path(__file__).parent.parent


def test_the_page_of_reasons_is_up_to_date():
    assert REASONS.read_text() == reasons_text(), "run .venv/bin/python tests/reasons_file.py"


def test_the_page_has_every_reason_once_and_links_to_it():
    page = REASONS.read_text()
    for reason in CATALOGUE:
        assert page.count(f"\n## {reason.name}\n{reason.value}: ") == 1
        assert f"| {reason.value} | [`{reason.name}`](#{reason.name.lower()}) |" in page
    assert len(re.findall(r"^## ", page, re.MULTILINE)) == len(CATALOGUE)


def test_other_pages_link_to_it():
    assert "(docs/reasons.md)" in (ROOT / "README.md").read_text()
    assert "(reasons.md)" in (ROOT / "docs" / "concepts.md").read_text()


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=lambda spec: spec.reason.name)
def test_evidence_has_units_and_sentences_have_an_end(spec):
    assert len(spec.evidence) <= 4
    for name in spec.evidence:
        assert counts(name)[0]
    assert set(re.findall(r"\{(\w+)\}", spec.template)) <= set(spec.evidence)
    assert spec.lift.endswith(".")
    assert not spec.template.endswith(".")


def test_evidence_without_a_unit_is_refused():
    with pytest.raises(LookupError, match="evidence 'luck' has no unit: say what it counts in tests/reasons_file"):
        counts("luck")


@pytest.mark.parametrize(
    ("reason", "evidence", "text"),
    [
        (Reason.LACKS_GPU, (8, 1, 4), "no node has 8 idle GPUs for its next pod; 1 of 4 pods would fit now"),
        (Reason.LACKS_FRACTION, (500, 0, 1), "no device has 0.5 of a GPU left; 0 of 1 pods would fit now"),
        (
            Reason.LACKS_GPU_MEMORY,
            (30_720, 0, 1),
            "no GPU with enough left has 30Gi of memory free; 0 of 1 pods would fit now",
        ),
        (
            Reason.LACKS_CPU,
            (1_500, 0, 1),
            "nodes with room for its GPUs lack its 1.5 CPU cores; 0 of 1 pods would fit now",
        ),
        (
            Reason.LACKS_MEMORY,
            (61_440, 0, 1),
            "nodes with room for its GPUs lack its 60Gi of memory; 0 of 1 pods would fit now",
        ),
    ],
)
def test_a_number_is_said_with_one_unit(reason, evidence, text):
    assert reason_text(reason, evidence) == text


def test_every_refusal_of_a_node_has_its_place_in_a_tally():
    """Sizes follow from the catalogue: a refusal that is added cannot be counted out of bounds."""
    refusals = codes_of(*NODE_REFUSALS)
    assert max(refusals) < len(KINDS) <= TALLY_CODES == CODES_END
    assert set(refusals) == set(REFUSALS)
    assert set(LACKS) < set(refusals) < set(ROOM_CODES)
    assert all(KINDS[code] == CATALOGUE[Reason(code)].kind for code in refusals)


@pytest.mark.parametrize("tally", [{}, *({code: 1} for code in codes_of(*NODE_REFUSALS))])
def test_one_kind_of_refusal_is_told_as_it_is(tally):
    assert told(tally) == next(iter(tally), Reason.NO_NODES)


@given(st.dictionaries(st.sampled_from(codes_of(*NODE_REFUSALS)), st.integers(1, 3), min_size=1))
def test_of_several_refusals_that_of_most_nodes_of_the_highest_kind_is_told(tally):
    highest = max(CATALOGUE[Reason(code)].kind for code in tally)
    of_it = [code for code in tally if CATALOGUE[Reason(code)].kind is highest]
    assert told(tally) == min(of_it, key=lambda code: (-tally[code], code))


def told(tally: dict[int, int]) -> int:
    """The reason that is told where nodes refuse so."""
    cluster = Cluster([])
    cluster.submit(job("j", "1x1")).step()
    cluster.state.scores().tally[0, :] = [tally.get(code, 0) for code in range(TALLY_CODES)]
    scores = cluster.state.scores()
    scores.cursor[0] = scores.counted[0] = cluster.state.counters[Counter.CHANGES]  # as if just counted
    return int(lack_of(cluster.state.hot(), ready_rule(cluster.state).rule, 0))
