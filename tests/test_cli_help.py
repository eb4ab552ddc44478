"""Help, version and completion of the command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import tidegate
from commands import ran
from tidegate.cli.main import app

pytestmark = pytest.mark.usefixtures("folder")


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_examples_that_are_accepted(name):
    said = ran(*([name] if name else []), "--help")
    examples = re.findall(r"^    tidegate (\S.*?)(?:   .*)?$", said, re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        command, *arguments = example.split()
        assert name in {"", command}
        COMMANDS[command].make_context(command, arguments)  # parsed, not run


def test_every_option_says_what_it_is_for():
    for command in COMMANDS.values():
        for parameter in command.params:
            assert parameter.help or parameter.name == "help", (command.name, parameter.name)


def test_the_list_of_commands_has_the_first_sentence_of_each():
    said = " ".join(ran("--help").split())
    for name, command in COMMANDS.items():
        first = command.help.split("\n\n")[0]
        assert f"{name} {' '.join(first.split())}" in said


def test_help_waits_for_no_command():
    program = (
        "import sys; from tidegate.cli.main import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    loaded = set(called(sys.executable, "-c", program).stdout.split("\n")[-2].split())
    assert not loaded & {"numpy", "polars", "msgspec", "yaml", "tidegate.cli.simulate"}
    assert "tidegate.cli.main" in loaded


def called(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **environment}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_it_is_a_module_and_says_its_version():
    result = called(sys.executable, "-m", "tidegate", "--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"tidegate {tidegate.__version__}\n", "")


def test_a_reader_that_stops_early_is_no_mishap():
    result = called("bash", "-c", "tidegate simulate small.yaml --json | head -c 1; echo; echo ${PIPESTATUS[0]}")
    assert result.stdout == "{\n0\n"
    assert result.stderr == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_values_and_jobs():
    ran("simulate", "small.yaml")
    script = """
        eval "$(_TIDEGATE_COMPLETE=source_bash tidegate)"
        complete -p tidegate
        completed() {
            COMP_WORDS=(tidegate "$@"); COMP_CWORD=$#
            _tidegate_completion tidegate
            echo "${COMPREPLY[@]}"
        }
        completed ''
        completed simulate --p
        completed simulate --order ''
        completed explain note
    """
    result = called("bash", "-c", script)
    assert result.stdout.splitlines() == [
        "complete -o default -F _tidegate_completion tidegate",
        (
            "preflight plan simulate compare explain queues run install uninstall doctor shadow-report check sources "
            "demand"
        ),
        "--policy --placement --plot --password",
        "fifo srtf srsf las",
        "note-0 note-1 note-2",
    ]
    assert result.stderr == ""


@pytest.mark.parametrize(("shell", "found"), [("zsh", '"simulate":"Run a policy'), ("fish", "simulate\tRun a policy")])
def test_other_shells_complete_too(shell, found):
    environment = {"_TYPER_COMPLETE_ARGS": "tidegate sim", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert found in called("tidegate", _TIDEGATE_COMPLETE=f"complete_{shell}", **environment).stdout
