"""Every source of jobs that `preflight` reads runs in the twin: files of any kind, exports, and the public traces."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from commands import SMALL, ran
from shared import shared
from tidegate.cli.main import app
from tidegate.sim.scenario import POOL
from tidegate.sim.trace_jobs import enough_nodes, plain_nodes, trace_jobs
from tidegate.sources.options import Format, SourceOptions
from tidegate.sources.read_sources import read_sources

EXAMPLES = Path(__file__).parent.parent / "examples"
JOBS = """\
job_id,team,gpus,submitted,runtime_s
a,red,8,2026-03-02T01:00:00Z,3600
b,red,0.5,2026-03-02T01:00:00Z,600
c,blue,20,2026-03-02T02:00:00Z,60
"""
SACCT = """\
JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES|NNodes|Account|JobName
1|2026-03-02T01:00:00|2026-03-02T01:00:00|2026-03-02T02:00:00|3600|COMPLETED|cpu=8,gres/gpu=4|1|red|train
2|2026-03-02T01:00:00|2026-03-02T01:30:00|2026-03-02T02:00:00|1800|COMPLETED|cpu=8,gres/gpu=16|2|blue|train
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    Path("jobs.csv").write_text(JOBS)
    Path("sacct.txt").write_text(SACCT)
    Path("small.yaml").write_text(SMALL)
    pl.read_csv("jobs.csv").write_parquet("jobs.parquet")
    return tmp_path


def simulated(*arguments: str) -> tuple[dict, list[str]]:
    """The report of a run, and the lines on the error channel."""
    result = CliRunner().invoke(app, ["simulate", *arguments, "--kernels", "plain", "--json"], prog_name="tidegate")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr.splitlines()


# -- formats and clusters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["jobs.csv", "jobs.parquet"])
def test_a_table_of_jobs_runs_on_nodes(source):
    report, (*_, note) = simulated(source, "--nodes", "3x8")
    assert report["summary"]["total"]["finished"] == 3
    assert {queue["name"] for queue in report["summary"]["queues"]} == {"red", "blue"}
    assert note == f"{source}: 3 jobs; assumed: priority 0, pods of at most 8 GPUs"


def test_sacct_output_runs_and_its_pods_are_its_nodes():
    report, notes = simulated("sacct.txt", "--nodes", "2x8")
    assert report["summary"]["total"]["finished"] == 2
    assert notes[-1] == "sacct.txt: 2 jobs; assumed: priority 0"
    assert json.loads(ran("explain", "2", "--json"))["job"] == "2"


def test_the_example_runs_on_nodes_on_a_pool_and_on_as_many_nodes_as_it_needs():
    jobs = str(EXAMPLES / "jobs.csv")
    total = {}
    for name, cluster in {"nodes": ("--nodes", "2x8,1x4:l40s"), "pool": ("--gpus", "20"), "assumed": ()}.items():
        report, notes = simulated(jobs, *cluster)
        total[name] = report["summary"]["total"]
        assert total[name]["finished"] == 1_478
        assert ("7 nodes with 8 GPUs (set with --nodes, --gpus or --cluster)" in notes[0]) == (name == "assumed")
    assert total["assumed"]["wait"]["mean_ms"] < total["pool"]["wait"]["mean_ms"] <= total["nodes"]["wait"]["mean_ms"]


def test_a_pool_is_a_queue_that_all_work_may_use():
    report, _ = simulated("jobs.csv", "--gpus", "20.5")
    assert [queue["name"] for queue in report["summary"]["queues"]] == [POOL]
    assert report["summary"]["total"]["finished"] == 3


def test_a_cluster_is_a_tidegate_yaml_or_manifests():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "4"}},
    }
    Path("nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node] * 1}))
    ready, _ = simulated("jobs.csv", "--cluster", "small.yaml")
    assert ready["summary"]["total"]["workloads"] == 3  # the work of the file is not run
    assert ready["summary"]["capacity_gpu_h"] > 0
    dumped, notes = simulated("jobs.csv", "--cluster", "nodes.json")
    assert dumped["summary"]["total"]["workloads"] == 3
    assert "pods of at most 4 GPUs" in notes[-1]


def test_a_policy_without_nodes_limits_by_quota():
    Path("queues.yaml").write_text("policy: {queues: [{name: red, gpus: 8}, {name: blue, gpus: 24}]}\n")
    report, notes = simulated("jobs.csv", "--policy", "queues.yaml")
    assert report["summary"]["total"]["finished"] == 3
    assert "nodes" not in notes[-1]


def test_a_scenario_may_run_on_other_nodes():
    report, _ = simulated("small.yaml", "--nodes", "5x8")
    assert report["summary"]["total"]["finished"] == 4


def test_what_to_try_next_names_sources_and_cluster():
    said = ran("simulate", "jobs.csv", "--nodes", "3x8", "--format", "table", "--kernels", "plain")
    assert "  tidegate compare jobs.csv --nodes 3x8 --format table --policies tide,bestfit,spread " in said


def test_compare_runs_policies_on_a_table():
    compared = json.loads(
        ran("compare", "jobs.csv", "--nodes", "3x8", "--policies", "tide,spread", "--kernels", "plain", "--json")
    )
    assert (compared["policies"], compared["workloads"]) == (["tide", "spread"], 3)


def test_explain_runs_a_table_first():
    assert ran("explain", "c", "jobs.csv", "--nodes", "3x8").startswith("c started at once ")
    waits = ran("explain", "a", "jobs.csv", "--gpus", "4", "--at", "2h")
    assert waits.startswith("a is waiting, ")
    assert "What would start it now" in waits


def test_explain_takes_a_cluster_only_with_jobs():
    assert "name a SOURCE after JOB" in ran("explain", "c", "--nodes", "3x8", code=2)
    assert "name one" in ran("explain", "c", "jobs.csv", "--journal", "a.db", code=2)


def test_commands_of_the_docs_are_accepted():
    commands = typer.main.get_command(app).commands
    text = (EXAMPLES.parent / "docs" / "simulate.md").read_text()
    lines = re.findall(r"^tidegate (\S.*)$", text, re.MULTILINE)
    assert len(lines) >= 5
    for name, *arguments in map(str.split, lines):
        commands[name].make_context(name, arguments)  # parsed, not run


def test_the_defaults_that_the_docs_show_are_those_of_the_example():
    _, (note,) = simulated(str(EXAMPLES / "jobs.csv"))
    assert f"\n{note}\n" in (EXAMPLES.parent / "docs" / "simulate.md").read_text()


# -- rows ------------------------------------------------------------------------------------------------------


def test_pods_are_as_many_as_the_trace_says_or_as_few_as_nodes_allow():
    work = {p.workload.id: p.workload for p in trace_jobs(read_sources(["jobs.csv"]).tables, plain_nodes(4, 4)).work}
    pods = {name: [(s.name, s.count, s.gpu.count, s.gpu.milli) for s in w.work.pod_sets] for name, w in work.items()}
    assert pods == {
        "a": [("main", 2, 4, 0)],
        "b": [("main", 1, 1, 500)],
        "c": [("main", 5, 4, 0)],
    }
    assert [work[name].submitted_ms for name in "abc"] == [3_600_000, 3_600_000, 7_200_000]  # since Monday


def test_gpu_models_count_where_nodes_name_them():
    Path("models.csv").write_text("id,gpus,gpu_model,submitted,runtime\na,1,h100,1000,60\nb,1,a100,1000,60\n")
    tables = read_sources(["models.csv"]).tables
    named = trace_jobs(tables, plain_nodes(1, 8, "h100"))
    assert [p.workload.work.pod_sets[0].gpu.models for p in named.work] == [("h100",), ()]
    assert named.notes == ("1 jobs ask for a GPU model that no node has (a100) and take any",)
    assert [p.workload.work.pod_sets[0].gpu.models for p in trace_jobs(tables, plain_nodes(1, 8)).work] == [(), ()]


def test_a_runtime_that_is_not_known_is_drawn_and_noted():
    ended = "".join(
        f"{at},1,2026-03-02T0{at}:00:00Z,2026-03-02T0{at}:00:00Z,2026-03-02T0{at}:30:00Z\n" for at in range(9)
    )
    Path("open.csv").write_text(
        f"id,gpus,submitted,started,ended\n{ended}going,1,2026-03-02T08:00:00Z,2026-03-02T08:00:00Z,\n"
    )
    jobs = trace_jobs(read_sources(["open.csv"]).tables, [])
    assert len(jobs.work) == 10
    assert jobs.notes == ("1 runtimes are not known and drawn from jobs of the same kind and size",)
    assert jobs == trace_jobs(read_sources(["open.csv"]).tables, [])


def test_ids_that_come_again_get_a_number():
    Path("more.csv").write_text(JOBS)
    jobs = trace_jobs(read_sources(["jobs.csv", "more.csv"]).tables, [])
    assert len({planned.workload.id for planned in jobs.work}) == len(jobs.work)


def test_nodes_that_nobody_names_hold_the_largest_job():
    work = trace_jobs(read_sources(["jobs.csv"]).tables, []).work
    assert len(enough_nodes(work)) == 3  # 20 GPUs
    assert len(enough_nodes(work[:1])) == 1


# -- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jobs.csv", "--nodes", "8"), "--nodes: expected COUNTxGPUS such as 26x8, with 1 to 16 GPUs on each of up "),
        (("jobs.csv", "--nodes", "0x8"), "--nodes: expected COUNTxGPUS such as 26x8"),
        (("jobs.csv", "--gpus", "many"), "--gpus: expected a number of GPUs up to 10,000,000, found 'many'"),
        (("jobs.csv", "--gpus", "nan"), "--gpus: expected a number of GPUs"),
        (("jobs.csv", "--gpus", "8", "--nodes", "1x8"), "--nodes and --gpus each name a cluster; name one"),
        (("jobs.csv", "--cluster", "none.yaml"), "none.yaml: there is no such file or folder"),
        (("jobs.csv", "small.yaml"), "small.yaml: is a tidegate.yaml; name it with --cluster"),
        (("none.csv",), "none.csv: there is no such file or folder"),
        (("--trace", "philly.csv"), "--trace was renamed to SOURCE: tidegate simulate philly.csv --policy queues.yaml"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, message):
    assert ran("simulate", *arguments, code=2).startswith(message)


def test_a_row_that_is_wrong_is_named_with_file_and_line():
    Path("torn.csv").write_text(JOBS + "d,red,many,2026-03-02T02:00:00Z,60\n")
    _, notes = simulated("torn.csv", "--nodes", "3x8")
    assert any("torn.csv" in note and "line 5" in note for note in notes), notes
    assert "line 5" in ran("simulate", "torn.csv", "--nodes", "3x8", "--strict", code=2)


# -- public traces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form", "jobs"),
    [
        ("itp/cluster07.csv", Format.ITP, 12_699),
        ("itp", Format.ITP, 50_637),
        ("muri_philly/trace1.csv", Format.MURI, 1_494),
        ("muri_philly/trace3_pr.csv", Format.MURI, 992),
        ("philly", Format.PHILLY, 82_247),
    ],
)
def test_each_public_trace_of_jobs_becomes_work(name, form, jobs):
    found = trace_jobs(read_sources([str(shared(f"traces/{name}"))], SourceOptions(format=form)).tables, [])
    assert len(found.work) == len({planned.workload.id for planned in found.work}) == jobs
    assert found.notes == ()
    assert enough_nodes(found.work)


def test_a_public_trace_runs_on_a_pool():
    report, _ = simulated(str(shared("traces/muri_philly/trace3.csv")), "--gpus", "64")
    assert report["summary"]["total"]["finished"] == 992


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("azure_llm", "requests"),
        ("mooncake", "requests"),
        ("servegen/language_m-large_clients.csv.gz", "requests"),
        ("helios_earth", "capacity"),
    ],
)
def test_a_public_trace_without_jobs_says_what_it_has(name, has):
    said = ran("simulate", str(shared(f"traces/{name}")), "--nodes", "2x8", code=2)
    assert f": no jobs to run, only {has}; `tidegate preflight` measures them" in said


@pytest.mark.parametrize("name", ["openb", "spot_interruptions", "topology"])
def test_what_is_no_demand_is_refused_as_preflight_refuses_it(name):
    path = str(shared(f"traces/{name}"))
    assert ran("simulate", path, code=2) == ran("preflight", path, code=2)
