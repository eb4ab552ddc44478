"""`tidegate demand diff|sample|forecast`: compare, sample and forecast demand models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.errors import user_errors_reported
from tidegate.cli.shared_options import HtmlOption, JsonOption, read_duration_ms
from tidegate.cli.source_options import SourceFormatOption, TimezoneOption
from tidegate.report.output_files import check_writable
from tidegate.sources.options import Options, Table

demand_app = typer.Typer(
    name="demand",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelArgument = Annotated[
    str, typer.Argument(metavar="DEMAND|SOURCE", help="A demand model, or a source that one is made of.")
]


@demand_app.callback()
def demand() -> None:
    """Demand models: what changed between two, more of the same, what is to come.

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
    everything: Annotated[bool, typer.Option("--all", help="Also what is within the noise.")] = False,
    timezone: TimezoneOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what changed between two demands; exit code 1 if anything did beyond the noise.

    \b
    Examples:
      tidegate demand diff monday.json friday.json
      tidegate demand diff may.csv june.csv --all --json
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        from tidegate.cli.demand_commands import run_diff

        code = run_diff(before, after, Options(timezone=timezone), everything=everything, as_json=as_json)
    raise typer.Exit(code)


@demand_app.command("sample")
def sample_demand(
    model: ModelArgument,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where rows go: .parquet, .csv or .jsonl.")],
    table: Annotated[
        Table | None, typer.Option(help="Which table; the first there is if not named.", show_default=False)
    ] = None,
    length: Annotated[str, typer.Option(help="How much time, such as 14d; as long as was seen if not told.")] = "",
    scale: Annotated[float, typer.Option(help="Times as much of it.", min=0.001, max=1000)] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.", min=0)] = 0,
    timezone: TimezoneOption = "",
) -> None:
    """Write more demand of the same kind: rows that have the same seven inputs.

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
    """Say what is to come within a day, in bands that hold nine of ten, and how well such bands did before.

    \b
    Examples:
      tidegate demand forecast demand.json
      tidegate demand forecast jobs.csv --html forecast.html
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        from tidegate.cli.demand_commands import run_forecast

        run_forecast(model, Options(source_format, timezone=timezone), html, as_json=as_json)
