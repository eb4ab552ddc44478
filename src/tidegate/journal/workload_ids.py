"""Workload ids as people type them: in full, or a short form that only one workload has.

On a cluster an id is namespace, kind and name, "team-a/job.batch/train"; in a trace it may be a name alone. The short
form leaves out what comes before the name, or the group of the kind: "train", "team-a/train", "job/train".
"""

from __future__ import annotations

from collections.abc import Iterable


def matching_ids(text: str, ids: Iterable[str]) -> list[str]:
    """The ids that a text may mean, each once: the one that it is, else those that it is short for."""
    there = set(ids)
    return [text] if text in there else sorted(one for one in there if _is_short_for(text, one))


def _is_short_for(text: str, whole: str) -> bool:
    *typed, name = text.split("/")
    *before, last = whole.split("/")
    if name != last or len(typed) > len(before):
        return False
    parts = iter(_spellings(before))
    return all(any(one in spellings for spellings in parts) for one in typed)  # in the same order


def _spellings(before: list[str]) -> list[set[str]]:
    """What stands before a name as it may be typed: a namespace, and a kind as kubectl reads it."""
    if len(before) != 2:
        return [{part} for part in before]
    namespace, full_kind = before
    kind, dot, group = full_kind.partition(".")
    return [{namespace}, {kind, f"{kind}s", full_kind, f"{kind}s{dot}{group}"}]
