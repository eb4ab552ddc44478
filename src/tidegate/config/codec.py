"""Decodes plain data of YAML or JSON into a typed value, or reports all its problems with their paths.

msgspec converts, and stops at the first error. Only then the data is walked along the type, to find all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from tidegate.config.messages import bare, did_you_mean, fits, hint_for, refusal, wording
from tidegate.config.quantities import read_amount
from tidegate.model.problem import Path, Problem, Report, found_text

T = TypeVar("T")

#: Known keys that are listed for an unknown one.
MOST_LISTED = 8


def decode(data: object, kind: type[T], report: Report, at: Path = ()) -> T | None:
    """Make a value of the type; None if that is not possible, and then the report says why."""
    try:
        return msgspec.convert(data, kind, dec_hook=read_amount)
    except (msgspec.ValidationError, ValueError) as error:  # ValueError: text that is not valid Unicode
        known = len(report)
        explain(data, _type_info(cast("Any", kind)), at, report)
        if len(report) == known:
            report.add(Problem(path=at, found=f"not usable: {error}"))
        return None


def sound(data: object, kind: type[T]) -> T | None:
    """Make a value of the type; None if that is not possible."""
    try:
        return msgspec.convert(data, kind, dec_hook=read_amount)
    except (msgspec.ValidationError, ValueError):
        return None


@cache  # msgspec takes milliseconds to find out
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def explain(data: object, kind: inspect.Type, at: Path, report: Report) -> None:
    """Add to the report all that keeps the data from being of the type."""
    match _branch(kind, data):
        case inspect.StructType() as struct if isinstance(data, dict):
            _explain_struct(data, struct, at, report)
        case inspect.DictType() as mapping if isinstance(data, dict):
            _explain_mapping(data, mapping, at, report)
        case (inspect.ListType() | inspect.VarTupleType()) as items if isinstance(data, list | tuple):
            _explain_items(data, items, at, report)
        case leaf:
            _explain_leaf(data, leaf, kind, at, report)


def _explain_struct(data: dict[Any, Any], kind: inspect.StructType, at: Path, report: Report) -> None:
    fields = {field.encode_name: field for field in kind.fields}
    for key, value in data.items():
        if not isinstance(key, str):
            _refuse_key(key, at, report)
        elif key in fields:
            explain(value, fields[key].type, (*at, key), report)
        elif key in (refused := getattr(kind.cls, "refused", {})):
            report.add(_refused(refused[key], found_text(value), (*at, key)))
        else:
            hint = "" if report.full else _known_key(key, list(fields))
            report.add(Problem(path=(*at, key), found="unknown key", hint=hint))
    for name, field in fields.items():
        if field.required and name not in data:
            report.add(Problem(path=(*at, name), found="required key is missing"))


def _explain_mapping(data: dict[Any, Any], kind: inspect.DictType, at: Path, report: Report) -> None:
    for key, value in data.items():
        if not isinstance(key, str):
            _refuse_key(key, at, report)
            continue
        if not fits(kind.key_type, key):
            expected = f"the key to be {wording(kind.key_type)}"
            report.add(Problem(path=(*at, key), expected=expected, found=found_text(key)))
        explain(value, kind.value_type, (*at, key), report)


def _explain_items(
    data: list[Any] | tuple[Any, ...], kind: inspect.ListType | inspect.VarTupleType, at: Path, report: Report
) -> None:
    least, most = kind.min_length or 0, kind.max_length
    if len(data) < least or (most is not None and len(data) > most):
        report.add(Problem(path=at, expected=wording(kind), found=found_text(list(data))))
    for number, item in enumerate(data):
        explain(item, kind.item_type, (*at, number), report)


def _explain_leaf(data: object, leaf: inspect.Type, whole: inspect.Type, at: Path, report: Report) -> None:
    """Compare a value that has no parts, or has parts where there should be none."""
    if fits(leaf, data):
        return
    expected = refusal(leaf, data) or wording(whole)
    hint = "" if report.full else hint_for(leaf, data)
    report.add(Problem(path=at, expected=expected, found=found_text(data), hint=hint))


def _refused(hint: str, found: str, at: Path) -> Problem:
    if hint.startswith("renamed to "):
        return Problem(path=at, found=hint)
    return Problem(path=at, expected="no such key, as nothing acts on it", found=found, hint=hint)


def _refuse_key(key: object, at: Path, report: Report) -> None:
    report.add(Problem(path=at, expected="keys that are text", found=f"the key {found_text(key)}", hint="quote it"))


def _branch(kind: inspect.Type, data: object) -> inspect.Type:
    """The type itself; of a union the member that the data comes closest to."""
    whole = bare(kind)
    if not isinstance(whole, inspect.UnionType):
        return whole
    wanted: tuple[type, ...] = (inspect.StrType, inspect.EnumType, inspect.LiteralType)
    if isinstance(data, dict):
        wanted = (inspect.StructType, inspect.DictType)
    elif isinstance(data, list | tuple):
        wanted = (inspect.ListType, inspect.VarTupleType)
    members = [bare(member) for member in whole.types]
    fitting = next((member for member in members if fits(member, data)), whole)
    return next((member for member in members if isinstance(member, wanted)), fitting)


def _known_key(key: str, known: list[str]) -> str:
    return did_you_mean(key, known) or _listed(known)


def _listed(known: list[str]) -> str:
    return f"known here: {', '.join(known)}" if len(known) <= MOST_LISTED else ""
