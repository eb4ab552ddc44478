"""What the engine decides, told as stories in `scenarios/*.tide`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tide import Scenario, TideError, play, read

FOLDER = Path(__file__).parent / "scenarios"


def collected():
    """A case for each scenario; a file that cannot be read is a case that fails, and hides no other file's."""
    for path in sorted(FOLDER.glob("*.tide")):
        try:
            yield from (pytest.param(scenario, id=f"{path.stem}: {scenario.title}") for scenario in read(path))
        except TideError as error:
            yield pytest.param(error, id=path.stem)


@pytest.mark.parametrize("scenario", list(collected()))
def test_scenario(scenario: Scenario | TideError):
    wrong = scenario if isinstance(scenario, TideError) else _played(scenario)
    if wrong is not None:
        pytest.fail(str(wrong), pytrace=False)


def _played(scenario: Scenario) -> TideError | None:
    try:
        play(scenario)
    except TideError as error:
        return error
    return None
