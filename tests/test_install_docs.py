"""What docs/install.md says is so: its table, options, commands, files and exit codes are those there are."""

from __future__ import annotations

import re

import typer

from install_file import PAGE, page
from tidegate.cli.errors import EXIT_OWNED
from tidegate.cli.main import app
from tidegate.deploy.deployment_manifest import USER
from tidegate.deploy.install_objects import objects
from tidegate.deploy.install_spec import InstallSpec

TEXT = PAGE.read_text()
#: Options of other programs that it shows.
_FOREIGN = {"--set", "--create-namespace", "--into", "--server-side", "--field-manager", "--from-file"}  # helm, kubectl


def test_the_table_is_up_to_date():
    assert page() == TEXT  # else: run tests/install_file.py


def test_options_and_commands_are_there():
    commands = typer.main.get_command(app).commands
    options = {
        name for name in ("install", "uninstall", "doctor") for option in commands[name].params for name in option.opts
    }
    assert set(re.findall(r"--[a-z][a-z-]+", TEXT)) <= options | _FOREIGN
    assert set(re.findall(r"`?tidegate ((?:install|uninstall|doctor|run|shadow-report)[a-z-]*)", TEXT)) <= set(commands)


def test_files_it_names_are_there():
    root = PAGE.parent.parent
    named = set(re.findall(r"(?<![/\w])deploy/[A-Za-z0-9./-]*[A-Za-z0-9]", TEXT))
    assert len(named) > 4
    assert [name for name in named if not (root / name).exists()] == []
    assert [name for name in re.findall(r"\]\((\S+\.md)\)", TEXT) if not (PAGE.parent / name).exists()] == []


def test_objects_are_told_of_and_numbers_are_right():
    everything = objects(InstallSpec(monitor=True, dashboard=True, admission_gate=True))
    table = TEXT.partition("## What is installed")[2].partition("\n## ")[0]
    for thing in everything:
        kind = thing["kind"].removesuffix("Binding").replace("MutatingAdmissionPolicy", "MutatingAdmissionPolicies")
        assert kind in table, kind
    assert f"user {USER}" in TEXT
    assert f"(exit code {EXIT_OWNED})" in TEXT
