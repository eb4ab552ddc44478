"""Resource requests: one row for each resource that a pod set is charged for, by pod set and name."""

from __future__ import annotations

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class ResourceRequests(ColumnTable):
    """Resource requests as a table."""

    pod_set: I64
    resource: I64
    amount: I64  # of one pod


POD_SET, RESOURCE, AMOUNT = range(len(ResourceRequests.columns))
