"""What of Tidegate is in a cluster: objects of an installation, and traces in the work of others."""

from __future__ import annotations

import json
from typing import Any

from kubebench import Plane
from tidegate.deploy.install_objects import objects
from tidegate.deploy.install_spec import InstallSpec
from tidegate.deploy.server_side_apply import resource_of

_NAMESPACE = "/api/v1/namespaces/tidegate"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces"


def path_of(thing: dict[str, Any]) -> str:
    """Where an object is on the API server."""
    return resource_of(thing).path(thing["metadata"].get("namespace", ""), thing["metadata"]["name"])


def left(plane: Plane) -> list[str]:
    """Objects of an installation that are still there, but for its namespace."""
    paths = [path_of(one) for one in objects(InstallSpec.everything("tidegate", "tidegate-policy"))]
    paths += [f"{_NAMESPACE}/configmaps/{name}" for name in ("tidegate-policy", "tidegate-before")]
    paths += [f"{_LEASES}/tidegate/leases/tidegate", f"{_LEASES}/kube-system/leases/tidegate-claims"]
    return [path for path in paths if path != _NAMESPACE and plane.admin.is_up(path)]


def traces(thing: dict[str, Any]) -> list[str]:
    """What is ours in an object."""
    text = json.dumps(thing["metadata"].get("annotations", {}))
    gates = (gate["name"] for gate in thing["spec"].get("schedulingGates", ()))
    return [word for word in ("tidegate.io/standing", "tidegate.io/before") if word in text] + [
        gate for gate in gates if gate.startswith("tidegate.io/")
    ]
