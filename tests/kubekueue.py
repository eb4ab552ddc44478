"""Kueue's real manager beside Tidegate, on a control plane of the test bench: for runs side by side.

It is built once, on demand, into the user's cache: `PYTHONPATH=tests python -m kubebench kueue` (long). Its kinds are
those of the module that it is built from. Its webhooks are registered and select nothing: nobody routes to them on
loopback, and Jobs that arrive suspended need none.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Self

import yaml

from kubebench import Plane
from kubebench.process import Process, free_port
from kubebench.programs import KUEUE, find_go, find_programs

NAMESPACE, LEASE = "kueue-system", "c1f6bfd2.kueue.x-k8s.io"
_SERVICE, _SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_MODULE = Path(__file__).parent / "kubebench" / "go" / "kueue"
_HOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"

#: How long it may take to lead.
_PATIENCE_S = 120.0


class Kueue:
    """A running Kueue. Use it in a with statement."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._program = find_programs((KUEUE,), build=False)["kueue"]

    def __enter__(self) -> Self:
        plane = self._plane
        self._install()
        command = [str(self._program), f"--config={self._config()}", f"--kubeconfig={plane.kubeconfig('admin')}"]
        self._process = Process(command, plane.folder / "kueue.log", plane.folder)
        self._process.start()
        self._process.wait_until(self._leads, _PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def memory_mib(self) -> int:
        """The memory it has in use."""
        return self._process.memory_mib()

    def tail(self) -> str:
        """The end of its log."""
        return self._process.tail()

    def _leads(self) -> bool:
        items = self._plane.admin.get(_LEASES)["items"]
        return any(one["metadata"]["name"] == LEASE and one["spec"].get("holderIdentity") for one in items)

    def _install(self) -> None:
        """Its kinds, and what it expects to find: a namespace, a secret, the entries of its webhooks."""
        admin, meta = self._plane.admin, {"name": _SECRET, "namespace": NAMESPACE}
        admin.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
        admin.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        for kind in ("Mutating", "Validating"):
            about = {"name": f"kueue-{kind.lower()}-webhook-configuration"}
            thing = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration"}
            admin.post(_HOOKS.format(kind.lower()), {**thing, "metadata": about})
        kinds = self._plane.folder / "kueue-kinds.yaml"
        kinds.write_text(yaml.dump_all(map(_converted, _definitions()), Dumper=yaml.CSafeDumper))
        self._plane.install(kinds)

    def _config(self) -> Path:
        folder = self._plane.folder / "kueue-certificates"
        folder.mkdir()
        leaf = self._plane._authority.issue_cert(f"{_SERVICE}.{NAMESPACE}.svc")
        (folder / "tls.crt").write_bytes(leaf.cert_chain_pems[0].bytes())
        (folder / "tls.key").write_bytes(leaf.private_key_pem.bytes())
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": free_port(), "certDir": str(folder)},
            "leaderElection": {"leaderElect": True, "resourceName": LEASE, "resourceNamespace": NAMESPACE},
            "internalCertManagement": {
                "enable": True, "webhookServiceName": _SERVICE, "webhookSecretName": _SECRET
            },
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {"VisibilityOnDemand": False},
        }  # fmt: skip
        path = self._plane.folder / "kueue.yaml"
        path.write_text(yaml.safe_dump(config))
        return path


def _definitions() -> list[dict[str, Any]]:
    """The kinds of the version that is built."""
    listed = [str(find_go()), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue"]
    folder = subprocess.run(listed, cwd=_MODULE, capture_output=True, text=True, check=True).stdout.strip()
    files = sorted((Path(folder) / "config/components/crd/bases").glob("*.yaml"))
    return [thing for file in files for thing in yaml.load_all(file.read_text(), yaml.CSafeLoader)]


def _converted(definition: dict[str, Any]) -> dict[str, Any]:
    """With the entry for converting old versions that Kueue puts its certificate into; nobody here asks for one."""
    service = {"namespace": NAMESPACE, "name": _SERVICE, "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    spec = {**definition["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}
    return {**definition, "spec": spec}
