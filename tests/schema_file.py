"""Writes schemas/tidegate.schema.json from the types: run it after changing the file format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tidegate.config.quantities import Amount
from tidegate.config.schema import ConfigDocument
from tidegate.config.schema_base import ConfigEntry

SCHEMA = Path(__file__).parent.parent / "schemas" / "tidegate.schema.json"
SCHEMA_ID = "https://tidegate.io/schemas/tidegate.schema.json"


def json_schema() -> dict[str, Any]:
    """What may be written in the file, as JSON Schema 2020-12."""
    (root,), parts = msgspec.json.schema_components([ConfigDocument], schema_hook=_amount_schema)
    del root  # only refers to the document, which stands at the top here
    for entry in _entry_types(ConfigEntry):
        if entry.__name__ in parts:  # those that others only build on never stand in a file
            _add_defaults(parts[entry.__name__], entry)
    document = parts.pop(ConfigDocument.__name__)
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}
    return {**dialect, **document, "title": "tidegate.yaml", "$defs": parts}


def _amount_schema(kind: type[Any]) -> dict[str, Any]:
    if issubclass(kind, Amount):
        return kind.schema()
    raise NotImplementedError(kind)


def _entry_types(base: type[ConfigEntry]) -> list[type[ConfigEntry]]:
    return [entry for child in base.__subclasses__() for entry in (child, *_entry_types(child))]


def _add_defaults(part: dict[str, Any], entry: type[ConfigEntry]) -> None:
    """Say the defaults of amounts as people write them; msgspec leaves out what it cannot encode."""
    for field in msgspec.structs.fields(entry):
        default = field.default_factory() if callable(field.default_factory) else None
        if isinstance(default, Amount):
            part["properties"][field.encode_name]["default"] = default.text() if default.pattern else default / 1000


def schema_text() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    print(f"wrote {SCHEMA}")
