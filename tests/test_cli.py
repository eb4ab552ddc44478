"""Commands as users meet them: what they print, for people and programs, and what they write."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import SMALL, files, ran
from tidegate.cli.main import app
from tidegate.sim import scenario
from tidegate.sim.demo_trace import sample_work

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def short_sample(monkeypatch):
    """The bundled sample with every thirtieth workload: quick, and still of every queue."""
    monkeypatch.setattr(scenario, "sample_work", lambda seed: sample_work(seed)[::30])


# -- simulate, compare, explain --------------------------------------------------------------------------------


def test_simulate_says_how_good_a_file_was_and_what_to_try_next():
    said = ran("simulate", "small.yaml")
    assert said.startswith("Tidegate  2 nodes, 16 GPUs  ·  1h30m  ·  4 workloads in 2 queues\n")
    assert "4 of 4 workloads finished." in " ".join(said.split())
    commands = re.findall(r"^  (tidegate .*?)  ", said, re.MULTILINE)
    assert commands == [
        "tidegate explain note-0",
        "tidegate compare small.yaml --policies tide,bestfit,spread",
        "tidegate simulate small.yaml --plot week.png",
    ]
    for command in commands:
        ran(*command.split()[1:])


def test_what_to_try_next_can_be_copied_as_it_is():
    Path("my file.yaml").write_text(SMALL)
    said = ran("simulate", "my file.yaml", "--journal", "my run.db")
    assert "  tidegate explain note-0 --journal 'my run.db' " in said
    assert "  tidegate simulate 'my file.yaml' --plot week.png " in said


def test_the_bundled_sample_runs_and_can_be_explained(short_sample):
    report = json.loads(ran("simulate", "--json"))
    total = report["summary"]["total"]
    assert total["workloads"] == total["finished"] == len(sample_work(1)[::30])
    assert {queue["name"] for queue in report["summary"]["queues"]} == {"research", "product", "platform"}
    job = report["most_idle"][0]["id"]
    assert ran("explain", job).startswith(f"{job} ")


def test_the_bundled_sample_under_several_policies(short_sample):
    compared = json.loads(ran("compare", "--policies", "tide,spread", "--json"))
    assert compared["policies"] == ["tide", "spread"]
    assert compared["workloads"] == len(sample_work(1)[::30])


def test_the_same_seed_gives_the_same_report_and_another_one_another(short_sample):
    first, again, other = (ran("simulate", "--json", "--seed", seed) for seed in ("3", "3", "4"))
    assert first == again != other


def test_simulate_changes_what_it_is_told_to():
    def mean_wait_ms(*options):
        return json.loads(ran("simulate", "small.yaml", "--json", *options))["summary"]["total"]["wait"]["mean_ms"]

    assert mean_wait_ms() == 2_025_000  # 50, 45 and 40 minutes behind the gang
    assert mean_wait_ms("--cycle", "7m") > 2_025_000
    assert mean_wait_ms("--placement", "spread", "--kernels", "plain") == 2_025_000
    assert mean_wait_ms("--order", "las") != 2_025_000


@pytest.mark.parametrize("command", [("simulate", "--order", "srtf"), ("compare", "--policies", "srtf")])
def test_work_that_an_order_knows_nothing_of_is_told_of(command):
    result = CliRunner().invoke(app, [command[0], "small.yaml", *command[1:]])
    assert result.exit_code == 0
    assert "srtf goes by estimates: 4 of 4 workloads have none and go last" in result.stderr


def test_compare_shows_ratios_to_the_first():
    said = ran("compare", "small.yaml", "--policies", "tide, las+firstfit", COLUMNS="120")
    assert said.splitlines()[2].split() == ["tide", "las+firstfit"]
    assert re.search(r"^mean wait +33m45s +10m2s +x0.30$", said, re.MULTILINE)


def test_explain_says_why_and_what_would_change_it():
    ran("simulate", "small.yaml")
    assert ran("explain", "note-0").startswith("note-0 waited 50m and finished on Mon 01:30")
    then = ran("explain", "note-0", "--at", "15m", "--node", "train-0001", COLUMNS="200").splitlines()
    assert then[0].startswith("note-0 is waiting, 5m so far")
    assert "Node train-0001 has 0 idle GPUs; a pod of set main asks for 1." in then
    assert "It starts when enough GPUs on one node are free at once." in then
    assert "It is the head of the line, before 1 other." in then
    assert " 1. 1 node more like train-0000 (8 GPUs)" in [line.rstrip() for line in then]


def test_explain_reads_the_journal_that_is_named():
    ran("simulate", "small.yaml", "--journal", "fifo.db")
    ran("simulate", "small.yaml", "--order", "las")
    assert "waited 50m" in ran("explain", "note-0", "--journal", "fifo.db")
    assert "waited 50m" not in ran("explain", "note-0")


def test_a_run_that_is_over_can_be_resumed_and_comes_out_the_same():
    first = ran("simulate", "small.yaml", "--journal", "a.db", "--json")
    assert ran("simulate", "small.yaml", "--journal", "a.db", "--resume", "--json") == first


PREEMPTED = """
cluster: {pools: [{name: g, count: 1, shape: {gpu: h100, gpus: 8, cpu: 96, memory: 1Ti}}]}
policy: {queues: [{name: default, gpus: 8, preemption: {within: LowerPriority}}]}
twin: {grace: 5m, api_latency: 1s}
work:
  - {id: train, runtime: 3h, checkpoint: 30m, pods: {gpus: 8}}
  - {id: urgent, submit: 1h, priority: 9, runtime: 10h, pods: {gpus: 8}}
"""


def test_explain_tells_the_first_wait_interruptions_and_the_wait_in_all():
    """It said "started at once" of work that waited ten hours, and nothing of what it lost in between."""
    Path("preempted.yaml").write_text(PREEMPTED)
    ran("simulate", "preempted.yaml", "--csv", "work.csv")
    with Path("work.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["waited_ms"] == "36001000"
    begins = "train started at once, was evicted once, waited 10h in all and "
    assert ran("explain", "train", COLUMNS="200").startswith(f"{begins}finished on Mon 13:05, 13h5m after")
    assert ran("explain", "train", "--at", "12h", COLUMNS="200").startswith(f"{begins}has held its place since")
    assert ran("explain", "urgent", COLUMNS="200").startswith("urgent waited 5m1s and finished on")


# -- a full disk -----------------------------------------------------------------------------------------------

#: Work whose journal is larger than the disk has room for.
_LARGER = """
cluster: {pools: [{name: g, count: 4, shape: {gpu: h100, gpus: 8, cpu: 96, memory: 1Ti}}]}
work: [{id: y, copies: 300, every: 3m, runtime: 1h, pods: {gpus: 1}}]
"""


def on_a_full_disk(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that may not write files of more than 64 KiB."""
    source = str(Path(scenario.__file__).parents[2])  # the same code, whatever folder it runs in
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "home"), "NO_COLOR": "1", "PYTHONPATH": source}
    limit = (65_536, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )


def test_a_journal_that_nobody_asked_for_does_not_fail_a_run(tmp_path):
    (tmp_path / "larger.yaml").write_text(_LARGER)
    ended = on_a_full_disk(tmp_path, "simulate", "larger.yaml", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["summary"]["total"]["finished"] == 300
    assert ended.stderr.count("`tidegate explain` will not know this run") == 1
    assert not list((tmp_path / "home").rglob("last-run.db*"))


def test_nothing_is_left_of_a_journal_that_could_not_be_written(tmp_path):
    (tmp_path / "larger.yaml").write_text(_LARGER)
    ended = on_a_full_disk(tmp_path, "simulate", "larger.yaml", "--journal", "a.db")
    assert ended.returncode == 2
    assert "a.db: cannot be written" in ended.stderr
    assert not list(tmp_path.glob("a.db*"))


# -- for programs ----------------------------------------------------------------------------------------------


def test_the_keys_of_json_reports_are_stable():
    report = json.loads(ran("simulate", "small.yaml", "--json"))
    assert set(report) == {"summary", "findings", "most_idle", "samples"}
    assert set(report["summary"]) == {
        "start_ms", "end_ms", "makespan_ms", "capacity_gpu_h", "allocation_share", "useful_share", "fragmented_share",
        "fairness", "total", "queues", "kinds", "shares", "loops", "unsettled_steps", "other_model_share",
        "idle_wanted_gpu_h",
    }  # fmt: skip
    group = {
        "name", "workloads", "finished", "running", "waiting", "rejected", "cancelled", "wait", "completion",
        "censored", "allocated_gpu_h", "observed_gpu_h", "busy_gpu_h", "idle_gpu_h", "busy_share", "waited_gpu_h",
        "served_share", "evictions", "preemptions", "lost_gpu_h",
    }  # fmt: skip
    for found in (report["summary"]["total"], *report["summary"]["queues"], *report["summary"]["kinds"]):
        assert set(found) == group
    assert set(report["summary"]["total"]["wait"]) == {
        "count", "mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms",
    }  # fmt: skip
    assert set(report["samples"]) == {
        "every_ms", "at_ms", "gpus", "allocated_gpus", "busy_gpus", "observed_gpus", "fragmented_gpus", "waiting_gpus",
    }  # fmt: skip
    assert set(report["most_idle"][0]) == {"id", "idle_gpu_h"}


def test_the_keys_of_json_comparisons_and_explanations_are_stable():
    compared = json.loads(ran("compare", "small.yaml", "--policies", "tide,las", "--json"))
    assert set(compared) == {"policies", "workloads", "seeds", "measures", "findings", "finished"}
    assert [measure["name"] for measure in compared["measures"]] == [
        "mean wait", "p50 wait", "p95 wait", "p99 wait", "max wait", "mean JCT", "makespan", "allocation",
        "busy share", "fragmentation", "fairness", "evictions", "not finished",
    ]  # fmt: skip
    for measure in compared["measures"]:
        assert set(measure) == {"name", "unit", "lower_is_better", "outcomes"}
        assert [set(outcome) for outcome in measure["outcomes"]] == [{"value", "ratio", "interval"}] * 2
    ran("simulate", "small.yaml")
    explained = json.loads(ran("explain", "note-0", "--at", "15m", "--node", "train-0000", "--json"))
    assert set(explained) == {
        "job", "headline", "because", "lift", "node", "lacks", "line", "wants", "room", "changes", "search", "if",
    }  # fmt: skip
    assert (explained["job"], explained["node"], len(explained["lacks"])) == ("note-0", "train-0000", 1)


def test_compare_runs_policies_with_several_seeds(short_sample):
    compared = json.loads(ran("compare", "--policies", "tide,random", "--seeds", "2", "--seed", "3", "--json"))
    assert compared["seeds"] == 2
    by_name = {measure["name"]: measure["outcomes"][1] for measure in compared["measures"]}
    lost = by_name["fragmentation"]
    assert len(set(lost["by_seed"])) == 2  # random placement goes by its seed
    assert lost["value"] == pytest.approx(sum(lost["by_seed"]) / 2)
    assert by_name["mean wait"]["interval"]["workloads"] == compared["workloads"]


def test_csv_has_a_line_for_each_workload():
    ran("simulate", "small.yaml", "--csv", "work.csv")
    with Path("work.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["gang", "note-0", "note-1", "note-2"]
    assert rows[1]["fate"] == "finished"
    assert [int(row["waited_ms"]) for row in rows] == [0, 3_000_000, 2_700_000, 2_400_000]
    assert list(rows[0]) == [
        "number", "id", "queue", "kind", "priority", "pods", "gpu_milli", "fate", "submitted_ms", "first_placed_ms",
        "started_ms", "finished_ms", "waited_ms", "held_milli_ms", "busy_gpu_ms", "observed_gpu_ms", "evictions",
        "lost_milli_ms", "preemptions",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "begins"), [("week.svg", b"<?xml"), ("Week.PNG", b"\x89PNG")])
def test_pictures_are_written(folder, name, begins):
    before = files(folder)
    ran("simulate", "small.yaml", "--plot", name)
    after = files(folder)
    assert after.pop(name).startswith(begins)
    assert after == before


# -- terminals -------------------------------------------------------------------------------------------------

SHOWN = [
    ("simulate", "small.yaml"),
    ("compare", "small.yaml", "--policies", "tide,las"),
    ("explain", "gang"),
    ("check", "small.yaml"),
]


@pytest.mark.parametrize("arguments", SHOWN, ids=lambda arguments: arguments[0])
def test_no_color_means_no_escape_codes(arguments):
    ran("simulate", "small.yaml")
    runner = CliRunner()
    coloured = runner.invoke(app, arguments, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    plain = runner.invoke(app, arguments, env={"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"})
    assert "\x1b[" in coloured.stdout
    assert "\x1b" not in plain.stdout + plain.stderr
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.stdout) == plain.stdout


def test_no_color_holds_for_complaints_too():
    for setting in ({"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}):
        assert ("\x1b[" in ran("simulate", "none.yaml", code=2, **setting)) == ("NO_COLOR" not in setting)


@pytest.mark.parametrize("arguments", SHOWN, ids=lambda arguments: arguments[0])
def test_a_terminal_that_knows_ascii_only_gets_ascii(arguments):
    ran("simulate", "small.yaml")
    Path("smäll.yaml").write_text(SMALL)
    named = [argument.replace("small", "smäll") for argument in arguments]
    result = CliRunner(charset="ascii").invoke(app, named)
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes.isascii()
