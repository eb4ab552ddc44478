"""Writes the tables of docs/manifests.md from the forms of the kinds that are read: run it after changing one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidegate.manifests.field_support import ANYTHING, FieldRule, FieldSchema, FieldUse
from tidegate.manifests.kinds import IGNORED_GROUPS, IGNORED_KINDS, KINDS, REFUSED_KINDS
from tidegate.manifests.label_names import KNOWN_LABELS
from tidegate.manifests.pod_template import POD_SPEC
from tidegate.manifests.yunikorn import FORMS

PAGE = Path(__file__).parent.parent / "docs" / "manifests.md"
MARK = (
    "<!-- From here on made by tests/manifests_file.py from src/tidegate/manifests: change that, then run this. -->\n"
)


def tables() -> str:
    """All tables."""
    return "\n".join([MARK, *_kinds(), "", *_fields(), "", *_words(), "", *_left()])


def page() -> str:
    """The page as it should be: what was written by hand, and the tables."""
    return PAGE.read_text().partition(MARK)[0] + tables() + "\n"


def _kinds() -> Iterator[str]:
    yield "## Kinds and the fields that are read\n"
    yield "Below a pod template (…) everything is read as for a Pod.\n"
    yield "| kind | versions | fields |\n|---|---|---|"
    for (group, kind), known in KINDS.items():
        versions = ", ".join(f"`{group}/{version}`" if group else f"`{version}`" for version in known.versions)
        yield f"| {kind} | {versions} | {_listed(known.form, FieldUse.READ, of_pod=kind == 'Pod')} |"
    for name, form in FORMS.items():
        yield f"| YuniKorn: {name} | | {_listed(form, FieldUse.READ)} |"


def _listed(form: FieldSchema, use: FieldUse, *, of_pod: bool = False) -> str:
    found = [path for path, field in _walk(form, of_pod=of_pod) if field.use is use]
    return ", ".join(f"`{path}`" for path in found if path not in ("apiVersion", "kind")) or "none"


def _walk(form: FieldSchema, at: str = "", *, of_pod: bool = False) -> Iterator[tuple[str, FieldRule]]:
    for name, field in form.fields.items():
        path = f"{at}.{name}" if at else name
        if name == "metadata" or (field.inner is POD_SPEC and not of_pod):
            if field.inner is POD_SPEC:
                yield f"{path}…", FieldRule(FieldUse.READ)
        elif field.inner is None or field.inner is ANYTHING:
            yield path, field
        elif field.inner.each is not None:
            yield from _walk(field.inner.each, f"{path}.*", of_pod=of_pod)
        else:
            yield from _walk(field.inner, path, of_pod=of_pod)


def _fields() -> Iterator[str]:
    yield "## Fields that are refused, or have no effect\n"
    yield "Refused is an error, no effect a warning. All other fields of the real schemas are accepted, as they cannot"
    yield "influence a decision; fields that no schema has are errors.\n"
    yield "| kind | field | | why |\n|---|---|---|---|"
    told = set()
    for (_, kind), known in KINDS.items():
        for path, field in _walk(known.form, of_pod=kind == "Pod"):
            row = (kind, path, field)
            if field.use in (FieldUse.REFUSED, FieldUse.UNMODELLED) and row not in told:
                told.add(row)
                yield f"| {kind} | `{path}` | {_use(field)} | {_why(field)} |"


def _use(field: FieldRule) -> str:
    return "refused" if field.use is FieldUse.REFUSED else "no effect"


def _why(field: FieldRule) -> str:
    return f"{field.why}; {field.remedy}" if field.remedy else field.why


def _words() -> Iterator[str]:
    yield "## Labels and annotations\n"
    yield "| word | | |\n|---|---|---|"
    for word, field in sorted(KNOWN_LABELS.items()):
        if field.use is not FieldUse.IDLE:
            yield f"| `{word}` | {'read' if field.use is FieldUse.READ else _use(field)} | {_why(field)} |"


def _left() -> Iterator[str]:
    yield "## Kinds that are not read\n"
    yield "| kind | | why |\n|---|---|---|"
    for (group, kind), why in sorted(REFUSED_KINDS.items()):
        yield f"| {kind} (`{group}`) | refused | {why} |"
    for (group, kind), why in sorted(IGNORED_KINDS.items()):
        yield f"| {kind}{f' (`{group}`)' if group else ''} | left alone | {why} |"
    for group, why in sorted(IGNORED_GROUPS.items()):
        yield f"| all of `{group}` | left alone | {why} |"


if __name__ == "__main__":
    PAGE.write_text(page())
