"""What of Tidegate is in a cluster: objects of an installation, and traces in the work of others."""

from __future__ import annotations

import json
from typing import Any

from kubebench import Plane
from tidegate.deploy.install_spec import InstallSpec
from tidegate.deploy.objects import door, objects
from tidegate.deploy.server_side_apply import resource_of

_NAMESPACE = "/api/v1/namespaces/tidegate"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces"


def left(plane: Plane) -> list[str]:
    """Objects of an installation that are still there, but for its namespace."""
    everything = [*objects(InstallSpec(board=True)), *door()]
    paths = [resource_of(one).path(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in everything]
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
