"""A run of `tidegate plan`: read the sources, make the plan, write and print it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import typer

from tidegate.api.plan import (
    PlanDemand,
    PlanOptions,
    PlanResult,
    demand_of_model,
    demand_of_tables,
    run_plan,
    write_plan,
)
from tidegate.api.source_data import is_model, load_model
from tidegate.cli.progress import progress_bar
from tidegate.cli.source_io import gather_sources
from tidegate.planning.plan_schema import encode_plan
from tidegate.report.html.page import write_page
from tidegate.report.html.plan import plan_page
from tidegate.report.output_files import open_console
from tidegate.report.plot.plan import plot_plan
from tidegate.report.text.plan import render_plan
from tidegate.sources.options import SourceOptions


class OutputFiles(NamedTuple):
    """Files to write."""

    out: Path | None
    plot: Path | None
    html: Path | None


def plan_sources(sources: list[str], reading: SourceOptions, options: PlanOptions, outputs: OutputFiles) -> PlanResult:
    """Make the plan for sources and write it where it was asked for."""

    def sign_with(assumptions: list[str]) -> str:
        return " ".join(["tidegate plan", *sources, *(f"--assume {each}" for each in assumptions)])

    made = run_plan(_read(sources, reading, options.seed), options, sign_with, progress_bar)
    if outputs.out is not None:
        write_plan(made.plan, outputs.out)
    if outputs.html is not None:
        write_page(outputs.html, plan_page(made.plan, made.seen))
    if outputs.plot is not None:
        plot_plan(outputs.plot, made.plan, made.seen)
    return made


def show_plan(made: PlanResult, *, as_json: bool) -> None:
    """Print the plan."""
    if as_json:
        typer.echo(encode_plan(made.plan).decode(), nl=False)
    else:
        render_plan(made.plan, made.seen, open_console())


def _read(sources: list[str], reading: SourceOptions, seed: int) -> PlanDemand:
    """The demand of sources, or of one demand model."""
    if len(sources) == 1 and is_model(sources[0]):
        return demand_of_model(sources[0], load_model(Path(sources[0]), reading.timezone), seed)
    gathered = gather_sources(sources, reading)
    with progress_bar("measuring"):
        return demand_of_tables(", ".join(sources), gathered, seed)
