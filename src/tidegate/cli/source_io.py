"""Sources read into tables and demand models, with a progress bar and warnings about dropped rows."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from tidegate.cli.errors import CommandError
from tidegate.cli.progress import progress_bar
from tidegate.demand.model import FORMAT, DemandModel, read
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import Tables
from tidegate.model.problem import Report
from tidegate.report.output_files import open_console
from tidegate.sources.findings import SourceFinding
from tidegate.sources.options import SourceOptions
from tidegate.sources.read_sources import SourceTables, read_sources

#: Findings about sources that are printed one by one.
_MOST_TOLD = 8

#: So much of a file tells whether it is a demand model.
_HEAD_BYTES = 400


def gather_with_bar(sources: list[str], options: SourceOptions) -> SourceTables:
    """Read the sources; a bar shows which."""
    with progress_bar("reading", 1.0) as bar:

        def watch(what: str, share: float) -> None:
            bar.describe(what)
            bar.update(share)

        return read_sources(sources, options, watch)


def gather_sources(sources: list[str], options: SourceOptions) -> SourceTables:
    """Read the sources, and say on the error channel what was dropped or put right."""
    gathered = gather_with_bar(sources, options)
    _say_findings(gathered.findings)
    if gathered.parts and not any(part.kept for part in gathered.parts):
        names = ", ".join(sorted({part.name for part in gathered.parts}))
        dropped = gathered.tables.dropped
        why = f" (all of {dropped:,} were dropped)" if dropped else ""
        raise CommandError(f"{names}: no row to go by{why}: expected at least one job, request or sample")
    return gathered


def read_tables(sources: list[str], options: SourceOptions, seed: int = 0) -> Tables:
    """The canonical tables of sources, or of one demand model: a draw from it."""
    if len(sources) == 1 and is_model(sources[0]):
        return sample(load_model(Path(sources[0]), options.timezone), seed)
    return gather_sources(sources, options).tables


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
        raise CommandError(f"{path}: cannot be read ({error.strerror}); expected a demand model") from None
    report = Report()
    model = read(content, report)
    if model is None:
        raise CommandError("\n".join(f"{path}: {problem.text()}" for problem in report.problems))
    if timezone and timezone != model.calendar.timezone:
        raise CommandError(
            f"--timezone {timezone}: {path} is a demand model, and its hours of the week are those of "
            f"{model.calendar.timezone}; make it again from its sources with --timezone"
        )
    return model
