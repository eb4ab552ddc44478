"""Options of every command that reads sources; a command gets them as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from tidegate.sources.options import CanonicalTable, Format, SourceOptions

SOURCE_PANEL, SERVER_PANEL = "Source options", "Prometheus options"


def _option(*names: str, help: str, panel: str = SOURCE_PANEL, **how: Any) -> Any:  # noqa: A002  typer's word
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **how)


SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="CSV, Parquet or JSON tables, sacct output, `kubectl get -o json` dumps, folders of these, or the address "
        "of a Prometheus.",
        show_default=False,
    ),
]
SourceFormatOption = Annotated[
    Format | None, _option("--format", help="Format of the sources. Default: detected from their content.")
]
TimezoneOption = Annotated[
    str, _option("--timezone", metavar="ZONE", help="Time zone of users and of times without one: Europe/Berlin.")
]

#: Fields of `SourceOptions`, each with its option on the command line.
_OPTIONS: dict[str, Any] = {
    "format": SourceFormatOption,
    "map": Annotated[
        str,
        _option(
            "--map",
            metavar="FIELD=COLUMN,...",
            help="Say which column is which: submitted=created_at:ms,gpus=num_gpu. A fixed value has two equal signs: "
            "queue==research.",
        ),
    ],
    "table": Annotated[
        CanonicalTable | None, _option("--table", help="What the rows of files are. Default: detected.")
    ],
    "delimiter": Annotated[
        str, _option("--delimiter", help='Character between the cells of a CSV; "tab" for a tab. Default: detected.')
    ],
    "timezone": TimezoneOption,
    "strict": Annotated[bool, _option("--strict", help="Fail if any row would be dropped or corrected.")],
    "start": Annotated[
        str,
        _option(
            "--start",
            metavar="TIME",
            help="First time to read: a date, or 14d for 14 days before the end. Default: 7d.",
            panel=SERVER_PANEL,
        ),
    ],
    "end": Annotated[
        str, _option("--end", metavar="TIME", help="Last time to read. Default: now.", panel=SERVER_PANEL)
    ],
    "step": Annotated[
        str,
        _option(
            "--step", metavar="DURATION", help="Time between samples. Default: 1m up to a week.", panel=SERVER_PANEL
        ),
    ],
    "cache": Annotated[
        str, _option("--cache", metavar="DIR", help="Keep responses in this folder.", panel=SERVER_PANEL)
    ],
    "token": Annotated[str, _option("--token", envvar="PROMETHEUS_TOKEN", help="Bearer token.", panel=SERVER_PANEL)],
    "user": Annotated[str, _option("--user", envvar="PROMETHEUS_USER", help="User name.", panel=SERVER_PANEL)],
    "password": Annotated[
        str, _option("--password", envvar="PROMETHEUS_PASSWORD", help="Password of the user.", panel=SERVER_PANEL)
    ],
    "ca_file": Annotated[
        str,
        _option(
            "--ca-file",
            metavar="FILE",
            envvar="PROMETHEUS_CA_FILE",
            help="CA certificates to trust (PEM).",
            panel=SERVER_PANEL,
        ),
    ],
    "insecure": Annotated[
        bool, _option("--insecure", help="Do not verify the server's certificate.", panel=SERVER_PANEL)
    ],
}


def reads_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of sources; it gets them as `options`."""

    @wraps(command)
    def with_options(**given: Any) -> None:
        fields = {name: given.pop(name) for name in _OPTIONS}
        fields["delimiter"] = "\t" if fields["delimiter"] in ("tab", "\\t") else fields["delimiter"]
        command(**given, options=SourceOptions(**fields))

    own = inspect.signature(command, eval_str=True)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "options"]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=SourceOptions._field_defaults[name], annotation=option
        )
        for name, option in _OPTIONS.items()
    ]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options
