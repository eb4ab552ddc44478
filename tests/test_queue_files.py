"""Queues in a `tidegate.yaml`: what they become, and what is wrong with them, told with file, line and field."""

from __future__ import annotations

import io
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import queue_files
import tidefiles
from manifest_texts import read
from queue_files import FULL_QUEUES, policy, queues
from queue_twins import play
from schema_file import json_schema
from tidefiles import texts
from tidegate.config.convert import build
from tidegate.config.validate import read_document
from tidegate.model.hardware import Taint, TopologyLevels
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.problem import Severity
from tidegate.model.queues import (
    Cohort,
    FairSharing,
    FairStrategy,
    Flavor,
    FlavorGroup,
    FlavorMove,
    FlavorPreference,
    Fungibility,
    LocalQueue,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
    StopPolicy,
    UsageSharing,
)
from tidegate.model.struct import encode
from tidegate.model.units import DAY_MS, MINUTE_MS
from tidegate.model.work import Operator, Toleration
from tidegate.report.text.check import check_files

TIB = 1 << 40
DOCS = Path(__file__).parent.parent / "docs" / "tidegate-yaml.md"


_HOSTS = {"cpu": 384_000, "memory": 2 * TIB, "pods": 100}
_GPU, _HOST = ("gpu",), ("cpu", "memory", "pods", "rdma/hca")

#: What FULL_QUEUES says.
FULL_SHARES = QueueSetup(
    flavors=(
        Flavor(name="h100", node_labels=(("tidegate.io/pool", "h100"),), topology="network"),
        Flavor(
            name="a100",
            node_labels=(("tidegate.io/pool", "a100"),),
            node_taints=(Taint(key="old"),),
            tolerations=(Toleration(key="old", operator=Operator.EXISTS),),
        ),
        Flavor(name="hosts"),
    ),
    cohorts=(
        Cohort(name="lab"),
        Cohort(
            name="ml",
            parent="lab",
            weight_milli=2_000,
            quotas=(Quota(flavor="a100", resource="gpu", nominal=8_000, borrow_limit=4_000, lend_limit=8_000),),
        ),
    ),
    queues=(
        Queue(
            name="research",
            cohort="ml",
            weight_milli=500,
            strict_fifo=True,
            groups=(
                FlavorGroup(resources=_GPU, flavors=("h100", "a100")),
                FlavorGroup(resources=_HOST, flavors=("hosts",)),
            ),
            quotas=(
                Quota(flavor="h100", resource="gpu", nominal=16_000, borrow_limit=8_000, lend_limit=4_000),
                Quota(flavor="a100", resource="gpu", nominal=8_500),
                *(Quota(flavor="hosts", resource=name, nominal=amount) for name, amount in _HOSTS.items()),
                Quota(flavor="hosts", resource="rdma/hca", nominal=16),
            ),
            preemption=PreemptionRule(
                within_queue=PreemptWhom.LOWER_PRIORITY,
                reclaim_in_cohort=PreemptWhom.ANY,
                borrow_in_cohort=PreemptWhom.LOWER_PRIORITY,
                borrow_priority_threshold=10,
            ),
            fungibility=Fungibility(
                when_can_borrow=FlavorMove.NEXT,
                when_can_preempt=FlavorMove.STOP,
                preference=FlavorPreference.PREEMPT,
            ),
            usage_based=True,
        ),
        Queue(
            name="product",
            cohort="lab",
            stop=StopPolicy.DRAIN,
            groups=(
                FlavorGroup(resources=_GPU, flavors=("h100",)),
                FlavorGroup(resources=_HOST, flavors=("hosts",)),
            ),
            quotas=(
                Quota(flavor="h100", resource="gpu", nominal=16_000),
                *(Quota(flavor="hosts", resource=name, nominal=amount) for name, amount in _HOSTS.items()),
                Quota(flavor="hosts", resource="rdma/hca", nominal=0),
            ),
            usage_based=True,
        ),
    ),
    entrances=(
        LocalQueue(id="vision", queue="research"),
        LocalQueue(id="speech", queue="research", weight_milli=2_000, stop=StopPolicy.HOLD),
    ),
    topologies=(TopologyLevels(name="network", labels=("zone", "rack", "kubernetes.io/hostname")),),
    fair=FairSharing(strategies=(FairStrategy.INITIAL_SHARE,)),
    usage=UsageSharing(
        half_life_ms=7 * DAY_MS, sampling_ms=10 * MINUTE_MS, weights_milli=(("cpu", 250), ("gpu", 1_000))
    ),
    ignore_undeclared=False,
)


def built(text: str) -> QueueSetup:
    """The shares of a file that has no errors."""
    document, report = read_document(yaml.safe_load(text))
    assert document is not None, [problem.text() for problem in report.problems]
    return build(document).policy.shares


def test_every_key_means_what_it_says():
    assert built(FULL_QUEUES) == FULL_SHARES


def test_a_queue_is_one_line_and_the_rest_has_defaults():
    document, _ = read_document({"policy": {"queues": [{"name": "default", "gpus": 16}]}})
    assert document is not None
    made = build(document).policy
    assert made.admission is AdmissionKind.TIDEGATE
    assert made.shares == QueueSetup(
        flavors=(Flavor(name="default"),),
        queues=(
            Queue(
                name="default",
                groups=(FlavorGroup(resources=("gpu",), flavors=("default",)),),
                quotas=(Quota(flavor="default", resource="gpu", nominal=16_000),),
            ),
        ),
        ignore_undeclared=True,
    )


def test_a_weight_of_zero_is_kept_because_what_is_left_out_counts_fully():
    usage = {"half_life": "1d", "weights": {"cpu": 0}}
    document, _ = read_document(policy(usage_sharing=usage, queues=[{"name": "q", "cpu": 8, "local_queues": ["a"]}]))
    assert document is not None
    assert build(document).policy.shares.usage.weights_milli == (("cpu", 0),)


def test_without_queues_nothing_is_counted():
    assert built("policy: {name: plain}") == QueueSetup()


KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: ml}
spec:
  parentName: lab
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default
      resources: [{name: cpu, nominalQuota: 8, lendingLimit: 2}, {name: memory, nominalQuota: 1Ti}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: lab}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  cohortName: ml
  queueingStrategy: StrictFIFO
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: MayStopSearch}
  fairSharing: {weight: 2}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default
      resources: [{name: cpu, nominalQuota: 16, borrowingLimit: 4}, {name: memory, nominalQuota: 2Ti}]
"""

AS_KUEUE = """
policy:
  undeclared: refuse
  cohorts:
    - {name: lab}
    - {name: ml, parent: lab, cpu: 8, memory: 1Ti, lend: {cpu: 2}}
  queues:
    - name: research
      cohort: ml
      cpu: 16
      memory: 2Ti
      borrow: {cpu: 4}
      strict: true
      weight: 2
      preemption: {within: LowerPriority, reclaim: Any}
      fungibility: {when_can_borrow: TryNextFlavor, when_can_preempt: MayStopSearch}
"""


def test_a_file_says_the_same_as_kueues_objects():
    loaded, findings = read(KUEUE)
    assert findings == []
    mine = built(AS_KUEUE)
    for name in ("queues", "flavors", "partial", "retargets", "fair", "ignore_undeclared"):
        assert getattr(mine, name) == getattr(loaded.shares, name), name
    assert sorted(mine.cohorts, key=lambda c: c.name) == sorted(loaded.shares.cohorts, key=lambda c: c.name)


# -- what is wrong ---------------------------------------------------------------------------------------------

TWO = {"flavors": [{"name": "a"}, {"name": "b"}]}

WRONG = [
    (policy(queues=[{"gpus": 8}]), "policy.queues[0].name: required key is missing"),
    (queues(gpus=-1), "policy.queues[0].gpus: expected a number of GPUs such as 16 or 0.5, found -1"),
    (queues(gpus="8"), "policy.queues[0].gpus: expected a number of GPUs such as 16 or 0.5, found '8'"),
    (queues(gpu=8), "policy.queues[0].gpu: unknown key; did you mean 'gpus'?"),
    (queues(memory="4TB"), "policy.queues[0].memory: expected an amount of memory such as \"64Gi\", found '4TB'; did you mean '4Ti'?"),  # noqa: E501
    (queues(cohrt="ml"), "policy.queues[0].cohrt: unknown key; did you mean 'cohort'?"),
    (queues(weight=-1), "policy.queues[0].weight: expected a number of at least 0 such as 1, 2 or 0.5, found -1"),
    (queues(strict="yes"), "policy.queues[0].strict: expected true or false, found 'yes'; write true"),
    (queues(stop="Drain"), "policy.queues[0].stop: expected one of None, Hold, HoldAndDrain, found 'Drain'"),
    (queues(stop=None), "policy.queues[0].stop: expected one of None, Hold, HoldAndDrain, found nothing; give it a value or leave the key out"),  # noqa: E501
    (
        queues(cohort="c", preemption={"reclaim": "LowerOrNewerEqualPriority"}),
        ("policy.queues[0].preemption.reclaim: expected one of Any, LowerPriority, Never, "
        "found 'LowerOrNewerEqualPriority'; did you mean 'LowerPriority'?"),
    ),
    (
        queues(cohort="c", preemption={"borrow": "LowerPriority"}),
        ("policy.queues[0].preemption.borrow: expected reclaim too: a queue that may not take back its own quota may "
        "not take more, found reclaim: Never"),
    ),
    (
        queues(fungibility={"when_can_borrow": "Stop"}),
        "policy.queues[0].fungibility.when_can_borrow: expected one of MayStopSearch, TryNextFlavor, found 'Stop'",
    ),
    (policy(queues=[{"name": "q"}]), "policy.queues[0]: expected some quota, found none; write gpus, cpu or memory"),
    (
        policy(queues=[{"name": "q", "cohort": "c"}]),
        "policy.queues[0]: expected some quota, found none; write gpus: 0 for a queue that only borrows",
    ),
    (queues(borrow={"gpus": 1}), "policy.queues[0].borrow.gpus: expected a cohort to borrow from, found none"),
    (queues(lend={"gpus": 1}), "policy.queues[0].lend.gpus: expected a cohort to lend to, found none"),
    (queues(cohort="c", lend={"gpus": 9}), "policy.queues[0].lend.gpus: expected at most what is owned, 8, found 9"),
    (queues(cohort="c", borrow={"cpu": 9}), "policy.queues[0].borrow.cpu: expected quota of cpu too, found none"),
    (
        policy(queues=[{"name": "q", "gpus": 1}, {"name": "q", "gpus": 1}]),
        "policy.queues[1].name: expected a name of its own, found 'q', which policy.queues[0] has too",
    ),
    (
        queues(entrances=["a"]),
        "policy.queues[0].entrances: renamed to local_queues",
    ),
    (
        queues(local_queues=["q"]),
        "policy.queues[0].local_queues[0]: expected a name of its own, found 'q', which policy.queues[0] has too",
    ),
    (queues(flavors=[{"name": "default", "gpus": 1}]), "policy.queues[0]: expected amounts or flavors, found both; move them into flavors"),  # noqa: E501
    (
        policy(**TWO, queues=[{"name": "q", "gpus": 1}]),
        "policy.queues[0]: expected quota by flavor, as there are 2, found none named; write flavors: [{name: a, …}]",
    ),
    (
        policy(**TWO, queues=[{"name": "q", "flavors": [{"name": "c", "gpus": 1}]}]),
        "policy.queues[0].flavors[0].name: there is no flavor 'c'; known: a, b",
    ),
    (
        policy(**TWO, queues=[{"name": "q", "flavors": [{"name": "a", "gpus": 1}, {"name": "a", "gpus": 1}]}]),
        "policy.queues[0].flavors[1].name: expected each flavor once, found 'a' again",
    ),
    (
        policy(**TWO, queues=[{"name": "q", "flavors": [{"name": "a", "gpus": 1, "cpu": 1}, {"name": "b", "gpus": 1}]}]),  # noqa: E501
        ("policy.queues[0].flavors[1]: expected the same resources as flavor a, or none of them, found cpu in only one "
        "of a and b; write 0 for what a flavor has not"),
    ),
    (
        policy(queues=[{"name": "q", "gpus": 1}], flavors=[{"name": "a", "topology": "netwrk"}], topologies=[{"name": "network", "levels": ["rack"]}]),  # noqa: E501
        "policy.flavors[0].topology: there is no topology 'netwrk'; did you mean 'network'?",
    ),
    (
        policy(queues=[{"name": "q", "gpus": 1}], topologies=[{"name": "t", "levels": []}]),
        "policy.topologies[0].levels: expected a list of 1 to 16 items, found an empty list",
    ),
    (
        policy(queues=[{"name": "q", "gpus": 1, "cohort": "a"}], cohorts=[{"name": "b", "parent": "a"}, {"name": "a", "parent": "b"}]),  # noqa: E501
        "policy.cohorts[1].parent: expected cohorts that form a tree, found a cycle: a -> b -> a",
    ),
    (
        policy(queues=[{"name": "q", "gpus": 1, "cohort": "a"}], cohorts=[{"name": "a", "gpus": 1, "borrow": {"gpus": 1}}]),  # noqa: E501
        "policy.cohorts[0].borrow.gpus: expected a parent to borrow from, found none",
    ),
    (queues(other={"cpu": 8}), "policy.queues[0].other.cpu: expected the key to be a resource other than cpu, memory, pods and GPUs, which have keys of their own, found 'cpu'"),  # noqa: E501
    (policy(usage_sharing={}), "policy.usage_sharing.half_life: required key is missing"),
    (policy(fair_sharing=["Sometimes"]), "policy.fair_sharing[0]: expected one of LessThanOrEqualToFinalShare, LessThanInitialShare, found 'Sometimes'"),  # noqa: E501
    (
        {**queues(), "work": [{"id": "j", "runtime": 1, "queue": "p"}]},
        "work[0].queue: there is no queue 'p'; known: q",
    ),
    (
        {**queues(), "work": [{"id": "j", "runtime": 1}]},
        "work[0].queue: expected one of the queues: q, found no queue called default",
    ),
    (
        {**queues(), "work": [{"id": "j", "runtime": 1, "queue": "q", "pods": {"count": 2, "min_count": 3}}]},
        "work[0].pods.min_count: expected at most count, 2, found 3",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_path(data, message):
    document, report = read_document(data)
    assert document is None
    assert [problem.text() for problem in report.problems] == [message]


POOL = {"cluster": {"pools": [{"name": "a", "count": 2, "shape": {"gpus": 8, "cpu": 64}}]}}

WARNED = [
    (queues(gpus=17), "policy.queues[0]: owns 17 GPUs, and the machines have 16 GPUs"),
    (
        policy(queues=[{"name": "q", "gpus": 9}, {"name": "r", "gpus": 9}]),
        "policy.queues: own 18 GPUs together, and the machines have 16 GPUs",
    ),
    (queues(cpu=200), "policy.queues[0]: owns 200 CPU, and the machines have 128 CPU"),
    (queues(cohort="alone"), "policy.queues[0].cohort: no other queue is in the cohort 'alone'"),
    (queues(weight=2), "policy.queues[0].weight: has no effect unless fair_sharing is true"),
    (
        queues(preemption={"reclaim": "Any"}),
        "policy.queues[0].preemption.reclaim: has no effect unless the queue has a cohort",
    ),
    (
        queues(preemption={"borrow_threshold": 3}),
        "policy.queues[0].preemption.borrow_threshold: has no effect unless borrow is LowerPriority",
    ),
    (
        policy(queues=[{"name": "q", "gpus": 8}], cohorts=[{"name": "c"}]),
        "policy.cohorts[0]: has no effect unless a queue, or another cohort, belongs to it",
    ),
    (policy(fair_sharing=True), "policy.fair_sharing: has no effect unless there are queues"),
    (policy(admission="kueue"), "policy.admission: has no effect unless there are queues"),
    (
        policy(queues=[{"name": "q", "gpus": 8}], usage_sharing={"half_life": "1d"}),
        "policy.usage_sharing: has no effect unless a queue has local_queues",
    ),
    (
        policy(queues=[{"name": "q", "gpus": 8}], order="srtf"),
        "policy.order: has no effect unless there are no queues: they order by priority and time, strict each for itself",  # noqa: E501
    ),
    (
        {**queues(), "work": [{"id": "j", "runtime": 1, "queue": "q", "pods": {"count": 9, "gpus": 1}}]},
        (
            "work[0].pods: asks for 9 GPUs, and its queue 'q' can have at most 8 GPUs, borrowing included: "
            "it will wait for ever"
        ),
    ),
]


@pytest.mark.parametrize(("data", "message"), WARNED)
def test_what_will_disappoint_is_a_warning(data, message):
    document, report = read_document({**POOL, **data})
    assert document is not None
    assert [(problem.severity, problem.text()) for problem in report.problems] == [(Severity.WARNING, message)]


def test_work_that_may_start_smaller_or_borrows_enough_is_not_warned_of():
    work = [{"id": "j", "runtime": 1, "queue": "q", "pods": {"count": 9, "min_count": 8, "gpus": 1}}]
    assert texts({**POOL, **queues(), "work": work}) == []
    both = policy(queues=[{"name": "q", "gpus": 8, "cohort": "c"}, {"name": "r", "gpus": 8, "cohort": "c"}])
    work = [{"id": "j", "runtime": 1, "queue": "q", "pods": {"count": 16, "gpus": 1}}]
    assert texts({**POOL, **both, "work": work}) == []


def test_errors_are_told_with_their_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = FULL_QUEUES.replace("parent: lab", "parent: ml").replace("queue: vision", "queue: visoin")
    Path("q.yaml").write_text(broken.replace("name: a100, gpus: 8.5", "name: a10, gpus: 8.5"))
    console = Console(file=io.StringIO(), width=40)
    assert not check_files([Path("q.yaml")], console, as_json=False)
    assert console.file.getvalue().splitlines() == [
        "q.yaml:23: policy.cohorts[1].parent: expected cohorts that form a tree, found a cycle: ml -> ml",
        "q.yaml:33: policy.queues[0].flavors[1].name: there is no flavor 'a10'; did you mean 'a100'?",
        "q.yaml:44: work[0].queue: there is no queue 'visoin'; did you mean 'vision'?",
    ]


# -- properties ------------------------------------------------------------------------------------------------

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_accepts_the_sample():
    VALIDATOR.validate(yaml.safe_load(FULL_QUEUES))


@given(queue_files.policies(), st.data())
@settings(max_examples=80, deadline=None)
def test_a_sound_file_builds_shares_that_survive_a_journal(entry, data):
    work = data.draw(st.lists(tidefiles.work, max_size=2))
    document, report = read_document(
        {"policy": entry, "work": [{**one, "id": f"w{at}", "queue": "research"} for at, one in enumerate(work)]}
    )
    assert document is not None, [problem.text() for problem in report.problems]
    made = build(document).policy
    again = msgspec.msgpack.decode(encode(made), type=Policy)
    assert again == made
    assert again.digest() == made.digest()
    VALIDATOR.validate({"policy": entry})
    assert all(quota.nominal >= 0 for queue in made.shares.queues for quota in queue.quotas)
    covered = [(queue.name, lot) for queue in made.shares.queues for lot in _lots(queue)]
    assert len(covered) == len(set(covered))


def _lots(queue: Queue) -> list[tuple[str, str]]:
    return [(flavor, resource) for group in queue.groups for flavor in group.flavors for resource in group.resources]


@given(queue_files.policies(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_the_schema_and_decoding_agree_about_damaged_queues(entry, rng):
    slots = [slot for slot in tidefiles.slots(entry) if not isinstance(slot[0][slot[1]], float)]
    holder, key = rng.choice(slots)
    holder[key] = rng.choice([-1, "", "8", None, [], {}, {"x": 1}, 10**30, "Never"])
    assert VALIDATOR.is_valid({"policy": entry}) == tidefiles.is_sound({"policy": entry})


# -- the page --------------------------------------------------------------------------------------------------


def test_the_worked_example_of_the_page_comes_out_as_it_says():
    (block,) = re.findall(r"### A worked example.*?```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    document, report = read_document(yaml.safe_load(block))
    assert document is not None
    assert [problem.text() for problem in report.problems] == []
    setup = build(document)
    run = play(setup.work, setup.policy, setup.nodes, setup.twin)
    assert run.finished == pytest.approx({"train": 2.6, "sweep": 6.3}, abs=0.002)
    assert run.column("preemptions") == {"sweep": 1, "train": 0}
    shares = {share.name: share for share in run.measured.summary.shares}
    assert shares["research"].borrowed_gpu_h == pytest.approx(6 * 1.6 + 2 * 4.7, abs=0.01)
    assert shares["research"].preempted_lost_gpu_h == pytest.approx(12 * 0.6, abs=0.01)


def test_the_examples_of_the_page_are_right():
    blocks = re.findall(r"```yaml\n(policy:.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        assert texts(yaml.safe_load(block)) == [], block
