"""What the checklists of docs/architecture.md say is caught here: tables that have to agree, in packages far apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import Cluster, fleet, job, pods
from test_shown import CASES, WITH_NIC
from tidegate.engine.kernels import score_cache, vectorized_scores
from tidegate.engine.kernels.node_score import looks_at_devices
from tidegate.engine.kernels.placement_rule import KIND_CODES
from tidegate.engine.placement_rule import ready_rule
from tidegate.kube.mirror.job_adapters import KINDS as ADAPTERS
from tidegate.manifests.kinds import KINDS
from tidegate.model.policy import PlacementKind
from tidegate.model.reasons.catalogue import CATALOGUE, Reason
from tidegate.sources.options import Format
from tidegate.sources.traces.catalog import TRACES
from tidegate.whatif import change_syntax, change_text, search
from tidegate.whatif.budget import FixKind

DOCS = Path(__file__).parent.parent / "docs"

#: Formats that are not one table a file: each has a branch in read_sources.
_READ_OTHERWISE = {Format.TABLE, Format.SLURM, Format.KUBERNETES, Format.PROMETHEUS, Format.GENAI}

#: Rules that have no scores: any node that fits, or the first one.
_NO_SCORES = (PlacementKind.RANDOM, PlacementKind.FIRST_FIT)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.resource.kind)
def test_a_job_kind_on_a_cluster_can_be_read_and_is_documented(adapter):
    known = KINDS.get(adapter.key)
    assert known is not None, f"manifests/kinds.py does not know {adapter.key}"
    assert known.job is not None
    assert adapter.resource.version in known.versions
    rows = [line for line in (DOCS / "job-kinds.md").read_text().splitlines() if line.startswith("| ")]
    assert any(adapter.resource.kind in row.replace(",", " ").split() for row in rows), "docs/job-kinds.md"


def test_every_reason_is_in_the_catalogue():
    assert set(CATALOGUE) == set(Reason) - {Reason.NONE}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [kind for kind in PlacementKind if not looks_at_devices(KIND_CODES[kind])])
def test_many_nodes_at_once_refuse_and_score_as_one_does(name, kind):
    _, case = CASES[name]
    cluster = Cluster([case.change(fleet(case.pool)[0])], placement=kind)
    if case.beside:
        beside = {"nic": WITH_NIC, "1x0.3 vram": pods("1x0.3", vram=40 << 10)}.get(case.beside) or pods(case.beside)
        cluster.submit(job("beside", beside)).step()
    cluster.submit(job("j", case.pod, at=1)).step()
    state = cluster.state
    if state.pod_classes.vram[: state.pod_classes.top].any():
        return  # GPU memory is always looked at node by node
    rule, hot, classes = ready_rule(state).rule, state.hot(), np.arange(state.pod_classes.top)
    vectorized_scores.rescore(hot, rule, classes, np.array([0]))
    at_once = hot.scores.score[: len(classes), 0].copy()
    for k in classes.tolist():
        score_cache.rescore(hot, rule, k, 0)
    assert hot.scores.score[: len(classes), 0].tolist() == at_once.tolist()


@pytest.mark.parametrize("kind", [kind for kind in PlacementKind if kind not in _NO_SCORES])
def test_every_placement_rule_tells_a_busy_node_from_an_empty_one(kind):
    cluster = Cluster(fleet("2x h100x8"), placement=kind)
    cluster.submit(job("a", "1x4")).step()
    cluster.submit(job("b", "1x2", at=1), job("c", "1x16", at=1)).step()
    scores = cluster.state.hot().scores.score
    assert any(len(set(row.tolist())) > 1 for row in scores[: cluster.state.pod_classes.top, :2]), kind


@pytest.mark.parametrize("kind", FixKind)
def test_every_kind_of_change_has_its_text_and_its_finder(kind):
    assert kind in change_text._TRIED
    if kind is FixKind.TOGETHER:
        return
    assert set(change_syntax.FORMS) == set(change_syntax._READERS)
    assert kind in change_syntax.FORMS
    assert kind in dict((*search._FOR_QUOTA, *search._FOR_ROOM))
    assert f"`{kind}:" in (DOCS / "explain.md").read_text()


def test_every_format_has_a_reader():
    assert {trace.format for trace in TRACES} == set(Format) - _READ_OTHERWISE
