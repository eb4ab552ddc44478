"""Flavor options: one row for each flavor of a resource group, in the order in which they are tried."""

from __future__ import annotations

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class FlavorOptions(ColumnTable):
    """Flavor options as a table."""

    flavor: I64  # -1: a flavor that does not exist
    place: I64  # among all options of its queue
    delays: (
        I64  # 1: its nodes come with a check, and assignments are found when it is ready; 2: found in another cluster
    )


FLAVOR, PLACE, DELAYS = range(len(FlavorOptions.columns))
