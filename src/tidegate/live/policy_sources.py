"""Where the policy comes from: a file or folder, a ConfigMap, or the cluster's Kueue objects; and whether it changed.

Must not know: what a policy means, or what is done with one that is bad.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from tidegate.kube.mirror.queue_objects import QUEUE_KINDS
from tidegate.kube.transport.client import Client, Request
from tidegate.kube.transport.resources import CONFIG_MAPS, Resource
from tidegate.manifests.documents import Document
from tidegate.manifests.findings import Findings
from tidegate.manifests.load import load
from tidegate.model.policy import OrderKind, Policy
from tidegate.model.problem import Severity
from tidegate.sources.manifestdir import UnusableFolder, load_folder
from tidegate.sources.setupfile import UnusableFile, load_setup

CONFIG_MAP, KUEUE = "configmap:", "kueue"

_LEFT = "how long work still runs, which no object of a cluster tells"

#: Orders that cannot be had on a cluster: what they go by.
_REFUSED_ORDERS = {
    OrderKind.SRTF: _LEFT,
    OrderKind.SRSF: _LEFT,
    OrderKind.LAS: "how long work has run, which is not handed over from one leader to the next",
}
_NOT_FOUND = 404

#: Files that are taken for what they are called: ours, and not manifests.
_OURS = "tidegate.yaml"

_KUEUE_GROUP = "kueue.x-k8s.io"

#: Fields that change all the time and mean nothing to a policy.
_RESTLESS = ("status", "managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


class PolicyError(Exception):
    """A policy that cannot be used; the text says where, what was found, and what to do."""


class PolicyMissingError(PolicyError):
    """There is none where it should be."""


class PolicyUnreachableError(Exception):
    """The policy cannot be read now; that may pass."""


class PolicyContent(NamedTuple):
    """What was read: as it is, to tell whether it changed, and where it is from."""

    content: bytes
    files: Mapping[str, bytes]


class PolicySource(Protocol):
    """Where a policy comes from."""

    name: str

    async def find(self, client: Client) -> PolicyContent:
        """Read it; PolicyUnreachableError where that cannot be done now, PolicyError where there is none."""

    def read(self, found: PolicyContent) -> Policy:
        """Understand it; PolicyError where that cannot be done."""


def policy_source(text: str, namespace: str) -> PolicySource:
    """The source that an option names; objects without a namespace are in this one."""
    if text == KUEUE:
        return KueueObjects()
    if text.startswith(CONFIG_MAP):
        where, _, name = text.removeprefix(CONFIG_MAP).rpartition("/")
        if not name or "/" in where:
            raise PolicyError(f"--policy: expected configmap:NAMESPACE/NAME, found {text!r}")
        return ConfigMap(where or namespace, name)
    return PolicyFile(Path(text))


class PolicyFile:
    """A tidegate.yaml, or a file or folder of manifests."""

    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path

    async def find(self, client: Client) -> PolicyContent:
        """Read the files."""
        del client
        self._must_be_there()
        try:
            paths = [self._path] if self._path.is_file() else sorted(p for p in self._path.rglob("*") if p.is_file())
            files = {str(path): path.read_bytes() for path in paths}
        except OSError as error:
            raise PolicyUnreachableError(f"{self._path}: cannot be read: {error.strerror or error}") from None
        return PolicyContent(_joined(files), files)

    def read(self, found: PolicyContent) -> Policy:
        """Understand the files as they are now."""
        del found
        return self.check()

    def check(self) -> Policy:
        """Understand the files, without a cluster; PolicyError where that cannot be done."""
        self._must_be_there()
        return _read_path(self._path, self.name)

    def _must_be_there(self) -> None:
        if not self._path.exists():
            raise PolicyError(f"{self._path}: there is no such file or folder; expected a tidegate.yaml or manifests")


class ConfigMap:
    """A ConfigMap whose keys are files: a tidegate.yaml, or manifests."""

    def __init__(self, namespace: str, name: str) -> None:
        self.name, self.namespace, self.object = f"{CONFIG_MAP}{namespace}/{name}", namespace, name

    async def find(self, client: Client) -> PolicyContent:
        """Read the object."""
        answer = await client.ask(Request("GET", CONFIG_MAPS.path(self.namespace, self.object), timeout_s=10))
        if answer.status == _NOT_FOUND:
            raise PolicyMissingError(f"{self.name}: there is no such ConfigMap; make it, with a key such as {_OURS}")
        if not answer.ok:
            raise PolicyUnreachableError(f"{self.name}: {answer.text()}")
        data: dict[str, str] = msgspec.json.decode(answer.body).get("data") or {}
        if not data:
            raise PolicyError(f"{self.name}: has no data; expected a key such as {_OURS}")
        files = {key: text.encode() for key, text in sorted(data.items())}
        return PolicyContent(_joined(files), files)

    def read(self, found: PolicyContent) -> Policy:
        """Understand its keys as the files of a folder."""
        with tempfile.TemporaryDirectory() as folder:
            for key, content in found.files.items():
                (Path(folder) / key).write_bytes(content)
            ours = Path(folder) / _OURS
            try:
                return _read_path(ours if ours.exists() else Path(folder), self.name)
            except PolicyError as error:
                raise PolicyError(str(error).replace(folder, self.name)) from None


class KueueObjects:
    """The cluster's Kueue objects."""

    name = KUEUE

    async def find(self, client: Client) -> PolicyContent:
        """Read the objects, in the version that the server prefers."""
        version = await self._version(client)
        found: dict[str, bytes] = {}
        for resource in QUEUE_KINDS:
            ours = resource.group == _KUEUE_GROUP
            there = resource._replace(version=version) if ours else resource
            found[resource.kind] = await _listed(client, there, optional=ours)
        return PolicyContent(_joined(found), found)

    def read(self, found: PolicyContent) -> Policy:
        """Understand the objects."""
        findings = Findings()
        documents = [
            Document(item, f"{KUEUE}:{kind}", number)
            for kind, content in found.files.items()
            for number, item in enumerate(msgspec.json.decode(content), 1)
        ]
        loaded = load(documents, findings)
        errors = [one for one in findings.told if one.problem.severity is Severity.ERROR]
        if errors:
            raise PolicyError("\n".join(f"{one.origin.about()}: {one.problem.text()}" for one in errors))
        if not loaded.shares.queues:
            raise PolicyError("kueue: the cluster has no ClusterQueue; make one, or name another policy")
        return Policy(name=KUEUE, shares=loaded.shares)

    async def _version(self, client: Client) -> str:
        answer = await client.ask(Request("GET", f"/apis/{_KUEUE_GROUP}", timeout_s=10))
        if answer.status == _NOT_FOUND:
            raise PolicyError(
                "kueue: the cluster does not know Kueue's objects; install its CRDs, or name another policy"
            )
        if not answer.ok:
            raise PolicyUnreachableError(f"kueue: {answer.text()}")
        return str(msgspec.json.decode(answer.body)["preferredVersion"]["version"])


async def _listed(client: Client, resource: Resource, *, optional: bool) -> bytes:
    """All objects of a kind without what changes all the time; none where the server does not know the kind."""
    answer = await client.ask(Request("GET", resource.path(), {"resourceVersion": "0"}, timeout_s=30))
    if answer.status == _NOT_FOUND and optional:
        return b"[]"
    if not answer.ok:
        raise PolicyUnreachableError(f"{resource.plural}: {answer.text()}")
    items: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"] or []
    for item in items:
        item.update(apiVersion=resource.api_version, kind=resource.kind)
        for name in _RESTLESS:
            item.pop(name, None)
            item["metadata"].pop(name, None)
    items.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    return msgspec.json.encode(items)


def _joined(files: Mapping[str, bytes]) -> bytes:
    return b"\0".join(name.encode() + b"\0" + content for name, content in files.items())


def _read_path(path: Path, name: str) -> Policy:
    """The policy in a file or folder, called by where it comes from."""
    try:
        if path.is_file() and (path.name == _OURS or b"apiVersion" not in path.read_bytes()):
            policy = load_setup(path).policy
            _refuse_order(path, policy.order.kind)
            return msgspec.structs.replace(policy, name=name)
        folder = load_folder(path)
    except (UnusableFile, UnusableFolder) as error:
        raise PolicyError(str(error)) from None
    assert folder.loaded is not None
    return Policy(name=name, shares=folder.loaded.shares)


def _refuse_order(path: Path, order: OrderKind) -> None:
    if order in _REFUSED_ORDERS:
        raise PolicyError(
            f"{path}: policy.order: expected fifo on a cluster, found {order}, which goes by {_REFUSED_ORDERS[order]}; "
            f"write `order: fifo`, or try {order} in the twin (tidegate simulate)"
        )
