"""The endpoints under attack, with tokens and certificates, while it starts; and what signals make it say."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from tidegate.live.diagnostics import Diagnostics
from tidegate.live.endpoints import EndpointAccess, Endpoints, ListenAddressError, Probes
from tidegate.live.logs import LogForm, open_log
from tidegate.live.startup import Startup

METRICS = b"x 1\n"


def serving(access=EndpointAccess(), probes=None):  # noqa: B008 - a tuple
    return Endpoints("127.0.0.1:0", probes or Probes(list, list, lambda: (METRICS, "text/plain")), access)


def get(port, path, *, scheme="http", context=None, token=""):
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_half_open_connections_cost_no_threads_and_do_not_shut_probes_out():
    with serving() as there:
        threads, before = threading.active_count(), descriptors()
        half_open = []
        for _ in range(500):
            half_open.append(socket.create_connection(("127.0.0.1", there.port)))
            half_open[-1].send(b"GET /metrics HTTP/1.1\r\n")
        began_s = time.monotonic()
        assert get(there.port, "/healthz") == (200, b"ok\n")
        assert time.monotonic() - began_s < 2
        assert threading.active_count() == threads
        assert descriptors() - before < len(half_open) + 64  # ours, and at most so many of the server's
        for one in half_open:
            one.close()


def test_a_connection_that_is_slow_is_cut():
    with serving() as there, socket.create_connection(("127.0.0.1", there.port)) as slow:
        slow.settimeout(15)
        slow.send(b"GET /healthz HTTP/1.1\r\n")
        began_s = time.monotonic()
        try:
            while time.monotonic() - began_s < 10:
                slow.send(b"X-Drip: 1\r\n")  # never an end
                time.sleep(0.2)
        except OSError:
            pass
        assert 3 < time.monotonic() - began_s < 9


def test_a_reader_that_takes_nothing_is_cut():
    large = Probes(list, list, lambda: (b"x" * (64 << 20), "text/plain"))
    with serving(probes=large) as there, socket.create_connection(("127.0.0.1", there.port)) as slow:
        slow.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        began_s = time.monotonic()
        while there._open or time.monotonic() - began_s < 1:
            assert time.monotonic() - began_s < 12
            time.sleep(0.1)


def test_large_metrics_arrive_whole():
    large = b"x" * (8 << 20)
    with serving(probes=Probes(list, list, lambda: (large, "text/plain"))) as there:
        assert get(there.port, "/metrics") == (200, large)


@pytest.mark.parametrize(
    "head", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"A" * 40_000, b"POST / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_does_no_harm(head):
    with serving() as there:
        with socket.create_connection(("127.0.0.1", there.port)) as odd:
            odd.sendall(head)
            odd.settimeout(10)
            with suppress(ConnectionError):
                assert b"200" not in odd.recv(100)
        assert get(there.port, "/healthz")[0] == 200


def test_a_bug_in_the_metrics_does_not_hide_the_probes():
    with serving(probes=Probes(list, list, lambda: 1 / 0)) as there:
        assert get(there.port, "/metrics")[0] == 500
        assert get(there.port, "/readyz")[0] == 200


def test_metrics_ask_for_a_token_and_probes_do_not(tmp_path):
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    with serving(EndpointAccess(token_file=file)) as there:
        assert get(there.port, "/metrics")[0] == 401
        assert get(there.port, "/metrics", token="other")[0] == 401
        assert get(there.port, "/metrics", token="s3cret") == (200, METRICS)
        assert get(there.port, "/healthz")[0] == get(there.port, "/readyz")[0] == 200
        file.write_text("n3w")
        assert get(there.port, "/metrics", token="s3cret")[0] == 401
        assert get(there.port, "/metrics", token="n3w")[0] == 200
        file.unlink()
        assert get(there.port, "/metrics", token="n3w")[0] == 500


@pytest.fixture
def certificates(tmp_path):
    authority, clients = trustme.CA(), trustme.CA()
    served = authority.issue_cert("127.0.0.1")
    served.private_key_pem.write_to_path(tmp_path / "key")
    for number, part in enumerate(served.cert_chain_pems):
        part.write_to_path(tmp_path / "crt", append=number > 0)
    clients.cert_pem.write_to_path(tmp_path / "clients")

    def context(of=None):
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        if of is not None:
            of.issue_cert("prometheus").configure_cert(trusting)
        return trusting

    return tmp_path, clients, context


def test_metrics_ask_for_a_client_certificate_and_probes_do_not(certificates):
    folder, clients, context = certificates
    access = EndpointAccess(None, folder / "crt", folder / "key", folder / "clients")
    with serving(access) as there:
        assert get(there.port, "/healthz", scheme="https", context=context()) == (200, b"ok\n")
        assert get(there.port, "/metrics", scheme="https", context=context())[0] == 403
        assert get(there.port, "/metrics", scheme="https", context=context(clients)) == (200, METRICS)
        with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
            get(there.port, "/metrics", scheme="https", context=context(trustme.CA()))
        with socket.create_connection(("127.0.0.1", there.port)):  # which never begins its handshake
            assert get(there.port, "/readyz", scheme="https", context=context())[0] == 200


def test_files_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "crt").write_text("no certificate")
    for access, told in (
        (EndpointAccess(None, tmp_path / "crt", tmp_path / "key"), "--tls-cert-file: cannot be used: .*crt"),
        (EndpointAccess(client_authority=tmp_path / "crt"), "needs --tls-cert-file"),
    ):
        with pytest.raises(ListenAddressError, match=told):
            serving(access)


def test_an_address_that_is_taken_is_named():
    with serving() as there, pytest.raises(ListenAddressError, match="name another address or port"):
        Endpoints(f"127.0.0.1:{there.port}", Probes(list, list, lambda: (b"", ""))).__enter__()


# -- while it starts -----------------------------------------------------------------------------------------------


def test_probes_say_what_it_does_while_it_starts():
    out = io.StringIO()
    startup = Startup(open_log(LogForm.JSON, stream=out))
    with serving(probes=startup.probes) as there:
        startup.begin("reading the policy")
        assert get(there.port, "/healthz")[0] == 200
        assert get(there.port, "/readyz") == (503, b"reading the policy\n")
        assert get(there.port, "/metrics")[0] == 503
        for done in range(3):
            startup.note_compiling(done, 70)
        assert get(there.port, "/readyz")[1] == b"compiling kernels: 2 of 70\n"
        startup.end(Probes(lambda: ["stuck"], list, lambda: (METRICS, "text/plain")))
        assert get(there.port, "/healthz") == (503, b"stuck\n")
        assert get(there.port, "/readyz")[0] == 200
        assert get(there.port, "/metrics") == (200, METRICS)
    (line,) = [json.loads(line) for line in out.getvalue().splitlines()]  # not one for each of them
    assert (line["event"], line["done"], line["total"]) == ("compiling kernels", 0, 70)


def test_a_phase_of_the_start_that_never_ends_is_not_alive(monkeypatch):
    startup = Startup(open_log(LogForm.JSON, stream=io.StringIO()))
    now_s = time.monotonic()
    monkeypatch.setattr("tidegate.live.startup.time.monotonic", lambda: now_s + 3_600)
    assert "starting for 3600 s" in startup.probes.alive()[0]
    startup.note_compiling(1, 70)  # progress
    assert startup.probes.alive() == []


# -- signals -------------------------------------------------------------------------------------------------------


@pytest.fixture
def diagnostics():
    """Diagnostics that answer the signals of this process, and what they log."""
    out = io.StringIO()
    log = open_log(LogForm.JSON, stream=out)
    made = Diagnostics(log)
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    made.start()
    yield made, log, lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    signal.set_wakeup_fd(-1)
    for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), before, strict=True):
        signal.signal(number, handler)


def until(holds):
    end_s = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_sigusr1_logs_the_stacks_of_all_threads_and_a_summary(diagnostics):
    made, _, lines = diagnostics
    made.summary = lambda: {"leads": True}
    done = threading.Event()
    worker = threading.Thread(target=lambda: done.wait(30), name="worker")
    worker.start()
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: any(line["event"] == "state" for line in lines()))
    done.set()
    worker.join()
    stacks = {line["name"]: line["stack"] for line in lines() if line["event"] == "thread"}
    assert {"MainThread", "worker"} <= set(stacks)
    assert "done.wait(30)" in stacks["worker"]
    assert lines()[-1]["leads"] is True


def test_a_summary_that_cannot_be_made_is_said(diagnostics):
    made, _, lines = diagnostics
    made.summary = lambda: 1 / 0
    made.dump()
    assert "ZeroDivisionError" in lines()[-1]["error"]


def test_sigusr2_turns_debug_lines_on_and_off(diagnostics):
    _, log, lines = diagnostics
    log.debug("quiet")
    for level in ("debug", "info"):
        os.kill(os.getpid(), signal.SIGUSR2)
        until(lambda level=level: any(line["event"] == "log level changed" and line["to"] == level for line in lines()))
        log.debug("quiet" if level == "info" else "loud")
    assert [line["event"] for line in lines()] == ["log level changed", "loud", "log level changed"]
