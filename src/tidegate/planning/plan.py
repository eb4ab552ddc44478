"""Makes a plan: floor, bands, the cost at each edge, the alternatives, and the holdout trial."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tidegate.config.prices import MICROS
from tidegate.demand.tables import RowOrigin
from tidegate.demand.unrecorded import unseen_between
from tidegate.model.units import WEEK_MS, WHOLE_MILLI
from tidegate.planning.capacity import HOURS, SHUT, WeekWindows, constant, steps_of
from tidegate.planning.capacity_plan import Bands, PlanRecipe, plan_bands
from tidegate.planning.capacity_replay import CapacityReplayer, ReplaySpan, cost_of, way_of
from tidegate.planning.concurrency import curve_of, peak_milli, quantile_milli
from tidegate.planning.engine_check import Confirmed, confirm
from tidegate.planning.floor import Floor, find_floor, floor_gpus
from tidegate.planning.holdout import trial_part
from tidegate.planning.kernels.replay import BurstRule, Steps
from tidegate.planning.newsvendor import used_hours
from tidegate.planning.plan_schema import (
    FORMAT,
    AnswerPart,
    BurstPart,
    ClassPart,
    CountPart,
    EdgePart,
    FindingPart,
    FloorPart,
    OriginPart,
    PlanDocument,
    PricesPart,
    SignaturePart,
    TolerancePart,
    TwinPart,
    WayPart,
    WindowPart,
)
from tidegate.planning.plan_warnings import plan_says, way_part
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import held_as_declared

#: Jobs that the engine decides again, to confirm what was counted.
_CONFIRMED_JOBS = 600


class Holdout(NamedTuple):
    """A trial of how the plan is made."""

    share: float  # of the time to try it on
    recipe: PlanRecipe  # as it was known when that time began


class Redrawn(NamedTuple):
    """Jobs of a demand model, drawn with other seeds: how far what is found depends on the draw."""

    jobs: tuple[PlanJobs, ...]
    batch_gpus: float  # the most that any batch asked for at once that the model was made from


class PlanRequest(NamedTuple):
    """What a plan is to be made from."""

    jobs: PlanJobs
    recipe: PlanRecipe
    made_by: str
    prices_from: str  # a file, or "assumed"
    origins: tuple[RowOrigin, ...] = ()
    findings: tuple[FindingPart, ...] = ()
    dropped: int = 0  # rows
    redrawn: Redrawn | None = None  # where jobs are drawn from a demand model
    answers: tuple[AnswerPart, ...] = ()
    signatures: tuple[SignaturePart, ...] = ()
    seed: int = 0
    holdout: Holdout | None = None


def make_plan(request: PlanRequest) -> PlanDocument:
    """The plan for the time after the jobs; with a holdout, also the trial of how it is made."""
    jobs, recipe = request.jobs, request.recipe
    from_ms, to_ms = jobs.span_ms
    replayer = CapacityReplayer(jobs, recipe.order)
    floor = find_floor(replayer, recipe.tolerance, request.seed)
    if request.redrawn is not None:
        floor = _with_draws(floor, request.redrawn, recipe)
    bands = plan_bands(jobs, to_ms, recipe)
    return PlanDocument(
        format=FORMAT,
        made_by=request.made_by,
        seed=request.seed,
        origin=OriginPart(
            sources=request.origins,
            findings=request.findings,
            dropped_rows=request.dropped,
            sampled=request.redrawn is not None,
            unseen=unseen_between(jobs.at_ms),
            jobs=jobs.total,
            left_out=tuple(CountPart(why=why, jobs=count) for why, count in jobs.left_out),
            drawn=tuple(CountPart(why=why, jobs=count) for why, count in jobs.drawn),
            from_ms=from_ms,
            to_ms=to_ms,
            calendar=jobs.calendar,
        ),
        answers=request.answers,
        signatures=request.signatures,
        prices=_prices_part(request),
        classes=(_with_words(_class_part(replayer, floor, bands, recipe), request),),
        trial=trial_part(jobs, *holdout, request.seed) if (holdout := request.holdout) else None,
    )


def _with_draws(floor: Floor, redrawn: Redrawn, recipe: PlanRecipe) -> Floor:
    """The floor, with an interval that holds those of other draws from the same model."""
    others = [floor_gpus(CapacityReplayer(jobs, recipe.order), recipe.tolerance) for jobs in redrawn.jobs]
    low, high = min([floor.gpus, *others]), max([floor.gpus, *others])
    if floor.low_gpus is None or floor.high_gpus is None:
        return floor
    return floor._replace(low_gpus=min(floor.low_gpus, low), high_gpus=max(floor.high_gpus, high))


def _with_words(part: ClassPart, request: PlanRequest) -> ClassPart:
    """The plan of a class, with what a plan from a demand model is not."""
    if request.redrawn is None:
        return part
    most = request.redrawn.batch_gpus
    said = (
        f"it is judged on {request.jobs.total:,} jobs that a demand model drew, not on those that the model was made "
        f"from: what holds here may not hold there. Batches that come at once (up to {most:,.0f} GPUs) are drawn "
        "smaller or at other times; plan from the jobs themselves where they matter"
    )
    return replace(part, says=(said, *part.says))


def _prices_part(request: PlanRequest) -> PricesPart:
    prices = request.recipe.prices
    return PricesPart(
        currency=prices.currency,
        own=prices.own_micros / MICROS,
        window=prices.window_micros / MICROS,
        burst=prices.burst_micros / MICROS,
        origin=request.prices_from,
    )


def _class_part(replayer: CapacityReplayer, floor: Floor, bands: Bands, recipe: PlanRecipe) -> ClassPart:
    tolerance, jobs = recipe.tolerance, replayer.jobs
    ways = tuple(_ways(replayer, floor, bands, recipe))
    return ClassPart(
        kind="batch",
        tolerance=_tolerance_part(jobs, recipe),
        floor=FloorPart(
            gpus=floor.gpus,
            low_gpus=floor.low_gpus,
            high_gpus=floor.high_gpus,
            blocks=floor.blocks,
            block_ms=floor.block_ms,
            no_interval=floor.none.value if floor.none else "",
            replays=floor.replays,
            wait_ms=floor.outcome.wait_at(tolerance.share_milli),
        ),
        own_gpus=bands.own_gpus,
        windows=_window_parts(bands),
        burst=_burst_part(bands, recipe),
        edges=tuple(_edges(bands, recipe)),
        ways=ways,
        twin=TwinPart(**_confirm(jobs, bands, recipe)._asdict()),
        basis=bands.basis,
        holds=ways[0].holds,
        says=plan_says(bands, recipe, ways),
    )


def _tolerance_part(jobs: PlanJobs, recipe: PlanRecipe) -> TolerancePart:
    tolerance = recipe.tolerance
    return TolerancePart(
        wait_ms=tolerance.wait_ms,
        interactive_ms=tolerance.interactive_ms if jobs.interactive.any() else None,
        declared_jobs=int(held_as_declared(jobs, tolerance).sum()),
        tightest_ms=tolerance.tightest_ms,
        share_milli=tolerance.share_milli,
        order=recipe.order,
    )


def _window_parts(bands: Bands) -> tuple[WindowPart, ...]:
    return tuple(
        WindowPart(name=name, hours=_ranges(bands.windows, row), gpus=gpus, booked_gpus=gpus - bands.own_gpus)
        for row, (name, gpus) in enumerate(zip(bands.windows.names, bands.window_gpus, strict=True))
    )


def _ranges(windows: WeekWindows, row: int) -> tuple[tuple[int, int], ...]:
    """Hours of the week that belong to a window, as ranges."""
    inside = np.array([of == row for of in windows.of_hour])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
    return tuple((int(first), int(last)) for first, last in edges.reshape(-1, 2))


def _burst_part(bands: Bands, recipe: PlanRecipe) -> BurstPart | None:
    if not recipe.bursts or not bands.ceiling_gpus:
        return None
    burst_rule = recipe.burst_rule()
    return BurstPart(
        ceiling_gpus=bands.ceiling_gpus,
        patience_ms=burst_rule.patience_ms,
        launch_ms=burst_rule.launch_ms,
        linger_ms=burst_rule.linger_ms,
        step_gpus=recipe.launch.step_gpus,
    )


def _edges(bands: Bands, recipe: PlanRecipe) -> list[EdgePart]:
    """What one GPU more would cost and save in a week, where each kind of capacity ends."""
    prices = recipe.prices
    own, window, burst = (micros / MICROS for micros in (prices.own_micros, prices.window_micros, prices.burst_micros))
    used = [float(used_hours(bands.demand, bands.windows, gpus)[row]) for row, gpus in enumerate(bands.window_gpus)]
    hours, booked = bands.windows.hours(), [gpus > bands.own_gpus for gpus in bands.window_gpus]
    # A GPU more that is owned saves what is booked where something is, and burst where nothing is.
    saved = sum(hours[row] * window if booked[row] else used[row] * burst for row in range(len(hours)))
    at_own = float(used_hours(bands.demand, bands.windows, bands.own_gpus).sum())
    edges = [_edge("own", bands.own_gpus, at_own, HOURS * own / burst, HOURS * own, saved)]
    for row, name in enumerate(bands.windows.names):
        if booked[row]:
            cost = hours[row] * window
            edges.append(_edge(name, bands.window_gpus[row], used[row], cost / burst, cost, used[row] * burst))
    if recipe.bursts:
        top = max(bands.window_gpus) + bands.ceiling_gpus
        beyond = float(used_hours(bands.demand, bands.windows, top).sum())
        edges.append(_edge("burst", top, beyond, 0.0, beyond * burst, 0.0))
    return edges


def _edge(name: str, gpus: int, used: float, even: float, costs: float, saves: float) -> EdgePart:
    return EdgePart(
        name=name,
        gpus=gpus,
        used_hours=round(used, 3),
        breaks_even_hours=round(even, 3),
        costs=round(costs, 3),
        saves=round(saves, 3),
    )


def _ways(replayer: CapacityReplayer, floor: Floor, bands: Bands, recipe: PlanRecipe) -> list[WayPart]:
    """The plan and its alternatives, on the time it was made from; a week on average."""
    from_ms, to_ms = replayer.jobs.span_ms
    curve = curve_of(replayer.jobs)
    levels = {
        "floor": floor.gpus * WHOLE_MILLI,
        "p95": quantile_milli(curve, from_ms, to_ms, 0.95),
        "peak": peak_milli(curve, from_ms, to_ms),
    }
    span, weeks = ReplaySpan(from_ms, to_ms), max((to_ms - from_ms) / WEEK_MS, 1e-9)

    def way(name: str, steps: Steps, burst_rule: BurstRule, own_gpus: float) -> WayPart:
        outcome = replayer.replay(steps, burst_rule, span)
        cost = cost_of(outcome, own_gpus * span.hours, recipe.prices)
        gpus = (outcome.owned_gpu_h / max(span.hours, 1e-9),)
        return way_part(way_of(outcome, recipe.tolerance, name, gpus, cost), weeks)

    plan = steps_of([bands.level(from_ms)], to_ms, replayer.jobs.calendar)
    constants = [way(name, constant(milli, from_ms), SHUT, milli / WHOLE_MILLI) for name, milli in levels.items()]
    return [way("plan", plan, recipe.burst_rule(), bands.own_gpus), *constants]


def _confirm(jobs: PlanJobs, bands: Bands, recipe: PlanRecipe) -> Confirmed:
    """Let the engine decide the jobs of the time in which most were late without burst: there the queue matters."""
    counted = CapacityReplayer(jobs, recipe.order).replay(
        steps_of([bands.level(jobs.span_ms[0])], jobs.span_ms[1], jobs.calendar), recipe.burst_rule()
    )
    came = np.flatnonzero(counted.counted)  # others were there before the time began
    if not came.size:
        return Confirmed(0, 0, 0)
    last = min(len(came), _CONFIRMED_JOBS)
    waited = np.cumsum(np.minimum(counted.wait_ms, WEEK_MS))
    sums = waited[last - 1 :] - np.concatenate([[0], waited[: len(waited) - last]])
    first = int(np.argmax(sums))
    part = jobs.take(came[first : first + last])
    steps = steps_of([bands.level(part.span_ms[0])], part.span_ms[1], jobs.calendar)
    return confirm(part, recipe.order, steps, recipe.burst_rule())
