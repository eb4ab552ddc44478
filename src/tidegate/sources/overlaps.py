"""Exports that overlap: a job that stands in several files counts once, as the one that knows its end.

Must not know: files, formats.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.sources.findings import Code, Finding
from tidegate.sources.options import Format, Table
from tidegate.sources.parts import Part

#: What makes two rows the same job: numbers alone come again in files that have nothing to do with each other.
_SAME = ["id", "submitted_ms"]


def without_overlaps(parts: list[Part]) -> list[Part]:
    """The same parts, where jobs of several files are left out of all but one, and told."""
    jobs = [number for number, part in enumerate(parts) if _may_overlap(part)]
    if len(jobs) < 2:
        return parts
    key = pl.struct(_SAME).hash(seed=0)
    keys = [parts[at].frame.select(key.alias("key")).collect(engine="streaming")["key"].unique() for at in jobs]
    found, times = np.unique(np.concatenate([one.to_numpy() for one in keys]), return_counts=True)
    twice = pl.Series(found[times > 1])
    if twice.is_empty():
        return parts
    suspects = pl.concat(
        parts[at].frame.filter(key.is_in(twice.implode())).select(*_SAME, "ended_ms", part=pl.lit(at)) for at in jobs
    )
    ranked = suspects.collect(engine="streaming").sort(*_SAME, pl.col("ended_ms").is_null(), "part")
    lost = ranked.filter(~pl.struct(_SAME).is_first_distinct())
    return [_without(part, lost.filter(pl.col("part") == at)) for at, part in enumerate(parts)]


def _may_overlap(part: Part) -> bool:
    """Whether it may hold jobs of another part: on clocks of their own, equal times mean nothing."""
    exports = (Format.TABLE, Format.SLURM, Format.KUBERNETES)
    return part.table is Table.JOBS and part.kept > 0 and part.calendar.dates and part.format in exports


def _without(part: Part, lost: pl.DataFrame) -> Part:
    if lost.is_empty():
        return part
    found = Finding(
        Code.DUPLICATE_ID, part.name, len(lost), more=f"another source has them too, such as {lost['id'][0]}"
    )
    frame = part.frame.join(lost.lazy().select(_SAME), on=_SAME, how="anti", maintain_order="left")
    return part._replace(frame=frame, kept=part.kept - len(lost), findings=(*part.findings, found))
