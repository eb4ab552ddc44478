"""The installed policy: the --policy of Tidegate's Deployment, or else Kueue's objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.resources import Resource
from tidegate.live.policy_sources import CONFIG_MAP, KUEUE, PolicyError

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_NAME = "tidegate"
_SELECTOR = {"labelSelector": f"app.kubernetes.io/name={_NAME}"}
_OPTION = "--policy"


class InstalledPolicy(NamedTuple):
    """A policy source, and how it was found."""

    source: str  # as `tidegate run --policy` takes it
    found: str


async def find_installed_policy(client: Client) -> InstalledPolicy:
    """Find the installed policy; PolicyError if there are several, or if it is in a file of the pod."""
    deployments, problem = await _deployments(client)
    found = [(thing, text) for thing in deployments for text in _policies(thing)]
    if not found:
        why = f"Deployments cannot be read ({problem})" if problem else "no Tidegate is installed"
        return InstalledPolicy(KUEUE, f"{why}; the cluster's Kueue objects")
    if len({(_where(thing), text) for thing, text in found}) > 1:
        names = ", ".join(_where(thing) for thing, _ in found)
        raise PolicyError(f"several Tidegates are installed ({names}); name the policy of one with --policy")
    thing, text = found[0]
    name = f"Deployment {_where(thing)}"
    if text == KUEUE:
        return InstalledPolicy(KUEUE, name)
    if text.startswith(CONFIG_MAP):
        namespace, _, config_map = text.removeprefix(CONFIG_MAP).rpartition("/")
        return InstalledPolicy(f"{CONFIG_MAP}{namespace or thing['metadata']['namespace']}/{config_map}", name)
    raise PolicyError(f"{name} reads its policy from {text}, a file of its pod; name the policy with --policy")


async def _deployments(client: Client) -> tuple[list[dict[str, Any]], str]:
    """Deployments of Tidegate in all namespaces, or in the default one if only that may be read."""
    everywhere = await client.ask(ApiRequest("GET", _DEPLOYMENTS.path(), _SELECTOR, timeout_s=10))
    if everywhere.ok:
        return msgspec.json.decode(everywhere.body)["items"] or [], ""
    usual = await client.ask(ApiRequest("GET", _DEPLOYMENTS.path(_NAME, _NAME), timeout_s=10))
    return ([msgspec.json.decode(usual.body)], "") if usual.ok else ([], everywhere.text())


def _policies(thing: dict[str, Any]) -> Iterable[str]:
    """The --policy arguments of a Deployment's containers."""
    for container in thing["spec"]["template"]["spec"].get("containers") or ():
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        for at, word in enumerate(words):
            if word.startswith(f"{_OPTION}="):
                yield word.removeprefix(f"{_OPTION}=")
            elif word == _OPTION and at + 1 < len(words):
                yield words[at + 1]


def _where(thing: dict[str, Any]) -> str:
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
