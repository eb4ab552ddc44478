"""The control plane: etcd, API server, controllers, scheduler and kwok on free ports of loopback.

Everything is made on the spot in a folder of its own: certificates, tokens, configuration, data. The folder goes with
the plane; one that a killed run left behind is removed by the next.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
import yaml

from kubebench.api import Api, ApiError
from kubebench.process import Process, free_port
from kubebench.programs import find_programs
from kubebench.store import Store
from kubebench.users import TIDEGATE, User, grant

_STAGES = Path(__file__).parent / "stages.yaml"
_RUNS = Path(tempfile.gettempdir()) / "tidegate-kubebench"
_ADMIN = "admin"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ALL_REQUESTS = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"

ETCD, SERVER, CONTROLLERS, SCHEDULER, KWOK = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)


@dataclass(frozen=True)
class Options:
    """What a plane should have. Without `controllers`, `scheduler` or `kwok` that program is not started."""

    users: tuple[User, ...] = (TIDEGATE,)
    controllers: str = "job-controller,garbage-collector-controller,namespace-controller,disruption-controller"
    scheduler: bool = True
    scheduler_qps: int = 5000  # kube-scheduler's own default is 50
    kwok: bool = True
    audit: bool = False  # log requests, to be read by `Plane.audited`
    audit_policy: str = _ALL_REQUESTS
    gates: tuple[str, ...] = ()  # feature gates such as GangScheduling=true
    apis: tuple[str, ...] = ()  # such as scheduling.k8s.io/v1alpha2=true
    server_flags: tuple[str, ...] = ()
    most_ready_s: float = 90.0
    build: bool = field(default=True)  # programs that are missing; without it the plane raises Unbuildable


_AT_ONCE = {
    "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "gracePeriodSeconds": 0
}  # fmt: skip


#: Programs that use less than this part of a core, for so long, have settled.
_CALM, _LOOK_S = 0.15, 2.0


class Plane:
    """A running control plane; use it in a with statement."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.processes: dict[str, Process] = {}
        self._apis: list[Api] = []
        self._users = {user.name: user for user in self.options.users}
        self._users[_ADMIN] = User(_ADMIN, groups=("system:masters",))

    def __enter__(self) -> Self:
        programs = find_programs(build=self.options.build)
        _sweep()
        _RUNS.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(dir=_RUNS))
        self._claim = (self.folder / "claim").open("w")
        fcntl.flock(self._claim, fcntl.LOCK_EX)
        try:
            self._start(programs)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    # -- for tests ---------------------------------------------------------------------------------------------

    @property
    def admin(self) -> Api:
        """The API server as system:masters sees it, who is exempt from priority and fairness."""
        return self._admin

    @property
    def url(self) -> str:
        """Where the API server is."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """The file with the certificate that the server's is verified by."""
        return self.folder / "ca.crt"

    def token(self, user: str) -> str:
        """The token of a user."""
        return self._users[user].token

    def api(self, user: str) -> Api:
        """The API server as a user sees it."""
        self._apis.append(Api(self.port, self._tls, self.token(user)))
        return self._apis[-1]

    def kubeconfig(self, user: str) -> Path:
        """A kubeconfig with the token of a user."""
        path = self.folder / f"{user}.kubeconfig"
        if not path.exists():
            path.write_text(yaml.safe_dump(self._config_of(user, {"token": self.token(user)})))
            path.chmod(0o600)
        return path

    def certificate_config(self, user: str, groups: str = "") -> Path:
        """A kubeconfig with a client certificate for a user (in one group)."""
        leaf = self._authority.issue_cert("client.invalid", common_name=user, organization_name=groups or "none")
        path = self.folder / f"{user}-certificate.kubeconfig"
        for name, content in (("crt", leaf.cert_chain_pems[0].bytes()), ("key", leaf.private_key_pem.bytes())):
            (self.folder / f"{user}.{name}").write_bytes(content)
        named = {"client-certificate": f"{user}.crt", "client-key": f"{user}.key"}  # relative to the file
        path.write_text(yaml.safe_dump(self._config_of(user, named)))
        return path

    def restart(self, name: str, *, kill: bool = False, down_s: float = 0.0) -> None:
        """Start one program again; with `kill` it has no time for last words."""
        self.processes[name].stop(kill=kill)
        time.sleep(down_s)
        self.processes[name].start()
        if name == SERVER:
            self.processes[name].wait_until(self._admin.is_up, self.options.most_ready_s)

    def audited(self) -> list[dict[str, Any]]:
        """Requests so far, as the audit log has them."""
        return [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]

    @property
    def store(self) -> Store:
        """The etcd behind the API server."""
        return Store(self._store_url)

    def install(self, *files: Path) -> None:
        """Install the kinds that files of CustomResourceDefinitions define, and wait until they are served."""
        served = []
        for file in files:
            for crd in yaml.load_all(file.read_text(), yaml.CSafeLoader):
                self.admin.post(_CRDS, crd)
                served.append(crd["metadata"]["name"])
        self.wait_for(lambda: all(_is_served(self.admin.get(f"{_CRDS}/{name}")) for name in served), what="kinds")

    def clear(self, *paths: str, most_s: float = 30.0) -> None:
        """Delete everything there is at these paths, without grace, and wait until it is gone."""
        for path in paths:
            self.admin.delete(path, _AT_ONCE)
        self.wait_for(lambda: not any(self.admin.get(path)["items"] for path in paths), most_s, "an empty cluster")

    def settle(self, most_s: float = 120.0) -> float:
        """Wait until the programs have dealt with what they were told: none computes much. How long that took."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < most_s:
            before = sum(process.cpu_s() for process in self.processes.values())
            time.sleep(_LOOK_S)
            if sum(process.cpu_s() for process in self.processes.values()) - before < _CALM * _LOOK_S:
                break
        return waited

    def wait_for(self, holds: Callable[[], Any], most_s: float = 30.0, what: str = "it") -> Any:
        """Wait until something holds; what it returned, or a TimeoutError."""
        until = time.monotonic() + most_s
        while True:
            found = holds()
            if found:
                return found
            if time.monotonic() > until:
                raise TimeoutError(f"{what} did not come about in {most_s:.0f} s")
            time.sleep(0.05)

    # -- starting and ending -----------------------------------------------------------------------------------

    def _start(self, programs: dict[str, Path]) -> None:
        self._make_secrets()
        self._start_store(programs)
        self.port = free_port()
        self._admin = self.api(_ADMIN)
        server = self._run(programs[SERVER], self._server_flags())
        server.wait_until(self._admin.is_up, self.options.most_ready_s)
        for user in self.options.users:
            for path, thing in grant(user):
                self._admin.post(path, thing)
        self._start_others(programs)
        self._make_default_namespace()

    def _start_store(self, programs: dict[str, Path]) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._store_url = client
        flags = {
            "name": "tg", "data-dir": str(self.folder / "etcd"), "listen-client-urls": client,
            "advertise-client-urls": client, "listen-peer-urls": peer, "initial-advertise-peer-urls": peer,
            "initial-cluster": f"tg={peer}", "quota-backend-bytes": str(8 << 30), "log-level": "warn",
            "unsafe-no-fsync": "true",
        }  # fmt: skip
        self._run(programs[ETCD], [f"--{name}={value}" for name, value in flags.items()])

    def _start_others(self, programs: dict[str, Path]) -> None:
        options, config = self.options, str(self.kubeconfig(_ADMIN))
        gates = [f"--feature-gates={','.join(options.gates)}"] if options.gates else []
        if options.controllers:
            flags = [f"--kubeconfig={config}", f"--controllers={options.controllers}", "--leader-elect=false"]
            flags += ["--kube-api-qps=1000", "--kube-api-burst=1000", f"--secure-port={free_port()}", *gates]
            self._run(programs[CONTROLLERS], [*flags, f"--cert-dir={self.folder / 'controllers'}"])
        if options.scheduler:
            flags = [f"--config={self._scheduler_config(config)}", f"--secure-port={free_port()}", *gates]
            self._run(programs[SCHEDULER], [*flags, f"--cert-dir={self.folder / 'scheduler'}"])
        if options.kwok:
            flags = [f"--config={_STAGES}", f"--kubeconfig={config}", "--manage-all-nodes=true"]
            flags += ["--node-lease-duration-seconds=0", f"--server-address=127.0.0.1:{free_port()}"]
            self._run(programs[KWOK], flags)

    def _run(self, program: Path, flags: list[str]) -> Process:
        process = Process([str(program), *flags], self.folder / f"{program.name}.log", self.folder)
        self.processes[program.name] = process
        process.start()
        return process

    def _end(self) -> None:
        for api in self._apis:
            api.close()
        for process in reversed(self.processes.values()):
            process.stop(kill=process.name != SERVER or self.options.audit is False)
        self._claim.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_default_namespace(self) -> None:
        """The API server makes it a moment after it is ready."""
        self.wait_for(lambda: self._admin.is_up("/api/v1/namespaces/default"), what="the namespace default")

    # -- files -------------------------------------------------------------------------------------------------

    def _make_secrets(self) -> None:
        self._authority = trustme.CA()
        served, signing = self._authority.issue_cert("127.0.0.1", "localhost"), self._authority.issue_cert("sa.invalid")
        users = "\n".join(user.line() for user in self._users.values())
        files = {
            "ca.crt": self._authority.cert_pem.bytes(),
            "server.crt": b"".join(part.bytes() for part in served.cert_chain_pems),
            "server.key": served.private_key_pem.bytes(),
            "sa.key": signing.private_key_pem.bytes(),
            "tokens.csv": users.encode(),
            "audit.yaml": self.options.audit_policy.encode(),
        }
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
            (self.folder / name).chmod(0o600)
        self._tls = ssl.create_default_context(cafile=str(self.authority))

    def _server_flags(self) -> list[str]:
        options, folder = self.options, self.folder
        flags = {
            "etcd-servers": self._store_url, "etcd-prefix": "/registry", "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1", "secure-port": str(self.port),
            "endpoint-reconciler-type": "none",  # loopback is no legal endpoint
            "tls-cert-file": str(folder / "server.crt"), "tls-private-key-file": str(folder / "server.key"),
            "client-ca-file": str(folder / "ca.crt"), "token-auth-file": str(folder / "tokens.csv"),
            "anonymous-auth": "false", "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(folder / "sa.key"),
            "service-account-signing-key-file": str(folder / "sa.key"),
            "authorization-mode": "RBAC", "service-cluster-ip-range": "10.96.0.0/16", "allow-privileged": "true",
            # Nobody makes the default accounts, and nobody lifts the not-ready taint of new nodes.
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            "profiling": "false", "v": "1",
        }  # fmt: skip
        if options.audit:
            flags |= {"audit-policy-file": str(folder / "audit.yaml"), "audit-log-path": str(folder / "audit.log")}
        if options.gates:
            flags["feature-gates"] = ",".join(options.gates)
        if options.apis:
            flags["runtime-config"] = ",".join(options.apis)
        return [*(f"--{name}={value}" for name, value in flags.items()), *options.server_flags]

    def _config_of(self, user: str, credentials: dict[str, str]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [
                {"name": "bench", "cluster": {"server": self.url, "certificate-authority": str(self.authority)}}
            ],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": user}}],
        }

    def _scheduler_config(self, kubeconfig: str) -> Path:
        path, qps = self.folder / "scheduler.yaml", self.options.scheduler_qps
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": qps, "burst": qps},
        }
        path.write_text(yaml.safe_dump(config))
        return path


def _is_served(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _sweep() -> None:
    """Remove folders of runs that were killed: nobody holds their claim."""
    for folder in _RUNS.glob("*"):
        try:
            with (folder / "claim").open("w") as claim:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


__all__ = ["CONTROLLERS", "ETCD", "KWOK", "SCHEDULER", "SERVER", "ApiError", "Options", "Plane"]
