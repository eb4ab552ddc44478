"""Sentences about a plan: that it breaks the tolerance, or why it is so simple."""

from __future__ import annotations

from typing import Any

from tidegate.measure.format import percent_text
from tidegate.model.units import duration_text
from tidegate.planning.capacity_plan import Bands, PlanBasis, PlanRecipe
from tidegate.planning.capacity_replay import ReplayedWay
from tidegate.planning.kernels.replay import NEVER
from tidegate.planning.plan_schema import PatiencePart, SizePart, WayPart
from tidegate.planning.tolerance import PartWaits

_SIMPLE = {
    PlanBasis.LEVEL: "one level all week, and burst",
    PlanBasis.FLOOR: "the constant floor without burst",
    PlanBasis.PEAK: "the constant peak without burst",
}


def plan_says(bands: Bands, recipe: PlanRecipe, ways: tuple[WayPart, ...]) -> tuple[str, ...]:
    """Sentences; the plan is the first of the ways."""
    mine, *others = ways
    said = [broken(mine, recipe.tolerance.wait_ms)] if not mine.holds else []
    if bands.basis is PlanBasis.BANDS and not mine.holds:
        said.append(f"its levels are for the last {duration_text(recipe.recent_ms)}; what came before needed more")
    if recipe.bursts and not recipe.burst_in_time:
        launch, wait = duration_text(recipe.launch.launch_ms), duration_text(recipe.tolerance.tightest_ms)
        some = ", some of it" if recipe.tolerance.tightest_ms < recipe.tolerance.wait_ms else ""
        said.append(
            f"burst takes {launch} to start and work may wait {wait}{some}: it comes too late, so no less than the "
            "floor is owned"
        )
    if bands.basis in _SIMPLE:
        said.append(
            f"the plan is {_SIMPLE[bands.basis]}: to own, book and burst by price alone would cost more than that, "
            "or break the tolerance"
        )
    reserve = bands.basis is PlanBasis.LEVEL or not recipe.burst_in_time
    if mine.holds:
        said += [
            f"{way.name}, constant, costs {percent_text(1 - way.cost / mine.cost)} less over all of the past; "
            + ("the plan's burst is for what grows" if reserve else "of late it costs more or breaks the tolerance")
            for way in others
            if way.holds and recipe.bursts and way.cost < mine.cost * (1 - 1e-6)
        ]
    return tuple(said)


def way_part(way: ReplayedWay, weeks: float = 1.0) -> WayPart:
    """A way as a part of the document; its amounts by the week."""
    return WayPart(
        name=way.name,
        gpus=round(sum(way.gpus) / max(len(way.gpus), 1), 3),
        held_gpu_hours=round(way.held_gpu_h / weeks, 3),
        owned_gpu_hours=round(way.owned_gpu_h / weeks, 3),
        burst_gpu_hours=round(way.burst_gpu_h / weeks, 3),
        cost=round(way.cost / weeks, 3),
        wait_ms=way.wait_ms if way.wait_ms < NEVER else None,
        late_share=round(way.late, 6),
        late_gpu_hours=round(way.late_gpu_h, 6),
        sizes=tuple(SizePart(size=each.size, **_waits(each)) for each in way.sizes),
        patience=tuple(PatiencePart(tolerates=each.size, **_waits(each)) for each in way.patience),
        holds=way.holds,
    )


def _waits(part: PartWaits) -> dict[str, Any]:
    wait_ms = part.wait_ms if part.wait_ms < NEVER else None
    return {"jobs": part.jobs, "wait_ms": wait_ms, "late_share": round(part.late, 6), "counts": part.counts}


def sizes_text(way: WayPart) -> str:
    """Who waited longer than is tolerated, by size."""
    return ", ".join(
        f"{part.size} GPU{'' if part.size == '1' else 's'} {percent_text(part.late_share)}" for part in way.sizes
    )


def broken(way: WayPart, tolerated_ms: int) -> str:
    """That a plan does not do what it is for."""
    worst = max((part for part in way.sizes if part.counts), key=lambda part: part.late_share, default=None)
    gpus = f" ({percent_text(worst.late_share)} of those of {worst.size} GPUs)" if worst else ""
    hours = f", with {percent_text(way.late_gpu_hours)} of the GPU-hours," if way.late_gpu_hours else ""
    return (
        f"the plan breaks the tolerance: {percent_text(way.late_share)} of the jobs{gpus}{hours} wait longer than "
        f"{limit_text(way, tolerated_ms)}"
    )


def limit_text(way: WayPart, tolerated_ms: int) -> str:
    """How long work may wait: one time, or who is late of those that may wait less or more."""
    if len(way.patience) < 2:
        return duration_text(tolerated_ms)
    late = [f"{percent_text(part.late_share)} of those that may wait {part.tolerates}" for part in way.patience]
    return f"they tolerate: {', '.join(late)}"


def tolerance_text(wait_ms: int, interactive_ms: int | None, declared: int) -> str:
    """How long work may wait, in words."""
    parts = [f"interactive work {duration_text(interactive_ms)}"] if interactive_ms is not None else []
    parts += [f"{declared:,} jobs as they declare"] if declared else []
    return duration_text(wait_ms) + (f" ({', '.join(parts)})" if parts else "")


def fewer_text(saved: float) -> str:
    """How many fewer GPU-hours: "20 % fewer", "6 % more" or "as many"."""
    if abs(saved) < 0.0005:
        return "as many"
    return f"{percent_text(abs(saved))} {'fewer' if saved > 0 else 'more'}"
