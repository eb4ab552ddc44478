"""The Philly trace: read with errors that name row and column, split into queues, and compared as its README says."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import philly
from commands import ran
from shared import shared
from tidegate.api.kernels import Kernels
from tidegate.sim.trace_jobs import trace_jobs
from tidegate.sources.config_file import load_setup
from tidegate.sources.read_sources import read_sources

EXAMPLES = Path(__file__).parent.parent / "examples" / "philly"
POLICIES = ("apart", "borrow", "reclaim")
HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"
QUEUES = yaml.safe_load((EXAMPLES / "apart.yaml").read_text())["policy"]["queues"]
QUOTA = {queue["name"]: queue["gpus"] for queue in QUEUES}
CLUSTERS = list(QUOTA)


def write(path: Path, *rows: str) -> Path:
    """A trace of these rows."""
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def sample(path: Path, jobs: int = 240) -> Path:
    """Jobs like those of the trace: three busy virtual clusters, and a job now and then of the others."""
    rng, at, rows = np.random.default_rng(3), datetime(2017, 10, 2, 8, tzinfo=UTC), []
    for _ in range(jobs):
        at += timedelta(seconds=int(rng.exponential(240)))
        cluster = CLUSTERS[int(rng.choice([0, 3, 9, rng.integers(0, 15)]))]
        gpus = min(int(rng.choice([1, 1, 2, 4, 8, 16])), QUOTA[cluster])
        rows.append(f"{at:%Y-%m-%d %H:%M:%S},{float(int(rng.exponential(40_000)) + 60)},{gpus},0.0,{cluster}")
    rng.shuffle(rows)
    return write(path, *rows)


# -- reading ---------------------------------------------------------------------------------------------------


def test_a_virtual_cluster_is_a_queue_and_a_large_job_a_gang(tmp_path):
    path = write(
        tmp_path / "t.csv",
        "2017-10-04 07:00:00,60.0,20,1200.0,b",
        "2017-10-03 00:00:01,0.4,1,0.4,a",
    )
    first, second = trace_jobs(read_sources([str(path)]).tables, []).work
    assert [p.workload.id for p in (first, second)] == ["t-1", "t-2"]
    assert (first.workload.work.queue, second.workload.work.queue) == ("b", "a")
    assert [(s.name, s.count, s.gpu.count) for s in first.workload.work.pod_sets] == [("main", 2, 8), ("rest", 1, 4)]
    assert [(s.name, s.count, s.gpu.count) for s in second.workload.work.pod_sets] == [("main", 1, 1)]
    assert second.workload.submitted_ms == 86_401_000  # Monday, 2 October, is the beginning
    assert (first.run.runtime_ms, second.run.runtime_ms) == (60_000, 400)


def test_a_trace_without_jobs_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("t.csv"))
    said = ran("simulate", "t.csv", "--policy", str(EXAMPLES / "apart.yaml"), code=2)
    assert "t.csv: no row to go by: expected at least one job, request or sample" in said


# -- quota -----------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A job as its quota is computed from it."""

    duration_ms: int
    gpus: int
    cluster: str


def split_quota(jobs: list[Job], gpus: int) -> dict[str, int]:
    """Split GPUs over the virtual clusters: in proportion to their GPU time, at least the largest job of each."""
    time, least = Counter[str](), Counter[str]()
    for job in jobs:
        time[job.cluster] += job.duration_ms * job.gpus
        least[job.cluster] = max(least[job.cluster], job.gpus)
    if sum(least.values()) > gpus:
        raise ValueError(f"{gpus} GPUs are fewer than the largest jobs need: {sum(least.values())}")
    raised: set[str] = set()
    while True:
        others = [name for name in time if name not in raised]
        left, total = gpus - sum(least[name] for name in raised), sum(time[name] for name in others)
        below = [name for name in others if time[name] * left < least[name] * total]
        if not below:
            return dict(sorted({**{name: least[name] for name in raised}, **_rounded(time, others, left)}.items()))
        raised.update(below)


def _rounded(time: Counter[str], names: list[str], gpus: int) -> dict[str, int]:
    """Whole GPUs in proportion, by the largest remainders."""
    total = sum(time[name] for name in names)
    parts = {name: divmod(time[name] * gpus, total) for name in names}
    by_rest = sorted(names, key=lambda name: (-parts[name][1], name))
    short = gpus - sum(whole for whole, _ in parts.values())
    return {name: parts[name][0] + (name in by_rest[:short]) for name in names}


JOBS = st.lists(
    st.tuples(st.integers(1, 10**6), st.integers(1, 16), st.sampled_from("abcdef")), min_size=1, max_size=30
).map(lambda rows: [Job(*row) for row in rows])


@given(JOBS, st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_quota_is_split_whole_and_every_job_fits_its_own(jobs, spare):
    least = {name: max(job.gpus for job in jobs if job.cluster == name) for name in {job.cluster for job in jobs}}
    gpus = sum(least.values()) + spare
    quota = split_quota(jobs, gpus)
    assert sum(quota.values()) == gpus
    assert all(quota[name] >= least[name] for name in least)
    assert quota.keys() == least.keys()
    if sum(least.values()) > 1:
        with pytest.raises(ValueError, match="fewer than the largest jobs need"):
            split_quota(jobs, sum(least.values()) - 1)


def test_the_examples_have_the_quota_of_the_trace():
    rows = (
        read_sources([str(shared("traces/philly"))]).tables.jobs.select("duration_ms", "gpus_milli", "queue").collect()
    )
    quota = split_quota([Job(ms, milli // 1000, queue) for ms, milli, queue in rows.iter_rows()], 500)
    for name in POLICIES:
        queues = load_setup(EXAMPLES / f"{name}.yaml").policy.shares.queues
        assert {queue.name: queue.quotas[0].nominal // 1000 for queue in queues} == quota


def test_the_examples_differ_in_what_they_are_about():
    policies = {name: load_setup(EXAMPLES / f"{name}.yaml").policy for name in POLICIES}
    assert [policies[name].name for name in POLICIES] == list(POLICIES)
    assert len({policy.cycle_ms for policy in policies.values()}) == 1
    queues = {name: policy.shares.queues for name, policy in policies.items()}
    assert {queue.cohort for queue in queues["apart"]} == {""}
    assert {queue.cohort for queue in (*queues["borrow"], *queues["reclaim"])} == {"philly"}
    assert {queue.preemption.reclaim_in_cohort.value for queue in queues["borrow"]} == {"Never"}
    assert {queue.preemption.reclaim_in_cohort.value for queue in queues["reclaim"]} == {"Any"}


# -- comparing -------------------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The command of the README, on a small trace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES.parent)
    (line,) = re.findall(r"^tidegate (compare .*)$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert "philly.csv" in line
    sample(tmp_path / "philly.csv")
    return line.split()


def test_the_command_of_the_readme_shows_every_queue_under_every_policy(command):
    said = ran(*command, "--kernels", "plain", COLUMNS="80")
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*CLUSTERS, *POLICIES):
        assert name in said
    head = next(line for line in lines if line.startswith("queue"))
    assert head.split() == [
        "queue",
        "policy",
        "p50",
        "wait",
        "p95",
        "max",
        "due",
        "borrow",
        "lent",
        "out",
        "by",
        "lost",
    ]
    first = lines.index(head) + 1
    assert [lines[first + at].split()[at == 0] for at in range(3)] == list(POLICIES)
    assert Path("philly.png").read_bytes().startswith(b"\x89PNG")


def test_json_of_the_comparison(command):
    compared = json.loads(ran(*command[: command.index("--plot")], "--kernels", "plain", "--json"))
    assert set(compared) == {"policies", "workloads", "finished", "seeds", "measures", "queues", "findings"}
    assert compared["policies"] == list(POLICIES)
    assert len(compared["queues"]) <= 15
    named = {measure["name"]: measure["outcomes"] for measure in compared["measures"]}
    assert list(named)[-6:] == ["due", "fairness of due", "fairness of use", "borrowed", "preemptions", "lost"]
    borrowed, preemptions = ([outcome["value"] for outcome in named[name]] for name in ("borrowed", "preemptions"))
    assert borrowed[0] == 0 < borrowed[1]
    assert preemptions[:2] == [0, 0] < preemptions
    rows = {row["name"]: {m["name"]: m["outcomes"] for m in row["measures"]} for row in compared["queues"]}
    for name in ("borrowed", "preempted", "lost"):
        total = named["preemptions" if name == "preempted" else name]
        for at in range(3):
            assert sum(row[name][at]["value"] for row in rows.values()) == pytest.approx(total[at]["value"])
    assert all(len(texts) == len(set(texts)) for texts in compared["findings"])


def test_the_benchmark_runs_on_a_small_trace(tmp_path):
    report = philly.bench(sample(tmp_path / "t.csv"), list(POLICIES), 200, Kernels.PLAIN)
    assert (report["jobs"], report["gpus"]) == (200, 500)
    for run in report["policies"]:
        assert run["finished"] == 200
        assert run["cpu_seconds"] > 0
    apart, borrow, reclaim = report["policies"]
    assert apart["borrowed_gpu_h"] == apart["preemptions"] == borrow["preemptions"] == 0
    assert reclaim["preemptions"] > 0
    json.dumps(report, allow_nan=False)
