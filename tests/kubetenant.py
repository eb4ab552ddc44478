"""Owners of work for fault tests: they submit Jobs, pods and pod groups, and make pods again that were evicted.

Must not know: what goes wrong.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kubebench import Plane, job, pod
from kubebench.api import ApiError

PODS, JOBS, NODES = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs", "/api/v1/nodes"
QUEUE = "kueue.x-k8s.io/queue-name"
NOW = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}

#: A pod that is evicted does not count as failed: its Job makes it again.
_FORGIVING = {
    "backoffLimit": 50,
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
}

#: How often a request is made again that nobody answers: the API server may just be restarting.
_TRIES = 300


class Tenant:
    """Owns the work of one point."""

    def __init__(self, plane: Plane, name: str, rng: random.Random) -> None:
        self._plane, self._name, self._rng = plane, name, rng
        self._serial = 0
        self._members: dict[str, dict[str, Any]] = {}  # pods that no controller makes again
        self.jobs: list[str] = []  # that were submitted
        self.deleted: set[str] = set()  # jobs

    @property
    def pods(self) -> list[str]:
        """The pods that belong to no Job."""
        return sorted(self._members)

    # -- what is submitted -------------------------------------------------------------------------------------

    def submit(self, count: int, *, runs: str = "1s", **spec: Any) -> None:
        """Submit Jobs, pods and groups of pods, of random sizes."""
        for _ in range(count):
            pods, gpus = self._rng.randint(1, 3), self._rng.randint(1, 4)
            if self._rng.random() < 0.5:
                self.submit_job(pods, gpus, runs=runs, **spec)
            else:
                self.submit_group(pods, gpus, runs=runs, **spec)

    def submit_job(self, pods: int, gpus: int, *, runs: str = "1s", completions: int = 0, **spec: Any) -> str:
        """Submit a Job; its name."""
        name = self._next_name()
        made = job(name, pods, gpus, runs=runs, suspend=True, scheduler="tidegate", **spec)
        made["spec"] |= {**_FORGIVING, "completions": completions or pods}
        self.jobs.append(name)
        self._post(JOBS, made)
        return name

    def submit_group(self, pods: int, gpus: int, *, runs: str = "1s", **spec: Any) -> None:
        """Submit a group of pods, or a pod alone."""
        name = self._next_name()
        for member in range(pods):
            group = (name, pods) if pods > 1 else None
            made = pod(f"{name}-{member}", gpus, runs=runs, group=group, scheduler="tidegate", **spec)
            self._members[f"{name}-{member}"] = made
            self._post(PODS, made)

    def _next_name(self) -> str:
        self._serial += 1
        return f"{self._name}-{self._serial:02}"

    def _post(self, path: str, thing: dict[str, Any]) -> None:
        thing["metadata"].setdefault("labels", {})[QUEUE] = "team"
        surely(lambda: self._plane.admin.post(path, thing))

    # -- what becomes of it ------------------------------------------------------------------------------------

    def delete_job(self, name: str, how: str) -> None:
        """Delete a Job for good; pods that it leaves behind are deleted when all is over."""
        self.deleted.add(name)
        surely(lambda: self._plane.admin.delete(f"{JOBS}/{name}", {**NOW, "propagationPolicy": how}))

    def delete_pod(self, name: str) -> None:
        """Delete a pod; it is made again unless its work is done."""
        was = self._plane.admin.delete(f"{PODS}/{name}")
        if was.get("status", {}).get("phase") == "Succeeded":
            del self._members[name]

    def versions(self) -> str:
        """What changes when anything happens to the work."""
        things = [one for path in (JOBS, PODS) for one in self._plane.admin.get(path)["items"]]
        return " ".join(sorted(str(one["metadata"]["resourceVersion"]) for one in things))

    def is_over(self) -> bool:
        """Whether all work is done; pods that were evicted are made again."""
        try:
            jobs, pods = self._plane.admin.get(JOBS)["items"], self._plane.admin.get(PODS)["items"]
            self._make_again(pods)
            self._remove_orphans(pods)
        except (ApiError, OSError):
            return False
        return all(map(_is_complete, jobs)) and all(thing["status"].get("phase") == "Succeeded" for thing in pods)

    def _make_again(self, pods: list[dict[str, Any]]) -> None:
        there = {one["metadata"]["name"] for one in pods}
        for name in sorted(self._members.keys() - there):
            made = self._members.pop(name)
            again = {**made, "metadata": {**made["metadata"], "name": f"{name}a"}}  # a pod of its own
            self._members[f"{name}a"] = again
            self._post(PODS, again)

    def unfinished(self) -> dict[str, Any]:
        """Jobs that are not complete: whether they are suspended, and what came of their pods."""
        jobs = self._plane.admin.get(JOBS)["items"]
        return {
            one["metadata"]["name"]: (one["spec"].get("suspend"), one["spec"]["parallelism"], one["status"])
            for one in jobs
            if not _is_complete(one)
        }

    def _remove_orphans(self, pods: list[dict[str, Any]]) -> None:
        for one in pods:
            meta = one["metadata"]
            if job_of(one) in self.deleted and not meta.get("ownerReferences") and "deletionTimestamp" not in meta:
                self._plane.admin.delete(f"{PODS}/{meta['name']}", NOW)

    def clear(self) -> None:
        """Delete everything."""
        self._members = {}
        for path in (JOBS, PODS):
            surely(partial(self._plane.admin.delete, path, NOW))


def job_of(one: dict[str, Any]) -> str:
    """The Job that made a pod; empty if none did."""
    return str(one["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", ""))


def _is_complete(one: dict[str, Any]) -> bool:
    return any(each["type"] == "Complete" for each in one["status"].get("conditions", ()))


def surely(ask: Callable[[], Any]) -> Any:
    """Ask the API server, which may just be restarting; what is there already, or gone, is well."""
    for _ in range(_TRIES):
        try:
            return ask()
        except ApiError as error:
            if error.status in (404, 409):
                return None
            if error.status < 500 and error.status != 429:
                raise
        except OSError:
            pass
        time.sleep(0.1)
    return ask()
