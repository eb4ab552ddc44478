"""`tidegate queues`, and journals as it reads them: at a time, while a run goes on, and told apart from other files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import ran
from situations import draw
from tidegate.journal.history import read_names, read_workload_history
from tidegate.journal.reader import JournalFollower, find_ids, find_number, read_steps_of
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.measure.share_tree import share_tree_of

pytestmark = pytest.mark.usefixtures("folder")

#: Three teams in a cohort: one borrows, one lends, and at half an hour the lender asks back.
LAB = """\
cluster:
  pools:
    - {name: h100, count: 3, shape: {gpu: h100, gpus: 8, gpu_memory: 80Gi, cpu: 192, memory: 2Ti}}
policy:
  cycle: 10s
  queues:
    - {name: research, gpus: 8, cohort: lab}
    - {name: product, gpus: 8, cohort: lab, preemption: {reclaim: Any}}
    - {name: batch, gpus: 4, cohort: lab}
work:
  - {id: base, queue: research, kind: training, runtime: 6h, pods: [{count: 2, gpus: 4}]}
  - {id: serve, queue: product, runtime: 4h, priority: 10, pods: [{gpus: 4}]}
  - {id: sweep, queue: batch, runtime: 5h, copies: 4, every: 1m, pods: [{gpus: 2}]}
  - {id: big, queue: research, submit: 10m, runtime: 2h, pods: [{gpus: 8}]}
  - {id: ft, queue: product, submit: 30m, runtime: 2h, pods: [{gpus: 4}]}
"""


@pytest.fixture
def lab(folder):
    Path("lab.yaml").write_text(LAB)
    ran("simulate", "lab.yaml", "--journal", "lab.db")


def test_the_tree_with_use_borrowing_lending_and_who_waits(lab):
    assert ran("queues", "lab.db", "--at", "20m", COLUMNS="80").splitlines()[:6] == [
        "Queues  Mon 00:20",
        "",
        "queue       quota  used  borrowed  lent  share  waiting  admitted",
        "lab            20    20         0     0               1         6",
        "  batch         4     8         4     0    200        0         4",
        "  product       8     4         0     4      0        0         1",
    ]
    after = ran("queues", "--journal", "lab.db", "--at", "31m", "--resources", COLUMNS="80").splitlines()
    assert "  batch              4     4         0     0      0        2         2" in after
    assert "    default gpu      8     8         0     0                          " in after
    assert max(map(len, after)) <= 80


def test_the_keys_of_json_are_stable_and_the_numbers_add_up(lab):
    tree = json.loads(ran("queues", "lab.db", "--at", "20m", "--json"))
    assert set(tree) == {"at_ms", "branches"}
    for branch in tree["branches"]:
        assert set(branch) == {
            "name", "is_queue", "depth", "parent", "weight_milli", "share", "closed", "waiting", "admitted", "lots",
        }  # fmt: skip
        for lot in branch["lots"]:
            assert set(lot) == {
                "flavor", "resource", "nominal", "shared", "used", "borrowed", "lent", "free", "borrow_limit",
                "lend_limit",
            }  # fmt: skip
    queues = [branch["lots"][0] for branch in tree["branches"] if branch["is_queue"]]
    cohort = tree["branches"][0]["lots"][0]
    assert cohort["used"] == sum(lot["used"] for lot in queues) == 20_000
    assert sum(lot["borrowed"] for lot in queues) == sum(lot["lent"] for lot in queues) == 4_000


def test_without_queues_it_says_so():
    ran("simulate", "small.yaml")
    assert "no queues with quota" in ran("queues")
    assert json.loads(ran("queues", "--json"))["branches"] == []


def test_a_thousand_queues_are_one_page_or_all(folder):
    queues = "".join(f"    - {{name: team-{n:04d}, gpus: 1, cohort: all}}\n" for n in range(1000))
    Path("many.yaml").write_text(
        f"cluster:\n  pools:\n    - {{name: h, count: 1, shape: {{gpu: h100, gpus: 8, cpu: 192, memory: 2Ti}}}}\n"
        f"policy:\n  cycle: 10s\n  queues:\n{queues}work:\n"
        "  - {id: j, queue: team-0500, copies: 3, runtime: 1h, pods: [{gpus: 4}]}\n"
    )
    ran("simulate", "many.yaml", "--journal", "many.db")
    page = ran("queues", "many.db", "--at", "1m", COLUMNS="80").splitlines()
    assert len(page) < 30
    assert ["team-0500", "1", "8", "7", "0", "7", "1", "2"] in [line.split() for line in page]
    assert any(line.split()[:3] == ["980", "more", "(--all)"] for line in page)
    assert len(ran("queues", "many.db", "--at", "1m", "--all").splitlines()) > 1000


def test_what_is_no_journal_is_told_as_such(lab):
    Path("text.db").write_text("hello\n")
    Path("empty.db").write_text("")
    whole = Path("lab.db").read_bytes()
    Path("cut.db").write_bytes(whole[: len(whole) // 2])
    for command in (("queues",), ("explain", "big")):
        assert ran(*command, "--journal", "text.db", code=2) == (
            "text.db: not a journal, nor any database; name a file that Tidegate wrote\n"
        )
        assert "empty.db: not a journal, it is empty; " in ran(*command, "--journal", "empty.db", code=2)
        assert "cut.db: " in ran(*command, "--journal", "cut.db", code=2)
        assert "damaged" in ran(*command, "--journal", "cut.db", code=2)
    assert "there is no run to show the queues of yet" in ran("queues", code=2)
    assert "two journals are named" in ran("queues", "lab.db", "--journal", "lab.db", code=2)
    assert "does not go with --at" in ran("queues", "lab.db", "--watch", "--at", "1h", code=2)


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_watching_follows_a_run_and_ends_cleanly(folder):
    Path("lab.yaml").write_text(LAB)
    ran("simulate", "lab.yaml", "--journal", "lab.db")
    with Path("seen.txt").open("wb") as seen:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", "queues", "lab.db", "--watch"], stdout=seen, stderr=subprocess.PIPE
        )
        for _ in range(300):
            if "research" in Path("seen.txt").read_text():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=30)
    assert (process.returncode, complaints) == (0, b"")
    assert "research" in Path("seen.txt").read_text()


# -- reading long journals -------------------------------------------------------------------------------------


def test_a_glance_tells_the_same_story_as_reading_everything(lab):
    file = JournalFile.open(Path("lab.db"))
    steps = list(file.steps())
    cast = read_names(steps)
    assert find_ids(file) == cast.workloads
    for number, name in cast.workloads.items():
        assert find_number(file, name) == number
        glanced = read_steps_of(file, number)
        assert len(glanced.steps) < len(steps)
        assert glanced.names == cast
        story = read_workload_history(glanced.steps, number)
        assert story._replace(until_ms=glanced.until_ms) == read_workload_history(steps, number)


def test_a_state_from_a_checkpoint_is_the_replayed_one(lab):
    file = JournalFile.open(Path("lab.db"))
    steps = list(file.steps())
    assert file.checkpoint().step == len(steps) - 1  # of the end
    assert file.checkpoint(0) is None
    for until_ms in (0, 1_200_000, 3_600_000, None):
        follower = JournalFollower(file, until_ms)
        follower.catch_up()
        assert follower.state.dump() == replay(steps, until_ms).state.dump()


def test_a_follower_catches_up_with_a_journal_that_grows(tmp_path, lab):
    steps = list(JournalFile.open(Path("lab.db")).steps())
    grows = JournalFile.create(tmp_path / "grows.db")
    journal, follower, made = Journal(grows), None, 0
    for at, recorded in enumerate(steps):
        journal.append(recorded.now_ms, recorded.events, recorded.result)
        if at % 3 == 0:
            follower = follower or JournalFollower(JournalFile.open(tmp_path / "grows.db"))
            made += follower.catch_up()
    made += follower.catch_up()
    assert made == len(steps)
    assert follower.catch_up() == 0
    assert follower.state.dump() == replay(steps).state.dump()


def test_in_random_trees_what_is_borrowed_is_lent_as_far_as_there_is_anything_to_lend():
    for seed in range(24):
        tree = share_tree_of(draw(seed, 24).state)
        for lot in {use.lot for branch in tree.branches for use in branch.lots}:
            uses = [(branch, use) for branch in tree.branches for use in branch.lots if use.lot == lot]
            borrowed = sum(use.borrowed for branch, use in uses if branch.is_queue)
            lent = sum(use.lent for _, use in uses)
            assert lent <= borrowed + len(uses)
            for branch, use in uses:
                assert 0 <= use.lent <= max(0, use.nominal - (use.used if branch.is_queue else 0))
                assert branch.parent or not (branch.is_queue and use.borrowed)
