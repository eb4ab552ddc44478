"""Range queries over a long time, in pieces that are cached until all are complete.

Pieces are kept in a folder, each written whole or not at all, under a name that says what was asked: a run that broke
off goes on from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import platformdirs
import polars as pl

from tidegate.sources.findings import SourceError
from tidegate.sources.options import ReportProgress, no_progress
from tidegate.sources.prometheus.http_client import PrometheusServer, TooManyPointsError, request

#: Points of one series in one answer; servers refuse more than 11,000.
MOST_POINTS = 10_000

#: The pieces may become this small before it is given up.
_LEAST_POINTS = 20


class TimeRange(NamedTuple):
    """From when to when, in steps; in milliseconds, both ends included."""

    start_ms: int
    end_ms: int
    step_ms: int

    def pieces(self, points: int) -> Iterator[TimeRange]:
        """The same in pieces of so many points at most; their ends depend on the step alone."""
        phase = self.start_ms % self.step_ms
        first, last = (self.start_ms - phase) // self.step_ms, (self.end_ms - phase) // self.step_ms
        while first <= last:
            stop = min(first - first % points + points - 1, last)
            yield TimeRange(phase + first * self.step_ms, phase + stop * self.step_ms, self.step_ms)
            first = stop + 1


class ResponseCache:
    """A folder of pieces; one that was not chosen by the user is removed when all is read."""

    def __init__(self, chosen: str) -> None:
        self._keep = bool(chosen)
        self._folder = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("tidegate")) / "prometheus"
        self._used: set[Path] = set()

    def take(self, key: str) -> Any:
        """A piece that is kept; None if it is not, or is damaged."""
        path = self._path(key)
        try:
            found = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        self._used.add(path)
        return found

    def keep(self, key: str, value: Any) -> None:
        """Keep a piece; where that is not possible, it is done without."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        except OSError as error:
            if self._keep:
                raise SourceError(f"--cache {self._folder}: cannot be written: {error.strerror or error}") from None
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(value))
            Path(part).replace(path)
            self._used.add(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(part).unlink()
            raise

    def finish(self) -> None:
        """All is read: remove what the user did not ask to keep."""
        if self._keep:
            return
        for path in self._used:
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):
            if not any(self._folder.iterdir()):
                shutil.rmtree(self._folder)

    def _path(self, key: str) -> Path:
        return self._folder / (hashlib.sha256(key.encode()).hexdigest()[:32] + ".json")


class RangeQuery(NamedTuple):
    """A server, a time, and where pieces are kept."""

    server: PrometheusServer
    span: TimeRange
    store: ResponseCache
    watch: ReportProgress = no_progress

    def range(self, query: str) -> pl.DataFrame:
        """The answer to a query over the whole time: a column for each label, `at_ms` and `value`."""
        return _frame(series for piece in self._pieces(query, self.span, MOST_POINTS) for series in piece)

    def _pieces(self, query: str, span: TimeRange, points: int) -> Iterator[list[Any]]:
        pieces = list(span.pieces(points))
        for number, piece in enumerate(pieces):
            self.watch(query, number / len(pieces))
            key = json.dumps([self.server.name, query, *piece])
            found = self.store.take(key)
            if found is None:
                try:
                    found = _series(request(self.server, "/api/v1/query_range", _fields(query, piece)), self.server)
                except TooManyPointsError as refused:
                    if points // 4 < _LEAST_POINTS:
                        hint = "ask for less: a shorter time, or a longer --step"
                        raise SourceError(
                            f"{self.server.name}: will not answer so much at once{refused}; {hint}"
                        ) from None
                    yield from self._pieces(query, piece, points // 4)
                    continue
                self.store.keep(key, found)
            yield found


def _fields(query: str, span: TimeRange) -> dict[str, str]:
    return {
        "query": query,
        "start": f"{span.start_ms / 1000:.3f}",
        "end": f"{span.end_ms / 1000:.3f}",
        "step": f"{span.step_ms / 1000:.3f}",
    }


def _series(data: Any, server: PrometheusServer) -> list[Any]:
    found = data.get("result") if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise SourceError(f"{server.name}: does not answer as Prometheus does: expected a result")
    return found


def _frame(series: Iterator[Any]) -> pl.DataFrame:
    frames = [_one(found["metric"], found.get("values") or []) for found in series]
    if not frames:
        return pl.DataFrame(schema={"at_ms": pl.Int64, "value": pl.Float64})
    return pl.concat(frames, how="diagonal")


def _one(labels: dict[str, str], values: list[list[Any]]) -> pl.DataFrame:
    times = pl.Series("at_ms", [round(float(at) * 1000) for at, _ in values], dtype=pl.Int64)
    numbers = pl.Series("value", [text for _, text in values], dtype=pl.String).cast(pl.Float64, strict=False)
    named = [pl.lit(text).alias(f"label {name}") for name, text in labels.items() if name != "__name__"]
    return pl.DataFrame([times, numbers]).with_columns(named)
