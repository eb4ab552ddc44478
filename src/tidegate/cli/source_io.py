"""Sources read for commands: with a progress bar, and with warnings about dropped rows on the error channel."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from tidegate.api.source_data import is_model, load_model, read_all, refuse_empty
from tidegate.cli.progress import progress_bar
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import Tables
from tidegate.report.output_files import open_console
from tidegate.sources.findings import SourceFinding
from tidegate.sources.options import SourceOptions
from tidegate.sources.read_sources import SourceTables

#: Findings about sources that are printed one by one.
_MOST_TOLD = 8


def gather_sources(sources: list[str], options: SourceOptions) -> SourceTables:
    """Read the sources, and say on the error channel what was dropped or put right."""
    gathered = read_all(sources, options, progress_bar)
    _say_findings(gathered.findings)
    refuse_empty(gathered)
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
