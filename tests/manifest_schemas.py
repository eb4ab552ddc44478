"""The real schemas of the kinds that are read: custom resources from their CRDs, the rest from Kubernetes' OpenAPI."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import yaml

from shared import shared
from tidegate.manifests.field_support import ANYTHING, FieldSchema
from tidegate.manifests.kinds import KINDS, GroupKind

Schema = dict[str, Any]

#: Kinds whose schemas are not among the shared ones.
UNPUBLISHED = {("config.kueue.x-k8s.io", "Configuration"), ("node.k8s.io", "RuntimeClass")}


def schemas(key: GroupKind) -> list[Schema]:
    """The schemas of a kind, one for each version that is read."""
    rows = [line.split("\t") for line in (shared("crds") / "INDEX.tsv").read_text().splitlines()]
    files = sorted({row[0] for row in rows if (row[1], row[3]) == key})
    if not files:
        return [_resolved(_core()[key])]
    return [schema for file in files for schema in _custom(file, key)]


def _custom(file: str, key: GroupKind) -> list[Schema]:
    text = (shared("crds") / file).read_text()
    return [
        version["schema"]["openAPIV3Schema"]
        for crd in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if crd and crd["spec"]["names"]["kind"] == key[1]
        for version in crd["spec"]["versions"]
        if version["name"] in KINDS[key].versions
    ]


@cache
def _core() -> dict[GroupKind, Schema]:
    found = {}
    for schema in _definitions().values():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            found[kind["group"], kind["kind"]] = schema
    return found


@cache
def _definitions() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for file in sorted(shared("crds/kubernetes-openapi-v1.36.4").glob("*.json")):
        found.update(json.loads(file.read_text())["components"]["schemas"])
    return found


def _resolved(schema: Schema) -> Schema:
    """A schema, or what it refers to."""
    inner = schema.get("allOf", [{}])[0].get("$ref") or schema.get("$ref")
    return _resolved(_definitions()[inner.rpartition("/")[2]]) if inner else schema


def differences(form: FieldSchema, found: list[Schema], at: str = "") -> tuple[set[str], set[str]]:
    """Fields that a schema has and the form does not, and the other way round."""
    if form is ANYTHING:
        return set(), set()
    found = [_inner(schema) for schema in found]
    if form.each is not None:
        values = [schema["additionalProperties"] for schema in found if schema.get("additionalProperties")]
        return differences(form.each, values, f"{at}.*")
    there = {name for schema in found for name in schema.get("properties", ())}
    if not there:
        return set(), set()  # a schema that keeps what it does not know
    missing = {f"{at}.{name}" for name in there - form.fields.keys()}
    invented = {f"{at}.{name}" for name in form.fields.keys() - there}
    for name, field in form.fields.items():
        if field.inner is not None and name in there:
            parts = [schema["properties"][name] for schema in found if name in schema.get("properties", ())]
            more, less = differences(field.inner, parts, f"{at}.{name}")
            missing, invented = missing | more, invented | less
    return missing, invented


def _inner(schema: Schema) -> Schema:
    schema = _resolved(schema)
    return _inner(schema["items"]) if schema.get("type") == "array" else schema
