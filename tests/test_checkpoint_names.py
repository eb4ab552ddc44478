"""A checkpoint names its columns: other columns are refused, and another order is loaded into the right places."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np
import pytest

from queue_twins import planned
from test_stretch import busy_queues
from tidegate.engine.step import step
from tidegate.journal.reader import JournalFollower
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.model.facts import Facts
from tidegate.state import cluster
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import CheckpointError, ColumnTable
from tidegate.state.quota_tables import QuotaTables


def filled() -> ClusterState:
    state, facts = ClusterState(), Facts()
    facts.policy(busy_queues(1))
    for number in range(5):
        facts.submit(number, planned(f"w{number}", "1x4", queue="ab"[number % 2]).workload)
    step(state, facts.batch(), 7)
    return state


def tables_of(state: ClusterState) -> list[ColumnTable]:
    held = [*vars(state).values(), *vars(state.quota).values()]
    return [each for each in held if isinstance(each, ColumnTable)]


def same(one: ColumnTable, other: ColumnTable) -> bool:
    names = (*one.columns, *one.reals, *one.grids, *(plane for planes, _ in one.stacks.values() for plane in planes))
    return all(np.array_equal(getattr(one, name)[: one.top], getattr(other, name)[: one.top]) for name in names)


def variant(table: ColumnTable, **changed) -> type[ColumnTable]:
    """The class of a table as another version might have it."""
    return type(type(table).__name__, (type(table),), changed)


@pytest.mark.parametrize("table", tables_of(filled()), ids=lambda table: type(table).__name__)
def test_columns_in_another_order_are_loaded_by_name(table):
    stacks = {name: (planes[::-1], axis) for name, (planes, axis) in table.stacks.items()}
    other = variant(table, columns=table.columns[::-1], reals=table.reals[::-1], stacks=stacks)
    assert same(table, other.load(table.dump()))
    assert type(table).load(other.load(table.dump()).dump()).dump() == table.dump()


@pytest.mark.parametrize("table", tables_of(filled()), ids=lambda table: type(table).__name__)
def test_a_column_more_or_less_is_refused(table):
    more = variant(table, columns=("new", *table.columns))
    with pytest.raises(CheckpointError, match=rf"columns of {type(table).__name__} .* missing \['new'\]"):
        more.load(table.dump())
    with pytest.raises(CheckpointError, match=r"unknown \['new'\]"):
        type(table).load(more(table.axes).dump())


def test_a_renamed_column_is_refused():
    table = filled().workloads
    renamed = variant(table, columns=tuple("age" if name == "tie" else name for name in table.columns))
    with pytest.raises(CheckpointError, match=r"missing \['age'\], unknown \['tie'\]"):
        renamed.load(table.dump())


@pytest.mark.parametrize("what", ["counters", "tables", "prices"])
def test_whatever_else_has_names_is_refused_by_them(what):
    cold = msgspec.msgpack.decode(filled().dump())
    cold[what]["NEW"] = cold[what].pop(min(cold[what]))
    with pytest.raises(CheckpointError, match=f"other {what} than this Tidegate"):
        ClusterState.load(msgspec.msgpack.encode(cold))


def test_counters_are_loaded_by_name():
    state = filled()
    cold = msgspec.msgpack.decode(state.dump())
    cold["counters"] = dict(reversed(cold["counters"].items()))
    assert ClusterState.load(msgspec.msgpack.encode(cold)).digest() == state.digest()


def test_quota_tables_are_refused_by_name():
    dumped = filled().quota.dump()
    dumped["tables"]["quotas"] = dumped["tables"].pop("flavor_resources")
    with pytest.raises(CheckpointError, match=r"quota tables .* missing \['flavor_resources'\]"):
        QuotaTables.load(dumped)


def test_a_journal_whose_checkpoint_is_refused_is_read_from_its_steps(tmp_path):
    state, file = ClusterState(), JournalFile.create(tmp_path / "run.db")
    journal, facts = Journal(file), Facts()
    journal.follow(state)
    facts.policy(busy_queues(1))
    facts.submit(0, planned("w", "1x4").workload)
    batch = facts.batch()
    journal.append(7, batch, step(state, batch, 7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "_COUNTERS", tuple(f"OLD_{name}" for name in cluster._COUNTERS))
        journal.keep()
    follower = JournalFollower(file)
    assert follower.catch_up() == 1
    assert follower.state.digest() == state.digest()
    file.close()


@pytest.mark.parametrize("damage", ["cut off", "cut off inside"])
@pytest.mark.parametrize("column", ["works", "state"])
def test_a_journal_whose_checkpoint_is_damaged_is_read_from_its_steps(tmp_path, damage, column):
    state, file = ClusterState(), JournalFile.create(tmp_path / "run.db")
    journal, facts = Journal(file), Facts()
    journal.follow(state)
    facts.policy(busy_queues(1))
    facts.submit(0, planned("w", "1x4").workload)
    batch = facts.batch()
    journal.append(7, batch, step(state, batch, 7))
    journal.keep()
    kept = file._connection.execute(f"SELECT {column} FROM checkpoints").fetchone()[0]
    broken = kept[:-20] if damage == "cut off" else zlib.compress(zlib.decompress(kept)[:-5])
    file._connection.execute(f"UPDATE checkpoints SET {column} = ?", (broken,))
    follower = JournalFollower(file)
    assert follower.catch_up() == 1
    assert follower.state.digest() == state.digest()
    file.close()
