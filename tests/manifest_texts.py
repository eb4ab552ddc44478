"""Manifests as text, for tests: what they load as, and what is said about them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFinding, ManifestFindings, ObjectOrigin
from tidegate.manifests.import_all import ImportedCluster, import_documents
from tidegate.manifests.object_index import ManifestDocument, embedded
from tidegate.model.problem import Severity
from tidegate.sources.yaml_file import read_documents


class Read(NamedTuple):
    """What a text loads as."""

    loaded: ImportedCluster
    findings: list[ManifestFinding]

    def said(self, severity: str = "") -> list[str]:
        """What is said, without file and document; of one severity, if it is given."""
        return [
            f"{found.origin.about()}: {found.problem.text()}"
            for found in self.findings
            if severity in ("", found.problem.severity)
        ]

    def errors(self) -> list[str]:
        """The errors."""
        return self.said(Severity.ERROR)

    def work(self) -> dict[str, Any]:
        """What is asked, by the workload's id."""
        return {planned.workload.id: planned.workload.work for planned in self.loaded.work}

    def sets(self) -> dict[str, list[tuple[str, int]]]:
        """Names and sizes of pod sets, by the workload's id."""
        return {name: [(pods.name, pods.count) for pods in work.pod_sets] for name, work in self.work().items()}


def documents(text: str) -> list[ManifestDocument]:
    """The documents of a text, and those that stand as text inside of them."""
    found = []
    for number, plain in enumerate(read_documents(text.encode()), 1):
        found.append(ManifestDocument(plain.data, "t.yaml", number))
        for path, inner in embedded(plain.data):
            found += [ManifestDocument(part.data, "t.yaml", number, path) for part in read_documents(inner.encode())]
    return found


def read(*texts: str) -> Read:
    """Load texts as one folder."""
    findings = ManifestFindings()
    loaded = import_documents([document for text in texts for document in documents(text)], findings)
    return Read(loaded, findings.listed)


def item(text: str) -> Item:
    """A value, to be read field by field."""
    (plain,) = read_documents(text.encode())
    return Item(plain.data, ManifestFindings(), ObjectOrigin())


def said(found: Item) -> list[str]:
    """What was said about a value."""
    return found.findings.texts()


QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  cohortName: all
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: default
      resources:
      - {name: cpu, nominalQuota: 100}
      - {name: memory, nominalQuota: 1Ti}
      - {name: nvidia.com/gpu, nominalQuota: 16, borrowingLimit: 8, lendingLimit: 4}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main}
spec: {clusterQueue: team}
"""

CONTAINERS = "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}, limits: {nvidia.com/gpu: 8}}}]}"
