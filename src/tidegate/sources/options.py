"""Options of sources: format, columns, and access to a server."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tidegate.sources.findings import SourceError

#: Called with what is being read, and the share of it that is done.
ReportProgress = Callable[[str, float], None]


class Format(StrEnum):
    """What a source can be."""

    TABLE = "table"  # CSV, TSV, JSON lines or Parquet with columns that are recognised by name
    SLURM = "slurm"  # sacct -P, sacct -p, sacct --json
    KUBERNETES = "kubernetes"  # kubectl get … -o json or yaml
    PROMETHEUS = "prometheus"
    ITP = "itp"
    PHILLY = "philly"
    MURI = "muri"
    AZURE_LLM = "azure-llm"
    MOONCAKE = "mooncake"
    SERVEGEN = "servegen"
    GENAI = "genai"
    HELIOS = "helios"


class CanonicalTable(StrEnum):
    """The canonical tables, by name."""

    JOBS = "jobs"
    REQUESTS = "requests"
    USE = "use"
    CAPACITY = "capacity"
    STARTS = "starts"


class SourceOptions(NamedTuple):
    """How sources are read, as the user says."""

    format: Format | None = None  # None: guessed
    map: str = ""  # submitted=created_at:ms,gpus=num_gpu
    table: CanonicalTable | None = None
    delimiter: str = ""
    timezone: str = ""  # of the users, and of times that name none; empty: as the sources say, else UTC
    strict: bool = False
    start: str = ""  # of what is asked of a server
    end: str = ""
    step: str = ""
    cache: str = ""  # folder for what was fetched of a server
    token: str = ""
    user: str = ""
    password: str = ""
    ca_file: str = ""
    insecure: bool = False


def check_options(options: SourceOptions) -> None:
    """Refuse options that make no sense."""
    if options.timezone:
        try:
            ZoneInfo(options.timezone)
        except (KeyError, ValueError, OSError):
            raise SourceError(f"--timezone {options.timezone}: expected a name such as Europe/Berlin or UTC") from None
    if options.delimiter and (
        len(options.delimiter) != 1 or not options.delimiter.isascii() or options.delimiter in '"\n'
    ):
        raise SourceError(f"--delimiter {options.delimiter}: expected one character")


def no_progress(what: str, share: float) -> None:
    """Report nothing."""
    del what, share
