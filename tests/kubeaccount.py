"""A service account of an installation, as the program in the cluster is it."""

from __future__ import annotations

from typing import Any

import yaml

from kubebench import Api, Plane

_TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}


def become(plane: Plane, namespace: str, name: str = "tidegate") -> Api:
    """The API server as a service account sees it; its kubeconfig is that of the user with this name."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = plane.admin.post(path, _TOKEN)["status"]["token"]
    config: dict[str, Any] = plane._config_of(account(namespace, name), {"token": token})
    config["contexts"][0]["context"]["namespace"] = namespace
    file = plane.folder / f"{account(namespace, name)}.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
    plane._apis.append(Api(plane.port, plane._tls, token))  # so that it is closed with the plane
    return plane._apis[-1]


def account(namespace: str, name: str = "tidegate") -> str:
    """What the server calls it."""
    return f"system:serviceaccount:{namespace}:{name}"
