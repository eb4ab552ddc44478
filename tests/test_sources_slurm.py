"""What sacct prints, in all its ways."""

from __future__ import annotations

import json

import pytest

from tidegate.sources.findings import Code, SourceError
from tidegate.sources.options import Format, SourceOptions
from tidegate.sources.read_sources import read_sources
from tidegate.sources.slurm import count_tasks

# Lines as long as sacct makes them.
# ruff: noqa: E501
SACCT = """\
JobID|JobName|Account|Partition|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|NNodes
101|train|vision|gpu|COMPLETED|2026-03-02T08:00:00|2026-03-02T08:10:00|2026-03-03T10:13:04|1-02:03:04|cpu=64,gres/gpu:a100=16,gres/gpu=16|gres/gpu=16|2
101.batch|batch|vision||COMPLETED|2026-03-02T08:10:00|2026-03-02T08:10:00|2026-03-03T10:13:04|1-02:03:04|cpu=64,gres/gpu:a100=16||1
101.0|python|vision||COMPLETED|2026-03-02T08:10:00|2026-03-02T08:10:00|2026-03-03T10:13:04|1-02:03:04|cpu=64,gres/gpu:a100=16||2
102_7|sweep|nlp|gpu|CANCELLED by 1|2026-03-02T09:00:00|2026-03-02T09:00:01|2026-03-02T09:30:01|00:30:00|cpu=8,gres/gpu:h100=1,gres/gpu:a100=2|gres/gpu=1|1
103|bash|nlp|debug|RUNNING|2026-03-02T09:00:00|2026-03-02T09:00:05|Unknown|02:00:00|cpu=8,gres/gpu=1|gres/gpu=1|1
104_[3-6%2]|sweep|nlp|gpu|PENDING|2026-03-02T09:00:00|Unknown|Unknown|00:00:00||cpu=8,gres/gpu=2|1
105|prep|nlp|cpu|COMPLETED|2026-03-02T09:00:00|2026-03-02T09:00:05|2026-03-02T09:01:05|00:01:00|cpu=8,mem=4G|cpu=8|1
106|oom|nlp|gpu|OUT_OF_MEMORY|2026-03-02T09:00:00|2026-03-02T09:00:05|2026-03-02T09:01:05|01:00|gres/gpu=1|gres/gpu=1|1
"""


def _read(tmp_path, text, name="sacct.txt", **options):
    path = tmp_path / name
    path.write_text(text)
    gathered = read_sources([str(path)], SourceOptions(**options))
    return gathered, {row["id"]: row for row in gathered.tables.jobs.collect().to_dicts()}


@pytest.mark.parametrize("ending", ["", "|"])
def test_jobs_arrays_and_states(tmp_path, ending):
    text = "".join(line + ending + "\n" for line in SACCT.splitlines())
    gathered, jobs = _read(tmp_path, text)
    assert gathered.parts[0].format is Format.SLURM
    assert set(jobs) == {"101", "102_7", "103", "104_0", "104_1", "104_2", "104_3", "106"}
    train = jobs["101"]
    assert (train["gpus_milli"], train["gpu_model"], train["pods"], train["queue"]) == (16_000, "a100", 2, "vision")
    assert (train["duration_ms"], train["outcome"], train["kind"]) == (93_784_000, "done", "batch")
    assert (jobs["102_7"]["gpus_milli"], jobs["102_7"]["outcome"]) == (3_000, "cancelled")
    session = jobs["103"]
    assert (session["kind"], session["outcome"], session["ended_ms"], session["duration_ms"]) == (
        "interactive",
        "running",
        None,
        None,
    )
    waiting = jobs["104_2"]
    assert (waiting["gpus_milli"], waiting["started_ms"], waiting["outcome"]) == (2_000, None, "pending")
    assert (jobs["106"]["outcome"], jobs["106"]["duration_ms"]) == ("failed", 60_000)
    told = {found.code: found.times for found in gathered.findings}
    assert told == {Code.ZERO_GPUS: 1, Code.JOB_STEP: 2, Code.TIME_ZONE_MISSING: 3}


@pytest.mark.parametrize("start", ["None", "Unknown", "2026-03-02T10:00:00"])
@pytest.mark.parametrize("elapsed", ["0|", ""])
def test_jobs_cancelled_while_they_waited_have_no_runtime(tmp_path, start, elapsed):
    column = "ElapsedRaw|" if elapsed else ""
    ran = "90|" if elapsed else ""
    text = f"""\
JobID|Submit|Start|End|{column}State|ReqTRES
1|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:01:30|{ran}CANCELLED by 7|gres/gpu=4
2|2026-03-02T08:00:00|{start}|2026-03-02T10:00:00|{elapsed}CANCELLED by 7|gres/gpu=4
"""
    _, jobs = _read(tmp_path, text)
    assert (jobs["1"]["started_ms"], jobs["1"]["duration_ms"]) == (1_772_438_400_000, 90_000)
    assert (jobs["2"]["started_ms"], jobs["2"]["duration_ms"], jobs["2"]["outcome"]) == (None, None, "cancelled")
    assert jobs["2"]["ended_ms"] == 1_772_445_600_000


def test_columns_in_any_order_and_raw_seconds(tmp_path):
    text = "ReqTRES|ElapsedRaw|State|JobIDRaw|Submit\ncpu=1,gres/gpu=4|90|COMPLETED|7|2026-03-02T08:00:00\n"
    _, jobs = _read(tmp_path, text)
    assert (jobs["7"]["gpus_milli"], jobs["7"]["duration_ms"], jobs["7"]["started_ms"]) == (4_000, 90_000, None)


def test_a_queue_of_the_users_choice(tmp_path):
    _, jobs = _read(tmp_path, SACCT, map="queue=Partition", timezone="Europe/Berlin")
    assert jobs["103"]["queue"] == "debug"


def test_without_gpus_it_says_what_to_export(tmp_path):
    with pytest.raises(SourceError, match=r"sacct -a -X -P --format=.*AllocTRES"):
        _read(tmp_path, "JobID|Submit|Elapsed\n1|2026-03-02T08:00:00|01:00\n")


def test_json_of_both_versions(tmp_path):
    times = {"submission": 1_772_438_400, "start": 1_772_438_460, "end": 1_772_439_060, "elapsed": 600}
    tres = {"allocated": [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu:h100", "count": 8}]}
    new = {
        "job_id": 7,
        "account": "nlp",
        "partition": "gpu",
        "name": "train",
        "time": times,
        "tres": tres,
        "allocation_nodes": 1,
        "state": {"current": ["COMPLETED"]},
        "priority": {"set": True, "infinite": False, "number": 5},
        "array": {"job_id": 0, "task_id": {"set": False, "number": 0}},
    }
    old = {**new, "job_id": 8, "state": {"current": "FAILED"}, "priority": 3, "array": {"job_id": 8, "task_id": 2}}
    waits = {
        **new,
        "job_id": 9,
        "state": {"current": ["PENDING"]},
        "time": {**times, "start": 0, "end": 0, "elapsed": 0},
        "tres": {"allocated": [], "requested": [{"type": "gres", "name": "gpu", "count": 2}]},
    }
    text = json.dumps({"meta": {"slurm": {"version": {"major": 23}}}, "jobs": [new, old, waits]})
    gathered, jobs = _read(tmp_path, text, "sacct.json")
    assert gathered.parts[0].format is Format.SLURM
    assert set(jobs) == {"7", "8_2", "9"}
    assert (jobs["7"]["gpus_milli"], jobs["7"]["gpu_model"], jobs["7"]["duration_ms"]) == (8_000, "h100", 600_000)
    assert (jobs["7"]["priority"], jobs["8_2"]["outcome"]) == (5, "failed")
    assert (jobs["9"]["started_ms"], jobs["9"]["gpus_milli"], jobs["9"]["duration_ms"]) == (None, 2_000, None)


@pytest.mark.parametrize(
    ("text", "tasks"), [("5", 1), ("5_[1-9]", 9), ("5_[1-9:2]", 5), ("5_[1,3,5-7%2]", 5), ("5_[0]", 1), ("5_[odd]", 1)]
)
def test_tasks_of_arrays_are_counted(text, tasks):
    assert count_tasks(text) == tasks
