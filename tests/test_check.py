"""`tidegate check`, the JSON Schema, and the page about the format."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import jsonschema
import pytest
import typer
import yaml
from hypothesis import assume, given, settings
from rich.console import Console
from typer.testing import CliRunner

import tidefiles
from schema_file import SCHEMA, json_schema, schema_text
from test_codec import ONE_ERROR
from tidefiles import FULL
from tidegate.cli.check import check
from tidegate.config.codec import sound
from tidegate.config.schema import ConfigDocument
from tidegate.config.validate import read_document
from tidegate.report.text.check import check_files, summarize

DOCS = Path(__file__).parent.parent / "docs" / "tidegate-yaml.md"

BROKEN = FULL.replace("count: 8", "count: eight").replace("placement:", "placment:")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(FULL)
    Path("broken.yaml").write_text(BROKEN)
    Path("odd.yaml").write_text('"[bold]x\\e[31m": 1\n')
    many = [{"id": f"j{n}", "runtime": "soon"} for n in range(33)]
    Path("many.json").write_text(json.dumps({"work": many}, indent=1))


def run(*names, as_json=False, **options):
    console = Console(file=io.StringIO(), **{"width": 40, **options})
    code = 0 if check_files([Path(name) for name in names], console, as_json=as_json) else 2
    return code, console.file.getvalue().splitlines()


def test_a_good_file_is_summarized(files):
    assert run("good.yaml") == (
        0,
        [
            "good.yaml: fine",
            "  machines  1 pool, 8 nodes, 64 GPUs (64 h100)",
            "  policy    fair: las order, random placement, decides every 10s",
            "  work      5 workloads, 20 pods, 1,920.0 GPU-hours asked",
        ],
    )


def test_a_broken_file_is_explained_with_lines_that_are_never_wrapped(files):
    assert run("broken.yaml") == (
        2,
        [
            "broken.yaml:5: cluster.pools[0].count: expected a whole number from 1 to 100,000, found 'eight'",
            "broken.yaml:21: policy.placment: unknown key; did you mean 'placement'?",
        ],
    )


def test_one_bad_file_among_good_ones_decides(files):
    code, lines = run("good.yaml", "none.yaml", "good.yaml")
    assert code == 2
    assert lines[4] == "none.yaml: there is no such file"
    assert lines[:4] == lines[5:]


def test_the_rest_is_counted(files):
    code, lines = run("many.json")
    assert (code, len(lines), lines[-1]) == (2, 21, "many.json: … and 13 more")


def test_text_from_the_file_is_neither_markup_nor_obeyed_by_the_terminal(files):
    _, lines = run("odd.yaml", force_terminal=True, color_system=None)
    assert lines == ["odd.yaml:1: ['[bold]x\\x1b[31m']: unknown key; known here: version, cluster, policy, twin, work"]


def test_colour_is_for_terminals_that_want_it(files, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in run("broken.yaml", force_terminal=True, color_system="standard")[1][0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run("broken.yaml", force_terminal=True, color_system="standard")[1][0]


def test_a_terminal_that_knows_ascii_only_gets_ascii(files):
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert not check_files([Path("many.json")], console, as_json=False)
    assert raw.getvalue().endswith(b"many.json: \\u2026 and 13 more\n")


def test_json_has_one_object_per_file(files):
    code, lines = run("good.yaml", "broken.yaml", as_json=True)
    good, broken = map(json.loads, lines)
    assert code == 2
    assert (good["file"], good["ok"], good["problems"], good["more_problems"]) == ("good.yaml", True, [], 0)
    assert good["summary"] == {
        "pools": 1, "nodes": 8, "gpus": 64, "gpu_models": {"h100": 64}, "workloads": 5, "pods": 20, "gpu_hours": 1920.0,
        "cohorts": 0, "queues": 0, "quota_gpus": 0.0,
        "policy": "fair: las order, random placement, decides every 10s",
    }  # fmt: skip
    assert (broken["ok"], broken["summary"]) == (False, None)
    assert broken["problems"][1] == {
        "severity": "error", "path": "policy.placment", "line": 21, "column": 3, "expected": "", "found": "unknown key",
        "hint": "did you mean 'placement'?", "message": "unknown key; did you mean 'placement'?",
    }  # fmt: skip


def test_warnings_do_not_fail(files):
    Path("warned.yaml").write_text("work:\n- {id: a, runtime: 1h, every: 1h}\n")
    code, lines = run("warned.yaml")
    assert code == 0
    assert lines[:2] == [
        "warned.yaml:2: warning: work[0].every: has no effect unless copies is more than 1",
        "warned.yaml: fine",
    ]


def test_it_is_a_command(files):
    app = typer.Typer()
    app.command()(check)
    result = CliRunner().invoke(app, ["broken.yaml", "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["ok"] is False
    assert CliRunner().invoke(app, ["good.yaml"]).exit_code == 0


def test_fractions_and_several_kinds_of_pods_are_counted():
    pods = [{"name": "a", "count": 2, "gpus": 0.25}, {"name": "b", "gpus": 4}]
    document, _ = read_document({"work": [{"id": "x", "runtime": "2h", "copies": 3, "pods": pods}]})
    assert document is not None
    summary = summarize(document)
    assert (summary.workloads, summary.pods, summary.gpu_hours) == (3, 9, 27.0)


VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_file_is_up_to_date():
    assert SCHEMA.read_text() == schema_text(), "run .venv/bin/python tests/schema_file.py"


def test_the_schema_is_one_and_says_what_every_key_means():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in (schema, *schema["$defs"].values()):
        for name, key in part.get("properties", {}).items():
            assert key.get("description"), name


def test_the_schema_accepts_the_samples():
    VALIDATOR.validate(yaml.safe_load(FULL))
    VALIDATOR.validate({})


# A schema cannot say how parts fit each other or how large an amount is, and JSON has neither keys of numbers nor nan.
BEYOND_SCHEMA = re.compile("expected at most|keys that are text|found nan")
WRONG_ALONE = [
    data for data, text in ONE_ERROR if sound(data, ConfigDocument) is None and not BEYOND_SCHEMA.search(text)
]


@pytest.mark.parametrize("data", WRONG_ALONE)
def test_the_schema_refuses_what_decoding_refuses(data):
    assert not VALIDATOR.is_valid(data)


@given(tidefiles.damaged())
@settings(max_examples=200, deadline=None)
def test_the_schema_and_decoding_agree(data):
    assume(not _has_whole_float(data))  # JSON Schema takes 1.0 for a whole number
    assert VALIDATOR.is_valid(data) == (sound(data, ConfigDocument) is not None)


def _has_whole_float(value):
    if isinstance(value, dict | list):
        return any(map(_has_whole_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and (value != value or value.is_integer())  # noqa: PLR0124  nan is no JSON either


def test_the_page_has_every_key_and_its_example_is_right():
    page = DOCS.read_text()
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for name in part.get("properties", {}):
            assert f"`{name}`" in page, name
        for value in part.get("enum", []):
            assert not value or f"`{value}`" in page, value
    example = re.findall(r"```yaml\n(version.*?)```", page, re.DOTALL)[0]
    assert tidefiles.texts(yaml.safe_load(example)) == []
