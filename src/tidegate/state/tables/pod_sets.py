"""Pod sets: one row for each pod set of a work class; the rows of a work class are consecutive."""

from __future__ import annotations

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class PodSets(ColumnTable):
    """Pod sets as a table."""

    pod_class: I64
    count: I64
    work_class: I64


POD_CLASS, COUNT, WORK_CLASS = range(len(PodSets.columns))
