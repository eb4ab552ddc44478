"""`tidegate sources`: what people and programs see."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from commands import ran
from sources_file import PAGE, page
from tidegate.sources.findings import CODES, Code

pytestmark = pytest.mark.usefixtures("folder")

JOBS = """\
job_id,submit_time,start_time,end_time,num_gpus,team
a,1700000000,1700000060,1700003660,8,red
b,1700000100,1700000100,1700000200,1,blue
b,1700000100,1700000100,1700000200,1,blue
c,soon,1700000100,1700000200,1,blue
"""


@pytest.fixture
def jobs():
    Path("jobs.csv").write_text(JOBS)
    return "jobs.csv"


def test_people_see_what_was_recognised_and_what_was_dropped(jobs):
    said = ran("sources", jobs, COLUMNS="80")
    assert "submitted = submit_time (time, s)" in said
    assert (
        "jobs.csv:5: 1 dropped: rows with a cell that cannot be read; line 5 submit_time='soon' [unreadable-cell]"
        in said
    )
    assert "jobs.csv:4: 1 dropped: rows whose id was there before; line 4 job_id='b' [duplicate-id]" in said
    table = said.split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_programs_get_the_same(jobs):
    told = json.loads(ran("sources", jobs, "--json"))
    assert [(part["rows"], part["kept"], part["table"]) for part in told["parts"]] == [(4, 2, "jobs")]
    assert [(one["code"], one["count"], one["places"][0]["line"]) for one in told["findings"]] == [
        ("unreadable-cell", 1, 5),
        ("duplicate-id", 1, 4),
    ]
    assert told["parts"][0]["columns"]["gpus"] == {"column": "num_gpus", "value": None, "unit": "one", "by": "name"}


def test_strict_refuses_and_says_all(jobs):
    said = ran("sources", jobs, "--strict", code=2)
    assert "[unreadable-cell]" in said
    assert "[duplicate-id]" in said
    assert "--strict: nothing may be dropped or corrected" in said


def test_a_mapping_is_taken(jobs):
    told = json.loads(ran("sources", jobs, "--map", "queue==all,gpus=num_gpus:milli", "--json"))
    columns = told["parts"][0]["columns"]
    assert columns["queue"]["value"] == "all"
    assert columns["gpus"] == {"column": "num_gpus", "value": None, "unit": "milli", "by": "user"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.csv"], "nowhere.csv: there is no such file or folder"),
        (["jobs.csv", "--timezone", "Mars"], "--timezone Mars: expected a name such as Europe/Berlin"),
        (["jobs.csv", "--delimiter", "ab"], "--delimiter ab: expected one character"),
        (["jobs.csv", "--map", "colour=red"], "--map colour=red: expected FIELD=COLUMN"),
        (["jobs.csv", "--format", "prometheus"], "expected the address of a server"),
        (["jobs.csv", "--format", "philly"], "is no trace of philly"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(jobs, arguments, says):
    assert says in ran("sources", *arguments, code=2).replace("\n", " ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(jobs):
    Path(jobs).chmod(0)
    assert "you may not read it" in ran("sources", jobs, code=2)


def test_a_delimiter_by_name():
    Path("jobs.txt").write_text(JOBS.replace(",", "\t"))
    assert "2023-11-14" in ran("sources", "jobs.txt", "--delimiter", "tab")


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run .venv/bin/python tests/sources_file.py"
    assert set(CODES) == set(Code)


def test_a_table_without_a_row_is_no_demand(tmp_path):
    path = tmp_path / "head.csv"
    path.write_text("submitted,duration,gpus\n")
    assert "no row to go by: expected at least one job, request or sample" in ran("preflight", str(path), code=2)


def test_columns_that_hold_more_than_one_value_are_named(tmp_path):
    path = tmp_path / "nested.parquet"
    pl.DataFrame({"id": ["a"], "submitted": [{"s": 1}], "gpus": [[1]], "duration": [1]}).write_parquet(path)
    said = ran("preflight", str(path), code=2)
    assert "not read, because their cells hold more than one value: submitted, gpus" in said
    assert "the column holds records" in ran("preflight", str(path), "--map", "submitted=submitted", code=2)
    extra = pl.DataFrame({"id": ["a"], "submitted_ms": [1], "gpus": [1], "duration_ms": [5], "more": [{"s": 1}]})
    extra.write_parquet(path)
    assert '"jobs": 1' in ran("preflight", str(path), "--json").replace('"jobs":1', '"jobs": 1')
