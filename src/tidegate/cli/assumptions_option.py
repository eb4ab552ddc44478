"""The option that signs assumptions: `--assume tolerance=1h --assume prices`, or `--assume all`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from tidegate.cli.errors import CommandError
from tidegate.planning.plan_inputs import Assumption, UnsignedAssumptionError

_ALL = "all"

AssumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="NAME[=VALUE]",
        help="Accept an assumption instead of a measurement: tolerance=1h, interactive=5m, cold-start=10m, "
        "residency, prices, runtimes, or all. May be repeated.",
        show_default=False,
    ),
]


class Signed(NamedTuple):
    """What was signed."""

    values: dict[Assumption, str]
    all_of_them: bool

    def value(self, name: Assumption) -> str:
        """The value that was signed for; empty if none was."""
        return self.values.get(name, "")


def read_signed(texts: list[str] | None) -> Signed:
    """What the options say."""
    values: dict[Assumption, str] = {}
    everything = False
    for text in [part.strip() for each in texts or [] for part in each.split(",") if part.strip()]:
        name, _, value = text.partition("=")
        if name == _ALL and not value:
            everything = True
        elif name in set(Assumption):
            values[Assumption(name)] = value
        else:
            known = ", ".join([*Assumption, _ALL])
            raise CommandError(f"--assume {text}: expected one of {known}, found {name!r}")
    return Signed(values, everything)


def refusal(error: UnsignedAssumptionError, command: str) -> CommandError:
    """Say what must be signed, and how."""
    lines = [f"no plan: {len(error.missing)} of its answers are assumptions that are not signed"]
    lines += [f"  {each.name}: {each.means}; measured instead by {each.instead_of}" for each in error.missing]
    options = " ".join(f"--assume {each.name}" + (f"={each.value}" if each.value else "") for each in error.missing)
    return CommandError("\n".join([*lines, f"sign them with: {command} {options}"]))
