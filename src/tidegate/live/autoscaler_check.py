"""Whether nodes can be asked for as the options say: whether the server has the kind of object for it."""

from __future__ import annotations

import msgspec

from tidegate.kube.actuator.provisioning import NodeRequestOptions
from tidegate.kube.transport.client import ApiRequest, Client

_NOT_FOUND = 404


async def find_lack(client: Client, by: NodeRequestOptions) -> str:
    """What is missing, in a sentence that says what to do; empty if nothing is."""
    kind = by.kind
    if kind is None:
        return ""
    answer = await client.ask(ApiRequest("GET", f"/apis/{kind.group}/{kind.version}", timeout_s=10))
    if not answer.ok and answer.status != _NOT_FOUND:
        return f"cannot check whether the cluster has {kind.plural}.{kind.group}: {answer.text()}"
    served = msgspec.json.decode(answer.body).get("resources", ()) if answer.ok else ()
    if any(one.get("name") == kind.plural for one in served):
        return ""
    return (
        f"the cluster has no {kind.plural}.{kind.group}/{kind.version}; "
        "install a node autoscaler that has it, or leave the option out: pods that are Unschedulable ask for nodes then"
    )
