"""Small random tables of jobs, and the tables of demand they make."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st

from tidegate.demand.tables import JOBS, Tables
from tidegate.demand.time_zone import Calendar


def job_rows(most: int = 25):
    """Rows with a few queues and kinds, short times, and now and then no start."""
    row = st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["batch", "inference"]),
        st.sampled_from([250, 1000, 2000, 8000]),
        st.integers(0, 500),
        st.integers(0, 60),
        st.integers(1, 200),
        st.booleans(),
    )
    return st.lists(row, min_size=2, max_size=most)


def tables_of(rows, *, started: bool = True, shift: int = 0, rename=lambda name: name) -> Tables:
    """Jobs as rows of (queue, kind, GPU milli, submitted, wait, duration, cancelled), in seconds."""
    columns = {name: [] for name in JOBS}
    for at, (queue, kind, gpus, submitted, wait, took, cancelled) in enumerate(rows):
        begun = None if cancelled or not started else shift + 1000 * (submitted + wait)
        values = {
            "id": rename(f"j{at}"),
            "queue": rename(queue),
            "kind": kind,
            "gpu_model": "",
            "gpus_milli": gpus,
            "pods": 1,
            "submitted_ms": shift + 1000 * submitted,
            "started_ms": begun,
            "ended_ms": shift + 1000 * (submitted + wait) if cancelled and started else None,
            "duration_ms": 1000 * took,
            "priority": 0,
            "outcome": "cancelled" if cancelled and started else "done",
            "tolerated_wait_ms": None,
        }
        for name, value in values.items():
            columns[name].append(value)
    return Tables(jobs=pl.DataFrame(columns, schema=JOBS).lazy(), calendar=Calendar.NONE)
