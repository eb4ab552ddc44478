"""Writes schemas/tidegate.schema.json from the types: run it after changing the file format."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.config.json_schema import json_schema

SCHEMA = Path(__file__).parent.parent / "schemas" / "tidegate.schema.json"


def schema_text() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    print(f"wrote {SCHEMA}")
