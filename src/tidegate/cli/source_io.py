"""From what the command line names to tables and demand models, with what is to be said about them.

Must not know: what is made of the tables.
"""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from tidegate.cli.errors import CannotRun
from tidegate.cli.source_options import watching
from tidegate.demand.model import FORMAT, DemandModel, read
from tidegate.model.problem import Report
from tidegate.report.output_files import open_console
from tidegate.sources.findings import SourceFinding
from tidegate.sources.options import SourceOptions
from tidegate.sources.read_sources import SourceTables, read_sources

#: Findings about sources that are told one by one.
_MOST_TOLD = 8

#: So much of a file tells whether it is a demand model.
_HEAD_BYTES = 400


def gather_sources(sources: list[str], options: SourceOptions) -> SourceTables:
    """Read the sources, and say on the error channel what was dropped or put right."""
    with watching(open_console(stderr=True)) as watch:
        gathered = read_sources(sources, options, watch)
    _say_findings(gathered.findings)
    if gathered.parts and not any(part.kept for part in gathered.parts):
        names = ", ".join(sorted({part.name for part in gathered.parts}))
        dropped = gathered.tables.dropped
        why = f" (all of {dropped:,} were dropped)" if dropped else ""
        raise CannotRun(f"{names}: no row to go by{why}: expected at least one job, request or sample")
    return gathered


def _say_findings(findings: tuple[SourceFinding, ...]) -> None:
    console = open_console(stderr=True)
    for finding in findings[:_MOST_TOLD]:
        console.print(Text(finding.text(), style="yellow"), soft_wrap=True)
    if len(findings) > _MOST_TOLD:
        console.print(Text(f"… and {len(findings) - _MOST_TOLD:,} more: `tidegate sources` has all", style="yellow"))


def is_model(source: str) -> bool:
    """Say whether a source is a demand model."""
    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(_HEAD_BYTES)


def load_model(path: Path, timezone: str = "") -> DemandModel:
    """The demand model of a file; its time zone can be confirmed and not changed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CannotRun(f"{path}: cannot be read ({error.strerror}); expected a demand model") from None
    report = Report()
    model = read(content, report)
    if model is None:
        raise CannotRun("\n".join(f"{path}: {problem.text()}" for problem in report.problems))
    if timezone and timezone != model.calendar.timezone:
        raise CannotRun(
            f"--timezone {timezone}: {path} is a demand model, and its hours of the week are those of "
            f"{model.calendar.timezone}; make it again from its sources with --timezone"
        )
    return model
