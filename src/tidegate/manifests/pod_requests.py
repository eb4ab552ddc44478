"""The resources one pod requests, as Kubernetes adds them up.

Init containers run one after the other before the rest; sidecars (those that restart always) run with it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.manifests.cluster_defaults import NO_DEFAULTS, ClusterDefaults, ResourceLimits
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, Unsupported, schema
from tidegate.manifests.quantity import Amounts, added, largest

RESOURCES = schema(
    requests=ANYTHING,
    limits=ANYTHING,
    refused={"claims": Unsupported("devices by claim (DRA)", "ask for nvidia.com/gpu under limits")},
)
_PORT = schema(
    idle="containerPort hostIP name protocol",
    refused={"hostPort": Unsupported("a port of the node", "use a Service, or leave it out")},
)
CONTAINER = schema(
    "restartPolicy",
    idle="name args command env envFrom image imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy "
    "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy "
    "tty volumeDevices volumeMounts workingDir",
    resources=RESOURCES,
    ports=_PORT,
)

#: Resources that a pod may ask for as a whole, instead of each container.
_OF_PODS = ("cpu", "memory", "hugepages-")


class ContainerResources(NamedTuple):
    """Requests and limits of one container, or of a pod as a whole."""

    requests: Amounts
    limits: Amounts


def read_requests(spec: Item, defaults: ClusterDefaults = NO_DEFAULTS, namespace: str = "") -> Amounts:
    """What a pod of this spec asks for in all."""
    bounds = defaults.container_bounds.get(namespace)
    total: Amounts = {}
    for item in spec.items("containers"):
        total = added(total, read_container_resources(item, bounds).requests)
    before: Amounts = {}
    sidecars: Amounts = {}
    for item in spec.items("initContainers"):
        asked = read_container_resources(item, bounds).requests
        if item.text("restartPolicy") == "Always":
            total, sidecars = added(total, asked), added(sidecars, asked)
            before = largest(before, sidecars)
        else:
            before = largest(before, added(asked, sidecars))
    whole = {**largest(total, before), **_of_pod(spec, defaults.pod_bounds.get(namespace))}
    return added(whole, _overhead(spec, defaults))


def _of_pod(spec: Item, bounds: ResourceLimits | None) -> Amounts:
    if "resources" not in spec:
        return {}
    asked = read_container_resources(spec, bounds).requests
    return {name: amount for name, amount in asked.items() if name.startswith(_OF_PODS)}


def _overhead(spec: Item, defaults: ClusterDefaults) -> Amounts:
    name = spec.text("runtimeClassName")
    if not name or "overhead" in spec:
        return spec.amounts("overhead")
    if name not in defaults.overheads:
        hint = "add the RuntimeClass to the folder, or write the overhead here"
        spec.warn("runtimeClassName", f"the overhead of {name} is not known and not counted", hint)
    return defaults.overheads.get(name, {})


def read_container_resources(item: Item, bounds: ResourceLimits | None = None) -> ContainerResources:
    """What a container asks for; where it names only a limit, it asks for that."""
    inner = item.mapping("resources")
    requests, limits = inner.amounts("requests"), inner.amounts("limits")
    if bounds is not None:
        requests, limits = {**bounds.requests, **requests}, {**bounds.limits, **limits}
    return ContainerResources({**limits, **requests}, limits)


def exceeds_limits(spec: Item, defaults: ClusterDefaults = NO_DEFAULTS, namespace: str = "") -> bool:
    """Whether a pod requests more than its own limits, or what its LimitRange forbids: no queue admits it."""
    read, bounds = spec.quiet(), defaults.container_bounds.get(namespace)
    found: list[str] = []
    for item in (*read.items("initContainers"), *read.items("containers")):
        asked = read_container_resources(item, bounds)
        found += [f"asks for more {name} than its limit" for name in _above(asked.requests, asked.limits)]
        found += _outside(asked, bounds) if bounds is not None else []
    of_pods = defaults.pod_bounds.get(namespace)
    if of_pods is not None:
        found += _outside(ContainerResources(read_requests(read, defaults, namespace), {}), of_pods)
    for why in dict.fromkeys(found):
        spec.warn(
            "containers", f"a container {why}: no queue takes it", "change the job, or the namespace's LimitRange"
        )
    return bool(found)


def _outside(asked: ContainerResources, bounds: ResourceLimits) -> list[str]:
    most = largest(asked.requests, asked.limits)
    least = {name: min(amount, asked.limits.get(name, amount)) for name, amount in asked.requests.items()}
    above = [f"asks for more {name} than the namespace allows" for name in _above(most, bounds.most)]
    below = [name for name, amount in sorted(bounds.least.items()) if least.get(name, 0) < amount]
    return above + [f"asks for less {name} than the namespace wants" for name in below]


def _above(amounts: Amounts, most: Amounts) -> list[str]:
    return [name for name, amount in sorted(amounts.items()) if name in most and amount > most[name]]
