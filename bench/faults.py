"""Kills, cuts, drains, edits and forgeries at random points of a live run, and what must hold whatever happens.

Two replicas of Tidegate bind work under a quota on a real API server, through a proxy. At each point work is submitted
and something goes wrong (`--list` names the faults). Counted are violations: a pod bound twice or to a node that takes
no pods, a gang in halves for too long, a quota exceeded or not all of it usable, work that never ends, an eviction
without an Event, a journal that does not replay, anything that uninstall leaves behind.

    python bench/faults.py --points 200 --seed 1 --json
    python bench/faults.py --points 40 --seed 1 --faults drain,taint
    python bench/faults.py --seed 1 --only 17            # this point of the seed alone
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kubefaults import Ordeal, Point, draw_points
from kubefaulttable import FAULTS


def main() -> int:
    """Run the points; 1 if something was violated."""
    options = _options()
    if options.list:
        print("\n".join(f"{name:20} {(fault.strike.__doc__ or '').strip()}" for name, fault in FAULTS.items()))
        return 0
    points, began_s = (
        draw_points(options.seed, max([options.points, *(number + 1 for number in options.only)]), options.faults),
        time.monotonic(),
    )
    points = [points[number] for number in options.only] or points
    with Ordeal() as ordeal:
        done = _endure(ordeal, points, options.minutes)
        ordeal.finish()
    found = {
        "seed": options.seed,
        "points": done,
        "faults": dict(sorted(Counter(point.fault for point in points[:done]).items())),
        "left_out": ordeal.left_out,
        "violations": len(ordeal.violations),
        "told": [violation._asdict() for violation in ordeal.violations],
        "seconds": round(time.monotonic() - began_s, 1),
        "proxy": ordeal.proxy.counts(),
    }
    print(json.dumps(found) if options.json else _table(found, options))
    return 1 if ordeal.violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=_names, default=[], metavar="A,B", help="these faults alone")
    parser.add_argument("--only", type=_numbers, default=[], metavar="N,N", help="these points of the seed alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no point after so long")
    parser.add_argument("--list", action="store_true", help="name the faults")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    unknown = sorted(set(text.split(",")) - FAULTS.keys())
    if unknown:
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(unknown)}; --list names them")
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _endure(ordeal: Ordeal, points: list[Point], minutes: float) -> int:
    """Run the points, as long as there is time; how many that were."""
    until_s = time.monotonic() + minutes * 60
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(points))
        for done, point in enumerate(points):
            if time.monotonic() > until_s:
                return done
            bar.update(task, description=point.fault)
            known, began_s = len(ordeal.violations), time.monotonic()
            ordeal.endure(point)
            console.print(f"point {point.number}, {point.fault}: {time.monotonic() - began_s:.1f} s", style="dim")
            for violation in ordeal.violations[known:]:
                console.print(f"point {point.number}, {point.fault}: {violation.what}", soft_wrap=True, markup=False)
            bar.advance(task)
    return len(points)


def _table(found: dict[str, object], options: argparse.Namespace) -> str:
    lines = [f"{found['points']} points, seed {found['seed']}, {found['seconds']} s: {found['violations']} violations"]
    told, left_out = found["told"], found["left_out"]
    assert isinstance(told, list)
    assert isinstance(left_out, dict)
    lines += [f"  {fault} was left out: {why}" for fault, why in left_out.items()]
    chosen = f" --faults {','.join(options.faults)}" if options.faults else ""
    for one in told:
        lines.append(f"  point {one['point']}, {one['fault']}: {one['what']}")
        if one["point"] >= 0:
            lines.append(f"    repeat it: python bench/faults.py --seed {one['seed']} --only {one['point']}{chosen}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
