"""The journal: what is written is read back, a crash loses nothing, a replay finds the first difference."""

from __future__ import annotations

import sqlite3

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crash
from builders import Cluster, fleet, job
from tidegate.journal.decision_text import explain, reason_text
from tidegate.journal.encoding import WorkNumbers, pack_column, unpack_column
from tidegate.journal.history import read_names, read_workload_history
from tidegate.journal.phases import PhaseKind, split_phases
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalError, JournalFile, JournalStep
from tidegate.journal.writer import Journal, ResumedJournal
from tidegate.model.facts import FactKind, Facts
from tidegate.model.reasons.catalogue import CATALOGUE, Reason
from tidegate.model.work import PodSet, Work, Workload


@given(st.lists(st.integers(-(2**62), 2**62)))
def test_a_column_of_integers_is_read_back_as_it_was(values):
    column = np.array(values, np.int64)
    assert unpack_column(pack_column(column), np.int64).tolist() == values


@given(st.lists(st.floats(allow_nan=False)))
def test_a_column_of_floats_is_read_back_as_it_was(values):
    column = np.array(values, np.float64)
    assert unpack_column(pack_column(column), np.float64).tobytes() == column.tobytes() or 0.0 in values


def played(path=None) -> tuple[Cluster, list[JournalStep]]:
    """A small story, and its journal."""
    cluster = Cluster(fleet("2x h100x8"))
    journal = Journal(JournalFile.create(path) if path else None)
    for acts in (
        lambda: cluster.submit(job("gang", "2x8"), job("late", "1x8", at=1, priority=-1)),
        lambda: cluster.tell(FactKind.POD_STARTED, "gang"),
        lambda: cluster.tell(FactKind.USE_OBSERVED, "gang", arg=3_600_000, values=(7_200_000.0, 57_600_000.0)),
        lambda: cluster.tell(FactKind.WORKLOAD_FINISHED, "gang"),
    ):
        acts()
        events = cluster._facts.batch()
        cluster.step(3_600_000)
        journal.append(cluster.now_ms, events, cluster.result)
    return cluster, journal.steps


def test_a_journal_on_disk_replays_byte_for_byte(tmp_path):
    cluster, _ = played(tmp_path / "j.db")
    again = replay(JournalFile.open(tmp_path / "j.db").steps())
    assert again.difference is None
    assert again.state.dump() == cluster.state.dump()


def test_a_replay_names_the_first_decision_that_differs():
    _, steps = played()
    wrong = steps[0].result.decisions._replace(node=np.array([1, 0, -1], np.int64))
    steps[0] = steps[0]._replace(result=steps[0].result._replace(decisions=wrong))
    difference = replay(steps).difference
    assert difference is not None
    assert (difference.step, difference.row) == (0, 0)
    assert difference.recorded[4] == 1
    assert difference.replayed[4] == 0


def test_a_journal_can_not_be_changed_or_written_over(tmp_path):
    played(tmp_path / "j.db")
    with pytest.raises(JournalError, match="already exists"):
        JournalFile.create(tmp_path / "j.db")
    with sqlite3.connect(tmp_path / "j.db") as connection, pytest.raises(sqlite3.DatabaseError, match="append-only"):
        connection.execute("DELETE FROM steps")


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\x00" + b"\x00" * 100])
def test_what_is_no_journal_is_refused_with_a_message(tmp_path, content):
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(JournalError, match="journal"):
        JournalFile.open(tmp_path / "x.db")
    with pytest.raises(JournalError, match="no such journal"):
        JournalFile.open(tmp_path / "missing.db")


def test_taking_up_another_run_is_refused(tmp_path):
    _, steps = played(tmp_path / "j.db")
    resumed = ResumedJournal(JournalFile.open(tmp_path / "j.db", append=True))
    with pytest.raises(JournalError, match="differs from the journal"):
        resumed.append(1, steps[0].events, steps[0].result)


def test_a_killed_run_leaves_a_journal_that_opens_replays_and_goes_on_to_the_same_end():
    result = crash.crash(points=8, seed=11)
    assert result["wrong"] == []
    assert result["killed_midway"] >= 4


def test_a_story_is_cut_into_spells():
    _, steps = played()
    story = read_workload_history(steps, 1)
    assert story is not None
    phases = split_phases(story)
    assert [(phase.doing, phase.start_ms // 3_600_000) for phase in phases] == [
        (PhaseKind.WAITING, 0),
        (PhaseKind.WAITING, 1),
        (PhaseKind.HOLDING, 4),
    ]


def test_an_explanation_reads_like_an_answer():
    _, steps = played()
    names = read_names(steps)
    story = read_workload_history(steps, 0)
    assert story is not None
    answer = explain(story, names)
    assert answer.headline == "gang waited 1h and finished on Mon 03:00, 3h after it was submitted."
    assert "a gang of 2 pods with 8 GPUs each" in answer.because[0]
    assert "busy 12% of the 16.0 GPU-hours" in answer.because[-1]
    late = read_workload_history(steps[:2], 1)
    assert late is not None
    waiting = explain(late, names)
    assert waiting.headline.endswith("no node has 8 idle GPUs for its next pod; 0 of 1 pods would fit now.")
    assert waiting.lift == CATALOGUE[Reason.LACKS_GPU].lift


def test_every_reason_can_be_said_and_says_what_would_lift_it():
    for reason, spec in CATALOGUE.items():
        text = reason_text(reason, tuple(range(len(spec.evidence))))
        assert text
        assert "{" not in text
        assert spec.lift.endswith(".")
    assert set(CATALOGUE) == set(Reason) - {Reason.NONE}


def test_a_step_costs_what_is_new_in_it_however_many_works_came_before():
    works, ps = WorkNumbers(), PodSet(count=1)
    for memory in range(2_000):
        facts = Facts()
        work = Work(pod_sets=(msgspec.structs.replace(ps, request=(("memory", memory),)),))
        facts.submit(memory, Workload(id=f"w{memory}", work=work), memory)
        batch = facts.batch()
        assert works.number(batch.works, batch.submissions.work)[1] == (work,)
        assert len(works._all) == 0  # which would be all of them, at every step
    assert len(works.all) == 2_000
