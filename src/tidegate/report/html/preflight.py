"""The preflight as an HTML page: verdict, four questions, demand over time, the usual week, time at each level."""

from __future__ import annotations

from tidegate.config.prices import GpuPrices
from tidegate.demand.chart_data import duration_curve, outlook_points, week_curve
from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.estimate import Unit
from tidegate.demand.forecast_report import Outlook
from tidegate.demand.four_questions import QuestionAnswer
from tidegate.demand.model import DemandModel
from tidegate.demand.sentences import QUESTIONS, axis_text, clock_text, value_text, verdict_text
from tidegate.planning.preflight import Preflight
from tidegate.report.html.page import MOST_POINTS, ChartSeries, HtmlChart, HtmlPage, HtmlTable, HtmlTile, thin
from tidegate.report.text.plan import AverageDemand
from tidegate.report.text.preflight import read_parts
from tidegate.report.text.preflight_sentences import answer_sentence, finding_text, lift_text, short_answer, waste_lines
from tidegate.report.text.seven_inputs import input_rows

_FLOOR = "#cc79a7"


def preflight_page(
    preflight: Preflight, seen: AverageDemand | None, prices: GpuPrices | None, made_by: str
) -> HtmlPage:
    """The page of a preflight."""
    model = preflight.model
    rows = [(row.input, row.name, row.text, row.samples, row.table) for row in input_rows(model)]
    wasted = [(line,) for line in waste_lines(preflight, prices)]
    return HtmlPage(
        title="Tidegate preflight",
        subtitle=" · ".join(read_parts(model.grounds)),
        verdict=verdict_text(preflight.verdict, preflight.answers),
        tiles=[_tile(one, preflight) for one in preflight.answers],
        charts=_charts(preflight, seen),
        grids=[
            HtmlTable("What is wasted", ("",), list(wasted), text=True),
            HtmlTable("Seven inputs", ("input", "", "value (90 % interval)", "samples", "from"), list(rows), text=True),
        ],
        says=[finding_text(one) for one in preflight.findings],
        footer=f"made by {made_by}, seed {model.seed}",
    )


def _tile(one: QuestionAnswer, preflight: Preflight) -> HtmlTile:
    lift = lift_text(one)
    says = answer_sentence(one, preflight) + (f" Lifted by {lift}." if lift else "")
    return HtmlTile(QUESTIONS[one.question], short_answer(one, preflight), says, one.grade)


def _charts(preflight: Preflight, seen: AverageDemand | None) -> list[HtmlChart]:
    model, total = preflight.model, preflight.model.total()
    charts = [_demand_chart(preflight, seen)] if seen is not None and preflight.replayed is not None else []
    if total is not None and (total.wanted or total.seen):
        levels = total.wanted or total.seen
        assert levels is not None
        charts += [*_week_chart(model, levels, "GPUs"), _duration_chart(levels, "GPUs")]
    for one in model.services[:1]:
        charts += [*_week_chart(model, one.rate, "requests/s"), _duration_chart(one.rate, "requests/s")]
    outlooks = [*model.outlooks, *(one.outlook for one in model.services[:1] if one.outlook)]
    return [*charts, *(outlook_chart(model, one) for one in outlooks[:2])]


def _demand_chart(preflight: Preflight, seen: AverageDemand | None) -> HtmlChart:
    assert seen is not None
    assert preflight.replayed is not None
    points = thin(seen.at_ms, seen.gpus, MOST_POINTS)
    floor = float(preflight.replayed.floor.gpus)
    return HtmlChart(
        title="GPUs asked for, if nothing waited",
        note="Drag to zoom, double-click to see all; click a name to hide it." + axis_text(preflight.model.calendar),
        unit="GPUs",
        axis=axis_of(preflight.model),
        x=points.at,
        series=[
            ChartSeries("mean", points.mean, fill=True),
            ChartSeries("highest", points.top, colour="#999999"),
            ChartSeries(
                "at least" if preflight.replayed.at_least else "floor by replay",
                [floor] * len(points.at),
                dash=True,
                colour=_FLOOR,
            ),
        ],
    )


def axis_of(model: DemandModel) -> str:
    """Dates where there are any, else days since the start."""
    return "time" if model.calendar.dates else "elapsed"


def _week_chart(model: DemandModel, levels: Levels, unit: str) -> list[HtmlChart]:
    """The usual week; nothing where it was not kept."""
    curve = week_curve(levels)
    if curve is None:
        return []
    series = [
        ChartSeries("p10 to p90", list(curve.p10), high=list(curve.p90)),
        ChartSeries("mean", list(curve.mean)),
    ]
    note = clock_text(model.calendar)
    axis = "week" if model.calendar.dates else "weekless"
    hours = [float(row) for row in range(len(curve.mean))]
    return [HtmlChart(f"The usual week, {unit}", note, unit, axis, hours, series)]


def _duration_chart(levels: Levels, unit: str) -> HtmlChart:
    curve = duration_curve(levels)
    return HtmlChart(
        title=f"For how much of the time so much is asked for, {unit}",
        note="What is asked for all the time is worth owning; what is asked for 1 % of the time is not.",
        unit=unit,
        axis="plain",
        x=[100 * share for share in curve.share],
        series=[ChartSeries(f"{unit} that are reached or exceeded, by % of the time", list(curve.level), fill=True)],
    )


def outlook_chart(model: DemandModel, outlook: Outlook) -> HtmlChart:
    """What is to come, with its band."""
    points = outlook_points(outlook)
    held = ", ".join(
        f"{value_text(one.coverage, Unit.SHARE)} at {value_text(one.horizon_ms, Unit.MS)}" for one in outlook.ahead
    )
    return HtmlChart(
        title=f"The next day: {'GPUs asked for' if outlook.unit is Unit.GPUS else outlook.of}",
        note=f"Bands should hold nine of ten. Tried on the last third of the time, they held {held}.",
        unit="GPUs" if outlook.unit is Unit.GPUS else str(outlook.unit),
        axis=axis_of(model),
        x=[float(point.at_ms) for point in points],
        series=[
            ChartSeries("90 % band", [point.low for point in points], high=[point.high for point in points]),
            ChartSeries("middle", [point.middle for point in points]),
        ],
    )
