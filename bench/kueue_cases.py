"""Kueue's decision tables, decided by Tidegate.

    python bench/kueue_cases.py --data ../shared/cases/kueue --json

Prints how many cases come out as Kueue decides them, and for each that does not, why. Skipped cases count in the total.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from kueue import RUNNERS, skip_reason


class Outcome(NamedTuple):
    """What came of one case."""

    test: str
    case: str
    outcome: str
    why: str


def cases_in(folder: Path, only: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every case of a folder, and the table it is from."""
    for file in sorted(folder.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                case = json.loads(line)
                if only in f"{case['_test']}/{case['_case']}":
                    yield case, case["_test"]


def decide_case(case: dict[str, Any], table: str) -> Outcome:
    """Decide a case and compare."""
    name, own = case["_case"], case["case"]
    skipped = skip_reason(table, own)
    if skipped:
        return Outcome(table, name, "skipped", skipped)
    try:
        why = RUNNERS[table](own, case.get("fixtures") or {})
    except Exception:  # noqa: BLE001 - a case that breaks the engine is a failed case, not the end of the run
        why = "raised: " + traceback.format_exc().strip().splitlines()[-1]
    return Outcome(table, name, "failed" if why else "passed", why or "")


def main() -> None:
    """Decide all cases and print the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of *.jsonl case tables")
    parser.add_argument("--only", default="", help="cases whose table/name has this in it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    outcomes = [decide_case(case, table) for case, table in cases_in(options.data, options.only)]
    totals = {kind: sum(one.outcome == kind for one in outcomes) for kind in ("passed", "failed", "skipped")}
    totals["total"] = len(outcomes)
    if options.json:
        print(json.dumps({"totals": totals, "cases": [one._asdict() for one in outcomes]}))
        return
    for one in outcomes:
        if one.outcome != "passed":
            print(f"{one.outcome}: {one.test}: {one.case}\n    {one.why}")
    tables = sorted({one.test for one in outcomes})
    for table in tables:
        mine = [one for one in outcomes if one.test == table]
        print(f"{sum(one.outcome == 'passed' for one in mine):4} of {len(mine):4} {table}")
    print(f"{totals['passed']} of {totals['total']} as Kueue decides, {totals['skipped']} skipped")


if __name__ == "__main__":
    main()
