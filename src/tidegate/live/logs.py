"""Structured logs: an event with fields, as one line of JSON, or as text on a terminal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

_NAME = "tidegate"


class LogForm(StrEnum):
    """The format of log lines."""

    AUTO = "auto"  # readable on a terminal, JSON elsewhere
    JSON = "json"
    TEXT = "text"


class ServiceLog:
    """The log of the service, with named fields."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Log a problem that the service survives."""
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, **fields: Any) -> None:
        """Log an error."""
        self._logger.error(event, extra={"fields": fields})

    def debug(self, event: str, **fields: Any) -> None:
        """Log a detail for debugging."""
        self._logger.debug(event, extra={"fields": fields})

    def toggle_debug(self) -> str:
        """Turn debug lines on or off; the level after that."""
        level = logging.INFO if self._logger.level == logging.DEBUG else logging.DEBUG
        self._logger.setLevel(level)
        return logging.getLevelName(level).lower()


def open_log(form: LogForm, *, verbose: bool = False, stream: TextIO | None = None) -> ServiceLog:
    """Open the log on standard error."""
    out = stream or sys.stderr
    readable = form is LogForm.TEXT or (form is LogForm.AUTO and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Readable() if readable else _Json())
    logger = logging.getLogger(_NAME)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    return ServiceLog(logger)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One object a line."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"ts": stamp.replace("+00:00", "Z"), "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps({**line, **_fields(record)}, default=str, ensure_ascii=False)


class _Readable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The time, what happened, and its fields."""
        stamp = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        word = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        fields = "  ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        return f"{stamp}  {word}{record.getMessage():<12}  {fields}".rstrip()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, "fields", {})
    return found


def _shown(value: object) -> str:
    """A value as text: lists and mappings without Python's brackets."""
    if isinstance(value, Mapping):
        text = ",".join(f"{key}:{_shown(one)}" for key, one in value.items())
    elif isinstance(value, list | tuple):
        text = ",".join(map(_shown, value))
    else:
        text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text else text
