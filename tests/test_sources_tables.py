"""Tables in files: columns guessed and named, rows completed, everything wrong with them counted with its line."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.demand.time_zone import Calendar
from tidegate.sources.findings import Code, SourceError
from tidegate.sources.options import CanonicalTable, SourceOptions
from tidegate.sources.read_sources import read_sources

GOOD = """\
job_id,submit_time,start_time,end_time,num_gpus,team
a,1700000000,1700000060,1700003660,8,red
b,1700000100,1700000100,1700000200,1,blue
c,1700000200,1700000300,1700000900,0.5,blue
"""


def _jobs(path, **options):
    gathered = read_sources([str(path)], SourceOptions(**options))
    return gathered, gathered.tables.jobs.collect()


def _write(tmp_path, text, name="jobs.csv"):
    path = tmp_path / name
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return path


def _zstd(text):
    if shutil.which("zstd") is None:
        pytest.skip("needs zstd, which is not on this machine")
    return subprocess.run(["zstd", "-c"], input=text.encode(), capture_output=True, check=True).stdout


def _told(gathered):
    return {found.code: found.times for found in gathered.findings}


def _lines(gathered, code):
    return [place.number for found in gathered.findings if found.code is code for place in found.places]


def test_a_table_of_jobs_is_recognised_and_completed(tmp_path):
    gathered, jobs = _jobs(_write(tmp_path, GOOD))
    assert gathered.findings == ()
    assert jobs["gpus_milli"].to_list() == [8000, 1000, 500]
    assert jobs["queue"].to_list() == ["red", "blue", "blue"]
    assert jobs["duration_ms"].to_list() == [3_600_000, 100_000, 600_000]
    assert jobs["submitted_ms"][0] == 1_700_000_000_000
    assert gathered.tables.origins[0].rows == 3
    assert [one.text() for one in gathered.parts[0].columns.chosen][1] == "submitted = submit_time (time, s)"


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("jobs.tsv", lambda text: text.replace(",", "\t").encode()),
        ("jobs.txt", lambda text: text.replace(",", ";").encode()),
        ("jobs.csv.gz", lambda text: gzip.compress(text.encode())),
        ("jobs.csv.zst", "zstd"),
        ("bom.csv", lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()),
        ("quoted.csv", lambda text: text.replace("red", '"r,e""d"').replace("submit_time", '"submit_time"').encode()),
    ],
)
def test_the_same_table_in_other_clothes(tmp_path, name, pack):
    gathered, jobs = _jobs(_write(tmp_path, _zstd(GOOD) if pack == "zstd" else pack(GOOD), name))
    assert gathered.findings == ()
    assert jobs["duration_ms"].to_list() == [3_600_000, 100_000, 600_000]


def test_parquet_and_json_lines_give_the_same_table(tmp_path):
    _, expected = _jobs(_write(tmp_path, GOOD))
    frame = pl.read_csv(tmp_path / "jobs.csv")
    frame.write_parquet(tmp_path / "jobs.parquet")
    dated = frame.with_columns(pl.from_epoch("submit_time"), pl.from_epoch("start_time"), pl.from_epoch("end_time"))
    dated.write_parquet(tmp_path / "dated.parquet")
    frame.write_ndjson(tmp_path / "jobs.jsonl")
    frame.write_json(tmp_path / "jobs.json")
    for name in ("jobs.json", "jobs.parquet", "jobs.jsonl", "dated.parquet"):
        assert _jobs(tmp_path / name)[1].equals(expected), name


def test_units_are_seen_by_name_and_by_size(tmp_path):
    text = "id,created_ms,runtime_minutes,gpu_milli\na,1700000000000,90,2500\n"
    assert _jobs(_write(tmp_path, text))[1]["duration_ms"][0] == 90 * 60_000
    text = "id,created,started,ended,runtime,gpus\na,1700000000,1700000000,1700000100,100000,1\n"
    jobs = _jobs(_write(tmp_path, text))[1]  # by what start and end say
    assert jobs["duration_ms"][0] == 100_000


def test_durations_as_people_write_them(tmp_path):
    text = "id,submitted,runtime,gpus\na,1700000000,1-02:03:04,1\nb,1700000000,03:04,1\nc,1700000000,1h30m,1\n"
    assert _jobs(_write(tmp_path, text))[1]["duration_ms"].to_list() == [93_784_000, 184_000, 5_400_000]


def test_days_as_times(tmp_path):
    text = "id,submitted,runtime_h,gpus\na,2026-01-01,5,1\nb,2026-01-02,5,1\n"
    assert _jobs(_write(tmp_path, text))[1]["submitted_ms"].diff()[1] == 86_400_000


def test_gangs_are_multiplied(tmp_path):
    text = "id,submitted,duration_s,gpus_per_node,num_nodes\na,1700000000,60,8,4\n"
    jobs = _jobs(_write(tmp_path, text))[1]
    assert (jobs["gpus_milli"][0], jobs["pods"][0]) == (32_000, 4)


def test_a_mapping_of_the_user_wins(tmp_path):
    text = "x,y,z\n1700000000000,5,3\n"
    path = _write(tmp_path, text)
    with pytest.raises(SourceError, match=r"no column was recognised as .*found the columns x, y, z; .*--map"):
        _jobs(path)
    jobs = _jobs(path, map="submitted=x:ms,duration=y:min,gpus=z,queue==red")[1]
    assert jobs.select("submitted_ms", "duration_ms", "gpus_milli", "queue").row(0) == (
        1_700_000_000_000,
        300_000,
        3000,
        "red",
    )


@pytest.mark.parametrize("wish", ["gpus", "gpus=", "colour=x", "gpus=nothing", "duration=y:MiB"])
def test_a_mapping_that_cannot_be_is_refused(tmp_path, wish):
    with pytest.raises(SourceError, match="--map"):
        _jobs(_write(tmp_path, "x,y,gpu\n1700000000,5,3\n"), map=wish)


@pytest.mark.parametrize(
    ("header", "table"),
    [
        ("timestamp,model,prompt_tokens,completion_tokens", CanonicalTable.REQUESTS),
        ("timestamp,pod,gpu_utilization,gpu_memory_used_mib", CanonicalTable.USE),
        ("time,total_gpus,running_gpus,pending_gpus", CanonicalTable.CAPACITY),
        ("submitted_at,gpus,runtime", CanonicalTable.JOBS),
        ("timestamp,stage,took_ms", CanonicalTable.STARTS),
    ],
)
def test_tables_are_told_apart(tmp_path, header, table):
    cells = ["1700000000" if "t" in name and ("time" in name or "_at" in name) else "7" for name in header.split(",")]
    gathered = read_sources([str(_write(tmp_path, f"{header}\n{','.join(cells)}\n"))])
    assert gathered.parts[0].table is table


def test_small_numbers_count_from_the_start(tmp_path):
    gathered, _ = _jobs(_write(tmp_path, "id,submitted,duration,gpus\na,0,5,1\nb,60,5,1\n"))
    assert gathered.tables.calendar is Calendar.NONE
    assert _told(gathered)[Code.UNIT_ASSUMED] == 2


# -- what is wrong with rows -----------------------------------------------------------------------------------

WRONG = [
    (Code.UNREADABLE_CELL, "x,soon,1700000060,1700000160,1,red"),
    (Code.UNREADABLE_CELL, "x,1700000000,1700000060,1700000160,many,red"),
    (Code.UNREADABLE_LINE, "x,1700000000,1700000060"),
    (Code.UNREADABLE_LINE, "x,1700000000,1700000060,1700000160,1,red,and,more"),
    (Code.MISSING_VALUE, "x,,,1700000160,1,red"),
    (Code.MISSING_VALUE, "x,1700000000,1700000060,1700000160,NULL,red"),
    (Code.DUPLICATE_ID, "a,1700000000,1700000060,1700000160,1,red"),
    (Code.END_BEFORE_START, "x,1700000000,1700000160,1700000060,1,red"),
    (Code.ZERO_GPUS, "x,1700000000,1700000060,1700000160,0,red"),
    (Code.NEGATIVE_AMOUNT, "x,1700000000,1700000060,1700000160,-1,red"),
    (Code.OUT_OF_RANGE, "x,1700000000000,1700000000060,1700000000160,1,red"),
    (Code.OUT_OF_RANGE, "x,1700000000,1700000060,1700000160,1000000,red"),
]


@pytest.mark.parametrize(("code", "row"), WRONG)
def test_what_is_wrong_is_dropped_counted_and_told_with_its_line(tmp_path, code, row):
    path = _write(tmp_path, f"{GOOD}{row}\n")
    gathered, jobs = _jobs(path)
    assert jobs["id"].to_list() == ["a", "b", "c"]
    assert _told(gathered) == {code: 1}
    assert _lines(gathered, code) == [5]
    assert gathered.parts[0].rows == 4
    assert gathered.parts[0].kept == 3
    assert str(path) in gathered.findings[0].text()
    if gathered.findings[0].spec.strict:
        with pytest.raises(SourceError, match=code):
            _jobs(path, strict=True)


def test_a_start_before_submission_is_put_right(tmp_path):
    gathered, jobs = _jobs(_write(tmp_path, GOOD + "x,1700000100,1700000000,1700000160,1,red\n"))
    assert jobs["submitted_ms"][3] == jobs["started_ms"][3] == 1_700_000_000_000
    assert _lines(gathered, Code.START_BEFORE_SUBMIT) == [5]


def test_one_percent_of_bad_rows_costs_one_percent(tmp_path):
    rows = [f"j{n},{1_700_000_000 + n},{1_700_000_060 + n},{1_700_000_160 + n},1,red" for n in range(10_000)]
    rows[50::100] = ["\x01\x02 junk" if n % 2 else "j,yesterday,1,2,3,red" for n in range(100)]
    gathered, jobs = _jobs(_write(tmp_path, "\n".join([GOOD.splitlines()[0], *rows])))
    assert len(jobs) == 9_900
    assert _told(gathered) == {Code.UNREADABLE_CELL: 50, Code.UNREADABLE_LINE: 50}
    assert _lines(gathered, Code.UNREADABLE_CELL)[0] == 2 + 50
    assert gathered.parts[0].rows == gathered.parts[0].kept + 100


def test_empty_lines_are_no_rows(tmp_path):
    gathered, jobs = _jobs(_write(tmp_path, GOOD.replace("\nb", "\n\n\nb") + "\n\n"))
    assert len(jobs) == 3
    assert gathered.findings == ()


def test_zones_of_times(tmp_path):
    head = "id,submitted,duration_s,gpus\n"
    zoned = _jobs(_write(tmp_path, head + "a,2026-01-01T12:00:00+02:00,5,1\nb,2026-01-01T10:00:00Z,5,1\n"))
    assert zoned[1]["submitted_ms"].n_unique() == 1
    assert zoned[0].findings == ()
    local = _write(tmp_path, head + "a,2026-01-01 12:00:00,5,1\n")
    assert _told(_jobs(local)[0]) == {Code.TIME_ZONE_MISSING: 1}
    utc = _jobs(local)[1]["submitted_ms"][0]
    gathered, berlin = _jobs(local, timezone="Europe/Berlin")
    assert utc - berlin["submitted_ms"][0] == 3_600_000
    assert gathered.findings == ()


def test_mixed_zones_are_counted_and_nothing_is_lost(tmp_path):
    rows = "a,2026-01-01T12:00:00Z,5,1\nb,2026-01-01 12:00:00,5,1\nc,2026-01-01T13:00:00+01:00,5,1\n"
    gathered, jobs = _jobs(_write(tmp_path, "id,submitted,duration_s,gpus\n" + rows))
    assert jobs["submitted_ms"].n_unique() == 1
    assert _told(gathered) == {Code.TIME_ZONES_MIXED: 1}
    assert _lines(gathered, Code.TIME_ZONES_MIXED) == [3]


def test_a_clock_that_jumps_and_a_gap_are_told(tmp_path):
    times = [1_700_000_000 + 60 * n for n in range(3_000)]
    times[2_000:] = [time + 10 * 86_400 for time in times[2_000:]]
    times[1_000] -= 7_200
    rows = "".join(f"j{n},{time},5,1\n" for n, time in enumerate(times))
    gathered, jobs = _jobs(_write(tmp_path, "id,submitted,duration_s,gpus\n" + rows))
    assert len(jobs) == 3_000
    assert _told(gathered) == {Code.CLOCK_JUMP: 1, Code.GAP: 1}
    assert _lines(gathered, Code.CLOCK_JUMP) == [1_002]


def test_an_order_by_nothing_is_no_clock_jump(tmp_path):
    rows = "".join(f"j{n},{1_700_000_000 + (n * 7919) % 100_000},5,1\n" for n in range(2_000))
    assert _told(_jobs(_write(tmp_path, "id,submitted,duration_s,gpus\n" + rows))[0]) == {}


def test_json_lines_that_are_torn_are_counted(tmp_path):
    rows = [json.dumps({"id": n, "submitted": 1_700_000_000 + n, "duration_s": 5, "gpus": 1}) for n in range(20)]
    rows[7], rows[9] = rows[7][:20], rows[9].replace("1700000009", '"soon"')
    gathered, jobs = _jobs(_write(tmp_path, "\n".join(rows), "jobs.jsonl"))
    assert len(jobs) == 18
    assert _told(gathered) == {Code.UNREADABLE_LINE: 1, Code.UNREADABLE_CELL: 1}
    assert _lines(gathered, Code.UNREADABLE_LINE) == [8]


def test_a_table_without_ids_gets_some(tmp_path):
    jobs = _jobs(_write(tmp_path, "submitted,duration_s,gpus\n1700000000,5,1\n1700000001,5,0\n1700000002,5,1\n"))[1]
    assert jobs["id"].to_list() == ["jobs-1", "jobs-2"]


def test_exports_that_overlap_are_counted_once(tmp_path):
    head = "id,state,submitted,started,ended,gpus\n"
    january = _write(
        tmp_path, head + "1,done,1700000000,1700000001,1700000002,1\n2,running,1700000005,1700000006,,1\n", "1.csv"
    )
    february = _write(
        tmp_path,
        head + "2,done,1700000005,1700000006,1700000009,1\n3,done,1700000007,1700000008,1700000009,1\n",
        "2.csv",
    )
    other = _write(tmp_path, head + "1,done,1600000000,1600000001,1600000002,1\n", "3.csv")
    gathered = read_sources([str(january), str(february), str(other)])
    jobs = gathered.tables.jobs.collect()
    assert jobs.select("id", "outcome").rows() == [("1", "done"), ("2", "done"), ("3", "done"), ("1", "done")]
    assert _told(gathered)[Code.DUPLICATE_ID] == 1
    assert [part.kept for part in gathered.parts] == [1, 2, 1]


def _rows(table, rows):
    heads = {
        "jobs": "submitted,duration_s,gpus",
        "requests": "timestamp,tokens_in,tokens_out",
        "use": "timestamp,pod,gpu_util,memory_used_mib",
        "capacity": "time,total,running,pending",
        "queues": "time,queue,total,running,pending",
    }
    lines = {
        "jobs": lambda n: f"{1_700_000_000 + 60 * n},{100 + n},{1 + n % 8}",
        "requests": lambda n: f"{1_700_000_000 + 60 * n},{10 + n},{20 + n}",
        "use": lambda n: f"{1_700_000_000 + 60 * (n // 4)},pod-{n % 2},{n % 100},{1000 + n}",
        "capacity": lambda n: f"{1_700_000_000 + 60 * n},64,{n % 40},{n % 7}",
        "queues": lambda n: f"{1_700_000_000 + 60 * n},a,64,{n % 40},{n % 7}",
    }
    return "\n".join([heads[table], *map(lines[table], rows)]) + "\n"


@pytest.mark.parametrize("table", ["jobs", "requests", "use", "capacity", "queues"])
def test_rows_without_ids_that_several_files_have_are_counted_once(tmp_path, table):
    files = [
        str(_write(tmp_path, _rows(table, rows), f"{name}.csv"))
        for name, rows in (("one", range(400)), ("two", range(200, 600)), ("three", range(100)))
    ]
    gathered = read_sources(files)
    assert [part.kept for part in gathered.parts] == [400, 200, 0]
    assert [found.times for found in gathered.findings if found.code is Code.DUPLICATE_ROW] == [200, 100]
    assert gathered.tables.dropped == 0
    frame = next(one for one in gathered.tables[:5] if one is not None).collect()
    alone = read_sources([str(_write(tmp_path, _rows(table, range(600)), "all.csv"))])
    whole = next(one for one in alone.tables[:5] if one is not None).collect()
    columns = [name for name in frame.columns if name not in {"id", "every_ms"}]
    assert frame.select(columns).rows() == whole.select(columns).rows()


def test_rows_that_are_alike_by_chance_are_kept(tmp_path):
    head = "timestamp,tokens_in,tokens_out\n"
    one = head + "".join(f"{1_700_000_000 + n},10,10\n" for n in range(0, 300, 3))
    two = head + "".join(f"{1_700_000_000 + n},10,10\n" for n in range(0, 300, 5))
    gathered = read_sources([str(_write(tmp_path, text, f"{name}.csv")) for name, text in (("1", one), ("2", two))])
    assert [part.kept for part in gathered.parts] == [100, 60]


def test_a_large_table_with_faults_is_put_aside(tmp_path):
    lines = [f"j{n},{1_700_000_000 + n},5,1" for n in range(120_000)]
    lines[7] = "j7,soon,5,1"
    gathered, jobs = _jobs(_write(tmp_path, "\n".join(["id,submitted,duration_s,gpus", *lines])))
    assert len(jobs) == 119_999
    assert _lines(gathered, Code.UNREADABLE_CELL) == [9]
    assert [one.name for one in tmp_path.iterdir()] == ["jobs.csv"]


# -- files that are none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.csv", b"", "is empty"),
        ("blank.csv", b"\n \n", "is empty"),
        ("junk.csv", bytes(range(256)) * 40, "is binary data"),
        ("one.csv", b"job^submitted^gpus\na^1^2\n", "has one column.*--delimiter"),
        ("torn.parquet", b"PAR1" + b"x" * 400, "is no whole Parquet file.*Copy it again"),
        ("torn.csv.gz", gzip.compress(GOOD.encode(), mtime=0)[:-20], "cut short"),
        ("torn.zst", b"\x28\xb5\x2f\xfd" + b"\x07" * 40, "torn.zst"),
        ("old.csv", GOOD.replace("\n", "\r").encode(), "carriage return alone"),
        ("torn.tar.gz", b"\x1f\x8b123", "archive"),
        ("torn.json", b'{"apiVersion": "v1", "kind": "List", "items": [{"a": 1}', "is not JSON.*cut short"),
        ("jobs.json", b'{"jobs": 5, "meta": {"slurm": {}}}', "expected a list of jobs"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_sentence(tmp_path, name, content, says):
    with pytest.raises(SourceError, match=says) as error:
        read_sources([str(_write(tmp_path, content, name))])
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_header_alone_is_an_empty_table(tmp_path):
    gathered, jobs = _jobs(_write(tmp_path, GOOD.splitlines()[0] + "\n"))
    assert len(jobs) == 0
    assert _told(gathered) == {Code.EMPTY: 1}
    with pytest.raises(SourceError, match="empty"):
        _jobs(tmp_path / "jobs.csv", strict=True)


def test_a_truncated_parquet_is_refused(tmp_path):
    frame = pl.DataFrame(
        {"id": range(5_000), "submitted": range(1_700_000_000, 1_700_005_000), "gpus": 1, "duration_s": 5}
    )
    frame.write_parquet(tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    with pytest.raises(SourceError, match="cut short"):
        read_sources([str(_write(tmp_path, content[: len(content) // 2], "half.parquet"))])


@pytest.mark.parametrize("source", ["nowhere.csv", "empty-folder"])
def test_what_is_not_there_is_said(tmp_path, source):
    (tmp_path / "empty-folder").mkdir()
    with pytest.raises(SourceError, match=r"there is no such file|is a folder without files"):
        read_sources([str(tmp_path / source)])


def test_nothing_is_written_beside_a_source(tmp_path):
    path = _write(tmp_path, GOOD + "x,soon\n")
    _jobs(path)
    assert [one.name for one in tmp_path.iterdir()] == ["jobs.csv"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.integers(0, 10**6),
            st.integers(-50, 500),
            st.integers(-1, 16),
            st.sampled_from(["", "x", "1,2"]),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_every_row_is_kept_or_counted(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    lines = [
        f"{name},{1_700_000_000 + at}{junk},{1_700_000_000 + at + 60},{1_700_000_000 + at + 60 + length},{gpus},red"
        for name, at, length, gpus, junk in rows
    ]
    gathered, jobs = _jobs(_write(folder, GOOD + "\n".join(lines) + "\n"))
    dropped = sum(found.times for found in gathered.findings if found.spec.effect == "dropped")
    assert len(jobs) + dropped == 3 + len(rows)
    assert len(jobs) == gathered.parts[0].kept
    assert jobs["id"].n_unique() == len(jobs)
    assert (jobs["ended_ms"] >= jobs["started_ms"]).all()
    assert (jobs["gpus_milli"] > 0).all()
