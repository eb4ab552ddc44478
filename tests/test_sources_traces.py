"""The public traces, by name and guessed: what their README states comes out."""

from __future__ import annotations

import polars as pl
import pytest

from shared import shared
from tidegate.demand.tables import CAPACITY, JOBS, REQUESTS, STARTS, USE
from tidegate.demand.time_zone import Calendar
from tidegate.sources.findings import Code, SourceError
from tidegate.sources.options import Format, SourceOptions
from tidegate.sources.read_sources import read_sources

ROWS = {
    "itp": ("jobs", 50_637, Format.ITP),
    "itp/cluster07.csv": ("jobs", 12_699, Format.ITP),
    "philly": ("jobs", 82_247, Format.PHILLY),
    "muri_philly/trace1.csv": ("jobs", 1_494, Format.MURI),
    "muri_philly/trace3_pr.csv": ("jobs", 992, Format.MURI),
    "azure_llm": ("requests", 8_819, Format.AZURE_LLM),
    "mooncake": ("requests", 12_031, Format.MOONCAKE),
    "servegen/language_m-large_clients.csv.gz": ("requests", 99_839, Format.SERVEGEN),
    "genai_serving": ("use", 161_415, Format.GENAI),
    "helios_earth": ("capacity", 8 * 44_640, Format.HELIOS),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("named", [False, True])
def test_every_row_of_a_trace_arrives(name, named):
    table, rows, form = ROWS[name]
    gathered = read_sources([str(shared(f"traces/{name}"))], SourceOptions(format=form if named else None))
    frame = getattr(gathered.tables, table)
    assert frame.select(pl.len()).collect().item() == rows
    assert {part.format for part in gathered.parts} == {form}
    schemas = {"jobs": JOBS, "requests": REQUESTS, "use": USE, "capacity": CAPACITY, "starts": STARTS}
    for other, schema in schemas.items():
        lazy = getattr(gathered.tables, other)
        assert lazy is None or lazy.collect_schema() == schema
    assert not [found for found in gathered.findings if found.spec.strict]


def _concurrency(jobs: pl.LazyFrame) -> tuple[float, float, float, float]:
    """Mean, p95, p99 and peak of GPUs if every job ran when it was submitted, by time."""
    ends = pl.col("submitted_ms") + pl.col("duration_ms")
    gpus = pl.col("gpus_milli")
    events = pl.concat([jobs.select(at="submitted_ms", by=gpus), jobs.select(at=ends, by=-gpus)])
    level = events.group_by("at").agg(pl.col("by").sum()).sort("at").collect()
    level = level.with_columns(pl.col("by").cum_sum() / 1000, length=pl.col("at").shift(-1) - pl.col("at")).drop_nulls()
    order = level.sort("by").with_columns(share=pl.col("length").cum_sum() / pl.col("length").sum())
    mean = (level["by"] * level["length"]).sum() / level["length"].sum()
    at = {q: order.filter(pl.col("share") >= q)["by"][0] for q in (0.95, 0.99)}
    return mean, at[0.95], at[0.99], level["by"].max()


def test_itp_has_the_concurrency_that_is_published():
    jobs = read_sources([str(shared("traces/itp/cluster07.csv"))]).tables.jobs
    mean, p95, p99, peak = _concurrency(jobs)
    assert (round(p95), round(p99), round(peak)) == (376, 437, 1903)
    assert mean == pytest.approx(257, rel=0.01)  # it depends on where the time ends


def test_genai_holds_memory_while_idle():
    use = read_sources([str(shared("traces/genai_serving"))]).tables.use.collect()
    idle = use.filter(pl.col("busy_milli") == 0)
    known = use.filter(pl.col("busy_milli").is_not_null())
    assert round(known["busy_milli"].mean() / 10, 1) == 7.0
    assert round(len(idle) / len(known) * 100, 1) == 66.9
    assert round(idle["vram_mib"].mean() / 1024, 1) == 24.0


def test_a_trace_without_dates_says_so_and_one_with_dates_too():
    assert read_sources([str(shared("traces/mooncake"))]).tables.calendar is Calendar.NONE
    assert read_sources([str(shared("traces/philly"))]).tables.calendar is Calendar.EPOCH
    with pytest.raises(SourceError, match="read them one by one"):
        read_sources([str(shared("traces/mooncake")), str(shared("traces/philly"))])


def test_virtual_clusters_are_queues():
    capacity = read_sources([str(shared("traces/helios_earth"))]).tables.capacity
    assert capacity.select(pl.col("queue").n_unique()).collect().item() == 8
    jobs = read_sources([str(shared("traces/philly"))]).tables.jobs
    assert jobs.select(pl.col("queue").n_unique()).collect().item() == 15


def test_a_folder_leaves_out_what_says_the_same_again():
    gathered = read_sources([str(shared("traces/muri_philly"))])
    assert gathered.tables.jobs.select(pl.len()).collect().item() == 1_494 + 992
    assert [found.times for found in gathered.findings if found.code is Code.FILE_LEFT_OUT] == [3]


@pytest.mark.parametrize("name", ["openb", "openb/openb_pod_list_default.csv", "topology", "spot_interruptions"])
def test_what_is_no_demand_is_refused_with_the_reason(name):
    with pytest.raises(SourceError, match=r"no demand|its times are no load"):
        read_sources([str(shared(f"traces/{name}"))])


def test_a_trace_by_the_wrong_name_is_refused():
    with pytest.raises(SourceError, match="is no trace of philly: expected the columns cluster"):
        read_sources([str(shared("traces/itp/cluster07.csv"))], SourceOptions(format=Format.PHILLY))
