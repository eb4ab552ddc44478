"""The one door to demand: sources of any kind in, the canonical tables out, with all that is to be said about them.

Must not know: how any format is read.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tidegate.demand.tables import Calendar, Tables
from tidegate.sources.columns import read_wishes
from tidegate.sources.findings import Finding, UnusableSource, refuse_findings
from tidegate.sources.options import Options, Table, Watch, check_options, unwatched
from tidegate.sources.overlaps import without_overlaps
from tidegate.sources.parts import Part
from tidegate.sources.reading import read_found
from tidegate.sources.recognise import Found, find_sources

_USUAL = Options()


class Gathered(NamedTuple):
    """What sources gave."""

    tables: Tables
    parts: tuple[Part, ...]  # what came from where
    findings: tuple[Finding, ...]  # of all parts


def gather(sources: list[str], options: Options = _USUAL, watch: Watch = unwatched) -> Gathered:
    """Read sources: files, folders and addresses of servers; an UnusableSource says why that is not possible.

    `watch` is called with what is being read and the share of it that is done.
    """
    if not sources:
        raise UnusableSource("no source is named: expected files, folders or the address of a Prometheus")
    check_options(options)
    wishes = read_wishes(options.map)
    found: list[Found] = find_sources(sources, options)
    parts: list[Part] = []
    for number, one in enumerate(found):
        watch(one.name, number / len(found))
        parts += read_found(one, options, wishes, watch)
    parts = without_overlaps(parts)
    findings = [finding for part in parts for finding in part.findings]
    findings += [finding for one in found for finding in one.findings]
    if options.strict:
        refuse_findings(findings)
    return Gathered(_tables(parts), tuple(parts), tuple(findings))


def _tables(parts: list[Part]) -> Tables:
    calendars = {part.calendar for part in parts}
    if len(calendars) > 1:
        with_one = next(part.name for part in parts if part.calendar is Calendar.EPOCH)
        without = next(part.name for part in parts if part.calendar is Calendar.NONE)
        raise UnusableSource(f"{with_one} has dates and {without} counts from its start: read them one by one")
    return Tables(
        jobs=_joined(parts, Table.JOBS),
        requests=_joined(parts, Table.REQUESTS),
        use=_joined(parts, Table.USE),
        capacity=_joined(parts, Table.CAPACITY),
        starts=_joined(parts, Table.STARTS),
        calendar=calendars.pop() if calendars else Calendar.EPOCH,
        origins=tuple(part.origin for part in parts),
    )


def _joined(parts: list[Part], table: Table) -> pl.LazyFrame | None:
    frames = [part.frame for part in parts if part.table is table]
    if not frames:
        return None
    return frames[0] if len(frames) == 1 else pl.concat(frames)
