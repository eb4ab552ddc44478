"""A machine without compiled kernels: work begins at once, and goes on with compiled ones when they are there."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from queue_twins import HOUR
from test_stretch import PLAIN, busy_queues, crowd
from tidegate.api.kernels import Kernels, compiles, kernels_for
from tidegate.deploy import precompile
from tidegate.engine.run import run
from tidegate.jit import cache_build
from tidegate.jit.cache_build import Build, build_key, note_failure, note_progress, note_ready, sole_builder
from tidegate.jit.cache_files import FOLDER_VARIABLE, KernelStore, open_store, user_folder
from tidegate.jit.registry import compiled_when, is_compiled, kernels_as
from tidegate.journal.encoding import WorkNumbers, pack_events, pack_result
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector
from tidegate.model.simulation import TwinOptions
from tidegate.sim.batched_run import run_twin
from tidegate.sim.demo_trace import sample_nodes
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState

#: Seconds from the start of a command to its first decision.
FIRST_DECISION_S = 10.0


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """A home without compiled kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """Processes that would have been started."""
    commands = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    return commands


def steps_of(nodes, policy, options, runs_it, switch_at: int | None):
    """The packed steps of a run whose kernels switch before this step; None: plain all along."""
    world, state, journal = SimWorld(nodes, jobs_of(crowd(80)), policy, options), ClusterState(), Journal()
    asked = iter(range(10**6))
    with compiled_when(lambda: switch_at is not None and next(asked) >= switch_at):
        runs_it(state, world, RunCollector(state, journal, every_ms=HOUR), lambda _: world.is_over())
        assert is_compiled() == (switch_at is not None)
    told = WorkNumbers()
    steps = [(step.now_ms, pack_events(step.events, told), pack_result(step.result)) for step in journal.steps]
    return steps, state.digest()


@pytest.mark.compiles
@pytest.mark.parametrize("runs_it", [run, run_twin])
@pytest.mark.parametrize("fleet", [0, 3])
def test_a_switch_in_the_middle_of_a_run_gives_the_same_journal(runs_it, fleet):
    policy, options = busy_queues(60_000, "tidegate" if fleet else "kueue"), PLAIN if not fleet else TwinOptions()
    expected = steps_of(sample_nodes()[:fleet], policy, options, runs_it, None)
    for at in (0, 1, 7, 40) if runs_it is run else (0, 2):
        assert steps_of(sample_nodes()[:fleet], policy, options, runs_it, at) == expected


def test_without_kernels_work_begins_with_plain_ones_and_one_process_is_started(cold, started):
    told = []
    with kernels_for(Kernels.AUTO, worth=True, tell=told.append):
        assert not is_compiled()
        assert len(started) == 1
        assert started[0][1:] == ["-m", "tidegate.deploy.precompile", "--once"]
        state = ClusterState()
        note_progress(open_store(), 3, 40)
        world = SimWorld([], jobs_of(crowd(5)), busy_queues(60_000), PLAIN)
        run(state, world, Journal(), lambda _: world.is_over())
    assert set(told) == {"compiling kernels in the background (3 of 40); running with plain kernels"}


def test_small_work_and_plain_kernels_start_nothing(cold, started):
    for kernels, worth in ((Kernels.AUTO, False), (Kernels.PLAIN, True)):
        with kernels_for(kernels, worth=worth):
            assert not is_compiled()
    assert started == []


def test_who_finds_somebody_compiling_starts_nothing(cold, started):
    with sole_builder(user_folder()) as alone:
        assert alone
        assert Build(open_store()).start()
        with sole_builder(user_folder()) as other:
            assert not other
    assert started == []


def test_what_failed_is_not_tried_again_at_once(cold, started):
    note_failure(open_store(), "no space left")
    assert not Build(open_store()).start()
    with kernels_for(Kernels.AUTO, worth=True):
        assert not is_compiled()
    assert started == []


def test_kernels_that_are_there_are_used_at_once(cold, started):
    note_ready(open_store())
    with kernels_for(Kernels.AUTO, worth=True):
        assert is_compiled()
    assert started == []


def test_a_build_of_other_sources_does_not_count(cold, monkeypatch):
    note_ready(open_store())
    assert Build(open_store()).is_ready()
    monkeypatch.setattr(cache_build, "build_key", lambda: "of-other-sources")
    assert not Build(open_store()).is_ready()


def test_who_waits_is_told_how_far_it_is(cold, monkeypatch):
    store, told = open_store(), []
    monkeypatch.setattr(cache_build.time, "sleep", lambda _: note_ready(store))
    waiting = Build(store)
    monkeypatch.setattr(cache_build, "_LOOK_EVERY_S", 0.0)
    assert waiting.wait(told.append)
    assert len(told) == 1


def test_a_process_that_finds_another_one_ends(cold, capsys):
    with sole_builder(user_folder()):
        assert precompile.main([]) == 0
    assert "another process" in capsys.readouterr().err


def test_a_folder_that_came_with_the_program_is_read_and_not_written_to(cold, monkeypatch):
    bundled = cold / "bundled"
    note_ready(KernelStore([bundled]))
    before = sorted(bundled.iterdir())
    for path in bundled.iterdir():
        path.chmod(0o444)
    bundled.chmod(0o555)
    monkeypatch.setenv(FOLDER_VARIABLE, str(bundled))
    store = open_store()
    assert store.folders == (bundled, user_folder())
    assert Build(store).is_ready()
    store.write("more", b"")
    assert sorted(bundled.iterdir()) == before
    bundled.chmod(0o755)


BIG = """\
cluster:
  pools: [{name: train, count: 40, shape: {gpu: h100, gpus: 8, cpu: 192, memory: 2Ti}}]
policy: {cycle: 10s}
work:
  - {id: gang, copies: 30000, every: 10s, runtime: 20m, pods: [{count: 2, gpus: 1}]}
"""


def ends(pid: int) -> None:
    """Wait for a process that is not ours."""
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.1)


def builders(home: Path) -> list[int]:
    """Processes that compile into a home."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command, told = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if b"tidegate.deploy.precompile" in command and str(home).encode() in told:
                found.append(int(process.name))
    return found


@pytest.mark.compiles
def test_the_first_decision_of_a_command_comes_within_seconds_and_two_share_one_build(cold):
    """Two commands on a machine without kernels: both decide at once, one process compiles for both."""
    Path(cold / "big.yaml").write_text(BIG)
    home = {"XDG_CACHE_HOME": str(cold / "cache"), "XDG_STATE_HOME": str(cold / "state")}
    environment = {**os.environ, **home, "PYTHONPATH": os.pathsep.join(sys.path)}
    started_s, running = time.monotonic(), []
    for number in range(2):
        command = [sys.executable, "-m", "tidegate", "simulate", "big.yaml", "--json", "--journal", f"{number}.db"]
        running.append(
            subprocess.Popen(command, cwd=cold, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        )
    compiling = []
    try:
        while not all(has_decided(cold / f"{number}.db") for number in range(2)):
            assert time.monotonic() - started_s < 2 * FIRST_DECISION_S  # two at once, on two cores
            time.sleep(0.1)
        while len(compiling) != 1 or time.monotonic() - started_s < FIRST_DECISION_S:
            assert time.monotonic() - started_s < 6 * FIRST_DECISION_S
            compiling = builders(cold)
            time.sleep(0.1)
    finally:
        said = []
        for process in running:
            process.kill()
            said.append(process.communicate()[1])
        for pid in builders(cold):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            ends(pid)
    assert said == [b"", b""]  # nothing is said where nobody looks


def has_decided(journal: Path) -> bool:
    if not journal.exists():
        return False
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as read:
            return bool(read.execute("select count(*) from steps").fetchone()[0] > 1)
    except sqlite3.Error:
        return False


def test_the_name_of_a_build_is_quick_to_find():
    build_key.cache_clear()
    started_s = time.monotonic()
    assert len(build_key()) == 24
    assert time.monotonic() - started_s < 2
    with kernels_as(compiled=False):
        assert json.dumps(compiles(Kernels.PLAIN, worth=True)) == "false"
