"""Parts of a live run that need no cluster: who leads, what time it is, where journals go, what is answered."""

from __future__ import annotations

import gc
import io
import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.journal.store import JournalFile
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.live.clock import SteadyClock
from tidegate.live.endpoints import Endpoints, ListenAddressError, Probes, read_address
from tidegate.live.journal_rotation import open_record
from tidegate.live.lease import Candidate, LeaseClaim, LeaseObject, LeaseSpec, LeaseTimes
from tidegate.live.logs import LogForm, open_log
from tidegate.live.memory_tuning import Collector

TIMES = LeaseTimes(lease_s=15, renew_s=10, retry_s=2)


class Board:
    """A Lease that candidates read and write, as an API server would have it."""

    def __init__(self):
        self.lease: LeaseObject | None = None
        self.version = 0

    def write(self, claim: LeaseClaim) -> LeaseObject | None:
        """The Lease as written, or None: somebody else was faster."""
        if claim.version != (self.lease.metadata.resource_version if self.lease else ""):
            return None
        self.version += 1
        self.lease = LeaseObject(KubeObjectMeta(name="l", resource_version=str(self.version)), claim.spec)
        return self.lease

    def turn(self, candidate: Candidate, at_s: float, stamp: str = "") -> bool:
        """One try of a candidate."""
        candidate.see(self.lease, at_s)
        claim = candidate.claim(at_s, stamp)
        written = self.write(claim) if claim else None
        if written is not None:
            candidate.won(written, at_s, at_s)
        return candidate.leads(at_s)


def test_the_first_to_come_leads_and_others_wait_until_it_has_not_renewed_for_long():
    board, a, b = Board(), Candidate("a", TIMES), Candidate("b", TIMES)
    assert board.turn(a, 0)
    assert not board.turn(b, 1)
    assert not board.turn(b, 15.9)  # seen to change at 1
    assert board.turn(b, 16.1)
    assert board.lease.spec.lease_transitions == 1
    assert not a.leads(16.1)  # it has known since 10


def test_who_renews_leads_on():
    board, a, b = Board(), Candidate("a", TIMES), Candidate("b", TIMES)
    for at_s in range(0, 60, 2):
        assert board.turn(a, at_s, f"t{at_s}")
        assert not board.turn(b, at_s + 1)
    assert board.lease.spec.acquire_time == "t0"


def test_nobody_may_claim_a_lease_that_another_still_holds_by_fractions_of_a_second():
    times = LeaseTimes(15.4, 15.2, 2)
    a, b = Candidate("a", times), Candidate("b", times)
    claim = a.claim(0.0, "t0")
    assert claim is not None
    lease = LeaseObject(KubeObjectMeta(name="l", uid="u", resource_version="1"), claim.spec)
    a.won(lease, 0.0, 0.0)
    b.see(lease, 0.0)
    assert a.leads(15.1)
    assert b.claim(15.1, "t1") is None


def test_a_lease_that_was_given_back_is_taken_at_once():
    board, a, b = Board(), Candidate("a", TIMES), Candidate("b", TIMES)
    assert board.turn(a, 0)
    assert not board.turn(b, 1)
    assert board.write(a.release("t")) is not None
    assert board.turn(b, 1.1)


def test_the_times_that_others_wrote_do_not_matter():
    """A leader whose clock is two hours behind has not expired."""
    board, b = Board(), Candidate("b", TIMES)
    board.write(LeaseClaim(LeaseSpec("a", 15, "1999-01-01T00:00:00Z", "1999-01-01T00:00:00Z", 3), ""))
    assert not board.turn(b, 1000.0)
    assert not board.turn(b, 1014.0)
    assert board.turn(b, 1015.5)
    assert b.transitions == 4


def test_a_term_that_lapsed_does_not_go_on_even_if_nobody_led_in_between():
    board, a = Board(), Candidate("a", TIMES)
    assert board.turn(a, 0)
    assert board.turn(a, 9)
    assert a.term == 1  # renewed in time
    assert board.turn(a, 19.5)
    assert a.term == 2  # it led until 19


def test_who_hears_of_its_renewal_too_late_begins_a_new_term():
    board, a = Board(), Candidate("a", TIMES)
    assert board.turn(a, 0)
    a.won(board.write(a.claim(9, "t")), 9, 10.5)
    assert a.leads(10.5)
    assert a.term == 2


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 8.0), st.booleans()), min_size=5, max_size=60),
)
def test_never_do_two_lead_at_a_time(turns):
    """Whoever comes when, and whether or not what was written is heard of: one leads, or nobody."""
    board, now_s = Board(), 0.0
    won, latest = {}, ""  # by name and term: when it was won last; and who won last
    candidates = {name: Candidate(name, TIMES) for name in "abc"}
    for name, pause_s, heard in turns:
        now_s += pause_s
        candidate = candidates[name]
        candidate.see(board.lease, now_s)
        claim = candidate.claim(now_s, f"{now_s}")
        written = board.write(claim) if claim else None
        if written is not None and heard:
            candidate.won(written, now_s, now_s)
            last_s, last = won.get((name, candidate.term), (now_s, name))
            assert now_s - last_s < TIMES.renew_s, "a term went on after it had lapsed"
            assert latest in ("", last) or last_s == now_s, "a term went on after another's"
            won[name, candidate.term], latest = (now_s, name), name
        assert sum(one.leads(now_s) for one in candidates.values()) <= 1


# -- time ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(-8_000_000, 8_000_000)), max_size=30))
def test_time_never_goes_back_and_passes_at_half_to_twice_its_pace(moves):
    wall, passed = [1_800_000_000_000], [0]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    first = last = clock()
    assert first == wall[0]
    for elapsed, step in moves:
        passed[0] += elapsed
        wall[0] += elapsed + step
        now = clock()
        assert last <= now <= last + 2 * elapsed + 2
        assert now >= first + passed[0] // 2 - 1
        last = now


def test_no_window_is_over_because_a_clock_was_set_ahead():
    wall, passed = [10_000_000], [0]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    began = clock()
    wall[0] += 7_200_000
    for _ in range(100):
        wall[0] += 10
        passed[0] += 10
        now = clock()
    assert now == began + 2_000
    passed[0] += 7_300_000
    wall[0] += 7_300_000
    assert clock() == wall[0]  # caught up with


def test_a_clock_that_was_set_back_is_caught_up_with():
    wall, passed = [10_000_000], [0]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    clock.not_before(10_000_000 + 3_600_000)
    first = clock()
    for _ in range(7_300):
        wall[0] += 1_000
        passed[0] += 1_000
        now = clock()
    assert first == 13_600_000
    assert now == wall[0]


# -- journals, logs, probes ------------------------------------------------------------------------------------------


def test_each_term_has_a_journal_of_its_own(tmp_path):
    path = tmp_path / "run.db"
    for number in range(3):
        open_record(path, {"identity": str(number)}).close()
    kept = sorted(file.name for file in tmp_path.iterdir())
    assert len(kept) == 3
    assert JournalFile.open(path).meta()["identity"] == "2"


def test_a_file_that_is_no_journal_is_kept_too(tmp_path):
    path = tmp_path / "run.db"
    path.write_text("something else")
    open_record(path, {}).close()
    assert sorted(file.read_bytes()[:9] for file in tmp_path.iterdir()) == [b"SQLite fo", b"something"]


def test_lines_are_json_or_readable():
    out = io.StringIO()
    open_log(LogForm.JSON, stream=out).info("leading", lease="a/b", transitions=3)
    line = json.loads(out.getvalue())
    assert (line["event"], line["lease"], line["transitions"], line["level"]) == ("leading", "a/b", 3, "info")
    out = io.StringIO()
    open_log(LogForm.TEXT, stream=out).warning("lost", why="no answer")
    assert out.getvalue().rstrip().endswith('warning: lost          why="no answer"')


def test_probes_answer():
    troubles: list[str] = []
    with Endpoints("127.0.0.1:0", Probes(list, lambda: troubles, lambda: (b"x 1\n", "text/plain"))) as there:
        assert _get(there.port, "/metrics") == (200, "x 1\n")
        assert _get(there.port, "/readyz") == (200, "ok\n")
        troubles.append("not listed")
        assert _get(there.port, "/readyz") == (503, "not listed\n")
        assert _get(there.port, "/healthz")[0] == 200
        assert _get(there.port, "/else")[0] == 404


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_addresses():
    assert read_address(":8080") == ("0.0.0.0", 8080)
    assert read_address("[::1]:80") == ("::1", 80)
    for bad in ("8080", "a:b", "x:70000"):
        with pytest.raises(ListenAddressError, match="expected HOST:PORT"):
            read_address(bad)


# -- the garbage collector -------------------------------------------------------------------------------------


def test_the_garbage_collector_rests_while_a_cluster_is_read_and_leaves_it_alone_then():
    collector, before = Collector(), gc.get_freeze_count()
    try:
        collector.pause()
        collector.resume(settled=False)
        assert not gc.isenabled()
        kept = [[number] for number in range(1000)]
        collector.resume(settled=True)
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(kept)
    finally:
        collector.forget()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_the_garbage_collector_does_not_rest_for_ever(monkeypatch):
    collector = Collector()
    try:
        collector.pause()
        monkeypatch.setattr("tidegate.live.memory_tuning.time.monotonic", lambda: 1e12)
        collector.resume(settled=False)
        assert gc.isenabled()
    finally:
        collector.forget()


def test_a_large_block_that_is_free_is_given_back():
    """In a process of its own, as it is for good; where the C library has another allocator, nothing is done."""
    script = """
from tidegate.live.memory_tuning import give_back_large_blocks, trim
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
known = give_back_large_blocks()
for _ in range(3):
    block = b"x" * (8 << 20)
    before = resident()
    del block
    assert not known or before - resident() > 7 << 20
assert trim() or not known
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_blocks_are_used_again_while_a_list_is_read():
    """A block that is given back costs a fault for each of its pages when the next one is taken."""
    script = """
import resource
from tidegate.live.memory_tuning import give_back_large_blocks, keep_large_blocks
def faults(do):
    do()
    def taken():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(8):
            b"x" * (8 << 20)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    taken()
    return taken()
kept, given = faults(keep_large_blocks), faults(give_back_large_blocks)
assert not keep_large_blocks() or kept * 10 < given, (kept, given)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_library_that_is_given_back_is_read_again_where_it_is_needed():
    script = """
import numpy
from tidegate.live.memory_tuning import give_back_library
def in_files():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile:"))
assert numpy.linalg.det(numpy.eye(50)) == 1
before = in_files()
given = give_back_library("_multiarray_umath")
assert given > 1 << 20, given
assert in_files() < before - 1024, (before, in_files())
assert numpy.linalg.det(numpy.eye(50)) == 1
assert sorted(numpy.random.default_rng(1).permutation(9).tolist()) == list(range(9))
assert give_back_library("no such library") == 0
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
