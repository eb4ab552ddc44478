"""A game day: random operator actions next to steady load on a real control plane, and what must hold all the time.

Two replicas of Tidegate run as installed, under the service account of the installation, and manage 30 nodes of 8 GPUs
and three queues of a cohort. Work comes and goes at about 90 % of the quota, with bursts above. At random moments nodes
are cordoned, drained, deleted, tainted or not ready; work is scaled, grown, suspended, resumed, moved, deleted or kept
by a disruption budget; the policy changes, also to one that is invalid or empty; leaders are killed, both replicas
upgraded one by one, or at once from a version with other annotations, the API server restarted. An action that the API
server refuses is reported, explains nothing and does not stop the day. Watches that know nothing of Tidegate check
quotas, nodes, gangs, lost pods and Events.

    python bench/gameday.py --minutes 60 --seed 1 --mode bind --json --log gameday.json

Exit code 1: something was violated.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from gameday.day import Day, Plan
from gameday.ground import Setting
from gameday.load import Pace

#: A part of the quota that is asked for on average, bursts included.
_ASKED = 0.9


def main() -> int:
    """Live through the day; 1 if something was violated."""
    options = _options()
    setting = Setting(options.mode, options.nodes, options.seed, options.kernels)
    longest_s = min(300.0, 12 * options.minutes)
    pace = Pace(_ASKED * setting.quota, min(20.0, longest_s / 4), longest_s, 20 * min(options.minutes, 8))
    plan = Plan(setting, options.minutes, pace, options.every)
    console = Console(stderr=True)
    with Day(plan, options.folder) as day:
        if console.is_terminal:
            with Status("", console=console) as status:
                day.live(status.update)
        else:
            day.live()
        found = day.summary()
        details = day.details()
    if options.log:
        options.log.write_text("\n".join(json.dumps(line) for line in details) + "\n")
    print(json.dumps(found) if options.json else _table(found))
    return 1 if found["violations"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=("gate", "bind"), default="bind")
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--every", type=float, default=8.0, help="seconds between two actions, on average")
    parser.add_argument("--kernels", choices=("auto", "plain", "compiled"), default="auto")
    parser.add_argument(
        "--log", type=Path, help="write every action, lost pod and violation here, one JSON object a line"
    )
    parser.add_argument("--folder", type=Path, help="keep logs and journals of the replicas here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def _table(found: dict[str, Any]) -> str:
    day = f"{found['minutes']:g} minutes in mode {found['mode']}, seed {found['seed']}"
    lines = [f"{day}: {len(found['violations'])} violations"]
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [name, *(f"  {key:60} {much}" for key, much in value.items())]
        elif isinstance(value, list):
            lines += [name, *(f"  {one}" for one in value)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
