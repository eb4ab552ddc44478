"""Runs of `tidegate demand`: compare two models, draw from one, forecast, and print the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars as pl
import typer
from rich.table import Table as Grid
from rich.text import Text

from tidegate.api.source_data import is_model, load_model
from tidegate.cli.errors import EXIT_NO, CommandError
from tidegate.cli.progress import progress_bar
from tidegate.cli.source_io import gather_sources
from tidegate.demand.fit import fit
from tidegate.demand.forecast_report import Ahead, Outlook
from tidegate.demand.model import DemandModel
from tidegate.demand.model_diff import ModelChange, diff
from tidegate.demand.sentences import value_text
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import Tables
from tidegate.measure.format import percent_text, time_text
from tidegate.planning.threads import side_by_side
from tidegate.report.html.page import HtmlPage, HtmlTile, write_page
from tidegate.report.html.preflight import outlook_chart
from tidegate.report.output_files import open_console, print_page, written_whole
from tidegate.sources.options import CanonicalTable, SourceOptions

_MOST_CHANGES = 40


def _model_of(source: str, options: SourceOptions) -> DemandModel:
    """The demand model of a file, or of a source."""
    if is_model(source):
        return load_model(Path(source), options.timezone)
    tables = gather_sources([source], options).tables
    with progress_bar("measuring"):
        return fit(tables, run_all=side_by_side)


# -- diff --------------------------------------------------------------------------------------------------------------


def run_diff(before: str, after: str, options: SourceOptions, *, everything: bool, as_json: bool) -> int:
    """Say what changed; the exit code says whether anything did beyond the noise."""
    changes = diff(_model_of(before, options), _model_of(after, options))
    shown = [change for change in changes if everything or change.beyond_noise]
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(change) for change in shown], allow_nan=False))
    else:
        _show_changes(shown, len(changes))
    return EXIT_NO if any(change.beyond_noise for change in changes) else 0


def _show_changes(shown: list[ModelChange], all_of_them: int) -> None:
    console = open_console()
    if not shown:
        within = f" ({all_of_them:,} differences are within the noise: --all)" if all_of_them else ""
        console.print(Text(f"nothing changed beyond the noise{within}"))
        return
    table = Grid(box=None, pad_edge=False, header_style="dim")
    for name in ("what", "before", "after", "ratio"):
        table.add_column(name, justify="left" if name == "what" else "right", overflow="fold")
    for change in shown[:_MOST_CHANGES]:
        ratio = "" if change.ratio is None else f"{change.ratio:.2f}x"
        style = "" if change.beyond_noise else "dim"
        table.add_row(Text(change.path), _value(change.before), _value(change.after), ratio, style=style)
    print_page(table, console)
    if len(shown) > _MOST_CHANGES:
        console.print(Text(f"… and {len(shown) - _MOST_CHANGES:,} more (--json has all)", "dim"))


def _value(value: float | str | None) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"{value:,.6g}"


# -- sample ------------------------------------------------------------------------------------------------------------


class SampleArguments(NamedTuple):
    """What is to be drawn."""

    table: CanonicalTable | None
    length_ms: int | None
    scale: float
    seed: int
    timezone: str


def run_sample(model: str, out: Path, wish: SampleArguments) -> None:
    """Draw rows and write them."""
    drawn = sample(
        _model_of(model, SourceOptions(timezone=wish.timezone)), wish.seed, length_ms=wish.length_ms, scale=wish.scale
    )
    name, frame = _chosen(drawn, wish.table, model)
    rows = frame.collect(engine="streaming")
    with written_whole(out) as part:
        _write(rows, part, out.suffix.lower())
    open_console(stderr=True).print(Text(f"{out}: {rows.height:,} rows of {name}"))


def _chosen(drawn: Tables, table: CanonicalTable | None, model: str) -> tuple[str, pl.LazyFrame]:
    there = {name: getattr(drawn, name) for name in CanonicalTable if getattr(drawn, name) is not None}
    if table and table not in there:
        raise CommandError(f"--table {table}: {model} has {', '.join(there) or 'no table that can be drawn'}")
    if not there:
        raise CommandError(f"{model}: has no table that can be drawn")
    name = table or next(iter(there))
    return name, there[name]


def _write(rows: pl.DataFrame, path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        rows.write_parquet(path)
    elif suffix == ".csv":
        rows.write_csv(path)
    elif suffix in {".jsonl", ".ndjson"}:
        rows.write_ndjson(path)
    else:
        raise CommandError(f"--out: expected a name that ends in .parquet, .csv or .jsonl, found {suffix!r}")


# -- forecast ----------------------------------------------------------------------------------------------------------


def run_forecast(model: str, options: SourceOptions, html: Path | None, *, as_json: bool) -> None:
    """Say what is to come."""
    found = _model_of(model, options)
    outlooks = [*found.outlooks, *(one.outlook for one in found.services if one.outlook is not None)]
    if not outlooks:
        raise CommandError(f"{model}: too short to know its days: expected three days or more of jobs or requests")
    if html is not None:
        write_page(html, _page(found, outlooks, model))
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(outlook) for outlook in outlooks], allow_nan=False))
    else:
        for outlook in outlooks:
            print_page(_forecast_table(outlook), open_console())


def _forecast_table(outlook: Outlook) -> Grid:
    title = f"{outlook.of}: {value_text(outlook.last, outlook.unit)} now"
    table = Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in ("ahead", "p5", "p50", "p95", "held before", "loss", "last value", "a week before"):
        table.add_column(name, justify="left" if name == "ahead" else "right")
    for one in outlook.ahead:
        table.add_row(*_ahead_row(one))
    return table


def _ahead_row(one: Ahead) -> tuple[str, ...]:
    low, middle, high = (f"{one.quantiles[row]:,.4g}" for row in (0, 9, 18))
    losses = (f"{loss:.3g}" for loss in (one.pinball, one.last_value, one.seasonal_naive))
    return (time_text(one.horizon_ms), low, middle, high, percent_text(one.coverage), *losses)


def _page(model: DemandModel, outlooks: list[Outlook], name: str) -> HtmlPage:
    tiles = [
        HtmlTile(
            outlook.of,
            value_text(outlook.last, outlook.unit),
            f"bands held {percent_text(outlook.ahead[-1].coverage)} of the last third, a day ahead",
        )
        for outlook in outlooks
    ]
    charts = [outlook_chart(model, outlook) for outlook in outlooks]
    return HtmlPage(
        "Tidegate forecast", name, "What is to come within a day.", tiles, charts, [], [], f"seed {model.seed}"
    )
