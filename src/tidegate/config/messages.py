"""Texts of problems: what a type accepts, and hints at what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import inspect

from tidegate.config.quantities import Amount
from tidegate.model.units import UnitError

#: Longer words are not compared with known ones: it takes long, and mistakes are not that long.
LONGEST_COMPARED = 40

_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def bare(kind: inspect.Type) -> inspect.Type:
    """The type without its metadata."""
    return bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def fits(kind: inspect.Type, data: object) -> bool:
    """Say whether a value is of a type that has no parts."""
    match bare(kind), data:
        case inspect.StrType() as text, str():
            answer = _text_fits(text, data)
        case inspect.IntType() as number, int():
            answer = not isinstance(data, bool) and _in_range(number, data)
        case inspect.BoolType(), bool():
            answer = True
        case inspect.EnumType() as choice, str():
            answer = data in _choices(choice)
        case inspect.LiteralType(values=values), _:
            answer = any(type(data) is type(value) and data == value for value in values)
        case inspect.CustomType() as custom, _:
            answer = refusal(custom, data) == ""
        case _:
            answer = False
    return answer


def _text_fits(kind: inspect.StrType, text: str) -> bool:
    if not (kind.min_length or 0) <= len(text) <= (len(text) if kind.max_length is None else kind.max_length):
        return False
    return kind.pattern is None or re.search(kind.pattern, text) is not None


def _in_range(kind: inspect.IntType, number: int) -> bool:
    return (kind.ge is None or number >= kind.ge) and (kind.le is None or number <= kind.le)


def refusal(kind: inspect.Type, data: object) -> str:
    """What was expected instead of just this value; empty if the type's own wording says it best."""
    if isinstance(kind, inspect.StrType) and kind.pattern is None and not isinstance(data, str):
        return "text"  # its length is not the point
    if not (isinstance(kind, inspect.CustomType) and issubclass(kind.cls, Amount)):
        return ""
    try:
        kind.cls.read(data)
    except UnitError as error:
        return str(error)
    return ""


def wording(kind: inspect.Type) -> str:
    """Say what a type accepts."""
    if isinstance(kind, inspect.Metadata):
        return str((kind.extra or {}).get("expected", "")) or wording(kind.type)
    match kind:
        case inspect.UnionType(types=types):
            text = " or ".join(wording(member) for member in types)
        case inspect.StructType() | inspect.DictType():
            text = "a mapping"
        case inspect.ListType() | inspect.VarTupleType():
            text = "a list" + _items_wording(kind.min_length, kind.max_length)
        case inspect.EnumType() | inspect.LiteralType():
            text = _choice_wording(kind)
        case inspect.IntType(ge=least, le=most):
            text = "a whole number" + _range_wording(least, most)
        case inspect.BoolType():
            text = "true or false"
        case inspect.CustomType(cls=amount) if issubclass(amount, Amount):
            text = amount.expected
        case inspect.StrType(max_length=longest):
            text = "text" if longest is None else f"text of at most {longest:,} characters"
        case _:
            text = "something else"
    return text


def _choice_wording(kind: inspect.EnumType | inspect.LiteralType) -> str:
    choices = _choices(kind)
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choice for choice in choices if choice)}"


def _choices(kind: inspect.EnumType | inspect.LiteralType) -> list[str]:
    values = [member.value for member in kind.cls] if isinstance(kind, inspect.EnumType) else kind.values
    return [str(value) for value in values]


def _range_wording(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}"
    if least is not None:
        return f" of at least {least:,}"
    return "" if most is None else f" of at most {most:,}"


def _items_wording(least: int | None, most: int | None) -> str:
    if most is not None:
        return f" of {least or 0:,} to {most:,} items"
    return f" of at least {least:,} items" if least else ""


def close_match(word: str, known: list[str]) -> str:
    """The known word that was probably meant; empty if none comes close."""
    if len(word) > LONGEST_COMPARED:
        return ""
    plain = word.lower().replace("-", "_")
    by_plain = {other.lower(): other for other in reversed(known)}
    close = [plain] if plain in by_plain else get_close_matches(plain, list(by_plain), n=1, cutoff=0.6)
    return by_plain[close[0]] if close else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that was probably meant; empty if none is close."""
    close = close_match(word, sorted(known))
    return f"did you mean '{close}'?" if close else ""


def hint_for(kind: inspect.Type, data: object) -> str:
    """What to do about a value that is not of the type; empty if there is no guess."""
    hint = ""
    match kind, data:
        case _, None:
            hint = "give it a value or leave the key out"
        case inspect.CustomType(cls=amount), _ if issubclass(amount, Amount):
            hint = amount.hint(data)
        case inspect.LiteralType() as literal, str() if data in _choices(literal):
            hint = "write it without quotes"
        case ((inspect.EnumType() | inspect.LiteralType()), str()) if close := did_you_mean(data, _choices(kind)):
            hint = close
        case inspect.IntType(), str() if re.fullmatch(r"-?[0-9]+", data):
            hint = "write it without quotes"
        case inspect.StrType(), bool() | int() | float():
            hint = "write it in quotes"
        case inspect.BoolType(), str() if data.lower() in _BOOLEANS:
            hint = f"write {_BOOLEANS[data.lower()]}"
        case inspect.BoolType(), str() if data in {"true", "false"}:
            hint = "write it without quotes"
        case ((inspect.ListType() | inspect.VarTupleType()), dict()):
            hint = "begin each item with '- '"
    return hint
