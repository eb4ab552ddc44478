"""Schemas of objects: which fields are read, cannot matter, are not modelled, or are refused.

Nothing is ignored silently: an unknown field is reported, with the one that was probably meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tidegate.config.messages import did_you_mean
from tidegate.manifests.field_reader import Item
from tidegate.model.problem import Problem, found_text


class FieldUse(Enum):
    """How a field is treated."""

    READ = "read"
    IDLE = "idle"  # cannot influence a decision
    UNMODELLED = "not modelled"  # matters on a cluster and is not modelled here: a warning
    REFUSED = "refused"  # would make decisions wrong: an error


class FieldRule(NamedTuple):
    """How one field is treated, and its inner schema."""

    use: FieldUse
    why: str = ""
    remedy: str = ""
    inner: FieldSchema | None = None


class FieldSchema:
    """The fields of a mapping."""

    def __init__(self, fields: Mapping[str, FieldRule], each: FieldSchema | None = None) -> None:
        self.fields = dict(fields)
        self.each = each  # the schema of any other key; None: other keys are unknown


class Unsupported(NamedTuple):
    """Why a field is refused, and what to do about it."""

    why: str
    remedy: str = "leave it out"


def schema(
    read: str = "",
    *,
    idle: str = "",
    unmodelled: Mapping[str, str] | None = None,
    refused: Mapping[str, Unsupported] | None = None,
    **nested: FieldSchema,
) -> FieldSchema:
    """The schema of a mapping: fields by use; keyword arguments are fields with a schema of their own."""
    fields = {name: FieldRule(FieldUse.READ) for name in read.split()}
    fields |= {name: FieldRule(FieldUse.IDLE) for name in idle.split()}
    fields |= {name: FieldRule(FieldUse.UNMODELLED, why) for name, why in (unmodelled or {}).items()}
    fields |= {name: FieldRule(FieldUse.REFUSED, no.why, no.remedy) for name, no in (refused or {}).items()}
    fields |= {name: FieldRule(FieldUse.READ, inner=inner) for name, inner in nested.items()}
    return FieldSchema(fields)


def each(inner: FieldSchema) -> FieldSchema:
    """The schema of a mapping with free keys."""
    return FieldSchema({}, inner)


def merged(first: FieldSchema, *others: FieldSchema) -> FieldSchema:
    """A schema with the fields of all."""
    fields = dict(first.fields)
    for other in others:
        fields.update(other.fields)
    return FieldSchema(fields, first.each)


#: A mapping that is read whole, whatever its keys.
ANYTHING = FieldSchema({}, FieldSchema({}))


def check_fields(item: Item, known: FieldSchema) -> None:
    """Report every field that is unknown, not modelled or refused."""
    if known is ANYTHING:
        return
    if isinstance(item.value, list):
        for number, value in enumerate(item.value):
            check_fields(item.field(number, value), known)
    elif isinstance(item.value, dict):
        for key, value in item.value.items():
            if isinstance(key, str):
                _review_field(item, key, value, known)
            else:
                item.report("", expected="keys that are text", found=f"the key {found_text(key)}", hint="quote it")


def _review_field(item: Item, key: str, value: object, known: FieldSchema) -> None:
    field = known.fields.get(key)
    if field is None:
        if known.each is not None:
            check_fields(item.field(key, value), known.each)
        elif not item.findings.full:
            item.report(key, found="unknown field", hint=did_you_mean(key, known.fields) or _listed(known))
        else:
            item.findings.add(item.origin, Problem(path=(), found="unknown field"))
    elif field.inner is not None:
        check_fields(item.field(key, value), field.inner)
    elif field.use is FieldUse.REFUSED and value:
        item.report(key, found=f"is not supported: {field.why}", hint=field.remedy)
    elif field.use is FieldUse.UNMODELLED and value:
        what = f"{found_text(value)} " if isinstance(value, str | int | float) else ""
        item.warn(key, f"{what}has no effect here: {field.why}")


def _listed(known: FieldSchema) -> str:
    names = [name for name, field in known.fields.items() if field.use is FieldUse.READ]
    return f"read here: {', '.join(names)}" if 0 < len(names) <= 8 else ""
