"""The install spec: namespace, mode, image, policy and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import tidegate
from tidegate.kube.mirror.namespaces import NamespaceRule
from tidegate.live.election import LeaseName
from tidegate.live.journal_rotation import LEAST_MAX_BYTES
from tidegate.live.modes import Mode
from tidegate.live.policy_sources import KUEUE, NO_QUEUES, PolicyError, PolicyFile
from tidegate.model.errors import UserError
from tidegate.model.units import UnitError, parse_duration_ms, parse_quantity

#: The name of its objects.
NAME = "tidegate"
POLICY = f"{NAME}-policy"

#: Namespaces of the cluster, which install does not label.
THERE = ("default", "kube-system", "kube-public", "kube-node-lease")

#: The first policy of a shadow, without queues, so that it decides on all work.
FIRST_POLICY = """\
# Who may use how much: `policy.queues` and `policy.cohorts`, or Kueue's manifests as further keys of this ConfigMap.
# It is read again when it changes; one that is wrong is refused, and the one in force stays.
version: 1
policy:
  placement: bestfit
"""

_OURS, _CONFIG_MAP = "tidegate.yaml", "configmap:"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_IMAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/:@-]*[A-Za-z0-9])?")

#: The size limit of a ConfigMap.
_MOST_BYTES = 1 << 20


class InstallOptionError(UserError):
    """An option of install is invalid; the text says what was found, what was expected and what to do."""


@dataclass(frozen=True)
class GivenPolicy:
    """The policy of an installation, and the files to install."""

    config_map: str = POLICY  # empty: the policy is in Kueue's objects
    files: Mapping[str, str] | None = None  # None: it exists already, or is created later; it is not changed
    queues: int | None = None  # how many queues the files have; None: there are no files

    @classmethod
    def to_begin_with(cls) -> GivenPolicy:
        """The first policy of a shadow."""
        return cls(files={_OURS: FIRST_POLICY}, queues=0)

    @property
    def source(self) -> str:
        """As `tidegate run --policy` takes it."""
        return f"{_CONFIG_MAP}{self.config_map}" if self.config_map else KUEUE


@dataclass(frozen=True)
class InstallSpec:
    """The options of an installation."""

    mode: Mode = Mode.SHADOW
    namespace: str = NAME
    image: str = f"{NAME}:{tidegate.__version__}"
    replicas: int = 2
    policy: GivenPolicy = field(default_factory=GivenPolicy)
    monitor: bool = False  # a ServiceMonitor
    alerts: bool = False  # a PrometheusRule with alerts
    dashboard: bool = False  # a ConfigMap with a Grafana dashboard
    network_policy: bool = False  # a NetworkPolicy
    admission_gate: bool = False  # work that names a queue is held when it is created
    namespaces: NamespaceRule = NamespaceRule()  # noqa: RUF009 - frozen
    allow_no_queues: bool = False  # gate and bind without quota
    journal_max_size: str = "4Gi"
    journal_retention: str = "30d"

    @classmethod
    def everything(cls, namespace: str, config_map: str) -> InstallSpec:
        """The spec with all options: what uninstall has to look for."""
        chosen = {one.name: True for one in fields(cls) if one.type == "bool"}
        return cls(mode=Mode.BIND, namespace=namespace, policy=GivenPolicy(config_map, {}), **chosen)  # type: ignore[arg-type]

    @property
    def lease(self) -> LeaseName:
        """The Lease that the replicas share."""
        return LeaseName(self.namespace, NAME)

    def check(self) -> None:
        """Validate the options; InstallOptionError says what is wrong."""
        if not _LABEL.fullmatch(self.namespace):
            raise InstallOptionError(
                f"--namespace: expected lower-case letters, digits and '-', 63 at most, found {self.namespace!r}"
            )
        if not _IMAGE.fullmatch(self.image):
            raise InstallOptionError(f"--image: expected a name such as registry/tidegate:1.0, found {self.image!r}")
        if self.mode.writes and self.policy.queues == 0 and not self.allow_no_queues:
            raise InstallOptionError(f"--policy: {NO_QUEUES}")
        try:
            parse_duration_ms(self.journal_retention)
            least = self.journal_bytes >= LEAST_MAX_BYTES
        except UnitError as error:
            raise InstallOptionError(f"--journal-max-size, --journal-retention: expected {error}") from None
        if not least:
            raise InstallOptionError(
                f"--journal-max-size: expected {LEAST_MAX_BYTES >> 20}Mi or more, found {self.journal_max_size}"
            )

    @property
    def journal_bytes(self) -> int:
        """The size limit of the journals."""
        return int(parse_quantity(self.journal_max_size))


def read_policy_wish(text: str | None, namespace: str) -> GivenPolicy:
    """Parse --policy: kueue, configmap:NAME, a file or a folder."""
    if text is None:
        return GivenPolicy()
    if text == KUEUE:
        return GivenPolicy("", None)
    if text.startswith(_CONFIG_MAP):
        where, _, name = text.removeprefix(_CONFIG_MAP).rpartition("/")
        if where not in {"", namespace} or not _SUBDOMAIN.fullmatch(name):
            raise InstallOptionError(
                f"--policy: expected configmap:NAME, a ConfigMap in the namespace {namespace}, found {text!r}; "
                "it may read no other namespace"
            )
        return GivenPolicy(name, None)
    return _read_files(Path(text))


def _read_files(path: Path) -> GivenPolicy:
    """Read the files of a policy as keys of a ConfigMap; an invalid policy is refused."""
    try:
        queues = len(PolicyFile(path).check().shares.queues)
        found = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        files = {one.name: one.read_text() for one in found}
    except PolicyError as error:
        raise InstallOptionError(f"--policy {path}: {error}" if str(path) not in str(error) else str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InstallOptionError(f"--policy {path}: cannot be read: {error}") from None
    odd = [one for one in found if not _KEY.fullmatch(one.name)]
    if odd or len(files) < len(found):
        raise InstallOptionError(
            f"--policy {path}: files become keys of one ConfigMap; expected each name once, of letters, digits and "
            f"'._-', found {', '.join(str(one) for one in odd or found)}"
        )
    if sum(map(len, files.values())) > _MOST_BYTES:
        raise InstallOptionError(f"--policy {path}: a ConfigMap has room for 1 MiB; leave out what is no policy")
    if path.is_file() and "apiVersion" not in files[path.name]:
        files = {_OURS: files[path.name]}
    return GivenPolicy(files=files, queues=queues)
