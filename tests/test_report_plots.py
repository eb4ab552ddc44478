"""Pictures: made, the same each time, and refused with a sentence that helps."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from test_measure_twin import SECOND, fleet, measure, planned, policy
from test_report import small
from tidegate.measure.collector import RunMeasures
from tidegate.model.simulation import TwinOptions
from tidegate.report.plot.run import plot
from tidegate.report.plot.style import PlotError


@pytest.fixture(scope="module")
def measured() -> RunMeasures:
    return small(7)


def drawn(measured: RunMeasures, path: Path) -> bytes:
    plot(path, measured.samples, measured.lives, "A run")
    return path.read_bytes()


def test_a_png_has_its_size(measured: RunMeasures, tmp_path: Path) -> None:
    png = drawn(measured, tmp_path / "a.png")
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (1200, 900)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_run_gives_the_same_bytes(measured: RunMeasures, tmp_path: Path, suffix: str) -> None:
    assert drawn(measured, tmp_path / f"a.{suffix}") == drawn(measured, tmp_path / f"b.{suffix}")


def test_what_is_missing_is_no_obstacle(tmp_path: Path) -> None:
    """Nodes that fail, use that was not observed, nobody waits."""
    plan = [planned(f"w{at}", 40 * at, 1, 1000, runtime_ms=30 * SECOND) for at in range(5)]
    options = TwinOptions(observe_every_ms=0, node_fails_every_ms=60 * SECOND, node_repair_ms=20 * SECOND)
    drawn(measure(fleet(3), plan, policy(cycle_ms=SECOND), options, 10 * SECOND), tmp_path / "a.svg")


def test_other_formats_are_refused(measured: RunMeasures, tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"a\.pdf: cannot draw '\.pdf'; name a file that ends in \.svg or \.png"):
        plot(tmp_path / "a.pdf", measured.samples, measured.lives, "A run")


def test_without_matplotlib(measured: RunMeasures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r"pip install 'tidegate\[plot\]'"):
        plot(tmp_path / "a.svg", measured.samples, measured.lives, "A run")


def test_a_folder_that_is_not_there(measured: RunMeasures, tmp_path: Path) -> None:
    with pytest.raises(PlotError, match="is the folder there"):
        plot(tmp_path / "no" / "a.svg", measured.samples, measured.lives, "A run")


def test_nothing_to_draw(tmp_path: Path) -> None:
    empty = measure(fleet(1), [], policy(), TwinOptions(), SECOND)
    with pytest.raises(PlotError, match="no time passed"):
        plot(tmp_path / "a.svg", empty.samples, empty.lives, "A run")
