"""The test bench itself: a real control plane that runs work, keeps users apart, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubebench import ApiError, Options, Plane, job, node
from kubebench.plane import KWOK, SCHEDULER, SERVER

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(audit=True, build=False)) as plane:
        yield plane


def test_a_job_of_four_pods_runs_and_completes(plane):
    """Scheduled by kube-scheduler, run by kwok for the time its annotation says, finished by the job controller."""
    for number in range(2):
        plane.admin.post("/api/v1/nodes", node(f"n{number}", gpus=8))
    plane.admin.post(JOBS, job("four", 4, gpus=4, runs="1s"))
    done = plane.wait_for(lambda: plane.admin.get(f"{JOBS}/four")["status"].get("succeeded") == 4, what="the job")
    assert done
    pods = plane.admin.get("/api/v1/namespaces/default/pods")["items"]
    nodes = sorted(pod["spec"]["nodeName"] for pod in pods)
    assert nodes == ["n0", "n0", "n1", "n1"]


def test_objects_written_into_the_store_are_there_as_if_created(plane):
    made = plane.admin.post("/api/v1/nodes", node("like", labels={"of": "many"}))
    del made["metadata"]["resourceVersion"]
    names = [f"many-{number:03d}" for number in range(300)]
    like = ({**made, "metadata": {**made["metadata"], "name": name, "uid": f"uid-{name}"}} for name in names)
    assert plane.store.put_all((f"minions/{thing['metadata']['name']}", thing) for thing in like) == 300

    def found():
        return plane.admin.get("/api/v1/nodes", labelSelector="of=many")["items"]

    plane.wait_for(lambda: len(found()) == 301)
    assert [one["metadata"]["name"] for one in found()] == ["like", *names]
    assert all(one["metadata"]["resourceVersion"] for one in found())
    for one in found():
        plane.admin.delete(f"/api/v1/nodes/{one['metadata']['name']}")


def test_users_may_do_what_their_rules_say_and_no_more(plane):
    api = plane.api("tidegate")
    assert api.get("/api/v1/nodes")["kind"] == "NodeList"
    for refused in (lambda: api.post("/api/v1/nodes", node("x")), lambda: api.get("/api/v1/secrets")):
        with pytest.raises(ApiError, match="forbidden"):
            refused()


def test_requests_are_in_the_audit_log(plane):
    plane.api("tidegate").get("/api/v1/namespaces")

    def seen():
        return [line for line in plane.audited() if line["user"]["username"] == "tidegate" and line["verb"] == "list"]

    assert plane.wait_for(seen, what="the audit log")


def test_single_programs_can_be_started_again(plane):
    before = plane.processes[SERVER].pid
    plane.restart(SERVER, kill=True)
    plane.restart(KWOK)
    assert plane.processes[SERVER].pid not in (0, before)
    assert plane.admin.get("/api/v1/nodes")["items"]


_KILLED = """
import sys, time
from kubebench import Options, Plane
with Plane(Options(build=False, controllers="", scheduler=False, kwok=False)) as plane:
    print(*[process.pid for process in plane.processes.values()], plane.folder, flush=True)
    time.sleep(600)
"""


def test_everything_ends_with_a_parent_that_is_killed(kube_programs):
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert child.stdout is not None
    *pids, folder = child.stdout.readline().split()
    assert len(pids) == 2
    assert all(_runs(int(pid)) for pid in pids)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    until = time.monotonic() + 10
    while any(_runs(int(pid)) for pid in pids):
        assert time.monotonic() < until, "a program outlived its parent"
        time.sleep(0.05)
    assert Path(folder).exists()  # nobody was left to remove it
    with Plane(Options(build=False, controllers="", scheduler=False, kwok=False)) as plane:
        assert SCHEDULER not in plane.processes
        assert not Path(folder).exists()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
