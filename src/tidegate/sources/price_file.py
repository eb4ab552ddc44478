"""Prices of a YAML file, or what is wrong with it, each problem with file and line.

    currency: USD
    gpu_hour: {own: 1.80, window: 2.40, burst: 4.10}

Must not know: what prices are for.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.config.prices import GpuPrices, read_prices
from tidegate.model.problem import Problem
from tidegate.sources.config_file import FileProblem, printable
from tidegate.sources.yaml_data import FileReadError
from tidegate.sources.yaml_file import read_file


class PriceFileError(ValueError):
    """A price file with errors; its text has a line for each."""


def load_prices(path: Path) -> GpuPrices:
    """The prices of a file; an UnusablePrices says all that is wrong with it."""
    name = printable(str(path))
    try:
        plain = read_file(path)
    except FileReadError as error:
        raise PriceFileError(FileProblem(name, error.place, Problem(path=(), found=error.reason)).text()) from None
    prices, report = read_prices(plain.data)
    if prices is None:
        found = [FileProblem(name, plain.place(problem.path), problem).text() for problem in report.problems]
        raise PriceFileError("\n".join(found))
    return prices
