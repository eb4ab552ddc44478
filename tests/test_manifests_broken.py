"""Manifests that are wrong: each ends with object, field, what was found and what to do."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifest_texts import QUEUES, documents, read
from tidegate.manifests.findings import ManifestFindings
from tidegate.manifests.import_all import import_documents
from tidegate.manifests.object_index import ManifestDocument
from tidegate.sources.yaml_data import FileReadError
from tidegate.sources.yaml_file import read_documents

Q = "ClusterQueue team: spec"
R = f"{Q}.resourceGroups[0].flavors[0]"


def changed(*changes):
    text = QUEUES
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


COHORTS = "\n---\n".join(
    f"{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {{name: {name}}}, spec: {{parentName: {parent}}}}}"
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"))
)

ERRORS = {
    "a missing flavor": (
        [changed(("metadata: {name: default}", "metadata: {name: defualt}"))],
        [f"{R}.name: there is no ResourceFlavor 'default'; did you mean 'defualt'?"],
    ),
    "cyclic cohorts": (
        [COHORTS],
        [
            f"Cohort {name}: spec.parentName: the cohorts form a cycle: {way}; leave out the parentName of one of them"
            for name, way in (("a", "a → b → c → a"), ("b", "b → c → a → b"), ("c", "c → a → b → c"))
        ],
    ),
    "a cohort that is its own parent": (
        ["{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: a}, spec: {parentName: a}}"],
        ["Cohort a: spec.parentName: the cohorts form a cycle: a → a; leave out the parentName of one of them"],
    ),
    "a negative quota": (
        [changed(("nominalQuota: 100", 'nominalQuota: "-1"'))],
        [f"{R}.resources[0].nominalQuota: expected an amount of zero or more, found '-1'"],
    ),
    "a limit of borrowing without a cohort": (
        [changed(("  cohortName: all\n", ""))],
        [
            f"{R}.resources[2].{key}: has no meaning without a cohort; set spec.cohortName, or leave the limit out"
            for key in ("borrowingLimit", "lendingLimit")
        ],
    ),
    "more lent than owned": (
        [changed(("lendingLimit: 4", "lendingLimit: 17"))],
        [f"{R}.resources[2].lendingLimit: expected at most the nominalQuota, found 17"],
    ),
    "borrowing preempts, reclaiming never": (
        [
            changed(
                (
                    "  cohortName: all\n",
                    "  cohortName: all\n  preemption: {borrowWithinCohort: {policy: LowerPriority}}\n",
                )
            )
        ],
        [
            (
                f"{Q}.preemption.borrowWithinCohort.policy: expected Never while reclaimWithinCohort is Never, "
                "found 'LowerPriority'; set reclaimWithinCohort to LowerPriority or Any"
            )
        ],
    ),
    "a preference without a choice": (
        [
            changed(
                (
                    "  cohortName: all\n",
                    "  cohortName: all\n  flavorFungibility: {preference: BorrowingOverPreemption}\n",
                )
            )
        ],
        [
            (
                f"{Q}.flavorFungibility.preference: expected none unless both other fields are TryNextFlavor, "
                "found 'BorrowingOverPreemption'; leave it out, or set both to TryNextFlavor"
            )
        ],
    ),
    "a name twice": (
        [QUEUES, QUEUES.split("---")[0]],
        ["ResourceFlavor default: metadata.name: expected a name of its own, found the same as in t.yaml, document 1"],
    ),
    "a flavor that lists too little": (
        [changed(("      - {name: memory, nominalQuota: 1Ti}\n", ""))],
        [
            (
                f"{R}.resources: expected exactly the covered resources (cpu, memory, nvidia.com/gpu), "
                "found cpu, nvidia.com/gpu"
            )
        ],
    ),
    "a flavor that lists in another order": (
        [changed(("[cpu, memory, nvidia.com/gpu]", "[memory, cpu, nvidia.com/gpu]"))],
        [
            (
                f"{R}.resources: expected exactly the covered resources in their order (memory, cpu, nvidia.com/gpu), "
                "found cpu, memory, nvidia.com/gpu"
            )
        ],
    ),
    "a resource in two groups": (
        [
            changed(
                (
                    "  resourceGroups:\n",
                    (
                        "  resourceGroups:\n  - {coveredResources: [cpu], flavors: [{name: default, "
                        "resources: [{name: cpu, nominalQuota: 1}]}]}\n"
                    ),
                )
            )
        ],
        [
            (
                f"{Q}.resourceGroups[0].coveredResources: expected each name once in all groups, found 'cpu' twice; "
                "keep one of them"
            ),
            f"{R}.name: expected each name once in all groups, found 'default' twice; keep one of them",
        ],
    ),
    "an unknown version": (
        [changed(("v1beta2", "v1beta9"))],
        [
            (
                "ResourceFlavor default: apiVersion: expected kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2, "
                "found 'kueue.x-k8s.io/v1beta9'"
            )
        ],
    ),
    "an unknown group": (
        ["{apiVersion: kueues.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: a}}"],
        [
            (
                "Cohort a: apiVersion: unknown apiVersion 'kueues.x-k8s.io/v1beta2' of a Cohort; "
                "did you mean 'kueue.x-k8s.io'?"
            )
        ],
    ),
    "a kind of nobody's": (
        ["{apiVersion: example.com/v1, kind: Foo, metadata: {name: a}}"],
        [
            (
                "Foo a: apiVersion: unknown apiVersion 'example.com/v1' of a Foo; "
                "move it out of the folder, or annotate it tidegate.io/ignore: 'true'"
            )
        ],
    ),
    "an unknown kind": (
        ["{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQeue, metadata: {name: a}}"],
        ["ClusterQeue a: kind: unknown kind 'ClusterQeue' of kueue.x-k8s.io; did you mean 'ClusterQueue'?"],
    ),
    "no kind": (
        ["{apiVersion: v1, metadata: {name: a}}"],
        [": kind: required field is missing: not a Kubernetes object; add it, or move the file away"],
    ),
    "a list": (
        ["- a\n- b\n"],
        [": expected a Kubernetes object: a mapping, found a list with 2 items; separate documents by a line of ---"],
    ),
    "a text": (["hello\n"], [": expected a Kubernetes object: a mapping, found 'hello'"]),
    "an unknown field": (
        [changed(("cohortName: all", "cohrtName: all"), (", borrowingLimit: 8, lendingLimit: 4", ""))],
        [f"{Q}.cohrtName: unknown field; did you mean 'cohortName'?"],
    ),
    "a wrong type": (
        [changed(("spec: {clusterQueue: team}", "spec: [team]"))],
        [
            "LocalQueue default/main: spec.clusterQueue: required field is missing; name a ClusterQueue",
            "LocalQueue default/main: spec: expected a mapping, found a list with 1 item",
        ],
    ),
    "a number that is text": (
        [changed(("kind: LocalQueue\nmetadata: {name: main}", "kind: LocalQueue\nmetadata: {name: 5}"))],
        ["LocalQueue default/5: metadata.name: expected text, found 5; write it in quotes"],
    ),
    "an entrance to nowhere": (
        [changed(("clusterQueue: team", "clusterQueue: taem"))],
        ["LocalQueue default/main: spec.clusterQueue: there is no ClusterQueue 'taem'; did you mean 'team'?"],
    ),
    "a topology that is not there": (
        [
            changed(
                ("metadata: {name: default}", "metadata: {name: default}\nspec: {topologyName: t, nodeLabels: {a: b}}")
            )
        ],
        [
            (
                "ResourceFlavor default: spec.topologyName: there is no Topology 't'; "
                "add it to the folder, or correct the name"
            )
        ],
    ),
    "a check that is not there": (
        [
            changed(
                (
                    "  cohortName: all\n",
                    "  cohortName: all\n  admissionChecksStrategy: {admissionChecks: [{name: c}]}\n",
                )
            )
        ],
        [
            (
                f"{Q}.admissionChecksStrategy.admissionChecks[0].name: there is no AdmissionCheck 'c'; "
                "add it to the folder, or correct the name"
            )
        ],
    ),
    "a word that is not one of them": (
        [changed(("  cohortName: all\n", "  cohortName: all\n  queueingStrategy: StrictFifo\n  stopPolicy: hold\n"))],
        [
            f"{Q}.queueingStrategy: expected one of StrictFIFO, BestEffortFIFO, found 'StrictFifo'",
            f"{Q}.stopPolicy: expected one of None, Hold, HoldAndDrain, found 'hold'; did you mean 'Hold'?",
        ],
    ),
    "a quantity that is none": (
        [changed(("nominalQuota: 1Ti", "nominalQuota: 1TiB"))],
        [f'{R}.resources[1].nominalQuota: expected a quantity such as 8, "500m" or "64Gi", found \'1TiB\''],
    ),
    "a profile that no GPU has": (
        [
            QUEUES,
            """{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}},
                spec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/mig-8g.80gb: 1}}}]}}}}""",
        ],
        [
            (
                "Job default/j: spec.template.spec.containers: expected a MIG profile such as nvidia.com/mig-1g.10gb, "
                "found nvidia.com/mig-8g.80gb; did you mean '7g.80gb'?"
            )
        ],
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_wrong_is_said_with_object_field_and_remedy(name):
    texts, expected = ERRORS[name]
    assert sorted(read(*texts).errors()) == sorted(expected)


def test_a_label_that_no_local_queue_has():
    job = """{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: mian}},
        spec: {template: {spec: {containers: [{}]}}}}"""
    assert read(QUEUES, job).said("warning") == [
        (
            "Job default/j: metadata.labels['kueue.x-k8s.io/queue-name']: there is no LocalQueue 'default/mian'; "
            "did you mean 'default/main'?"
        )
    ]


def test_a_namespace_that_a_queue_does_not_let_in():
    text = changed(("namespaceSelector: {}", "namespaceSelector: {matchLabels: {team: a}}"))
    told = "LocalQueue default/main: metadata.namespace: the queue team admits no work from namespace default: "
    remedy = "; add a Namespace with the labels that the queue wants"
    assert read(text).said() == [f"{told}it is not in the folder{remedy}"]
    namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {team: LABEL}}}"
    assert read(text, namespace.replace("LABEL", "b")).said() == [f"{told}its labels do not match{remedy}"]
    assert read(text, namespace.replace("LABEL", "a")).said() == []


def test_a_list_is_taken_apart():
    parts = [document.value for document in documents(QUEUES)]
    findings = ManifestFindings()
    whole = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [*parts, {"kind": "Job", "apiVersion": "batch/v1", "sepc": 1}],
    }
    loaded = import_documents([ManifestDocument(whole, "l.yaml", 1)], findings)
    assert loaded.shares == read(QUEUES).loaded.shares
    assert next(str(found.problem.path) for found in findings.listed) == "('items', 3, 'sepc')"
    typed = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavorList",
        "items": [{"metadata": {"name": "f"}}],
    }
    assert import_documents([ManifestDocument(typed)], ManifestFindings()).shares.flavors[0].name == "f"


def test_an_object_that_says_so_is_left_alone():
    found = read(
        "{apiVersion: example.com/v1, kind: Foo, metadata: {name: a, annotations: {tidegate.io/ignore: 'true'}}}"
    )
    assert found.said() == ["Foo a: is not read: its annotation tidegate.io/ignore says so"]
    assert found.errors() == []


def test_empty_documents_are_nothing():
    assert read("---\n---\n# nothing\n---\n").said() == []


def test_a_yaml_bomb_and_absurd_nesting_are_refused_early():
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
    )
    with pytest.raises(FileReadError, match="too many values"):
        read_documents(bomb.encode())
    with pytest.raises(FileReadError, match="nests too deep"):
        read_documents(b"kind: Job\nspec: " + b"[" * 100 + b"]" * 100)
    with pytest.raises(FileReadError, match="inside of"):
        read_documents(b"a: &a [*a]")


def test_findings_beyond_a_number_are_counted():
    findings = ManifestFindings(most=3)
    fields = {f"field{number}": 1 for number in range(10)}
    import_documents(
        [ManifestDocument({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **fields}, "t.yaml", 1)],
        findings,
    )
    assert (len(findings.listed), findings.errors, findings.more >= 7) == (3, 10, True)


def seeds():
    """Objects of many kinds, to be broken."""
    from test_manifests_foreign import KAI, NODES, YUNIKORN, volcano
    from test_manifests_jobs import KINDS, RUNTIME, SEVERAL
    from test_manifests_workloads import WORKLOAD

    jobs = [text for text, _ in (*KINDS.values(), *SEVERAL.values())]
    texts = [QUEUES, KAI, NODES, YUNIKORN, volcano("v", "{deserved: {cpu: 1}}"), COHORTS, RUNTIME, WORKLOAD, *jobs]
    return [document for text in texts for document in documents(text)]


SEEDS = seeds()
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6)
    | st.sampled_from(["-5", "1e999", "9" * 70, "0.5", "v1", "default", "true", "-"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def paths(value, at=()):
    """Every place in a value."""
    if at:
        yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from paths(inner, (*at, key))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_data_makes_it_fail(data):
    """Any object with anything anywhere in it loads, or is said to be wrong; never more."""
    chosen = data.draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=4))
    broken = []
    for document in chosen:
        value = copy.deepcopy(document.value)
        for _ in range(data.draw(st.integers(0, 3))):
            *way, last = data.draw(st.sampled_from(list(paths(value)) or [("kind",)]))
            inner = value
            for key in way:
                inner = inner[key]
            inner[last] = data.draw(JUNK)
        broken.append(document._replace(value=value))
    findings = ManifestFindings()
    import_documents(broken, findings)
    assert all(isinstance(line, str) for line in findings.texts())


#: Of the same name only one can be meant, and the first is.
DIFFERENT = list({(str(d.value.get("kind")), str(d.value.get("metadata"))): d for d in SEEDS}.values())


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(len(DIFFERENT))))
def test_the_order_of_documents_changes_no_meaning(order):
    def meaning(found):
        shares = found.shares
        return sorted(map(repr, (*shares.queues, *shares.cohorts, *shares.flavors, *shares.entrances))), sorted(
            repr((one.workload.work, one.run)) for one in found.work
        )

    straight, mixed = (
        import_documents(DIFFERENT, ManifestFindings()),
        import_documents([DIFFERENT[at] for at in order], ManifestFindings()),
    )
    assert meaning(straight) == meaning(mixed)


def test_nothing_here_knows_files_or_clocks():
    for file in (Path(__file__).parent.parent / "src/tidegate/manifests").rglob("*.py"):
        assert not {"import os", "import time", "from pathlib", "import yaml"} & set(file.read_text().splitlines())
