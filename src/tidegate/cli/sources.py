"""`tidegate sources SOURCE...`: show how sources are read: format, columns, row counts, and errors by row."""

from __future__ import annotations

import json

import typer

from tidegate.cli.errors import user_errors_reported
from tidegate.cli.shared_options import JsonOption
from tidegate.cli.source_options import SourcesArgument, reads_sources
from tidegate.sources.options import SourceOptions


@reads_sources
def show_sources(sources: SourcesArgument, *, as_json: JsonOption = False, options: SourceOptions) -> None:
    """Show how sources are read: format, columns, row counts, and errors by row.

    \b
    Examples:
      tidegate sources jobs.csv
      tidegate sources jobs.csv --map submitted=created_at,gpus=num_gpu --strict
      tidegate sources sacct.txt --timezone Europe/Berlin
      tidegate sources workloads.json pods.json nodes.json
      tidegate sources http://prometheus:9090 --start 14d --json
    """  # noqa: D301 - \b keeps the lines apart
    with user_errors_reported():
        from tidegate.api.source_data import read_all  # polars takes a while to load
        from tidegate.cli.progress import progress_bar
        from tidegate.report.output_files import open_console
        from tidegate.report.text.sources import gathered_as_json, print_sources

        gathered = read_all(sources, options, progress_bar)
    if as_json:
        typer.echo(json.dumps(gathered_as_json(gathered), allow_nan=False))
    else:
        print_sources(gathered, open_console())
