"""What is compiled ahead is what is needed: after it, nothing that the scenarios and commands do compiles any more."""

from __future__ import annotations

import pytest

from commands import ran
from test_scenarios import FOLDER
from tide import play, read
from tidegate.deploy.precompile import compile_all
from tidegate.jit.registry import compiler, kernels_as


@pytest.fixture(scope="module")
def compiled_ahead():
    """Everything that is compiled ahead; says what was compiled after it."""
    compile_all(lambda *_: None, compiler().files)
    before = len(compiler().compiled)
    return lambda: compiler().compiled[before:]


@pytest.mark.compiles
def test_scenarios_need_no_other_kernels_and_decide_the_same(compiled_ahead):
    with kernels_as(compiled=True):
        for path in sorted(FOLDER.glob("*.tide")):
            for scenario in read(path):
                play(scenario)
    assert compiled_ahead() == []


@pytest.mark.compiles
def test_commands_need_no_other_kernels(compiled_ahead, folder):
    plain = ran("simulate", "small.yaml", "--json", "--kernels", "plain", "--journal", "run.db")
    assert ran("simulate", "small.yaml", "--json", "--kernels", "compiled") == plain
    ran("explain", "note-0", "--journal", "run.db", "--kernels", "compiled")
    ran("queues", "--journal", "run.db", "--kernels", "compiled", code=0)
    ran("compare", "small.yaml", "--kernels", "compiled")
    assert compiled_ahead() == []
