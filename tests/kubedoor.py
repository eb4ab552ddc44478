"""The door as it is shipped, on a control plane."""

from __future__ import annotations

from typing import Any

from kubebench import ApiError, Plane
from kubebench.objects import pod
from tidegate.deploy.install_objects import gate_objects

_PATHS = {
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}


def install_door(plane: Plane) -> None:
    """Install the door, and wait until it is closed: the server takes a moment to heed it."""
    for thing in gate_objects():
        plane.admin.post(_PATHS[thing["kind"]], thing)
    await_door(plane)


def await_door(plane: Plane, *, closed: bool = True) -> None:
    """Wait until the server heeds that the door is there, or that it is gone."""
    plane.wait_for(lambda: _holds(plane) == closed, what="a door that holds pods" if closed else "a door that is gone")


def _holds(plane: Plane) -> bool:
    knock = pod("knock")
    knock["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    try:
        made = plane.admin.post("/api/v1/namespaces/default/pods?dryRun=All", knock)
    except ApiError:
        return False
    return bool(made["spec"].get("schedulingGates"))


def submit(plane: Plane, path: str, thing: dict[str, Any]) -> dict[str, Any]:
    """Create an object; a server that has just learnt its kind may want to be asked again."""

    def tried() -> dict[str, Any] | None:
        try:
            made: dict[str, Any] = plane.admin.post(path, thing)
        except ApiError as error:
            if error.status not in (429, 503):
                raise
            return None
        return made

    made: dict[str, Any] = plane.wait_for(tried, what=f"{thing['kind']} created")
    return made
