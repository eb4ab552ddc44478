"""The runner of scenarios: what it refuses, with file and line, and that what it expects must come out exactly so."""

from __future__ import annotations

import dataclasses

import pytest

from builders import Cluster, job
from test_scenarios import FOLDER
from tide import TideError, play, read
from tide_decisions import devices_text, expect

HEAD = "scenario S\nfleet 1x h100x8\n"
BUSY = HEAD + "at 1s\n  submit a 1x8\n  submit b 1x8\n"


@pytest.fixture
def told(tmp_path):
    """Play a text; what it complains about, without the name of the folder."""

    def tell(text: str) -> str:
        path = tmp_path / "s.tide"
        path.write_text(text)
        try:
            for scenario in read(path):
                play(scenario)
        except TideError as error:
            return str(error).removeprefix(f"{tmp_path.name}/")
        return ""

    return tell


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("fleet 1x h100x8", 1, "expected a line such as `scenario"),
        ("scenario S", 1, "needs at least one round"),
        (HEAD, 1, "needs at least one round"),
        (HEAD + "at 1s\n submit a 1", 3, "a round needs decisions"),
        (HEAD + "=> nothing", 3, "decisions belong to a round"),
        (HEAD + "at 2s\n=> nothing\nat 1s\n=> nothing", 5, "time never goes back"),
        (HEAD + "at soon", 3, "a duration such as"),
        (HEAD + "at 1s please", 3, "expected `at TIME`"),
        (HEAD + "at 1s\n=> nothing\nsubmit a 1", 5, "facts come before decisions"),
        (HEAD + "at 1s\nsubmit a 1\n=> nothing\n=> place a", 6, "not both"),
        (HEAD + "queu a", 3, "unknown word 'queu'; known: scenario, at, =>, fleet, order"),
        (HEAD + "fleet h100", 3, "expected fleet 4x h100x8"),
        (HEAD + "order fair", 3, "expected order fifo|srtf|srsf|las"),
        (HEAD + "waits maybe", 3, "expected waits yes or waits no"),
        (HEAD + "submit a", 3, "expected submit JOB 2x8"),
        (HEAD + "submit a 1x8 colour=red", 3, "unknown option 'colour'; known: queue, priority"),
        (HEAD + "submit a 1x8 priority=high", 3, "cannot read priority=high"),
        (HEAD + "submit a 1x8 where rack", 3, "expected a condition such as `rack in r1,r2`"),
        (HEAD + "node h100-0-00 tainted", 3, "expected `node NODE tainted KEY`"),
        (HEAD + "node h100-0-00 lost", 3, "expected node NODE added|removed"),
        (HEAD + "at 1s\n=> put a", 4, "expected `nothing` or a decision (admit, place, hold,"),
        (HEAD + "at 1s\n=> hold a", 4, "expected a reason of the catalogue, such as LACKS_GPU, and found none"),
        (HEAD + "at 1s\n=> hold a NONE", 4, "and found NONE"),
        (HEAD + "at 1s\n=> hold a LACKS_LUCK", 4, "and found LACKS_LUCK"),
        (HEAD + "at 1s\n=> hold a LACKS_GPU cpus=1", 4, "no evidence 'cpus'; it has gpus, fits, pods"),
        (HEAD + "at 1s\n=> hold a LACKS_GPU (many LACKS_GPU)", 4, "expected nodes and a reason"),
        (HEAD + "at 1s\n=> place a on h100-0-00[x]", 4, "expected a place such as"),
        # Only when it is played is it known who there is.
        (HEAD + "at 1s\nsubmit a 1\nfinish b\n=> place a", 5, "no job 'b' was submitted; there are a"),
        (HEAD + "at 1s\nnode h100-1-00 removed\n=> nothing", 4, "no node 'h100-1-00'; there are h100-0-00"),
        (HEAD + "at 1s\nbind a[0] failed\n=> nothing", 4, "was never placed"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(told, text, line, complaint):
    said = told(text)
    assert said.startswith(f"s.tide:{line}: `")
    assert complaint in said


@pytest.mark.parametrize(
    ("decisions", "difference"),
    [
        ("=> place a", ["+ hold b LACKS_GPU gpus=8 fits=0 pods=1 (1 LACKS_GPU)", "  place a"]),
        (
            "=> place a\n=> hold b LACKS_CPU",
            ["- hold b LACKS_CPU", "+ hold b LACKS_GPU", "  place a"],
        ),
        (
            "=> place a on h100-0-00[0-3]\n=> hold b LACKS_GPU fits=1",
            [
                "- hold b LACKS_GPU fits=1",
                "+ hold b LACKS_GPU fits=0",
                "- place a on h100-0-00[0-3]",
                "+ place a on h100-0-00[0-7]",
            ],
        ),
        (
            "=> place a\n=> hold b LACKS_GPU (2 LACKS_GPU)",
            ["- hold b LACKS_GPU (2 LACKS_GPU)", "+ hold b LACKS_GPU (1 LACKS_GPU)", "  place a"],
        ),
        (
            "=> place a\n=> hold b LACKS_GPU\n=> hold c LACKS_GPU",
            ["  hold b LACKS_GPU", "- hold c LACKS_GPU", "  place a"],
        ),
        ("=> nothing", ["+ hold b LACKS_GPU gpus=8 fits=0 pods=1 (1 LACKS_GPU)", "+ place a on h100-0-00[0-7]"]),
        (
            "=> place a\n=> hold b LACKS_GPU\n=> wake at 9s",
            ["  hold b LACKS_GPU", "  place a", "- wake at 9000 ms", "+ wake at None ms"],
        ),
    ],
)
def test_a_round_that_comes_out_otherwise_shows_the_difference(told, decisions, difference):
    said = told(BUSY + decisions).splitlines()
    assert said[0] == "s.tide:3: `at 1s`: other decisions (- expected, + found) in 'S'"
    assert said[1:] == difference


def test_order_counts_where_it_is_said_to(told):
    decisions = "=> hold b LACKS_GPU\n=> place a"
    assert not told(BUSY + decisions)
    said = told(BUSY.replace("at 1s", "at 1s in order") + decisions)
    assert said.splitlines()[1:] == ["+ place a", "  hold b LACKS_GPU", "- place a"]


def test_a_second_step_must_decide_nothing(told, monkeypatch):
    class Restless(Cluster):
        def step(self, after_ms=1_000):
            if after_ms == 0:
                self.submit(job("c", "1x4"))
            return super().step(after_ms)

    monkeypatch.setattr("tide_facts.Cluster", Restless)
    said = told(BUSY + "=> place a\n=> hold b LACKS_GPU").splitlines()
    assert said[0] == "s.tide:3: `at 1s`: a second step with nothing new decides again in 'S'"
    assert said[1].startswith("+ hold c LACKS_GPU")


def test_comments_and_blank_lines_say_nothing(told):
    assert not told(f"# A file.\n\n{BUSY}  => place a  # fits\n\n  => hold b LACKS_GPU\n")


def test_devices_are_said_as_ranges():
    assert [devices_text(mask) for mask in (0, 0b1, 0b10111, 0xFF)] == ["", "[0]", "[0-2,4]", "[0-7]"]


def test_a_decision_reads_as_it_was_written():
    for text in (
        "place gang on 2x h100-0-00, h100-0-01[0-2,4]",
        "place gang PLACED_AGAIN evictions=2",
        "hold gang LACKS_GPU gpus=8 fits=0 pods=1 (2 GPU_MODEL, 3 LACKS_GPU)",
        "preempt long PREEMPTED_BY_ORDER for short",
    ):
        assert expect(text).text() == text


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tide")), ids=lambda path: path.stem)
def test_every_expectation_counts(path):
    """No scenario comes out right with one of its expectations left out."""
    for scenario in read(path):
        for at, current in enumerate(scenario.rounds):
            for left_out in range(len(current.expected)):
                rest = current.expected[:left_out] + current.expected[left_out + 1 :]
                changed = dataclasses.replace(current, expected=rest)
                rounds = [*scenario.rounds[:at], changed]
                with pytest.raises(TideError, match="other decisions"):
                    play(scenario._replace(rounds=rounds))
