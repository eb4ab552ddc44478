"""Flavor-resources: one row for each resource of a flavor, the unit in which quota is counted."""

from __future__ import annotations

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class FlavorResources(ColumnTable):
    """Flavor-resources as a table."""

    flavor: I64
    resource: I64


FLAVOR, RESOURCE = range(len(FlavorResources.columns))
