"""Kills and cuts at random points of a live run, and what must hold whatever happens.

Two replicas of Tidegate bind gangs under a quota on a real API server, behind a proxy. At each point work is submitted
and something goes wrong: SIGKILL, a leader stops or stands still, the API server restarts, watches are cut or slow,
writes are refused (409, 429) or lost before or after the server saw them, clocks are set, a foreign pod takes room.
Counted are violations: a pod bound twice, a gang in halves for too long, a quota exceeded, work that never ends, a
journal that does not replay.

    python bench/faults.py --points 200 --seed 1 --json
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


def main() -> int:
    """Run the points; 1 if something was violated."""
    options = _options()
    points, began_s = draw_points(options.seed, options.points), time.monotonic()
    with Ordeal(options.seed) as ordeal:
        _endure(ordeal, points)
        ordeal.finish()
        violations = list(ordeal.violations)
        passed = {"refused": ordeal.proxy.refused, "lost": ordeal.proxy.lost, "cut": ordeal.proxy.cuts}
    found = {
        "seed": options.seed,
        "points": len(points),
        "faults": dict(sorted(Counter(point.fault for point in points).items())),
        "violations": len(violations),
        "told": [violation._asdict() for violation in violations],
        "seconds": round(time.monotonic() - began_s, 1),
        "proxy": passed,
    }
    print(json.dumps(found) if options.json else _table(found))
    return 1 if violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def _endure(ordeal: Ordeal, points: list[Point]) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(points))
        for number, point in enumerate(points):
            bar.update(task, description=point.fault)
            ordeal.endure(number, point)
            bar.advance(task)


def _table(found: dict[str, object]) -> str:
    lines = [f"{found['points']} points, seed {found['seed']}, {found['seconds']} s: {found['violations']} violations"]
    told = found["told"]
    assert isinstance(told, list)
    lines += [f"  point {one['point']}, {one['fault']}: {one['what']}" for one in told]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
