"""The columns of a table as constants for kernels are the columns of its class."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from tidegate.state import tables
from tidegate.state.column_table import ColumnTable
from tidegate.state.tables import claims, quotas
from tidegate.state.tables.quota_nodes import QuotaNodes
from tidegate.state.tables.quota_reservations import QuotaReservations

MODULES = [importlib.import_module(f"{tables.__name__}.{each.name}") for each in pkgutil.iter_modules(tables.__path__)]
TABLES = [
    (module, value)
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, ColumnTable) and value.__module__ == module.__name__
]


def test_every_table_has_a_module():
    assert len(TABLES) == 21


@pytest.mark.parametrize(("module", "table"), TABLES, ids=lambda value: value.__name__.rsplit(".", 1)[-1])
def test_constants_are_the_columns_in_their_order(module, table):
    assert [getattr(module, name.upper()) for name in table.columns] == list(range(len(table.columns)))


@pytest.mark.parametrize(
    ("module", "table", "stack"), [(quotas, QuotaNodes, "quota"), (claims, QuotaReservations, "claims")]
)
def test_planes_are_those_of_the_stack(module, table, stack):
    names = table.stacks[stack][0]
    assert [getattr(module, name.upper()) for name in names] == list(range(len(names)))
