"""What commands refuse: in plain words, with exit code 2, and leaving nothing half-written behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import files, ran
from tidegate.cli.main import app

pytestmark = pytest.mark.usefixtures("folder")


REFUSED = [
    (("simulate", "none.yaml"), r"none.yaml: there is no such file"),
    (("compare", "none.yaml"), r"none.yaml: there is no such file"),
    (("simulate", "torn.yaml"), r"torn.yaml:\d: is not valid YAML: .*"),
    (("simulate", "empty.yaml"), r"empty.yaml: nothing to simulate: `cluster` is empty; docs/tidegate-yaml.md has .*"),
    (
        ("compare", "small.yaml", "--policies", "tide,best"),
        r"--policies: expected orders and placements .*found 'best'",
    ),
    (("compare", "small.yaml", "--policies", ""), r"--policies: expected orders and placements .*found ''"),
    (("simulate", "small.yaml", "--cycle", "soon"), r'--cycle: expected a duration such as "90s".*, found \'soon\''),
    (("simulate", "small.yaml", "--cycle", "0s"), r"--cycle: expected at least 1ms, found '0s'"),
    (
        ("simulate", "small.yaml", "--plot", "a.pdf"),
        r"a.pdf: cannot draw '.pdf'; name a file that ends in .svg or .png",
    ),
    (("simulate", "small.yaml", "--plot", "no/a.svg"), r"--plot no/a.svg: there is no folder no; make it first"),
    (("simulate", "small.yaml", "--csv", "no/a.csv"), r"--csv no/a.csv: there is no folder no; make it first"),
    (("simulate", "small.yaml", "--csv", "."), r"--csv \.: is a folder; name a file in it"),
    (("simulate", "small.yaml", "--journal", "no/a.db"), r"no/a.db: cannot be opened .*"),
    (("simulate", "small.yaml", "--journal", "small.yaml"), r"small.yaml: already exists; name another file, .*"),
    (("simulate", "small.yaml", "--resume"), r"--resume needs --journal FILE: .*"),
    (("simulate", "small.yaml", "--resume", "--journal", "a.db"), r"a.db: no such journal; run `tidegate simulate .*"),
    (("explain", "gang"), r"there is no run to explain yet; run `tidegate simulate` first, or name a journal .*"),
    (("explain", "gang", "--journal", "none.db"), r"none.db: no such journal; .*"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), REFUSED, ids=lambda value: " ".join(value) * isinstance(value, tuple)
)
def test_what_cannot_be_done_is_told_in_one_line_and_leaves_nothing_behind(folder, arguments, message):
    before = files(folder)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert re.fullmatch(message + "\n", result.stderr), result.stderr
    assert result.stdout == ""
    assert files(folder) == before


def test_a_broken_file_is_told_line_by_line(folder):
    before = files(folder)
    for command in ("simulate", "compare"):
        assert ran(command, "broken.yaml", code=2).splitlines() == [
            "broken.yaml:3: cluster.pools[0].count: expected a whole number from 1 to 100,000, found 'two'",
            "broken.yaml:4: policy.cycel: unknown key; did you mean 'cycle'?",
        ]
    assert files(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "--seed", "-5"), "Invalid value for '--seed'"),
        (("simulate", "--order", "fair"), "'fair' is not one of 'fifo', 'srtf'"),
        (("simulat",), "No such command 'simulat'. Did you mean 'simulate'?"),
        (("explain",), "Missing argument 'JOB'"),
        (("check", "--jsn", "a"), "No such option"),
    ],
)
def test_wrong_usage_is_told_with_the_usage(arguments, message):
    said = ran(*arguments, code=2)
    assert said.startswith("Usage: tidegate")
    assert message in said


def test_a_job_that_is_not_known_is_told_with_names_like_it():
    ran("simulate", "small.yaml")
    assert ran("explain", "nte-1", code=2).startswith("no job 'nte-1' in this journal; did you mean note-1, ")
    assert ran("explain", "zzz", code=2) == (
        "no job 'zzz' in this journal; it has 4 jobs, for example gang, note-0, note-1\n"
    )
    assert "did you mean train-0001" in ran("explain", "gang", "--node", "train-001", code=2)


def test_a_job_is_asked_for_at_a_time_when_it_can_be():
    ran("simulate", "small.yaml")
    assert ran("explain", "note-2", "--at", "1m", code=2) == (
        "--at 1m: note-2 was not submitted yet; name a later time\n"
    )
    over = ran("explain", "gang", "--node", "train-0000", code=2)
    assert over == "gang is over: name a time when it was not, with --at\n"


def test_policies_are_refused_before_the_first_run(monkeypatch):
    monkeypatch.setattr("tidegate.api.comparison.run_setup", lambda *_: pytest.fail("it ran"))
    ran("compare", "small.yaml", "--policies", "tide,best", code=2)


def test_a_picture_is_refused_before_the_run(monkeypatch):
    monkeypatch.setattr("tidegate.api.simulation.run_setup", lambda *_: pytest.fail("it ran"))
    ran("simulate", "small.yaml", "--plot", "week.jpg", code=2)


def test_without_numba_compiled_kernels_are_refused_and_no_journal_is_begun(folder, monkeypatch):
    monkeypatch.setattr("tidegate.api.kernels.can_compile", lambda: False)
    before = files(folder)
    said = ran("simulate", "small.yaml", "--kernels", "compiled", "--journal", "a.db", code=2)
    assert said == "compiled kernels need numba, which is not installed: pip install 'tidegate[fast]'\n"
    assert files(folder) == before


def _fill_disk(*arguments, **_):
    target = arguments[-1]
    if isinstance(target, Path):
        target.write_text("half")
    else:
        target.write("half")
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("option", "name", "writer"),
    [
        ("--csv", "work.csv", "tidegate.report.text.run.write_csv"),
        ("--plot", "week.svg", "matplotlib.figure.Figure.savefig"),
    ],
)
def test_a_full_disk_leaves_what_was_there(folder, monkeypatch, option, name, writer):
    Path(name).write_text("of last week")
    before = files(folder)
    monkeypatch.setattr(writer, _fill_disk)
    said = ran("simulate", "small.yaml", option, name, code=2)
    assert f"{name}: cannot be written (No space left on device)" in said
    assert files(folder) == before


def test_a_damaged_journal_is_told(folder):
    ran("simulate", "small.yaml", "--journal", "a.db")
    whole = Path("a.db").read_bytes()
    at = whole.rindex(b"research")  # in what was packed
    Path("bytes.db").write_bytes(whole[: at - 40] + bytes(b ^ 0x5A for b in whole[at - 40 : at]) + whole[at:])
    pages = bytearray(whole)
    pages[9_000::7] = bytes(b ^ 0x5A for b in pages[9_000::7])
    Path("pages.db").write_bytes(pages)
    for name in ("bytes.db", "pages.db"):
        assert ran("explain", "gang", "--journal", name, code=2).startswith(f"{name}: damaged, a step cannot be read (")
    assert "the journal cannot be read or written (" in ran(
        "simulate", "small.yaml", "--journal", "pages.db", "--resume", code=2
    )


def test_a_home_that_cannot_be_written_to_costs_only_explain(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["simulate", "small.yaml"], env={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert result.exit_code == 0
    assert result.stdout.startswith("Tidegate  2 nodes")
    assert result.stderr.startswith("`tidegate explain` will not know this run: ")
    assert result.stderr.endswith("cannot be written (Not a directory); use --journal\n")


def test_without_what_a_cluster_needs_nothing_is_installed(monkeypatch):
    monkeypatch.setattr("tidegate.cli.kube_options._NEEDS", ("no_such.package",))
    said = ran("install", "--dry-run", code=2)
    assert said == "a cluster needs no_such.package, which is not installed: pip install 'tidegate[kube]'\n"


_NOWHERE = """\
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("srtf", "how long work still runs, which no object of a cluster shows"),
        ("srsf", "how long work still runs, which no object of a cluster shows"),
        ("las", "how long work has run, which is not handed over from one leader to the next"),
    ],
)
@pytest.mark.parametrize("written", ["{}", "{{kind: {}}}"])
def test_an_order_that_a_cluster_has_no_facts_for_is_refused_when_it_is_loaded(order, why, written):
    Path("kubeconfig").write_text(_NOWHERE)
    Path("live.yaml").write_text(f"version: 1\npolicy:\n  order: {written.format(order)}\n")
    assert ran("run", "--kubeconfig", "kubeconfig", "--policy", "live.yaml", code=2) == (
        f"live.yaml: policy.order: expected fifo on a cluster, found {order}, which goes by {why}; "
        f"write `order: fifo`, or try {order} in the twin (tidegate simulate)\n"
    )


@pytest.mark.parametrize("command", [("simulate", "--order", "srtf"), ("compare", "--policies", "srtf")])
def test_an_order_that_queues_would_overrule_is_refused(command):
    text = Path("small.yaml").read_text()
    queues = "policy: {queues: [{name: research, gpus: 8}, {name: default, gpus: 8}], "
    Path("queues.yaml").write_text(text.replace("policy: {", queues, 1))
    assert ran(command[0], "queues.yaml", *command[1:], code=2) == (
        "order srtf: has no effect on queues, which go by priority, then time; "
        "leave it out, or name a policy without queues\n"
    )
