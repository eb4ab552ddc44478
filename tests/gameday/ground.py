"""Where the day takes place: a control plane with nodes, an installed Tidegate, and two replicas as processes.

Tidegate is installed by `tidegate install` with its admission gate. Its Deployment is read for the arguments and then
deleted: the replicas run here as the service account, with the token that a pod would have and no other right.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from gameday.policies import limits_of, policy_text
from kubebench import Options, Plane, node
from kubebench.plane import SERVER
from kubedoor import await_door
from kubereplica import QUICK, Replica
from shared import SHARED

NODES = "/api/v1/nodes"
POLICY = "/api/v1/namespaces/tidegate/configmaps/tidegate-policy"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/tidegate/leases"
_HERE, _DEPLOYMENTS = "/api/v1/namespaces/tidegate", "/apis/apps/v1/namespaces/tidegate/deployments"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_JOB_SETS = SHARED / "crds/jobset/jobset.x-k8s.io_jobsets.yaml"
_PRIORITIES = SHARED / "crds/kueue/kueue.x-k8s.io_workloadpriorityclasses.yaml"

GPUS_OF_NODE = 8

#: What a work's priority may be; the label of WorkloadPriorityClasses changes it while it waits.
URGENT, URGENT_PRIORITY = "urgent", 1000

_CONTROLLERS = (
    "job-controller,garbage-collector-controller,namespace-controller,disruption-controller,deployment-controller,"
    "replicaset-controller,pod-garbage-collector-controller,taint-eviction-controller"
)

#: The audit log has who made a pod go, and nothing else.
_DELETIONS = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [delete], resources: [{group: '', resources: [pods]}]}
- {level: Metadata, verbs: [create], resources: [{group: '', resources: [pods/eviction]}]}
- {level: None}
"""


class Setting(NamedTuple):
    """How large the day is."""

    mode: str = "bind"
    nodes: int = 30
    seed: int = 1
    kernels: str = "auto"
    quick: bool = False  # Leases as short as in tests

    @property
    def quota(self) -> int:
        """GPUs that the queues own: less than there are, so that a lost node need not stop work."""
        return self.nodes * GPUS_OF_NODE * 8 // 10


class Ground:
    """Use it in a with statement."""

    def __init__(self, setting: Setting, folder: Path | None = None) -> None:
        self.setting, self._kept = setting, folder
        self.has_job_sets = _JOB_SETS.exists()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = self._kept or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.folder.mkdir(parents=True, exist_ok=True)
            gate = self.setting.mode == "gate"
            options = Options(
                build=False, scheduler=gate, controllers=_CONTROLLERS, audit=True, audit_policy=_DELETIONS
            )
            self.plane = stack.enter_context(Plane(options))
            self._furnish()
            arguments = self._install()
            self.replicas = [self._replica(name, arguments) for name in "ab"]
            for replica in self.replicas:
                stack.enter_context(replica)
            self.replicas[0].wait(lambda: self.leader() is not None, "a first leader", 120)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def leader(self) -> Replica | None:
        """The replica that leads."""
        return next((one for one in self.replicas if one.process.poll() is None and one.leads()), None)

    def add_node(self, name: str) -> None:
        """Have a node."""
        self.plane.admin.post(NODES, node(name, GPUS_OF_NODE))

    def restart_server(self, down_s: float, *, kill: bool) -> None:
        """Restart the API server."""
        self.plane.restart(SERVER, kill=kill, down_s=down_s)

    def deleters(self) -> dict[str, str]:
        """The program that first made each pod go, by the pod's name, as the audit log has it."""
        found: dict[str, str] = {}
        for line in self.plane.audited():
            if line["responseStatus"]["code"] < 300:
                program = line.get("userAgent", "").partition("/")[0]
                found.setdefault(line["objectRef"]["name"], program or "operator")
        return found

    # -- making it ---------------------------------------------------------------------------------------------

    def _furnish(self) -> None:
        if self.has_job_sets:
            self.plane.install(_JOB_SETS, _PRIORITIES)
            classes = "/apis/kueue.x-k8s.io/v1beta1/workloadpriorityclasses"
            self._surely(partial(self.plane.admin.post, classes, _workload_priority()))
        self.plane.admin.post(_CLASSES, _pod_priority())
        for number in range(self.setting.nodes):
            self.add_node(f"n{number:02d}")

    def _surely(self, ask: Callable[[], Any]) -> None:
        """Ask for a kind that the server has just learnt."""
        self.plane.wait_for(lambda: _answered(ask), what="a kind that is served")

    def _install(self) -> list[str]:
        """Install Tidegate; the arguments that its pods have."""
        (self.folder / "policy.yaml").write_text(policy_text(limits_of(self.setting.quota)))
        options = [
            "--mode",
            self.setting.mode,
            "--policy",
            str(self.folder / "policy.yaml"),
            "--admission-gate",
            "--yes",
        ]
        command = [sys.executable, "-m", "tidegate", "install", "--kubeconfig", str(self.plane.kubeconfig("admin"))]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        await_door(self.plane)
        found = self.plane.admin.get(f"{_DEPLOYMENTS}/tidegate")
        self.plane.admin.delete(f"{_DEPLOYMENTS}/tidegate")
        arguments: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
        return arguments

    def _replica(self, name: str, arguments: list[str]) -> Replica:
        replica = Replica(self.plane, self.folder, name)
        own = {
            "--listen": f"127.0.0.1:{replica.port}",
            "--journal": str(replica.journal),
            "--lease": "tidegate/tidegate",
        }
        kept = [one for one in arguments if one.partition("=")[0] not in own]
        named = [f"{key}={value}" for key, value in own.items()]
        more = ["--kubeconfig", str(self._kubeconfig()), "--identity", name, "--kernels", self.setting.kernels]
        replica.command = [*replica.command[:3], *kept, *named, *more, *(QUICK if self.setting.quick else ())]
        return replica

    def _kubeconfig(self) -> Path:
        """A kubeconfig with a token of the service account."""
        path = self.folder / "kubeconfig"
        if not path.exists():
            asked = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 14_400},
            }
            answer = self.plane.admin.post(f"{_HERE}/serviceaccounts/tidegate/token", asked)
            config = yaml.safe_load(self.plane.kubeconfig("admin").read_text())
            config["users"][0]["user"] = {"token": answer["status"]["token"]}
            config["contexts"][0]["context"]["namespace"] = "tidegate"
            path.write_text(yaml.safe_dump(config))
        return path


def _answered(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except Exception:  # noqa: BLE001 - whatever it is, it is asked again
        return False
    return True


def _pod_priority() -> dict[str, Any]:
    meta = {"name": URGENT}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": URGENT_PRIORITY}


def _workload_priority() -> dict[str, Any]:
    meta = {"name": URGENT}
    api = "kueue.x-k8s.io/v1beta1"
    return {"apiVersion": api, "kind": "WorkloadPriorityClass", "metadata": meta, "value": URGENT_PRIORITY}
