"""Commands that read sources: all of them have the same options, and get them as one value.

Must not know: how sources are read, or what a command makes of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from tidegate.cli.source_options import (
    CacheOption,
    CaFileOption,
    DelimiterOption,
    EndOption,
    InsecureOption,
    MapOption,
    PasswordOption,
    SourceFormatOption,
    StartOption,
    StepOption,
    StrictOption,
    TableOption,
    TimezoneOption,
    TokenOption,
    UserOption,
    read_delimiter,
)
from tidegate.sources.options import SourceOptions

#: Fields of the options, each with its option on the command line.
_ASKED: dict[str, Any] = {
    "format": SourceFormatOption,
    "map": MapOption,
    "table": TableOption,
    "delimiter": DelimiterOption,
    "timezone": TimezoneOption,
    "strict": StrictOption,
    "start": StartOption,
    "end": EndOption,
    "step": StepOption,
    "cache": CacheOption,
    "token": TokenOption,
    "user": UserOption,
    "password": PasswordOption,
    "ca_file": CaFileOption,
    "insecure": InsecureOption,
}


def reads_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of sources; it is handed them as `options`."""

    @wraps(command)
    def asked(**given: Any) -> None:
        fields = {name: given.pop(name) for name in _ASKED}
        fields["delimiter"] = read_delimiter(fields["delimiter"])
        command(**given, options=SourceOptions(**fields))

    own = inspect.signature(command, eval_str=True)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "options"]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=SourceOptions._field_defaults[name], annotation=option
        )
        for name, option in _ASKED.items()
    ]
    asked.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return asked
