"""`tidegate demand diff|sample|forecast`: compare, sample and forecast demand models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.errors import user_errors_reported
from tidegate.cli.shared_options import HtmlOption, JsonOption
from tidegate.cli.source_options import SourceFormatOption, TimezoneOption
from tidegate.model.units import read_duration_ms
from tidegate.report.output_files import check_writable
from tidegate.sources.options import CanonicalTable, SourceOptions

demand_app = typer.Typer(
    name="demand",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelArgument = Annotated[str, typer.Argument(metavar="DEMAND|SOURCE", help="A demand model, or a source to measure.")]


@demand_app.callback()
def demand() -> None:
    """Compare, sample and forecast demand models.

    \b
    Examples:
      tidegate demand diff monday.json friday.json
      tidegate demand sample demand.json --out jobs.parquet
      tidegate demand forecast demand.json
    """  # noqa: D301 - \b keeps the lines apart


@demand_app.command("diff")
def diff_demand(
    before: ModelArgument,
    after: ModelArgument,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also show differences within the noise.")] = False,
    timezone: TimezoneOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare two demand models. The exit code is 1 if anything changed beyond the noise.

    \b
    Examples:
      tidegate demand diff monday.json friday.json
      tidegate demand diff may.csv june.csv --all --json
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        from tidegate.cli.demand_commands import run_diff

        code = run_diff(before, after, SourceOptions(timezone=timezone), everything=everything, as_json=as_json)
    raise typer.Exit(code)


@demand_app.command("sample")
def sample_demand(
    model: ModelArgument,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Write rows to this .parquet, .csv or .jsonl file.")],
    table: Annotated[
        CanonicalTable | None, typer.Option(help="Table to draw. Default: the first in the model.", show_default=False)
    ] = None,
    length: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Length of the sample, such as 14d. Default: that of the data.", show_default=False
        ),
    ] = "",
    scale: Annotated[float, typer.Option(help="Factor for the amount of demand.", min=0.001, max=1000)] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of random draws.", min=0)] = 0,
    timezone: TimezoneOption = "",
) -> None:
    """Draw rows with the same seven inputs as a demand model.

    \b
    Examples:
      tidegate demand sample demand.json --out jobs.parquet
      tidegate demand sample demand.json --out twice.csv --scale 2 --length 14d --seed 7
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        check_writable("--out", out)
        length_ms = read_duration_ms("--length", length) if length else None
        from tidegate.cli.demand_commands import SampleArguments, run_sample

        run_sample(model, out, SampleArguments(table, length_ms, scale, seed, timezone))


@demand_app.command("forecast")
def forecast_demand(
    model: ModelArgument,
    *,
    source_format: SourceFormatOption = None,
    timezone: TimezoneOption = "",
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast the demand of the next day in 90 % bands, and report how well such bands held in the past.

    \b
    Examples:
      tidegate demand forecast demand.json
      tidegate demand forecast jobs.csv --html forecast.html
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        from tidegate.cli.demand_commands import run_forecast

        run_forecast(model, SourceOptions(source_format, timezone=timezone), html, as_json=as_json)
