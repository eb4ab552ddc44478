"""What docs/live.md says is so: its metrics, options, exit codes and commands are those there are."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from tidegate.cli.errors import EXIT_BAD_INPUT, EXIT_BUG, EXIT_OWNED, EXIT_UNREACHABLE
from tidegate.cli.main import app
from tidegate.live.metrics import Metrics
from tidegate.manifests.label_names import HANDOVER_NOTE

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "live.md").read_text()


def test_every_metric_is_told_of_and_no_other():
    told = set(re.findall(r"^\| `((?:kueue|tidegate)_\w+)` \|", TEXT, re.MULTILINE))
    there = {metric.name + ("_total" if metric.type == "counter" else "") for metric in Metrics().registry.collect()}
    assert told == there


def test_every_option_it_names_is_there():
    commands = typer.main.get_command(app).commands
    options = {name for command in commands.values() for option in command.params for name in option.opts}
    ours = "\n".join(line for line in TEXT.splitlines() if "python bench/" not in line)  # benches have their own
    assert set(re.findall(r"--[a-z][a-z-]+", ours)) <= options


def test_every_command_it_names_is_there():
    commands = typer.main.get_command(app).commands
    assert set(re.findall(r"tidegate ([a-z][a-z-]+)", TEXT)) <= set(commands)


def test_exit_codes_are_told():
    told = set(map(int, re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)))
    assert told == {0, EXIT_BAD_INPUT, EXIT_OWNED, EXIT_UNREACHABLE, EXIT_BUG}


def test_what_is_written_is_called_by_its_name():
    assert HANDOVER_NOTE in TEXT
    assert "LEASE-before" in TEXT
    assert (DOCS / "adr" / "0010-hand-over.md").is_file()
