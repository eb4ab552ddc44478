"""A preemption loop on the command line: told by simulate, compare and explain, and the run comes to an end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ran

#: kueue#14543 in the twin: of six GPUs `a` uses two and `b` four, then work of `a` asks for three.
LOOP = """\
cluster:
  pools: [{name: p, count: 1, shape: {gpu: h100, gpus: 8, cpu: 64, memory: 512Gi}}]
policy:
  admission: kueue
  cycle: 1s
  fair_sharing: true
  queues:
    - {name: owner, gpus: 6, cohort: all}
    - {name: a, gpus: 0, cohort: all, preemption: {within: LowerPriority, reclaim: Any}}
    - {name: b, gpus: 0, cohort: all, preemption: {within: LowerPriority, reclaim: Any}}
work:
  - {id: a1, queue: a, runtime: 10h, pods: [{gpus: 2}]}
  - {id: b1, queue: b, priority: 1, submit: 1m, runtime: 10h, pods: [{gpus: 4}]}
  - {id: a9, queue: a, priority: 2, submit: 2m, runtime: 10h, pods: [{gpus: 3}]}
"""


@pytest.fixture
def looping(folder):
    """A file that loops, and the same under our own rules."""
    Path("loop.yaml").write_text(LOOP)
    Path("own.yaml").write_text(LOOP.replace("admission: kueue", "admission: tidegate"))
    return folder


def test_simulate_proves_a_loop_leaves_the_rest_of_it_out_and_tells_it_first(looping):
    told = json.loads(ran("simulate", "loop.yaml", "--json"))
    said = "Preemption loop after a9 was submitted: a9 (a) preempted b1 (b) 35,881 times, in 9h58m"  # once a second
    assert told["findings"][0].startswith(said)
    assert told["findings"][0].count("until a1 finished") == 1
    assert "The same state came again and again; the twin left out 9h" in told["findings"][0]
    [loop] = told["summary"]["loops"]
    assert (loop["pairs"][0]["cause"], loop["pairs"][0]["victim"]) == ("a9", "b1")
    assert loop["proven"]
    assert told["summary"]["total"]["finished"] == 3


def test_explain_tells_both_sides_of_it(looping):
    ran("simulate", "loop.yaml", "--journal", "run.db")
    for job in ("a9", "b1"):
        because = json.loads(ran("explain", job, "--journal", "run.db", "--no-changes", "--json"))["because"]
        assert any(sentence.startswith("Preemption loop after a9 was submitted") for sentence in because)


def test_compare_tells_it_of_the_policy_that_loops_alone(looping):
    told = json.loads(ran("compare", "loop.yaml", "--policies", "loop.yaml,own.yaml", "--json"))
    first, second = told["findings"]
    assert first[0].startswith("Preemption loop after a9 was submitted")
    assert not any(finding.startswith("Preemption loop") for finding in second)
    assert "Preemption loop" in ran("compare", "loop.yaml", "--policies", "loop.yaml,own.yaml")
