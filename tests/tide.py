"""Scenarios in text: reads `scenarios/*.tide` and plays them against the engine.

    scenario A gang starts whole or not at all    # a comment goes from here to the end of the line
    fleet 2x h100x8 in r1                         # as in builders.py: nodes h100-0-00 and h100-0-01
    order fifo strict                             # also: srtf, srsf refuse, las 3250 7200
    queue a {gpus: 8, cohort: ml}                 # as in tidegate.yaml; also: cohort, flavor, shares
    placement bestfit
    at 1s                                         # a round: facts in the order they happened, and decisions
      submit small 1x1
      submit gang 2x8 priority=-1
      => place small on h100-0-00[0]
      => hold gang GANG_PARTIAL fits=1 pods=2 (1 LACKS_GPU)
    at 2s in order                                # decisions in the order given; else in any
      => nothing

A round expects exactly the decisions listed, and of each what its line says (`tide_decisions.py`). All other lines tell
facts (`tide_facts.py`); those before the first round are told in it. After each round a second step at the same time
must decide nothing. `=> wake at 2h` expects the engine to ask for a step then.
Must not know: what any fact or decision means.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tide_decisions import Decision, decided, expect, lines_of
from tide_facts import Act, Stage, read_fact
from tidegate.model.decisions import DecisionKind
from tidegate.model.units import parse_duration_ms

_ROUND = re.compile(r"at (?P<at>\S+)(?P<ordered> in order)?")


class TideError(Exception):
    """A scenario that cannot be read, or comes out otherwise; the text begins with its file and line."""


class Line(NamedTuple):
    """A line that says something."""

    file: str
    number: int
    text: str

    def error(self, message: str) -> TideError:
        """The error that names this line."""
        return TideError(f"{self.file}:{self.number}: `{self.text}`: {message}")


@dataclass
class Round:
    """Facts at a time, and what they must lead to."""

    line: Line
    at_ms: int
    ordered: bool
    acts: list[tuple[Line, Act]] = field(default_factory=list)
    expected: list[Decision] = field(default_factory=list)
    nothing: bool = False  # it says so
    wake_ms: int | None = None


class Scenario(NamedTuple):
    """A story with expectations."""

    line: Line
    title: str
    before: list[tuple[Line, Act]]
    rounds: list[Round]


# -- reading ---------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Scenario]:
    """The scenarios of a file."""
    scenarios: list[Scenario] = []
    for line in _lines(path):
        if line.text.startswith("scenario "):
            scenarios.append(Scenario(line, line.text.removeprefix("scenario ").strip(), [], []))
        elif not scenarios:
            raise line.error("expected a line such as `scenario A gang starts whole or not at all` first")
        else:
            try:
                _take(scenarios[-1], line)
            except ValueError as error:
                raise line.error(str(error)) from None
    for scenario in scenarios:
        _look_over(scenario)
    return scenarios


def _lines(path: Path) -> Iterator[Line]:
    for number, text in enumerate(path.read_text().splitlines(), 1):
        said = " ".join(re.sub(r"(^|\s)#.*", "", text).split())
        if said:
            yield Line(f"{path.parent.name}/{path.name}", number, said)


def _take(scenario: Scenario, line: Line) -> None:
    rounds = scenario.rounds
    if line.text.startswith("at "):
        rounds.append(_begin(line, rounds[-1] if rounds else None))
    elif not line.text.startswith("=>"):
        if rounds and (rounds[-1].expected or rounds[-1].nothing):
            raise ValueError("facts come before decisions: begin a new round with `at TIME`")
        (rounds[-1].acts if rounds else scenario.before).append((line, read_fact(line.text)))
    elif not rounds:
        raise ValueError("decisions belong to a round: begin one with `at TIME`")
    else:
        _expect(rounds[-1], line)


def _begin(line: Line, last: Round | None) -> Round:
    match = _ROUND.fullmatch(line.text)
    if match is None:
        raise ValueError("expected `at TIME` or `at TIME in order`")
    at_ms = parse_duration_ms(match["at"])
    if last is not None and at_ms < last.at_ms:
        raise ValueError("time never goes back")
    return Round(line, at_ms, match["ordered"] is not None)


def _expect(current: Round, line: Line) -> None:
    text = line.text.removeprefix("=>").strip()
    if text.startswith("wake at "):
        current.wake_ms = parse_duration_ms(text.removeprefix("wake at "))
    elif text == "nothing":
        current.nothing = True
    else:
        current.expected.append(expect(text))
    if current.nothing and current.expected:
        raise ValueError("a round has decisions or `nothing`, not both")


def _look_over(scenario: Scenario) -> None:
    if not scenario.rounds:
        raise scenario.line.error("a scenario needs at least one round: `at 1s`")
    for current in scenario.rounds:
        if not current.expected and not current.nothing:
            raise current.line.error("a round needs decisions: `=> …`, or `=> nothing`")


# -- playing ---------------------------------------------------------------------------------------------------


def play(scenario: Scenario) -> None:
    """Play a scenario; a TideError shows the first round that comes out otherwise."""
    stage = Stage()
    _tell(stage, scenario.before, 0)
    for current in scenario.rounds:
        _tell(stage, current.acts, current.at_ms)
        stage.cluster.step(current.at_ms - stage.cluster.now_ms)
        _note_binds(stage)
        _compare(scenario, current, stage)
        if stage.cluster.step(0):
            again = "\n".join(f"+ {decision.text()}" for decision in decided(stage.cluster))
            raise current.line.error(f"a second step with nothing new decides again in {scenario.title!r}\n{again}")


def _tell(stage: Stage, acts: list[tuple[Line, Act]], until_ms: int) -> None:
    """Tell facts a millisecond apart, the last one at the round's time."""
    for missing, (line, act) in zip(range(len(acts) - 1, -1, -1), acts, strict=True):
        stage.at_ms = max(until_ms - missing, 0)
        try:
            act(stage)
        except ValueError as error:
            raise line.error(str(error)) from None


def _note_binds(stage: Stage) -> None:
    batch = stage.cluster.result.decisions
    for row in (batch.kind == DecisionKind.PLACE).nonzero()[0].tolist():
        stage.binds[stage.cluster.ids[int(batch.workload[row])], int(batch.pod[row])] = int(batch.id[row])


def _compare(scenario: Scenario, current: Round, stage: Stage) -> None:
    expected, found = lines_of(current.expected, decided(stage.cluster))
    if not current.ordered:
        expected, found = sorted(expected), sorted(found)
    if current.wake_ms is not None:
        expected += [f"wake at {current.wake_ms} ms"]
        found += [f"wake at {stage.cluster.result.next_wake_ms} ms"]
    if expected != found:
        shown = "\n".join(line for line in difflib.ndiff(expected, found) if not line.startswith("?"))
        raise current.line.error(f"other decisions (- expected, + found) in {scenario.title!r}\n{shown}")
