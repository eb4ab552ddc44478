"""preflight, plan and demand on the command line: what people see, files that are whole, and refusals that help."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import files, ran
from shared import shared
from test_planning_plan import tidal_jobs
from tidegate.planning.plan_schema import decode_plan

PRICES = "currency: EUR\ngpu_hour: {own: 2, window: 3, burst: 5}\n"
ASSUMED = ("--assume", "tolerance=1h,cold-start=10m", "--assume", "residency")


@pytest.fixture(scope="module")
def jobs_csv(tmp_path_factory) -> Path:
    """Six weeks of jobs in a CSV, as somebody would have it."""
    jobs = tidal_jobs()
    path = tmp_path_factory.mktemp("jobs") / "jobs.csv"
    start = np.datetime64("2026-03-02T00:00:00")
    lines = ["job_id,submitted_at,duration_s,gpus"]
    for row in range(jobs.total):
        at = start + np.timedelta64(int(jobs.at_ms[row]), "ms")
        run, gpus = int(jobs.run_ms[row]) // 1000, int(jobs.gpus_milli[row]) // 1000
        lines.append(f"j{row:05d},{str(at)[:19]}Z,{run},{gpus}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def model_json(jobs_csv: Path) -> Path:
    path = jobs_csv.with_name("demand.json")
    ran("preflight", str(jobs_csv), "--out", str(path), "--json")
    return path


# -- preflight ---------------------------------------------------------------------------------------------------------


def test_somebody_with_a_csv_learns_what_the_peak_wastes(jobs_csv):
    text = ran("preflight", str(jobs_csv), COLUMNS="80", NO_COLOR="1")
    assert "Premature: two of four answers are assumptions." in text
    assert re.search(r"By replay of [\d,]+ jobs, \d+ GPUs", text)
    assert "What is the real concurrency floor?" in text
    assert "Seven inputs" in text
    wasted = " ".join(text[text.index("What is wasted") :].split())
    assert re.search(r"Buying for the peak of \d+ GPUs where \d+ hold the tolerance: [\d,]+ GPU-hours, \d+ %", wasted)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_preflight_tells_programs_the_same_and_twice_the_same(jobs_csv):
    first, second = (ran("preflight", str(jobs_csv), "--json") for _ in range(2))
    assert first == second
    told = json.loads(first)
    assert told["format"] == "tidegate.preflight/3"
    assert told["verdict"] == "premature"
    assert [one["grade"] for one in told["answers"]] == ["measured", "partial", "assumed", "assumed"]
    assert all(one["lifted_by"] for one in told["answers"] if one["grade"] != "measured")
    floor = told["floor"]
    assert floor["low"] <= floor["gpus"] <= floor["high"] < floor["peak_gpus"]
    assert floor["p95_wait_ms"] <= floor["tolerance_ms"] == 3_600_000
    assert told["model"]["format"] == "tidegate.demand"


def test_prices_turn_waste_into_money(jobs_csv, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    told = json.loads(ran("preflight", str(jobs_csv), "--prices", str(prices), "--json"))
    floor = told["floor"]
    money = 2 * (floor["peak_gpu_hours"] - floor["floor_gpu_hours"])
    assert f"{money:,.0f} EUR" in told["waste"]["says"][0]


def test_a_longer_tolerance_needs_no_more(jobs_csv):
    floors = [
        json.loads(ran("preflight", str(jobs_csv), "--tolerance", wait, "--json"))["floor"]["gpus"]
        for wait in ("5m", "1h", "12h")
    ]
    assert floors == sorted(floors, reverse=True)
    assert floors[0] > floors[-1]


@pytest.mark.parametrize(
    ("name", "form", "check"),
    [
        ("itp/cluster07.csv", "itp", {"mean": 257, "p95": 376, "p99": 437, "peak": 1903}),
        ("itp/cluster05.csv", "itp", None),
        ("azure_llm/AzureLLMInferenceTrace_code.csv", "azure-llm", None),
        ("mooncake/conversation_trace.jsonl", "mooncake", None),
        ("muri_philly/trace3.csv", "muri", None),
    ],
)
def test_preflight_reads_real_traces(name, form, check):
    told = json.loads(ran("preflight", str(shared(f"traces/{name}")), "--format", form, "--json"))
    assert len(told["answers"]) == 4
    if check:
        wanted = next(group for group in told["model"]["groups"] if group["scope"] == "total")["wanted"]
        assert {key: round(wanted[key]["value"]) for key in check} == check


@pytest.mark.parametrize(
    "name", ["topology/topo.csv", "spot_interruptions/p3-trace.csv", "openb/openb_node_list_gpu_node.csv"]
)
def test_what_is_no_demand_is_refused_with_that_reason(name):
    assert "no demand" in ran("preflight", str(shared(f"traces/{name}")), code=2)


# -- plan --------------------------------------------------------------------------------------------------------------


def test_a_plan_without_signatures_is_refused_and_the_refusal_lifts_itself(jobs_csv):
    said = ran("plan", str(jobs_csv), code=2)
    assert "no plan: 4 of its answers are assumptions that are not signed" in said
    options = re.findall(r"--assume \S+", said.splitlines()[-1])
    arguments = [word for option in options for word in option.split()]
    plan = decode_plan(ran("plan", str(jobs_csv), *arguments, "--json").encode())
    assert [part.name for part in plan.signatures] == ["tolerance", "cold-start", "residency", "prices"]
    assert all(part.value and part.instead_of for part in plan.signatures)


def test_a_plan_with_prices_needs_no_signature_for_them(jobs_csv, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    text = ran("plan", str(jobs_csv), "--prices", str(prices), *ASSUMED, "--json")
    assert text == ran("plan", str(jobs_csv), "--prices", str(prices), *ASSUMED, "--json")
    plan = decode_plan(text.encode())
    assert (plan.prices.currency, plan.prices.burst, plan.prices.origin) == ("EUR", 5.0, str(prices))
    assert "prices" not in [part.name for part in plan.signatures]
    assert [answer.grade for answer in plan.answers] == ["measured", "partial", "assumed", "assumed"]
    assert plan.classes[0].twin.differing_starts == 0
    assert plan.origin.sources[0].rows == plan.origin.jobs


def test_a_plan_on_trial_fits_a_terminal_and_says_what_matters(jobs_csv):
    text = ran("plan", str(jobs_csv), "--assume", "all", "--holdout", "0.33", COLUMNS="80", NO_COLOR="1")
    assert max(len(line) for line in text.splitlines()) <= 80
    words = " ".join(text.split())
    assert "the clairvoyant's GPU-hours" in words
    for part in ("Own ", "burst up to", "One GPU more, a week", "On trial", "the peak, constant", "signed tolerance"):
        assert part in words


def test_without_burst_the_plan_holds_more(jobs_csv):
    plans = [
        decode_plan(ran("plan", str(jobs_csv), "--assume", "all", "--json", *more).encode())
        for more in ((), ("--no-burst",))
    ]
    assert plans[0].classes[0].burst is not None
    assert plans[1].classes[0].burst is None
    held = [next(way for way in plan.classes[0].ways if way.name == "plan").held_gpu_hours for plan in plans]
    assert held[0] < held[1]


def test_a_plan_from_a_demand_model_says_that_its_jobs_are_drawn(model_json, tmp_path):
    page = tmp_path / "plan.html"
    plan = decode_plan(ran("plan", str(model_json), "--assume", "all", "--json", "--html", str(page)).encode())
    assert plan.origin.sampled
    assert "jobs that a demand model drew, not on those that the model was made from" in plan.classes[0].says[0]
    assert "On jobs drawn from a demand model: Own" in page.read_text()
    floors = [
        decode_plan(ran("plan", str(model_json), "--assume", "all", "--json", "--seed", str(seed)).encode())
        for seed in (1, 2)
    ]
    part = plan.classes[0].floor
    assert all(part.low_gpus <= other.classes[0].floor.gpus <= part.high_gpus for other in floors)


def test_a_demand_model_can_be_planned_for(model_json):
    plan = decode_plan(ran("plan", str(model_json), "--assume", "all", "--json").encode())
    assert plan.origin.sources[0].name == str(model_json)
    assert plan.origin.jobs > 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--assume", "nonsense"),
            "expected one of tolerance, interactive, cold-start, residency, prices, runtimes, all, found 'nonsense'",
        ),
        (("--assume", "tolerance=soon"), "--assume tolerance: expected a duration"),
        (("--prices", "missing.yaml", "--assume", "all"), "missing.yaml: there is no such file"),
        (("--html", "no/such/folder/page.html"), "--html no/such/folder/page.html: there is no folder"),
        (("--plot", "picture.gif"), "name a file that ends in .svg or .png"),
    ],
)
def test_refusals_of_plan_say_what_to_do(jobs_csv, arguments, says):
    assert says in ran("plan", str(jobs_csv), *arguments, code=2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu_hour: {own: 3, burst: 2}\n", "prices.yaml:1: gpu_hour: expected own <= window <= burst"),
        ("gpu_hour: {own: cheap, burst: 2}\n", "gpu_hour.own: expected"),
        ("gpu_hours: {}\n", "unknown key"),
    ],
)
def test_prices_that_cannot_be_used_are_told_with_their_line(jobs_csv, tmp_path, text, says):
    prices = tmp_path / "prices.yaml"
    prices.write_text(text)
    assert says in ran("plan", str(jobs_csv), "--prices", str(prices), *ASSUMED, code=2)


def test_times_in_a_wrong_unit_are_refused_instead_of_tried_for_ever(tmp_path):
    path = tmp_path / "ms.csv"
    path.write_text("id,submitted,duration,gpus\n" + "".join(f"{n},{n * 4_000_000},60,1\n" for n in range(200)))
    refused = ran("plan", str(path), "--assume", "all", "--holdout", "0.33", code=2)
    assert "expected jobs of at most ten years, found 25" in " ".join(refused.split())
    ran("plan", str(path), "--assume", "all", "--map", "submitted=submitted:ms")


def test_where_all_rows_are_dropped_there_is_nothing_to_go_by(tmp_path):
    path = tmp_path / "wrong.csv"
    rows = "".join(f"{n},1700000000,1700000009,1700000001,1\n" for n in range(30))
    path.write_text(f"id,submitted,started,ended,gpus\n{rows}")
    for command in (["preflight", str(path)], ["plan", str(path), "--assume", "all"]):
        assert "(all of 30 were dropped)" in " ".join(ran(*command, code=2).split())


def test_too_few_jobs_give_no_plan(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("id,submitted,duration,gpus\na,2026-01-01T00:00:00Z,60,1\nb,2026-01-01T00:01:00Z,60,1\n")
    assert "expected 20" in ran("plan", str(path), "--assume", "all", code=2)


# -- files -------------------------------------------------------------------------------------------------------------


def test_everything_that_is_written_is_whole_and_the_same_again(jobs_csv, tmp_path):
    pytest.importorskip("matplotlib")
    written = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        outputs = [
            f"--{kind}={folder / file}" for kind, file in (("html", "p.html"), ("plot", "p.svg"), ("out", "p.json"))
        ]
        ran("plan", str(jobs_csv), "--assume", "all", *outputs)
        outputs = [
            f"--{kind}={folder / file}" for kind, file in (("html", "f.html"), ("plot", "f.png"), ("out", "f.json"))
        ]
        ran("preflight", str(jobs_csv), *outputs)
        written.append(files(folder))
    assert sorted(written[0]) == ["f.html", "f.json", "f.png", "p.html", "p.json", "p.svg"]
    assert written[0] == written[1]


def test_the_page_stands_alone(jobs_csv, tmp_path):
    page = tmp_path / "page.html"
    ran("plan", str(jobs_csv), "--assume", "all", "--holdout", "0.33", "--html", str(page))
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])
    for chart in data["charts"]:
        assert all(len(series["values"]) == len(chart["x"]) for series in chart["series"])


def test_a_browser_draws_the_page(jobs_csv, tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("needs chromium, which is not on this machine")
    page = tmp_path / "page.html"
    ran("preflight", str(jobs_csv), "--html", str(page))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=4000",
        f"--user-data-dir={tmp_path}/profile",
    ]
    drawn = subprocess.run(
        [browser, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert drawn.stdout.count("<svg") == drawn.stdout.count("data-chart=") >= 3
    assert drawn.stdout.count("<path") >= 6


# -- demand ------------------------------------------------------------------------------------------------------------


def test_more_of_the_same_is_the_same_for_a_seed_and_nearly_the_same_demand(model_json, tmp_path):
    one, two, other = (tmp_path / name for name in ("one.csv", "two.csv", "other.csv"))
    for path, seed in ((one, "4"), (two, "4"), (other, "5")):
        ran("demand", "sample", str(model_json), "--out", str(path), "--seed", seed)
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()
    ran("demand", "diff", str(model_json), str(model_json))
    changes = json.loads(_answered(1, "demand", "diff", str(model_json), str(other), "--json"))
    hours = [change for change in changes if change["path"].endswith("[total].gpu_hours")]
    assert all(0.8 < change["ratio"] < 1.25 for change in hours)


def _answered(code: int, *arguments: str) -> str:
    """What a command prints that may also answer no."""
    from typer.testing import CliRunner

    from tidegate.cli.main import app

    result = CliRunner().invoke(app, list(arguments), prog_name="tidegate")
    assert result.exit_code in {0, code}, result.output
    return result.stdout


def test_a_changed_demand_is_told_by_name(model_json, tmp_path):
    twice = tmp_path / "twice.parquet"
    ran("demand", "sample", str(model_json), "--out", str(twice), "--scale", "2")
    text = _answered(1, "demand", "diff", str(model_json), str(twice))
    assert "groups[total" in text.replace("\n", "")


def test_a_forecast_has_bands_and_says_how_they_did(model_json, tmp_path):
    page = tmp_path / "forecast.html"
    text = ran("demand", "forecast", str(model_json), "--html", str(page), NO_COLOR="1")
    assert "held before" in text
    (outlook, *_) = json.loads(ran("demand", "forecast", str(model_json), "--json"))
    assert [one["horizon_ms"] for one in outlook["ahead"]] == sorted(one["horizon_ms"] for one in outlook["ahead"])
    assert page.read_text().count("data-chart=") >= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sample", "MODEL", "--out", "rows.xlsx"), "ends in .parquet, .csv or .jsonl, found '.xlsx'"),
        (("sample", "MODEL", "--out", "rows.csv", "--table", "use"), "--table use: "),
        (("sample", "MODEL", "--out", "rows.csv", "--length", "long"), "--length: expected a duration"),
    ],
)
def test_refusals_of_demand_say_what_to_do(model_json, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    named = [str(model_json) if word == "MODEL" else word for word in arguments]
    assert says in ran("demand", *named, code=2)
    assert files(tmp_path) == {}


def test_the_example_is_what_its_script_draws_and_gives_a_finding(monkeypatch):
    top = Path(__file__).parent.parent
    made = subprocess.run([sys.executable, top / "bench/example_jobs.py"], check=True, capture_output=True, text=True)
    assert made.stdout == (top / "examples/jobs.csv").read_text()
    monkeypatch.chdir(top)
    text = " ".join(ran("preflight", "examples/jobs.csv", COLUMNS="80").split())
    assert "By replay of 1,478 jobs, 66 GPUs (42 to 107) keep 95 % of the waits of every size within 1h44m" in text
    assert "with one less, 5.1 % of the jobs of 9+ GPUs are late." in text
    assert "Buying for the peak of 278 GPUs where 66 hold the tolerance: 141,773 GPU-hours, 76 %" in text
    assert "p95 53" in text
    assert "floor 66" in text
