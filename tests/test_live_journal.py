"""The journal of a live run on a disk that is full, limited or not there: decisions go on, and records are whole."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from contextlib import suppress

import pytest

from builders import Cluster, fleet, job
from commands import ran
from kubebench import pod
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.live.journal_rotation import JournalLimits, RotatingJournal, kept_files
from tidegate.model.facts import FactKind

_PODS, _EVENTS = "/api/v1/namespaces/default/pods", "/apis/events.k8s.io/v1/namespaces/default/events"
_MIB = 1 << 20


@pytest.fixture
def disk(tmp_path):
    """A disk of its own that is soon full; only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no disk of its own: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """Write to a disk until it is full."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


class Term:
    """Steps of an engine, recorded."""

    def __init__(self, journal):
        self.cluster, self.journal, self.count = Cluster(fleet("2x h100x8")), journal, 0

    def step(self, times=1):
        for _ in range(times):
            name = f"j{self.count}"
            self.cluster.submit(job(name, "1x8"))
            self._record()
            self.cluster.tell(FactKind.WORKLOAD_FINISHED, name)
            self._record()
            self.count += 1

    def _record(self):
        events = self.cluster._facts.batch()
        self.cluster.step(1000)
        self.journal.append(self.cluster.now_ms, events, self.cluster.result)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def whole(path):
    """How many steps a journal has; they replay to the same decisions."""
    file = JournalFile.open(path)
    again = replay(file.steps())
    assert again.difference is None
    count = len(file)
    file.close()
    return count


def rotating(folder, clock=None, **limits):
    return RotatingJournal(folder / "run.db", {"mode": "bind"}, JournalLimits(**limits), clock or Clock())


# -- a full disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_degrades_the_journal_and_nothing_else(disk):
    clock = Clock()
    journal = rotating(disk, clock, free_bytes=_MIB)
    first = Term(journal)
    journal.begin(first.cluster.state)
    first.step(5)
    fill(disk)
    first.step(400)  # more than what SQLite has reserved already
    assert first.count == 405
    assert "full" in journal.problem or "I/O" in journal.problem
    assert journal.skipped > 0
    recorded = whole(disk / "run.db")
    assert recorded + journal.skipped == 810  # each step is in it, or counted as skipped
    clock.now_s += 3600
    assert not journal.wants_new_file()  # there is no room yet
    (disk / "filler").unlink()
    clock.now_s += 3600
    assert journal.wants_new_file()
    second = Term(journal)
    journal.end()
    journal.begin(second.cluster.state)
    assert journal.problem == ""
    second.step(3)
    journal.end()
    assert whole(disk / "run.db") == 6
    assert [whole(path) for path in kept_files(disk / "run.db")] == [recorded]


def test_a_disk_that_is_full_from_the_start_is_no_reason_to_stop(disk):
    fill(disk)
    clock = Clock()
    journal = rotating(disk, clock, free_bytes=_MIB)
    term = Term(journal)
    journal.begin(term.cluster.state)
    term.step(3)
    assert (journal.skipped, bool(journal.problem)) == (6, True)
    assert sorted(path.name for path in disk.iterdir()) == ["filler"]


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("in the way")
    journal = rotating(tmp_path / "file")
    term = Term(journal)
    journal.begin(term.cluster.state)
    term.step()
    assert "file" in journal.problem
    assert not journal.wants_new_file()


class Failing:
    """A connection whose nth write fails."""

    def __init__(self, connection, at):
        self._connection, self._left = connection, at

    def execute(self, text, *values):
        if text.startswith(("INSERT", "COMMIT", "BEGIN")):
            self._left -= 1
            if self._left == 0:
                raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(text, *values)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("at", range(1, 9))
def test_a_write_that_fails_at_any_point_leaves_whole_records(tmp_path, at):
    """Steps that follow need the works of those before: a step that was not written must not be counted on."""
    file = JournalFile.create(tmp_path / "run.db")
    file._connection = Failing(file._connection, at)
    journal = Journal(file, remember=False)
    term = Term(journal)
    journal.follow(term.cluster.state)
    with pytest.raises(sqlite3.OperationalError):
        term.step(4)
    file.close()
    assert whole(tmp_path / "run.db") == at - 1


def test_a_step_after_one_that_was_not_written_says_all_that_it_needs(tmp_path):
    """The store itself stays sound: works of the lost step are written with the next that asks for them."""
    file = JournalFile.create(tmp_path / "run.db")
    lost, kept = Cluster(fleet("1x h100x8")), file._connection
    lost.submit(job("a", "1x8"))
    events = lost._facts.batch()
    lost.step(1000)
    file._connection = Failing(kept, 1)
    with pytest.raises(sqlite3.OperationalError):
        file.append(lost.now_ms, "", events, lost.result)
    file._connection = kept
    file.append(lost.now_ms, "", events, lost.result)
    file.close()
    assert whole(tmp_path / "run.db") == 1


def test_many_steps_together_are_written_or_none_of_them(tmp_path):
    file = JournalFile.create(tmp_path / "run.db")
    term, kept = Term(Journal(file, remember=False)), file._connection
    term.step()
    file._connection = Failing(kept, 4)  # BEGIN, two steps, COMMIT
    with pytest.raises(sqlite3.OperationalError), file.together():
        term.step()
    assert not kept.in_transaction
    file._connection = kept
    assert len(file) == 2
    file.close()
    assert whole(tmp_path / "run.db") == 2


# -- sizes and ages --------------------------------------------------------------------------------------------------


def test_a_file_that_is_large_enough_is_followed_by_a_new_one_and_the_oldest_go(tmp_path):
    clock = Clock()
    journal = rotating(tmp_path, clock, max_bytes=2 * _MIB)
    for _ in range(16):
        term = Term(journal)
        journal.begin(term.cluster.state)
        while not journal.wants_new_file():
            term.step(20)
            clock.now_s += 100
        journal.end()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * _MIB
        time.sleep(0.01)  # so that their ages differ
    assert journal.problem == ""
    kept = kept_files(tmp_path / "run.db")
    assert 1 <= len(kept) < 15
    assert all(whole(path) for path in kept)


def test_no_file_grows_beyond_half_of_the_limit(tmp_path):
    journal = rotating(tmp_path, max_bytes=_MIB)
    term = Term(journal)
    journal.begin(term.cluster.state)
    term.step(4000)
    assert "full" in journal.problem
    assert (tmp_path / "run.db").stat().st_size <= _MIB // 2
    assert whole(tmp_path / "run.db") + journal.skipped == 8000


def test_old_journals_go_and_files_of_others_stay(tmp_path):
    old, young = tmp_path / "run-20260101T000000Z.db", tmp_path / "run-20260102T000000Z-2.db"
    theirs = tmp_path / "run-of-mine.db"
    for path in (old, young, theirs):
        path.write_bytes(b"x")
    for path in (old, theirs):
        os.utime(path, (time.time() - 3 * 86_400,) * 2)
    journal = rotating(tmp_path, retention_ms=2 * 86_400_000)
    journal.begin(Term(journal).cluster.state)
    journal.end()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-20260102T000000Z-2.db", "run-of-mine.db", "run.db"]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--journal-max-size", "1Mi", "expected 16Mi or more"),
        ("--journal-max-size", "much", "expected a quantity"),
        ("--journal-retention", "long", "expected a duration"),
    ],
)
def test_limits_that_make_no_sense_are_refused(option, value, expected, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
        " clusters: [{name: s, cluster: {server: 'https://127.0.0.1:9'}}],"
        " contexts: [{name: c, context: {cluster: s, user: u}}]}"
    )
    said = ran("run", "--kubeconfig", str(config), "--policy", "kueue", option, value, code=2)
    assert expected in said


# -- on a real control plane -----------------------------------------------------------------------------------------


def test_a_leader_on_a_full_disk_goes_on_binding_and_records_again_when_there_is_room(cluster, disk, tmp_path):
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(16))

    def bind(*names):
        for name in names:
            made = pod(name, 1, scheduler="tidegate")
            made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
            cluster.admin.post(_PODS, made)
        replica.wait(
            lambda: all(cluster.admin.get(f"{_PODS}/{name}")["spec"].get("nodeName") for name in names), "bound", 30
        )

    with Replica(cluster, disk, "a", "--mode", "bind", "--policy", str(policy)) as replica:
        bind("before")
        assert replica.metric("tidegate_journal_degraded") == 0
        fill(disk)
        bind("during-0", "during-1", "during-2")  # its log is on that disk, too
        replica.wait(lambda: replica.metric("tidegate_journal_degraded") == 1, "told as degraded")
        bind("during-3")
        said = cluster.admin.get(_EVENTS)["items"]
        assert [one["regarding"]["kind"] for one in said if one["reason"] == "JournalDegraded"] == ["Lease"]
        (disk / "filler").unlink()
        replica.wait(lambda: replica.metric("tidegate_journal_degraded") == 0, "goes on", 60)
        bind("after")
        assert replica.stop() == 0
    assert whole(replica.journal) >= 1
    assert [whole(path) >= 1 for path in kept_files(replica.journal)] == [True]
    named = {one["reason"] for one in cluster.admin.get(_EVENTS)["items"]}
    assert "JournalGoesOn" in named
