"""What may stand in an object, field by field: what is read, what cannot matter, what is not modelled, what is refused.

Nothing is ignored in silence: a field that no form knows is named, with the one that was probably meant.
Must not know: what fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tidegate.manifests.field_reader import Item, meant
from tidegate.model.problem import Problem, found_text


class Use(Enum):
    """What becomes of a field."""

    READ = "read"
    IDLE = "idle"  # cannot influence a decision
    UNMODELLED = "not modelled"  # could make a difference in the world that is not made here: a warning
    REFUSED = "refused"  # would make decisions wrong: an error


class Field(NamedTuple):
    """What becomes of one field, and what stands in it."""

    use: Use
    why: str = ""
    remedy: str = ""
    inner: Form | None = None


class Form:
    """The fields of a mapping."""

    def __init__(self, fields: Mapping[str, Field], each: Form | None = None) -> None:
        self.fields = dict(fields)
        self.each = each  # what stands under any other key; None: there must be none


class No(NamedTuple):
    """Why a field is refused, and what to do about it."""

    why: str
    remedy: str = "leave it out"


def form(
    read: str = "",
    *,
    idle: str = "",
    unmodelled: Mapping[str, str] | None = None,
    refused: Mapping[str, No] | None = None,
    **nested: Form,
) -> Form:
    """The form of a mapping: fields by use, and under their own names those with a form of their own."""
    fields = {name: Field(Use.READ) for name in read.split()}
    fields |= {name: Field(Use.IDLE) for name in idle.split()}
    fields |= {name: Field(Use.UNMODELLED, why) for name, why in (unmodelled or {}).items()}
    fields |= {name: Field(Use.REFUSED, no.why, no.remedy) for name, no in (refused or {}).items()}
    fields |= {name: Field(Use.READ, inner=inner) for name, inner in nested.items()}
    return Form(fields)


def each(inner: Form) -> Form:
    """The form of a mapping whose keys are the author's."""
    return Form({}, inner)


def widened(first: Form, *others: Form) -> Form:
    """The form with the fields of all."""
    fields = dict(first.fields)
    for other in others:
        fields.update(other.fields)
    return Form(fields, first.each)


#: A mapping that is read whole, whatever its keys.
ANYTHING = Form({}, Form({}))


def review(item: Item, known: Form) -> None:
    """Name every field that is not known, not modelled or refused."""
    if known is ANYTHING:
        return
    if isinstance(item.value, list):
        for number, value in enumerate(item.value):
            review(item.field(number, value), known)
    elif isinstance(item.value, dict):
        for key, value in item.value.items():
            if isinstance(key, str):
                _review_field(item, key, value, known)
            else:
                item.tell("", expected="keys that are text", found=f"the key {found_text(key)}", hint="quote it")


def _review_field(item: Item, key: str, value: object, known: Form) -> None:
    field = known.fields.get(key)
    if field is None:
        if known.each is not None:
            review(item.field(key, value), known.each)
        elif not item.findings.full:
            item.tell(key, found="unknown field", hint=meant(key, known.fields) or _listed(known))
        else:
            item.findings.add(item.origin, Problem(path=(), found="unknown field"))
    elif field.inner is not None:
        review(item.field(key, value), field.inner)
    elif field.use is Use.REFUSED and value:
        item.tell(key, found=f"is not supported: {field.why}", hint=field.remedy)
    elif field.use is Use.UNMODELLED and value:
        what = f"{found_text(value)} " if isinstance(value, str | int | float) else ""
        item.warn(key, f"{what}has no effect here: {field.why}")


def _listed(known: Form) -> str:
    names = [name for name, field in known.fields.items() if field.use is Use.READ]
    return f"read here: {', '.join(names)}" if 0 < len(names) <= 8 else ""
