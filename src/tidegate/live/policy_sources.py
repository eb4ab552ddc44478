"""Policy sources: a file or folder, a ConfigMap, or the cluster's Kueue objects."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from tidegate.kube.mirror.queue_objects import QUEUE_KINDS, QueueObject
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.objects import KubeObjectMeta, ObjectList
from tidegate.kube.transport.reflector import WatchedKind
from tidegate.kube.transport.resources import CONFIG_MAPS, Resource
from tidegate.live.enforced_policy import enforced, obstacles
from tidegate.manifests.findings import ManifestFindings
from tidegate.manifests.import_all import import_documents
from tidegate.manifests.object_index import ManifestDocument
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.policy import Policy
from tidegate.model.problem import Severity
from tidegate.sources.config_file import ConfigFileError, load_setup
from tidegate.sources.manifest_dir import ManifestDirError, load_manifest_dir

CONFIG_MAP, KUEUE = "configmap:", "kueue"

_NOT_FOUND = 404

#: Why a policy is refused by a mode that writes, and what to do.
NO_QUEUES = "expected queues, found none: nothing would limit who uses how much; add queues, or set --allow-no-queues"

#: The file that is a tidegate.yaml by its name.
_OURS = "tidegate.yaml"

#: Keys of a ConfigMap: file names, not paths.
_KEY, _NO_FILES = re.compile(r"[A-Za-z0-9._-]{1,253}"), (".", "..")

_KUEUE_GROUP = "kueue.x-k8s.io"


class PolicyError(UserError):
    """A policy is invalid; the text says where, what was found, and what to do."""


class PolicyMissingError(PolicyError):
    """A policy does not exist."""


class PolicyUnreachableError(TidegateError):
    """A policy cannot be read now; it may be valid."""


T = TypeVar("T")


class PolicyContent(NamedTuple):
    """The content of a policy: all bytes, to detect changes, and the files."""

    content: bytes
    files: Mapping[str, bytes]


_NOTHING = PolicyContent(b"", {})


class PolicySource(Protocol):
    """A source of the policy."""

    name: str

    async def kinds(self, client: Client) -> tuple[WatchedKind, ...]:
        """The kinds to watch; none if it is not in the cluster. May raise PolicyUnreachableError or PolicyError."""

    def content(self, objects: Sequence[Iterable[Any]]) -> PolicyContent:
        """The policy in the watched objects, by kind; PolicyError if there is none."""

    async def find(self, client: Client) -> PolicyContent:
        """Read it; PolicyUnreachableError if that fails now, PolicyError if there is none."""

    def read(self, found: PolicyContent) -> Policy:
        """Decode it; PolicyError if it is invalid."""


def policy_source(text: str, namespace: str) -> PolicySource:
    """Parse --policy; a ConfigMap without a namespace is in this one."""
    if text == KUEUE:
        return KueueObjects()
    if text.startswith(CONFIG_MAP):
        where, _, name = text.removeprefix(CONFIG_MAP).rpartition("/")
        if not name or "/" in where:
            raise PolicyError(f"--policy: expected configmap:NAMESPACE/NAME, found {text!r}")
        return ConfigMap(where or namespace, name)
    return PolicyFile(Path(text))


class CheckedPolicy:
    """A policy source with the rules of a mode: a shadow may begin without a policy, other modes need queues."""

    def __init__(self, source: PolicySource, *, may_be_missing: bool = False) -> None:
        self.name, self._source, self._may_be_missing = source.name, source, may_be_missing
        self.kinds = source.kinds

    def content(self, objects: Sequence[Iterable[Any]]) -> PolicyContent:
        """The decoded queue objects."""
        try:
            return self._source.content(objects)
        except PolicyMissingError:
            if not self._may_be_missing:
                raise
            return _NOTHING

    async def find(self, client: Client) -> PolicyContent:
        """Read it."""
        try:
            return await self._source.find(client)
        except PolicyMissingError:
            if not self._may_be_missing:
                raise
            return _NOTHING

    def read(self, found: PolicyContent) -> Policy:
        """Decode it; without queues it is refused, unless it may be missing."""
        policy = Policy() if found is _NOTHING else self._source.read(found)
        if not (policy.shares.queues or self._may_be_missing):
            raise PolicyError(f"{self.name}: {NO_QUEUES}")
        return policy


class PolicyFile:
    """A tidegate.yaml, or a file or folder of manifests."""

    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path

    async def kinds(self, client: Client) -> tuple[WatchedKind, ...]:
        """None: files are read, not watched."""
        del client
        return ()

    def content(self, objects: Sequence[Iterable[Any]]) -> PolicyContent:
        """Nothing: files are no objects."""
        raise PolicyError(f"{self.name}: {len(objects)} kinds of objects are no file")

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
        """Decode the files as they are now."""
        del found
        return self.check()

    def check(self) -> Policy:
        """Decode the files without a cluster; PolicyError if they are invalid."""
        self._must_be_there()
        return _read_path(self._path, self.name)

    def _must_be_there(self) -> None:
        if not self._path.exists():
            raise PolicyError(f"{self._path}: there is no such file or folder; expected a tidegate.yaml or manifests")


class _ConfigMapObject(msgspec.Struct, frozen=True):
    metadata: KubeObjectMeta
    data: dict[str, str] | None = None


class ConfigMap:
    """A ConfigMap whose keys are files: a tidegate.yaml, or manifests."""

    def __init__(self, namespace: str, name: str) -> None:
        self.name, self.namespace, self.object = f"{CONFIG_MAP}{namespace}/{name}", namespace, name

    async def kinds(self, client: Client) -> tuple[WatchedKind, ...]:
        """The one object, by a field selector, as a role may allow it by name."""
        del client
        selector = {"fieldSelector": f"metadata.name={self.object}"}
        return (WatchedKind(CONFIG_MAPS, _ConfigMapObject, lambda thing: thing.data or {}, self.namespace, selector),)

    def content(self, objects: Sequence[Iterable[dict[str, str]]]) -> PolicyContent:
        """The keys of the object."""
        data = next(iter(objects[0]), None)
        if data is None:
            raise PolicyMissingError(f"{self.name}: there is no such ConfigMap; make it, with a key such as {_OURS}")
        if not data:
            raise PolicyError(f"{self.name}: has no data; expected a key such as {_OURS}")
        files = {key: text.encode() for key, text in sorted(data.items())}
        return PolicyContent(_joined(files), files)

    async def find(self, client: Client) -> PolicyContent:
        """Read the object."""
        answer = await client.ask(ApiRequest("GET", CONFIG_MAPS.path(self.namespace, self.object), timeout_s=10))
        if answer.status == _NOT_FOUND:
            return self.content([()])
        if not answer.ok:
            raise PolicyUnreachableError(f"{self.name}: {answer.text()}")
        return self.content([(_decoded(answer.body, _ConfigMapObject, self.name).data or {},)])

    def read(self, found: PolicyContent) -> Policy:
        """Decode its keys as the files of a folder."""
        name = next((key for key in found.files if not _KEY.fullmatch(key) or key in _NO_FILES), None)
        if name is not None:
            raise PolicyError(f"{self.name}: expected keys that are file names such as {_OURS}, found {name!r}")
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

    async def kinds(self, client: Client) -> tuple[WatchedKind, ...]:
        """Kueue's kinds in the server's preferred version, and namespaces."""
        version = await self._version(client)
        ours = (kind.group == _KUEUE_GROUP for kind in QUEUE_KINDS)
        there = [
            (kind._replace(version=version) if is_kueues else kind, is_kueues)
            for kind, is_kueues in zip(QUEUE_KINDS, ours, strict=True)
        ]
        return tuple(
            WatchedKind(resource, QueueObject, partial(_kept, resource), optional=optional)
            for resource, optional in there
        )

    def content(self, objects: Sequence[Iterable[dict[str, Any]]]) -> PolicyContent:
        """The objects by kind, sorted by name."""
        files = {
            resource.kind: msgspec.json.encode(sorted(some, key=_object_key))
            for resource, some in zip(QUEUE_KINDS, objects, strict=True)
        }
        return PolicyContent(_joined(files), files)

    async def find(self, client: Client) -> PolicyContent:
        """Read the objects."""
        return self.content([await _listed(client, kind) for kind in await self.kinds(client)])

    def read(self, found: PolicyContent) -> Policy:
        """Decode the objects."""
        findings = ManifestFindings()
        documents = [
            ManifestDocument(item, f"{KUEUE}:{kind}", number)
            for kind, content in found.files.items()
            for number, item in enumerate(msgspec.json.decode(content), 1)
        ]
        loaded = import_documents(documents, findings)
        errors = [one for one in findings.listed if one.problem.severity is Severity.ERROR]
        if errors:
            raise PolicyError("\n".join(f"{one.origin.about()}: {one.problem.text()}" for one in errors))
        if not loaded.shares.queues:
            raise PolicyError("kueue: the cluster has no ClusterQueue; make one, or name another policy")
        return Policy(name=KUEUE, shares=loaded.shares)

    async def _version(self, client: Client) -> str:
        answer = await client.ask(ApiRequest("GET", f"/apis/{_KUEUE_GROUP}", timeout_s=10))
        if answer.status == _NOT_FOUND:
            raise PolicyError(
                "kueue: the cluster does not serve Kueue's kinds; install its CRDs, or name another policy"
            )
        if not answer.ok:
            raise PolicyUnreachableError(f"kueue: {answer.text()}")
        return _decoded(answer.body, _ApiGroup, "kueue").preferred_version.version


class _GroupVersion(msgspec.Struct):
    version: str


class _ApiGroup(msgspec.Struct, rename="camel"):
    preferred_version: _GroupVersion


def _decoded(body: bytes, kind: type[T], what: str) -> T:
    """Decode a response; a body of another type is not from the API server."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise PolicyUnreachableError(f"{what}: the answer cannot be read: {error}") from None


async def _listed(client: Client, kind: WatchedKind) -> list[Any]:
    """List all objects of a kind; none if the server does not have an optional kind."""
    answer = await client.ask(ApiRequest("GET", kind.resource.path(), {"resourceVersion": "0"}, timeout_s=30))
    if answer.status == _NOT_FOUND and kind.optional:
        return []
    if not answer.ok:
        raise PolicyUnreachableError(f"{kind.resource.full_plural}: {answer.text()}")
    page = _decoded(answer.body, ObjectList[kind.type], kind.resource.full_plural)  # type: ignore[name-defined]
    return [kind.shrink(thing) for thing in page.items or ()]


def _kept(resource: Resource, thing: QueueObject) -> dict[str, Any]:
    return thing.kept(resource)


def _object_key(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _joined(files: Mapping[str, bytes]) -> bytes:
    return b"\0".join(name.encode() + b"\0" + content for name, content in files.items())


def _read_path(path: Path, name: str) -> Policy:
    """Decode the policy in a file or folder, named after its source."""
    try:
        if path.is_file() and (path.name == _OURS or b"apiVersion" not in path.read_bytes()):
            policy = _enforced(path, load_setup(path).policy)
            return msgspec.structs.replace(policy, name=name)
        folder = load_manifest_dir(path)
    except (ConfigFileError, ManifestDirError) as error:
        raise PolicyError(str(error)) from None
    assert folder.loaded is not None
    return Policy(name=name, shares=folder.loaded.shares)


def _enforced(path: Path, policy: Policy) -> Policy:
    """The policy of a tidegate.yaml as a cluster enforces it; PolicyError if it cannot."""
    found = obstacles(policy)
    if found:
        raise PolicyError("\n".join(f"{path}: {one}" for one in found))
    return enforced(policy)
