"""`import tidegate`: what it loads, what its functions give, and that it is what the commands give."""

from __future__ import annotations

import ast
import gc
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import tidegate
from commands import ran
from tidegate.journal.store import JournalError
from tidegate.model.errors import TidegateError

ROOT = Path(__file__).parent.parent
JOBS = str(ROOT / "examples" / "jobs.csv")
BORROW = str(ROOT / "examples" / "philly" / "borrow.yaml")
PLAIN = {"kernels": "plain"}
COLUMNS = {"job_id": ["a", "b", "c"], "submitted": [0, 60, 120], "runtime": [600, 20, 30], "gpus": [8, 8, 2]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture(scope="module")
def run():
    return tidegate.simulate(JOBS, nodes="4x8", seed=1, **PLAIN)


@pytest.fixture(scope="module")
def demand():
    return tidegate.measure_demand(JOBS)


# -- the import ------------------------------------------------------------------------------------------------


def test_the_import_loads_nothing_else_and_takes_no_time():
    code = (
        "import sys, time; before = set(sys.modules); begun = time.process_time(); import tidegate; "
        "print(time.process_time() - begun, *sorted(set(sys.modules) - before))"
    )
    tries = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(3)]
    seconds, *modules = zip(*(one.stdout.split() for one in tries), strict=True)
    assert min(map(float, seconds)) < 0.03
    assert [names[0] for names in modules] == ["tidegate"]


def test_type_checkers_and_the_runtime_see_the_same_names():
    stub = ast.parse((ROOT / "src" / "tidegate" / "__init__.pyi").read_text())
    places = {
        alias.name: node.module.removeprefix("tidegate.")
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert places == tidegate._MODULES
    listed = next(node for node in stub.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(listed.value) == sorted(tidegate.__all__)
    assert set(tidegate.__all__) <= set(dir(tidegate))
    assert all(getattr(tidegate, name).__doc__ for name in tidegate.__all__)
    with pytest.raises(AttributeError, match="no attribute 'simulator'"):
        tidegate.simulator  # noqa: B018


def test_the_package_is_typed():
    assert (ROOT / "src" / "tidegate" / "py.typed").exists()


# -- simulate --------------------------------------------------------------------------------------------------


def test_a_simulation_is_what_the_command_reports(run, tmp_path):
    said = ran("simulate", JOBS, "--nodes", "4x8", "--seed", "1", "--json", "--kernels", "plain", "--csv", "jobs.csv")
    assert json.loads(said) == json.loads(json.dumps(run.to_dict()))
    table = pl.read_csv("jobs.csv", infer_schema_length=None)
    assert run.jobs().columns == table.columns
    assert run.jobs()["waited_ms"].to_list() == table["waited_ms"].to_list()
    assert run.jobs()["started_ms"].null_count() == table["started_ms"].null_count()
    assert run.summary.total.finished == run.jobs().height == 1_478
    assert run.findings == tuple(run.to_dict()["findings"])


def test_a_simulation_prints_well(run):
    first, *_, note = repr(run).splitlines()
    assert first.startswith("Tidegate  4 nodes, 32 GPUs")
    assert note == "note: jobs.csv: 1,478 jobs; assumed: priority 0, pods of at most 8 GPUs"
    assert "by queue" in str(run)
    assert "\x1b" not in str(run)


def test_frames_have_a_row_for_each_job_queue_and_time(run):
    assert set(run.queues()["queue"]) == {"platform", "research", "vision"}
    assert run.queues()["workloads"].sum() == 1_478
    timeline = run.timeline()
    assert timeline.columns[:3] == ["at_ms", "gpus", "allocated_gpus"]
    assert timeline["allocated_gpus"].max() <= timeline["gpus"].max() == 32
    assert timeline["busy_gpus"].dtype == pl.Float64
    assert timeline["busy_gpus"].null_count() > 0  # not observed, where anything was allocated


def test_its_journal_explains_jobs_and_goes_with_it(run, tmp_path):
    with run.journal() as journal:
        path, explained = journal.path, journal.explain("job-724")
    assert run.explain("job-724").to_dict() == explained.to_dict() == tidegate.explain(path, "job-724").to_dict()
    short = tidegate.simulate(COLUMNS, nodes="1x8", **PLAIN)
    path = short.journal().path
    assert path.exists()
    del short
    gc.collect()
    assert not path.parent.exists()


def test_a_picture_is_drawn(run):
    run.plot("week.svg")
    assert Path("week.svg").read_text().startswith("<?xml")
    with pytest.raises(tidegate.UserError, match=r"week\.jpg"):
        run.plot("week.jpg")


@pytest.mark.parametrize(
    "source",
    [COLUMNS, pl.DataFrame(COLUMNS), pl.LazyFrame(COLUMNS), {name: tuple(cells) for name, cells in COLUMNS.items()}],
)
def test_frames_and_columns_run_as_files_do(source):
    pl.DataFrame(COLUMNS).write_csv("own.csv")
    expected = tidegate.simulate("own.csv", nodes="1x8", **PLAIN)
    run = tidegate.simulate(source, nodes="1x8", **PLAIN)
    assert run.to_dict() == expected.to_dict()
    assert run.jobs()["id"].to_list() == ["a", "b", "c"]
    assert run.jobs()["waited_ms"].to_list() == [0, 540_000, 540_000]


class _Column(list):
    """A pandas column, as far as it is read."""

    def isna(self):
        return _Column(cell is None or cell != cell for cell in self)  # noqa: PLR0124  not a number

    def to_list(self):
        return list(self)


class _Pandas:
    """A pandas frame, as far as it is read."""

    columns = tuple(COLUMNS)

    def isna(self):
        raise AssertionError

    def __getitem__(self, name):
        return _Column([*COLUMNS[name][:2], float("nan") if name == "gpus" else COLUMNS[name][2]])


def test_a_pandas_frame_runs_without_pandas_being_needed():
    run = tidegate.simulate(_Pandas(), nodes="1x8", **PLAIN)
    assert run.jobs()["id"].to_list() == ["a", "b"]
    assert any("row 3 gpus [missing-value]" in note for note in run.notes)


def test_a_real_pandas_frame_runs():
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(JOBS)
    expected = tidegate.simulate(JOBS, nodes="4x8", **PLAIN).to_dict()
    for name in ("submitted", "started", "ended"):
        frame[name] = pandas.to_datetime(frame[name])
    assert tidegate.simulate(frame, nodes="4x8", **PLAIN).to_dict() == expected


def test_policies_and_clusters_are_paths_or_sections():
    Path("tidegate.yaml").write_text("policy: {placement: bestfit, cycle: 10s}\n")
    of_file = tidegate.simulate(COLUMNS, nodes="1x8", policy="tidegate.yaml", **PLAIN)
    section = tidegate.simulate(COLUMNS, nodes="1x8", policy={"placement": "bestfit", "cycle": "10s"}, **PLAIN)
    assert of_file.to_dict() == section.to_dict()
    options = tidegate.simulate(COLUMNS, nodes="1x8", placement="bestfit", cycle="10s", **PLAIN)
    assert options.jobs().equals(section.jobs())
    pools = {"pools": [{"name": "a", "count": 1, "shape": {"gpu": "h100", "gpus": 8}}]}
    assert tidegate.simulate(COLUMNS, cluster=pools, **PLAIN).summary.total.finished == 3
    assert tidegate.simulate(COLUMNS, gpus=8, **PLAIN).summary.total.finished == 3
    yaml = (
        "cluster: {pools: [{name: a, count: 1, shape: {gpus: 8}}]}\nwork: [{id: one, runtime: 1h, pods: [{gpus: 8}]}]"
    )
    Path("whole.yaml").write_text(yaml)
    assert tidegate.simulate("whole.yaml", **PLAIN).jobs()["id"].to_list() == ["one"]


def test_a_source_is_read_once_for_many_runs():
    source = tidegate.read_source(
        {"created": [0, 60], "runtime": [10, 20], "num": [1, 2]},
        columns={"submitted": "created:s", "gpus": "num", "queue": "=research"},
    )
    assert repr(source).startswith("<SourceData jobs: 2 rows of jobs")
    assert source.table("jobs")["queue"].to_list() == ["research", "research"]
    assert tidegate.simulate(source, nodes="1x8", **PLAIN).queues()["queue"].to_list() == ["research"]
    with pytest.raises(tidegate.UserError, match="has no table of requests"):
        source.table("requests")


# -- errors ----------------------------------------------------------------------------------------------------

REFUSED = [
    ((JOBS,), {"nodes": "x"}, "--nodes: expected COUNTxGPUS"),
    ((JOBS,), {"nodes": "1x8", "gpus": 4}, "--nodes and --gpus each name a cluster"),
    ((JOBS,), {"policy": "no.yaml"}, "no.yaml: there is no such file"),
    ((JOBS,), {"nodes": 4}, "--nodes: expected COUNTxGPUS"),
    ((JOBS,), {"policy": 5}, "policy: expected a path or a dict, found int"),
    ((JOBS,), {"policy": {"placement": "best"}}, "policy.placement: expected one of"),
    ((JOBS,), {"cluster": {"pools": [{}]}}, r"cluster.pools\[0\].name: required key is missing"),
    ((JOBS,), {"order": "x"}, "--order: expected one of fifo"),
    ((JOBS,), {"placement": "x"}, "--placement: expected one of"),
    ((JOBS,), {"cycle": "0s"}, "--cycle: expected at least 1ms"),
    ((JOBS,), {"seed": -1}, "--seed: expected"),
    ((JOBS,), {"kernels": "fast"}, "kernels: expected one of auto"),
    (("nothing.csv",), {}, "nothing.csv: there is no such file"),
    (([],), {}, "no source is named"),
    ((5,), {}, "source: expected a path"),
    (({"a": [1, 2], "b": [1]},), {}, "jobs: expected columns of equal length"),
    (({"x": [1], "y": [2]},), {}, "jobs: no column was recognised"),
    (({"submitted": [object()], "gpus": [1]},), {}, "jobs: cannot be read as a table"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), REFUSED)
def test_what_cannot_be_used_is_refused(arguments, options, message):
    with pytest.raises(tidegate.UserError, match=message) as refused:
        tidegate.simulate(*arguments, **{**PLAIN, **options})
    assert isinstance(refused.value, TidegateError)


def test_messages_are_those_of_the_commands():
    said = ran("simulate", JOBS, "--nodes", "x", code=2).strip()
    with pytest.raises(tidegate.UserError) as refused:
        tidegate.simulate(JOBS, nodes="x")
    assert str(refused.value) == said


def test_a_journal_is_never_written_over():
    tidegate.simulate(COLUMNS, nodes="1x8", journal="run.db", **PLAIN)
    with pytest.raises(JournalError, match="already exists"):
        tidegate.simulate(COLUMNS, nodes="1x8", journal="run.db", **PLAIN)


# -- compare ---------------------------------------------------------------------------------------------------


def test_a_comparison_is_what_the_command_reports():
    Path("some.csv").write_text("".join(Path(JOBS).read_text().splitlines(keepends=True)[:301]))
    compared = tidegate.compare("some.csv", ["tide", "srtf"], nodes="4x8", **PLAIN)
    said = ran("compare", "some.csv", "--nodes", "4x8", "--policies", "tide,srtf", "--json", "--kernels", "plain")
    assert json.loads(said) == json.loads(json.dumps(compared.to_dict()))
    assert compared.policies == ("tide", "srtf")
    assert repr(compared).startswith("<Comparison of tide, srtf on 300 jobs>\n300 workloads")
    waits = compared.measures().filter(pl.col("measure") == "mean wait")
    assert waits["policy"].to_list() == ["tide", "srtf"]
    assert waits["ratio"][1] == pytest.approx(waits["value"][1] / waits["value"][0])


def test_policies_are_named_in_a_list_or_a_dict():
    Path("own.yaml").write_text("policy: {placement: bestfit}\n")
    mine = {"placement": "spread", "name": "mine"}
    compared = tidegate.compare(COLUMNS, ["tide", "own.yaml", Path("own.yaml"), mine], nodes="2x8", **PLAIN)
    assert compared.policies == ("tide", "own 2", "own 3", "mine")
    named = tidegate.compare(COLUMNS, {"first": "tide", "second": mine}, nodes="2x8", seeds=2, **PLAIN)
    assert named.policies == ("first", "second")
    assert set(named.findings) == {"first", "second"}
    with pytest.raises(tidegate.UserError, match="--policies: expected orders and placements"):
        tidegate.compare(COLUMNS, ["nobody"], **PLAIN)
    for wrong in ([5], []):
        with pytest.raises(tidegate.UserError, match="--policies: expected"):
            tidegate.compare(COLUMNS, wrong, **PLAIN)
    with pytest.raises(tidegate.UserError, match="queue: expected one of none"):
        named.measures("red")


# -- journals --------------------------------------------------------------------------------------------------


def test_a_journal_lists_decisions_and_jobs():
    run = tidegate.simulate(COLUMNS, nodes="1x8", journal="run.db", **PLAIN)
    with tidegate.read_journal("run.db") as journal:
        assert len(journal) == len(list(journal.steps()))
        assert journal.jobs().equals(run.jobs())
        decisions = journal.decisions()
        assert decisions.select("kind", "job").rows() == [
            ("PLACE", "a"),
            ("HOLD", "b"),
            ("HOLD", "c"),
            ("PLACE", "b"),
            ("PLACE", "c"),
        ]
        assert journal.decisions("b")["text"][0].startswith("no node has 8 idle GPUs")
        assert decisions["nodes"].to_list()[0] == ["node-0000"]
        assert repr(journal) == f"<JournalReader run.db: {len(journal)} steps, Mon 00:00 to Mon 00:12>"
    with pytest.raises(tidegate.UserError, match="no such journal"):
        tidegate.read_journal("nothing.db")


def test_an_explanation_is_what_the_command_prints():
    tidegate.simulate(COLUMNS, nodes="1x8", journal="run.db", **PLAIN)
    arguments = ("explain", "b", "--journal", "run.db", "--at", "5m", "--kernels", "plain")
    explained = tidegate.explain("run.db", "b", at="5m", **PLAIN)
    assert json.loads(ran(*arguments, "--json")) == json.loads(json.dumps(explained.to_dict()))
    assert " ".join(str(explained).split()) == " ".join(ran(*arguments).split())
    assert explained.job == "b"
    assert explained.headline.startswith("b is waiting, 1m so far")
    assert explained.lift
    assert explained.starts is None
    assert any("GPU" in change for change in explained.changes)
    assert tidegate.explain("run.db", "b", at="5m", trials=0, **PLAIN).changes == ()
    assert tidegate.explain("run.db", "b", at="5m", node="node-0000", **PLAIN).to_dict()["lacks"]
    with pytest.raises(tidegate.UserError, match="no job 'nobody' in this journal"):
        tidegate.explain("run.db", "nobody")


# -- an engine -------------------------------------------------------------------------------------------------


def test_an_engine_is_stepped_by_hand():
    engine = tidegate.Engine({"placement": "bestfit"}, nodes="2x8")
    engine.submit("first", gpus=8)
    engine.submit("gang", gpus=8, pods=2)
    step = engine.step(now_ms=1_000)
    assert [(one.kind, one.job, one.reason) for one in step.decisions] == [
        ("PLACE", "first", "PLACED"),
        ("HOLD", "gang", "GANG_PARTIAL"),
    ]
    assert step.of("first")[0].places[0].node == "node-0000"
    assert step.of("first")[0].places[0].gpus == tuple(range(8))
    assert repr(step).splitlines()[0] == "1s  PLACE first on node-0000 (PLACED)"
    assert json.loads(json.dumps(step.to_dict()))["decisions"][1]["text"].startswith("only 1 of its 2 pods fit")
    assert engine.explain("gang").headline.startswith("gang is waiting")
    engine.finish("first")
    engine.add_node("1x8")
    step = engine.step(now_ms=60_000)
    assert [(one.kind, one.job) for one in step.decisions] == [("PLACE", "gang")]
    assert len({place.node for place in step.decisions[0].places}) == 2
    assert repr(engine) == "<Engine: 3 nodes, 1 job, at 1m>"
    with engine.journal() as journal:
        assert journal.jobs()["fate"].to_list() == ["finished", "running"]


def test_what_it_decides_takes_effect_with_the_next_step():
    engine = tidegate.Engine({"order": "srtf"}, nodes="1x8")
    engine.submit("long", gpus=8, estimate="10h")
    engine.step(now_ms=0)
    engine.submit("short", gpus=8, estimate="1m")
    step = engine.step(now_ms=60_000)
    assert {(one.kind, one.job) for one in step.decisions} >= {("PREEMPT", "long")}
    assert step.of("long")[0].cause in ("short", "")
    assert step.next_ms == 60_000
    assert [(one.kind, one.job) for one in engine.step(now_ms=60_000).decisions if one.kind == "PLACE"] == [
        ("PLACE", "short")
    ]
    engine.cancel("long")
    engine.fail_pod("short")
    assert engine.step(now_ms=70_000).of("short")[0].kind == "EVICT"
    engine.remove_node("node-0000")
    engine.set_policy({"order": "fifo"})
    engine.step(now_ms=80_000)


def test_where_quota_is_all_there_is_an_engine_admits():
    engine = tidegate.Engine(BORROW)
    with engine.journal():
        pass
    queue = tidegate.read_source(JOBS)  # only to be sure that reading does not disturb an engine
    assert queue.findings == ()
    names = [queue.name for queue in _policy_of(BORROW).shares.queues]
    engine.submit("one", gpus=1, queue=names[0])
    assert [(one.kind, one.job) for one in engine.step(now_ms=0).decisions] == [("ADMIT", "one")]
    engine.finish("one")
    assert engine.step(now_ms=1_000).decisions == ()


def _policy_of(path):
    from tidegate.api.scenario_input import read_policy

    return read_policy(path).content.policy


def test_an_engine_decides_as_the_twin_does():
    """The facts of a run, told by hand, lead to the same decisions."""
    run = tidegate.simulate(COLUMNS, nodes="1x8", cycle="1s", **PLAIN)
    engine = tidegate.Engine({"cycle": "1s"}, nodes="1x8")
    decided = []
    for now_s, submitted, finished in [(0, "a", ""), (60, "b", ""), (120, "c", ""), (600, "", "a"), (620, "", "b")]:
        if submitted:
            at = COLUMNS["job_id"].index(submitted)
            engine.submit(submitted, gpus=COLUMNS["gpus"][at])
        if finished:
            engine.finish(finished)
        decided += [(one.kind, one.job, one.reason) for one in engine.step(now_ms=now_s * 1_000).decisions]
    with run.journal() as journal:
        assert journal.decisions().select("kind", "job", "reason").rows() == decided


def test_an_engine_refuses_what_makes_no_sense():
    engine = tidegate.Engine(nodes="1x8")
    engine.submit("one")
    engine.step(now_ms=10)
    refused = {
        "was submitted before": lambda: engine.submit("one"),
        "there is no such job": lambda: engine.finish("two"),
        "there is no such node": lambda: engine.remove_node("node-9"),
        "time never goes back": lambda: engine.step(now_ms=5),
        "kind: expected one of": lambda: engine.submit("two", kind="x"),
        "expected one pod or more": lambda: engine.submit("two", pods=0),
        "a quantity such as": lambda: engine.submit("two", cpu="x"),
        "estimate: expected a duration": lambda: engine.submit("two", estimate="x"),
        "each name a cluster": lambda: tidegate.Engine(nodes="1x8", cluster={"pools": []}),
    }
    for message, call in refused.items():
        with pytest.raises(tidegate.UserError, match=message):
            call()
    assert engine.step(now_ms=10).decisions == ()
    engine.finish("one")
    with pytest.raises(tidegate.UserError, match="one: is over"):
        engine.cancel("one")


# -- demand and plan -------------------------------------------------------------------------------------------


def test_a_measured_demand_is_what_the_command_reports(demand):
    assert json.loads(ran("preflight", JOBS, "--json")) == json.loads(json.dumps(demand.to_dict()))
    assert set(demand.answers) == {"floor", "burst", "residency", "patience"}
    assert demand.floor_gpus == 66
    assert repr(demand).splitlines()[1] == demand.verdict
    assert "preflight" in str(demand)
    assert demand.findings == tuple(demand.findings)


def test_a_plan_needs_signatures_and_is_what_the_command_reports(demand):
    with pytest.raises(tidegate.UserError, match="answers are assumptions that are not signed") as refused:
        tidegate.plan(demand)
    assert str(refused.value).endswith("assume=['cold-start=10m', 'residency=as-asked', 'prices=1:1.5:2.5']")
    planned = tidegate.plan(demand, assume="all")
    assert json.loads(ran("plan", JOBS, "--assume", "all", "--json")) == planned.to_dict()
    assert planned.holds
    assert set(planned.signatures) == {"cold-start", "residency", "prices"}
    assert repr(planned).startswith(f"Own {planned.own_gpus} GPUs")
    assert planned.floor_gpus == 66
    planned.save("plan.json")
    assert json.loads(Path("plan.json").read_text()) == planned.to_dict()


def test_assumptions_and_prices_are_plain_data(demand):
    prices = {"gpu_hour": {"own": 1.8, "window": 2.4, "burst": 4.1}, "currency": "USD"}
    assume = {"tolerance": "2h", "cold-start": "5m", "residency": ""}
    planned = tidegate.plan(demand, assume=assume, prices=prices, burst=False)
    assert planned.signatures == {"tolerance": "2h", "cold-start": "5m", "residency": "as-asked"}
    assert planned.document.prices.currency == "USD"
    assert planned.burst_gpus == 0
    for options, message in (
        ({"assume": ["x"]}, "--assume x: expected one of"),
        ({"holdout": 2}, "--holdout: expected a share"),
        ({"order": "x"}, "--order: expected one of"),
        ({"prices": {"gpu_hour": {"own": -1}}}, "prices: gpu_hour"),
    ):
        with pytest.raises(tidegate.UserError, match=message):
            tidegate.plan(demand, **options)


def test_a_demand_model_is_a_source(demand):
    demand.save("demand.json")
    model = tidegate.read_source("demand.json")
    assert repr(model) == "<SourceData demand.json: a demand model>"
    assert tidegate.simulate(model, nodes="12x8", seed=3, **PLAIN).summary.total.workloads > 100
    with pytest.raises(tidegate.UserError, match="is a demand model already"):
        tidegate.measure_demand(model)
