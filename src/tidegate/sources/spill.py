"""Rows put aside on disk, so that what was slow to read is read once; gone when the process ends."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import polars as pl

_NUMBERS = count(1)


def spilled(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The same rows, from a file of our own; they need not fit into memory."""
    path = _folder() / f"{next(_NUMBERS)}.parquet"
    frame.sink_parquet(path, compression="lz4")
    return pl.scan_parquet(path)


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="tidegate-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
