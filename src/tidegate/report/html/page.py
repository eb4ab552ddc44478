"""An HTML page that loads nothing: charts that can be zoomed, tables and tiles."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.report.output_files import check_writable, written_whole

#: Points of a curve at most: more cannot be seen, and make the file large.
MOST_POINTS = 2_000

#: Nothing is ever fetched: the browser sees to it.
_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_POLICY = f'<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">'


class ChartSeries(NamedTuple):
    """A curve; with `high`, a band between two curves."""

    name: str
    values: list[float | None]
    high: list[float | None] | None = None
    step: bool = False
    fill: bool = False
    dash: bool = False
    colour: str = ""


class HtmlChart(NamedTuple):
    """Curves over one axis."""

    title: str
    note: str
    unit: str
    axis: str  # time, elapsed, week, weekless or plain
    x: list[float]
    series: list[ChartSeries]


class HtmlTile(NamedTuple):
    """A question, its answer in short, and how well it is known."""

    asks: str
    answer: str
    says: str
    grade: str = ""


class HtmlTable(NamedTuple):
    """A table."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    text: bool = False  # words rather than numbers: to the left


class HtmlPage(NamedTuple):
    """What stands on the page, in order."""

    title: str
    subtitle: str
    verdict: str
    tiles: list[HtmlTile]
    charts: list[HtmlChart]
    grids: list[HtmlTable]
    says: list[str]
    footer: str


def write_page(path: Path, page: HtmlPage) -> None:
    """Write the page, whole or not at all."""
    check_writable("--html", path)
    with written_whole(path) as part:
        part.write_text(html_of(page), encoding="utf-8")


def html_of(page: HtmlPage) -> str:
    """The page as text; the same page gives the same text."""
    inside = files("tidegate.report.html").joinpath("assets")
    style, script = (inside.joinpath(name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    data = json.dumps({"charts": [_chart_data(chart) for chart in page.charts]}, allow_nan=False, sort_keys=True)
    parts = (
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        _POLICY,
        f"<title>{escape(page.title)}</title><style>{style}</style></head><body><main>",
        *_body(page),
        "</main>",
        f'<script id="data" type="application/json">{_inert(data)}</script>',
        f"<script>{script}</script></body></html>",
    )
    return "\n".join(parts) + "\n"


def _inert(data: str) -> str:
    """JSON that cannot end the element it stands in."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _chart_data(chart: HtmlChart) -> dict[str, Any]:
    series = [
        {key: value for key, value in each._asdict().items() if value not in (None, False, "")} for each in chart.series
    ]
    return {"title": chart.title, "unit": chart.unit, "axis": chart.axis, "x": chart.x, "series": series}


def _body(page: HtmlPage) -> list[str]:
    lines = [f"<h1>{escape(page.title)}</h1>", f'<p class="sub">{escape(page.subtitle)}</p>']
    lines.append(f'<p class="verdict">{escape(page.verdict)}</p>')
    lines += ['<div class="tiles">', *(_tile(tile) for tile in page.tiles), "</div>"]
    lines += [_chart(row, chart) for row, chart in enumerate(page.charts)]
    lines += [_grid(grid) for grid in page.grids if grid.rows]
    if page.says:
        lines += [
            "<h2>Findings</h2>",
            '<ul class="says">',
            *(f"<li>{escape(text)}</li>" for text in page.says),
            "</ul>",
        ]
    lines.append(f"<footer>{escape(page.footer)}</footer>")
    return lines


def _tile(tile: HtmlTile) -> str:
    grade = f'<span class="grade {escape(tile.grade)}">{escape(tile.grade)}</span>' if tile.grade else ""
    asked, answer = f'<span class="ask">{escape(tile.asks)}</span>', f"<b>{escape(tile.answer)}</b>"
    return f'<div class="tile">{asked}{answer}{grade}<p>{escape(tile.says)}</p></div>'


def _chart(row: int, chart: HtmlChart) -> str:
    head = f'<h3>{escape(chart.title)}</h3><p class="note">{escape(chart.note)}</p>'
    return f'<div class="card" data-chart="{row}">{head}</div>'


def _grid(grid: HtmlTable) -> str:
    words = " text" if grid.text else ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in grid.head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in grid.rows)
    return (
        f'<h2>{escape(grid.title)}</h2><div class="card wide{words}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


# -- long curves ----------------------------------------------------------------------------------------------


class Downsampled(NamedTuple):
    """A curve in at most so many points."""

    at: list[float]
    mean: list[float | None]
    top: list[float | None]


def thin(at: I64, values: F64, most: int) -> Downsampled:
    """Stretches of equal length, as many as may be drawn."""
    each = max(-(-len(values) // most), 1)
    edges = np.arange(0, len(values), each)
    if not len(edges):
        return Downsampled([], [], [])
    counts = np.diff(np.append(edges, len(values)))
    mean = np.add.reduceat(values, edges) / counts
    top = np.maximum.reduceat(values, edges)
    return Downsampled([float(one) for one in at[edges]], rounded(mean), rounded(top))


def rounded(values: F64) -> list[float | None]:
    """Four digits are more than can be seen; what is not a number is left out."""
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values.tolist()]
