"""Traces that are one table a file: what their columns are, and which files are no demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from tidegate.demand.time_zone import Calendar
from tidegate.sources.detect_columns import ColumnOverride, read_map_option
from tidegate.sources.options import CanonicalTable, Format
from tidegate.sources.table_reader import TableHints


class Trace(NamedTuple):
    """A trace whose files have one table each."""

    format: Format
    header: frozenset[str]  # names that it has
    table: CanonicalTable
    overrides: dict[str, ColumnOverride]
    calendar: Calendar
    queue: Callable[[str], str] | None = None  # the queue that the name of a file means
    ids: bool = True

    def wanted(self, name: str) -> TableHints:
        """How one of its files is read."""
        queue = self.queue(name) if self.queue else ""
        overrides = {**self.overrides, **({"queue": ColumnOverride(constant=queue)} if queue else {})}
        return TableHints(overrides, table=self.table, calendar=self.calendar, documented=True, ids=self.ids)


def _stem(name: str) -> str:
    return PurePath(name).name.split(".")[0]


def _helios_queue(name: str) -> str:
    """`earth_vc3sl_may2020_1min` is of the virtual cluster vc3sl."""
    return next((part for part in _stem(name).split("_") if part.startswith("vc")), _stem(name))


def _columns(names: str) -> frozenset[str]:
    return frozenset(names.split())


TRACES = (
    Trace(
        Format.ITP,
        _columns("job_id submission_time duration num_gpu"),
        CanonicalTable.JOBS,
        read_map_option("id=job_id,submitted=submission_time:s,duration=duration:s,gpus=num_gpu"),
        Calendar.NONE,
        _stem,
    ),
    Trace(
        Format.PHILLY,
        _columns("timestamp duration num_gpus gpu_time cluster"),
        CanonicalTable.JOBS,
        read_map_option("submitted=timestamp,duration=duration:s,gpus=num_gpus,queue=cluster"),
        Calendar.EPOCH,
    ),
    Trace(
        Format.MURI,
        _columns("job_id num_gpu submit_time iterations model_name duration priority"),
        CanonicalTable.JOBS,
        read_map_option("id=job_id,submitted=submit_time:ms,duration=duration:ms,gpus=num_gpu,priority=priority"),
        Calendar.NONE,
        _stem,
    ),
    Trace(
        Format.AZURE_LLM,
        _columns("TIMESTAMP ContextTokens GeneratedTokens"),
        CanonicalTable.REQUESTS,
        read_map_option("at=TIMESTAMP,tokens_in=ContextTokens,tokens_out=GeneratedTokens"),
        Calendar.EPOCH,
    ),
    Trace(
        Format.MOONCAKE,
        _columns("timestamp input_length output_length"),
        CanonicalTable.REQUESTS,
        read_map_option("at=timestamp:ms,tokens_in=input_length,tokens_out=output_length"),
        Calendar.NONE,
    ),
    Trace(
        Format.SERVEGEN,
        _columns("client ts_s rate_rps cv_iat"),
        CanonicalTable.REQUESTS,
        read_map_option("at=ts_s:s,rate=rate_rps,window==600s,client=client,arrival_cv=cv_iat"),
        Calendar.NONE,
    ),
    Trace(
        Format.HELIOS,
        _columns("time total_gpu_num running_gpu_num pending_gpu_num running_gpujob_num pending_gpujob_num"),
        CanonicalTable.CAPACITY,
        read_map_option(
            "at=time,total=total_gpu_num,running=running_gpu_num,pending=pending_gpu_num,running_jobs=running_gpujob_num,pending_jobs=pending_gpujob_num"
        ),
        Calendar.EPOCH,
        _helios_queue,
    ),
)

#: Files of these traces that say the same again, by the end of their stem, or that are no table of the trace.
TWICE = {Format.MURI: "_pr"}


class NoDemand(NamedTuple):
    """A file that is no demand."""

    header: frozenset[str]
    why: str


NOT_DEMAND = (
    NoDemand(
        _columns("name cpu_milli memory_mib num_gpu gpu_milli"),
        "is a list of pods for placement experiments (openb): its times are no load, about 14 GPUs at once; "
        "use bench/openb.py, or name a trace of jobs",
    ),
    NoDemand(
        _columns("sn cpu_milli memory_mib gpu model"),
        "is a list of machines (openb), no demand; name a trace of jobs",
    ),
    NoDemand(
        _columns("ip DSW PSW ASW"),
        "is a network of hosts and switches (topology), no demand; name a trace of jobs",
    ),
    NoDemand(
        _columns("time active total"),
        "counts machines that are switched on, not GPUs that are asked for; name a trace of jobs or of GPUs",
    ),
    NoDemand(
        _columns("trace policy published_avg_jct_s"),
        "holds published results (muri), no demand; name trace1.csv or trace3.csv",
    ),
)


def find_trace(names: tuple[str, ...]) -> Trace | None:
    """The trace whose files have such columns; the most particular one, if several do."""
    fitting = [trace for trace in TRACES if trace.header <= set(names)]
    return max(fitting, key=lambda trace: len(trace.header), default=None)


def why_no_demand(names: tuple[str, ...], beginning: str) -> str:
    """Why a file with such columns is no demand; empty if it may be."""
    for one in NOT_DEMAND:
        if one.header <= set(names):
            return one.why
    cells = beginning.split("\n", 1)[0].strip().split(",")
    if len(cells) == 3 and cells[0].isdecimal() and cells[1] in ("add", "remove"):
        return "is a list of spot machines that came and went, capacity and no demand; name a trace of jobs"
    if cells[0] == "workload" and cells[1:2] in (["policy"], ["sc_policy"]):
        return "holds published results (openb), no demand; name a trace of jobs"
    if cells[0] in ("pods", "noderank", "# kind"):
        return "is an order of arrival for placement experiments (openb), no demand; name a trace of jobs"
    return ""
