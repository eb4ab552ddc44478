"""Where programs come from: given, built once and whole, or a sentence why not."""

from __future__ import annotations

import threading

import pytest

from kubebench import programs
from kubebench.programs import Module, Unbuildable, find_programs

_MODULE = Module("kwok", {"one": "example.invalid/one", "two": "example.invalid/two"})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_cache", lambda: tmp_path)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_programs_that_are_given_are_taken(cache, tmp_path, monkeypatch):
    given = tmp_path / "assets"
    given.mkdir()
    for name in ("one", "two"):
        (given / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    assert find_programs((_MODULE,), build=False) == {"one": given / "one", "two": given / "two"}


def test_two_runs_build_once_and_find_all_of_it(cache, monkeypatch):
    built = []

    def compile_(go, module, package, target):
        built.append(package)
        threading.Event().wait(0.05)
        target.write_text("a program")

    monkeypatch.setattr(programs, "_compile", compile_)
    found = []
    threads = [threading.Thread(target=lambda: found.append(find_programs((_MODULE,)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(built) == ["example.invalid/one", "example.invalid/two"]
    assert all(path.read_text() == "a program" for programs_ in found for path in programs_.values())


def test_a_build_that_fails_leaves_nothing_behind(cache, monkeypatch):
    def compile_(go, module, package, target):
        target.write_text("half a program")
        raise Unbuildable("cannot build one: the network is down")

    monkeypatch.setattr(programs, "_compile", compile_)
    with pytest.raises(Unbuildable, match="the network is down"):
        find_programs((_MODULE,))
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_a_change_of_what_is_pinned_is_another_build():
    keys = {programs._key(_MODULE), programs._key(_MODULE._replace(flags="-X a=b")), programs._key(programs.KUEUE)}
    assert len(keys) == 3


def test_without_leave_to_build_it_is_said_how(cache):
    with pytest.raises(Unbuildable, match="make kubebench"):
        find_programs((_MODULE,), build=False)
