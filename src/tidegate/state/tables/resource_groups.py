"""Resource groups: one row for each resource group of a queue; the rows of a queue are consecutive."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class ResourceGroups(ColumnTable):
    """Resource groups as a table."""

    grids: ClassVar = {"covered": "resource"}

    first_option: I64
    options: I64
    covered: I64  # (rows, resources): 1 if the group gives it


FIRST_OPTION, OPTIONS = range(len(ResourceGroups.columns))
