"""Ways to a server: kubeconfig files, pods, tokens that change, plugins; and what is said of broken ones."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from kubefake import Fake, answer, refusal
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.connection import ConnectionConfigError, Identity, secure
from tidegate.kube.transport.credentials import TokenFile
from tidegate.kube.transport.kubeconfig import config_access, config_files, pod_access


def identity_of(access, refused=None):
    return asyncio.run(access.credentials.identity(refused))


def config(
    folder: Path, name: str = "config", *, cluster=None, user=None, current: str = "c", entry: str = "c"
) -> Path:
    path = folder / name
    server = {"server": "https://example.invalid:6443", **(cluster or {})}
    content = {
        "current-context": current,
        "clusters": [{"name": entry, "cluster": server}],
        "users": [{"name": entry, "user": user or {"token": "t"}}],
        "contexts": [{"name": entry, "context": {"cluster": entry, "user": entry, "namespace": "team"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def read(path, context=""):
    return config_access([path] if isinstance(path, Path) else path, clock=lambda: 0, context=context)


def test_a_token(tmp_path):
    access = read(config(tmp_path))
    assert (access.server, access.namespace) == ("https://example.invalid:6443", "team")
    assert identity_of(access) == Identity(token="t")


def test_of_several_files_the_first_that_has_an_entry_counts(tmp_path):
    first = config(tmp_path, "first", user={"token": "one"})
    second = config(tmp_path, "second", user={"token": "two"}, entry="other")
    again = config(tmp_path, "again", user={"token": "three"})
    files = [tmp_path / "missing", first, second, again]
    assert identity_of(read(files)).token == "one"
    assert identity_of(read(files, "other")).token == "two"
    assert config_files({"KUBECONFIG": f"{first}:{second}"}) == [first, second]


def test_certificates_beside_the_file_or_inside_of_it(tmp_path):
    (tmp_path / "crt").write_text("C")
    (tmp_path / "key").write_text("K")
    beside = config(tmp_path, user={"client-certificate": "crt", "client-key": "key"})
    assert identity_of(read(beside)) == Identity("", "C", "K")
    inside = {
        "client-certificate-data": base64.b64encode(b"C").decode(),
        "client-key-data": base64.b64encode(b"K").decode(),
    }
    assert identity_of(read(config(tmp_path, user=inside))) == Identity("", "C", "K")


def test_a_token_file_is_read_again_after_a_while_and_when_it_is_refused(tmp_path):
    path, now = tmp_path / "token", [0]
    path.write_text("old\n")
    credentials = TokenFile(path, lambda: now[0])

    async def run():
        first = await credentials.identity()
        path.write_text("new\n")
        kept = await credentials.identity()
        refused = await credentials.identity(first)
        path.write_text("newer\n")
        now[0] = 61_000
        return first.token, kept.token, refused.token, (await credentials.identity()).token

    assert asyncio.run(run()) == ("old", "old", "new", "newer")


def test_a_refused_token_is_asked_for_again_once(tmp_path):
    path = tmp_path / "token"
    path.write_text("old")

    async def run():
        async def behave(asked, writer):
            if asked.headers["authorization"] == "Bearer new":
                await answer(200, {})(asked, writer)
            else:
                path.write_text("new")
                await refusal(401, "Unauthorized")(asked, writer)

        async with Fake(behave) as fake:
            access = fake.access._replace(credentials=TokenFile(path, lambda: 0))
            async with Client(access) as client:
                return (await client.ask(ApiRequest("GET", "/api"))).status, len(fake.asked)

    assert asyncio.run(run()) == (200, 2)


def plugin(folder: Path, said: object, *, code: int = 0, takes_s: float = 0.0) -> Path:
    path = folder / "plugin"
    text = said if isinstance(said, str) else json.dumps(said)
    noting = f"open({str(folder / 'calls')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')"
    acting = f"time.sleep({takes_s})\nprint({text!r})\nsys.exit({code})"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{noting}\n{acting}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1", "provideClusterInfo": True,
                     "installHint": "install it"}}  # fmt: skip
    return config(folder, user=user)


def said(**status):
    return {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}


def test_a_plugin_is_asked_once_until_it_expires_or_is_refused(tmp_path):
    path, now = plugin(tmp_path, said(token="p", expirationTimestamp="1970-01-01T00:01:00Z")), [0]
    access = config_access([path], clock=lambda: now[0])

    async def run():
        identities = await asyncio.gather(*(access.credentials.identity() for _ in range(5)))
        now[0] = 60_000
        await access.credentials.identity()
        return identities

    assert {identity.token for identity in asyncio.run(run())} == {"p"}
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert len(calls) == 2
    assert calls[0]["spec"]["cluster"]["server"] == "https://example.invalid:6443"


def test_a_plugin_serves_every_event_loop_and_runs_once_at_a_time(tmp_path):
    """A live run has several threads with event loops of their own, and all of them need credentials at once."""
    path = plugin(tmp_path, said(token="p", expirationTimestamp="2020-01-01T00:00:00Z"), takes_s=0.5)
    access = config_access([path], clock=lambda: 1_800_000_000_000)  # what it says has always expired
    results = []

    def loop(callers, delay_s):
        async def ask():
            await asyncio.sleep(delay_s)
            return await asyncio.gather(
                *(access.credentials.identity() for _ in range(callers)), return_exceptions=True
            )

        results.extend(asyncio.run(ask()))

    threads = [threading.Thread(target=loop, args=each) for each in ((3, 0), (1, 0.1), (2, 0.2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [Identity(token="p")] * 6
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_a_caller_that_gives_up_does_not_take_the_credentials_from_the_others(tmp_path):
    access = read(plugin(tmp_path, said(token="p"), takes_s=0.5))

    async def run():
        impatient = asyncio.create_task(access.credentials.identity())
        other = asyncio.create_task(access.credentials.identity())
        await asyncio.sleep(0.1)
        impatient.cancel()
        return await other

    assert asyncio.run(run()).token == "p"


def test_a_loop_ends_although_a_plugin_hangs(tmp_path):
    access = read(plugin(tmp_path, said(token="p"), takes_s=30))

    async def run():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(access.credentials.identity(), 0.1)

    began_s = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began_s < 10


def test_a_token_is_not_sent_to_where_a_server_redirects():
    async def run():
        async with Fake(answer(200, {})) as other:
            away = answer(302, {}, Location=other.access.server.replace("127.0.0.1", "localhost") + "/api")
            async with Fake(away) as fake, Client(fake.access) as client:
                status = (await client.ask(ApiRequest("GET", "/api"))).status
                async with client.stream(ApiRequest("GET", "/api"), 5) as stream:
                    return status, stream.status, other.asked

    assert asyncio.run(run()) == (302, 302, [])


@pytest.mark.parametrize(
    ("told", "code", "expected"),
    [
        ("oops", 3, "ended with 3"),
        ("oops", 0, "returned no ExecCredential"),
        (said(), 0, "returned neither a token nor a certificate"),
        (said(token="a\nb"), 0, "returned a token with characters that no header can carry"),
    ],
)
def test_a_plugin_that_fails_is_named_with_how_to_get_it(tmp_path, told, code, expected):
    access = read(plugin(tmp_path, told, code=code))
    with pytest.raises(ConnectionConfigError, match=f"plugin .*{expected}.*install it"):
        identity_of(access)


@pytest.mark.parametrize(
    ("cluster", "user", "current", "expected"),
    [
        (
            {"insecure-skip-tls-verify": True},
            None,
            "c",
            "insecure-skip-tls-verify is refused.*certificate-authority-data",
        ),
        ({"server": "http://x"}, None, "c", "server: expected https://"),
        ({"certificate-authority": "missing"}, None, "c", "missing: cannot be read"),
        ({"certificate-authority-data": "%"}, None, "c", "certificate-authority-data: expected PEM in base64"),
        (None, {"username": "u", "password": "p"}, "c", "username is refused.*use exec or token"),
        (None, {"auth-provider": {"name": "gcp"}}, "c", "auth-provider is refused"),
        (None, {"token": "a\nb"}, "c", "token: expected printable ASCII"),
        (None, {"token": 7}, "c", "Expected `str`, got `int` - at `\\$.users\\[0\\].user.token`"),
        (None, None, "", "current-context: expected the name of a context"),
        (None, None, "d", "contexts: expected one called 'd', found c"),
    ],
)
def test_broken_files_are_named_with_what_to_do(tmp_path, cluster, user, current, expected):
    path = config(tmp_path, cluster=cluster, user=user, current=current)
    with pytest.raises(ConnectionConfigError, match=f"{path}.*{expected}"):
        read(path)


def test_torn_and_missing_files(tmp_path):
    (tmp_path / "torn").write_text("a: [")
    with pytest.raises(ConnectionConfigError, match="torn: is no YAML"):
        read(tmp_path / "torn")
    with pytest.raises(ConnectionConfigError, match="there is no such file; set KUBECONFIG"):
        read(tmp_path / "missing")


def test_a_pod_is_given_its_way(tmp_path):
    for name, content in (("token", "pod-token"), ("ca.crt", "CA"), ("namespace", "team")):
        (tmp_path / name).write_text(content)
    access = pod_access(lambda: 0, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (access.server, access.namespace, access.authority) == ("https://[fd00::1]:443", "team", "CA")
    assert identity_of(access).token == "pod-token"
    with pytest.raises(ConnectionConfigError, match="this is not a pod"):
        pod_access(lambda: 0, {}, tmp_path)


def test_what_is_no_certificate_is_said(tmp_path):
    access = read(config(tmp_path, cluster={"certificate-authority-data": base64.b64encode(b"no").decode()}))
    with pytest.raises(ConnectionConfigError, match="is not a certificate"):
        secure(access, Identity())
