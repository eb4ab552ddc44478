"""Any bytes give plain data with its places, or one kind of error that says what and where."""

from __future__ import annotations

import json
import os
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import tidefiles
from tidegate.sources import yaml_file
from tidegate.sources.config_file import ConfigFileError, load_setup, review_file
from tidegate.sources.yaml_data import MOST_DEPTH, MOST_VALUES, FilePosition, FileReadError
from tidegate.sources.yaml_file import MOST_BYTES, read_bytes, read_file


def refusal(content):
    with pytest.raises(FileReadError) as caught:
        read_bytes(content)
    return caught.value.reason, tuple(caught.value.place) if caught.value.place else None


def outcome(content):
    """The place of what was read, or the reason why it was not."""
    try:
        return read_bytes(content).place(("a", 0))
    except FileReadError as error:
        return error.reason


REFUSED = [
    (b"a: b: c", "is not valid YAML: mapping values are not allowed in this context", (1, 5)),
    (b"a:\n\tb: 1\n", "is indented with a tab; YAML wants spaces", (2, 1)),
    (b"a:\n  - b\n c",
     "is not valid YAML: did not find expected key, while parsing a block mapping that begins on line 1", (3, 2)),
    (b"a: 'x", "is not valid YAML: found unexpected end of stream", (1, 6)),
    (b"a: @x", "is not valid YAML: found character that cannot start any token", (1, 4)),
    (b"\xff\xfea\0", "is not UTF-8 text but UTF-16; save it as UTF-8", None),
    (b"a: 1\nb\0c", "is binary: expected text, found a NUL byte", (2, 2)),
    (b"a: \xc3\xa9\xff", "is not UTF-8 text: found the byte 0xff", (1, 5)),
    (b"a: 1\nb: \x07", "has a character that YAML does not allow: 0x07", (2, 4)),
    (b"a: 1\nb: 2\na: 3", "has the key 'a' twice in one mapping, first on line 1", (3, 1)),
    (b'{"a": 1, "a": 2}', "has the key 'a' twice in one mapping, first on line 1", (1, 10)),
    (b"a: *x", "uses *x, which is not defined before", (1, 4)),
    (b"a: &x [1, *x]", "uses *x inside of &x: that has no end", (1, 11)),
    (b"a: &x {b: *x}", "uses *x inside of &x: that has no end", (1, 11)),
    (b"1: 2", "has a key that is not text: 1; quote it", (1, 1)),
    (b"true: 2", "has a key that is not text: true; quote it", (1, 1)),
    (b"~: 2", "has a key that is not text: nothing; quote it", (1, 1)),
    (b"? [a]\n: b", "has a key that is not text but a list, a mapping or an alias", (1, 3)),
    (b"a: &x b\n*x : c", "has a key that is not text but a list, a mapping or an alias", (2, 1)),
    (b"a: !!binary aGk=", "has the tag 'tag:yaml.org,2002:binary'; tags are not supported", (1, 4)),
    (b"a: !!python/name:os.system", "has the tag 'tag:yaml.org,2002:python/name:os.system'; tags are not supported",
     (1, 4)),
    (b"a: 1\n---\nb: 2\n", "has several documents; expected one", (2, 1)),
    (b"<<: 5", "merges ('<<') something that is not a mapping", (1, 1)),
    (b"[" * 65, "nests too deep: expected at most 64 levels", (1, 65)),
    (b"[" * 1_000_000, "nests too deep: expected at most 64 levels", (1, 65)),
    (b"- " * 1_000_000, "nests too deep: expected at most 64 levels", (1, 129)),
    (b"a" * (MOST_BYTES + 1), "is too large: expected at most 16,777,216 bytes, found 16,777,217", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "reason", "place"), [pytest.param(*row, id=f"{n}") for n, row in enumerate(REFUSED)]
)
def test_what_is_refused(content, reason, place):
    assert refusal(content) == (reason, place)


def test_scalars_are_those_of_yaml_1_2():
    text = b"""
    nothing: [~, null, ]
    booleans: [true, False]
    numbers: [0, -7, +5, 1.5, -.5, 1., 1e3, 2.5E-3]
    words: [no, on, 2024-01-01, 12:30:00, 1_000, 010, 0x1f, .inf, .nan, 1e999, ., -., 1.2.3, 64Gi]
    quoted: ["1", 'true', "~"]
    long: [1111111111111111111111111111111]
    """
    data = read_bytes(text).data
    assert data["nothing"] == [None, None]
    assert data["booleans"] == [True, False]
    assert data["numbers"] == [0, -7, 5, 1.5, -0.5, 1.0, 1000.0, 0.0025]
    assert data["quoted"] == ["1", "true", "~"]
    assert " ".join(data["words"]) == "no on 2024-01-01 12:30:00 1_000 010 0x1f .inf .nan 1e999 . -. 1.2.3 64Gi"
    assert data["long"] == ["1" * 31]


def test_files_that_say_nothing():
    assert [read_bytes(content).data for content in (b"", b"# only\n", b"---\n", b"\xef\xbb\xbf")] == [None] * 4


def test_anchors_and_merges_share_values():
    text = b"a: &a {x: 1, y: [2]}\nb: *a\nc: {<<: *a, x: 3}\nd: {<<: [{z: 1}, *a]}\n"
    plain = read_bytes(text)
    assert plain.data["b"] is plain.data["a"]
    assert plain.data["c"] == {"x": 3, "y": [2]}
    assert plain.data["d"] == {"z": 1, "x": 1, "y": [2]}
    assert plain.place(("c", "x")) == (3, 13)
    assert plain.place(("c", "y", 0)) == (1, 18)


def test_places_are_those_of_keys_and_items_and_else_of_what_is_around():
    plain = read_bytes(b"# first\na:\n  - b: 1\n  -\n    c: [1,\n      2]\n")
    paths = [(), ("a",), ("a", 0), ("a", 0, "b"), ("a", 1, "c", 1), ("a", 1, "d"), ("a", 7), ("x", 3), ("a", "b")]
    expected = [(2, 1), (2, 1), (3, 5), (3, 5), (6, 7), (5, 5), (2, 1), (2, 1), (2, 1)]
    assert [plain.place(path) for path in paths] == expected
    assert read_bytes(b"").place(("a",)) == FilePosition(1, 1)


def test_aliases_count_as_if_they_were_written_out():
    bomb = b"a0: &a0 [x]\n" + b"".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n".encode() for n in range(1, 30)
    )
    reason, place = refusal(bomb)
    assert reason == f"has too many values: expected at most {MOST_VALUES:,}, aliases written out"
    assert place[0] == 7
    merges = b"a0: &a0 {x: 1}\n" + b"".join(
        f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}, <<: *a{n - 1}}}\n".encode() for n in range(1, 30)
    )
    assert refusal(merges)[0] == reason


def test_depth_counts_through_aliases():
    half = MOST_DEPTH // 2
    nested = "[" * half + "]" * half
    fits = f"- &a {nested}\n- {'[' * (half - 1)}*a{']' * (half - 1)}\n"
    assert read_bytes(fits.encode()).data
    assert refusal(fits.replace("*a", "[*a]").encode())[0] == "nests too deep: expected at most 64 levels"


@pytest.mark.parametrize("unit", [b"- {a: 1}\n", b"-\n", b"a ", b"# x\n", b"'", b":"])
def test_garbage_ends_soon(unit):
    content = (unit * (MOST_BYTES // len(unit) + 1))[:MOST_BYTES]
    start = time.process_time()
    outcome(content)
    assert time.process_time() - start < 4  # about half a second; the rest is for slow machines


def test_files_that_cannot_be_read(tmp_path):
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(50_000_000)
    paths = [tmp_path / "none.yaml", tmp_path, large, tmp_path / "a\0b", tmp_path / ("x" * 5000)]
    reasons = []
    for path in paths:
        with pytest.raises(FileReadError) as caught:
            read_file(path)
        reasons.append(caught.value.reason)
    assert reasons == [
        "there is no such file",
        "is a directory; expected a file",
        "is too large: expected at most 16,777,216 bytes, found 50,000,000",
        "cannot be read: embedded null byte",
        "cannot be read: File name too long",
    ]


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(content):
    assert outcome(content)


TOKENS = st.sampled_from(
    ["a", "b", ":", ": ", "- ", "\n", "  ", "\t", "[", "]", "{", "}", ",", "&a ", "*a", "<<: ", "? ", "|\n", ">", "'",
     '"', "!", "!!str ", "%", "---\n", "...\n", "#", "\\", "\\ud800", "\\UFFFFFFFF", "0", "1.5", "~", "\r", "é", "\x85",
     "\u2028"]
)  # fmt: skip


@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
@given(tokens=st.lists(TOKENS, max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_tokens_are_read_or_refused_by_both_parsers(loader, tokens):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_file, "_LOADER", loader)
        assert outcome("".join(tokens).encode())


words = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" "), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(words.filter(lambda key: key != "<<"), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(json_values, st.sampled_from([None, 1, "\t"]))
@settings(max_examples=150, deadline=None)
def test_json_is_read_as_json(data, indent):
    assert read_bytes(json.dumps(data, ensure_ascii=False, indent=indent).encode()).data == data


def test_a_file_is_loaded_into_specs(tmp_path):
    path = tmp_path / "tidegate.yaml"
    path.write_text(tidefiles.FULL)
    setup = load_setup(path)
    assert (len(setup.nodes), setup.policy.name, len(setup.work), setup.twin.seed) == (8, "fair", 5, 1)


def test_problems_name_file_and_line_in_the_order_of_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tidegate.yaml"
    path.write_text(tidefiles.FULL.replace("gpus: 8\n", "gpus: eight\n", 1).replace("id: pretrain", "id: a b"))
    with pytest.raises(ConfigFileError) as caught:
        load_setup(type(path)("tidegate.yaml"))
    first, second = str(caught.value).split("\n")
    assert first == "tidegate.yaml:8: cluster.pools[0].shape.gpus: expected a whole number from 0 to 16, found 'eight'"
    assert second.startswith("tidegate.yaml:34: work[0].id: expected an id")


def test_an_unreadable_file_is_a_problem_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("a: [")
    (tmp_path / "empty.yaml").write_text("")
    path = type(tmp_path)
    assert review_file(path("x.yaml")).lines() == ["x.yaml:2: is not valid YAML: did not find expected node content"]
    assert review_file(path("none.yaml")).lines() == ["none.yaml: there is no such file"]
    assert review_file(path("empty.yaml")).lines() == [
        "empty.yaml:1: expected a mapping, found nothing; give it a value or leave the key out"
    ]


def test_odd_names_of_files_are_shown_harmlessly(tmp_path):
    path = os.fsdecode(bytes(tmp_path) + b"/\x1b[31m\xff.yaml")
    assert review_file(type(tmp_path)(path)).file.endswith("/\\x1b[31m\\udcff.yaml")
