"""docs/explain.md shows real output: its commands are run on its file, and must print what stands there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.main import app

DOCS = (Path(__file__).parent.parent / "docs" / "explain.md").read_text(encoding="utf-8")


@pytest.fixture
def lab(folder):
    Path("lab.yaml").write_text(re.search(r"```yaml\n(.*?)```", DOCS, re.DOTALL)[1])
    said("simulate", "lab.yaml", "--journal", "lab.db")


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"}, prog_name="tidegate")
    return "\n".join(line.rstrip() for line in result.output.rstrip().splitlines())


def test_every_command_of_the_docs_prints_what_stands_there(lab):
    blocks = re.findall(r"```\n(\$ .*?)```", DOCS, re.DOTALL)
    shown = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    assert len(shown) == 5
    for part in shown:
        command, _, output = part.partition("\n")
        output, printed = output.rstrip(), said(*shlex.split(command)[1:])
        if output.startswith("...\n"):
            assert printed.endswith("\n\n" + output[4:]), command
        else:
            assert printed == output, command


def test_every_change_that_explain_names_does_what_it_says(lab):
    explained = json.loads(said("explain", "tune", "--journal", "lab.db", "--at", "1h", "--json"))
    assert [change["kind"] for change in explained["changes"]] == ["quota", "queue", "stop"]
    assert set(explained["search"]) == {
        "tried", "unfinished", "starts_unchanged", "starts_when_others_left", "starts_when_tried_again", "blocked",
        "text",
    }  # fmt: skip
    assert explained["line"] == {"queue": "research", "ahead": 0, "waiting": 1, "head": None, "first_ahead": []}
    for change in explained["changes"]:
        assert set(change) == {
            "kind", "text", "by", "if", "at_once", "every_smaller_tried", "sent_away", "started", "kept_waiting",
        }  # fmt: skip
        assert change["by"] is None  # work of a simulation has no namespace
        ifs = [argument for text in change["if"] for argument in ("--if", text)]
        asked = json.loads(said("explain", "tune", "--journal", "lab.db", "--at", "1h", "--json", *ifs))["if"]
        assert asked["starts"]
        assert asked["at_once"] == change["at_once"]
        assert asked["sent_away"] == change["sent_away"]
        assert asked["changes"] == change["if"]


def test_no_search_where_nobody_wants_it(lab):
    explained = json.loads(said("explain", "tune", "--journal", "lab.db", "--at", "1h", "--json", "--no-changes"))
    assert (explained["changes"], explained["search"]) == ([], None)
    assert explained["wants"][0]["missing"] == 4000


def test_what_does_not_wait_needs_no_change(lab):
    assert said("explain", "tune", "--journal", "lab.db").startswith("tune waited ")
    explained = json.loads(said("explain", "base", "--journal", "lab.db", "--at", "1h", "--json"))
    assert (explained["line"], explained["changes"], explained["if"]) == (None, [], None)
    refused = said("explain", "base", "--journal", "lab.db", "--at", "1h", "--if", "stop:serve")
    assert refused == "--if: base does not wait; name a time when it did, with --at"
