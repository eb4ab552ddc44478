"""A real Prometheus gives what the files it was filled with give; one that fails is met with patience."""

from __future__ import annotations

import gzip
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from prometheus_server import Family, serving
from shared import shared
from tidegate.sources.findings import Code, SourceError
from tidegate.sources.options import Format, SourceOptions
from tidegate.sources.prometheus.http_client import request, server_of
from tidegate.sources.prometheus.range_query import TimeRange
from tidegate.sources.prometheus.source import read_prometheus
from tidegate.sources.read_sources import read_sources

NOON = 1_772_452_800  # 2026-03-02 12:00 UTC


# -- the same answers as files ---------------------------------------------------------------------------------


def _genai_families(use, rates, queue):
    """The samples of the trace as DCGM and vLLM would expose them."""

    def labels(row):
        workload = {"exported_namespace": "serving", "exported_pod": row["allocation"], "pod": "dcgm-exporter-7"}
        return {"gpu": "0", "UUID": f"GPU-{row['allocation']}", "modelName": "L40S", **workload}

    busy = use.filter(pl.col("busy_milli").is_not_null()).sort("allocation", "at_ms").to_dicts()
    vram = use.filter(pl.col("vram_mib").is_not_null()).sort("allocation", "at_ms").to_dicts()
    yield Family(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        ((labels(row), row["at_ms"] / 1000, row["busy_milli"] / 1000) for row in busy),
    )
    yield Family("DCGM_FI_DEV_FB_USED", "gauge", ((labels(row), row["at_ms"] / 1000, row["vram_mib"]) for row in vram))
    per_step = rates.group_by("at_ms").agg(pl.col("count").sum()).sort("at_ms")
    grid = pl.DataFrame({"at_ms": range(use["at_ms"].min() - 57_000, use["at_ms"].max() + 1, 57_000)})
    total = grid.join(per_step, on="at_ms", how="left").with_columns(pl.col("count").fill_null(0).cum_sum())
    model = {"model_name": "sd", "pod": "vllm-0", "namespace": "serving"}
    yield Family("vllm:request_success_total", "counter", ((model, at / 1000, count) for at, count in total.rows()))
    depth = ((model, row["at_ms"] / 1000, row["pending_jobs"]) for row in queue.sort("at_ms").to_dicts())
    yield Family("vllm:num_requests_waiting", "gauge", depth)


@pytest.fixture(scope="module")
def genai(tmp_path_factory):
    """A server with the trace, and the tables of its files."""
    folder = shared("traces/genai_serving")
    files = read_sources([str(folder)]).tables
    rates = read_sources([str(folder / "qps.tar.gz")]).tables.requests.collect()
    use, queue = files.use.collect(), files.capacity.collect()
    first, last = use["at_ms"].min(), use["at_ms"].max()
    with serving(tmp_path_factory.mktemp("prometheus"), _genai_families(use, rates, queue)) as address:
        options = SourceOptions(
            start=str((first - 57_000) / 1000),
            end=str(last / 1000),
            step="57s",
            cache=str(tmp_path_factory.mktemp("cache")),
        )
        yield read_sources([address], options), use, rates, queue


def _residency(use):
    known = use.filter(pl.col("busy_milli").is_not_null())
    idle = known.filter(pl.col("busy_milli") == 0)
    return known["busy_milli"].mean(), len(idle) / len(known), idle["vram_mib"].mean(), len(known)


def test_use_is_that_of_the_files(genai):
    gathered, use, _, _ = genai
    asked = gathered.tables.use.collect()
    assert _residency(asked) == pytest.approx(_residency(use), rel=0.02)
    assert asked["allocation"].n_unique() == use["allocation"].n_unique()
    assert asked["queue"].unique().to_list() == ["serving"]
    assert {part.format for part in gathered.parts} == {Format.PROMETHEUS}


def test_requests_and_queues_are_those_of_the_files(genai):
    gathered, _, rates, queue = genai
    requests = gathered.tables.requests.collect()
    assert requests["count"].sum() == pytest.approx(rates["count"].sum(), rel=0.02)
    assert requests["service"].unique().to_list() == ["sd"]
    capacity = gathered.tables.capacity.collect()
    assert capacity["pending_jobs"].mean() == pytest.approx(queue["pending_jobs"].mean(), rel=0.02)
    assert all("over_time" in part.query for part in gathered.parts)


def _kube(seconds):
    """Ten minutes of a small cluster: a gang of two that ends, a server that stays, Kueue's and Karpenter's numbers."""
    owner = {"train": ("Job", "train"), "llm-abc": ("ReplicaSet", "llm")}
    pods = {"train-0": ("train", 0, 300), "train-1": ("train", 0, 300), "llm-abc-1": ("llm-abc", 60, 600)}
    gpu = {"resource": "nvidia_com_gpu", "unit": "integer", "container": "main"}

    def rows(make):
        for pod, (of, begin, end) in pods.items():
            for at in seconds:
                if begin <= at <= end:
                    yield from make({"namespace": "a", "pod": pod}, of, begin, end, at)

    yield Family(
        "kube_pod_container_resource_requests",
        "gauge",
        rows(lambda who, of, begin, end, at: [({**who, **gpu}, NOON + at, 4)]),
    )
    yield Family(
        "kube_pod_status_phase",
        "gauge",
        rows(lambda who, of, begin, end, at: [({**who, "phase": "Running"}, NOON + at, 1)]),
    )
    yield Family(
        "kube_pod_created", "gauge", rows(lambda who, of, begin, end, at: [(who, NOON + at, NOON + begin - 30)])
    )
    yield Family("kube_pod_start_time", "gauge", rows(lambda who, of, begin, end, at: [(who, NOON + at, NOON + begin)]))
    yield Family(
        "kube_pod_completion_time",
        "gauge",
        rows(lambda who, of, begin, end, at: [(who, NOON + at, NOON + end)] if at == end and of == "train" else []),
    )
    yield Family(
        "kube_pod_info",
        "gauge",
        rows(
            lambda who, of, begin, end, at: [
                ({**who, "created_by_kind": owner[of][0], "created_by_name": owner[of][1]}, NOON + at, 1)
            ]
        ),
    )
    node = {"node": "n1", "resource": "nvidia_com_gpu"}
    yield Family("kube_node_status_allocatable", "gauge", (({**node}, NOON + at, 16) for at in seconds))
    kind = {"type": "Initialized"}
    name = "operator_nodeclaim_status_condition_transition_seconds"
    yield Family(f"{name}_sum", "gauge", ((kind, NOON + at, 100 + (90 if at >= 300 else 0)) for at in seconds))
    yield Family(f"{name}_count", "gauge", ((kind, NOON + at, 1 + (2 if at >= 300 else 0)) for at in seconds))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    seconds = range(0, 601, 30)
    devices = {"gpu": "0", "UUID": "GPU-1", "Hostname": "n1"}
    coarse = [({**devices, "exported_pod": pod}, NOON + at, 50.0) for pod in ("x", "y") for at in seconds]
    slices = [
        ({"gpu": "1", "UUID": "GPU-2", "GPU_I_PROFILE": "3g.40gb", "pod": "z"}, NOON + at, 100.0) for at in seconds
    ]
    free = [({"gpu": "2", "UUID": "GPU-3", "pod": "dcgm-exporter-1"}, NOON + at, 0.0) for at in seconds]
    families = [*_kube(seconds), Family("DCGM_FI_DEV_GPU_UTIL", "gauge", [*coarse, *slices, *free])]
    with serving(tmp_path_factory.mktemp("cluster"), families) as address:
        yield address


def _span(**more):
    return SourceOptions(start=str(NOON), end=str(NOON + 600), step="30s", **more)


def test_pods_become_jobs_and_nodes_capacity(cluster, tmp_path):
    gathered = read_sources([cluster], _span(cache=str(tmp_path / "cache")))
    jobs = {row["id"]: row for row in gathered.tables.jobs.collect().to_dicts()}
    train, serves = jobs["a/train"], jobs["a/llm-abc-1"]
    assert (train["gpus_milli"], train["pods"], train["kind"], train["duration_ms"]) == (8_000, 2, "batch", 300_000)
    assert train["started_ms"] - train["submitted_ms"] == 30_000
    assert (serves["kind"], serves["outcome"], serves["ended_ms"]) == ("inference", "running", None)
    capacity = gathered.tables.capacity.collect()
    assert capacity.filter(pl.col("queue") == "")["total_milli"].unique().to_list() == [16_000]
    assert capacity.filter(pl.col("queue") == "a")["running_milli"].max() == 12_000
    assert gathered.tables.starts.collect()["took_ms"].to_list() == [45_000, 45_000]


def test_coarse_busy_time_slices_and_sharers(cluster, tmp_path):
    gathered = read_sources([cluster], _span(cache=str(tmp_path / "cache")))
    use = gathered.tables.use.collect()
    assert set(use["allocation"]) == {"x/GPU-1", "y/GPU-1", "z/GPU-2"}
    shared_out = use.filter(pl.col("allocation") == "x/GPU-1")
    assert (shared_out["gpus_milli"][0], shared_out["busy_milli"][0]) == (500, 500)
    assert use.filter(pl.col("allocation") == "z/GPU-2")["gpus_milli"][0] == 428
    told = {found.code: found for found in gathered.findings}
    assert told[Code.SERIES_SHARED].times == 1
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in told[Code.METRIC_MISSING].more


def _served(prefix, model_label, names, seconds):
    """An engine that is asked three times, with 100 tokens in and 20 out, every 30 s; each takes two seconds."""
    model = {model_label: "m", "namespace": "a", "pod": f"{prefix}-0"}
    for name, each in names.items():
        rows = [(model, NOON + at, each * (at // 30)) for at in seconds]
        yield Family(name, "counter" if name.endswith("_total") else "gauge", rows)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """SGLang, TGI, Kueue and Karpenter, some by the names they had."""
    seconds = range(0, 601, 30)
    sglang = {
        "sglang:num_requests_total": 3,
        "sglang:prompt_tokens_total": 300,
        "sglang:generation_tokens_total": 60,
        "sglang:e2e_request_latency_seconds_sum": 6,
        "sglang:e2e_request_latency_seconds_count": 3,
    }
    tgi = {
        "tgi_request_count": 3,
        "tgi_request_input_length_sum": 300,
        "tgi_request_generated_tokens_sum": 60,
        "tgi_request_duration_sum": 6,
        "tgi_request_duration_count": 3,
    }
    gauges = {
        "sglang:num_running_reqs": ({"model_name": "m", "pod": "sglang-0"}, 2),
        "sglang:num_queue_reqs": ({"model_name": "m", "pod": "sglang-0"}, 4),
        "tgi_batch_current_size": ({"model_id": "t", "pod": "tgi-0"}, 1),
        "tgi_queue_size": ({"model_id": "t", "pod": "tgi-0"}, 3),
        "kueue_pending_workloads": ({"cluster_queue": "cq", "status": "active"}, 5),
        "kueue_reserving_active_workloads": ({"cluster_queue": "cq"}, 2),
        "kueue_cluster_queue_resource_reservation": ({"cluster_queue": "cq", "resource": "nvidia.com/gpu"}, 6),
        "kueue_cluster_queue_nominal_quota": ({"cluster_queue": "cq", "resource": "nvidia.com/gpu"}, 8),
    }
    families = [*_served("sglang", "model_name", sglang, seconds), *_served("tgi", "model_id", tgi, seconds)]
    families += [
        Family(name, "gauge", [(of, NOON + at, value) for at in seconds]) for name, (of, value) in gauges.items()
    ]
    took = "operator_nodeclaim_status_condition_transition_seconds"
    for kind, each in (("Registered", 60), ("Initialized", 90)):
        of = {"type": kind}
        families.append(Family(f"{took}_sum", "gauge", [(of, NOON + at, each * (at >= 300)) for at in seconds]))
        families.append(Family(f"{took}_count", "gauge", [(of, NOON + at, 1 * (at >= 300)) for at in seconds]))
    with serving(tmp_path_factory.mktemp("others"), _joined(families)) as address:
        yield address


def _joined(families):
    """Families of one name are one."""
    names = {}
    for one in families:
        names.setdefault(one.name, []).append(one)
    return [Family(name, same[0].kind, [row for one in same for row in one.samples]) for name, same in names.items()]


def test_other_engines_queues_and_nodes_are_read_by_their_names_old_and_new(others, tmp_path):
    gathered = read_sources([others], _span(cache=str(tmp_path / "cache")))
    requests = gathered.tables.requests.collect()
    assert requests["count"].sum() == pytest.approx(2 * 3 * 20, rel=0.06)  # the first step grew from nothing
    assert (requests["tokens_in"] / requests["count"]).unique().to_list() == [100]
    assert (requests["tokens_out"] / requests["count"]).unique().to_list() == [20]
    assert requests["latency_ms"].unique().to_list() == [2_000]
    capacity = gathered.tables.capacity.collect()
    of = {queue: capacity.filter(pl.col("queue") == queue).row(3, named=True) for queue in ("cq", "m", "t")}
    assert (of["cq"]["running_milli"], of["cq"]["total_milli"], of["cq"]["pending_jobs"]) == (6_000, 8_000, 5)
    assert (of["m"]["running_jobs"], of["m"]["pending_jobs"]) == (2, 4)
    assert (of["t"]["running_jobs"], of["t"]["pending_jobs"]) == (1, 3)
    starts = dict(gathered.tables.starts.collect().select("stage", "took_ms").rows())
    assert starts == {"node": 60_000, "driver": 90_000}
    older = next(found for found in gathered.findings if found.code is Code.METRIC_RENAMED)
    assert "kueue_cluster_queue_resource_reservation" in older.more
    assert "tgi_request_count" in older.more


def test_a_second_run_asks_nothing_that_is_kept(cluster, tmp_path):
    first = read_sources([cluster], _span(cache=str(tmp_path)))
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept
    assert not [name for name in kept if name.endswith(".part")]
    again = read_sources([cluster], _span(cache=str(tmp_path)))
    assert again.tables.jobs.collect().equals(first.tables.jobs.collect())
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_nothing_is_left_behind_where_no_folder_is_named(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read_sources([cluster], _span())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_time_without_data_is_said(cluster):
    with pytest.raises(SourceError, match=r"has nothing in the .* hours that were asked for; say --start and --end"):
        read_sources([cluster], SourceOptions(start="1h", end=str(NOON - 86_400)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (SourceOptions(start="tomorrow"), "--start tomorrow: expected a time such as"),
        (SourceOptions(start=str(NOON), end=str(NOON - 60)), "expected a time before the end"),
        (SourceOptions(step="fast", end=str(NOON)), "--step fast"),
    ],
)
def test_a_time_that_is_none_is_refused(cluster, options, says):
    with pytest.raises(SourceError, match=says):
        read_sources([cluster], options)


# -- servers that fail -----------------------------------------------------------------------------------------

SERIES = {"metric": {"exported_pod": "p", "UUID": "g"}, "values": [[NOON, "0.5"], [NOON + 30, "0.5"]]}


class _Faulty(BaseHTTPRequestHandler):
    """Answers as Prometheus does, or fails as it is told to."""

    faults: list[str] = []  # noqa: RUF012  each test sets its own
    asked: list[str] = []  # noqa: RUF012  likewise

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length).decode()
        self.asked.append(self.path + "?" + body)
        ranged = "query_range" in self.path
        fault = self.faults.pop(0) if self.faults and ranged else ""
        data = (
            ["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
            if "__name__" in self.path
            else {"resultType": "matrix", "result": [SERIES]}
        )
        self._answer(fault, json.dumps({"status": "success", "data": data}).encode())

    do_GET = do_POST  # noqa: N815  the server's own names

    def _answer(self, fault, content):
        if fault.isdecimal():
            error = json.dumps({"status": "error", "error": "query processing would load too many samples"})
            content = error.encode() if fault == "422" else b"no"
        packed = gzip.compress(content) if fault == "half gzip" else content
        self.send_response(int(fault) if fault.isdecimal() else 200)
        self.send_header("Content-Length", str(len(packed)))
        if fault == "half gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        torn = packed[: len(packed) // 2] if fault.startswith("half") else packed
        self.wfile.write(b"<html>login</html>".ljust(len(packed)) if fault == "page" else torn)
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def faulty():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Faulty)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    _Faulty.faults, _Faulty.asked = [], []
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def _ask(address, folder, pauses, **more):
    options = _span(cache=str(folder), **more)
    return read_prometheus(address, options, server_of(address, options)._replace(pause=pauses.append))


@pytest.mark.parametrize("faults", [["503"], ["503", "503", "half"], ["half"], ["half gzip"], ["429", "500", "502"]])
def test_a_fault_that_passes_is_waited_for(faulty, tmp_path, faults):
    _Faulty.faults, pauses = list(faults), []
    parts = _ask(faulty, tmp_path, pauses)
    assert parts[0].kept == 2
    assert pauses == [0.5 * 2**number for number in range(len(faults))]


@pytest.mark.parametrize(
    ("fault", "says"), [("503", "answers 503"), ("half", "breaks off its answer"), ("half gzip", "breaks off")]
)
def test_a_fault_that_stays_is_said_and_nothing_is_lost(faulty, tmp_path, fault, says):
    _Faulty.faults, pauses = ["", *[fault] * 50], []
    with pytest.raises(SourceError, match=f"{says}.*6 times in a row.*goes on from there") as error:
        _two_pieces(faulty, tmp_path, pauses)
    assert "\n" not in str(error.value)
    kept = [path.name for path in tmp_path.iterdir()]
    assert len(kept) == 1
    assert kept[0].endswith(".json")
    _Faulty.faults, _Faulty.asked = [], []
    assert _two_pieces(faulty, tmp_path, pauses)
    asked = [line for line in _Faulty.asked if "query_range" in line]
    assert len(asked) == 1  # the first piece was kept


def _two_pieces(address, folder, pauses):
    """A time so long that it takes two pieces."""
    options = SourceOptions(start=str(NOON), end=str(NOON + 10_000 * 30), step="30s", cache=str(folder))
    door = server_of(address, options)._replace(pause=pauses.append)
    return read_prometheus(address, options, door)


def test_a_server_that_will_not_answer_so_much_is_asked_for_less(faulty, tmp_path):
    _Faulty.faults = ["422"]
    assert _ask(faulty, tmp_path, [])
    assert len([line for line in _Faulty.asked if "query_range" in line]) > 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [("401", "say --token"), ("404", "is it the address of a Prometheus"), ("page", "answers with a web page")],
)
def test_a_refusal_is_no_fault_and_not_tried_again(faulty, tmp_path, fault, says):
    _Faulty.faults, pauses = [fault], []
    with pytest.raises(SourceError, match=says):
        _ask(faulty, tmp_path, pauses)
    assert pauses == []


def test_who_we_are_is_told_and_never_shown(faulty, tmp_path, monkeypatch):
    door = server_of("http://me:secret@host:9090/prom/", SourceOptions())
    assert door.name == "http://host:9090/prom"
    assert door.headers["Authorization"].startswith("Basic ")
    monkeypatch.setenv("PROMETHEUS_TOKEN", "abc")
    assert server_of(faulty, SourceOptions()).headers["Authorization"] == "Bearer abc"
    assert server_of(faulty, SourceOptions(token="def")).headers["Authorization"] == "Bearer def"


def test_nobody_there_is_said(tmp_path):
    pauses = []
    with pytest.raises(SourceError, match=r"cannot be reached .*6 times in a row"):
        _ask("http://127.0.0.1:9", tmp_path, pauses)
    assert len(pauses) == 5


def test_pieces_are_whole_and_their_ends_do_not_depend_on_the_start():
    whole = TimeRange(7_000, 100_000_000, 1_000)
    pieces = list(whole.pieces(10_000))
    assert pieces[0].start_ms == 7_000
    assert pieces[-1].end_ms == 100_000_000
    assert all(left.end_ms + 1_000 == right.start_ms for left, right in pairwise(pieces))
    assert all((piece.end_ms - piece.start_ms) // 1_000 < 10_000 for piece in pieces)
    later = list(TimeRange(57_000, 100_000_000, 1_000).pieces(10_000))
    assert later[1:] == pieces[1:]


def test_a_damaged_piece_is_asked_for_again(faulty, tmp_path):
    _ask(faulty, tmp_path, [])
    kept: Path = next(tmp_path.iterdir())
    kept.write_bytes(kept.read_bytes()[:20])
    assert _ask(faulty, tmp_path, [])[0].kept == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("who", [{"token": "s3cret"}, {"user": "u", "password": "p"}], ids=["token", "password"])
def test_credentials_do_not_follow_a_redirect_to_another_host(status, who):
    got = []

    class Other(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.headers.get("Authorization"))
            self.send_error(404)

        def do_GET(self):
            self.do_POST()

        def log_message(self, *_):
            pass

    with _listening(Other, "127.0.0.2") as other:

        class Redirecting(Other):
            def do_POST(self):
                self.send_response(status)
                self.send_header("Location", f"http://u:p@127.0.0.2:{other.server_port}/x?y=1")
                self.send_header("Content-Length", "0")
                self.end_headers()

        with _listening(Redirecting, "127.0.0.1") as first:
            door = server_of(f"http://127.0.0.1:{first.server_port}", SourceOptions(**who))
            with pytest.raises(SourceError, match=f"answers {status}: it sends on to http://127.0.0.2:.* not followed"):
                request(door, "/api/v1/query", {"query": "up"})
    assert got == []


@contextmanager
def _listening(handler, host):
    with ThreadingHTTPServer((host, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
