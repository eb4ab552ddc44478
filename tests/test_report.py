"""The report on a terminal, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import numpy as np
import pytest
from rich.console import Console

from test_measure_twin import SECOND, fleet, measure, planned, policy
from tidegate.measure.collector import RunMeasures
from tidegate.model.simulation import TwinOptions
from tidegate.model.units import DAY_MS, HOUR_MS
from tidegate.report.sparkline import day_line, sparkline
from tidegate.report.text.run import as_json, most_idle, render, write_csv


@pytest.fixture(autouse=True)
def no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def small(queues: int = 2, *, observed: bool = True) -> RunMeasures:
    """Twelve jobs of one GPU, half an hour each and half of that idle, on two GPUs."""
    run = {"runtime_ms": 900 * SECOND, "idle_tail_ms": 900 * SECOND, "busy_milli": 800}
    plan = [planned(f"job-{at:02d}", 60 * at, 1, 1000, queue=f"q{at % queues}", **run) for at in range(12)]
    options = TwinOptions(observe_every_ms=300 * SECOND if observed else 0)
    return measure(fleet(1, 2), plan, policy(cycle_ms=SECOND), options, 600 * SECOND)


def printed(measured: RunMeasures, width: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, write_through=True) as file:
        console = Console(file=file, width=width)
        render(measured.summary, measured.lives, measured.samples, console)
        return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


#: By hand: at 35 min the GPUs were held for 2100 and 2040 s; busy 720 + 720 + 240 + 192 s; waits in the middle are
#: those of 1620 and 1680 s, and nine tenths up lies 1740 + 0.9 x 60 s.
GOLDEN = """\
Tidegate  1 node, 2 GPUs  ·  35m  ·  12 workloads in 2 queues

GPUs were allocated 99 % of the time and busy 45 % of that: of every 100
GPU-hours paid for, 45 did work.
Half of the work waited for at least 27m, one in ten for at least 30m; 2 of 12
workloads finished (2 running, 8 waiting).

           00:00        00:10        00:20         00:30
allocated  ███████████████████████████████████████████████  2.0 of 2 GPUs
busy       ▇▇▇▇▇▇▇▇▇▇▇▇▇▅▄▄▄▄▄▄▄▄▄▄▄▄▄             ▅▆▆▆▆▆▆  0.9 GPUs
waiting    ▃▃▃▃▃▃▃▃▃▃▃▃▃▆██████████████████████████▇▇▇▇▇▇▇  7.9 GPUs, peak 10

           work  GPU-hours  wait p50  wait p90  JCT p50   busy  evicted
all          12        1.1      ≥27m      ≥30m     ≥29m   45 %        0
"""


def test_a_report() -> None:
    lines = printed(small(), 80)
    assert lines[:14] == GOLDEN.splitlines()
    total = small().summary.total
    assert total.open_ms == total.completion_open_ms == 24 * 60 * SECOND  # the last came at 11 min: its wait goes on
    assert total.completion is not None
    assert (total.completion.count, total.finished) == (12, 2)  # of two JCT p50 would be 30 min, less than half waited
    assert lines[-2:] == [
        "• 8 workloads had no place at the end; job-04 waited longest, 31m in all.",
        "• On average 1.1 allocated GPUs stood idle while as many were waited for.",
    ]


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("queues", [1, 2, 12])
@pytest.mark.parametrize("observed", [True, False])
def test_a_report_fits_the_screen(width, queues, observed) -> None:
    lines = printed(small(queues, observed=observed), width)
    assert len(lines) <= 45
    assert max(map(len, lines)) <= width
    assert not any("\x1b" in line for line in lines)
    assert any(line.startswith("allocated  ██") for line in lines)
    assert ("4 more" in "\n".join(lines)) == (queues == 12)


def test_what_is_not_known_is_not_zero() -> None:
    text = "\n".join(printed(small(observed=False), 80))
    assert "Whether they were busy was not observed" in text
    assert "busy       ????" in text
    assert "most idle" not in text


def test_a_terminal_without_unicode() -> None:
    lines = printed(small(), 80, "ascii")
    assert any(line.startswith("allocated  ####") for line in lines)
    assert not any("\\u" in line or "?" in line for line in lines)


def test_names_are_never_markup() -> None:
    measured = small()
    ids = [f"[red]{name}[/nope]" for name in measured.lives.ids]
    measured = measured._replace(lives=measured.lives._replace(ids=ids, queues=("[b]", "[/]")))
    assert "[red]job-" in "\n".join(printed(measured, 100))


def test_an_empty_run() -> None:
    measured = measure(fleet(1), [], policy(), TwinOptions(), SECOND)
    text = "\n".join(printed(measured, 80))
    assert "There were no GPUs." in text, "no time passed"
    assert "nothing was submitted" in text


def test_sparklines() -> None:
    assert sparkline(np.array([0.0, 0.1, 4.0, 8.0, np.nan]), 8.0) == " ▁▄█?"
    assert sparkline(np.array([0.0, 0.0]), 0.0) == "  "


def test_days_stand_where_they_begin() -> None:
    assert day_line(0, 3 * DAY_MS, 15) == "Mon  Tue  Wed  "
    assert day_line(0, 4 * HOUR_MS, 28) == "00:00  01:00  02:00  03:00  "


def test_json() -> None:
    measured = small()
    plain = as_json(measured.summary, measured.lives, measured.samples)
    assert json.loads(msgspec.json.encode(plain)) == json.loads(json.dumps(plain))
    assert plain["summary"]["total"]["workloads"] == 12
    assert set(plain["samples"]["waiting_gpus"]) == {"q0", "q1"}
    assert plain["most_idle"][0]["id"] == "job-00"
    blind = small(observed=False)
    assert as_json(blind.summary, blind.lives, blind.samples)["samples"]["busy_gpus"][0] is None


def test_csv() -> None:
    lives = small().lives
    file = io.StringIO()
    write_csv(lives, file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [row["id"] for row in rows] == lives.ids
    assert rows[0]["fate"] == "finished"
    assert rows[0]["finished_ms"] == "1800000"
    assert rows[0]["held_milli_ms"] == "1800000000"
    assert float(rows[0]["busy_gpu_ms"]) == pytest.approx(720_000)
    assert rows[-1]["first_placed_ms"] == ""


def test_the_most_idle_come_first() -> None:
    lives = small().lives
    idle = (lives.observed_gpu_ms - lives.busy_gpu_ms)[most_idle(lives)]
    assert (np.diff(idle) <= 0).all()
    assert len(idle) == 4, "only four ever ran"
