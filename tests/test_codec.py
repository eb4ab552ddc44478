"""The file format: what is accepted, what is said about everything else, and what it becomes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

import tidefiles
from tidefiles import job, pool, texts
from tidegate.config.codec import decode
from tidegate.config.quantities import Amount, Cpu, Duration, GpuAmount, Memory, Portion, PositiveDuration
from tidegate.config.schema import ConfigDocument
from tidegate.config.schema_work import PodsEntry
from tidegate.config.validate import read_document
from tidegate.model.problem import MOST_LISTED, Problem, Report, found_text, path_text
from tidegate.model.struct import encode
from tidegate.model.units import UnitError, parse_cpu_milli, parse_duration_ms, parse_memory_mib
from tidegate.model.work import PodSet

NAME = "a name of up to 63 letters, digits, dots, dashes and underscores"
ID = "an id of up to 253 letters, digits, dots, dashes, slashes and underscores"
GPUS = "a whole number of GPUs from 0 to 62, or a fraction from 0.001 to 1"
SPAN = 'a duration longer than zero such as "90s", "15m", "1h30m" or "2d"'
DURATION = 'a duration such as "90s", "15m", "1h30m" or "2d"'
MEMORY = 'an amount of memory such as "64Gi"'


ONE_ERROR = [
    (None, "expected a mapping, found nothing; give it a value or leave the key out"),
    ([], "expected a mapping, found an empty list"),
    ("hello", "expected a mapping, found 'hello'"),
    ({1: 2}, "expected keys that are text, found the key 1; quote it"),
    ({"version": 2}, "version: expected 1, found 2"),
    ({"version": True}, "version: expected 1, found true"),
    ({"version": "1"}, "version: expected 1, found '1'; write it without quotes"),
    ({"clustr": {}}, "clustr: unknown key; did you mean 'cluster'?"),
    ({"zzz": {}}, "zzz: unknown key; known here: version, cluster, policy, twin, work"),
    ({"a.b c": {}}, "['a.b c']: unknown key; known here: version, cluster, policy, twin, work"),
    ({"cluster": None}, "cluster: expected a mapping, found nothing; give it a value or leave the key out"),
    (
        {"cluster": {"pools": {"name": "a"}}},
        ("cluster.pools: expected a list, found a mapping with 1 key; begin each item with '- '"),
    ),
    ({"cluster": {"pools": [{"count": 1}]}}, "cluster.pools[0].name: required key is missing"),
    ({"cluster": {"pools": [{"name": "a"}]}}, "cluster.pools[0].count: required key is missing"),
    (pool(name=""), f"cluster.pools[0].name: expected {NAME}, found ''"),
    (pool(name="a\n"), f"cluster.pools[0].name: expected {NAME}, found 'a\\n'"),
    (pool(name="a" * 64), f"cluster.pools[0].name: expected {NAME}, found '{'a' * 39}…'"),
    (pool(name=7), f"cluster.pools[0].name: expected {NAME}, found 7; write it in quotes"),
    (pool(count=-1), "cluster.pools[0].count: expected a whole number from 1 to 100,000, found -1"),
    (pool(count=100_001), "cluster.pools[0].count: expected a whole number from 1 to 100,000, found 100001"),
    (
        pool(count=10**40),
        ("cluster.pools[0].count: expected a whole number from 1 to 100,000, found a number of more than 38 digits"),
    ),
    (pool(count=1.5), "cluster.pools[0].count: expected a whole number from 1 to 100,000, found 1.5"),
    (pool(count=True), "cluster.pools[0].count: expected a whole number from 1 to 100,000, found true"),
    (
        pool(count="8"),
        ("cluster.pools[0].count: expected a whole number from 1 to 100,000, found '8'; write it without quotes"),
    ),
    (pool(shape={"gpus": "eight"}), "cluster.pools[0].shape.gpus: expected a whole number from 0 to 16, found 'eight'"),
    (pool(shape={"memory": "64 gigs"}), f"cluster.pools[0].shape.memory: expected {MEMORY}, found '64 gigs'"),
    (
        pool(shape={"memory": "64GB"}),
        (f"cluster.pools[0].shape.memory: expected {MEMORY}, found '64GB'; did you mean '64Gi'?"),
    ),
    (
        pool(shape={"memory": "64m"}),
        (f"cluster.pools[0].shape.memory: expected {MEMORY}, found '64m'; did you mean '64Mi'?"),
    ),
    (
        pool(shape={"memory": 64}),
        (f"cluster.pools[0].shape.memory: expected {MEMORY}, found 64; a bare number counts bytes"),
    ),
    (pool(shape={"memory": -1}), f"cluster.pools[0].shape.memory: expected {MEMORY}, found -1"),
    (pool(shape={"memory": "9999Pi"}), "cluster.pools[0].shape.memory: expected at most 1024Ti, found '9999Pi'"),
    (pool(shape={"memory": [1]}), f"cluster.pools[0].shape.memory: expected {MEMORY}, found a list with 1 item"),
    (
        pool(shape={"cpu": "many"}),
        ("cluster.pools[0].shape.cpu: expected an amount of CPU such as 8 or \"500m\", found 'many'"),
    ),
    (
        pool(shape={"nvlink_group": 4, "gpus": 2}),
        ("cluster.pools[0].shape.nvlink_group: expected at most the node's 2 GPUs, found 4"),
    ),
    (
        pool(shape={"cpu": 1, "reserved": {"cpu": 2}}),
        ("cluster.pools[0].shape.reserved.cpu: expected at most the node's 1, found 2"),
    ),
    (
        pool(shape={"other": {"cpu": 1}}),
        (
            "cluster.pools[0].shape.other.cpu: expected the key to be a resource other than "
            "cpu, memory, pods and GPUs, which have keys of their own, found 'cpu'"
        ),
    ),
    (
        pool(shape={"other": {"x": -1}}),
        ("cluster.pools[0].shape.other.x: expected a whole number from 0 to 1,000,000,000, found -1"),
    ),
    (pool(labels={"zone": 1}), "cluster.pools[0].labels.zone: expected text, found 1; write it in quotes"),
    (
        pool(labels={"zone": "a" * 254}),
        (f"cluster.pools[0].labels.zone: expected text of at most 253 characters, found '{'a' * 39}…'"),
    ),
    (pool(labels={2: "a"}), "cluster.pools[0].labels: expected keys that are text, found the key 2; quote it"),
    (
        pool(labels={"kubernetes.io/hostname": "a"}),
        ("cluster.pools[0].labels['kubernetes.io/hostname']: Tidegate sets this label itself; leave it out"),
    ),
    (
        pool(taints=[{"key": "a", "effect": "noschedule"}]),
        (
            "cluster.pools[0].taints[0].effect: expected one of "
            "NoSchedule, PreferNoSchedule, NoExecute, found 'noschedule'; did you mean 'NoSchedule'?"
        ),
    ),
    (
        {"cluster": {"pools": [{"name": "a", "count": 1}, {"name": "a", "count": 1}]}},
        "cluster.pools[1].name: expected a name of its own, found 'a', which cluster.pools[0] has too",
    ),
    (
        {"cluster": {"pools": [{"name": f"p{n}", "count": 100_000} for n in range(3)]}},
        "cluster.pools: expected at most 200,000 nodes in all, found 300,000",
    ),
    ({"policy": {"placment": "tide"}}, "policy.placment: unknown key; did you mean 'placement'?"),
    (
        pool(shape={"driver": "550.54"}),
        (
            "cluster.pools[0].shape.driver: expected no such key, as nothing acts on it, found '550.54'; "
            "write it among the pool's labels, and in the selector of pods that need it"
        ),
    ),
    (
        pool(shape={"runtime": "containerd 1.7"}),
        (
            "cluster.pools[0].shape.runtime: expected no such key, as nothing acts on it, found 'containerd 1.7'; "
            "write it among the pool's labels, and in the selector of pods that need it"
        ),
    ),
    (
        job(deadline="2d"),
        (
            "work[0].deadline: expected no such key, as nothing acts on it, found '2d'; "
            "leave it out; priority says what goes first"
        ),
    ),
    (
        job(runtime="1h", fails_every="1m"),
        (
            "work[0].fails_every: expected at most 7, or it may never end, found 60 failures on average in the 1h that "
            "it must run without one; write a shorter checkpoint, or a longer fails_every"
        ),
    ),
    (job(estimate=0), f"work[0].estimate: expected {SPAN}, found 0"),
    (
        {"policy": {"order": {"kind": "srtf", "without_estimate": "first"}}},
        "policy.order.without_estimate: expected one of last, refuse, found 'first'",
    ),
    (
        {"policy": {"order": "fiffo"}},
        ("policy.order: expected one of fifo, srtf, srsf, las or a mapping, found 'fiffo'; did you mean 'fifo'?"),
    ),
    ({"policy": {"order": 5}}, "policy.order: expected one of fifo, srtf, srsf, las or a mapping, found 5"),
    (
        {"policy": {"order": {"kind": "las", "limits": [7, 5]}}},
        ("policy.order.limits: expected limits that rise, found 7, 5"),
    ),
    (
        {"policy": {"order": {"limits": []}}},
        ("policy.order.limits: expected a list of 1 to 16 items, found an empty list"),
    ),
    (
        {"policy": {"order": {"limits": [1, "x"]}}},
        ("policy.order.limits[1]: expected a whole number from 1 to 1,000,000,000,000, found 'x'"),
    ),
    ({"policy": {"cycle": 0}}, f"policy.cycle: expected {SPAN}, found 0"),
    ({"policy": {"waits": "yes"}}, "policy.waits: expected true or false, found 'yes'; write true"),
    ({"policy": {"waits": "false"}}, "policy.waits: expected true or false, found 'false'; write it without quotes"),
    ({"policy": {"name": ""}}, "policy.name: expected text, found ''"),
    ({"twin": {"start": "10 minutes"}}, f"twin.start: expected {DURATION}, found '10 minutes'; did you mean '10m'?"),
    ({"twin": {"start": "1h 30m"}}, f"twin.start: expected {DURATION}, found '1h 30m'; did you mean '1h30m'?"),
    ({"twin": {"start": "5 months"}}, f"twin.start: expected {DURATION}, found '5 months'"),
    ({"twin": {"start": "99999999d"}}, "twin.start: expected at most 36500d, found '99999999d'"),
    ({"twin": {"seed": -3}}, "twin.seed: expected a whole number from 0 to 9,007,199,254,740,992, found -3"),
    ({"work": [{"id": "j"}]}, "work[0].runtime: required key is missing"),
    (job(id="a b"), f"work[0].id: expected {ID}, found 'a b'"),
    (
        job(kind="traning"),
        (
            "work[0].kind: expected one of batch, training, interactive, inference, found 'traning'; "
            "did you mean 'training'?"
        ),
    ),
    (job(pods=3), "work[0].pods: expected a mapping or a list of 1 to 100 items, found 3"),
    (job(pods=[]), "work[0].pods: expected a list of 1 to 100 items, found an empty list"),
    (job(pods={"gpus": 1.5}), f"work[0].pods.gpus: expected {GPUS}, found 1.5"),
    (job(pods={"gpus": "8"}), f"work[0].pods.gpus: expected {GPUS}, found '8'"),
    (job(pods=[{"gpus": 63}]), f"work[0].pods[0].gpus: expected {GPUS}, found 63"),
    (job(pods={"gpu_memory": "1Gi"}), "work[0].pods.gpu_memory: expected gpus too, found none"),
    (
        job(pods=[{}, {}]),
        ("work[0].pods[1].name: expected a name of its own, found 'main', which work[0].pods[0] has too"),
    ),
    (
        job(pods=[{"name": "a", "count": 99_999}, {"count": 2}]),
        ("work[0].pods: expected at most 100,000 pods in all, found 100,001"),
    ),
    (
        job(pods={"tolerations": [{"operator": "Exist"}]}),
        ("work[0].pods.tolerations[0].operator: expected one of Equal, Exists, found 'Exist'; did you mean 'Exists'?"),
    ),
    (job(use={"busy": 80}), "work[0].use.busy: expected a number from 0 to 1, found 80"),
    (job(use={"busy": float("nan")}), "work[0].use.busy: expected a number from 0 to 1, found nan"),
    (
        job(copies=1_000_000, every="10d"),
        ("work[0].every: expected everything within 50903d7h of the start, found the last copy after 9999990d"),
    ),
    (job(id="i" * 250, copies=1000), "work[0].id: expected at most 253 characters with a copy's number, found more"),
    (
        {"work": [{"id": "x", "runtime": 1, "copies": 3}, {"id": "x-2", "runtime": 1}, {"id": "x-3", "runtime": 1}]},
        "work[1].id: expected an id of its own, found 'x-2', which a copy of work[0] has too",
    ),
    (
        {"work": [{"id": "x", "runtime": 1, "copies": 3}, {"id": "x", "runtime": 1}, {"id": "x", "runtime": 1}]},
        "work[2].id: expected an id of its own, found 'x', which work[1] has too",
    ),
    (
        {"work": [{"id": f"x{n}", "runtime": 1, "copies": 600_000} for n in range(2)]},
        "work: expected at most 1,000,000 workloads in all, copies included, found 1,200,000",
    ),
]


@pytest.mark.parametrize(("data", "message"), ONE_ERROR)
def test_one_error_is_told_with_its_path(data, message):
    document, report = read_document(data)
    assert document is None
    assert [problem.text() for problem in report.problems] == [message]


def test_all_errors_are_told_at_once_also_clashes_between_sound_entries():
    data = {
        "cluster": {"pools": [{"name": "a", "count": 1}, {"name": "b", "count": 0}, {"name": "a", "count": 1}]},
        "policy": {"placment": "tide"},
        "work": [{"id": "x", "runtime": "soon"}, {"id": "y", "runtime": 1}, {"id": "y", "runtime": 1}],
    }
    assert texts(data) == [
        "cluster.pools[1].count: expected a whole number from 1 to 100,000, found 0",
        "policy.placment: unknown key; did you mean 'placement'?",
        f"work[0].runtime: expected {SPAN}, found 'soon'",
        "cluster.pools[2].name: expected a name of its own, found 'a', which cluster.pools[0] has too",
        "work[2].id: expected an id of its own, found 'y', which work[1] has too",
    ]


def test_many_errors_are_counted():
    _, report = read_document({"work": [{"id": f"j{n}", "runtime": "soon"} for n in range(33)]})
    assert (len(report.problems), report.more, report.errors) == (MOST_LISTED, 13, 33)


@given(tidefiles.plain)
@settings(max_examples=150, deadline=None)
def test_any_data_is_a_document_or_has_problems(data):
    document, report = read_document(data)
    assert (document is None) == (report.errors > 0)
    assert all(problem.text() for problem in report.problems)


@given(tidefiles.damaged())
@settings(max_examples=300, deadline=None)
def test_every_error_that_msgspec_finds_is_explained(data):
    report = Report()
    document = decode(data, ConfigDocument, report)
    assert (document is None) == (len(report) > 0)
    assert not any("not usable" in problem.found for problem in report.problems)


def test_text_that_is_no_unicode_is_refused_not_raised():
    for data in ({"policy": {"order": "\ud800"}}, {"\ud800": 1}, job(id="\ud800"), job(queue="\ud800")):
        _, report = read_document(data)
        for problem in report.problems:
            problem.text().encode()


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Cpu, "500m", 500),
        (Cpu, 0.1, 100),
        (Cpu, 8, 8000),
        (Memory, "64Gi", 65_536),
        (Memory, 1 << 30, 1024),
        (Memory, 0, 0),
        (Memory, "1k", 1),
        (Duration, 0.1, 100),
        (Duration, "1h30m", 5_400_000),
        (Duration, "90", 90_000),
        (PositiveDuration, "1ms", 1),
        (Portion, 0.8, 800),
        (Portion, 1, 1000),
        (GpuAmount, 0.25, 250),
        (GpuAmount, 62, 62_000),
    ],
)
def test_amounts_are_read(kind, written, value):
    assert kind.read(written) == value


@pytest.mark.parametrize("kind", [Cpu, Memory, Duration, PositiveDuration, Portion, GpuAmount])
@pytest.mark.parametrize(
    "written",
    [
        None,
        True,
        -1,
        -0.5,
        float("nan"),
        float("inf"),
        pytest.param(10**5000, id="huge"),
        "",
        "x",
        "1" * 5000,
        "-1",
        "١٢",
        [],
        {},
    ],
)
def test_amounts_refuse_what_is_none(kind, written):
    with pytest.raises(UnitError):
        kind.read(written)
    assert isinstance(kind.hint(written), str)


@pytest.mark.parametrize("kind", [Cpu, Memory, Duration, PositiveDuration])
def test_amounts_read_back_what_they_say(kind):
    for value in (1, 500, 1000, 64_000, kind.largest):
        assert kind.read(kind(value).text()) == value


@pytest.mark.parametrize("parse", [parse_cpu_milli, parse_memory_mib, parse_duration_ms])
@pytest.mark.parametrize("written", [-1, -1.5, float("nan"), float("-inf"), 1e300, 10**40, "9" * 65, "-1", "1s1", ""])
def test_units_refuse_what_is_no_amount_with_one_error(parse, written):
    with pytest.raises(UnitError):
        parse(written)


def test_amounts_are_not_specs():
    with pytest.raises(TypeError):
        encode(Amount(5))


def test_what_was_found_is_short_and_harmless():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    found = [found_text(value) for value in (deep, 10**5000, "\x1b[31m", {"a": 1, "b": 2}, b"x", 1.5)]
    assert found == [
        "a list with 1 item",
        "a number of more than 38 digits",
        "'\\x1b[31m'",
        "a mapping with 2 keys",
        "a value of type bytes",
        "1.5",
    ]
    assert path_text(("a", 3, "b-c", "x\x1b", "d")) == "a[3].b-c['x\\x1b'].d"


def test_a_problem_is_a_value():
    problem = Problem(path=("a", 1), expected="text", found="5", hint="quote it")
    assert msgspec.json.decode(msgspec.json.encode(problem), type=Problem) == problem


def test_entries_have_the_defaults_of_the_specs():
    assert PodsEntry().name == PodSet().name
    assert PodsEntry().count == PodSet().count
